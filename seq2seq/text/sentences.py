"""Sentences of a line: where each ends, and the abbreviations and labels that are no such ends."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Container, Iterator
from functools import cache
from itertools import islice
from typing import NamedTuple

from seq2seq.text.boundaries import BEFORE_WORDS, boundaries, end_of_symbols, marks_with
from seq2seq.text.characters import (
    CLOSING,
    COMMAS,
    LABEL_MARKS,
    MARKS,
    OPENING,
    PARTNERS,
    QUOTES,
    SIGNS,
    is_lower,
    is_spaced,
    is_wide,
)
from seq2seq.text.known_words import words_of
from seq2seq.text.names.words import is_shortened

MAX_NUMBER_LABEL = 8  # characters
LIST_NUMBER = r"\d{1,4}(?:\.\d{1,3})*"  # 1 or 1.2, in a pattern of labels
_ADDRESS_SIGNS = frozenset("./\\@_:")
_CLOSING = re.escape(CLOSING)
_OPENING_MARKS = frozenset(OPENING) - frozenset(QUOTES)  # that close nothing at once after a mark
_PARTNERED = frozenset((*PARTNERS, *PARTNERS.values()))
NUMBER = "0"  # any number, among abbreviations: `15.` is an ordinal
# Titles and abbreviations of languages in Latin script, without their full stop.
_TITLES_AND_DATES = (
    "Mr Mrs Ms Messrs Mme Mlle Mgr Prof Gen Rev Capt Col Lt Sgt Maj Cmdr Adm Gov Sen Rep Pres "
    "Hon Jr Sr Sra Srta Dra Hr Nr Dipl Ing Fig Vol Ch Chap Sec Art Inc Ltd Corp Co Bros Dept "
    "Univ Ave Av Blvd Rd Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu "
    "Thur Thurs Fri Sat Sun approx vs etc cf al ed eds vol fig chap"
)
_COMMON_ABBREVIATIONS = frozenset(_TITLES_AND_DATES.split())
_SPACE = re.compile(r"\s*")
_MAX_ABBREVIATION = 40  # characters before a full stop that are examined
MAX_ADDRESS = 200  # characters on either side of a mark that are examined
_MAX_LABEL = 40  # characters


Words = Container[str]


class SentenceHabits(NamedTuple):
    """Ends of sentences as a text writes them."""

    abbreviations: Collection[str] = ()  # without their full stop
    before_lower: bool = False  # a sentence may begin in lower case
    further_marks: str = ""  # besides MARKS; in any order, some twice
    words: Words | None = None  # of the text, in lower case; None: not known
    joins_stops: bool = False  # no space is before its full stops
    ordinal_words: Container[str] = ()  # that follow `3.`, as months do
    pause_marks: str = ""  # MARKS that end no sentence of the text, such as the Burmese comma


USUAL_HABITS = SentenceHabits()
_NOWHERE = range(1 << 62, (1 << 62) + 1)  # beyond any line


def split_sentences(
    line: str, habits: SentenceHabits = USUAL_HABITS, together: int = 1
) -> list[str]:
    """Return the sentences of a line, `together` at a time, without the space between the parts.

    A sentence ends at a full stop, an exclamation or a question mark, also one of another script,
    where white space follows, or a capital letter at once, and then anything but closing
    punctuation or (unless `before_lower`) a lower-case letter. A full stop ends no sentence after
    initials (`J.`), a Latin word without a vowel (`Dr.`), an abbreviation (a common one, or given
    without its full stop) or the number of a label (`Step 1.`), between a number and one of
    `ordinal_words`, nor before a digit, unless that begins a label (`2)`). Before lower case it
    ends none after a word that the text lacks (`ca.`). Within brackets that a sentence continues
    after, no sentence ends.
    """
    parts = []
    start = 0
    ends = _sentence_ends(line, habits)
    for end in islice(ends, together - 1, None, together):
        parts.append(line[start:end].rstrip())
        start = end
    return [*parts, line[start:]]


def count_sentences(line: str, habits: SentenceHabits = USUAL_HABITS) -> int:
    """Return how many sentences `split_sentences` returns, one at a time."""
    return 1 + sum(1 for _ in _sentence_ends(line, habits))


def space_after(text: str) -> str:
    """Return the space between a text and the next one, "" after no text or wide punctuation."""
    is_wide_mark = is_wide(text[-1:] or " ") and unicodedata.category(text[-1])[0] == "P"
    return "" if not text or is_wide_mark else " "


def _sentence_ends(line: str, habits: SentenceHabits) -> Iterator[int]:
    """Yield the places of a line at which its next sentence begins."""
    if marks_with(habits.further_marks).isdisjoint(line[:-1]):  # as in most lines
        return
    start = 0
    quotations = _StraightQuotations(line)
    embedded = _EmbeddedText(line)
    habits_before_lower = _habits_before_lower(line, habits)
    for boundary in boundaries(line, habits.further_marks):
        if embedded.contains(boundary.start()) or boundary[0][0] in habits.pause_marks:
            continue
        if boundary["joined"]:
            end = _end_between_words(line, boundary, habits.words)
        elif boundary["unspaced"]:
            place = end_of_symbols(line, boundary.end())
            end = _end_at_unspaced_mark(line, start, place, quotations)
        elif _continues_in_lower_case(line, boundary, habits_before_lower):
            end = None
        else:
            end = _end_before_space(boundary, start, quotations, habits)
        if end is not None:
            start = end
            yield end


class _EmbeddedText:
    """Text in brackets after which a sentence continues; it is asked about places in order."""

    def __init__(self, line: str) -> None:
        self._spans = _embedded_brackets(line)
        self._span = next(self._spans, _NOWHERE)

    def contains(self, place: int) -> bool:
        while self._span.stop <= place:
            self._span = next(self._spans, _NOWHERE)
        return place in self._span


def _embedded_brackets(line: str) -> Iterator[range]:
    """Return, in order, the text in brackets or quotation marks after which a sentence continues.

    As in \u300cA\u3002B\u3002\u300d\u3068\u8a00\u3063\u305f: a letter of a script without spaces, a
    comma, or a letter in lower case follows.
    """
    spans = list[range]()
    if _PARTNERED.isdisjoint(line):  # as in most lines
        return iter(spans)
    for span in _bracketed(line):
        if _is_continued(line, span.stop + 1):
            while spans and spans[-1].start > span.start:  # within this one
                spans.pop()
            spans.append(span)
    return iter(spans)


def _bracketed(line: str) -> Iterator[range]:
    """Yield the text in each pair of brackets, inner ones first, with the bracket that opens it."""
    opened = list[re.Match[str]]()
    awaited = Counter[str]()  # brackets that close those
    for bracket in _partnered().finditer(line):
        if bracket[0] in PARTNERS:
            opened.append(bracket)
            awaited[PARTNERS[bracket[0]]] += 1
        partner = ""
        while awaited[bracket[0]] and partner != bracket[0]:  # others are never closed
            start = opened.pop()
            partner = PARTNERS[start[0]]
            awaited[partner] -= 1
        if partner == bracket[0]:
            yield range(start.start(), bracket.start())


def _is_continued(line: str, end: int) -> bool:
    """Return whether a sentence continues after the bracket that ends there."""
    following = _continues().match(line, end)
    character = following["next"] if following else ""
    if following is not None and following["space"]:
        return is_lower(character)
    return character in COMMAS or (character.isalpha() and not is_spaced(character))


def _habits_before_lower(line: str, habits: SentenceHabits) -> SentenceHabits:
    """Return habits without words for a line in lower case, which does not show its sentences."""
    begins_in_lower = habits.before_lower and is_lower(next(filter(str.isalpha, line), ""))
    return habits._replace(words=None) if begins_in_lower else habits


def _continues_in_lower_case(line: str, boundary: re.Match[str], habits: SentenceHabits) -> bool:
    """Return whether a sentence continues after a mark, with a word in lower case.

    A sign may be before that word as a token, such as the first of `& lt ;`.
    """
    following = boundary["next"]
    if following in SIGNS and line[boundary.end() + 1 : boundary.end() + 2].isspace():
        following = next_visible(line, boundary.end() + 1)
    return is_lower(following) and not _ends_before_lower(line, boundary, habits)


def _ends_before_lower(line: str, boundary: re.Match[str], habits: SentenceHabits) -> bool:
    """Return whether a sentence may end before lower case.

    It does not at an ellipsis, or after a word that the text lacks.
    """
    end = boundary["end"]
    if not habits.before_lower:
        return False
    if habits.words is not None and (end.startswith("..") or end == "\N{HORIZONTAL ELLIPSIS}"):
        return False
    if end != ".":
        return True
    word = _word_before(line, boundary.start())
    if _has_stops(word):
        return False
    return habits.words is None or are_words(word, habits.words)


def _end_at_unspaced_mark(
    line: str, start: int, place: int, quotations: "_StraightQuotations"
) -> int | None:
    """Return where the sentence from `start` on ends, if marks before a place end it.

    They do not in a label, nor before a quotation mark that closes, unless another one opens then.
    """
    if not line[place : place + 1].strip():
        return None
    if quotations.end_at(place, start):
        if line[place + 1 : place + 2] not in QUOTES:
            return None
        place += 1
    return None if is_number_label(line[start:place]) else place


def _end_before_space(
    boundary: re.Match[str], start: int, quotations: "_StraightQuotations", habits: SentenceHabits
) -> int | None:
    """Return where the sentence from `start` on ends, if marks before white space end it."""
    line = boundary.string
    if _is_label(line, start, boundary):
        return None
    closing, end = _closing_and_next(boundary, quotations, start)
    return end if _ends_sentence(line, boundary, closing, habits) else None


def _closing_and_next(
    boundary: re.Match[str], quotations: "_StraightQuotations", start: int
) -> tuple[str, int]:
    """Return what closes the sentence from `start` on, and the place of the next sentence.

    A straight quotation mark between spaces closes a quotation of this sentence, or opens the next.
    """
    closing = boundary["closing"]
    if not boundary["apart"]:
        return closing, boundary.end()
    if quotations.end_at(boundary.start("apart"), start):
        return closing + boundary["apart"], boundary.end()
    return closing, boundary.start("apart")


def _is_label(line: str, start: int, boundary: re.Match[str]) -> bool:
    if boundary.start() - start > _MAX_LABEL:
        return False
    has_label = _label().fullmatch(line, start, boundary.start()) is not None
    return has_label or is_number_label(line[start : boundary.end("end")])


class _StraightQuotations:
    """Counts the straight quotation marks of a sentence, each part of a line once."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._start = 0
        self._counts: dict[str, tuple[int, int]] = {}  # of a mark, and up to which place

    def end_at(self, place: int, start: int) -> bool:
        """Return whether the mark at a place closes one of the sentence from `start` on."""
        mark = self._line[place : place + 1]
        if mark not in ('"', "'"):
            return False
        if start != self._start:
            self._start = start
            self._counts = {}
        count, counted = self._counts.get(mark, (0, start))
        count += self._line.count(mark, counted, place)
        self._counts[mark] = count, place
        return count % 2 == 1


def _end_between_words(line: str, boundary: re.Match[str], words: Words | None) -> int | None:
    """Return where the sentence ends that a mark without a space after it may end."""
    end = end_of_symbols(line, boundary.end())
    return end if _joins_sentences(line, boundary, end, words) else None


def _joins_sentences(line: str, boundary: re.Match[str], end: int, words: Words | None) -> bool:
    """Return whether a mark without a space after it ends a sentence; the next word is at `end`.

    It does between letters of scripts without spaces, or without capitals but for a full stop with
    no symbol after it, and, as an ellipsis does, before a capital, but in no address. A space may
    be before the mark, on the wrong side.
    """
    mark = boundary["joined"]
    stops = _stops_before(line, boundary.start())
    start = boundary.start() - stops
    while line[end : end + 1] in _OPENING_MARKS:
        end += 1
    if start == 0 or not line[end : end + 1].isalpha():
        return False
    is_ellipsis = stops > 0 or mark == "\N{HORIZONTAL ELLIPSIS}"
    may_shorten = mark == "." and end == boundary.end()  # as in Thai, which has no spaces
    if line[start - 1].isspace():
        start -= 1
        following_word = _word_from().match(line, end)
        if following_word is None or not begins_sentence(mark, following_word[0], words):
            return False
    if not is_ellipsis:
        if not is_spaced(line[start - 1]) and not is_spaced(line[end]):
            return not may_shorten or is_wide(line[end])
        if not may_shorten and _is_uncased(line[start - 1]) and _is_uncased(line[end]):
            return True
    return _is_before_capital(line, start, end) and not _is_in_address(line, start, end)


def _is_before_capital(line: str, start: int, end: int) -> bool:
    """Return whether a word in lower case ends at `start`, and one with a capital begins at `end`.

    One in capitals, as in an abbreviation, does not count.
    """
    last_letters = line[max(0, start - 2) : start]
    second_letter = line[end + 1 : end + 2]
    begins = line[end].isupper() and (is_lower(second_letter) or second_letter.isspace())
    return begins and len(last_letters) > 1 and all(map(is_lower, last_letters))


def _is_in_address(line: str, start: int, end: int) -> bool:
    """Return whether what is joined at a mark is an address: it has further signs of one."""
    text_before = line[max(0, start - MAX_ADDRESS) : start].rpartition(" ")[2]
    text_after = line[end : end + MAX_ADDRESS].partition(" ")[0]
    return not _ADDRESS_SIGNS.isdisjoint(text_before + text_after[:-1])


def _stops_before(line: str, end: int) -> int:
    """Return how many full stops are before a place, as in an ellipsis."""
    text_before = line[max(0, end - MAX_ADDRESS) : end]
    return len(text_before) - len(text_before.rstrip("."))


def begins_sentence(mark: str, word: str, words: Words | None) -> bool:
    """Return whether a word may begin a sentence after a final mark with the space before it.

    After a full stop or an exclamation mark, with which names begin, too, it is one of the `words`
    of the text, and after a full stop it begins in a capital: `.net`, `!Kung`.
    """
    if mark not in MARKS:
        return False
    if mark not in ".!":
        return True
    is_capital = not is_lower(word[:1]) and not word[1:2].isupper()
    return (is_capital or mark == "!") and words is not None and are_words(word, words)


def are_words(text: str, words: Words) -> bool:
    """Return whether the words of a text are all among those given in lower case."""
    return all(word in words for word in words_of(text.casefold()))


def _is_uncased(character: str) -> bool:
    """Return whether a character is of a word in a script without capitals."""
    is_without_capital = character.islower() and not is_lower(character)
    return is_without_capital or unicodedata.category(character) in ("Lo", "Mn", "Mc")


def _ends_sentence(
    line: str, boundary: re.Match[str], closing: str, habits: SentenceHabits
) -> bool:
    end = boundary["end"]
    if end[-1] in "!?" and not set(closing).isdisjoint(QUOTES):
        follows = boundary["opening"] and not boundary["dash"]
        return bool(follows)  # a quotation; not so in `"Stop!" Tom said.`
    if end != ".":
        return True
    stop = boundary.start()
    if habits.joins_stops and line[stop - 1 : stop] == " ":  # as a tokenizer writes them
        stop -= 1
    if ends_in_abbreviation(line, stop, habits.abbreviations):
        return False
    if line[stop - 1].isdecimal() and _is_before(boundary, habits.ordinal_words):
        return False
    is_label = _item().match(line, boundary.end()) is not None
    begins = bool(boundary["opening"] or boundary["dash"])
    return begins or is_label or not boundary["next"].isdecimal()


def _is_before(boundary: re.Match[str], words: Container[str]) -> bool:
    """Return whether one of the words follows a boundary at once."""
    word = _letters().match(boundary.string, boundary.end())
    return word is not None and word[0] in words


def next_visible(text: str, start: int) -> str:
    """Return the first character from a place on that is no white space, or ""."""
    match = _SPACE.match(text, start)
    end = start if match is None else match.end()
    return text[end : end + 1]


def ends_in_abbreviation(text: str, end: int, abbreviations: Collection[str]) -> bool:
    """Return whether the word before a place, where a full stop is, is a shortened one."""
    word = word_key(_word_before(text, end))
    return is_shortened(word) or word in abbreviations or word in _COMMON_ABBREVIATIONS


def ends_in_letter_with_stop(text: str, end: int) -> bool:
    """Return whether the word before a place has full stops of its own, as `Ph.D` has."""
    return _has_stops(_word_before(text, end))


def _has_stops(word: str) -> bool:
    return word[-2:-1] == "."


def _word_before(text: str, end: int) -> str:
    text_before = text[max(0, end - _MAX_ABBREVIATION) : end]
    if text_before == "" or text_before[-1].isspace():
        return ""
    word = text_before.rsplit(maxsplit=1)[-1]
    return word if word.isalnum() else _before_word().split(word)[-1]


def word_key(word: str) -> str:
    """Return a word as abbreviations have it, in which all numbers are NUMBER."""
    return NUMBER if word.isdigit() else word


def is_number_label(text: str) -> bool:
    """Return whether a text is a label, such as `1.`, also in full width."""
    if len(text) > MAX_NUMBER_LABEL:
        return False
    return _number_label().fullmatch(unicodedata.normalize("NFKC", text)) is not None


@cache
def _number_label() -> re.Pattern[str]:
    """Return the pattern of a label: a number, a letter that is no ideograph, or iv."""
    return re.compile(
        rf"""\s*(?:
            [(\[]?
            (?: {LIST_NUMBER} | [^\W\d_\u3400-\u9fff] | [ivxIVX]{{2,5}} )
            [.)\]]
        |
            \d{{1,4}}[{LABEL_MARKS}]
        )""",
        re.VERBOSE,
    )


@cache
def _label() -> re.Pattern[str]:
    """Return the pattern of a label such as `Step 1`."""
    return re.compile(r"\s*(?:[^\W\d_]+\.?\s+|\S\s+)?[\d.]+")


@cache
def _item() -> re.Pattern[str]:
    """Return the pattern of the number of an item of a list."""
    return re.compile(r"\d{1,3}(?:[)\]]|\ufe0f?\u20e3)\s")


@cache
def _letters() -> re.Pattern[str]:
    return re.compile(r"[^\W\d_]+")


@cache
def _word_from() -> re.Pattern[str]:
    """Return the pattern of what a word has from some place on."""
    return re.compile(rf"[^\s{BEFORE_WORDS}{_CLOSING}]{{0,40}}")


@cache
def _before_word() -> re.Pattern[str]:
    return re.compile(f"[{BEFORE_WORDS}]")


@cache
def _continues() -> re.Pattern[str]:
    """Return the pattern of what follows a bracket: others that close, a space, a character."""
    return re.compile(rf"[{_CLOSING}]*+(?P<space>\s*)(?P<next>.?)", re.DOTALL)


@cache
def _partnered() -> re.Pattern[str]:
    return re.compile(f"[{re.escape(''.join(_PARTNERED))}]")
