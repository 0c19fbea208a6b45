"""Formats of parallel text: pairs survive a round trip; malformed input is refused by line."""

import csv
import io
import json
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from seq2seq.config.schema import ParallelFiles
from seq2seq.data.compression import compressing
from seq2seq.data.corpus import iter_column, read_pairs
from seq2seq.data.formats.writing import pair_writer
from seq2seq.runtime.errors import UserError

Pairs = list[tuple[str, str]]
COLUMNS = ["english", "german"]


def importable(name: str) -> None:
    if name.endswith(".zst"):
        pytest.importorskip("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")
    if ".parquet" in name:
        pytest.importorskip("pyarrow")


def pairs_of(path: Path, columns: Sequence[str] | None = None) -> Pairs:
    text = read_pairs(ParallelFiles(file=path, columns=columns and list(columns)))
    return list(zip(text.src, text.tgt, strict=True))


def refusal(path: Path, columns: Sequence[str] | None = COLUMNS) -> str:
    with pytest.raises(UserError) as caught:
        pairs_of(path, columns)
    message = str(caught.value)
    assert "\n" not in message
    return message


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def as_csv(rows: Sequence[Sequence[str]], delimiter: str, quoting: int, end: str) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=end).writerows(rows)
    return file.getvalue()


def as_line(text: str) -> str:
    return text.replace("\r\n", " ").replace("\r", " ").replace("\n", " ")


# Quotes, delimiters, line breaks and other text within cells.
cells = st.text(st.sampled_from("\"',;|\t\n\r\\ab ü\u2028\x85😀"), max_size=8)
rows = st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=8)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=rows,
    delimiter=st.sampled_from(",;\t|"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    end=st.sampled_from(["\n", "\r\n"]),
    suffix=st.sampled_from(["", ".gz", ".bz2", ".xz"]),
)
def test_csv_cells_survive_writing_and_reading(
    tmp_path: Path,
    rows: list[tuple[str, str, str]],
    delimiter: str,
    quoting: int,
    end: str,
    suffix: str,
) -> None:
    if any("\r" in cell for row in rows for cell in row):
        quoting = csv.QUOTE_ALL  # Python's writer does not quote CR where LF ends a line
    content = as_csv([("german", "id", "english"), *rows], delimiter, quoting, end).encode()
    single = content.count(b"\r") - content.count(b"\r\n")
    assume(single <= content.count(b"\n"))  # otherwise CR seems to end the lines
    assume(all(content.count(each.encode()) < 10 for each in "\u2028\x85"))
    path = tmp_path / f"a.csv{suffix}"
    with path.open("wb") as raw, compressing(raw, path) as file:
        file.write(content)
    expected = [(as_line(english), as_line(german)) for german, _, english in rows]
    assert pairs_of(path, COLUMNS) == expected
    numbered = pairs_of(path, ["3", "1"])  # without a header, the names are a pair
    assert numbered == [("english", "german"), *expected]
    assert pairs_of(path, COLUMNS[::-1]) == [pair[::-1] for pair in expected]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows, nested=st.booleans(), ascii_only=st.booleans())
def test_json_values_survive_writing_and_reading(
    tmp_path: Path, rows: list[tuple[str, str, str]], nested: bool, ascii_only: bool
) -> None:
    objects: list[dict[str, object]] = []
    for english, german, other in rows:
        fields: dict[str, object] = {"german": german, "english": english}
        objects.append({"id": other, **({"translation": fields} if nested else fields)})
    lines = [json.dumps(each, ensure_ascii=ascii_only) for each in objects]
    path = write(tmp_path / "a.jsonl", "".join(f"{line}\n" for line in lines))
    expected = [(as_line(english), as_line(german)) for english, german, _ in rows]
    assert pairs_of(path, COLUMNS) == expected
    assert pairs_of(path, COLUMNS[::-1]) == [pair[::-1] for pair in expected]


ENDINGS = ["a.tsv", "a.csv", "a.jsonl", "a.parquet", "a.csv.gz", "a.jsonl.bz2", "a.tsv.xz"]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.lists(
        st.tuples(*(st.text(st.sampled_from("\"',;| ab\\ü\u2028"), max_size=8),) * 2), min_size=1
    ),
    name=st.sampled_from([*ENDINGS, "a.parquet.gz", "a.tsv.zst"]),
)
def test_pairs_survive_every_format(tmp_path: Path, pairs: Pairs, name: str) -> None:
    importable(name)
    path = tmp_path / name
    with pair_writer([path], COLUMNS) as add:
        for pair in pairs:
            add(*pair)
    assert pairs_of(path, None if ".tsv" in name else COLUMNS) == pairs


def test_pairs_survive_two_files(tmp_path: Path) -> None:
    pairs = [("a\tb", "c"), ("", '"d'), ("e", "")]
    paths = [tmp_path / "a.en.gz", tmp_path / "a.de.bz2"]
    with pair_writer(paths) as add:
        for pair in pairs:
            add(*pair)
    text = read_pairs(ParallelFiles(src=paths[0], tgt=paths[1]))
    assert list(zip(text.src, text.tgt, strict=True)) == pairs


KEPT = [("\ufeffa", "\ufeffb\r"), ("\ufeffc\r", "d\r"), ("e", "f")]


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.csv", "a.jsonl"])
def test_a_byte_order_mark_and_a_final_cr_of_a_cell_are_kept(tmp_path: Path, name: str) -> None:
    path, columns = tmp_path / name, ["1", "2"] if ".csv" in name else COLUMNS
    with pair_writer([path], columns) as add:
        for pair in KEPT:
            add(*pair)
    lines = KEPT if ".tsv" in name else [(as_line(src), as_line(tgt)) for src, tgt in KEPT]
    assert pairs_of(path, None if ".tsv" in name else columns) == lines


def test_a_byte_order_mark_and_a_final_cr_of_a_line_are_kept(tmp_path: Path) -> None:
    paths = [tmp_path / "a.en", tmp_path / "a.de"]
    with pair_writer(paths) as add:
        for pair in KEPT:
            add(*pair)
    text = read_pairs(ParallelFiles(src=paths[0], tgt=paths[1]))
    assert list(zip(text.src, text.tgt, strict=True)) == KEPT


def test_a_tab_cannot_be_written_into_tsv(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains a tab"), pair_writer([tmp_path / "a.tsv"]) as add:
        add("a\tb", "c")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------- TSV


def test_columns_of_a_tsv_are_chosen_by_number_or_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "id\ten\tde\n1\tone\teins\n2\ttwo\tzwei\n")
    assert pairs_of(path, ["en", "de"]) == [("one", "eins"), ("two", "zwei")]
    assert pairs_of(path, ["3", "2"])[1:] == [("eins", "one"), ("zwei", "two")]
    assert pairs_of(path)[1:] == [("1", "one"), ("2", "two")]
    assert refusal(path, ["en", "fr"]) == (
        f"{path}:1: has no column 'fr'; it has: id, en, de. Choose columns by these names, or by "
        "number, such as 1 and 2, if it has no header"
    )
    assert refusal(path, ["2", "9"]).startswith(f"{path}:1: the line has 3 columns; column 9 is ")
    twice = write(tmp_path / "c.tsv", "en\tde\tde\none\teins\tzwei\n")
    assert refusal(twice, ["en", "de"]).startswith(f"{twice}:1: 2 columns are named 'de'. Choose ")
    assert pairs_of(twice, ["1", "3"])[1:] == [("one", "zwei")]
    short = write(tmp_path / "b.tsv", "id\ten\tde\n1\tone\teins\n2\ttwo\n")
    assert refusal(short, ["en", "de"]).startswith(f"{short}:3: the line has 2 columns; column 3 ")


# ------------------------------------------------------------------------------------------- CSV


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("english,german\na,b\nc\n", "a.csv:3: the record has 1 cell, the first one 2. Quote a"),
        ("english,german\na,b\nc,d,e\n", "a.csv:3: the record has 3 cells, the first one 2."),
        ('english,german\na,b\n"c,d\ne,f\n', "a.csv:3: a quoted cell that begins here does not"),
        ('english,german\n"a" b,c\n', "a.csv:2: malformed CSV ("),
        ("en,de\na,b\n", "a.csv:1: has no column 'english'; it has: en, de. Choose columns"),
        ("english,german,german\na,b,c\n", "a.csv:1: 2 columns are named 'german'. Choose columns"),
        ("english,ger\na,b\n", "a.csv:1: has no column 'german'; it has: english, ger"),
        ("german,englisch\n", "it has: german, englisch; did you mean 'englisch'?"),
        ('english,german\na,"b\0"\n', "a.csv:2: contains a NUL character"),
        ("english,german\na,\udcff\n", "a.csv:2: byte 0x"),
    ],
)
def test_a_malformed_csv_is_refused_by_line(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path / "a.csv", content.encode("utf-8", "surrogateescape"))
    assert message in refusal(path)


def test_blank_lines_and_extra_columns_of_a_csv_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '\ufeffid;german;english\r\n1;"a; b";c\r\n\r\n2;d;\r\n')
    assert pairs_of(path, COLUMNS) == [("c", "a; b"), ("", "d")]


def test_an_unclosed_quote_is_found_without_reading_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'english,german\n"' + "a,b\n" * 5_000_000)
    tracemalloc.start()
    message = refusal(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message.startswith(f"{path}:2: a quoted cell that begins here does not end within 131,")
    assert peak < 16 << 20
    first = write(tmp_path / "b.csv", '"english,german\n' + "a,b\n" * 50_000)
    assert refusal(first).startswith(f"{first}:1: a quoted cell that begins here does not end ")


# ------------------------------------------------------------------------------------ JSON lines


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"english": "a"}', "a.jsonl:2: has no key 'german'; it has: english"),
        ('{"translation": {"en": "a"}}', "a.jsonl:2: has no key 'english'; it has: en"),
        ('{"english": "a", "german": 3}', "the value of 'german' is a number, not text"),
        ('{"english": ["a"], "german": "b"}', "the value of 'english' is a list, not text"),
        ('{"english": "a", "german": "b"', "a.jsonl:2: invalid JSON ("),
        ('["a", "b"]', "a.jsonl:2: each line must be a JSON object"),
        ('{"english": "a\\u0000", "german": "b"}', "a.jsonl:2: contains a NUL character"),
        ('{"english": "\\ud800", "german": "b"}', "a.jsonl:2: contains half a surrogate pair"),
        ("[" * 100_000, "a.jsonl:2: invalid JSON (nested too deeply)"),
    ],
)
def test_malformed_json_is_refused_by_line(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"english": "a", "german": "b"}}\n{line}\n')
    assert message in refusal(path)


def test_a_json_array_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    for content in ('[{"english": "a", "german": "b"}]', '[\n{"english": "a"}\n]\n'):
        path = write(tmp_path / "a.json", content)
        assert "jq -c '.[]'" in refusal(path)


@pytest.mark.parametrize(
    ("name", "line", "kind"),
    [
        ("a.tsv", '{"english": "a", "german": "b"}', "JSON lines: give the file a name in .jsonl"),
        ("a.csv", '{"english": "a", "german": "b"}', "JSON lines: give the file a name in .jsonl"),
        ("a.tsv", "english,german", "CSV: give the file a name in .csv"),
        ("a.jsonl", "english,german", "CSV: give the file a name in .csv"),
        ("a.jsonl", "a\tb", "TSV: give the file a name in .tsv"),
    ],
)
def test_a_table_with_the_suffix_of_another_format_is_recognised(
    tmp_path: Path, name: str, line: str, kind: str
) -> None:
    path = write(tmp_path / name, f"{line}\n")
    assert refusal(path).endswith(f". It seems to be {kind}")


@pytest.mark.parametrize("line", ["Hello, world", "No tab here", '{"english": "a"'])
def test_a_sentence_is_not_taken_for_a_table(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / ("a.jsonl" if line.startswith("{") else "a.tsv"), f"{line}\n")
    assert "It seems to be" not in refusal(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "german,english\n"),
        ("a.csv", "german,english\n\n"),
        ("a.tsv", "german\tenglish\n"),
        ("a.jsonl", "\n \n"),
        ("a.parquet", ""),
    ],
)
def test_a_table_without_rows_is_refused(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    if name == "a.parquet":
        importable(name)
        with pair_writer([path], COLUMNS):
            pass
    else:
        write(path, content)
    message = f"{path}: the table has no rows. It needs one pair of sentences per row."
    assert refusal(path) == message
    with pytest.raises(UserError, match="has no rows"):
        next(iter_column(path, "german"))


def test_null_and_missing_text_is_blank(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"english": null, "german": "b"}\n\n')
    assert pairs_of(path, COLUMNS) == [("", "b")]


# --------------------------------------------------------------------------------------- Parquet


def test_parquet_columns_are_flat_or_a_translation(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, nested = tmp_path / "a.parquet", tmp_path / "b.parquet"
    english, german = ["one\ntwo", None, "three"], ["eins", "zwei", "drei"]
    parquet.write_table(pa.table({"id": [1, 2, 3], "german": german, "english": english}), path)
    expected = [("one two", "eins"), ("", "zwei"), ("three", "drei")]
    assert pairs_of(path, COLUMNS) == expected
    translation = [dict(zip(COLUMNS, each, strict=True)) for each in expected]
    parquet.write_table(pa.table({"translation": translation}), nested)
    assert pairs_of(nested, COLUMNS[::-1]) == [pair[::-1] for pair in expected]
    assert refusal(path, ["en", "german"]).startswith(
        f"{path}:1: has no column 'en'; it has: id, german, english"
    )
    assert refusal(nested, ["en", "german"]).startswith(
        f"{nested}:1: has no column 'en'; it has: english, german"
    )
    assert refusal(path, ["id", "german"]) == f"{path}: the column 'id' is int64, not text"
    twice = tmp_path / "e.parquet"
    columns = [english, german, german]
    parquet.write_table(pa.Table.from_arrays(columns, names=["en", "de", "de"]), twice)
    assert refusal(twice, ["en", "de"]) == (
        f"{twice}: 2 columns are named 'de'; rename all but one"
    )
    damaged = write(tmp_path / "c.parquet", path.read_bytes()[:-20])
    assert refusal(damaged).startswith(f"{damaged}: is not a Parquet file, or damaged (")
    plain = write(tmp_path / "d.parquet", "a\tb\n")
    assert refusal(plain).startswith(f"{plain}: is not a Parquet file, or damaged (")


def test_missing_pyarrow_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = write(tmp_path / "a.parquet", "")
    assert (
        refusal(path)
        == f"{path}: Parquet needs pyarrow. Run: pip install 'seq2seq-attention[formats]'"
    )
    with pytest.raises(UserError, match="Parquet needs pyarrow"), pair_writer([path]):
        pass
