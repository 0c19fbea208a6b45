"""Reports of a run: the contents of each file, and their state after a resume."""

import io
import json
import re
import sys
from html import escape
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from seq2seq.config.schema import load_config
from seq2seq.runs.layout import LOG, METRICS, SAMPLES, TENSORBOARD, TIMING
from seq2seq.runs.metrics_file import truncate_metrics
from seq2seq.training.callbacks import Sample
from seq2seq.training.loop import train
from seq2seq.training.reporting import Reporter, RunReporter

pytestmark = pytest.mark.usefixtures("on_console")


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8")  # as stored, line ends included


def test_each_metric_is_written_to_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunReporter(tmp_path, step=0, last_step=20) as reporter:
        reporter.log("Grüße, नमस्ते")
        reporter.metrics(5, {"train_loss": 1 / 3, "learning_rate": 1e-3})
        reporter.timing(5, {"target_tokens_per_second": 812.5})
        reporter.metrics(10, {"valid_bleu": 12.5})
        reporter.advance(8)
    assert text_of(tmp_path / METRICS) == (
        '{"step": 5, "train_loss": 0.3333333333333333, "learning_rate": 0.001}\n'
        '{"step": 10, "valid_bleu": 12.5}\n'
    )
    assert text_of(tmp_path / TIMING) == '{"step": 5, "target_tokens_per_second": 812.5}\n'
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d Grüße, नमस्ते\n", text_of(tmp_path / LOG))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Grüße, नमस्ते\n" in printed.err


def test_other_ranks_report_by_the_same_calls_and_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    methods = {name for name in vars(RunReporter) if not name.startswith("_")}
    assert methods - vars(Reporter).keys() == set()
    with Reporter() as reporter:
        reporter.log("here")
        reporter.log_step(3, "loss 1")
        reporter.metrics(3, {"train_loss": 1.0})
        reporter.samples(3, [SAMPLE])
        reporter.sync()
        reporter.roll_back(2)
        assert (reporter.read_metrics(), reporter.count.lines) == ([], 0)
        assert not reporter.bar_is_due()
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_metrics_are_in_their_files_as_soon_as_they_are_reported(tmp_path: Path) -> None:
    with RunReporter(tmp_path, step=0, last_step=None) as reporter:
        for step in (1, 2):
            reporter.metrics(step, {"train_loss": 2.0 / step})
            reporter.timing(step, {"seconds": 0.5})
            reporter.log("so far")
            for name in (METRICS, TIMING, LOG):
                assert text_of(tmp_path / name).count("\n") == step


def test_non_finite_metrics_are_left_out(tmp_path: Path) -> None:
    with RunReporter(tmp_path, step=0, last_step=None) as reporter:
        reporter.metrics(3, {"train_loss": float("nan"), "learning_rate": 0.5})
        reporter.timing(3, {"seconds": float("inf")})
        assert reporter.read_metrics() == [{"step": 3, "learning_rate": 0.5}]
    assert text_of(tmp_path / METRICS) == '{"step": 3, "learning_rate": 0.5}\n'
    assert text_of(tmp_path / TIMING) == '{"step": 3}\n'


class Terminal(io.StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_progress_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with RunReporter(tmp_path, step=7, last_step=30) as reporter:
        assert (reporter.bar.n, reporter.bar.total) == (7, 30)
        for _ in range(5):
            reporter.advance(8)
        assert reporter.bar_is_due()
        reporter.describe("step 12/24, loss 3.10", 24)
        assert not reporter.bar_is_due()
        assert str(reporter.bar).startswith(" 50%|")
        assert str(reporter.bar).endswith("| step 12/24, loss 3.10")
        reporter.log_step(12, "epoch 2, loss 3.10")
    assert "| step 12/24, loss 3.10" in terminal.getvalue()
    assert "epoch 2" not in terminal.getvalue()
    assert "/s" not in terminal.getvalue()  # one estimate of time: tqdm's own is not shown
    assert text_of(tmp_path / LOG).endswith(" step 12, epoch 2, loss 3.10\n")


def test_a_stderr_that_is_no_terminal_gets_lines_and_no_progress_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunReporter(tmp_path, step=7, last_step=30) as reporter:
        reporter.advance(8)
        reporter.log_step(8, "epoch 2, loss 3.10")
        assert not reporter.bar_is_due()
    assert capsys.readouterr().err == "step 8, epoch 2, loss 3.10\n"
    assert text_of(tmp_path / LOG).endswith(" step 8, epoch 2, loss 3.10\n")


def test_all_other_files_are_written_without_tensorboard(tmp_path: Path) -> None:
    with RunReporter(tmp_path, step=0, last_step=3) as reporter:
        reporter.metrics(1, {"train_loss": 2.0})
        reporter.timing(1, {"seconds": 2.0})
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [METRICS, SAMPLES, TIMING, LOG]
    )


@pytest.mark.parametrize(
    "error",
    [
        TypeError("Descriptors cannot be created directly.\nMore on that."),
        ImportError("cannot import name 'runtime_version' from 'google.protobuf'"),
        ModuleNotFoundError("No module named 'absl'", name="absl"),
    ],
)
def test_a_tensorboard_that_fails_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    """Simulate a package that was built for another protobuf."""

    class Broken(ModuleType):
        def __getattr__(self, name: str) -> NoReturn:
            raise error

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", Broken("tensorboard"))
    with RunReporter(tmp_path, step=0, last_step=3) as reporter:
        reporter.metrics(1, {"train_loss": 2.0})
    reason = str(error).partition("\n")[0]
    message = f"no TensorBoard: its package fails ({reason})"
    assert message in capsys.readouterr().err
    assert message in text_of(tmp_path / LOG)


SAMPLE = Sample(3, "\x85 a | b", "r\u2028e", "t\nx")


def test_samples_follow_a_resume_and_a_roll_back(tmp_path: Path) -> None:
    with RunReporter(tmp_path, step=0, last_step=9) as reporter:
        for step in (2, 4, 6):
            reporter.metrics(step, {"valid_bleu": step / 3})
            reporter.samples(step, [SAMPLE, SAMPLE._replace(line=5)])
            reporter.sync()
    with RunReporter(tmp_path, step=4, last_step=9) as reporter:  # killed after 6, saved at 4
        reporter.metrics(6, {"train_loss": 0.25})
        reporter.roll_back(2)
        reporter.samples(3, [SAMPLE])
    samples = [json.loads(line) for line in text_of(tmp_path / SAMPLES).splitlines()]
    assert [(sample.pop("step"), sample["line"]) for sample in samples] == [(2, 3), (2, 5), (3, 3)]
    assert samples[0] == SAMPLE._asdict()
    rows = [line.split(" ", 2)[2] for line in text_of(tmp_path / LOG).splitlines()[-3:]]
    assert rows == [
        "line 3       \\u0085 a | b",
        "reference    r\\u2028e",
        "translation  t\\u000ax",
    ]


@pytest.mark.thorough
@pytest.mark.usefixtures("tensorboard")
def test_tensorboard_gets_every_metric(tmp_path: Path) -> None:
    with RunReporter(tmp_path, step=0, last_step=3) as reporter:
        reporter.metrics(2, {"train_loss": 1.25})
        reporter.timing(3, {"seconds": 9.5})
    (events,) = (tmp_path / TENSORBOARD).iterdir()
    content = events.read_bytes()
    for name in (b"train/loss", b"speed/seconds"):
        assert content.count(name) == 1


@pytest.mark.thorough
@pytest.mark.usefixtures("tensorboard")
def test_tensorboard_shows_samples(tmp_path: Path, small_corpus: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(load_config(small_corpus, [f"run_dir={tmp_path / 'run'}"]), "cpu")
    board = EventAccumulator(str(run / TENSORBOARD), size_guidance={"tensors": 0})
    board.Reload()
    tags = board.Tags()
    assert set(tags["scalars"]) == {
        "train/loss",
        "train/objective",
        "train/learning_rate",
        "valid/loss",
        "valid/perplexity",
        "valid/bleu",
        "speed/target_tokens_per_second",
        "speed/seconds",
        "speed/validation_seconds",
    }
    lines = [json.loads(line) for line in text_of(run / SAMPLES).splitlines()]
    texts = [f"samples/{number}/text_summary" for number in (1, 2, 3)]
    assert tags["tensors"] == texts
    for number, name in enumerate(texts):
        shown_samples = [
            (event.step, event.tensor_proto.string_val[0].decode()) for event in board.Tensors(name)
        ]
        expected = [
            (
                line["step"],
                f"source: {line['source']}  \nreference: {line['reference']}  \n"
                f"translation: {escape(line['translation'])}",
            )
            for line in lines[number::3]
        ]
        assert shown_samples == expected


def test_a_resumed_run_continues_the_same_files(tmp_path: Path) -> None:
    with RunReporter(tmp_path, step=0, last_step=9) as reporter:
        reporter.log("first")
        for step in (2, 4, 6):
            reporter.metrics(step, {"train_loss": 7.0 - step})
            reporter.timing(step, {"seconds": 1.5 * step})
    with RunReporter(tmp_path, step=4, last_step=9) as reporter:  # killed after 6, saved at 4
        reporter.log("second")
        reporter.metrics(6, {"train_loss": 0.25})
    metrics = [json.loads(line) for line in text_of(tmp_path / METRICS).splitlines()]
    assert [(line["step"], line["train_loss"]) for line in metrics] == [(2, 5), (4, 3), (6, 0.25)]
    log = text_of(tmp_path / LOG).splitlines()
    assert [line.split()[-1] for line in log] == ["first", "second"]


def test_the_files_are_closed_when_training_fails(tmp_path: Path) -> None:
    def fail(reporter: RunReporter) -> None:
        with reporter:
            raise KeyError("training")

    reporter = RunReporter(tmp_path, step=0, last_step=9)
    with pytest.raises(KeyError, match="training"):
        fail(reporter)
    with pytest.raises(ValueError, match="closed file"):
        reporter.metrics(1, {"train_loss": 1.0})


LINES = [f'{{"step": {step}, "train_loss": {9 - step}.5}}' for step in (1, 3, 3, 5, 8)]


@pytest.mark.parametrize("step", [0, 1, 2, 3, 7, 8])
def test_truncate_metrics_keeps_the_lines_up_to_a_step(tmp_path: Path, step: int) -> None:
    path = tmp_path / METRICS
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    truncate_metrics(path, step)
    kept_lines = [line for line in LINES if json.loads(line)["step"] <= step]
    assert text_of(path) == "".join(f"{line}\n" for line in kept_lines)


@pytest.mark.parametrize("length", [0, 1, 7, len(LINES[0]) - 1, len(LINES[0])])
def test_truncate_metrics_drops_a_line_that_was_cut_short(tmp_path: Path, length: int) -> None:
    path = tmp_path / METRICS
    text = "".join(f"{line}\n" for line in LINES)
    path.write_text(text + LINES[0][:length], encoding="utf-8")
    truncate_metrics(path, 9)
    complete = LINES[0] + "\n" if length == len(LINES[0]) else ""  # only its line end was missing
    assert text_of(path) == text + complete


@pytest.mark.parametrize(
    "line", ["5", "null", '{"loss": 1.5}', '{"step": "last"}', "\0\0\0\0", "[]"]
)
def test_truncate_metrics_drops_lines_that_no_reporter_wrote(tmp_path: Path, line: str) -> None:
    path = tmp_path / METRICS
    path.write_text(f"{LINES[0]}\n{line}\n{LINES[1]}\n", encoding="utf-8")
    truncate_metrics(path, 9)
    assert text_of(path) == f"{LINES[0]}\n{LINES[1]}\n"


def test_truncate_metrics_creates_no_file(tmp_path: Path) -> None:
    truncate_metrics(tmp_path / METRICS, 3)
    assert not (tmp_path / METRICS).exists()


class ClosedTerminal(Terminal):
    """A terminal that is closed during training."""

    here = True

    def write(self, text: str) -> int:
        if not self.here:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_a_closed_terminal_does_not_end_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = ClosedTerminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with RunReporter(tmp_path, step=0, last_step=200) as reporter:
        reporter.log("here")
        terminal.here = False
        for step in range(1, 200):
            reporter.advance(8)
            reporter.log_step(step, "loss 1")
            reporter.log("gone")
        reporter.roll_back(3)
    assert text_of(tmp_path / LOG).count("gone\n") == 199


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_is_not_drawn_after_the_last_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be older than these."""
    monkeypatch.setattr(sys, "stderr", stream := TerminalStream())
    with RunReporter(tmp_path, step=0, last_step=20) as reporter:
        reporter.advance(8)
        reporter.log("Saved a state.")
        assert "%|" in stream.getvalue().partition("Saved a state.\n")[2]
        reporter.end_bar()
        reporter.log("Stopped.")
    assert stream.getvalue().partition("Stopped.\n")[2].strip() == ""
