"""Links and files of other users in a run folder are refused if a run would write to them."""

import os
import shutil
from pathlib import Path

import pytest
from cases.toy_text import write_small_corpus

from seq2seq.__main__ import main
from seq2seq.config.schema import load_config
from seq2seq.data.vocabulary.vocabulary import Vocabularies, save_vocabularies
from seq2seq.runs.layout import (
    BEST,
    CONFIG,
    LAST,
    LOG,
    METRICS,
    SAMPLES,
    TENSORBOARD,
    TIMING,
    VOCABULARY,
)
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import open_to_append
from seq2seq.runtime.locks import LOCK
from seq2seq.training.loop import train

pytestmark = pytest.mark.usefixtures("no_engine")

SETTINGS = ("training.max_steps=2", "training.validate_every=1", "training.keep=1")
STRANGER, COLLEAGUE = 65534, 65533  # user ids
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def finished(corpus: Path) -> Path:
    """Train a run that tests must not change."""
    config = load_config(corpus, [*SETTINGS, f"run_dir={corpus.parent / 'finished'}"])
    return train(config, "cpu")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def resume(corpus: Path, run: Path, *options: str) -> int:
    call = ["train", str(corpus), *SETTINGS, "training.max_steps=3", f"run_dir={run}"]
    return main([*call, "--device", "cpu", *(options or ("--resume",))])


def refused(capsys: pytest.CaptureFixture[str], corpus: Path, run: Path, *options: str) -> str:
    """Check for exit code 2, one line, and an unchanged run folder."""
    files = (path for path in run.rglob("*") if path.is_file() and path.name != LOCK)
    times_before = {path: path.lstat().st_mtime_ns for path in files}
    capsys.readouterr()
    assert resume(corpus, run, *options) == 2
    assert {path: path.lstat().st_mtime_ns for path in times_before} == times_before
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


@pytest.mark.parametrize("damaged", [True, False])
def test_resuming_refuses_a_vocabulary_that_is_a_link(
    run: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: bool
) -> None:
    """The link is found before any work, even if the vocabulary would not be written."""
    moved_vocabulary = tmp_path / "outside"
    (run / VOCABULARY).rename(moved_vocabulary)
    (run / VOCABULARY).symlink_to(moved_vocabulary)
    if damaged:
        (moved_vocabulary / "joint.model").write_bytes(b"precious")
    content = (moved_vocabulary / "joint.model").read_bytes()
    error = refused(capsys, corpus, run)
    assert f"{run / VOCABULARY}: is a symbolic link; refusing to write through it" in error
    assert (moved_vocabulary / "joint.model").read_bytes() == content
    assert [path.name for path in moved_vocabulary.iterdir()] == ["joint.model"]


def test_a_link_planted_after_the_check_is_not_followed(
    tmp_path: Path, tiny_vocabularies: Vocabularies
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "vocabulary").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="vocabulary: is a symbolic link"):
        save_vocabularies(tiny_vocabularies, tmp_path / "vocabulary")
    assert not list((tmp_path / "outside").iterdir())
    (tmp_path / "log").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="symbolic links"):
        open_to_append(tmp_path / "log")
    assert not (tmp_path / "mine").exists()


def test_a_linked_model_in_the_vocabulary_is_replaced(
    tmp_path: Path, tiny_vocabularies: Vocabularies
) -> None:
    (tmp_path / "mine").write_bytes(b"precious")
    for name in ("joint.model", "joint.model.part"):
        (tmp_path / VOCABULARY).mkdir(exist_ok=True)
        (tmp_path / VOCABULARY / name).symlink_to(tmp_path / "mine")
    save_vocabularies(tiny_vocabularies, tmp_path / VOCABULARY)
    assert (tmp_path / "mine").read_bytes() == b"precious"
    assert [path.name for path in (tmp_path / VOCABULARY).iterdir()] == ["joint.model"]
    written = (tmp_path / VOCABULARY / "joint.model").read_bytes()
    assert written == tiny_vocabularies.src.model


@as_root
@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_files_of_another_user_are_refused(
    run: Path, corpus: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (run / TENSORBOARD).mkdir(exist_ok=True)
    files = (METRICS, SAMPLES, TIMING, LOG, TENSORBOARD, VOCABULARY, CONFIG)
    for name in (*files, BEST, LAST, "step-2.safetensors"):
        os.chown(run / name, STRANGER, -1)
        error = refused(capsys, corpus, run, option)
        assert f"{run / name}: belongs to another user (uid {STRANGER}), who does not own" in error
        os.chown(run / name, 0, -1)
    assert resume(corpus, run, option) == 0


@as_root
def test_the_run_of_another_user_is_resumed(run: Path, corpus: Path) -> None:
    """The user named that folder, as in a container that runs as root."""
    for path in (run, *run.rglob("*")):
        os.chown(path, COLLEAGUE, -1)
    assert resume(corpus, run) == 0
