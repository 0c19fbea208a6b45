"""Ends of sentences of a training text, learned: abbreviations, ordinals and final marks."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from seq2seq.text.boundaries import BEFORE_WORDS
from seq2seq.text.characters import CLOSING, MARKS, SENTENCE_TERMINALS
from seq2seq.text.final_marks import may_be_final, split_ending
from seq2seq.text.sentences import NUMBER, word_key

_NON_ASCII_TERMINALS = frozenset(c for c in SENTENCE_TERMINALS if not c.isascii())
OFTEN = 0.05  # share of lines with a mark within them from which their number of sentences matters
END_SHARE = 0.8  # least share of a mark's occurrences at ends of lines, if it ends sentences
_DOTTED = re.compile(rf"(?<![^\s{BEFORE_WORDS}])([^\s{BEFORE_WORDS}]+)\.(?=\s+[{BEFORE_WORDS}]*\w)")
_AFTER_ORDINAL = re.compile(r"(?<=\s)\d{1,3}\.\s+([^\W\d_]+)")
_WORD = re.compile(rf"[^\s{BEFORE_WORDS}{re.escape(CLOSING)},;:!?]+")
_DOTTED_SHARE = 0.8  # least share of an abbreviation's occurrences within lines with a full stop
_ORDINAL_SHARE = 0.1  # the same of numbers, where ordinals are written so
_ORDINAL_RATIO = 10  # or the multiple of the share of other words that a full stop follows,
_LEAST_ORDINALS = 0.01  # but at least this share
_MIN_COUNT = 2
_MAX_ABBREVIATIONS = 500
UNMARKED = 0.01  # share of source lines without a final mark below which a text hardly has them
COMMON = 0.25  # least share of their translations in which another mark replaces the usual one


def endings_of(lines: Iterable[str], own_marks: str = "") -> list[str]:
    """Return the final mark of each line, with white space before it; "" if it has none.

    `own_marks` are those of the text, as `find_marks` returns them.
    """
    return [split_ending(line, own_marks).mark for line in lines]


def find_marks(lines: Sequence[str], endings: Iterable[str]) -> str:
    """Return the marks, besides MARKS, that end lines of a text and hardly occur elsewhere.

    The Greek question mark is one, which Unicode knows as a semicolon, and what is typed for the
    mark of a script, such as `|` in Hindi. One that most of these lines have twice is returned
    twice (see `marks_as_typed`).
    """
    ends = Counter(
        ending.strip() or _final_symbol(line) for line, ending in zip(lines, endings, strict=True)
    )
    marks = list[str]()
    for mark, count in ends.items():
        is_unknown = len(mark) == 1 and mark not in MARKS
        if is_unknown and count >= UNMARKED * len(lines):
            runs = sum(map(len, map(re.compile(f"{re.escape(mark)}+").findall, lines)))
            twice = sum(split_ending(line, mark).mark.strip() == 2 * mark for line in lines)
            if count >= END_SHARE * runs:
                marks.append(2 * mark if 2 * twice > count else mark)
    return "".join(sorted(marks))


def find_pauses(lines: Sequence[str], endings: Iterable[str]) -> str:
    """Return the marks that end statements to Unicode, but no line of a text that often has them.

    Such as the Burmese comma, in a text most of whose lines end in another of these marks.
    """
    ends = Counter(ending.strip()[:1] for ending in endings)
    has_marks = 2 * sum(ends[mark] for mark in SENTENCE_TERMINALS) >= len(lines)
    within = Counter(chain.from_iterable(map(_NON_ASCII_TERMINALS.intersection, lines)))
    pauses = (
        mark
        for mark, count in within.items()
        if count >= OFTEN * len(lines) and ends[mark] <= UNMARKED * count
    )
    return "".join(sorted(pauses)) if has_marks else ""


def _final_symbol(line: str) -> str:
    """Return the symbol after a word that a line ends in, if symbols such as it may be marks."""
    text = line.rstrip()
    symbol = text[-1:]
    word = text.rstrip(symbol).rstrip()
    return symbol if may_be_final(symbol) and word[-1:].isalpha() else ""


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Return how often a text has each word, with the full stops after it."""
    return _counts(_WORD, lines)


def find_abbreviations(lines: Iterable[str], counts: Mapping[str, int]) -> list[str]:
    """Return the words of a text that nearly always have a full stop, within its lines, sorted.

    `counts` are those of `count_words`. NUMBER among the abbreviations means that numbers are often
    written with a full stop, as ordinals are in German.
    """
    words = Counter[str]()
    for word, count in counts.items():
        words[word_key(word.rstrip("."))] += count
    dotted = Counter[str]()
    for word, count in _counts(_DOTTED, filter(_has_inner_stop, lines)).items():
        dotted[word_key(word)] += count
    abbreviations = [
        word
        for word, count in dotted.most_common()
        if count >= _MIN_COUNT and word != NUMBER and count >= _DOTTED_SHARE * words[word]
    ]
    if _has_ordinals(dotted, words, abbreviations):
        abbreviations.insert(0, NUMBER)
    return sorted(abbreviations[:_MAX_ABBREVIATIONS])


def words_after_ordinals(lines: Iterable[str], counts: Mapping[str, int]) -> list[str]:
    """Return the words of a text that often follow a number with a full stop, as months do.

    `counts` are those of `count_words`.
    """
    words_after = _counts(_AFTER_ORDINAL, filter(_has_inner_stop, lines))
    often = [
        word
        for word, count in words_after.most_common(_MAX_ABBREVIATIONS)
        if count >= max(_MIN_COUNT, _ORDINAL_SHARE * counts.get(word, 0))
    ]
    return sorted(often)


def _counts(pattern: re.Pattern[str], lines: Iterable[str]) -> Counter[str]:
    """Return how often each match of a pattern occurs."""
    return Counter(chain.from_iterable(map(pattern.findall, lines)))


def _has_inner_stop(line: str) -> bool:
    return "." in line[:-1]


def _has_ordinals(
    dotted: Counter[str], words: Counter[str], abbreviations: Collection[str]
) -> bool:
    """Return whether numbers are followed by a full stop far more often than other words are."""
    count = dotted[NUMBER]
    others = dotted.total() - count - sum(dotted[word] for word in abbreviations)
    usual_share = others / max(1, words.total() - words[NUMBER])
    share = count / max(1, words[NUMBER])
    least = min(_ORDINAL_SHARE, max(_LEAST_ORDINALS, _ORDINAL_RATIO * usual_share))
    return count >= _MIN_COUNT and share >= least


def usual_marks(src_endings: Sequence[str], tgt_endings: Sequence[str]) -> list[str]:
    """Return the final mark, with spaces before it, of most source lines; then its translations.

    None are returned for a text that has lines without a final mark.
    """
    counts = Counter(src_endings)
    if not src_endings or counts[""] > UNMARKED * len(src_endings):
        return []
    ((usual_mark, _),) = counts.most_common(1)
    translated = Counter(
        translation.strip()
        for mark, translation in zip(src_endings, tgt_endings, strict=True)
        if mark == usual_mark
    )
    least = COMMON * translated.total()
    replacing = [mark for mark, count in translated.most_common() if mark and count > least]
    return [usual_mark, *(mark for mark in replacing if mark != usual_mark.strip())]
