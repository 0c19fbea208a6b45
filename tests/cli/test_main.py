"""The command itself: help, threads, and an interruption of its start."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cases.commands import Call

from seq2seq.cli.interruption import frozen_objects


def test_help_and_version_go_to_stdout(call: Call) -> None:
    for words in (["--help"], ["train", "--help"], ["translate", "--help"], ["--version"]):
        result = call(*words)
        assert (result.code, result.err) == (0, "")
        assert b"seq2seq" in result.out


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_spin_briefly_by_default(variables: dict[str, str], expected: str | None) -> None:
    program = (
        "import os, sys\nfrom seq2seq.__main__ import main\n"
        "try: main(['--version'])\nexcept SystemExit: pass\n"
        "print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    )
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("GOMP", "OMP_W"))
    }
    process = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.splitlines()[-1] == f"{expected} False"


def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_traceback() -> None:
    program = """
import os, signal, sys
from seq2seq.__main__ import main
class Interrupting:
    def find_spec(self, name, *_):
        if name == "seq2seq.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def test_ctrl_c_waits_for_the_end_of_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's initialisation would ignore it."""
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ncomplete = True\n"
    (tmp_path / "module_that_takes_long.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt), frozen_objects():
        module = importlib.import_module("module_that_takes_long")
    assert module.complete
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.race
@pytest.mark.thorough
@pytest.mark.parametrize("delay", [0.25, 0.45, 0.65, 0.85, 1.1])
def test_ctrl_c_at_the_start_of_a_command_ends_it(tiny_runs: dict[str, Path], delay: float) -> None:
    """On any machine the command is still running: its input does not end."""
    command = [sys.executable, "-m", "seq2seq", "translate", "-m", str(tiny_runs["luong"])]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        error = process.stderr.read()
        process.wait(600)
    assert process.returncode in (130, -signal.SIGINT), error.decode()
    assert b"numpy" not in error
