"""Formats of parallel text: pairs survive a round trip; malformed input is refused by line."""

import csv
import io
import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from seq2seq.config.schema import ParallelFiles
from seq2seq.data.corpus import read_pairs
from seq2seq.data.tables import iter_csv, pair_writer
from seq2seq.runtime.errors import UserError
from seq2seq.text.text_files import compressing

Pairs = list[tuple[str, str]]
COLUMNS = ["english", "german"]


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
    suffix=st.sampled_from(["", ".gz", ".bz2"]),
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
    for english, german, other_value in rows:
        fields: dict[str, object] = {"german": german, "english": english}
        objects.append({"id": other_value, **({"translation": fields} if nested else fields)})
    lines = [json.dumps(json_object, ensure_ascii=ascii_only) for json_object in objects]
    path = write(tmp_path / "a.jsonl", "".join(f"{line}\n" for line in lines))
    expected = [(as_line(english), as_line(german)) for english, german, _ in rows]
    assert pairs_of(path, COLUMNS) == expected
    assert pairs_of(path, COLUMNS[::-1]) == [pair[::-1] for pair in expected]


ENDINGS = ["a.tsv", "a.csv", "a.jsonl", "a.csv.gz", "a.jsonl.bz2"]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pairs=st.lists(
        st.tuples(*(st.text(st.sampled_from("\"',;| ab\\ü\u2028"), max_size=8),) * 2), min_size=1
    ),
    name=st.sampled_from(ENDINGS),
)
def test_pairs_survive_every_format(tmp_path: Path, pairs: Pairs, name: str) -> None:
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


def test_a_tab_becomes_a_space_in_tsv(tmp_path: Path) -> None:
    with pair_writer([tmp_path / "a.tsv"]) as add:
        add("a\tb", "c")
    assert pairs_of(tmp_path / "a.tsv", None) == [("a b", "c")]


# ------------------------------------------------------------------------------------------- TSV


def test_columns_of_a_tsv_are_chosen_by_number_or_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "id\ten\tde\n1\tone\teins\n2\ttwo\tzwei\n")
    assert pairs_of(path, ["en", "de"]) == [("one", "eins"), ("two", "zwei")]
    assert pairs_of(path, ["3", "2"])[1:] == [("eins", "one"), ("zwei", "two")]
    assert pairs_of(path)[1:] == [("1", "one"), ("2", "two")]
    assert "has no column 'fr'; it has: id, en, de. Set columns, or " in refusal(path, ["en", "fr"])
    assert "the line has 3 columns, which tabs separate; column 9 " in refusal(path, ["2", "9"])
    twice = write(tmp_path / "c.tsv", "en\tde\tde\none\teins\tzwei\n")
    assert f"{twice}:1: several columns are named 'de'; " in refusal(twice, ["en", "de"])
    assert pairs_of(twice, ["1", "3"])[1:] == [("one", "zwei")]
    short = write(tmp_path / "b.tsv", "id\ten\tde\n1\tone\teins\n2\ttwo\n")
    assert f"{short}:3: the line has 2 columns, which tabs " in refusal(short, ["en", "de"])


# ------------------------------------------------------------------------------------------- CSV


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("english,german\na,b\nc\n", "a.csv:3: the record has 1 cell, the first one 2. Quote a"),
        ("english,german\na,b\nc,d,e\n", "a.csv:3: the record has 3 cells, the first one 2."),
        ('english,german\na,b\n"c,d\ne,f\n', "a.csv:4: malformed CSV ("),
        ('english,german\n"a" b,c\n', "a.csv:2: malformed CSV ("),
        ("en,de\na,b\n", "a.csv:1: has no column 'english'; it has: en, de. Set columns"),
        ("english,german,german\na,b,c\n", "a.csv:1: several columns are named 'german';"),
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
    assert "malformed CSV (field larger than field limit" in message
    assert peak < 16 << 20


# ------------------------------------------------------------------------------------ JSON lines


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"english": "a"}', "a.jsonl:2: has no column 'german'; it has: english"),
        ('{"translation": {"en": "a"}}', "a.jsonl:2: has no column 'english'; it has: en"),
        ('{"english": "a", "german": 3}', "the value of 'german' is '3', not text"),
        ('{"english": ["a"], "german": "b"}', "the value of 'english' is \"['a']\", not text"),
        ('{"english": "a", "german": "b"', "a.jsonl:2: invalid JSON ("),
        ('["a", "b"]', "a.jsonl:2: each line must be a JSON object"),
        ('{"english": "a\\u0000", "german": "b"}', "a.jsonl:2: contains a NUL character"),
        ('{"english": "\\ud800", "german": "b"}', "a.jsonl:2: contains a NUL character or half"),
        ("[" * 100_000, "a.jsonl:2: invalid JSON ("),
    ],
)
def test_malformed_json_is_refused_by_line(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"english": "a", "german": "b"}}\n{line}\n')
    assert message in refusal(path)


def test_a_json_array_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", '[{"english": "a", "german": "b"}]')
    assert "jq -c '.[]'" in refusal(path)
    path = write(tmp_path / "b.json", '["a", "b"]\n["c", "d"]\n')
    assert "jq -c '{src: .[0], tgt: .[1]}'" in refusal(path)


@pytest.mark.parametrize(
    ("indented", "command"),
    [([{"english": "a", "german": "b"}], "jq -c '.[]' FILE"), ({"english": "a"}, "jq -c . FILE")],
)
def test_indented_json_is_named(indented: object, command: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", json.dumps(indented, indent=1))
    message = refusal(path)
    assert "a.json:1: begins JSON of several lines" in message
    assert command in message


@pytest.mark.parametrize(("start", "mark"), [("sep=;", ";"), ('"sep=|"', "|"), ("sep=\t", "\t")])
def test_a_separator_that_excel_names_is_taken(start: str, mark: str, tmp_path: Path) -> None:
    rows = [("english", "german"), ("a, b", "c"), ("d", "e")]
    text = "".join(f"{mark.join(row)}\n" for row in rows)
    path = write(tmp_path / "a.csv", f"{start}\n{text}")
    assert list(iter_csv(path, ["english", "german"])) == rows[1:]
    path = write(tmp_path / "b.csv", f"{start}\n{text}f\n")
    assert "b.csv:5: the record has 1 cell" in refusal(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "german,english\n"),
        ("a.csv", "german,english\n\n"),
        ("a.tsv", "german\tenglish\n"),
        ("a.jsonl", "\n \n"),
    ],
)
def test_a_table_without_rows_is_refused(tmp_path: Path, name: str, content: str) -> None:
    path = write(tmp_path / name, content)
    message = f"{path}: the table has no rows. It needs one pair of sentences per row."
    assert refusal(path) == message


def test_null_and_missing_text_is_blank(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"english": null, "german": "b"}\n\n')
    assert pairs_of(path, COLUMNS) == [("", "b")]
