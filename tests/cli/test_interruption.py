"""Ctrl-C: a second one ends a process that computes outside of Python."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seq2seq.__main__ import main


@pytest.mark.race
@pytest.mark.parametrize("context", ["nullcontext", "frozen_objects", "stop_signals"])
@pytest.mark.skipif(sys.platform != "linux", reason="a call of the C library")
def test_a_second_interrupt_ends_what_python_waits_for(context: str) -> None:
    """A lock of the system is held for ever, which no signal interrupts: also in training."""
    code = (
        "import ctypes\n"
        "from contextlib import nullcontext\n"
        "from seq2seq.cli.interruption import frozen_objects\n"
        "from seq2seq.cli.interruption import second_interrupt_ends\n"
        "from seq2seq.training.stopping import stop_signals\n"
        "mutex, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)\n"
        "library.pthread_mutex_init(mutex, None)\n"
        "library.pthread_mutex_lock(mutex)\n"
        f"with second_interrupt_ends(), {context}():\n"
        "    message = 'waits\\n'\n"
        "    while True:\n"
        "        try:\n"
        "            print(end=message, flush=True)\n"
        "            message = ''\n"
        "            library.pthread_mutex_lock(mutex)\n"
        "        except KeyboardInterrupt:  # the first may come earlier\n"
        "            pass\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waits\n"
        while child.poll() is None:  # signals that arrive together count as one
            os.kill(child.pid, signal.SIGINT)
            try:
                child.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
        assert child.returncode == 128 + signal.SIGINT


@pytest.mark.race
@pytest.mark.skipif(sys.platform != "linux", reason="signals of Unix")
def test_one_interrupt_while_it_loads_is_no_second_one() -> None:
    """It waits, longer than signals that count as one, and is raised once."""
    code = (
        "import os, signal, time\n"
        "from seq2seq.cli.interruption import frozen_objects\n"
        "from seq2seq.cli.interruption import second_interrupt_ends\n"
        "with second_interrupt_ends():\n"
        "    try:\n"
        "        with frozen_objects():\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "            time.sleep(0.5)\n"
        "            print('loaded')\n"
        "    except KeyboardInterrupt:\n"
        "        time.sleep(0.5)  # the thread that would end the process has its turn\n"
        "        print('interrupted')\n"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["loaded", "interrupted"]


@pytest.mark.race
@pytest.mark.skipif(sys.platform != "linux", reason="signals of Unix")
@pytest.mark.parametrize("name", ["torch", "onnxruntime"])
def test_the_first_interrupt_ends_an_import_that_ignores_it(name: str, tmp_path: Path) -> None:
    library = (  # waits in C for a mutex that it holds itself
        "import ctypes\n"
        "lock = ctypes.CDLL(None).pthread_mutex_lock\n"
        "mutex = ctypes.create_string_buffer(128)\n"
        "lock(mutex)\n"
        "try:\n"
        "    print('imports', flush=True)\n"
        "    lock(mutex)\n"
        "except KeyboardInterrupt:\n"
        "    lock(mutex)\n"
    )
    (tmp_path / f"{name}.py").write_text(library, encoding="utf-8")
    code = (
        "from seq2seq.cli.interruption import second_interrupt_ends\n"
        f"with second_interrupt_ends():\n    import {name}\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "imports\n"
        os.kill(child.pid, signal.SIGINT)
        assert child.wait(600) == 128 + signal.SIGINT


def test_an_interrupt_before_the_command_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("seq2seq.cli.main.main", interrupted)
    assert main(["translate"]) == 128 + signal.SIGINT


def test_an_interrupt_that_an_import_turns_into_another_error_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So does Python, before 3.12, where a class is made, and the initialisation of C++ modules."""

    def spoil(*_arguments: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as stop:
            raise RuntimeError("Error calling __set_name__") from stop

    monkeypatch.setattr("seq2seq.cli.main.parse", spoil)
    assert main(["translate"]) == 128 + signal.SIGINT
    assert capsys.readouterr().err == "seq2seq: error: interrupted\n"
