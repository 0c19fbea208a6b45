"""Ctrl-C: a second one ends a process that computes outside of Python."""

import os
import signal
import subprocess
import sys

import pytest


@pytest.mark.race
@pytest.mark.parametrize("loading", ["nullcontext", "frozen_objects"])
@pytest.mark.skipif(sys.platform != "linux", reason="a call of the C library")
def test_a_second_interrupt_ends_what_python_waits_for(loading: str) -> None:
    """A lock of the system is held for ever, which no signal interrupts; also while it loads."""
    code = (
        "import ctypes\n"
        "from contextlib import nullcontext\n"
        "from seq2seq.cli.interruption import frozen_objects\n"
        "from seq2seq.cli.interruption import second_interrupt_ends\n"
        "mutex, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)\n"
        "library.pthread_mutex_init(mutex, None)\n"
        "library.pthread_mutex_lock(mutex)\n"
        f"with second_interrupt_ends(), {loading}():\n"
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
