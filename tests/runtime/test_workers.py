"""Forked workers end with their parent, and leave signals to it."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from cases.environment import project_environment

ROOT = Path(__file__).resolve().parents[2]
BUSY = """
import signal, sys, time
from pathlib import Path
from seq2seq.runtime.workers import worker_pool
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in background
with worker_pool(2, int, ()) as pool:
    for pipe in sys.argv[1:3]:
        pool.submit(Path(pipe).read_bytes)  # waits for its end
    # Opening a pipe returns once a worker reads it.
    pipes = [open(pipe, "wb") for pipe in sys.argv[1:3]] if sys.argv[3:] else []
    print("busy", flush=True)
    while True:
        time.sleep(0.1)  # a signal just before the call is handled after it
"""


@pytest.mark.race
@pytest.mark.parametrize("state", ["starting", "busy"])
@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_workers_exit_with_their_parent_and_leave_ctrl_c_to_it(
    tmp_path: Path, state: str, name: str
) -> None:
    sent = signal.Signals[name]
    script = tmp_path / "script.py"
    script.write_text(BUSY)
    pipes = [tmp_path / "first", tmp_path / "second"]
    for pipe in pipes:
        os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, script, *pipes, *(["wait"] if state == "busy" else [])],
        env=project_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "busy\n"
        if sent == signal.SIGINT:
            os.killpg(process.pid, sent)  # as a terminal does
        else:
            process.kill()
        # Returns once no worker has the pipes open.
        _, errors = process.communicate(timeout=600)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == -sent
    assert errors.count("Traceback") == (sent == signal.SIGINT), errors


ASKED = """
import os
from seq2seq.runtime.workers import worker_pool
with worker_pool(1, int, ()) as pool:
    print(pool.submit(os.getppid).result() == os.getpid())
"""


@pytest.mark.parametrize("way", ["script", "-c", "-"])
def test_workers_start_from_a_program_that_cannot_be_imported(tmp_path: Path, way: str) -> None:
    (tmp_path / "script.py").write_text(ASKED)
    arguments = {"script": [str(tmp_path / "script.py")], "-c": ["-c", ASKED], "-": ["-"]}[way]
    process = subprocess.run(
        [sys.executable, *arguments],
        env=project_environment(),
        input=ASKED,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (process.stdout, process.stderr) == ("True\n", "")
