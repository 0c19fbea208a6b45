"""Source files that have not changed are not read again; those that have changed are."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_cache import SRC, entry, load_data, read_into_memory, write_files

from seq2seq.config.schema import ParallelFiles
from seq2seq.data.cache import arrays, sources
from seq2seq.data.training_data import _SOURCES as RECORD
from seq2seq.runtime.errors import UserError


@pytest.fixture
def files(tmp_path: Path) -> ParallelFiles:
    return write_files(tmp_path / "text")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "run"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose checksums are computed; the files count as settled."""
    names: list[str] = []
    compute = sources.checksum_of_file

    def observed(path: Path) -> str:
        names.append(path.name)
        return compute(path)

    monkeypatch.setattr(sources, "checksum_of_file", observed)
    monkeypatch.setattr(sources, "SETTLED", 0)
    return names


def test_unchanged_files_are_not_read_again(
    files: ParallelFiles, run: Path, hashed: list[str]
) -> None:
    first = load_data(files, run)
    assert sorted(hashed) == 2 * ["train.src"] + 2 * ["train.tgt"]  # before and after the copy
    hashed.clear()
    again = load_data(files, run)
    assert hashed == again.built == []
    assert list(again.text.src) == list(first.text.src)


def test_files_that_changed_just_before_are_read_again(
    files: ParallelFiles, run: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They could change once more within the resolution of the clock."""
    monkeypatch.setattr(sources, "SETTLED", 3600 * 10**9)
    load_data(files, run)
    hashed.clear()
    assert load_data(files, run).built == []
    assert sorted(hashed) == ["train.src", "train.tgt"]


def test_files_that_a_build_has_read_again_later_are_recorded(
    files: ParallelFiles, run: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build reads them twice, the second time after the copy."""
    monkeypatch.setattr(sources, "SETTLED", 200 * 10**6)
    copy = arrays.copy_text

    def slow_copy(*arguments: Any) -> Any:
        time.sleep(0.3)
        return copy(*arguments)

    monkeypatch.setattr(arrays, "copy_text", slow_copy)
    load_data(files, run)
    assert len(hashed) == 4
    load_data(files, run)
    assert len(hashed) == 4


def overwrite(path: Path, content: bytes) -> None:
    with path.open("r+b") as file:
        file.write(content)


def replace(path: Path, content: bytes) -> None:
    other = path.with_name("other")
    other.write_bytes(content)
    other.replace(path)


@pytest.mark.parametrize("change", [overwrite, replace])
def test_other_content_of_the_same_size_and_time_is_noticed(
    change: Callable[[Path, bytes], None], files: ParallelFiles, run: Path, hashed: list[str]
) -> None:
    load_data(files, run)
    hashed.clear()
    path = Path(str(files.src))
    before, content = path.stat(), path.read_bytes()
    change(path, content.replace(SRC[0].encode(), SRC[0].encode()[::-1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    again = load_data(files, run)
    assert hashed[:1] == ["train.src"]
    assert "text" in again.built
    assert again.text.src[0] == SRC[0][::-1]


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b'{"src": 1}', b'{"src": [1, 2]}'])
def test_a_damaged_record_is_not_used(
    content: bytes, files: ParallelFiles, run: Path, hashed: list[str]
) -> None:
    load_data(files, run)
    hashed.clear()
    (entry(run, "text") / RECORD).write_bytes(content)
    assert load_data(files, run).built == []
    assert sorted(hashed) == ["train.src", "train.tgt"]


@pytest.mark.usefixtures("hashed")
def test_a_text_is_read_again_after_a_record_of_other_checksums(
    files: ParallelFiles, run: Path
) -> None:
    """The record is of these very files, but damaged; it does not refuse them for ever."""
    load_data(files, run)
    record = entry(run, "text") / RECORD
    record.write_text(record.read_text().replace('"]', '0"]'))
    with pytest.raises(UserError, match="changed while being read"):
        load_data(files, run)
    assert list(load_data(files, run).text.src) == list(read_into_memory(files).text.src)


def test_a_missing_record_is_written_again(
    files: ParallelFiles, run: Path, hashed: list[str]
) -> None:
    load_data(files, run)
    (entry(run, "text") / RECORD).unlink()
    load_data(files, run)
    hashed.clear()
    load_data(files, run)
    assert hashed == []
