"""Lines from a stream: available as soon as they arrive, none lost, numbered in order."""

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import one_quick

from seq2seq.cli.input import LineReport, arrivals, grouped, numbered, paragraphs
from seq2seq.cli.output import check_output
from seq2seq.inference.translation import Translation
from seq2seq.runtime.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield the read end and the unbuffered write end of a pipe."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        yield source, sink


def test_lines_that_have_arrived_are_available_at_once(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    source, sink = pipe
    found = numbered(arrivals(source), 3)
    sink.write(b"one\n")
    assert next(found) == (1, [b"one"])
    sink.write(b"two\r\nthree\n\nfive\nsi")
    assert next(found) == (2, [b"two\r", b"three", b""])
    assert next(found) == (5, [b"five"])
    sink.write(b"x\nseven")
    assert next(found) == (6, [b"six"])
    sink.close()
    assert next(found) == (7, [b"seven"])
    assert next(found, None) is None


def test_a_non_blocking_pipe_is_waited_for(pipe: tuple[IO[bytes], IO[bytes]]) -> None:
    source, sink = pipe
    os.set_blocking(source.fileno(), False)
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(0.3); print('late')"], stdout=sink
    )
    sink.close()
    assert list(arrivals(source)) == [[b"late"]]
    assert child.wait() == 0


class Reads(io.BytesIO):
    """File whose reads return arbitrary parts."""

    def __init__(self, parts: list[bytes]) -> None:
        super().__init__()
        self._parts = iter(part for part in parts if part)

    def read1(self, _size: int | None = -1) -> bytes:
        return next(self._parts, b"")


@settings(deadline=None)
@given(
    parts=st.lists(st.text("ab\n", max_size=9).map(str.encode), max_size=9),
    size=st.integers(1, 4),
)
def test_lines_do_not_depend_on_how_bytes_arrive(parts: list[bytes], size: int) -> None:
    content = b"".join(parts)
    found = list(numbered(arrivals(Reads(parts)), size))
    pairs = [(n, line) for start, each in found for n, line in enumerate(each, start=start)]
    wanted = [line.removesuffix(b"\n") for line in io.BytesIO(content)]
    assert pairs == list(enumerate(wanted, start=1))
    assert all(1 <= len(each) <= size for _, each in found)
    in_batches = [line for group in grouped(iter(io.BytesIO(content)), size) for line in group]
    assert [line.removesuffix(b"\n") for line in in_batches] == wanted


@contextmanager
def streaming(run: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `seq2seq translate --stream` with pipes."""
    command = [sys.executable, "-m", "seq2seq", "translate", "-m", str(run), "--stream", *more]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(os.name != "posix", reason="reads pipes as POSIX has them")
def test_a_line_is_translated_while_the_stream_stays_open(tiny_runs: dict[str, Path]) -> None:
    with streaming(tiny_runs["luong"], "-b", "1") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        texts = []
        for line in (b"buda ki.\n", b"\n", b"mo\xffre\n", b"buda ki.\nzu\n"):
            process.stdin.write(line)
            texts += [process.stdout.readline() for _ in range(line.count(b"\n"))]
            if b"\xff" in line:
                message = process.stderr.readline().decode()
                assert message.startswith("note: bytes that are not UTF-8 were replaced in ")
                assert message.endswith(" 1 line (3) of standard input\n")
        assert texts[1] == b"\n"
        assert texts[0] == texts[3] != texts[4]
        assert process.poll() is None
        process.stdin.write(b"last")
        process.stdin.close()
        assert process.stdout.read().count(b"\n") == 1
        assert process.stderr.read() == b""
        assert process.wait() == 0


@one_quick("how", ["", "--stream"])
def test_a_closed_reader_ends_the_command_quietly(
    tiny_runs: dict[str, Path], tmp_path: Path, how: str
) -> None:
    """The remaining output exceeds the capacity of a pipe."""
    source = tmp_path / "in"
    source.write_bytes(b"buda ki more ta zu.\n\n\n\n" * 3000)
    python, run = shlex.quote(sys.executable), shlex.quote(str(tiny_runs["none"]))
    command = f"{python} -m seq2seq translate -m {run} -b 1 --n-best 1 {how}"
    pipeline = f'cat "{source}" | {command} | head -n 1; echo "${{PIPESTATUS[1]}}" >&2'
    done = subprocess.run(["bash", "-c", pipeline], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr.decode() == "0\n"


def test_a_device_in_a_folder_without_write_permission_is_an_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only root may create files in /dev, but everyone may write to its devices."""
    monkeypatch.setattr(os, "access", lambda path, _: str(path) != "/dev")
    check_output(Path("/dev/null"))
    with pytest.raises(UserError, match="no permission to write in the folder /dev"):
        check_output(Path("/dev/new"))


def test_the_size_of_a_line_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lines a paragraph has, and however many reads a line."""
    calls: list[Sized] = []
    length = len

    def count(content: Sized) -> int:
        calls.append(content)
        return length(content)

    monkeypatch.setattr("seq2seq.cli.input.len", count, raising=False)
    joined = list(paragraphs(io.BytesIO(b"ab\n" * 500), [], "it"))
    assert joined == [b" ".join([b"ab"] * 500)]
    assert list(arrivals(Reads([b"ab"] * 500))) == [[b"ab" * 500]]
    assert 0 < sum(content == b"ab" for content in calls) <= 2 * 500


def test_a_note_quotes_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    """Notes of one kind are one message, whatever characters they quote."""
    report = LineReport(Path("lines"))
    notes = (["hardly any: {a}: b"], ["plain {0}"], [], ["hardly any: c's", "plain {0}"])
    report.note_translations(1, [Translation(notes=entry) for entry in notes])
    with caplog.at_level("INFO", logger="seq2seq"):
        report.log()
    assert [record.getMessage() for record in caplog.records] == [
        "note: hardly any: 2 lines (1 '{a}: b', 4 \"c's\")",
        "note: plain {0}: 2 lines (2, 4)",
    ]
