"""A later start verifies only the blocks that it reads, before use, and counts no batches again."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from conftest import write_small_corpus
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_cache import (
    Built,
    assert_same_data,
    build_cache,
    entry,
    flip,
    load_data,
)
from test_cache_trust import SETTINGS

from seq2seq.cli.main import main
from seq2seq.data import array_file, batching
from seq2seq.data.array_file import ArrayFile
from seq2seq.data.batching import EpochOrder
from seq2seq.data.block_checksums import BLOCK_BYTES, BlockChecks, checksums_of_blocks
from seq2seq.data.cache import divisions, entries, verification
from seq2seq.data.cache.entries import MANIFEST
from seq2seq.data.cache.records import RECORD
from seq2seq.data.training_data import cache_of
from seq2seq.runs.layout import METRICS
from seq2seq.runtime.errors import RunError

NAMES = ["text/src.text", "text/tgt.ends", "src.ids", "tgt.ends", "src.lengths", "rows"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build_cache(tmp_path_factory.mktemp("built"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "run"


@pytest.fixture
def on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave small files on disk, as large ones are, and sample no pairs for comparison."""
    monkeypatch.setattr(array_file, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(verification, "_FIRST_PAIRS", 0)
    monkeypatch.setattr(verification, "_SAMPLED_PAIRS", 0)


def file_of(run: Path, name: str) -> Path:
    kind, _, name = name.rpartition("/")
    return entry(run, kind or "tokens") / name


def corrupt_silently(path: Path) -> None:
    """Corrupt a file as a disk does, without changing its status."""
    flip(path)
    header, _, checksums = (path.parent / RECORD).read_bytes().partition(b"\n")
    facts, found = json.loads(header), path.stat()
    facts["files"][path.name] = [
        *(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    ]
    (path.parent / RECORD).write_bytes(json.dumps(facts).encode() + b"\n" + checksums)


def read_all(pairs: Any) -> None:
    for side in (pairs.src, pairs.tgt, pairs.src_texts, pairs.tgt_texts):
        list(side)
    assert len(pairs.src.lengths[:])


def refuse(*_: object) -> NoReturn:
    raise AssertionError("called again")


# ----------------------------------------------------------------------------------------- blocks

sizes = st.sampled_from([1, 2, 3]).flatmap(
    lambda n: st.integers(n * BLOCK_BYTES // 8 - 3, n * BLOCK_BYTES // 8 + 3)
)
places = st.integers(0, 3 * BLOCK_BYTES // 8 + 3)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes, st.lists(st.tuples(places, places), min_size=1, max_size=6), places)
def test_a_damaged_block_is_found_before_any_byte_of_it_is_used(
    tmp_path: Path, size: int, reads: Sequence[tuple[int, int]], damaged: int
) -> None:
    path, values = tmp_path / "array", np.arange(1, size + 1, dtype=np.int64)
    checksums = checksums_of_blocks(values.tobytes())
    values[damaged % size] += 1 << 40
    values.tofile(path)
    bad = (damaged % size) * 8 // BLOCK_BYTES
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_file, "IN_MEMORY_BYTES", 0)
        reports: list[None] = []
        opened = array_file.os.open(path, array_file.os.O_RDONLY)
        array = ArrayFile(
            opened, np.int64, path, BlockChecks(checksums, lambda: reports.append(None))
        )
        for a, b in reads:
            start, end = sorted((min(a, size), min(b, size)))
            touched = range(start * 8 // BLOCK_BYTES, -(-end * 8 // BLOCK_BYTES))
            reports.clear()
            if start < end and bad in touched:
                with pytest.raises(RunError, match=r"array: is damaged\. It is in the token cache"):
                    array[start:end]
                assert reports
            else:
                assert np.array_equal(array[start:end], values[start:end])
                assert not reports


@pytest.mark.usefixtures("on_demand")
def test_a_later_start_reads_no_file_completely(
    built: Built,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built.copied_to(run)
    load_data(built.files, run)
    scanned: list[str] = []
    scan = entries.scan
    monkeypatch.setattr(entries, "scan", lambda file: (scanned.append(file.name), scan(file))[1])
    monkeypatch.setattr(verification, "_check_text", refuse)
    monkeypatch.setattr(verification, "_check_ids", refuse)
    found = load_data(built.files, run)
    assert found.built == found.notes == []
    assert len(scanned) == 1  # model
    assert_same_data(found, built.wanted)


@pytest.mark.usefixtures("on_demand")
@pytest.mark.parametrize("name", NAMES)
def test_silent_damage_ends_in_one_line_and_the_next_start_rebuilds(
    built: Built,
    run: Path,
    name: str,
) -> None:
    built.copied_to(run)
    load_data(built.files, run)
    corrupt_silently(file_of(run, name))
    found = load_data(built.files, run)
    assert found.built == found.notes == []  # before any byte of it was read
    with pytest.raises(RunError) as lost:
        read_all(found.pairs)
    message = str(lost.value)
    assert message.startswith(f"{file_of(run, name)}: is damaged. It is in the token cache")
    assert "\n" not in message
    again = load_data(built.files, run)
    assert again.built == [name.split("/")[0] if "/" in name else "tokens"]
    (note,) = again.notes
    assert f"rebuilt because {name.rpartition('/')[2]} is damaged" in note
    assert_same_data(again, built.wanted)


@pytest.mark.parametrize("name", NAMES)
def test_silent_damage_of_a_small_file_is_found_at_the_start(
    built: Built,
    run: Path,
    name: str,
) -> None:
    built.copied_to(run)
    load_data(built.files, run)
    corrupt_silently(file_of(run, name))
    found = load_data(built.files, run)
    assert found.built == [name.split("/")[0] if "/" in name else "tokens"]
    assert len(found.notes) == 1
    assert_same_data(found, built.wanted)


RECORDS = {
    "none": None,
    "empty": b"",
    "no header": b"\n",
    "other JSON": b"[1]\n",
    "deep": b"[" * 60_000,
    "without checksums": b'{"manifest": "", "files": {}, "blocks": ""}\n',
    "large numbers": b'{"files": {"rows": [1e999]}}\n',
}


@pytest.mark.parametrize("content", RECORDS.values(), ids=list(RECORDS))
@pytest.mark.parametrize("name", [RECORD, divisions.RECORD])
def test_without_a_record_files_are_verified_and_batches_counted_again(
    built: Built,
    run: Path,
    content: bytes | None,
    name: str,
) -> None:
    built.copied_to(run)
    EpochOrder(load_data(built.files, run).pairs, 200, 1, 0)
    path = entry(run, "tokens") / name
    wanted = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    found = load_data(built.files, run)
    assert found.built == found.notes == []
    EpochOrder(found.pairs, 200, 1, 0)
    assert path.read_bytes() == wanted
    assert [list(side) for side in found.pairs[:4]] == [
        list(side) for side in built.wanted.pairs[:4]
    ]


def test_files_are_verified_if_their_checksums_changed(built: Built, run: Path) -> None:
    """Swap the checksums of two blocks of the same status."""
    built.copied_to(run)
    load_data(built.files, run)
    record = entry(run, "tokens") / RECORD
    header, _, checksums = record.read_bytes().partition(b"\n")
    record.write_bytes(header + b"\n" + checksums[4:] + checksums[:4])
    found = load_data(built.files, run)
    assert found.built == []
    assert_same_data(found, built.wanted)


@pytest.mark.usefixtures("on_demand")
def test_training_on_a_corrupt_cache_ends_in_one_line_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_small_corpus(tmp_path)

    def trained(run: str, *options: str) -> int:
        settings = (*SETTINGS, "training.max_steps=6", f"run_dir={tmp_path / run}")
        return main(["train", str(corpus), *settings, "--device", "cpu", *options])

    assert trained("uninterrupted") == 0
    corrupt_silently(entry(tmp_path / "uninterrupted", "tokens") / "src.ids")
    capsys.readouterr()
    assert trained("again") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "src.ids: is damaged. It is in the token cache, which is rebuilt" in error
    assert trained("again", "--resume") == 0
    assert "tokens" in capsys.readouterr().err
    expected, again = tmp_path / "uninterrupted" / METRICS, tmp_path / "again" / METRICS
    assert again.read_bytes() == expected.read_bytes()


# ----------------------------------------------------------------------------------- batch counts


def test_batches_are_counted_once_for_all_starts(
    built: Built,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batching, "BLOCK_PAIRS", 20)
    built.copied_to(run)
    wanted = [EpochOrder(built.wanted.pairs, 200, 1, epoch) for epoch in (0, 1, None)]
    for epoch in (0, None):
        EpochOrder(load_data(built.files, run).pairs, 200, 1, epoch)
    pairs = load_data(built.files, run).pairs
    with monkeypatch.context() as patch:
        patch.setattr(EpochOrder, "_divide", refuse)
        orders = [EpochOrder(pairs, 200, 1, epoch) for epoch in (0, 1, None)]
        with pytest.raises(AssertionError, match="called again"):
            EpochOrder(pairs, 300, 1, 0)
    for order, other in zip(orders, wanted, strict=True):
        assert [rows.tolist() for rows in order] == [rows.tolist() for rows in other]


def test_other_code_or_pairs_count_again(
    built: Built,
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built.copied_to(run)
    EpochOrder(load_data(built.files, run).pairs, 200, 1, 0)
    place = entry(run, "tokens")
    stored = (place / divisions.RECORD).read_bytes()
    assert load_data(built.files, run).pairs.divisions
    other = load_data(built.files, run, longest=12).pairs
    target = next(each for each in cache_of(run).glob("*/tokens*") if each != place)
    shutil.copy(place / divisions.RECORD, target)
    assert not load_data(built.files, run, longest=12).pairs.divisions
    assert len(other) < len(built.wanted.pairs)
    monkeypatch.setattr(divisions.np, "__version__", "0")
    assert not load_data(built.files, run).pairs.divisions
    monkeypatch.undo()
    monkeypatch.setattr(divisions.inspect, "getsource", lambda _: "another way")
    found = load_data(built.files, run).pairs
    assert not found.divisions
    EpochOrder(found, 200, 1, 0)
    assert (place / divisions.RECORD).read_bytes() != stored


def test_a_record_is_valid_only_for_its_manifest(built: Built, run: Path) -> None:
    built.copied_to(run)
    load_data(built.files, run)
    place = entry(run, "tokens")
    manifest = json.loads((place / MANIFEST).read_bytes())
    manifest["facts"]["pairs"] += 1
    del manifest["checksum"]
    content = json.dumps({**manifest, "checksum": entries._sha256(manifest)})
    (place / MANIFEST).write_text(content, encoding="utf-8")
    folder = entries.PrivateFolder(place)
    assert entries.read_record(folder, json.loads(content)["checksum"]) is None
