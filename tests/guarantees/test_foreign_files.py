"""Links, pipes and files of other users in a run folder: a run writes to none of them."""

import os
import shutil
from collections.abc import Iterable, Iterator
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
    PREVIOUS,
    SAMPLES,
    TENSORBOARD,
    TIMING,
    VOCABULARY,
)
from seq2seq.runs.tensor_file import read_header
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import open_to_append
from seq2seq.runtime.locks import LOCK
from seq2seq.training.loop import train

pytestmark = pytest.mark.usefixtures("no_engine")
pytest.importorskip("fcntl", reason="links, pipes and owners are those of POSIX")

SETTINGS = ("training.max_steps=2", "training.validate_every=1", "training.keep=1")
SNAPSHOT = "step-3.safetensors"  # of the step that `resume` takes
APPENDED = (METRICS, SAMPLES, TIMING, LOG, TENSORBOARD)
REPLACED = (BEST, LAST, SNAPSHOT, CONFIG, METRICS, SAMPLES)
STRANGER = 65534  # user ids
COLLEAGUE = 65533
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


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Path]:
    """A file of the user, which no test may change."""
    path = tmp_path / "mine"
    path.write_text("precious")
    yield path
    assert path.read_text() == "precious"


def plant_links(run: Path, names: Iterable[str], mine: Path) -> None:
    for name in names:
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(mine)


def test_training_with_overwrite_does_not_write_through_links(
    corpus: Path, tmp_path: Path, mine: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    written = (*REPLACED, PREVIOUS, TIMING, LOG)
    plant_links(run, (*written, *(f"{name}.part" for name in REPLACED)), mine)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "joint.model").write_text("precious")
    for name in (VOCABULARY, TENSORBOARD):
        (run / name).symlink_to(folder)
    assert resume(corpus, run, "--overwrite") == 0
    assert (folder / "joint.model").read_text() == "precious"
    assert [entry.name for entry in folder.iterdir()] == ["joint.model"]
    assert not any(path.is_symlink() for path in run.rglob("*"))


@pytest.mark.parametrize("name", APPENDED)
def test_resuming_refuses_links_that_it_would_write_to(
    run: Path, corpus: Path, mine: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    plant_links(run, [name], mine)
    error = refused(capsys, corpus, run)
    assert f"{run / name}: is a symbolic link; refusing to write through it. Remove it" in error


@pytest.mark.parametrize("name", APPENDED)
def test_resuming_refuses_pipes_without_blocking(
    run: Path, corpus: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    kind = "folder" if name == TENSORBOARD else "file"
    assert f"{run / name}: is not a {kind}. Remove it" in refused(capsys, corpus, run)


@pytest.mark.thorough
def test_resuming_replaces_other_links(run: Path, corpus: Path, tmp_path: Path, mine: Path) -> None:
    for name in (LAST, BEST):  # the link targets are read
        (run / name).rename(tmp_path / name)
        (run / name).symlink_to(tmp_path / name)
    contents_before = {name: (tmp_path / name).read_bytes() for name in (LAST, BEST)}
    plant_links(run, [f"{name}.part" for name in REPLACED], mine)
    assert resume(corpus, run) == 0
    assert {name: (tmp_path / name).read_bytes() for name in (LAST, BEST)} == contents_before
    assert read_header(run / LAST)[0]["progress"]["step"] == 3


def test_a_run_folder_may_be_a_link(run: Path, corpus: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(run)
    assert resume(corpus, link) == 0
    command = ["translate", "-m", str(link), "-i", str(corpus.parent / "test.src")]
    assert main([*command, "-o", str(tmp_path / "out"), "--device", "cpu"]) == 0
    assert read_header(run / LAST)[0]["progress"]["step"] == 3


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
