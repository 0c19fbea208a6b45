"""Compressed files, files that are not what their name implies, and decompression bombs."""

import bz2
import gzip
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from cases.tiers import one_quick

from seq2seq.runtime.errors import UserError
from seq2seq.text.text_files import (
    MAX_LINE_BYTES,
    bounded_lines,
    commands,
    compressing,
    open_file,
    read_lines,
)

ROOT = Path(__file__).resolve().parents[2]
TEXT = "ein Satz\nnoch ein Satz\n" * 30
LINES = TEXT.splitlines()
TOOLS = {".gz": "gzip", ".bz2": "bzip2"}


def packed(suffix: str, content: bytes) -> bytes:
    return gzip.compress(content) if suffix == ".gz" else bz2.compress(content)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_lines(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("suffix", TOOLS)
def test_a_compressed_file_is_read_as_its_text(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", packed(suffix, TEXT.encode()))
    assert read_lines(path) == LINES
    with open_file(path) as file:
        raw = list(bounded_lines(file, str(path)))
    assert raw == TEXT.encode().splitlines(keepends=True)


@pytest.mark.parametrize("suffix", TOOLS)
def test_concatenated_streams_are_read_as_one_text(tmp_path: Path, suffix: str) -> None:
    data = packed(suffix, TEXT.encode()) * 3
    assert read_lines(write(tmp_path / f"a{suffix}", data)) == LINES * 3


@pytest.mark.parametrize("suffix", TOOLS)
def test_text_written_compressed_can_be_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    again = io.BytesIO()
    with path.open("wb") as raw, compressing(raw, path) as file:
        file.write(TEXT.encode())
    with compressing(again, path) as file:
        file.write(TEXT.encode())
    assert read_lines(path) == LINES
    assert path.read_bytes() == again.getvalue()


@pytest.mark.parametrize("suffix", TOOLS)
def test_a_truncated_file_is_named(tmp_path: Path, suffix: str) -> None:
    data = packed(suffix, bytes(range(1, 10)) + TEXT.encode() * 50)
    path = write(tmp_path / f"a{suffix}", data[:-7])
    start = f"{path}: the {TOOLS[suffix]} file is damaged or incomplete ("
    assert refusal(path).startswith(start)


@pytest.mark.parametrize("suffix", TOOLS)
def test_a_damaged_file_is_named(tmp_path: Path, suffix: str) -> None:
    data = bytearray(packed(suffix, TEXT.encode() * 50))
    data[len(data) // 2] ^= 0x55
    path = write(tmp_path / f"a{suffix}", bytes(data))
    start = f"{path}: the {TOOLS[suffix]} file is damaged or incomplete ("
    assert refusal(path).startswith(start)


@pytest.mark.parametrize("suffix", TOOLS)
def test_text_named_as_if_compressed_is_refused(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", TEXT.encode())
    start = f"{path}: the {TOOLS[suffix]} file is damaged or incomplete ("
    assert refusal(path).startswith(start)


# ----------------------------------------------------------------------------- other kinds of file


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
        archive.writestr("large", b"x" * 5000)
    return file.getvalue()


def tarred(compression: str = "") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{compression}") as archive:
        info = tarfile.TarInfo("train.en")
        info.size = len(TEXT)
        archive.addfile(info, io.BytesIO(TEXT.encode()))
    return file.getvalue()


OTHERS: dict[str, tuple[bytes, str]] = {
    "zip": (zipped(a=b"text"), "a zip archive"),
    "xlsx": (zipped(docProps__app=b"x", xl__workbook=b"y"), "an Office document (docx, xlsx"),
    "docx": (zipped(**{"[Content_Types].xml": b"x", "word__document": b"y"}), "an Office document"),
    "odt": (zipped(mimetype=b"application/vnd.oasis.opendocument.text"), "an Office document"),
    "epub": (zipped(mimetype=b"application/epub+zip"), "an Office document (docx, xlsx, odt) or"),
    "doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(40), "a document of Word"),
    "rtf": (b"{\\rtf1\\ansi The car is old.}\n", "a document of Word"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(9), "a picture"),
    "html": (b"<!DOCTYPE html>\n<p>The car is old.\n", "an HTML document"),
    "xhtml": (b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "x">\n<html>\n', "an HTML document"),
    "srt": (
        b"\xef\xbb\xbf1\r\n00:00:01,000 --> 00:00:02,000\r\nA car.\r\n",
        "a file of subtitles (SubRip)",
    ),
    "vtt": (b"WEBVTT - x\n\n00:01.000 --> 00:02.000\nA car.\n", "a file of subtitles (WebVTT)"),
    "po": (b'# Catalogue\n#\nmsgid ""\nmsgstr ""\n', "a list of texts (TMX, XLIFF, PO"),
    "tmx": (b'<?xml version="1.0"?>\n<tmx version="1.4">\n', "a list of texts (TMX, XLIFF, PO"),
    "parquet": (b"PAR1\x15\x04\x15\x20" + bytes(20) + b"PAR1", "a Parquet file"),
    "tar": (tarred(), "a tar archive"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\n", "a PDF document"),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("suffix", ["", ".txt", ".en"])
def test_the_kind_of_a_file_that_is_not_text_is_reported(
    tmp_path: Path, name: str, suffix: str
) -> None:
    content, what = OTHERS[name]
    path = write(tmp_path / f"a{suffix}", content)
    assert refusal(path).startswith(f"{path}: is {what}")
    assert "NUL" not in refusal(path)


@pytest.mark.parametrize("suffix", TOOLS)
@pytest.mark.parametrize("file_name", ["train.en", "train", "it's.tsv"])
def test_the_reported_command_unpacks_a_compressed_file_of_another_name(
    tmp_path: Path, suffix: str, file_name: str
) -> None:
    if shutil.which(TOOLS[suffix]) is None:
        pytest.skip(f"there is no {TOOLS[suffix]} here")
    path = write(tmp_path / file_name, packed(suffix, TEXT.encode()))
    message = refusal(path)
    assert message.startswith(f"{path}: is compressed by {TOOLS[suffix]}, not text. Unpack it: ")
    assert message.endswith(f", or rename it so that its name ends in {suffix}")
    command = message.partition("Unpack it: ")[2].rpartition(", or rename")[0]
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert read_lines(tmp_path / "NEW_FILE") == LINES
    assert read_lines(path.rename(f"{path}{suffix}")) == LINES


@pytest.mark.parametrize("content", [gzip.compress(TEXT.encode()), tarred()], ids=["gzip", "tar"])
def test_the_content_of_a_compressed_file_is_examined(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "a.gz", gzip.compress(content))
    assert refusal(path).startswith(f"{path}: its content is ")
    command = refusal(path).partition("Run ")[2]
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert (tmp_path / "NEW_FILE").read_bytes() == content


@pytest.mark.parametrize(
    "text", ["PAR1 is a name", "BZhang is a name", "PK is short", "%PD", "7z", "Rar!", "ORC", "]"]
)
def test_text_that_starts_like_a_binary_file_is_text(tmp_path: Path, text: str) -> None:
    assert read_lines(write(tmp_path / "a", f"{text}\nb\n".encode())) == [text, "b"]


def test_the_commands_for_a_file_decompress_and_compress_it(tmp_path: Path) -> None:
    path = write(tmp_path / "it's a.gz", gzip.compress(TEXT.encode()))
    commands_for_file = commands(path)
    assert commands_for_file is not None
    process = subprocess.run(["bash", "-c", commands_for_file[0]], capture_output=True, check=True)
    assert process.stdout == TEXT.encode()
    assert commands_for_file[1] == "gzip"
    assert commands(tmp_path / "a.txt") is None


# ---------------------------------------------------------------------------- decompression bombs

PEAK = """
import sys
from pathlib import Path
from seq2seq.config.schema import ParallelFiles
from seq2seq.data.corpus import read_pairs
from seq2seq.text.text_files import in_step, iter_lines
from seq2seq.runtime.errors import UserError
paths = [Path(each) for each in sys.argv[1:]]
aligned = lambda src, tgt: list(in_step([(str(path), iter_lines(path)) for path in (src, tgt)]))
for order in (paths, paths[::-1]):
    for read in (aligned, lambda src, tgt: read_pairs(ParallelFiles(src=src, tgt=tgt))):
        try:
            read(*order)
        except UserError as error:
            print(error)
status = Path("/proc/self/status").read_text()  # a child's ru_maxrss begins with its parent's
print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)
"""
MIB = 1 << 20


def bomb(path: Path, block: bytes, mebibytes: int) -> Path:
    """Write a file that decompresses to a block of one MiB, repeated."""
    with path.open("wb") as raw, compressing(raw, path) as file:
        for _ in range(mebibytes):
            file.write(block)
    return path


BOMBS = {
    "zeros": (bytes(MIB), "contains a NUL character"),
    "a line": (b"a " * (MIB // 2), "the line is longer than 16 MiB"),
    "blank lines": (b"\n" * MIB, "has more than 10004"),
    "lines": (b"ab cd ef\n" * (MIB // 9), "has more than 10004"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@one_quick(("name", "suffix"), [(name, ".gz") for name in BOMBS])
def test_a_bomb_is_refused_in_little_memory(tmp_path: Path, name: str, suffix: str) -> None:
    """400 lines beside 200 MiB of decompressed data, of which a list would take many times more."""
    block, what = BOMBS[name]
    path = bomb(tmp_path / f"bomb{suffix}", block, 200)
    assert path.stat().st_size < MIB
    small_file = write(tmp_path / "other", b"a\n" * 400)
    process = subprocess.run(
        [sys.executable, "-c", PEAK, str(path), str(small_file)],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    *messages, peak = process.stdout.splitlines()
    assert len(messages) == 4
    for message in messages:
        assert what in message
    assert int(peak) < 180, messages


def test_a_line_of_the_maximum_length_is_read(tmp_path: Path) -> None:
    line = "a" * MAX_LINE_BYTES
    assert read_lines(write(tmp_path / "a", f"b\n{line}\nc\n".encode())) == ["b", line, "c"]
    path = write(tmp_path / "b", f"b\n{line * 2}\nc\n".encode())
    assert refusal(path).startswith(f"{path}:2: the line is longer than 16 MiB. ")
    with (
        open_file(path) as file,
        pytest.raises(UserError, match=":2: the line is longer than 16 MiB"),
    ):
        list(bounded_lines(file, str(path)))
