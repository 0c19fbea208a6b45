"""`seq2seq train`: arguments, messages and signals, and the scripts that call it."""

import json
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cases.commands import Call, exit_code
from cases.environment import project_environment

from seq2seq.config.schema import Config

ROOT = Path(__file__).resolve().parents[2]


Training = tuple[Config, str, bool, bool, Path | None]
"""The arguments of `train`."""


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[Training]:
    """Replace `train`; return a list that records its arguments."""
    calls: list[Training] = []

    def note(*arguments: *Training) -> Path:
        calls.append(arguments)
        return arguments[0].run_dir

    monkeypatch.setattr("seq2seq.training.loop.train", note)
    return calls


@pytest.mark.parametrize(
    "words",
    [
        "CONFIG seed=7 model.dropout=0.5 --resume --device cpu",
        "CONFIG --resume --device cpu seed=7 model.dropout=0.5",
        "CONFIG seed=7 --resume model.dropout=0.5 --device cpu",
        "--device cpu --resume CONFIG seed=7 model.dropout=0.5",
        "--device cpu CONFIG seed=3 --resume seed=7 model.dropout=0.5",
    ],
)
def test_overrides_may_precede_or_follow_options(
    call: Call, small_corpus: Path, trainings: list[Training], words: str
) -> None:
    arguments = (small_corpus if word == "CONFIG" else word for word in words.split())
    result = call("train", *arguments)
    assert (result.code, result.out) == (0, b"")
    ((config, *how),) = trainings
    assert (config.seed, config.model.dropout.hidden) == (7, 0.5)
    assert how == ["cpu", True, False, None]


def test_train_prints_next_commands_and_ignored_keys(
    call: Call, small_corpus: Path, trainings: list[Training]
) -> None:
    result = call("train", small_corpus, "model.decoder=none", "--overwrite")
    assert [call[1:] for call in trainings] == [("auto", False, True, None)]
    note, *hints = result.err.splitlines()
    assert note.startswith("note: model.attention_size: 14 is ignored")
    run = small_corpus.parent / "run"
    assert [hint.split()[1:] for hint in hints] == [
        ["seq2seq", "translate", "-m", str(run), "-i", "FILE"],
        ["seq2seq", "evaluate", "-m", str(run)],
        ["seq2seq", "report", str(run)],
    ]


def run_script(name: str, arguments: Sequence[object], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    return exit_code(lambda: runpy.run_path(str(ROOT / "scripts" / name), run_name="__main__"))


def test_scripts_are_equivalent_to_subcommands(
    call: Call,
    luong: Path,
    src_file: Path,
    small_corpus: Path,
    trainings: list[Training],
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ref = src_file.with_suffix(".tgt")
    for script, arguments in (
        ("translate.py", ["-m", luong, "-i", src_file, "--n-best", 2]),
        ("evaluate.py", ["--hyp", src_file, "-r", ref, "--lowercase"]),
        ("evaluate.py", ["--hyp", src_file]),
        ("train.py", [small_corpus, "--overwrite", "seed=5"]),
    ):
        expected = call(script.removesuffix(".py"), *arguments)
        code = run_script(script, arguments, monkeypatch)
        out, err = capsysbinary.readouterr()
        assert (code, out, err.decode()) == expected
    assert trainings[0] == trainings[1]


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 500
    while not condition():
        assert process.poll() is None, "the training ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.race
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "start"),
    [(signal.SIGINT, ["-m", "seq2seq", "train"]), (signal.SIGTERM, ["scripts/train.py"])],
)
def test_a_signal_saves_the_run_and_resume_continues_it(
    small_corpus: Path, call: Call, number: signal.Signals, start: list[str]
) -> None:
    run = small_corpus.parent / "run"
    metrics = run / "metrics.jsonl"
    overrides = ["training.validate_every=9000", "training.log_every=1", "decoding.max_length=9"]
    command = [sys.executable, *start, str(small_corpus), *overrides, "training.max_epochs=9000"]
    environment = project_environment()
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, env=environment) as process:
        until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 3, process)
        process.send_signal(number)
        _, err = process.communicate(timeout=500)
    assert process.returncode == 128 + number
    assert b"Traceback" not in err
    steps = metrics.read_bytes().count(b"\n")
    assert f"Stopped at step {steps}, saved." in err.decode()
    arguments = shlex.join([str(small_corpus), *overrides, "training.max_epochs=9000", "--resume"])
    assert f"Resume with: seq2seq train {arguments}\n" in err.decode()
    result = call("train", small_corpus, *overrides, f"training.max_steps={steps + 2}", "--resume")
    assert result.code == 0, result.err
    written = [json.loads(line) for line in metrics.read_bytes().splitlines()]
    trained = [line["step"] for line in written if "train_loss" in line]
    assert trained == list(range(1, steps + 3))
