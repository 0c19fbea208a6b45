"""Cleaned copy: dropped lines are counted by reason, kept lines are unchanged."""

import csv
import gzip
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import toy_pairs

from seq2seq.analysis.check.alignment import Alignment, Stretch
from seq2seq.analysis.check.cleaning import (
    DROPPED,
    check_folder_to_write,
    reasons_to_drop,
    write_cleaned,
)
from seq2seq.analysis.check.data_statistics import text_statistics
from seq2seq.config.schema import ParallelFiles
from seq2seq.data.corpus import ParallelText, iter_pairs
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.runtime.errors import UserError

SOUND = Alignment(60, 1.0, [])


def reasons(
    text: ParallelText,
    vocabularies: Vocabularies,
    alignment: Alignment = SOUND,
    held_out: list[int] | None = None,
) -> dict[int, str]:
    statistics = text_statistics(text, vocabularies, 40)
    return reasons_to_drop(text, statistics, alignment, held_out or [], 40)


def test_each_dropped_pair_has_one_reason(tiny_vocabularies: Vocabularies) -> None:
    src, tgt = toy_pairs(60, seed=1)
    text = ParallelText(src, tgt)
    already = reasons(text, tiny_vocabularies)
    assert set(already.values()) <= {"more than 40 tokens on a side"}
    src[4], tgt[6] = " ", ""
    src[9], tgt[9] = src[2], tgt[2]
    src[11] = tgt[11] = "ba da ga"
    src[13] = tgt[13] = "Tom"
    src[15] = f"\ufffd{src[15]}"
    src[17] = "no " * 60
    alignment = Alignment(60, 0.9, [Stretch(31, 33, 0.5, 1)])
    found = reasons(text, tiny_vocabularies, alignment, [3, 21])
    found = {line: reason for line, reason in found.items() if line not in already}
    assert found.pop(18) in ("more than 40 tokens on a side", "unusual length ratio")
    assert found == {
        3: "pair also in valid or test",
        5: "blank side",
        7: "blank side",
        10: "duplicate pair",
        12: "identical sides",
        16: "damaged characters (U+FFFD)",
        21: "pair also in valid or test",
        31: "misaligned",
        32: "misaligned",
        33: "misaligned",
    }


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("compressed", [False, True])
def test_kept_lines_are_copied_byte_for_byte(tmp_path: Path, end: bytes, compressed: bool) -> None:
    src = [b"\xef\xbb\xbfa ", b"b\xc2\x85", b"  ", b"d\te\xcc\x81", b"f"]
    tgt = [b"A", b"B", b"C", b"D", b"E"]
    suffix = ".gz" if compressed else ""
    paths = {"src": tmp_path / f"t.src{suffix}", "tgt": tmp_path / f"t.tgt{suffix}"}
    for path, lines in zip(paths.values(), (src, tgt), strict=True):
        content = end.join(lines)  # no line feed after the last line
        path.write_bytes(gzip.compress(content) if compressed else content)
    before = [path.read_bytes() for path in paths.values()]
    folder = tmp_path / "clean"
    done = write_cleaned(folder, ParallelFiles(**paths), 5, {3: "blank side", 4: "because"})
    assert (done.kept, done.dropped) == (3, {"blank side": 1, "because": 1})
    assert [path.read_bytes() for path in paths.values()] == before
    for path, lines in zip(paths.values(), (src, tgt), strict=True):
        written = (folder / path.name).read_bytes()
        content = gzip.decompress(written) if compressed else written
        assert content == end.join([lines[0], lines[1], lines[4]])
    assert (folder / DROPPED).read_text(encoding="utf-8") == "3\tblank side\n4\tbecause\n"
    assert sorted(done.files) == sorted(map(str, folder.iterdir()))


def test_all_columns_of_a_table_are_kept(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("a\tb\t1\nc\td\t2\ne\tf\t3\n", encoding="utf-8")
    write_cleaned(tmp_path / "clean", ParallelFiles(file=tmp_path / "t.tsv"), 3, {2: "x"})
    assert (tmp_path / "clean" / "t.tsv").read_text(encoding="utf-8") == "a\tb\t1\ne\tf\t3\n"


def written(
    path: Path, rows: list[tuple[str, str]], columns: Sequence[str], delimiter: str
) -> None:
    """Write a table with three columns, the second one of which is not read."""
    by_number = columns[0] in ("1", "3")
    src, tgt = (int(each) - 1 for each in columns) if by_number else (2, 0)
    table = [[""] * 3 for _ in rows]
    for cells, pair in zip(table, rows, strict=True):
        cells[src], cells[tgt], cells[1] = *pair, "other"
    header = [columns[1], "other", columns[0]]
    lines = io.StringIO(newline="")
    if ".json" in path.name:
        lines.writelines(f"{json.dumps(dict(zip(header, row, strict=True)))}\n" for row in table)
    elif ".csv" in path.name:
        writer = csv.writer(lines, delimiter=delimiter)
        writer.writerows(table if by_number else [header, *table])
    else:
        lines.writelines("\t".join(row) + "\n" for row in ([] if by_number else [header]) + table)
    content = lines.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.parametrize("columns", [("en", "de"), ("²", "2016_en"), ("3", "1"), ("1", "3")])
@pytest.mark.parametrize("name", ["t.tsv", "t.csv", "t.csv.gz", "t.jsonl", "t.json.gz"])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_the_same_config_reads_a_cleaned_table(
    tmp_path: Path, name: str, columns: tuple[str, str], delimiter: str
) -> None:
    if columns[0].isdigit() and not re.search("tsv|csv", name):
        pytest.skip("has names only")
    rows = [("a, b; c", "A"), ('"d"', "D"), ("e", ""), ("f", "F; G"), ("", "h, i")]
    written(tmp_path / name, rows, columns, delimiter)
    files = ParallelFiles(file=tmp_path / name, columns=[*columns])
    assert [*iter_pairs(files)] == rows
    write_cleaned(tmp_path / "clean", files, len(rows), {2: "x", 4: "y"})
    cleaned = files.model_copy(update={"file": tmp_path / "clean" / name})
    assert [*iter_pairs(cleaned)] == [rows[0], rows[2], rows[4]]


def test_files_of_the_same_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    paths = {}
    for side in ("src", "tgt"):
        (tmp_path / side).mkdir()
        paths[side] = tmp_path / side / "train.txt"
        paths[side].write_text(f"{side} 1\n{side} 2\n", encoding="utf-8")
    write_cleaned(tmp_path / "clean", ParallelFiles(**paths), 2, {1: "x"})
    for side in ("src", "tgt"):
        written = (tmp_path / "clean" / f"{side}-train.txt").read_text(encoding="utf-8")
        assert written == f"{side} 2\n"


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    files = ParallelFiles(file=tmp_path / "t.tsv")
    (tmp_path / "t.tsv").write_text("a\tb\n", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    check_folder_to_write(tmp_path / "empty", files)
    check_folder_to_write(tmp_path / "new", files)
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for folder, words in (
        (tmp_path, "is not empty"),
        (tmp_path / "t.tsv", "is not a folder"),
        (tmp_path / "link", "is not a folder"),
        (tmp_path / "nowhere" / "new", "create it first"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            check_folder_to_write(folder, files)
        assert "\n" not in str(caught.value)


def test_an_empty_copy_or_a_changed_file_is_refused(tmp_path: Path) -> None:
    files = ParallelFiles(file=tmp_path / "t.tsv")
    (tmp_path / "t.tsv").write_text("a\tb\nc\td\n", encoding="utf-8")
    with pytest.raises(UserError, match="every pair would be dropped"):
        write_cleaned(tmp_path / "clean", files, 2, {1: "x", 2: "x"})
    assert not (tmp_path / "clean").exists()
    with pytest.raises(UserError, match="changed while being read"):
        write_cleaned(tmp_path / "clean", files, 3, {})
