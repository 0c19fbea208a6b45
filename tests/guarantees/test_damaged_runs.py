"""A damaged, mixed-up or edited run folder: faults are named, and intact files are used."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cases.tiers import one_quick
from cases.toy_text import write_small_corpus

from seq2seq.__main__ import main
from seq2seq.config.schema import Config, load_config
from seq2seq.inference.translator import Translator
from seq2seq.runs.layout import BEST, CONFIG, LAST, LOG, METRICS, PREVIOUS
from seq2seq.runs.tensor_file import read_header, read_tensors, save_tensors
from seq2seq.runtime.errors import UserError
from seq2seq.training.loop import train

pytestmark = pytest.mark.usefixtures("no_engine")

SETTINGS = ("training.max_steps=6", "training.validate_every=4", "training.log_every=1")
MODEL = "vocabulary/joint.model"
LINES = ["buda ki.", "zu mo lu."]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_corpus(tmp_path_factory.mktemp("corpus"))


def configured(corpus: Path, run: Path, *overrides: str) -> Config:
    return load_config(corpus, [*SETTINGS, f"run_dir={run}", *overrides])


@pytest.fixture(scope="module")
def finished(corpus: Path) -> Path:
    """Train a run that tests must not change."""
    return train(configured(corpus, corpus.parent / "finished"), "cpu")


@pytest.fixture(scope="module")
def another(corpus: Path) -> Path:
    """Train a run of the same sizes with another vocabulary."""
    overrides = ("vocabulary.type=bpe", "vocabulary.size=345")
    return train(configured(corpus, corpus.parent / "another", *overrides), "cpu")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="module")
def expected_texts(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the translations of the finished run."""
    return translate(Path(shutil.copytree(finished, tmp_path_factory.mktemp("wanted") / "run")))


def flip(path: Path, share: float = 0.7) -> None:
    """Flip one bit at that fraction of the file."""
    with path.open("rb+") as file:
        file.seek(int(path.stat().st_size * share))
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message
    return message


def translate(run: Path) -> list[str]:
    """Translate by the weights, which are read where the engine's files are missing."""
    shutil.rmtree(run / "engine", ignore_errors=True)
    return [
        translation.text for translation in Translator.load(run, device="cpu").translate(LINES, 1)
    ]


def assert_same_state(run: Path, expected_run: Path) -> None:
    """Check that metrics and tensors are bitwise identical."""
    assert (run / METRICS).read_bytes() == (expected_run / METRICS).read_bytes()
    assert (run / BEST).read_bytes() == (expected_run / BEST).read_bytes()
    (tensors, expected_tensors) = (read_tensors(folder / LAST) for folder in (run, expected_run))
    assert tensors.keys() == expected_tensors.keys()
    assert all(torch.equal(tensors[name], expected_tensors[name]) for name in expected_tensors)


DAMAGES = [pytest.param(flip, id="flipped"), pytest.param(cut, id="cut")]
Damage = Callable[[Path], None]

# ---------------------------------------------------------------------------------------- weights


@one_quick("damage", DAMAGES)
def test_damaged_best_weights_are_named_and_written_again(
    run: Path, corpus: Path, damage: Damage
) -> None:
    damage(run / BEST)
    message = refusal(lambda: translate(run))
    assert message.startswith(f"{run / BEST}: damaged")
    assert f"{LAST} is intact by checksum: training with" in message
    train(configured(corpus, run), "cpu", resume=True)
    assert f"{BEST} is damaged or missing; the next validation" in (run / LOG).read_text()
    assert read_header(run / BEST)[0]["step"] == 6
    assert len(translate(run)) == 2


def test_best_weights_of_before_a_key_existed_are_kept(run: Path, corpus: Path) -> None:
    header = read_header(run / BEST)[0]
    del header["config"]["model.window"]
    older_header = {
        key: value for key, value in header.items() if key not in ("tensors", "version")
    }
    save_tensors(run / BEST, read_tensors(run / BEST), older_header)
    written = (run / BEST).read_bytes()
    train(configured(corpus, run), "cpu", resume=True)
    assert (run / BEST).read_bytes() == written
    assert "damaged" not in (run / LOG).read_text()


@pytest.mark.thorough
def test_missing_best_weights_are_written_again_in_training_too(run: Path, corpus: Path) -> None:
    (run / BEST).unlink()
    config = configured(corpus, run, "training.max_steps=8")
    train(config, "cpu", resume=True)
    assert read_header(run / BEST)[0]["step"] == 8


@one_quick("damage", DAMAGES)
def test_with_a_damaged_last_state_the_previous_one_gives_the_same_result(
    run: Path, corpus: Path, finished: Path, damage: Damage
) -> None:
    damage(run / LAST)
    config = configured(corpus, run)
    message = refusal(lambda: train(config, "cpu", resume=True))
    assert message.startswith(f"{run / LAST}: damaged")
    assert f"{PREVIOUS} is intact by checksum: delete {LAST}, and training with" in message
    assert len(translate(run)) == 2  # needs only the best weights
    (run / LAST).unlink()
    assert read_header(run / PREVIOUS)[0]["progress"]["step"] == 4
    train(config, "cpu", resume=True)
    assert_same_state(run, finished)


def test_if_both_states_are_damaged_the_best_weights_are_offered(run: Path, corpus: Path) -> None:
    for name in (LAST, PREVIOUS):
        flip(run / name)
    config = configured(corpus, run)
    message = refusal(lambda: train(config, "cpu", resume=True))
    assert f"{BEST} is intact by checksum: it translates; to train again, overwrite" in message
    (run / LAST).unlink()
    message = refusal(lambda: train(config, "cpu", resume=True))
    assert message.startswith(f"{run / PREVIOUS}: damaged")
    flip(run / BEST)
    assert "No other checkpoint here is intact: copy the run again" in refusal(
        lambda: translate(run)
    )


@one_quick("damage", [flip, Path.unlink])
def test_without_best_weights_and_last_state_the_previous_state_writes_them_again(
    run: Path, corpus: Path, finished: Path, damage: Damage
) -> None:
    (run / BEST).unlink()
    message = refusal(lambda: translate(run))
    assert message.startswith(f"{run}: has no {BEST}, which the first")
    damage(run / LAST)
    first = f"delete {LAST}, and " if (run / LAST).exists() else ""
    hint = f"{PREVIOUS} is intact by checksum: {first}training with"
    assert hint in refusal(lambda: translate(run))
    (run / LAST).unlink(missing_ok=True)
    train(configured(corpus, run), "cpu", resume=True)
    assert_same_state(run, finished)


def test_without_states_an_intact_snapshot_is_offered(
    run: Path, corpus: Path, expected_texts: list[str]
) -> None:
    for name in ("step-2.safetensors", "step-4.safetensors", "step-5.safetensors"):
        shutil.copy(run / BEST, run / name)
    flip(run / "step-5.safetensors")
    for name in (LAST, PREVIOUS, BEST):
        flip(run / name)
    hint = f"step-4.safetensors is intact by checksum: copied to {BEST}, it translates"
    assert hint in refusal(lambda: translate(run))
    assert hint in refusal(lambda: train(configured(corpus, run), "cpu", resume=True))
    shutil.copy(run / "step-4.safetensors", run / BEST)
    assert translate(run) == expected_texts


def test_weights_of_another_run_are_detected(run: Path, another: Path, corpus: Path) -> None:
    shutil.copy(another / BEST, run / BEST)
    message = refusal(lambda: translate(run))
    assert str(run / BEST) in message
    assert "vocabulary.size: 345 -> 340" in message
    train(configured(corpus, run), "cpu", resume=True)
    assert len(translate(run)) == 2
    shutil.copy(another / LAST, run / LAST)
    with pytest.raises(UserError, match=r"vocabulary\.size: 345 -> 340"):
        train(configured(corpus, run), "cpu", resume=True)


# ------------------------------------------------------------------------------------- vocabulary


def swap(path: Path) -> None:
    """Change the vocabulary to another valid one."""
    content = path.read_bytes()
    path.write_bytes(content + b"\x7a\x00")  # an unknown, empty protobuf field


@one_quick(
    "damage", [*DAMAGES, pytest.param(swap, id="another"), pytest.param(Path.unlink, id="gone")]
)
def test_a_damaged_vocabulary_is_named(
    run: Path, corpus: Path, expected_texts: list[str], damage: Damage
) -> None:
    vocabulary = (run / MODEL).read_bytes()
    damage(run / MODEL)
    for attempt in (
        lambda: translate(run),
        lambda: train(configured(corpus, run), "cpu", resume=True),
    ):
        message = refusal(attempt)
        assert message.startswith(f"{run / MODEL}: ")
        assert "copy it from the run again, or train again" in message
    (run / MODEL).write_bytes(vocabulary)
    assert translate(run) == expected_texts


# ----------------------------------------------------------------------------------------- config


def edit(run: Path, old: str, new: str) -> None:
    text = (run / CONFIG).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (run / CONFIG).write_text(text.replace(old, new), encoding="utf-8")


def test_keys_that_do_not_affect_weights_may_be_edited(
    run: Path, expected_texts: list[str]
) -> None:
    edit(run, "beam_size: 3", "beam_size: 2")
    edit(run, "learning_rate: 0.001", "learning_rate: 0.002")
    edit(run, "name: small", "name: renamed")
    assert translate(run) == expected_texts
    assert Translator.load(run, device="cpu").decoding.beam_size == 2  # by the engine just written


@one_quick(
    ("edited", "change"),
    [
        (("hidden_size: 20", "hidden_size: 24"), "model.hidden_size: 20 -> 24"),
        (("hidden: 0.25", "hidden: 0.35"), "model.dropout.hidden: 0.25 -> 0.35"),
        (("  size: 340", "  size: 341"), "vocabulary.size: 340 -> 341"),
    ],
)
def test_edited_keys_that_affect_weights_are_refused_and_restored(
    run: Path, corpus: Path, expected_texts: list[str], edited: tuple[str, str], change: str
) -> None:
    edit(run, *edited)
    message = refusal(lambda: translate(run))
    assert message.startswith(f"{run / CONFIG}: does not fit {run / BEST}")
    assert change in message
    train(configured(corpus, run), "cpu", resume=True)
    assert translate(run) == expected_texts


@one_quick("damage", [cut, Path.unlink], quick=1)
def test_a_damaged_config_is_named_and_written_again(
    run: Path, corpus: Path, expected_texts: list[str], damage: Damage
) -> None:
    damage(run / CONFIG)
    message = refusal(lambda: translate(run))
    assert message.startswith(str(run))
    assert CONFIG in message
    train(configured(corpus, run), "cpu", resume=True)
    assert translate(run) == expected_texts


def test_resuming_compares_with_the_training_state_and_not_the_config_file(
    run: Path, corpus: Path
) -> None:
    edit(run, "learning_rate: 0.001", "learning_rate: 0.002")
    changed = configured(corpus, run, "training.learning_rate=2e-3")
    with pytest.raises(UserError, match=r"training\.learning_rate: 0\.001 -> 0.002"):
        train(changed, "cpu", resume=True)


# --------------------------------------------------------------------------------------- run folder


def test_a_copied_or_moved_run_folder_works(
    run: Path, expected_texts: list[str], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, copy_function=shutil.copyfile)  # without times and modes
    run.rename(tmp_path / "moved")
    assert translate(copy) == translate(tmp_path / "moved") == expected_texts


@pytest.mark.parametrize("garbage", [b"\xff\xfe\n", b'{"step": 7', b"[" * 50_000, b"\0" * 99])
def test_garbage_after_the_metrics_is_removed(
    run: Path, corpus: Path, finished: Path, garbage: bytes
) -> None:
    later_line = b'{"step": 7, "train_loss": 0.5}\n'
    with (run / METRICS).open("ab") as file:
        file.write(later_line + garbage)
    assert main(["train", str(corpus), *SETTINGS, f"run_dir={run}", "--resume"]) == 0
    assert (run / METRICS).read_bytes() == (finished / METRICS).read_bytes()
    assert notes_on_metrics(run) == []


def notes_on_metrics(run: Path) -> list[str]:
    """Return the lines of the log since the last start that mention metrics.jsonl."""
    return [line for line in (run / LOG).read_text().splitlines() if str(run / METRICS) in line]


@pytest.mark.thorough
def test_damage_within_the_metrics_is_reported_once(run: Path, corpus: Path) -> None:
    lines = (run / METRICS).read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:20] + b"\n"
    (run / METRICS).write_bytes(b"".join(lines))
    (run / LOG).unlink()
    train(configured(corpus, run, "training.max_steps=7"), "cpu", resume=True)
    (note,) = notes_on_metrics(run)
    assert f"warning: {run / METRICS}: not as it was saved at step 6 (" in note
    assert (run / METRICS).read_bytes().startswith(b"".join([*lines[:2], *lines[3:]]))
    (run / LOG).unlink()
    train(configured(corpus, run, "training.max_steps=8"), "cpu", resume=True)
    assert notes_on_metrics(run) == []  # the remaining lines count from now on


def test_intact_metrics_are_not_reported(run: Path, corpus: Path) -> None:
    (run / LOG).unlink()
    train(configured(corpus, run), "cpu", resume=True)
    assert notes_on_metrics(run) == []


def test_a_run_killed_before_its_first_save_starts_again(
    run: Path, corpus: Path, finished: Path
) -> None:
    """The config and the vocabulary exist, but no metrics yet."""
    for path in run.iterdir():
        if path.is_file() and path.name != CONFIG:
            path.unlink()
    (run / f"{LAST}.part").write_bytes(b"half")
    train(configured(corpus, run), "cpu", resume=True)
    assert_same_state(run, finished)
    assert not list(run.rglob("*.part"))
