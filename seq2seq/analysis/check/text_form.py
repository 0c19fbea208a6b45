"""Form of a text: segmented, tokenised, with markers or a header, or no language at all."""

import re
from collections.abc import Callable, Iterator, Sequence

from seq2seq.analysis.check.data_statistics import TABLE
from seq2seq.analysis.check.findings import Finding, list_and_count
from seq2seq.data.natural_language import describe, not_language
from seq2seq.data.spread import spread
from seq2seq.data.tables import is_header

SEGMENTS = {name: re.compile(pattern) for name, pattern in TABLE["segments"].items()}
MARKER = re.compile(
    r"<\|?/?(?:s|unk|pad|bos|eos|sos|go|start|end|mask|sep|cls|endoftext|\d?[a-z]{2}_[A-Z]{2})\|?>"
    r"|\[(?:CLS|SEP|PAD|UNK|MASK|BOS|EOS|SOS)\]|\b(?:startseq|endseq)\b|\b_(?:START|END)_\b",
    re.IGNORECASE,
)
SPACED, ATTACHED = (
    re.compile(r"\s[.,。、](?=\s|$)"),
    re.compile(r"[^\s.,][.,](?=\s|$)|[^\s。、][。、]"),
)
RARE = re.compile("@|\u2581|\uffed|##|[<\\[_]|seq", re.IGNORECASE)  # in all of SEGMENTS and MARKER
SAMPLE = 2000  # lines that show whether a text is tokenised
MIN_LINES = 20  # with punctuation
MANY = 0.5  # share of lines that are tokenised


def form_findings(
    file: str, lines: Sequence[str], languages: Sequence[str], table: bool
) -> Iterator[Finding]:
    """Yield the warnings about one side of a split; `table` if the file is a TSV."""
    if (unlike := not_language(lines)) is not None:
        remedy = "Set columns: [SRC, TGT]" if table else "Check that this is the right file"
        text = f"{file}, line {unlike.line}: {describe(unlike)}; this is not natural language. "
        text += f"{remedy}."
        yield Finding("language", True, text)
    if is_header(lines[0], languages):
        remedy = "Delete the line." if table else "Delete the line from both files."
        text = f"{file}, line 1: {lines[0].strip()!r} seems to be a header. {remedy}"
        yield Finding("header", True, text)
    for check, warnings in CHECKS:
        yield from (Finding(check, True, f"{file}: {text}") for text in warnings(lines))


def _segments(lines: Sequence[str]) -> Iterator[str]:
    rare = _matching(RARE, lines)
    for name, pattern in SEGMENTS.items():
        if numbers := [number for number in rare if pattern.search(lines[number - 1])]:
            yield (
                f"{name} in {list_and_count(numbers)}: the text is already segmented, and "
                "translations would be, too. Restore the plain text; the vocabulary segments it."
            )


def _markers(lines: Sequence[str]) -> Iterator[str]:
    if numbers := _matching(MARKER, lines):
        example = MARKER.findall(lines[numbers[0] - 1])[0]
        yield (
            f"markers such as {example} in {list_and_count(numbers)}, which are trained on as "
            "text. Delete them; training adds its own start and end of sentence."
        )


def _tokenised(lines: Sequence[str]) -> Iterator[str]:
    sample = spread(lines, SAMPLE)
    spaced, attached = set(_matching(SPACED, sample)), set(_matching(ATTACHED, sample))
    total = len(spaced | attached)
    if total >= MIN_LINES and len(spaced) > MANY * total:
        yield (
            "tokenised text, with a space before full stops and commas, in "
            f"{list_and_count(_matching(SPACED, lines))}: translations would be tokenised, too, "
            "and scores would not be comparable. Use the raw text, or detokenise it; the "
            "vocabulary segments it."
        )


CHECKS: tuple[tuple[str, Callable[[Sequence[str]], Iterator[str]]], ...] = (
    ("segmented", _segments),
    ("markers", _markers),
    ("tokenised", _tokenised),
)


def _matching(pattern: re.Pattern[str], lines: Sequence[str]) -> list[int]:
    return [number for number, line in enumerate(lines, start=1) if pattern.search(line)]
