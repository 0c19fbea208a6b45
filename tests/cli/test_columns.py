"""Tables in `-i` and `-r`: their columns give the same output as plain text files."""

import csv
import gzip
import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import toy_pairs
from tiers import one_quick

from seq2seq.cli.columns import TextFile
from seq2seq.cli.input import open_input
from seq2seq.cli.main import main
from seq2seq.runtime.errors import UserError

SRC, TGT = toy_pairs(25, seed=8)
SRC[4] = TGT[4] = ""  # a blank line stays blank
NAMES = ("xx", "yy")  # languages of the tiny runs


def as_tsv(rows: Sequence[Sequence[str]]) -> bytes:
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def as_csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def as_json_lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows).encode()


PAIRS = list(zip(SRC, TGT, strict=True))
SWAPPED = [(tgt, str(number), src) for number, (src, tgt) in enumerate(PAIRS)]
TABLES: dict[str, tuple[bytes, str | None]] = {  # content and --columns
    "two.tsv": (as_tsv(PAIRS), None),
    "windows.tsv": (b"\xef\xbb\xbf" + as_tsv(PAIRS).replace(b"\n", b"\r\n"), None),
    "more.tsv": (as_tsv([(*pair, "note") for pair in PAIRS]), None),
    "packed.tsv.gz": (gzip.compress(as_tsv(PAIRS)), None),
    "numbered.TSV": (as_tsv(SWAPPED), "3,1"),
    "named.tsv": (as_tsv([("german", "id", "english"), *SWAPPED]), "english, german"),
    "languages.csv": (as_csv([NAMES, *PAIRS]), None),
    "named.csv": (as_csv([("german", "id", "english"), *SWAPPED]), "english,german"),
    "numbered.csv.gz": (gzip.compress(as_csv(SWAPPED)), "3,1"),
    "languages.jsonl": (as_json_lines(NAMES, PAIRS), None),
    "named.json": (as_json_lines(("a", "b"), PAIRS), "a,b"),
}
Call = Callable[..., str]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tiny_runs: dict[str, Path]) -> Call:
    """Run a command on the luong run; return stdout."""

    def run(*arguments: object) -> str:
        capsys.readouterr()
        device = [] if "--hyp" in arguments else ["-m", tiny_runs["luong"], "--device", "cpu"]
        code = main([str(each) for each in (*arguments, *device)])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return run


@pytest.fixture
def plain(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "plain.src", tmp_path / "plain.tgt"
    for path, lines in zip(paths, (SRC, TGT), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def write(folder: Path, name: str) -> tuple[Path, list[str], list[str]]:
    """Write a table; return it with the options for both sides, and for the source only."""
    content, columns = TABLES[name]
    path = folder / name
    path.write_bytes(content)
    if columns is None:
        return path, [], []
    return path, ["--columns", columns], ["--columns", columns.split(",")[0]]


@one_quick("name", TABLES)
def test_a_table_is_read_as_its_columns(
    call: Call, plain: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    table, both, source = write(tmp_path, name)
    assert call("translate", "-i", table, *source) == call("translate", "-i", plain[0])
    expected = call("score", "-i", plain[0], "-r", plain[1])
    assert call("score", "-i", table, *both) == expected
    assert call("score", "-i", plain[0], "-r", table, *both) == expected
    assert call("score", "-i", table, "-r", plain[1], *both) == expected


@one_quick("name", ["two.tsv", "named.tsv", "languages.csv"])
def test_evaluate_and_attention_read_tables_too(
    call: Call, plain: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    table, both, _ = write(tmp_path, name)
    expected = call("evaluate", "-i", plain[0], "-r", plain[1])
    assert "BLEU" in expected
    assert call("evaluate", "-i", table, *both) == expected
    assert call("evaluate", "-i", plain[0], "-r", table, *both) == expected
    call("translate", "-i", plain[0], "-o", tmp_path / "hyp")
    columns = both or (["--columns", "xx,yy"] if name.endswith(".csv") else [])
    assert call("evaluate", "--hyp", tmp_path / "hyp", "-r", table, *columns) == expected
    outputs = [tmp_path / "a.align", tmp_path / "b.align"]
    call("attention", "-i", plain[0], "-r", plain[1], "-o", outputs[0])
    call("attention", "-i", table, "-r", table, *both, "-o", outputs[1])
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_a_table_may_have_a_single_column(call: Call, tmp_path: Path) -> None:
    """A single column is translated; in rows with more columns, only the first is."""
    path, ragged = tmp_path / "one.tsv", tmp_path / "ragged.tsv"
    path.write_text("buda ki.\n\nmore ta.\n", encoding="utf-8")
    ragged.write_text("buda ki.\tx\n\nmore ta.\n", encoding="utf-8")
    expected = call("translate", "buda ki.", "", "more ta.")
    assert call("translate", "-i", path) == call("translate", "-i", ragged) == expected
    assert call("translate", "-i", path, "--stream") == expected


ROWS = {
    "no table": (
        ("translate", "-i", "plain.src", "--columns", "1"),
        "translate --columns: no input is a table (.tsv, .csv or .jsonl)",
    ),
    "standard input": (
        ("translate", "--columns", "1"),
        "translate --columns: no input is a table (.tsv, .csv or .jsonl)",
    ),
    "two columns for one text": (
        ("translate", "-i", "two.tsv", "--columns", "1,2"),
        "translate --columns 1,2: give one column, such as english or 2",
    ),
    "one column for two texts": (
        ("score", "-i", "two.tsv", "--columns", "1"),
        "score --columns 1: give two columns, such as 2,1",
    ),
    "twice the same": (
        ("score", "-i", "two.tsv", "--columns", "2,2"),
        "score --columns 2,2: give two columns, such as 2,1",
    ),
    "zero": (
        ("score", "-i", "two.tsv", "--columns", "0,1"),
        "score --columns 0,1: give names, or numbers from 1 on",
    ),
    "a column too many": (
        ("evaluate", "-i", "two.tsv", "--columns", "1,7"),
        "two.tsv:1: the line has 2 columns, which tabs separate; column 7 is to be read",
    ),
    "no such name": (
        ("translate", "-i", "languages.csv", "--columns", "english"),
        "languages.csv:1: has no column 'english'; it has: xx, yy. Set columns",
    ),
    "no second column": (
        ("score", "-i", "plain.src", "-r", "one.tsv"),
        "one.tsv:1: the line has 1 column, which tabs separate; column 2 is to be read",
    ),
    "a document": (
        ("translate", "-i", "two.tsv", "--document"),
        "translate: --document cannot be used with a table, two.tsv",
    ),
    "no run to name the languages": (
        ("evaluate", "--hyp", "plain.tgt", "-r", "languages.csv"),
        "languages.csv: give --columns SRC,TGT, the names of two columns",
    ),
    "plain text alone": (
        ("evaluate", "-i", "plain.src"),
        "evaluate: give a reference, -r FILE, or a table with both sides as -i",
    ),
    "no such file": (("translate", "-i", "no.tsv"), "no.tsv: no such file; did you mean "),
    "another length": (
        ("attention", "-i", "two.tsv", "-r", "short.tsv"),
        "two.tsv has 25 lines but short.tsv has 3: line n of one must translate line n of",
    ),
}


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("name", ROWS)
def test_invalid_arguments_are_refused_in_one_line(
    name: str,
    tmp_path: Path,
    tiny_runs: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a run that does not exist, the error precedes loading of the model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ba\n")))
    for each in ("two.tsv", "languages.csv"):
        write(tmp_path, each)
    Path("one.tsv").write_text("buda ki.\n" * len(SRC), encoding="utf-8")
    Path("short.tsv").write_text("buda ki.\tx\n" * 3, encoding="utf-8")
    arguments, message = ROWS[name]
    run = tmp_path / "no-run" if name == "another length" else tiny_runs["luong"]
    model = [] if "--hyp" in arguments else ["-m", str(run)]
    assert main([*arguments, *model]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"seq2seq: error: {message}"), err
    assert err.count("\n") == 1
    assert re.search(r"[^.]\n$", err)


def test_a_large_table_streams(tmp_path: Path) -> None:
    """Rows are read on demand: the first lines come from a table with an error further down."""
    path = tmp_path / "a.tsv"
    path.write_bytes(b"zu\tx\n" * 400_000 + b"\xff\tx\n")
    with open_input(TextFile(path, "1")) as lines:
        assert [next(lines) for _ in range(3)] == [b"zu\n"] * 3
    path.write_bytes(b"zu\tx\n" * 3 + b"\xff\tx\n")
    with pytest.raises(UserError, match=r"a.tsv:4: byte 0xff"), open_input(TextFile(path, "1")):
        pass


def test_a_column_of_numbers_is_refused_and_a_header_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A table with identifiers first, as of Tatoeba, whose column must be chosen."""
    table = tmp_path / "sentences.tsv"
    table.write_text("id\tenglish\n1\tbuda ki.\n2\tki ba.\n", encoding="utf-8")
    assert list(TextFile(table, "2").lines()) == ["english", "buda ki.", "ki ba."]
    assert f"{table}:1: 'english' seems to be a header" in caplog.text
    table.write_text("1\tbuda ki.\n\t\n20\tki ba.\n", encoding="utf-8")
    with pytest.raises(UserError, match="column 1 has numbers or signs, such as '1', not text"):
        list(TextFile(table, "1").lines())
    caplog.clear()
    assert list(TextFile(table, "2").lines()) == ["buda ki.", "", "ki ba."]
    assert caplog.text == ""
