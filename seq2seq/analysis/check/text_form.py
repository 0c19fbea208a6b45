"""Form of a text: segmented, tokenised, with markers, quotes or a header, or no language at all."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from seq2seq.analysis.check.findings import Finding, count_lines, list_and_count
from seq2seq.data.natural_language import describe, not_language
from seq2seq.data.spread import spread

SEGMENTS = {
    "subwords of subword-nmt (@@)": re.compile(r"\S@@(?= |$)"),
    "subwords of SentencePiece (U+2581)": re.compile("\u2581"),
    "joiners of OpenNMT (U+FFED)": re.compile("\uffed"),
    "subwords of WordPiece (##)": re.compile(r"(?<= )##\w"),
    "ends of words (</w>)": re.compile(r"</w>"),
    "joiners of the Moses tokenizer (@-@)": re.compile(r"(?:^| )@[-/,.]@(?= |$)"),
}
MARKER = re.compile(
    r"<\|?/?(?:s|unk|pad|bos|eos|sos|go|start|end|mask|sep|cls|endoftext|\d?[a-z]{2}_[A-Z]{2})\|?>"
    r"|\[(?:CLS|SEP|PAD|UNK|MASK|BOS|EOS|SOS)\]|\b(?:startseq|endseq)\b|\b_(?:START|END)_\b",
    re.IGNORECASE,
)
SPACED, ATTACHED = (
    re.compile(r"\s[.,。、](?=\s|$)"),
    re.compile(r"[^\s.,][.,](?=\s|$)|[^\s。、][。、]"),
)
QUOTED = re.compile(r'\s*"(?:[^"]|"")*"\s*$')  # a field of a CSV file
RARE = re.compile("@|\u2581|\uffed|##|[<\\[_]|seq", re.IGNORECASE)  # in each of SEGMENTS and MARKER
SAMPLE = 2000  # lines that show whether a text is tokenised
MIN_LINES = 20  # with punctuation, or with text
MANY = 0.5  # share of lines that are tokenised, or in quotes
CONSTANT = 0.95  # share of lines that begin with the same word
HEADER_WORDS = frozenset(
    (
        *("column", "columns", "english", "french", "german", "id", "index", "label", "lang"),
        *("language", "line", "original", "pair", "reference", "score", "segment", "sentence"),
        *(
            "sentences",
            "source",
            "src",
            "target",
            "text",
            "tgt",
            "translated",
            "translation",
            "trg",
        ),
    )
)


def form_findings(
    file: str, lines: Sequence[str], languages: Sequence[str], table: bool
) -> Iterator[Finding]:
    """Yield the warnings about one side of a split; `table` if the file is a TSV."""
    if (found := not_language(lines)) is not None:
        text = (
            f"{file}, line {found.line}: {describe(found)}; this is not natural language. "
            f"{'Keep only the columns of text' if table else 'Check that this is the right file'}."
        )
        yield Finding("language", True, text)
    if is_header(lines[0], languages):
        remedy = "Delete the line." if table else "Delete the line from both files."
        text = f"{file}, line 1: {lines[0].strip()!r} seems to be a header. {remedy}"
        yield Finding("header", True, text)
    rare = {number: lines[number - 1] for number in _matching(RARE, lines)}
    yield from _segments(file, rare)
    yield from _markers(file, rare)
    yield from _first_words(file, lines)
    yield from _tokenised(file, lines)
    yield from _quotes(file, lines)


def is_header(line: str, languages: Sequence[str]) -> bool:
    """Return whether all words of a line are names of columns or languages."""
    words = re.findall(r"[^\W\d_]+", line.lower())
    known = HEADER_WORDS | {language.lower() for language in languages}
    return 0 < len(words) <= 3 and known.issuperset(words) and not line.rstrip().endswith(".")


def _segments(file: str, lines: Mapping[int, str]) -> Iterator[Finding]:
    for name, pattern in SEGMENTS.items():
        if found := [number for number, line in lines.items() if pattern.search(line)]:
            text = (
                f"{file}: {name} in {list_and_count(found)}: the text is already segmented, and "
                "translations would be, too. Restore the plain text; the vocabulary segments it."
            )
            yield Finding("segmented", True, text)


def _markers(file: str, lines: Mapping[int, str]) -> Iterator[Finding]:
    found = {number: match[0] for number, line in lines.items() if (match := MARKER.search(line))}
    if found:
        text = (
            f"{file}: markers such as {next(iter(found.values()))} in "
            f"{list_and_count(list(found))}, which are trained on as text. Delete them; training "
            "adds its own start and end of sentence."
        )
        yield Finding("markers", True, text)


def _first_words(file: str, lines: Sequence[str]) -> Iterator[Finding]:
    words = Counter(line.split(maxsplit=1)[0] for line in lines if line.strip())
    total = sum(words.values())
    if total < MIN_LINES:
        return
    (word, count), *_ = words.most_common(1)
    if count >= CONSTANT * total and not MARKER.search(word):
        text = (
            f"{file}: {100 * count / total:.0f}% of the lines begin with {word!r}. If it is a "
            "marker, delete it."
        )
        yield Finding("markers", True, text)


def _tokenised(file: str, lines: Sequence[str]) -> Iterator[Finding]:
    sample = spread(lines, SAMPLE)
    spaced, attached = set(_matching(SPACED, sample)), set(_matching(ATTACHED, sample))
    total = len(spaced | attached)
    if total < MIN_LINES or len(spaced) <= MANY * total:
        return
    found = _matching(SPACED, lines)
    text = (
        f"{file}: tokenised text, with a space before full stops and commas, in "
        f"{list_and_count(found)}: translations would be tokenised, too, and scores would not be "
        "comparable. Use the raw text, or detokenise it; the vocabulary segments it."
    )
    yield Finding("tokenised", True, text)


def _quotes(file: str, lines: Sequence[str]) -> Iterator[Finding]:
    quoted = [n for n, line in enumerate(lines, start=1) if QUOTED.match(line)]
    doubled = [number for number in quoted if '""' in lines[number - 1].strip()[1:-1]]
    filled = sum(bool(line.strip()) for line in lines)
    if len(doubled) == 1:  # a typing error
        doubled = []
    if len(quoted) > MANY * filled and filled >= MIN_LINES:
        doubled = quoted
    if doubled:
        text = (
            f"{file}: quotes of a spreadsheet or CSV file around {count_lines(doubled)} "
            f"({list_and_count(doubled)}); quotes have no special meaning here. Export the table "
            "without quotes."
        )
        yield Finding("quotes", True, text)


def _matching(pattern: re.Pattern[str], lines: Sequence[str]) -> list[int]:
    return [number for number, line in enumerate(lines, start=1) if pattern.search(line)]
