"""Findings about the data of a training: place, problem and remedy, from tables of checks."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from seq2seq.data.tables import is_header
from seq2seq.runtime.console import counted
from seq2seq.text.sample import sample_of, sample_rows
from seq2seq.tools.analysis.check import data_statistics
from seq2seq.tools.analysis.check.data_statistics import NOT_NFC, TABLE, Overlap

FEW_PAIRS = 1000
LISTED = 5  # line numbers in a message
MANY_TOO_LONG = 0.01  # share of pairs
MANY_SHARED_PAIRS = 0.01
MANY_SHARED_SOURCES = 0.1

UNESCAPE: str = TABLE["unescape"]  # command that replaces HTML entities by their characters


class Finding(NamedTuple):
    """Result of one check; a warning also names the remedy."""

    check: str
    warning: bool
    text: str
    done: bool = True  # False if it could not be checked, or is only noted


class Split(NamedTuple):
    """One of train, valid and test, with its statistics."""

    name: str
    src_file: str
    tgt_file: str
    statistics: data_statistics.TextStatistics

    @property
    def sides(self) -> dict[str, data_statistics.SideStatistics]:
        """Return the statistics of each side, by its file."""
        return {self.src_file: self.statistics.src, self.tgt_file: self.statistics.tgt}


class SplitComparison(NamedTuple):
    """Lines that one split shares with another."""

    split: str
    other: str
    shared: Overlap


class Check(NamedTuple):
    """Row of the table: the texts of its warnings about a split, and the text if there are none."""

    name: str
    warnings: Callable[[Split], Iterator[str]]
    passed: str


def _more_than(row: dict[str, Any]) -> Callable[[Split], Iterator[str]]:
    """Warn if more than a share of the pairs has its lines in a field of the statistics."""

    def warnings(split: Split) -> Iterator[str]:
        lines = getattr(split.statistics, row["field"])
        count = len(lines)
        total = split.statistics.lines
        if count > row["most"] * total:
            fate = "skipped" if split.name != "test" else "scored as they are"
            words = {"pairs": counted(count, "pair"), "share": percent(count / total), "fate": fate}
            yield f"{split.name}: {row['text'].format(lines=list_lines(lines), **words)}"

    return warnings


def _unusual_characters(split: Split) -> Iterator[str]:
    for file, side in split.sides.items():
        for kind, lines in side.unusual_characters.items():
            if kind != NOT_NFC:
                row = TABLE["characters"][kind]
                remedy = row["remedy"].replace("{unescape}", UNESCAPE)
                yield f"{file}: {row['text']} in {list_and_count(lines)}. {remedy}."
    lines = split.statistics.tgt.unusual_characters.get(NOT_NFC, [])
    if lines and not split.name.startswith("train"):
        yield TABLE["not nfc"].format(file=split.tgt_file, lines=list_and_count(lines))


def _spelled_badly(split: Split) -> Iterator[str]:
    for file, side in split.sides.items():
        for field, row in TABLE["tokens"].items():
            if (share := getattr(side, field)) > row["most"]:
                yield f"{file}: {percent(share)} {row['text']}"


_BLANK, *_FURTHER = (
    Check(name, _more_than(row), row["passed"]) for name, row in TABLE["pairs"].items()
)
CHECKS = (
    _BLANK,
    Check("unusual characters", _unusual_characters, "no unusual characters"),
    *_FURTHER,
    Check("unknown", _spelled_badly, "few or no tokens that the vocabulary lacks"),
)


def data_findings(splits: Sequence[Split], max_length: int) -> Iterator[Finding]:
    """Yield the warnings about each split, or one finding for each check that all splits pass."""
    for check in CHECKS:
        texts = [text for split in splits for text in check.warnings(split)]
        yield from (Finding(check.name, True, text) for text in texts)
        if not texts:
            yield Finding(check.name, False, check.passed)
    train = [split for split in splits if split.name.startswith("train")]
    yield from (_too_long(split, max_length) for split in train)
    usable = sum(
        split.statistics.lines - len({*split.statistics.blank, *split.statistics.too_long})
        for split in train
    )
    is_small = usable < FEW_PAIRS
    remedy = (
        f", fewer than {FEW_PAIRS:,}: expect low quality. Add data if you can." if is_small else ""
    )
    yield Finding("size", is_small, f"train: {usable:,} usable pairs{remedy}")


def _too_long(train: Split, max_length: int) -> Finding:
    lines = train.statistics.too_long
    share = len(lines) / train.statistics.lines
    pairs = counted(len(lines), "pair")
    limit = f"more than {max_length} tokens on a side (data.max_length)"
    skipped = f"will be skipped ({list_lines(lines)})"
    if not lines:
        return Finding("too long", False, f"{train.name}: no pairs with {limit}")
    if share <= MANY_TOO_LONG:
        return Finding("too long", False, f"{train.name}: {pairs} with {limit} {skipped}")
    text = f"{train.name}: {pairs} ({percent(share)}) with {limit} {skipped}."
    return Finding("too long", True, f"{text} {TABLE['too long']}")


def overlap_findings(split: Split, reference: Split, overlap: Overlap) -> Iterator[Finding]:
    """Judge how many lines of `split` occur in `other`, on which the model is trained."""
    lines = split.statistics.lines
    pairs = len(overlap.pairs)
    sources = len(overlap.sources)
    text = f"{split.name}: {pairs or 'none'} of {lines:,} pairs occur in {reference.name}"
    if pairs > MANY_SHARED_PAIRS * lines:
        places = f"{list_lines(overlap.pairs)} of {split.name}"
        text = f"{text} ({places}), so scores will be too high"
    elif sources > MANY_SHARED_SOURCES * lines:
        words = {"name": split.name, "reference": reference.name, "count": sources, "lines": lines}
        text = TABLE["shared sources"].format(places=list_lines(overlap.sources), **words)
    else:
        yield Finding("overlap", False, text)
        return
    yield Finding("overlap", True, f"{text}. Remove them from {reference.name}.")


def list_lines(lines: Sequence[int]) -> str:
    """Format the first few of some line numbers."""
    numbers = [*map(str, lines[:LISTED]), *(["..."] if len(lines) > LISTED else [])]
    return f"{'lines' if len(lines) > 1 else 'line'} {', '.join(numbers)}"


def list_and_count(lines: Sequence[int]) -> str:
    return list_lines(lines) + (f" ({len(lines):,} in all)" if len(lines) > LISTED else "")


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


SPACED = re.compile(r"\s[.,。、](?=\s|$)")
ATTACHED = re.compile(r"[^\s.,][.,](?=\s|$)|[^\s。、][。、]")
FORMS = [
    (check, row["text"], name, re.compile(pattern))
    for check, row in TABLE["forms"].items()
    for name, pattern in row["patterns"].items()
]
RARE = re.compile("@|\u2581|\uffed|##|[<\\[_]|seq", re.IGNORECASE)  # in all of FORMS
SAMPLE = 2000  # lines that show whether a text is tokenised
LANGUAGE_SAMPLE = 1000  # lines that show whether a text is natural language
MIN_LINES = 20  # with punctuation; not blank
MANY = 0.5  # share of lines that are tokenised, or of KINDS
KINDS = {
    "numbers": re.compile(r"[^\w\s]*\d[\d\s.,:;/%eE+\-()]*[^\w\s]*"),
    "addresses": re.compile(r"(?:[a-zA-Z][\w+.-]*://|www\.|/)\S+|[\w.+-]+@[\w-]+\.[\w.-]+"),
    "identifiers": re.compile(r"(?=[!-~]*[\d_#])[!-~]*[A-Za-z_#][!-~]*"),  # one ASCII word
}


def form_findings(
    file: str, lines: Sequence[str], languages: Sequence[str], table: bool
) -> Iterator[Finding]:
    """Yield the warnings about one side of a split; `table` if the file is a TSV."""
    if (unlike := not_language(lines)) is not None:
        remedy = "Set columns: [SRC, TGT]" if table else "Check that this is the right file"
        text = f"{unlike}; this is not natural language. {remedy}."
        yield Finding("language", True, f"{file}, {text}")
    if is_header(lines[0], languages):
        remedy = "Delete the line." if table else "Delete the line from both files."
        text = f"{file}, line 1: {lines[0].strip()!r} seems to be a header. {remedy}"
        yield Finding("header", True, text)
    rare = _matching(RARE, lines)
    for check, form, name, pattern in FORMS:
        if numbers := [number for number in rare if pattern.search(lines[number - 1])]:
            example = pattern.findall(lines[numbers[0] - 1])[0]
            text = form.format(name=name, example=example, lines=list_and_count(numbers))
            yield Finding(check, True, f"{file}: {text}")
    sample = sample_of(lines, SAMPLE)
    spaced = set(_matching(SPACED, sample))
    attached = set(_matching(ATTACHED, sample))
    total = len(spaced | attached)
    if total >= MIN_LINES and len(spaced) > MANY * total:
        text = TABLE["tokenised"].format(lines=list_and_count(_matching(SPACED, lines)))
        yield Finding("tokenised", True, f"{file}: {text}")


def _matching(pattern: re.Pattern[str], lines: Sequence[str]) -> list[int]:
    return [number for number, line in enumerate(lines, start=1) if pattern.search(line)]


def not_language(lines: Sequence[str]) -> str | None:
    """Describe the first of lines most of which are not natural language; None if they may be."""
    rows = {row + 1: lines[row].strip() for row in sample_rows(len(lines), LANGUAGE_SAMPLE)}
    rows = {row: line for row, line in rows.items() if line}
    unnatural = {row: kind for row, line in rows.items() if (kind := _kind(line))}
    if len(rows) < MIN_LINES or len(unnatural) <= MANY * len(rows):
        return None
    kinds = " or ".join(dict.fromkeys(unnatural.values()))
    first = next(iter(unnatural))
    example = rows[first] if len(rows[first]) <= 40 else f"{rows[first][:37]}..."
    share = 100 * len(unnatural) / len(rows)
    return f"line {first}: {share:.0f}% of the lines are {kinds}, such as {example!r}"


def _kind(line: str) -> str | None:
    return next((kind for kind, pattern in KINDS.items() if pattern.fullmatch(line)), None)
