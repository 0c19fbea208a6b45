"""Two trainings in one folder: one of them is refused, or stops before it writes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cases.tiers import one_quick

from seq2seq.config.schema import Config, load_config
from seq2seq.runs.layout import BEST, METRICS
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.locks import LOCK
from seq2seq.training import preparation
from seq2seq.training.loop import train
from seq2seq.training.session import TrainingSession

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

ROOT = Path(__file__).resolve().parents[2]
# Trains, and waits for a line of input once the first state is saved.
WAITING = """
import sys
from seq2seq.config.schema import load_config
from seq2seq.training import session
from seq2seq.training.loop import train
sys.modules["torch.utils.tensorboard"] = None
save = session.TrainingSession.save_state

def save_and_wait(training):
    save(training)
    if training.progress.step == 0:
        print("saved", flush=True)
        input()

session.TrainingSession.save_state = save_and_wait
train(load_config(sys.argv[1], sys.argv[2:]), "cpu")
"""


def configured(corpus: Path, run: str, *overrides: str) -> Config:
    short = ("decoding.max_length=5", "training.max_steps=4", f"run_dir={corpus.parent / run}")
    return load_config(corpus, [*short, *overrides])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@one_quick("written", ["save_state", "save_weights", "clear"])
def test_a_run_that_replaced_this_one_is_not_overwritten(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """The folder was moved, and another process has trained a run in its place."""
    finished = train(configured(small_corpus, "finished"), "cpu")
    config = configured(small_corpus, "run", "training.keep=1")
    contents_before = contents(finished)
    folder = config.run_dir

    def replace() -> None:
        if finished.exists():
            folder.rename(folder.with_name("moved"))
            finished.rename(folder)

    if written == "clear":
        owner = preparation
        name = "new_session"
    else:
        owner = TrainingSession
        name = written
    call = getattr(owner, name)

    def replace_and_call(*arguments: Any) -> Any:
        sessions = [argument for argument in arguments if isinstance(argument, TrainingSession)]
        if not sessions or sessions[0].progress.step:
            replace()
        return call(*arguments)

    monkeypatch.setattr(owner, name, replace_and_call)
    with pytest.raises(RunError, match="another folder has taken the place of the one"):
        train(config, "cpu")
    assert contents(folder) == contents_before


@pytest.mark.thorough
def test_the_second_training_is_refused_even_if_the_lock_file_was_removed(
    small_corpus: Path,
) -> None:
    single_run = train(configured(small_corpus, "alone"), "cpu")
    config = configured(small_corpus, "run")
    overrides = ("decoding.max_length=5", "training.max_steps=4")
    command = [sys.executable, "-c", WAITING, str(small_corpus), *overrides]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "saved\n"
        for _ in range(2):
            contents_before = contents(config.run_dir)
            for options in ({"resume": True}, {"overwrite": True}, {}):
                with pytest.raises(UserError) as refused:
                    train(config, "cpu", **options)
                assert f"{config.run_dir}: another process is writing" in str(refused.value)
            assert contents(config.run_dir) == contents_before
            (config.run_dir / LOCK).unlink(missing_ok=True)
        first.communicate("\n")
        assert first.returncode == 0
    for name in (METRICS, BEST):
        assert (config.run_dir / name).read_bytes() == (single_run / name).read_bytes()
