"""What the facts about the data mean for a training, and what to do about it, in words."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from seq2seq.analysis.check.data_statistics import (
    NOT_NFC,
    UNRELATED,
    UNUSUAL_RATIO,
    SideFacts,
    TextFacts,
)
from seq2seq.analysis.check.token_statistics import TextPieces

FEW_PAIRS = 1000
SHOWN = 5  # line numbers of a list that a message shows
# Shares of the lines (or pieces) from which on a warning is given.
MANY_REPEATED, MANY_IDENTICAL, MANY_UNUSUAL, MANY_TOO_LONG = 0.05, 0.05, 0.005, 0.01
MANY_UNKNOWN, MANY_SPELT = 0.05, 0.05

ODD_ADVICE = {  # of each kind: what it is, what to do
    "control": ("control characters or line separators", "a tool joined lines there? Delete them"),
    "tab": ("tabs", "if the file has columns, give it as {tsv: FILE}; else put spaces there"),
    "replacement": (
        "U+FFFD, which stands for characters lost in an earlier conversion,",
        "convert the original again from its right encoding, or delete these pairs",
    ),
    "private use": (
        "private-use characters, which mean something in one font only,",
        "replace them, or delete these pairs",
    ),
    "byte order mark": ("byte order marks", "files were joined there? Delete them"),
    "zero width": (
        "invisible characters, such as zero-width spaces or soft hyphens,",
        "delete them (but not the joiners U+200C and U+200D, which some scripts need)",
    ),
    "wrong encoding": (
        "what looks like UTF-8 read as Latin-1 (two odd signs for one letter)",
        "convert the original again from its right encoding",
    ),
    "HTML": (
        "HTML such as &amp; or &quot;, which the model would learn to write,",
        "unescape it (python -c "
        "'import html,sys; sys.stdout.writelines(map(html.unescape, sys.stdin))')",
    ),
}


class Finding(NamedTuple):
    """What one check found, and what to do about it where it is a warning."""

    check: str
    warning: bool
    text: str


class Split(NamedTuple):
    """One of train, valid and test, with all that is known of it."""

    name: str
    src_file: str
    tgt_file: str
    facts: TextFacts
    pieces: TextPieces


def data_findings(splits: Sequence[Split], max_length: int) -> Iterator[Finding]:
    """What each split shows by itself; a check without a warning is said to be fine once."""
    for check, advise, fine in (
        ("blank", _blank, "no pair has a blank side"),
        ("odd characters", _odd, "no odd characters"),
        ("repeated", _repeated, "hardly any pair stands twice"),
        ("identical", _identical, "the two sides of a pair differ, as translations do"),
        ("unusual lengths", _unusual, "hardly any side is far too long for the other"),
        ("alignment", _alignment, "long lines translate long lines: the sides seem aligned"),
        ("unknown", _unknown, "the vocabulary covers the text"),
    ):
        texts = [text for split in splits for text in advise(split)]
        yield from (Finding(check, True, text) for text in texts)
        if not texts:
            yield Finding(check, False, fine)
    yield _too_long(splits[0], max_length)
    yield _size(splits[0])


def listed(lines: Sequence[int]) -> str:
    """Line numbers in words, the first few of them."""
    shown = ", ".join(map(str, lines[:SHOWN]))
    return f"line{'s' * (len(lines) > 1)} {shown}{', ...' * (len(lines) > SHOWN)}"


def _all_listed(lines: Sequence[int]) -> str:
    """As `listed`, and how many they are, where not all are shown."""
    return f"{listed(lines)}{f' ({len(lines):,} in all)' * (len(lines) > SHOWN)}"


def _blank(split: Split) -> Iterator[str]:
    if lines := split.facts.blank:
        what = "skipped" if split.name != "test" else "scored as they are"
        yield (
            f"{split.name}: {_pairs(lines)} with a blank side ({listed(lines)}) will be {what}: "
            "fill them in, or delete the line from both sides"
        )


def _odd(split: Split) -> Iterator[str]:
    for file, side in ((split.src_file, split.facts.src), (split.tgt_file, split.facts.tgt)):
        for kind, lines in side.odd.items():
            if kind != NOT_NFC:
                what, advice = ODD_ADVICE[kind]
                yield f"{file}: {what} in {_all_listed(lines)}: {advice}"
    yield from _not_nfc(split, split.facts.tgt)


def _not_nfc(split: Split, side: SideFacts) -> Iterator[str]:
    lines = side.odd.get(NOT_NFC)
    if lines and split.name != "train":
        yield (
            f"{split.tgt_file}: text that is not in Unicode's NFC, as translations are, in "
            f"{_all_listed(lines)}: words that look equal count as different in the "
            "score; convert the file (uconv -x nfc)"
        )


def _repeated(split: Split) -> Iterator[str]:
    lines = split.facts.repeated
    if len(lines) > MANY_REPEATED * split.facts.lines:
        yield (
            f"{split.name}: {_pairs(lines)} stand there before ({listed(lines)}) and so count more "
            "than others: keep one of each, unless that is meant"
        )


def _identical(split: Split) -> Iterator[str]:
    lines = split.facts.identical
    if len(lines) > MANY_IDENTICAL * split.facts.lines:
        yield (
            f"{split.name}: {_pairs(lines)} ({_percent(len(lines) / split.facts.lines)}) are the "
            f"same on both sides ({listed(lines)}), which teaches to copy: delete what is not "
            "translated, and check that the two files are not one"
        )


def _unusual(split: Split) -> Iterator[str]:
    lines = split.facts.unusual
    if len(lines) > MANY_UNUSUAL * split.facts.lines:
        yield (
            f"{split.name}: in {_pairs(lines)} one side is more than {UNUSUAL_RATIO} times as "
            f"long as usual for the other ({listed(lines)}): read some, and delete what is no "
            "translation"
        )


def _alignment(split: Split) -> Iterator[str]:
    facts, blocks = split.facts, split.facts.unrelated
    if facts.correlation is not None and facts.correlation < UNRELATED:
        yield (
            f"{split.name}: long lines do not translate long lines (correlation of lengths "
            f"{facts.correlation:.2f}), so line n of {split.tgt_file} seems not to translate line "
            f"n of {split.src_file}: compare some, and mend the order"
        )
    elif blocks:
        yield (
            f"{split.name}: from about {listed(blocks[:1])} on the lengths of the two sides have "
            "nothing in common: a line may be missing on one side there; compare the files from a "
            "little before"
        )


def _unknown(split: Split) -> Iterator[str]:
    for file, side in ((split.src_file, split.pieces.src), (split.tgt_file, split.pieces.tgt)):
        if side.unknown > MANY_UNKNOWN:
            yield (
                f"{file}: {_percent(side.unknown)} of its words are unknown to the vocabulary: "
                "raise vocabulary.size, or set vocabulary.type=unigram, which knows parts of words"
            )
        if side.spelt > MANY_SPELT:
            yield (
                f"{file}: {_percent(side.spelt)} of its pieces are bytes of characters that the "
                "training text lacks: is it in the right language and encoding?"
            )


def _too_long(train: Split, max_length: int) -> Finding:
    lines = train.pieces.too_long
    share = len(lines) / train.facts.lines
    if share <= MANY_TOO_LONG:
        text = f"train: {_pairs(lines)} of more than {max_length} pieces a side will be skipped"
        return Finding("too long", False, f"{text} ({listed(lines)})" if lines else text)
    return Finding(
        "too long",
        True,
        f"train: {_pairs(lines)} ({_percent(share)}) have more than data.max_length "
        f"{max_length} pieces a side and will be skipped ({listed(lines)}): raise it, raise "
        "vocabulary.size (fewer, longer pieces), or cut these lines at sentence ends",
    )


def _size(train: Split) -> Finding:
    usable = train.facts.lines - len(set(train.facts.blank) | set(train.pieces.too_long))
    few = usable < FEW_PAIRS
    advice = ": few for a language; expect little, and add text if you can" if few else ""
    return Finding("size", few, f"train: {usable:,} pairs to learn from{advice}")


def _pairs(lines: Sequence[int]) -> str:
    return f"{len(lines) or 'no'} pair{'s' * (len(lines) != 1)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
