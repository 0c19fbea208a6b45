"""Any input: as many lines out as in, in order, blank lines blank, and no crash."""

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NamedTuple

import pytest
import regex  # dependency of sacrebleu
from cases.growth import LINEAR, growth
from cases.random_lines import KINDS, fuzz_lines
from cases.tiers import quick_values
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seq2seq.__main__ import main
from seq2seq.inference.translator import Translator
from seq2seq.runtime.file_types import recognise

LINES = int(os.environ.get("SEQ2SEQ_FUZZ_LINES", "2000"))
LONG_LINE = int(os.environ.get("SEQ2SEQ_LONG_LINE", "8000"))  # bytes
BREAKS = re.compile("[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
BOM = b"\xef\xbb\xbf"


class Result(NamedTuple):
    """Output and exit code of a call."""

    code: int
    out: list[str]
    err: str


class Caller:
    """In-process `translate` with greedy search, which loads its model once."""

    def __init__(self, run: Path, patch: pytest.MonkeyPatch) -> None:
        translator = Translator.load(run, device="cpu")
        self._patch, self._run = patch, run
        patch.setattr(Translator, "load", lambda *_, **__: translator)
        patch.setattr(Translator, "load_with", lambda *_: translator)

    def __call__(self, content: bytes, *arguments: str) -> Result:
        out = TextIOWrapper(BytesIO())
        err = TextIOWrapper(BytesIO(), encoding="utf-8")
        with self._patch.context() as patch:
            patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(content)))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main(["translate", "-m", str(self._run), "-b", "1", *arguments])
        err.flush()
        *lines, end = out.buffer.getvalue().decode().split("\n")  # type: ignore[attr-defined]
        assert end == ""
        return Result(code, lines, err.buffer.getvalue().decode())  # type: ignore[attr-defined]


@pytest.fixture(scope="module", params=quick_values(["luong", "none"]))
def translate(request: pytest.FixtureRequest, tiny_runs: dict[str, Path]) -> Iterator[Caller]:
    """Translate with a model with attention, and one without."""
    with pytest.MonkeyPatch.context() as patch:
        yield Caller(tiny_runs[request.param], patch)


def lines_of(content: bytes) -> list[bytes]:
    *lines, last_line = content.split(b"\n")
    return [*lines, last_line] if last_line else lines


def is_blank(line: bytes) -> bool:
    """Check for only white space, invisible characters and SentencePiece's space symbol."""
    invisible = r"[\p{Default_Ignorable_Code_Point}\u2800\ufff9-\ufffb▁]"
    return not regex.sub(invisible, " ", line.decode(errors="replace")).strip()


def check(content: bytes, result: Result) -> None:
    """Check the properties that hold for every input."""
    lines = lines_of(content)
    assert result.code == 0
    assert len(result.out) == len(lines)
    for number, (line, text) in enumerate(zip(lines, result.out, strict=True), start=1):
        blank = is_blank(line.removeprefix(BOM) if number == 1 else line)
        assert blank == (not text.strip()), (number, line, text)
        assert text == text.strip()
        assert not BREAKS.search(text)
    invalid = [n for n, line in enumerate(lines, start=1) if not is_utf8(line)]
    message = f"note: bytes that are not UTF-8 were replaced in {len(invalid)} line"
    assert (message in result.err) == bool(invalid)
    if invalid:
        assert f"({', '.join(map(str, invalid[:10]))}" in result.err


def is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


NASTY = st.one_of(
    st.binary(max_size=30),
    st.text(st.characters(), max_size=20).map(lambda text: text.encode(errors="surrogatepass")),
    st.sampled_from([*fuzz_lines(300, seed=5)]),
)
CONTENTS = st.tuples(
    st.sampled_from([b"", BOM]),
    st.lists(st.tuples(NASTY, st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\r"])), max_size=8),
    NASTY,
).map(lambda parts: parts[0] + b"".join(map(b"".join, parts[1])) + parts[2])
CONTENTS = CONTENTS.filter(
    lambda content: recognise(content) is None
)  # excludes NumPy arrays, for example


@settings(deadline=None, max_examples=60)
@given(content=CONTENTS)
@example(content=b"\xef\xbb\xbf")
@example(content=b"\n")
@example(content=b"\r\n\r\n")
@example(content=b"\xe2\x96\x81\n\xe2\x96\x81\xc2\xa0\n")
@example(content="bu da".encode("utf-16"))
@example(content=b"ba\r\rka\r\r\n" + BOM + b"ba\n\0\n\xed\xa0\x80\xed\xb0\x80\n")
def test_every_input_line_has_an_output_line(translate: Caller, content: bytes) -> None:
    check(content, translate(content))


@pytest.mark.thorough
@settings(deadline=None, max_examples=20)
@given(content=CONTENTS)
def test_a_stream_and_a_file_have_the_same_output(translate: Caller, content: bytes) -> None:
    file = translate(content)
    stream = translate(content, "--stream", "--batch-size", "3")
    assert (stream.code, stream.out) == (file.code, file.out)


def test_the_order_of_lines_is_kept(translate: Caller) -> None:
    """The output of each line equals that of the line alone."""
    lines = list(fuzz_lines(60, seed=8))
    batched = translate(b"zu\n" + b"".join(line + b"\n" for line in lines)).out
    assert len(set(batched)) > 30
    for line, text in zip(lines, batched[1:], strict=True):
        assert translate(b"zu\n" + line + b"\n").out == [batched[0], text]


def test_text_is_never_translated_as_blank(
    translate: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source is copied if a model generates only white space."""
    vocabulary = Translator.load().vocabularies.tgt  # loaded by the Caller
    decode = type(vocabulary).decode
    calls = []

    def blank_translations(_: object, ids: list[int], words: Iterable[str] = ()) -> str:
        calls.append(ids)
        # The source is decoded if the translation is blank.
        return "\n \u2028" if len(calls) % 2 else decode(vocabulary, ids, words)

    monkeypatch.setattr(type(vocabulary), "decode", blank_translations)
    assert translate(b"buda ki.\n\nzu\n").out == ["buda ki.", "", "zu"]
    assert len(calls) == 4


def test_characters_that_break_lines_become_spaces(
    translate: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model with byte tokens can generate these, and its output must be readable by line."""
    vocabulary = Translator.load().vocabularies.tgt  # loaded by the Caller
    monkeypatch.setattr(type(vocabulary), "decode", lambda *_: "a\0b\nc\x85d")
    assert translate(b"buda ki.\n").out == ["a b c d"]


def test_the_fuzzing_corpus_has_every_kind_of_line() -> None:
    """Without them, the fuzzing test below would prove little."""
    assert list(fuzz_lines(500, seed=1)) == list(fuzz_lines(500, seed=1))
    assert list(fuzz_lines(500, seed=1)) != list(fuzz_lines(500, seed=2))
    lines = list(fuzz_lines(2000, seed=1))
    assert not any(b"\n" in line for line in lines)
    assert len(set(lines)) > 40 * len(KINDS)
    assert any(len(line) > 500 for line in lines)
    assert sum(map(is_blank, lines)) > 100
    assert sum(not is_utf8(line) for line in lines) > 100


@pytest.mark.thorough
def test_no_line_of_a_fuzzing_corpus_is_lost(translate: Caller) -> None:
    """SEQ2SEQ_FUZZ_LINES sets the number of lines."""
    content = b"".join(line + b"\n" for line in fuzz_lines(LINES, seed=1))
    start = time.process_time()
    result = translate(content)
    print(f"{LINES:,} lines, {len(content):,} bytes: {time.process_time() - start:.0f} s of CPU")
    check(content, result)


LONG = {
    "sentences": "ba ka velo. zu ti ke? ",
    "words": "ba ka velo zu ti ke ",
    "no spaces": "bakavelo",
    "unseen, no spaces": "日本語",
    "spaces": "ba" + 998 * " ",
    "marks": "\u0301\u0316",
    "full stops": ".",
    "NUL": "\0",
}


@pytest.mark.thorough
@pytest.mark.parametrize("part", LONG.values(), ids=list(LONG))
def test_the_time_of_a_long_line_is_proportional_to_its_length(
    translate: Caller, part: str
) -> None:
    """SEQ2SEQ_LONG_LINE sets the number of bytes."""

    def call(size: int) -> None:
        content = part.encode() * (size // len(part.encode())) + b"\n"
        result = translate(b"zu\n" + content + b"buda\n")
        assert len(result.out) == 3
        assert all(result.out)

    assert growth(call, LONG_LINE) < LINEAR
