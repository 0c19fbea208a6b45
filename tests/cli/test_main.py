"""The command line: input, output and exit codes; test_mistakes.py tests the error messages."""

import gzip
import importlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
import yaml
from cases.environment import project_environment
from cases.tiers import one_quick
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from seq2seq.__main__ import main
from seq2seq.cli.arguments import frozen_objects
from seq2seq.config.schema import Config
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import RunError

ROOT = Path(__file__).resolve().parents[2]


class Result(NamedTuple):
    """Output and exit code of a call."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """Return the lines of stdout, each of which ends in a line feed."""
        *lines, rest = self.out.decode().split("\n")
        assert rest == ""
        return lines


Call = Callable[..., Result]
Training = tuple[Config, str, bool, bool, Path | None]
"""The arguments of `train`."""


def exit_code(run: Callable[[], object]) -> int:
    try:
        code = run()
    except SystemExit as stop:
        code = stop.code
    assert isinstance(code, int)
    return code


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run the command in this process."""

    def run(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="ascii"))
        capsysbinary.readouterr()
        code = exit_code(lambda: main([str(argument) for argument in arguments]))
        out, err = capsysbinary.readouterr()
        return Result(code, out, err.decode())

    return run


@pytest.fixture
def luong(tiny_runs: dict[str, Path]) -> Path:
    return tiny_runs["luong"]


@pytest.fixture
def src(small_corpus: Path) -> Path:
    """Return the path of eleven lines of source text."""
    return small_corpus.parent / "test.src"


def test_a_hyphen_is_standard_input(call: Call, luong: Path, src: Path) -> None:
    tgt = src.with_suffix(".tgt")
    source, target = src.read_bytes(), tgt.read_bytes()
    model = ("-m", luong, "--device", "cpu")
    named = call("translate", *model, "-i", src)
    assert call("translate", *model, "-i", "-", stdin=source) == named
    named = call("score", *model, "-i", src, "-r", tgt)
    assert call("score", *model, "-i", src, "-r", "-", stdin=target) == named
    assert call("score", *model, "-i", "-", "-r", tgt, stdin=source) == named
    named = call("evaluate", "--hyp", src, "-r", tgt)
    assert named.code == 0
    assert call("evaluate", "--hyp", "-", "-r", tgt, stdin=source) == named
    assert call("evaluate", "--hyp", src, "-r", "-", stdin=target) == named
    refused(call("score", *model, "-r", "-"), "- is standard input, which can be one of the texts")
    refused(call("evaluate", "--hyp", "-", "-r", tgt, stdin=b""), "standard input: the file is emp")
    refused(
        call("evaluate", "--hyp", "-", "-r", tgt, stdin=b"a\n"), "standard input has 1 line but"
    )


def refused(result: Result, *parts: object) -> None:
    """Check for exit code 2 and a one-line message."""
    assert result.code == 2, result.err
    assert result.out == b""
    assert result.err.startswith("seq2seq: error: ")
    assert result.err.count("\n") == 1
    for part in parts:
        assert str(part) in result.err


# ------------------------------------------------------------------------------ lines in, lines out

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
    first, *others = texts
    assert call("translate", first, "-m", luong, *others) == piped


def test_text_is_either_an_argument_or_input(call: Call, luong: Path, src: Path) -> None:
    for options in (("-i", src), ("--stream",)):
        result = call("translate", "-m", luong, "zu", *options)
        refused(result, "TEXT cannot be used with -i or --stream")
    refused(call("translate", "-m", luong, src), f"{src} is a file; did you mean -i {src}?")


PLAIN = b"buda ki.\n\nmore ta.\nzu"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(PLAIN + b"\n", id="final line feed"),
        pytest.param(PLAIN.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(b"\xef\xbb\xbf" + PLAIN, id="byte order mark"),
        pytest.param(b"\xef\xbb\xbf" + PLAIN.replace(b"\n", b"\r\n") + b"\r\n", id="Windows"),
    ],
)
def test_line_ends_and_a_byte_order_mark_do_not_change_translations(
    call: Call, luong: Path, other: bytes
) -> None:
    plain = call("translate", "-m", luong, stdin=PLAIN)
    assert len(plain.lines) == 4
    assert call("translate", "-m", luong, stdin=other) == plain


def test_files_pipes_and_gzip_give_the_same_output(
    call: Call, luong: Path, src: Path, tmp_path: Path
) -> None:
    piped = call("translate", "-m", luong, stdin=src.read_bytes())
    assert len(piped.lines) == 11
    packed = tmp_path / "in.gz"
    packed.write_bytes(gzip.compress(src.read_bytes()))
    for source in (src, packed):
        out = tmp_path / "out"
        result = call("translate", "-m", luong, "-i", source, "-o", out)
        assert result == (0, b"", "")
        assert out.read_bytes() == piped.out
    assert call("translate", "-m", luong, "-i", src, "-o", "-") == piped


def test_no_input_gives_no_output(call: Call, luong: Path) -> None:
    assert call("translate", "-m", luong, stdin=b"") == (0, b"", "")
    assert call("translate", "-m", luong, stdin=b"\n") == (0, b"\n", "")


def test_bytes_that_are_not_utf8_are_replaced_and_reported(call: Call, luong: Path) -> None:
    invalid = b"buda\nmo\xffre\n\xef\xbf\xbd is a character\nta \xe0\xa4\n"
    result = call("translate", "-m", luong, "--batch-size", 2, stdin=invalid)
    assert result.code == 0
    lines = "2 lines (2, 4) of standard input\n"
    assert result.err == f"note: bytes that are not UTF-8 were replaced in {lines}"
    repaired = invalid.decode("utf-8", errors="replace").encode()
    assert call("translate", "-m", luong, stdin=repaired) == (0, result.out, "")


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
    call: Call, tiny_run: Path, src: Path, beam: int
) -> None:
    lines = src.read_bytes().splitlines(keepends=True)
    text = b"".join([*lines[:3], b"\n", *lines[3:8]])
    found = [
        call("translate", "-m", tiny_run, "-b", beam, "--json", "--batch-size", size, stdin=text)
        for size in (1, 7, 64)
    ]
    assert len(found[0].lines) == 9
    assert found[0] == found[1] == found[2]


def test_the_beam_size_defaults_to_that_of_the_config(call: Call, luong: Path, src: Path) -> None:
    text = src.read_bytes()
    of_config, three, one = (
        call("translate", "-m", luong, "--json", *beam, stdin=text)
        for beam in ((), ("-b", 3), ("-b", 1))
    )
    assert of_config == three
    assert three.out != one.out


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
    assert [each["text"] for each in objects] == plain
    for line, each in zip(UNUSUAL_LINES, objects, strict=True):
        keys = ["text", "score", "src_tokens", "tgt_tokens", "log_probs", "attention_weights"]
        assert list(each) == keys
        assert len(each["log_probs"]) == len(each["tgt_tokens"])
        if not line.strip():
            assert each["src_tokens"] == each["tgt_tokens"] == []
            continue
        assert each["src_tokens"][-1] == each["tgt_tokens"][-1] == "</s>"
        assert each["score"] < 0
        if tiny_run.name.startswith("none"):
            assert each["attention_weights"] is None
            continue
        assert len(each["attention_weights"]) == len(each["tgt_tokens"])
        for row in each["attention_weights"]:
            assert len(row) == len(each["src_tokens"])
            assert sum(row) == pytest.approx(1, abs=1e-4)


def test_json_has_n_best_lists_on_request(call: Call, luong: Path) -> None:
    result = call("translate", "-m", luong, "--json", "--n-best", 2, stdin=b"buda\n\n")
    for each in map(json.loads, result.lines):
        assert len(each["n_best"]) == 2
        assert each["n_best"][0] == {
            "text": each["text"],
            "score": each["score"],
            "tokens": each["tgt_tokens"],
            "log_probs": each["log_probs"],
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
    some, one = (
        call(*command, "--prefix-file", file, "--json", "--batch-size", size, stdin=text)
        for size in (3, 1)
    )
    assert some == one
    assert some.err == "note: blank lines stay blank, without their prefix: 1 line (2)\n"
    free = call(*command, "--json", stdin=text).lines
    for number, (line, prefix) in enumerate(zip(some.lines, prefixes, strict=True), start=1):
        found = json.loads(line)
        if number in blank or not prefix:
            assert line == free[number - 1]
            continue
        assert f"{found['text']} ".startswith(prefix)
        weights = found["attention_weights"]
        assert weights is None or len(weights) == len(found["tgt_tokens"])


def test_an_invalid_prefix_is_refused_before_the_model_is_loaded(
    call: Call, src: Path, tmp_path: Path
) -> None:
    file, nowhere = tmp_path / "prefixes", tmp_path / "nowhere"
    file.write_text("ba\n" * 10, encoding="utf-8")
    command = ("translate", "-m", nowhere, "--prefix-file", file)
    parts = (f"{file} has 10 lines but", "has 11: line n must", "blank for none")
    refused(call(*command, "-i", src), src, *parts)
    refused(call(*command, stdin=src.read_bytes()), "standard input", *parts)
    refused(call(*command, "--stream"), "cannot be used with --stream", "use --prefix")
    refused(call(*command, "--prefix", "ba"), "--prefix: not allowed with argument --prefix-file")
    refused(call(*command, "-i", src, "-o", file), "is already read or written")
    refused(call(*command[:-1], tmp_path / "prefixs"), "did you mean")
    refused(call("translate", "-m", nowhere, "--prefix", "a\udcff"), "--prefix: is not UTF-8")
    file.write_text("ba\n" * 10 + "a" * 2001, encoding="utf-8")
    refused(call(*command, "-i", src), "prefix 11: too long (2,001 characters); use at most 2,000")


def test_a_stream_may_have_a_prefix(call: Call, luong: Path) -> None:
    result = call("translate", "-m", luong, "--stream", "--prefix", "Ba ", stdin=b"zu\n\nta\n")
    assert [line[:2] for line in result.lines] == ["Ba", "", "Ba"]
    assert result.err == "note: blank lines stay blank, without their prefix: 1 line (2)\n"


def test_an_ensemble_of_a_model_with_itself_equals_the_model(
    call: Call, luong: Path, src: Path
) -> None:
    one = call("translate", "-m", luong, "-i", src)
    assert call("translate", "-m", luong, "-m", luong, "-i", src) == one


# ------------------------------------------------------------------------------------- output files


def test_a_failure_keeps_finished_translations_beside_the_output(
    call: Call, luong: Path, src: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, out = Translator.stream, tmp_path / "out"
    kept = f"{out}.incomplete: the translations of the first 4 lines\n"
    out.write_text("what was there", encoding="utf-8")
    before = sorted(path.name for path in tmp_path.iterdir())
    for error, code, words in (
        (RunError("the roof is on fire"), 1, "seq2seq: error: the roof is on fire\n"),
        (KeyboardInterrupt(), 130, "seq2seq: error: interrupted\n"),
        (OSError(28, "No space left on device", "disk"), 1, "seq2seq: error: disk: No space left"),
        (
            RuntimeError("can't allocate memory"),
            1,
            "seq2seq: error: out of memory; translate with a smaller -b or --batch-size",
        ),
    ):
        calls: list[int] = []

        def fail_later(
            self: Translator,
            lines: Sequence[str],
            *arguments: Any,
            error: BaseException = error,
            calls: list[int] = calls,
            **options: Any,
        ) -> object:
            calls.append(len(lines))
            if len(calls) == 2:
                raise error
            return stream(self, lines, *arguments, **options)

        monkeypatch.setattr(Translator, "stream", fail_later)
        command = ("translate", "-m", luong, "-i", src, "-b", 1, "--batch-size", 4)
        result = call(*command, "-o", out)
        assert (result.code, result.out) == (code, b"")
        assert result.err.startswith(kept + words)
        assert result.err.count("\n") == 2
        out.with_name("out.incomplete").unlink()
        assert out.read_text(encoding="utf-8") == "what was there"
        assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_an_output_pipe_is_written_to_and_not_replaced(
    call: Call, luong: Path, src: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"  # like /dev/stdout or /dev/null
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        result = call("translate", "-m", luong, "-i", src, "-o", pipe)
        assert result.code == 0
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert os.read(reader, 1 << 16).count(b"\n") == 11
    finally:
        os.close(reader)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux has such links")
def test_output_may_be_a_link_to_a_pipe_like_dev_stdout(
    call: Call, luong: Path, src: Path, tmp_path: Path
) -> None:
    """The link target is `pipe:[1234]`, which does not exist as a file."""
    reader, writer = os.pipe()
    (tmp_path / "stdout").symlink_to(f"/proc/self/fd/{writer}")
    result = call("translate", "-m", luong, "-i", src, "-o", tmp_path / "stdout", "-b", 1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read().count(b"\n") == 11
    assert result.code == 0


@pytest.mark.parametrize("damage", ["cut off", "no gzip"])
def test_a_damaged_gzip_input_is_reported(
    call: Call, luong: Path, src: Path, tmp_path: Path, damage: str
) -> None:
    packed = tmp_path / "in.gz"
    packed.write_bytes(gzip.compress(src.read_bytes())[:-20] if damage == "cut off" else b"zu\n")
    result = call("translate", "-m", luong, "-i", packed, "-o", tmp_path / "out")
    assert result.code == (1 if damage == "cut off" else 2)
    assert result.err.startswith(f"seq2seq: error: {packed}: ")
    assert result.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_utf_16_is_reported(call: Call, luong: Path, tmp_path: Path) -> None:
    text = tmp_path / "in"
    text.write_bytes("buda ki.\nzu\n".encode("utf-16-le"))
    result = call("translate", "-m", luong, "-i", text)
    assert (result.code, len(result.lines)) == (0, 3)
    lines = f"3 lines (1, 2, 3) of {text}\n"
    assert result.err == f"note: NUL characters (is the text UTF-16? Save it as UTF-8) in {lines}"


def test_the_file_behind_stdin_is_not_replaced(luong: Path, tmp_path: Path) -> None:
    text = tmp_path / "in"
    text.write_text("buda ki.\n", encoding="utf-8")
    command = [sys.executable, "-m", "seq2seq", "translate", "-m", str(luong), "-o", str(text)]
    with text.open("rb") as stdin:
        ended = subprocess.run(
            command, stdin=stdin, capture_output=True, text=True, check=False, cwd=ROOT
        )
    assert ended.returncode == 2
    assert f"{text}: is already read or written by this command" in ended.stderr
    assert text.read_text(encoding="utf-8") == "buda ki.\n"


@pytest.mark.parametrize("name", ["loop", "into/nowhere"])
def test_a_broken_link_is_refused_as_output(
    call: Call, luong: Path, src: Path, tmp_path: Path, name: str
) -> None:
    link = tmp_path / "loop"
    link.symlink_to(name)
    result = call("translate", "-m", luong, "-i", src, "-o", link)
    refused(result, link, "is a broken link; remove it")


# ----------------------------------------------------------------------------------- closed streams


def with_closed(name: str, *arguments: object) -> int:
    """Run the command with a closed stream, then close the stream that replaced it."""
    code = main([str(argument) for argument in arguments])
    getattr(sys, name).close()
    return code


def test_without_stderr_notes_are_dropped_and_not_mixed_with_translations(
    luong: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a stderr, Python prints messages for stderr on stdout."""
    src = tmp_path / "invalid"
    src.write_bytes(b"buda ki.\n\xff zu\nmo\n")
    monkeypatch.setattr(sys, "stderr", None)
    assert with_closed("stderr", "translate", "-m", luong, "-i", src, "-b", "1") == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 3
    assert "note" not in out


@pytest.mark.parametrize(("name", "option"), [("stdin", "-i FILE"), ("stdout", "-o FILE")])
def test_a_closed_stdin_or_stdout_is_reported(
    luong: Path,
    src: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    option: str,
) -> None:
    more = ["-i", src] if name == "stdout" else []
    with monkeypatch.context() as patch:
        patch.setattr(sys, name, None)
        assert with_closed(name, "translate", "-m", luong, "-b", "1", *more) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("seq2seq: error: standard ")
    assert line.endswith(f"is closed; give a file, {option}")


class BrokenStream(io.StringIO):
    """Stream for stderr whose reader has exited."""

    def write(self, _: str) -> int:
        raise OSError(5, "Input/output error")


def test_no_translation_is_lost_if_stderr_is_broken(
    luong: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    src = tmp_path / "invalid"
    src.write_bytes(b"\xff zu\nmo\n")
    monkeypatch.setattr(sys, "stderr", BrokenStream())
    assert main(["translate", "-m", str(luong), "-i", str(src), "-b", "1", "--stream"]) == 0
    assert capsys.readouterr().out.count("\n") == 2


# ----------------------------------------------------------------------------------------- evaluate


@pytest.fixture
def texts(src: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Return a partially correct hypothesis for each line of `src`, and the references."""
    hyp, ref = tmp_path / "hyp", src.with_suffix(".tgt")
    lines = [
        f"{line} {line[:2]} u" if i % 3 else line.replace("a", "o").title()
        for i, line in enumerate(lines_of(ref))
    ]
    hyp.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return hyp, ref


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def sacrebleu_scores(hyp: Path, *refs: Path) -> list[float]:
    """Compute the scores with sacrebleu alone."""
    references = [lines_of(ref) for ref in refs]
    metrics = (BLEU(), CHRF(), TER(case_sensitive=True))
    return [metric.corpus_score(lines_of(hyp), references).score for metric in metrics]


def table_scores(result: Result) -> list[str]:
    """Return the scores of the first three rows below the header."""
    assert result.code == 0, result.err
    rows = [line.split() for line in result.lines[1:4]]
    assert [row[0] for row in rows] == ["BLEU", "chrF2", "TER"]
    return [row[1] for row in rows]


def test_a_run_is_scored_as_sacrebleu_scores_its_output(
    call: Call, luong: Path, src: Path, tmp_path: Path
) -> None:
    ref, kept = src.with_suffix(".tgt"), tmp_path / "kept"
    result = call("evaluate", "-m", luong, "-i", src, "-r", ref, "-o", kept)
    assert kept.read_bytes() == call("translate", "-m", luong, "-i", src).out
    scores = sacrebleu_scores(kept, ref)
    assert table_scores(result) == [f"{score:.1f}" for score in scores]
    assert "nrefs:1|" in result.out.decode()
    assert call("evaluate", "--hyp", kept, "-r", ref) == result


def test_references_not_in_nfc_are_noted_and_scored_unchanged(
    call: Call, luong: Path, tmp_path: Path
) -> None:
    src, ref, hyp = (tmp_path / name for name in ("a.src", "a.ref", "a.hyp"))
    src.write_text("zu ba ki.\n" * 3, encoding="utf-8")
    call("translate", "-m", luong, "-i", src, "-o", hyp)
    (words, *_) = lines_of(hyp)
    ref.write_text(f"{words}\n{words} e\u0301\n\u0958 {words}\n", encoding="utf-8")
    result = call("evaluate", "-m", luong, "-i", src, "-r", ref, "--json", "-")
    assert f"note: {ref}: 2 of 3 lines are not in Unicode's NFC" in result.err
    by_hand = sacrebleu_scores(hyp, ref)[0]
    assert json.loads(result.out)["bleu"]["score"] == pytest.approx(by_hand)
    ref.write_text(f"{words}\n" * 3, encoding="utf-8")
    assert "NFC" not in call("evaluate", "-m", luong, "-i", src, "-r", ref).err
    assert "NFC" not in call("evaluate", "--hyp", hyp, "-r", ref).err
    hyp.write_text("ba \u00e9 ka mo zu\n" * 3, encoding="utf-8")
    ref.write_text("ba e\u0301 ka mo zu\n" * 3, encoding="utf-8")  # renders identically
    result = call("evaluate", "--hyp", hyp, "-r", ref, "--json", "-")
    score = json.loads(result.out)["bleu"]["score"]
    assert score == pytest.approx(sacrebleu_scores(hyp, ref)[0])
    assert score < 50


def enlarge(*files: Path) -> None:
    """Repeat the lines of files to get enough for intervals and p-values."""
    for file in files:
        file.write_bytes(file.read_bytes() * 3)


def test_scores_are_written_as_json(call: Call, texts: tuple[Path, Path], tmp_path: Path) -> None:
    hyp, ref = texts
    few = call("evaluate", "--hyp", hyp, "--hyp", ref, "-r", ref, "--json", tmp_path / "few")
    assert "note: no intervals and p-values for fewer than 20 lines (here: 11)" in few.err
    assert few.lines[1].split()[2] == "-"
    for system in json.loads((tmp_path / "few").read_bytes())["systems"]:
        assert (system["bleu"]["p_value"], system["bleu"]["ci"]) == (None, None)
    enlarge(hyp, ref)
    scores = sacrebleu_scores(hyp, ref)
    assert 5 < scores[0] < 95
    printed = call("evaluate", "--hyp", hyp, "-r", ref, "--json", "-")
    tree = json.loads(printed.out)
    assert list(tree) == ["bleu", "chrf", "ter"]
    assert [each["score"] for each in tree.values()] == pytest.approx(scores)
    for each in tree.values():
        low, high = each["ci"]
        assert low < high
        assert "version:" in each["signature"]
    result = call("evaluate", "--hyp", hyp, "-r", ref, "--json", tmp_path / "scores.json")
    assert json.loads((tmp_path / "scores.json").read_text(encoding="utf-8")) == tree
    assert table_scores(result) == [f"{each['score']:.1f}" for each in tree.values()]


def test_outputs_are_compared_with_the_first_by_their_names(
    call: Call, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    hyp, ref = texts
    enlarge(hyp, ref)
    better, best = tmp_path / "better", tmp_path / "best"

    def write(path: Path, right: int) -> None:
        lines = [*lines_of(ref)[:right], *lines_of(hyp)[right:]]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")

    write(better, 28)
    write(best, 33)
    names = [hyp, better, best]
    options = [word for name in names for word in ("--hyp", name)]
    result = call("evaluate", *options, "-r", ref, "--json", tmp_path / "json")
    assert result.code == 0, result.err
    wanted = [sacrebleu_scores(path, ref) for path in names]
    for place, metric in enumerate(("BLEU", "chrF2", "TER")):
        start = next(n for n, line in enumerate(result.lines) if line.startswith(f"{metric} "))
        rows = [line.split() for line in result.lines[start + 1 : start + 4]]
        assert [row[0] for row in rows] == [str(name) for name in names]
        assert [row[1] for row in rows] == [f"{scores[place]:.1f}" for scores in wanted]
    assert f"p: of the difference from {hyp}, " in result.out.decode()
    systems = json.loads((tmp_path / "json").read_text(encoding="utf-8"))["systems"]
    assert [system["name"] for system in systems] == [str(name) for name in names]
    for system, scores in zip(systems, wanted, strict=True):
        found = [system[key]["score"] for key in ("bleu", "chrf", "ter")]
        assert found == pytest.approx(scores)
    p_values = [system["bleu"]["p_value"] for system in systems]
    assert p_values[0] is None
    assert 0 < p_values[1] < 0.2
    write(better, 9)
    result = call("evaluate", *options, "-r", ref, "--json", tmp_path / "json")
    untested = "no p-value of BLEU and chrF2 and TER: the systems differ in fewer than 20 lines\n"
    assert f"note: {better}: {untested}" in result.err
    tree = json.loads((tmp_path / "json").read_text(encoding="utf-8"))
    assert tree["systems"][1]["bleu"]["p_value"] is None


def test_hypotheses_are_text_and_references_count_once(
    call: Call, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    hyp, ref = texts
    table = tmp_path / "hyp.tsv"
    table.write_text("a\tb\n", encoding="utf-8")
    result = call("evaluate", "--hyp", table, "-r", table)
    assert result.code == 2
    assert f"{table}: is a table; give a file with one sentence per line" in result.err
    result = call("evaluate", "--hyp", hyp, "-r", ref, "-r", ref)
    assert result.code == 2
    assert f"evaluate -r: {ref} is given twice" in result.err


def test_text_without_spaces_and_long_lines_give_notes(call: Call, tmp_path: Path) -> None:
    hyp, ref = tmp_path / "hyp", tmp_path / "ref"
    for file in (hyp, ref):
        file.write_text(
            "\u5f7c\u306f\u6628\u65e5\u672c\u3092\u8cb7\u3044\u307e\u3057\u305f\n" * 2, "utf-8"
        )
    result = call("evaluate", "--hyp", hyp, "-r", ref)
    assert table_scores(result) == ["100.0", "100.0", "0.0"]
    signatures = [line.split()[1] for line in result.lines if "  nrefs:" in line]
    assert "|tok:char|" in signatures[0]
    assert "|norm:yes|punct:yes|asian:yes|" in signatures[2]
    assert "references are in Japanese script" in result.err
    for file in (hyp, ref):
        file.write_text("a b c d " * 800 + "\n", "utf-8")
    result = call("evaluate", "--hyp", hyp, "--hyp", hyp, "-r", ref, "--json", tmp_path / "json")
    assert not any(line.startswith("TER") for line in result.lines)
    assert f"note: {hyp}:1: the line has 3,200 words; TER" in result.err
    tree = json.loads((tmp_path / "json").read_bytes())
    assert [system["ter"] for system in tree["systems"]] == [None, None]


def test_lowercase_and_several_references_are_supported(
    call: Call, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    hyp, ref = texts
    upper = tmp_path / "upper"
    upper.write_text(hyp.read_text(encoding="utf-8").upper(), encoding="utf-8", newline="\n")
    lowercase = call("evaluate", "--hyp", hyp, "-r", upper, "--lowercase")
    assert table_scores(lowercase) == ["100.0", "100.0", "0.0"]
    cased = table_scores(call("evaluate", "--hyp", hyp, "-r", upper))
    assert float(cased[0]) < 90
    two = call("evaluate", "--hyp", hyp, "-r", ref, "-r", upper)
    assert table_scores(two) == [f"{score:.1f}" for score in sacrebleu_scores(hyp, ref, upper)]


def test_the_test_set_defaults_to_that_of_the_config(
    call: Call, luong: Path, src: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(src.parent)  # files from elsewhere are named
    run = tmp_path / "with-test"
    shutil.copytree(luong, run)
    refused(call("evaluate", "-m", run), run, "data.test", "-i FILE")
    tree = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    tree["data"]["test"] = {"src": str(src), "tgt": str(src.with_suffix(".tgt"))}
    (run / "config.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    result = call("evaluate", "-m", run, "-o", tmp_path / "hyp")
    given = call("evaluate", "-m", run, "-i", src, "-r", src.with_suffix(".tgt"))
    assert result == given
    scores = sacrebleu_scores(tmp_path / "hyp", src.with_suffix(".tgt"))
    assert table_scores(result) == [f"{score:.1f}" for score in scores]


def test_the_validation_text_can_be_scored(
    call: Call, luong: Path, src: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(src.parent)  # files from elsewhere are named
    run, valid = tmp_path / "with-valid", src.with_name("valid.src")
    shutil.copytree(luong, run)
    tree = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    tree["data"]["valid"] = {"src": str(valid), "tgt": str(valid.with_suffix(".tgt"))}
    (run / "config.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    result = call("evaluate", "-m", run, "--split", "valid")
    assert result.code == 0
    assert result == call("evaluate", "-m", run, "-i", valid, "-r", valid.with_suffix(".tgt"))
    refused(call("evaluate", "--hyp", src, "-r", src, "--split", "valid"), "--split valid cannot")


def test_sentences_are_listed_worst_first(
    call: Call, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    hyp, ref = texts
    lines = lines_of(hyp)
    lines[2:4] = ["", f"{lines_of(ref)[3]}\tx"]
    hyp.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    table = tmp_path / "sentences.tsv"
    plain = call("evaluate", "--hyp", hyp, "-r", ref)
    assert call("evaluate", "--hyp", hyp, "-r", ref, "--sentences", table) == plain
    head, *rows = [line.split("\t") for line in lines_of(table)]
    assert head == ["line", "BLEU", "chrF2", "hypothesis", "reference"]
    assert sorted(int(row[0]) for row in rows) == list(range(1, 12))
    assert [float(row[1]) for row in rows] == sorted(float(row[1]) for row in rows)
    assert rows[0][:2] == ["3", "0.0"]
    bleu, chrf = BLEU(effective_order=True), CHRF()
    for number, own_bleu, own_chrf, hypothesis, reference in rows:
        line, own = lines[int(number) - 1], [lines_of(ref)[int(number) - 1]]
        assert (hypothesis, reference) == (line.replace("\t", " "), own[0])
        assert own_bleu == f"{bleu.sentence_score(line, own).score:.1f}"
        assert own_chrf == f"{chrf.sentence_score(line, own).score:.1f}"


def test_sentences_of_a_run_have_their_sources(
    call: Call, luong: Path, src: Path, tmp_path: Path
) -> None:
    table, out, ref = tmp_path / "sentences.tsv", tmp_path / "out", src.with_suffix(".tgt")
    other = tmp_path / "other"
    other.write_bytes(ref.read_bytes())
    options = ("-i", src, "-r", ref, "-r", other, "-o", out, "--sentences", table)
    assert call("evaluate", "-m", luong, *options).code == 0
    head, *rows = [line.split("\t") for line in lines_of(table)]
    assert head[3:] == ["source", "hypothesis", "reference 1", "reference 2"]
    for number, _, _, *row in rows:
        index = int(number) - 1
        wanted = [lines_of(path)[index].replace("\t", " ") for path in (src, out, ref, ref)]
        assert row == wanted


def test_sentences_of_only_one_system_are_listed(call: Call, texts: tuple[Path, Path]) -> None:
    hyp, ref = texts
    result = call("evaluate", "--hyp", hyp, "--hyp", ref, "-r", ref, "--sentences", "x")
    refused(result, "--sentences: give one --hyp file")
    refused(call("evaluate", "--hyp", hyp, "-r", ref, "--sentences", "-"), "standard output")
    refused(call("evaluate", "--hyp", hyp, "-r", ref, "--sentences", ref), "is already read")


def test_unequal_counts_are_refused(
    call: Call, luong: Path, src: Path, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    hyp, ref = texts
    ref.write_text("".join(f"{line}\n" for line in lines_of(ref)[:-1]), encoding="utf-8")
    for how in (("--hyp", hyp), ("-m", luong, "-i", src, "-o", tmp_path / "out")):
        refused(call("evaluate", *how, "-r", ref), "has 11 lines but", ref, "has 10")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------------------------------- attention


@pytest.mark.parametrize(
    "suffix", ["json", "html", "svg", pytest.param("png", marks=pytest.mark.thorough)]
)
def test_attention_is_written(
    call: Call, tiny_runs: dict[str, Path], tmp_path: Path, suffix: str
) -> None:
    out, run = tmp_path / f"plot.{suffix}", tiny_runs["bahdanau"]
    text = b"buda ki.\n\nzu\n"
    result = call("attention", "-m", run, "-o", out, "-b", 1, stdin=text)
    assert (result.code, result.out) == (0, b"")
    content = out.read_bytes()
    if suffix == "json":
        expected = call("translate", "-m", run, "--json", "-b", 1, stdin=text)
        assert json.loads(content) == [json.loads(line) for line in expected.lines]
    elif suffix == "png":
        assert content.startswith(b"\x89PNG\r\n")
    else:
        assert f"<{suffix}" in content.decode()
    assert [path.name for path in tmp_path.glob("plot*")] == [out.name]


def test_attention_takes_the_sentences_that_translate_takes(
    call: Call, tiny_runs: dict[str, Path]
) -> None:
    run = tiny_runs["luong"]
    maps = call("attention", "-m", run, stdin=b"zu ba\nko\n").out
    assert call("attention", "-m", run, "zu ba", "ko").out == maps
    refused(call("attention", "-m", run, "-i", "x", "zu"), "attention: TEXT", "with -i or -r")
    refused(call("attention", "-m", run, __file__), "is a file; did you mean -i ")


@pytest.mark.parametrize("suffix", ["json", "html", "png"])
def test_a_model_without_attention_cannot_be_plotted(
    call: Call, tiny_runs: dict[str, Path], tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"plot.{suffix}"
    result = call("attention", "-m", tiny_runs["none"], "-o", out, stdin=b"zu\n")
    refused(result, tiny_runs["none"], "no attention to plot")
    assert not out.exists()


def test_help_and_version_go_to_stdout(call: Call) -> None:
    for words in (["--help"], ["train", "--help"], ["translate", "--help"], ["--version"]):
        result = call(*words)
        assert (result.code, result.err) == (0, "")
        assert b"seq2seq" in result.out


# -------------------------------------------------------------------------------------------- check


def listing(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.usefixtures("few_steps")
def test_check_examines_everything_and_writes_no_files(
    call: Call, small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = listing(tmp_path)
    result = call("check", small_corpus, "--device", "cpu", "model.dropout=0.4")
    assert (result.code, result.err) == (0, "")
    assert listing(tmp_path) == before
    assert not (tmp_path / "run").exists()
    rows = [line.split() for line in result.lines]
    assert ["pairs", "train", "valid", "test"] in rows
    assert ["lines", "120", "9", "11"] in rows
    assert ["with", "a", "blank", "side", "0", "0", "0"] in rows
    for start in ("parameters ", "memory ", "an epoch ", "training ", "warning: "):
        assert any(line.startswith(start) for line in result.lines), start
    (passed,) = [line for line in result.lines if line.startswith("ok ")]
    listed = json.loads(call("check", small_corpus, "--device", "cpu", "--json", "-").out)
    count = sum(finding["done"] and not finding["warning"] for finding in listed["findings"])
    assert passed == f"ok       {count} checks passed, listed by --json -"
    labels = [line.partition(" ")[0] for line in result.lines]
    assert labels[-2 - labels.count("warning:") : -2] == ["warning:"] * labels.count("warning:")
    warnings = [line for line in result.lines if line.startswith("warning: ")]
    assert result.lines[-1] == f"{len(warnings)} warnings; `seq2seq train` accepts this config."


@pytest.mark.usefixtures("few_steps")
def test_check_finds_planted_faults_and_json_has_every_line(
    call: Call, small_corpus: Path, tmp_path: Path
) -> None:
    lines = (tmp_path / "train.src").read_text(encoding="utf-8").splitlines()
    lines[3], lines[7] = " ", "ba\ufeffda."
    (tmp_path / "train.src").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for side in ("src", "tgt"):
        train, valid = (tmp_path / f"{split}.{side}" for split in ("train", "valid"))
        valid.write_bytes(b"".join(train.read_bytes().splitlines(keepends=True)[20:40]))
    out = tmp_path / "check.json"
    result = call("check", small_corpus, "--device", "cpu", "--json", out)
    assert result.code == 0
    warnings = "\n".join(line for line in result.lines if line.startswith("warning: "))
    assert "1 pair with a blank side (line 4)" in warnings
    assert "train.src: byte order marks of concatenated files in line 8. " in warnings
    assert "valid: 20 of 20 pairs occur in train" in warnings
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["texts"]["train"]["statistics"]["blank"] == [4]
    assert found["texts"]["train"]["statistics"]["src"]["unusual_characters"] == {
        "byte order mark": [8]
    }
    valid_in_train = found["comparisons"][0]
    assert (valid_in_train["split"], valid_in_train["other"]) == ("valid", "train")
    assert valid_in_train["shared"]["pairs"] == list(range(1, 21))
    assert found["warnings"] == warnings.count("warning: ")
    assert found["cost"]["parameters"] > 1000
    assert found["cost"]["epoch_seconds"] > 0


@pytest.mark.usefixtures("few_steps")
def test_check_gives_json_alone_on_stdout(call: Call, small_corpus: Path) -> None:
    result = call("check", small_corpus, "--device", "cpu", "--json", "-", "data.test=null")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert set(found["texts"]) == {"train", "valid"}
    assert [each["warning"] for each in found["findings"]] == sorted(
        (each["warning"] for each in found["findings"]), reverse=True
    )


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    ("part", "last"),
    [
        ("alignment.measure_alignment", "target/source characters "),
        ("forecast.forecast", "target/source characters "),
        ("forecast.cost_findings", "training "),
    ],
)
def test_check_prints_each_part_before_it_computes_the_next(
    call: Call, small_corpus: Path, monkeypatch: pytest.MonkeyPatch, part: str, last: str
) -> None:
    def fail(*_: object) -> NoReturn:
        raise RunError("the next part")

    config = small_corpus, "--device", "cpu"
    complete = call("check", *config).lines
    monkeypatch.setattr(f"seq2seq.tools.analysis.check.{part}", fail)
    result = call("check", *config)
    assert (result.code, result.err) == (1, "seq2seq: error: the next part\n")
    lines = list(filter(None, result.lines))
    assert lines[-1].startswith(last)
    rows = len(lines) - 5 * (part == "forecast.cost_findings")  # without measurements
    assert lines[:rows] == list(filter(None, complete))[:rows]


@pytest.mark.usefixtures("few_steps")
def test_check_warns_of_an_existing_run_in_the_folder(
    call: Call, small_corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "best.safetensors").touch()
    before = listing(tmp_path / "run")
    result = call("check", small_corpus, "--device", "cpu")
    assert result.code == 0
    assert any("holds a run" in line and "--overwrite" in line for line in result.lines)
    assert listing(tmp_path / "run") == before


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda at: (at / "train.tgt").unlink(), id="missing"),
        pytest.param(lambda at: (at / "valid.src").write_bytes(b"a\xffb\n"), id="no UTF-8"),
        pytest.param(lambda at: (at / "test.src").write_bytes(b"one\n"), id="unequal"),
        pytest.param(lambda at: (at / "valid.tgt").write_bytes(b"\n" * 9), id="blank"),
        pytest.param(lambda at: (at / "run").write_bytes(b""), id="run_dir is a file"),
    ],
)
def test_check_and_train_refuse_data_with_the_same_message(
    call: Call, small_corpus: Path, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    damage(tmp_path)
    result = call("check", small_corpus)
    refused(result)
    assert call("train", small_corpus) == result


@pytest.mark.parametrize(
    "overrides", [["data.max_length=1"], ["vocabulary.size=90000"], ["vocabulary.size=many"]]
)
def test_check_and_train_refuse_configs_with_the_same_message(
    call: Call, small_corpus: Path, overrides: list[str]
) -> None:
    result = call("check", small_corpus, *overrides)
    assert (result.code, result.out) == (2, b"")
    assert call("train", small_corpus, *overrides) == result


@pytest.mark.thorough
@pytest.mark.usefixtures("few_steps")
def test_check_shows_progress_on_a_terminal(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl
    import pty
    import struct
    import termios

    terminal, stderr = pty.openpty()
    fcntl.ioctl(stderr, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    shown = b""

    def read() -> None:
        nonlocal shown
        with suppress(OSError):  # the terminal is closed
            while data := os.read(terminal, 4096):
                shown += data

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(stderr, "w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stderr", file)
        assert main(["check", str(small_corpus), "--device", "cpu"]) == 0
    reader.join()
    os.close(terminal)
    for stage in ("reading the text", "measuring the alignment", "measuring training steps"):
        assert f"check: {stage}".encode() in shown


def test_check_refuses_a_json_file_it_cannot_write(call: Call, small_corpus: Path) -> None:
    refused(call("check", small_corpus, "--json", "nowhere/x.json"), "no folder nowhere")


# -------------------------------------------------------------------------------------------- train


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[Training]:
    """Replace `train`; return a list that records its arguments."""
    calls: list[Training] = []

    def note(*arguments: *Training) -> Path:
        calls.append(arguments)
        return arguments[0].run_dir

    monkeypatch.setattr("seq2seq.training.loop.train", note)
    return calls


@pytest.mark.parametrize(
    "words",
    [
        "CONFIG seed=7 model.dropout=0.5 --resume --device cpu",
        "CONFIG --resume --device cpu seed=7 model.dropout=0.5",
        "CONFIG seed=7 --resume model.dropout=0.5 --device cpu",
        "--device cpu --resume CONFIG seed=7 model.dropout=0.5",
        "--device cpu CONFIG seed=3 --resume seed=7 model.dropout=0.5",
    ],
)
def test_overrides_may_precede_or_follow_options(
    call: Call, small_corpus: Path, trainings: list[Training], words: str
) -> None:
    arguments = (small_corpus if word == "CONFIG" else word for word in words.split())
    result = call("train", *arguments)
    assert (result.code, result.out) == (0, b"")
    ((config, *how),) = trainings
    assert (config.seed, config.model.dropout.hidden) == (7, 0.5)
    assert how == ["cpu", True, False, None]


def test_train_prints_next_commands_and_ignored_keys(
    call: Call, small_corpus: Path, trainings: list[Training]
) -> None:
    result = call("train", small_corpus, "model.decoder=none", "--overwrite")
    assert [call[1:] for call in trainings] == [("auto", False, True, None)]
    note, *hints = result.err.splitlines()
    assert note.startswith("note: model.attention_size: 14 is ignored")
    run = small_corpus.parent / "run"
    assert [hint.split()[1:] for hint in hints] == [
        ["seq2seq", "translate", "-m", str(run), "-i", "FILE"],
        ["seq2seq", "evaluate", "-m", str(run)],
        ["seq2seq", "report", str(run)],
    ]


def run_script(name: str, arguments: Sequence[object], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    return exit_code(lambda: runpy.run_path(str(ROOT / "scripts" / name), run_name="__main__"))


def test_scripts_are_equivalent_to_subcommands(
    call: Call,
    luong: Path,
    src: Path,
    small_corpus: Path,
    trainings: list[Training],
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ref = src.with_suffix(".tgt")
    for script, arguments in (
        ("translate.py", ["-m", luong, "-i", src, "--n-best", 2]),
        ("evaluate.py", ["--hyp", src, "-r", ref, "--lowercase"]),
        ("evaluate.py", ["--hyp", src]),
        ("train.py", [small_corpus, "--overwrite", "seed=5"]),
    ):
        wanted = call(script.removesuffix(".py"), *arguments)
        code = run_script(script, arguments, monkeypatch)
        out, err = capsysbinary.readouterr()
        assert (code, out, err.decode()) == wanted
    assert trainings[0] == trainings[1]


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 500
    while not condition():
        assert process.poll() is None, "the training ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.race
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "start"),
    [(signal.SIGINT, ["-m", "seq2seq", "train"]), (signal.SIGTERM, ["scripts/train.py"])],
)
def test_a_signal_saves_the_run_and_resume_continues_it(
    small_corpus: Path, call: Call, number: signal.Signals, start: list[str]
) -> None:
    run = small_corpus.parent / "run"
    metrics = run / "metrics.jsonl"
    overrides = ["training.validate_every=9000", "training.log_every=1", "decoding.max_length=9"]
    command = [sys.executable, *start, str(small_corpus), *overrides, "training.max_epochs=9000"]
    environment = project_environment()
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, env=environment) as process:
        until(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 3, process)
        process.send_signal(number)
        _, err = process.communicate(timeout=500)
    assert process.returncode == 128 + number
    assert b"Traceback" not in err
    steps = metrics.read_bytes().count(b"\n")
    assert f"Stopped at step {steps}, saved." in err.decode()
    given = shlex.join([str(small_corpus), *overrides, "training.max_epochs=9000", "--resume"])
    assert f"Resume with: seq2seq train {given}\n" in err.decode()
    result = call("train", small_corpus, *overrides, f"training.max_steps={steps + 2}", "--resume")
    assert result.code == 0, result.err
    written = [json.loads(line) for line in metrics.read_bytes().splitlines()]
    trained = [line["step"] for line in written if "train_loss" in line]
    assert trained == list(range(1, steps + 3))


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_spin_briefly_by_default(given: dict[str, str], expected: str | None) -> None:
    program = (
        "import os, sys\nfrom seq2seq.__main__ import main\n"
        "try: main(['--version'])\nexcept SystemExit: pass\n"
        "print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    )
    own = {key: value for key, value in os.environ.items() if not key.startswith(("GOMP", "OMP_W"))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=own | given, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == f"{expected} False"


def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_traceback() -> None:
    program = """
import os, signal, sys
from seq2seq.__main__ import main
class Interrupting:
    def find_spec(self, name, *_):
        if name == "seq2seq.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


def test_ctrl_c_waits_for_the_end_of_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's initialisation would ignore it."""
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ncomplete = True\n"
    (tmp_path / "module_that_takes_long.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt), frozen_objects():
        module = importlib.import_module("module_that_takes_long")
    assert module.complete
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.race
@pytest.mark.thorough
@pytest.mark.parametrize("delay", [0.25, 0.45, 0.65, 0.85, 1.1])
def test_ctrl_c_at_the_start_of_a_command_ends_it(tiny_runs: dict[str, Path], delay: float) -> None:
    """On any machine the command is still running: its input does not end."""
    command = [sys.executable, "-m", "seq2seq", "translate", "-m", str(tiny_runs["luong"])]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        error = process.stderr.read()
        process.wait(600)
    assert process.returncode in (130, -signal.SIGINT), error.decode()
    assert b"numpy" not in error


def test_maps_beside_another_run(
    call: Call, luong: Path, tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    """One sentence, two models; the same run, another pair of languages and data are refused."""
    other = tiny_runs["bahdanau"]
    result = call("attention", "-m", luong, "--beside", other, "ba lo.")
    assert [line for line in result.lines if line in (str(luong), str(other))] == [
        str(luong),
        str(other),
    ]
    refused(call("attention", "-m", luong, "--beside", luong, "ba"), "is the run of -m")
    none = tiny_runs["none"]
    refused(
        call("attention", "-m", luong, "--beside", none, "ba"),
        f"{none}: the model has no attention",
    )
    for name in ("a.json", "a.align"):
        refused(
            call("attention", "-m", luong, "--beside", other, "ba", "-o", tmp_path / name),
            "write a file for each",
        )
    refused(
        call("attention", "-m", luong, "ba", "--percentages"), "--percentages: needs -o FILE.html"
    )
    (tmp_path / "gold").write_text("0-0\n" * 2)
    command = (
        "attention",
        "-m",
        luong,
        "ba",
        "-o",
        tmp_path / "a.align",
        "--gold",
        tmp_path / "gold",
    )
    refused(call(*command), "gold: has 2 lines, the text has 1; give a line of links for each")
