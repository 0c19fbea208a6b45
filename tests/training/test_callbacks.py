"""`train` from Python: callbacks, quiet mode, and messages through `logging`."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from seq2seq import load_config, train
from seq2seq.runs.layout import LOG, METRICS, SAMPLES, TIMING
from seq2seq.runtime.console import console, logger
from seq2seq.training import loop
from seq2seq.training.callbacks import Callback, Sample
from seq2seq.training.reporting import RunReporter

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

ROOT = Path(__file__).resolve().parents[2]


class Recorder(Callback):
    """Callback that records all reports."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int | None]] = []
        self.metrics: list[dict[str, float]] = []
        self.seen: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.returns: list[int] = []

    def on_step(self, step: int, last_step: int | None) -> None:
        self.steps.append((step, last_step))

    def on_metrics(self, step: int, values: Mapping[str, float]) -> None:
        self.metrics.append({"step": step, **values})

    def on_samples(self, step: int, samples: Sequence[Sample]) -> None:
        self.seen += [{"step": step, **sample._asdict()} for sample in samples]

    def on_log(self, text: str) -> None:
        self.lines.append(text)

    def on_roll_back(self, step: int) -> None:
        self.returns.append(step)


def trained(corpus: Path, *overrides: str, **options: Any) -> Path:
    return train(load_config(corpus, ["decoding.max_length=5", *overrides]), "cpu", **options)


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_callbacks_receive_what_is_written_to_the_run_folder(small_corpus: Path) -> None:
    first = Recorder()
    second = Recorder()
    run = trained(small_corpus, callbacks=(recorder for recorder in (first, second)), quiet=True)
    assert vars(first) == vars(second)
    last = first.steps[-1][0]
    assert first.steps == [(step, last) for step in range(1, last + 1)]
    written = [*objects(run / METRICS), *objects(run / TIMING)]
    assert sorted(map(str, first.metrics)) == sorted(map(str, written))
    assert any("valid_bleu" in metrics for metrics in first.metrics)
    assert first.seen == objects(run / SAMPLES)
    log = (run / LOG).read_text(encoding="utf-8").splitlines()
    assert [line.split(" ", 2)[2] for line in log] == first.lines
    assert first.returns == []


def test_callbacks_get_no_estimate_as_the_last_step(tmp_path: Path) -> None:
    recorder = Recorder()
    with RunReporter(tmp_path, 0, None, [recorder]) as reporter:
        reporter.advance(1)
        reporter.describe("about 3:00 left", 4711)
        reporter.advance(2)
    assert recorder.steps == [(1, None), (2, None)]


@pytest.mark.thorough
def test_training_runs_in_a_worker_thread(small_corpus: Path) -> None:
    recorder = Recorder()
    options: dict[str, Any] = {"callbacks": [recorder], "quiet": True}
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(trained, small_corpus, "training.max_steps=2", **options).result()
    assert [step for step, _ in recorder.steps] == [1, 2]
    assert (run / METRICS).is_file()


@pytest.mark.thorough
def test_a_resumed_training_reports_the_steps_after_its_saved_state(small_corpus: Path) -> None:
    trained(small_corpus, "training.max_epochs=1", quiet=True)
    recorder = Recorder()
    run = trained(small_corpus, resume=True, callbacks=[recorder], quiet=True)
    first = recorder.steps[0][0]
    last = recorder.steps[-1][0]
    assert first > 1
    assert [step for step, _ in recorder.steps] == list(range(first, last + 1))
    assert objects(run / METRICS)[-1]["step"] == last


@pytest.mark.thorough
def test_a_roll_back_is_reported(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    divergences = iter([None, "a loss of 1e9"])
    monkeypatch.setattr(loop, "divergence", lambda *_: next(divergences, None))
    trained(small_corpus, callbacks=[recorder], quiet=True)
    (back,) = recorder.returns
    steps = [step for step, _ in recorder.steps]
    again = steps.index(back + 1, steps.index(back + 1) + 1)
    assert steps[again - 1] > back


@pytest.mark.thorough
def test_an_exception_ends_training_and_resume_continues(small_corpus: Path) -> None:
    class Stop(Callback):
        def on_metrics(self, step: int, values: Mapping[str, float]) -> None:
            if "valid_bleu" in values and step < 20:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trained(small_corpus, callbacks=[Stop()], quiet=True)
    complete = load_config(
        small_corpus, ["decoding.max_length=5", f"run_dir={small_corpus.parent / 'complete'}"]
    )
    run = trained(small_corpus, resume=True, quiet=True)
    expected = train(complete, "cpu", quiet=True)
    assert (run / METRICS).read_bytes() == (expected / METRICS).read_bytes()


# -------------------------------------------------------------------------- quiet mode and logging


@pytest.mark.thorough
def test_training_prints_its_log_unless_quiet(
    small_corpus: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = trained(small_corpus, "training.max_epochs=1", f"run_dir={small_corpus.parent / 'a'}")
    out, err = capfd.readouterr()
    log = (run / LOG).read_text(encoding="utf-8").splitlines()
    assert (out, err.splitlines()) == ("", [line.split(" ", 2)[2] for line in log])
    trained(small_corpus, "training.max_epochs=1", quiet=True)
    assert capfd.readouterr() == ("", "")
    assert (logger.propagate, logger.level) == (True, logging.NOTSET)


@pytest.mark.parametrize("propagate", [True, False])
def test_the_logger_is_restored_afterwards(
    propagate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logger, "propagate", propagate)
    monkeypatch.setattr(logger, "level", logging.ERROR)
    with console(), console():
        assert not logger.propagate
    assert (logger.propagate, logger.level) == (propagate, logging.ERROR)


@pytest.mark.thorough
def test_quiet_training_draws_no_bar_on_a_terminal(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    trained(small_corpus, "training.max_steps=2", quiet=True)
    assert terminal.getvalue() == ""
    trained(small_corpus, "training.max_steps=2", overwrite=True)
    assert "%|" in terminal.getvalue()


@pytest.mark.thorough
def test_the_programs_logging_receives_the_messages_of_a_quiet_training(
    small_corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    with caplog.at_level(logging.INFO):
        trained(small_corpus, "training.warmup_steps=99", callbacks=[recorder], quiet=True)
    records = [record for record in caplog.records if record.name == "seq2seq"]
    assert [record.getMessage() for record in records] == recorder.lines
    for record in records:
        warns = record.getMessage().startswith("warning: ")
        assert record.levelno == (logging.WARNING if warns else logging.INFO)
    assert logging.WARNING in {record.levelno for record in records}


PROGRAM = """
import sys
import seq2seq
light = sorted({"torch", "numpy", "yaml", "pydantic"} & set(sys.modules))
names = sorted(set(seq2seq.__all__) - set(vars(seq2seq)))
config = seq2seq.load_config(sys.argv[1], ["decoding.max_length=5", "training.max_steps=2"])
translator = seq2seq.Translator.load(seq2seq.train(config, "cpu", quiet=True), device="cpu")
for line in ("ba ke", "ba " * 300, "\\u0915"):
    translator.translate(line)
print(light, names, isinstance(config, seq2seq.Config))
"""


@pytest.mark.thorough
def test_python_prints_nothing_and_imports_lazily(small_corpus: Path) -> None:
    """Run in a new process, where no test has configured logging."""
    call = [sys.executable, "-c", PROGRAM, str(small_corpus)]
    process = subprocess.run(
        call, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600
    )
    names = ["Config", "Translator", "load_config", "train"]
    assert (process.stdout, process.stderr) == (f"[] {names} True\n", "")
