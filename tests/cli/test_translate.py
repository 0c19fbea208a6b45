"""Translations on the command line: lines in, lines out."""

import gzip
import json
import re
from pathlib import Path

import pytest
from cases.commands import Call, refused
from cases.tiers import one_quick

from seq2seq.inference.translator import Translator


def test_a_hyphen_is_standard_input(call: Call, luong: Path, src_file: Path) -> None:
    tgt = src_file.with_suffix(".tgt")
    source = src_file.read_bytes()
    target = tgt.read_bytes()
    model = ("-m", luong, "--device", "cpu")
    by_file_name = call("translate", *model, "-i", src_file)
    assert call("translate", *model, "-i", "-", stdin=source) == by_file_name
    by_file_name = call("score", *model, "-i", src_file, "-r", tgt)
    assert call("score", *model, "-i", src_file, "-r", "-", stdin=target) == by_file_name
    assert call("score", *model, "-i", "-", "-r", tgt, stdin=source) == by_file_name
    by_file_name = call("evaluate", "--hyp", src_file, "-r", tgt)
    assert by_file_name.code == 0
    assert call("evaluate", "--hyp", "-", "-r", tgt, stdin=source) == by_file_name
    assert call("evaluate", "--hyp", src_file, "-r", "-", stdin=target) == by_file_name
    refused(call("score", *model, "-r", "-"), "- is standard input, which can be one of the texts")
    refused(call("evaluate", "--hyp", "-", "-r", tgt, stdin=b""), "standard input: the file is emp")
    refused(
        call("evaluate", "--hyp", "-", "-r", tgt, stdin=b"a\n"), "standard input has 1 line but"
    )


UNUSUAL_LINES = [
    "buda ki.",
    "",
    "  \t ",
    "mo\u2028re ta\x0bzi\x0c\x85lu.",
    "\u3000",
    "zu",
    "नमस्ते ½ \U0001f600",
    "\ufffd ka",
]


def test_every_input_line_has_an_output_line(call: Call, tiny_run: Path) -> None:
    result = call("translate", "-m", tiny_run, stdin="\n".join(UNUSUAL_LINES).encode() + b"\n")
    assert result.code == 0
    assert result.err == ""
    assert [bool(line) for line in result.lines] == [bool(line.strip()) for line in UNUSUAL_LINES]
    assert not re.search("[\r\v\f\x85\u2028\u2029]", result.out.decode())


def test_translations_equal_those_of_the_translator(call: Call, tiny_run: Path) -> None:
    result = call("translate", "-m", tiny_run, stdin="\n".join(UNUSUAL_LINES).encode())
    translations = Translator.load(tiny_run, device="cpu").translate(UNUSUAL_LINES)
    assert result.lines == [translation.text for translation in translations]


@pytest.mark.parametrize("texts", [["buda ki."], ["zu", "- ba?", "", "नमस्ते ½"]])
def test_text_given_as_arguments_is_translated(call: Call, luong: Path, texts: list[str]) -> None:
    piped = call("translate", "-m", luong, stdin="".join(f"{text}\n" for text in texts).encode())
    assert call("translate", "-m", luong, *texts) == piped
    assert call("translate", *texts, "-m", luong) == piped
    first, *later_texts = texts
    assert call("translate", first, "-m", luong, *later_texts) == piped


def test_text_is_either_an_argument_or_input(call: Call, luong: Path, src_file: Path) -> None:
    for options in (("-i", src_file), ("--stream",)):
        result = call("translate", "-m", luong, "zu", *options)
        refused(result, "TEXT cannot be used with -i or --stream")
    refused(
        call("translate", "-m", luong, src_file),
        f"{src_file} is a file; did you mean -i {src_file}?",
    )


PLAIN = b"buda ki.\n\nmore ta.\nzu"


@pytest.mark.parametrize(
    "changed_text",
    [
        pytest.param(PLAIN + b"\n", id="final line feed"),
        pytest.param(PLAIN.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(b"\xef\xbb\xbf" + PLAIN, id="byte order mark"),
        pytest.param(b"\xef\xbb\xbf" + PLAIN.replace(b"\n", b"\r\n") + b"\r\n", id="Windows"),
    ],
)
def test_line_ends_and_a_byte_order_mark_do_not_change_translations(
    call: Call, luong: Path, changed_text: bytes
) -> None:
    plain = call("translate", "-m", luong, stdin=PLAIN)
    assert len(plain.lines) == 4
    assert call("translate", "-m", luong, stdin=changed_text) == plain


def test_files_pipes_and_gzip_give_the_same_output(
    call: Call, luong: Path, src_file: Path, tmp_path: Path
) -> None:
    piped = call("translate", "-m", luong, stdin=src_file.read_bytes())
    assert len(piped.lines) == 11
    packed = tmp_path / "in.gz"
    packed.write_bytes(gzip.compress(src_file.read_bytes()))
    for source in (src_file, packed):
        out = tmp_path / "out"
        result = call("translate", "-m", luong, "-i", source, "-o", out)
        assert result == (0, b"", "")
        assert out.read_bytes() == piped.out
    assert call("translate", "-m", luong, "-i", src_file, "-o", "-") == piped


def test_no_input_gives_no_output(call: Call, luong: Path) -> None:
    assert call("translate", "-m", luong, stdin=b"") == (0, b"", "")
    assert call("translate", "-m", luong, stdin=b"\n") == (0, b"\n", "")


def test_bytes_that_are_not_utf8_are_replaced_and_reported(call: Call, luong: Path) -> None:
    invalid = b"buda\nmo\xffre\n\xef\xbf\xbd is a character\nta \xe0\xa4\n"
    result = call("translate", "-m", luong, "--batch-size", 2, stdin=invalid)
    assert result.code == 0
    lines = "2 lines (2, 4) of standard input\n"
    assert result.err == f"note: bytes that are not UTF-8 were replaced in {lines}"
    replaced_bytes = invalid.decode("utf-8", errors="replace").encode()
    assert call("translate", "-m", luong, stdin=replaced_bytes) == (0, result.out, "")


def test_a_long_list_of_line_numbers_is_truncated(call: Call, luong: Path) -> None:
    result = call("translate", "-m", luong, "-b", 1, stdin=b"\xff\n" * 12)
    assert "12 lines (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...)" in result.err
    assert len(result.lines) == 12


def test_an_overlong_line_is_translated_in_parts_and_reported(call: Call, luong: Path) -> None:
    result = call("translate", "-m", luong, "-b", 1, stdin=b"zu\n" + b"buda. " * 30 + b"\nmo\n")
    assert len(result.lines) == 3
    assert "longer than data.max_length; translated in parts: 1 line (2)" in result.err


def test_an_overlong_word_is_truncated_and_reported(call: Call, luong: Path) -> None:
    result = call("translate", "-m", luong, "-b", "1", stdin=b"zu\n" + b"xq" * 500 + b"\nzu\n")
    assert len(result.lines) == 3
    assert "only its start was translated: 1 line (2)" in result.err


@one_quick("beam", [1, 3])
def test_output_does_not_depend_on_the_batch_size(
    call: Call, tiny_run: Path, src_file: Path, beam: int
) -> None:
    lines = src_file.read_bytes().splitlines(keepends=True)
    text = b"".join([*lines[:3], b"\n", *lines[3:8]])
    results = [
        call("translate", "-m", tiny_run, "-b", beam, "--json", "--batch-size", size, stdin=text)
        for size in (1, 7, 64)
    ]
    assert len(results[0].lines) == 9
    assert results[0] == results[1] == results[2]


def test_the_beam_size_defaults_to_that_of_the_config(
    call: Call, luong: Path, src_file: Path
) -> None:
    text = src_file.read_bytes()
    of_config, beam_of_three, beam_of_one = (
        call("translate", "-m", luong, "--json", *beam, stdin=text)
        for beam in ((), ("-b", 3), ("-b", 1))
    )
    assert of_config == beam_of_three
    assert beam_of_three.out != beam_of_one.out


def test_n_best_gives_exactly_n_lines_per_input_line(call: Call, tiny_run: Path) -> None:
    text = "\n".join(UNUSUAL_LINES).encode()
    best = call("translate", "-m", tiny_run, "-b", 4, stdin=text).lines
    result = call(
        "translate", "-m", tiny_run, "-b", 4, "--n-best", 3, "--batch-size", 3, stdin=text
    )
    assert result.code == 0
    rows = []
    for line in result.lines:
        match = re.fullmatch(r"(\d+) \|\|\| (.*) \|\|\| (-?\d+\.\d{6})", line)
        assert match, line
        rows.append((int(match[1]), match[2], float(match[3])))
    assert [index for index, _, _ in rows] == [
        i for i in range(len(UNUSUAL_LINES)) for _ in range(3)
    ]
    assert [text for _, text, _ in rows[::3]] == best
    for start in range(0, len(rows), 3):
        scores = [score for _, _, score in rows[start : start + 3]]
        assert scores == sorted(scores, reverse=True)
        if not best[start // 3]:
            assert [row[1:] for row in rows[start : start + 3]] == [("", 0.0)] * 3


def test_json_has_all_fields_of_a_translation(call: Call, tiny_run: Path) -> None:
    text = "\n".join(UNUSUAL_LINES).encode()
    plain = call("translate", "-m", tiny_run, stdin=text).lines
    result = call("translate", "-m", tiny_run, "--json", stdin=text)
    objects = [json.loads(line) for line in result.lines]
    assert [fields["text"] for fields in objects] == plain
    for line, fields in zip(UNUSUAL_LINES, objects, strict=True):
        keys = ["text", "score", "src_tokens", "tgt_tokens", "log_probs", "attention_weights"]
        assert list(fields) == keys
        assert len(fields["log_probs"]) == len(fields["tgt_tokens"])
        if not line.strip():
            assert fields["src_tokens"] == fields["tgt_tokens"] == []
            continue
        assert fields["src_tokens"][-1] == fields["tgt_tokens"][-1] == "</s>"
        assert fields["score"] < 0
        if tiny_run.name.startswith("none"):
            assert fields["attention_weights"] is None
            continue
        assert len(fields["attention_weights"]) == len(fields["tgt_tokens"])
        for row in fields["attention_weights"]:
            assert len(row) == len(fields["src_tokens"])
            assert sum(row) == pytest.approx(1, abs=1e-4)


def test_json_has_n_best_lists_on_request(call: Call, luong: Path) -> None:
    result = call("translate", "-m", luong, "--json", "--n-best", 2, stdin=b"buda\n\n")
    for translation in map(json.loads, result.lines):
        assert len(translation["n_best"]) == 2
        assert translation["n_best"][0] == {
            "text": translation["text"],
            "score": translation["score"],
            "tokens": translation["tgt_tokens"],
            "log_probs": translation["log_probs"],
        }


@one_quick("beam", [1, 3])
def test_translations_start_with_the_given_prefix(
    call: Call, tiny_run: Path, tmp_path: Path, beam: int
) -> None:
    """Prefixes are per line or for all lines, whatever the batch, and never for blank lines."""
    text = ("\n".join(UNUSUAL_LINES) + "\n").encode()
    blank = [n for n, line in enumerate(UNUSUAL_LINES, start=1) if not line.strip()]
    note = f"note: blank lines stay blank, without their prefix: {len(blank)} lines (2, 3, 5)\n"
    command = ("translate", "-m", tiny_run, "-b", beam)
    for_all = call(*command, "--prefix", "Ba ke\u0301l", stdin=text)
    assert (for_all.code, for_all.err) == (0, note)
    for number, line in enumerate(for_all.lines, start=1):
        assert line == "" if number in blank else line.startswith("Ba k\u00e9l")
    prefixes = ["Zu", "ta ", "", "", "", "ka", "x日", "mo, "]
    file = tmp_path / "prefixes"
    file.write_bytes("\r\n".join([*prefixes, ""]).encode())
    in_file, as_option = (
        call(*command, "--prefix-file", file, "--json", "--batch-size", size, stdin=text)
        for size in (3, 1)
    )
    assert in_file == as_option
    assert in_file.err == "note: blank lines stay blank, without their prefix: 1 line (2)\n"
    unconstrained = call(*command, "--json", stdin=text).lines
    for number, (line, prefix) in enumerate(zip(in_file.lines, prefixes, strict=True), start=1):
        fields = json.loads(line)
        if number in blank or not prefix:
            assert line == unconstrained[number - 1]
            continue
        assert f"{fields['text']} ".startswith(prefix)
        weights = fields["attention_weights"]
        assert weights is None or len(weights) == len(fields["tgt_tokens"])


def test_an_invalid_prefix_is_refused_before_the_model_is_loaded(
    call: Call, src_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prefixes"
    nowhere = tmp_path / "nowhere"
    file.write_text("ba\n" * 10, encoding="utf-8")
    command = ("translate", "-m", nowhere, "--prefix-file", file)
    parts = (f"{file} has 10 lines but", "has 11: line n must", "blank for none")
    refused(call(*command, "-i", src_file), src_file, *parts)
    refused(call(*command, stdin=src_file.read_bytes()), "standard input", *parts)
    refused(call(*command, "--stream"), "cannot be used with --stream", "use --prefix")
    refused(call(*command, "--prefix", "ba"), "--prefix: not allowed with argument --prefix-file")
    refused(call(*command, "-i", src_file, "-o", file), "is already read or written")
    refused(call(*command[:-1], tmp_path / "prefixs"), "did you mean")
    refused(call("translate", "-m", nowhere, "--prefix", "a\udcff"), "--prefix: is not UTF-8")
    file.write_text("ba\n" * 10 + "a" * 2001, encoding="utf-8")
    refused(
        call(*command, "-i", src_file), "prefix 11: too long (2,001 characters); use at most 2,000"
    )


def test_a_stream_may_have_a_prefix(call: Call, luong: Path) -> None:
    result = call("translate", "-m", luong, "--stream", "--prefix", "Ba ", stdin=b"zu\n\nta\n")
    assert [line[:2] for line in result.lines] == ["Ba", "", "Ba"]
    assert result.err == "note: blank lines stay blank, without their prefix: 1 line (2)\n"


def test_an_ensemble_of_a_model_with_itself_equals_the_model(
    call: Call, luong: Path, src_file: Path
) -> None:
    single = call("translate", "-m", luong, "-i", src_file)
    assert call("translate", "-m", luong, "-m", luong, "-i", src_file) == single
