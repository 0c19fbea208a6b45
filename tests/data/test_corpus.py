"""Parallel text: definition of a line, rejected files, and the line where two sides diverge."""

import gzip
import subprocess
import tracemalloc
from pathlib import Path

import pytest
from cases.toy_text import toy_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config.schema import ParallelFiles
from seq2seq.data.corpus import (
    MIN_DISTINCT_WORDS,
    ParallelText,
    check_directions,
    read_pairs,
    same_sides,
    trained_on,
    usable,
)
from seq2seq.runtime.errors import UserError
from seq2seq.text import text_files
from seq2seq.text.text_files import read_lines


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_lines(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


# -------------------------------------------------------------------------------------------- lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("a\n\nb\n\n", ["a", "", "b", ""]),
        ("\n", [""]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\r\r\nb\rc\n", ["a\r", "b\rc"]),
        ("a\x0cb\x0bc\nd\u2028e\u2029f\x85g\x1ch\n", ["a\x0cb\x0bc", "d\u2028e\u2029f\x85g\x1ch"]),
        ("\ufeffa\n\ufeffb\n", ["a", "\ufeffb"]),
        (" a \t\n", [" a \t"]),
        ("e\u0301\n", ["e\u0301"]),
    ],
)
def test_only_a_line_feed_ends_a_line(tmp_path: Path, content: str, lines: list[str]) -> None:
    assert read_lines(write(tmp_path / "text", content)) == lines
    assert read_lines(write(tmp_path / "text.gz", gzip.compress(content.encode()))) == lines


sentences = st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=9)


@settings(deadline=None)
@given(lines=st.lists(sentences, min_size=1), carriage_return=st.sampled_from(["", "\r"]))
def test_lines_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], carriage_return: str
) -> None:
    content = "\ufeff" + "".join(f"{line}{carriage_return}\n" for line in lines)
    path = write(tmp_path_factory.getbasetemp() / "lines", content)
    expected = lines if carriage_return else [line.removesuffix("\r") for line in lines]
    assert read_lines(path) == expected


def test_lines_do_not_depend_on_how_many_bytes_are_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "\ufeffa\r\n\n" + "\ufeffb\u2028c\n" * 3 + "\r\n" * 5 + "e"
    path = write(tmp_path / "text", content)
    undecodable = write(tmp_path / "undecodable", content.encode() + "ü".encode() + b"\xff\n")
    nul = write(tmp_path / "nul", content + "\n\0\n")
    results = []
    for size in (1, 7, 1 << 20):
        monkeypatch.setattr(text_files, "_BLOCK_BYTES", size)
        results.append((read_lines(path), refusal(undecodable), refusal(nul)))
    assert results[0] == results[1] == results[2]
    assert results[0][1].startswith(f"{undecodable}:11: byte 0xff at column 3 is not UTF-8. ")
    assert results[0][2].startswith(f"{nul}:12: contains a NUL character; ")


# ---------------------------------------------------------------------------------- rejected files


def test_a_missing_file_is_reported_with_a_similar_name(tmp_path: Path) -> None:
    write(tmp_path / "train.en.gz", "x")
    path = tmp_path / "train.en"
    assert refusal(path) == f"{path}: no such file; did you mean '{path}.gz'?"


def test_a_missing_file_without_a_similar_name_or_folder_is_reported(tmp_path: Path) -> None:
    assert refusal(tmp_path / "a") == f"{tmp_path / 'a'}: no such file"
    folder = tmp_path / "no"
    assert (
        refusal(folder / "a") == f"{folder / 'a'}: no such file; the folder {folder} does not exist"
    )


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: is a folder. Give a text file."


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_an_empty_file_is_refused(tmp_path: Path, content: bytes) -> None:
    for path in (
        write(tmp_path / "text", content),
        write(tmp_path / "text.gz", gzip.compress(content)),
    ):
        assert refusal(path) == f"{path}: the file is empty. It needs one sentence per line."


def test_bytes_that_are_not_utf8_are_reported_by_line_and_column(tmp_path: Path) -> None:
    path = write(tmp_path / "text", "eins\nzwei\nein süßes ".encode() + b"Caf\xe9\nvier\n")
    assert refusal(path).startswith(f"{path}:3: byte 0xe9 at column 14 is not UTF-8. ")


@pytest.mark.parametrize("end", [b"\xe2\x82", b"\xc0\xaf", b"\xed\xa0\x80", b"\xff"])
def test_decoding_is_strict(tmp_path: Path, end: bytes) -> None:
    assert ":2: byte 0x" in refusal(write(tmp_path / "text", b"a\n" + end))


def test_a_nul_is_refused_by_line(tmp_path: Path) -> None:
    path = write(tmp_path / "text", "a\nb\nc\0d\n")
    assert refusal(path).startswith(f"{path}:3: contains a NUL character; ")


def test_a_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(b"a long line\n" * 99)
    assert "truncated" in refusal(write(tmp_path / "text.gz", data[:-9]))


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(b"a long line\n" * 99))
    data[-8] ^= 1  # checksum
    assert "damaged" in refusal(write(tmp_path / "text.gz", bytes(data)))


# --------------------------------------------------------------------------------------- two sides


def test_the_three_ways_to_give_pairs_agree(tmp_path: Path) -> None:
    src = write(tmp_path / "a.en", "one\n\nthree\n")
    tgt = write(tmp_path / "a.de", "eins\nzwei\ndrei\r\n")
    tsv = write(tmp_path / "a.tsv", "one\teins\n\tzwei\tCC-BY\tx\nthree\tdrei\n")
    two_files = read_pairs(ParallelFiles(src=src, tgt=tgt))
    one_file = read_pairs(ParallelFiles(file=tsv))
    assert (two_files.src, two_files.tgt) == (["one", "", "three"], ["eins", "zwei", "drei"])
    assert (one_file.src, one_file.tgt) == (two_files.src, two_files.tgt)
    assert len(one_file) == 3


def test_quotes_have_no_meaning_in_a_tsv(tmp_path: Path) -> None:
    text = read_pairs(ParallelFiles(file=write(tmp_path / "a.tsv", '"a\t"b\nc"\td"\n')))
    assert (text.src, text.tgt) == (['"a', 'c"'], ['"b', 'd"'])


def test_a_line_without_a_tab_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tb\nc d\n")
    with pytest.raises(UserError) as caught:
        read_pairs(ParallelFiles(file=path))
    assert str(caught.value).startswith(f"{path}:2: the line has 1 column, which tabs separate; ")


def test_blank_pairs_are_skipped_and_counted() -> None:
    text = ParallelText(["a", "", "c", " \t", "e", "\u3000"], ["A", "B", "\xa0\r", " ", "E", "F"])
    usable_pairs, skipped = usable(text)
    assert (usable_pairs.src, usable_pairs.tgt, skipped) == (["a", "e"], ["A", "E"], 4)
    assert usable(usable_pairs) == (usable_pairs, 0)


def test_only_swapped_sides_are_refused() -> None:
    train = ParallelText(*toy_pairs(200, seed=1), "the training files")
    src, tgt = toy_pairs(15, seed=2)
    check_directions(train, [ParallelText(src, tgt)], "xx")
    same = ParallelText(src, src)  # wrong too, but not swapped
    check_directions(train, [same], "xx")
    check_directions(ParallelText(train.src, train.src), [ParallelText(tgt, src)], "xx")
    check_directions(train, [ParallelText(["new"] * 40, ["words"] * 40)], "xx")
    few_words = [" ".join(tgt).split()[n] for n in range(MIN_DISTINCT_WORDS - 1)]
    check_directions(train, [ParallelText(few_words, src)], "xx")
    for other_texts in (
        [],
        [ParallelText(src, tgt, "valid")],
        [ParallelText(few_words, src, "valid")],
    ):
        with pytest.raises(UserError) as caught:
            check_directions(train, [*other_texts, ParallelText(tgt, src, "it")], "xx")
        message = str(caught.value)
        assert message.startswith(
            "it: source and target seem to be swapped relative to the training files: "
        )
        assert message.endswith("Swap the sides of one of the two: the source language is xx.")


def test_identical_text_on_both_sides_is_reported() -> None:
    assert same_sides(ParallelText(["a", "b", "c"], ["a", "B", "C"])) is None
    message = same_sides(ParallelText(["a", "b"], ["a", "B"], "a.en and a.de"))
    assert message is not None
    assert "identical in 1 of 2 pairs of a.en and a.de" in message


def test_validation_by_the_training_text_is_noted() -> None:
    train = ParallelText(["a", "b", "c"], ["A", "B", "C"], "t")
    for rows, place in (
        (slice(0, 3), "is the training text:"),
        (slice(0, 2), "is the first 2 pairs of the training text:"),
        (slice(2, 3), "is the last 1 pair of the training text:"),
    ):
        note = trained_on(train, ParallelText(train.src[rows], train.tgt[rows], "v"))
        assert note is not None
        assert note.startswith(f"warning: data.valid (v) {place}")
    for valid in (
        ParallelText(["a", "c"], ["A", "C"]),
        ParallelText(["b", "c"], ["B", "D"]),
        ParallelText(["a", "b", "c", "d"], ["A", "B", "C", "D"]),
    ):
        assert trained_on(train, valid) is None


def test_text_with_no_usable_pair_is_refused(tmp_path: Path) -> None:
    src = write(tmp_path / "a.en", "one\n\n")
    tgt = write(tmp_path / "a.de", "\nzwei\n")
    with pytest.raises(UserError) as caught:
        usable(read_pairs(ParallelFiles(src=src, tgt=tgt)))
    assert str(caught.value).startswith(f"{src} and {tgt}: none of the 2 pairs has text on both ")


# -------------------------------------------------------------------------- sides of unequal length


def test_sides_of_unequal_length_are_refused(tmp_path: Path) -> None:
    src = write(tmp_path / "a.src", "a\nb\nc\n")
    tgt = write(tmp_path / "a.tgt", "A\n")
    rule = "line n of one must translate line n of the other"
    for paths, counts in ((src, tgt), ("3 lines", "1")), ((tgt, src), ("1 line", "3")):
        with pytest.raises(UserError) as caught:
            read_pairs(ParallelFiles(src=paths[0], tgt=paths[1]))
        assert str(caught.value) == (
            f"{paths[0]} has {counts[0]} but {paths[1]} has {counts[1]}: {rule}"
        )


def test_a_text_with_cr_line_ends_is_refused_with_the_command_that_converts_it(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "a.txt", "a\rb\rc\r")
    command = refusal(path).partition("Convert with: ")[2]
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert read_lines(tmp_path / "NEW_FILE") == ["a", "b", "c"]


@pytest.mark.parametrize(
    "content", [b"a\r\nb\r\n", b"a\r", b"a\rb\nc\n", b"a\r\r\nb\r\r\n", b"a\n\rb\n\r"]
)
def test_isolated_carriage_returns_are_not_line_ends(tmp_path: Path, content: bytes) -> None:
    assert len(read_lines(write(tmp_path / "text", content))) >= 1


def test_a_file_of_cr_line_ends_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a line of some length\r" * 2_000_000)  # 44 MB
    tracemalloc.start()
    refusal(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
