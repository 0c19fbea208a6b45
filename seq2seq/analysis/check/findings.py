"""Findings about the data of a training: place, problem and remedy."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from seq2seq.analysis.check.data_statistics import (
    MAX_RATIO,
    MOJIBAKE,
    NOT_NFC,
    Overlap,
    Resemblance,
    SideStatistics,
    TextStatistics,
    mojibake_test,
)
from seq2seq.runtime.console import counted
from seq2seq.runtime.extras import install_command

FEW_PAIRS = 1000
SHOWN = 5  # line numbers listed in a message
# Shares of pairs, tokens or sources above which a warning is given.
MANY_DUPLICATES, MANY_IDENTICAL, MANY_OUTLIERS, MANY_TOO_LONG = 0.05, 0.05, 0.005, 0.01
MANY_UNKNOWN, MANY_BYTES = 0.05, 0.05
MANY_KNOWN_PAIRS, MANY_KNOWN_SOURCES = 0.01, 0.1
# Cosine similarities: by how much the wrong side must resemble more; of different languages.
MARGIN, FOREIGN = 0.1, 0.1

# An entity that is white space, such as &#10; or &#9;, becomes a single space.
UNESCAPE = (
    'python3 -c \'import html,re,sys; sys.stdout.reconfigure(encoding="utf-8",newline=""); '
    'f=lambda m: " ".join(html.unescape(m[0]).split()) or " "; '
    'sys.stdout.writelines(re.sub("&#?[0-9a-zA-Z]+;",f,x) '
    'for x in open(0,encoding="utf-8",newline="\\n"))' + "' < FILE > NEW"
)

UNUSUAL = {  # description and remedy of each kind of unusual character
    "control": (
        "control characters or line separators",
        "Replace each by a space; where one separates sentences, split the pair on both sides",
    ),
    "tab": ("tabs", "If the file has columns, set {file: FILE.tsv}; otherwise use spaces"),
    "replacement": (
        "U+FFFD, which replaces characters lost in an earlier conversion,",
        "Convert the original again from its correct encoding, or delete these pairs",
    ),
    "private use": (
        "private-use characters, which only one font defines,",
        "Replace them, or delete these pairs",
    ),
    "byte order mark": ("byte order marks of concatenated files", "Delete them"),
    "zero width": (
        "invisible characters, such as zero-width spaces or soft hyphens,",
        "Delete them, except the joiners U+200C and U+200D, which some scripts need",
    ),
    MOJIBAKE: (
        "mojibake (UTF-8 decoded as another encoding)",
        "Convert the original again from its correct encoding, or repair it with ftfy",
    ),
    "HTML": (
        "HTML entities, such as &amp; or &quot;,",
        f"Unescape them, without adding line ends or tabs: {UNESCAPE}",
    ),
}


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
    statistics: TextStatistics


def data_findings(splits: Sequence[Split], max_length: int) -> Iterator[Finding]:
    """Yield the warnings about each split, or one finding for each check that all splits pass."""
    checks: tuple[tuple[str, Callable[[Split], Iterator[str]], str], ...] = (
        ("blank", _blank, "no pairs with a blank side"),
        ("unusual characters", _unusual_characters, "no unusual characters"),
        ("duplicates", _duplicates, "few or no duplicate pairs"),
        ("identical", _identical, "few or no pairs with identical sides"),
        ("length ratio", _length_ratio, "few or no pairs with an unusual length ratio"),
        ("unknown", _unknown, "few or no tokens that the vocabulary lacks"),
    )
    for check, warnings_of, passed in checks:
        texts = [text for split in splits for text in warnings_of(split)]
        yield from (Finding(check, True, text) for text in texts)
        if not texts:
            yield Finding(check, False, passed)
    if mojibake_test() is None:
        text = f"mojibake: not checked; it needs ftfy. Run: {install_command('check')}"
        yield Finding(MOJIBAKE, False, text, done=False)
    train = [split for split in splits if split.name.startswith("train")]
    yield from (_too_long(split, max_length) for split in train)
    yield _size(train)


def overlap_findings(split: Split, other: Split, found: Overlap) -> Iterator[Finding]:
    """Judge how many lines of `split` occur in `other`, on which the model is trained."""
    lines = split.statistics.lines
    pairs, sources = len(found.pairs), len(found.sources)
    known = f"{split.name}: {pairs or 'none'} of {lines:,} pairs occur in {other.name}"
    if pairs > MANY_KNOWN_PAIRS * lines:
        text = f"{known} ({list_lines(found.pairs)} of {split.name}), so scores will be too high"
    elif sources > MANY_KNOWN_SOURCES * lines:
        text = (
            f"{split.name}: {sources:,} of {lines:,} sources occur in {other.name}, with other "
            f"targets ({list_lines(found.sources)} of {split.name}), so scores may be too high"
        )
    else:
        yield Finding("overlap", False, known)
        return
    yield Finding("overlap", True, f"{text}. Remove them from {other.name}.")


def language_findings(split: Split, found: Resemblance) -> Iterator[Finding]:
    """Judge by character trigrams if each side of a split is in the language of that of train."""
    name, place = split.name, f"data.{split.name}"
    src_crosses = found.src_tgt > found.src_src + MARGIN
    tgt_crosses = found.tgt_src > found.tgt_tgt + MARGIN
    if src_crosses and tgt_crosses:
        text = (
            f"{name}: the sides seem to be swapped relative to train. Exchange src and tgt in "
            f"{place} or in data.train."
        )
    elif src_crosses:
        text = (
            f"{name}: the source, {split.src_file}, resembles the target of train. "
            f"Check {place}.src."
        )
    elif tgt_crosses:
        text = (
            f"{name}: the target, {split.tgt_file}, resembles the source of train. "
            f"Check {place}.tgt."
        )
    elif min(found.src_src, found.tgt_tgt) < FOREIGN:
        side = "source" if found.src_src < found.tgt_tgt else "target"
        text = f"{name}: the {side} seems to be in another language than in train. Check {place}."
    else:
        text = f"{name}: each side resembles the same side of train"
        yield Finding("languages", False, text)
        return
    yield Finding("languages", True, text)


def list_lines(lines: Sequence[int]) -> str:
    """Format the first few of some line numbers."""
    shown = ", ".join(map(str, lines[:SHOWN]))
    return f"line{'s' * (len(lines) > 1)} {shown}{', ...' * (len(lines) > SHOWN)}"


def list_and_count(lines: Sequence[int]) -> str:
    return f"{list_lines(lines)}{f' ({len(lines):,} in all)' * (len(lines) > SHOWN)}"


def _blank(split: Split) -> Iterator[str]:
    if lines := split.statistics.blank:
        fate = "skipped" if split.name != "test" else "scored as they are"
        yield (
            f"{split.name}: {_pairs(lines)} with a blank side ({list_lines(lines)}) will be "
            f"{fate}. Fill in the blank side, or delete the pair."
        )


def _unusual_characters(split: Split) -> Iterator[str]:
    for file, side in _sides(split):
        for kind, lines in side.unusual_characters.items():
            if kind != NOT_NFC:
                description, remedy = UNUSUAL[kind]
                yield f"{file}: {description} in {list_and_count(lines)}. {remedy}."
    lines = split.statistics.tgt.unusual_characters.get(NOT_NFC, [])
    if lines and not split.name.startswith("train"):
        yield (
            f"{split.tgt_file}: text that is not in Unicode NFC, as translations are, in "
            f"{list_and_count(lines)}: equal words count as different in the score. "
            "Convert the file (uconv -x nfc)."
        )


def _duplicates(split: Split) -> Iterator[str]:
    lines = split.statistics.duplicates
    if len(lines) > MANY_DUPLICATES * split.statistics.lines:
        yield (
            f"{split.name}: {_pairs(lines)} are duplicates ({list_lines(lines)}) and weigh more "
            "than others. Keep one of each, unless intended."
        )


def _identical(split: Split) -> Iterator[str]:
    lines = split.statistics.identical
    share = len(lines) / split.statistics.lines
    if share > MANY_IDENTICAL:
        yield (
            f"{split.name}: {_pairs(lines)} ({_percent(share)}) have identical sides "
            f"({list_lines(lines)}), which trains the model to copy. Delete untranslated pairs, "
            "and check that src and tgt are different files."
        )


def _length_ratio(split: Split) -> Iterator[str]:
    lines = split.statistics.length_outliers
    if len(lines) > MANY_OUTLIERS * split.statistics.lines:
        yield (
            f"{split.name}: {_pairs(lines)} with one side more than {MAX_RATIO} times as long as "
            f"usual for the other ({list_lines(lines)}). Inspect some, and delete mistranslations."
        )


def _unknown(split: Split) -> Iterator[str]:
    for file, side in _sides(split):
        if side.unknown > MANY_UNKNOWN:
            yield (
                f"{file}: {_percent(side.unknown)} of the words are unknown to the vocabulary. "
                "Raise vocabulary.size, or set vocabulary.type=unigram (subwords)."
            )
        if side.bytes > MANY_BYTES:
            yield (
                f"{file}: {_percent(side.bytes)} of the tokens are bytes, which spell characters "
                f"that are not in the vocabulary, most often {', '.join(side.byte_characters)} "
                f"({list_and_count(side.byte_lines)}). Check the markup, the language and the "
                "encoding of these lines."
            )


def _too_long(train: Split, max_length: int) -> Finding:
    lines = train.statistics.too_long
    share = len(lines) / train.statistics.lines
    limit = f"more than {max_length} tokens on a side (data.max_length)"
    if share <= MANY_TOO_LONG:
        skipped = f" will be skipped ({list_lines(lines)})" * bool(lines)
        return Finding("too long", False, f"{train.name}: {_pairs(lines)} with {limit}{skipped}")
    return Finding(
        "too long",
        True,
        f"{train.name}: {_pairs(lines)} ({_percent(share)}) with {limit} will be skipped "
        f"({list_lines(lines)}). Raise data.max_length, raise vocabulary.size (fewer, longer "
        "tokens), or split these lines at sentence ends.",
    )


def _size(train: Sequence[Split]) -> Finding:
    usable = 0
    for found in (split.statistics for split in train):
        usable += found.lines - len({*found.blank, *found.too_long})
    few = usable < FEW_PAIRS
    remedy = f", fewer than {FEW_PAIRS:,}: expect low quality. Add data if you can." if few else ""
    return Finding("size", few, f"train: {usable:,} usable pairs{remedy}")


def _sides(split: Split) -> Iterator[tuple[str, SideStatistics]]:
    yield split.src_file, split.statistics.src
    yield split.tgt_file, split.statistics.tgt


def _pairs(lines: Sequence[int]) -> str:
    return counted(len(lines), "pair") if lines else "no pairs"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def count_lines(lines: Sequence[int]) -> str:
    """Format the number of some lines."""
    return counted(len(lines), "line")
