"""Sentence ends within a line, abbreviations that are no such ends, final marks, and affixes.

Affixes are labels and symbols before a sentence, and symbols after its final mark.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

from seq2seq.text.characters import (
    AFTER_MARKS,
    CLOSING,
    FINAL_QUOTES,
    INITIAL_QUOTES,
    MARKS,
    OPENING,
    QUOTES,
    is_blank,
    is_lower,
    is_spaced,
    is_wide,
)
from seq2seq.text.names.words import is_shortened

_HEAD = re.compile(
    r"""\s*
    (?: [(\[]?\d{1,4}(?:\.\d{1,3})*[.)\]]  # 1.  1.2)  [3]
    |   [(\[]?[^\W\d_][)\]]                # a)
    |   [(\[]?[ivxIVX]{2,5}[.)\]]          # iv.
    |   (?P<letter>[^\W\d_])\.             # a.
    |   [^\W\d_]:                          # Q:
    |   [\#@]\w+                           # #tag
    |   </?[a-zA-Z][^<>]*>                 # <br>
    )\s+""",
    re.VERBOSE,
)
_NUMBER_LABEL = re.compile(  # or a letter that is no ideograph
    r"\s*[(\[]?(?:\d{1,4}(?:\.\d{1,3})*|[^\W\d_\u3400-\u9fff]|[ivxIVX]{2,5})[.)\]]"
)
_MAX_NUMBER_LABEL = 8  # characters
# For classes of characters: any quotation mark opens after a space, and closes after a mark.
_OPENING = re.escape(OPENING)
_BRACKETS = re.escape("".join(c for c in OPENING if unicodedata.category(c) == "Ps"))
_CLOSING = re.escape(CLOSING)
_BEFORE_WORDS = re.escape(OPENING + FINAL_QUOTES)
_AFTER_MARKS = re.escape(AFTER_MARKS)
RAISED = "\u00b9\u00b2\u00b3\u2070-\u2079"  # numbers of footnotes
FOOTNOTES = re.compile(rf"((?<=[{MARKS}{_AFTER_MARKS}])[{RAISED}]+)")
_FRENCH_CLOSING = rf"\s[{FINAL_QUOTES}](?!\w)"  # a closing quotation mark after a space
_TAIL = re.compile(  # a final mark and what closes the sentence, where no word follows
    rf"""
    (?: \.{{2,}} | [{MARKS}] )
    (?: [{_AFTER_MARKS}] | {_FRENCH_CLOSING} )*
    (?: (?=[{RAISED}]) | (?!\w) )  # the number of a footnote is no word
    """,
    re.VERBOSE,
)
_SYMBOL_CATEGORIES = {"So", "Sk", "Cs", "Co"}  # categories of symbols such as emoji
_JOINING = "\u200d\ufe0f\u20e3"  # within emoji
NUMBER = "0"  # any number, among abbreviations: `15.` is an ordinal
# Ends that no space has to follow: of scripts without spaces, and others that no word contains.
_FULL = "".join(mark for mark in MARKS if not mark.isascii() and mark not in "\u2024\u2026")
_NOTES = RAISED + "*\u2020\u2021\u2122\u00ae\u00a9"
END_SHARE = 0.8  # least share of a mark's occurrences at ends of lines, if it ends sentences
# Titles and abbreviations of languages in Latin script, without their full stop.
_COMMON_ABBREVIATIONS = frozenset(
    re.findall(
        r"\w+",
        "Mr Mrs Ms Messrs Mme Mlle Mgr Prof Gen Rev Capt Col Lt Sgt Maj Cmdr Adm Gov Sen Rep Pres "
        "Hon Jr Sr Sra Srta Dra Hr Nr Dipl Ing Fig Vol Ch Chap Sec Art Inc Ltd Corp Co Bros Dept "
        "Univ Ave Av Blvd Rd Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu "
        "Thur Thurs Fri Sat Sun approx vs etc cf al ed eds vol fig chap",
    )
)
_DOTTED = re.compile(
    rf"(?<![^\s{_BEFORE_WORDS}])([^\s{_BEFORE_WORDS}]+)\.(?=\s+[{_BEFORE_WORDS}]*\w)"
)
_SPACE = re.compile(r"\s*")
_WORD = re.compile(rf"[^\s{_BEFORE_WORDS}{_CLOSING},;:!?]+")
_LAST_WORD = re.compile(rf"[^\s{_BEFORE_WORDS}]*$")
_MAX_ABBREVIATION = 40  # characters before a full stop that are examined
_ITEM = re.compile(r"\d{1,3}[)\]]\s")  # number of an item of a list
_MAX_ADDRESS = 200  # characters on either side of a mark that are examined
_LABEL = re.compile(r"\s*(?:[^\W\d_]+\.?\s+|\S\s+)?[\d.]+")  # such as `Step 1`
_MAX_LABEL = 40  # characters
_DOTTED_SHARE = 0.8  # least share of an abbreviation's occurrences within lines with a full stop
_ORDINAL_SHARE = 0.1  # the same of numbers, where ordinals are written so
_ORDINAL_RATIO = 10  # or the multiple of the share of other words that a full stop follows,
_LEAST_ORDINALS = 0.01  # but at least this share
_MIN_COUNT = 2
_MAX_ABBREVIATIONS = 500
UNMARKED = 0.01  # share of source lines without a final mark below which a text hardly has them
COMMON = 0.25  # least share of their translations in which another mark replaces the usual one
_CLOSING_CATEGORIES = {"Pe", "Pf", "Pi", "Ps", "Zs", "Zl", "Zp", "Cc", "Cf"}
_QUOTATION = "\"'`"
_SIGNS = "#%&*/@\\\u2030\u2032\u2033"  # punctuation to Unicode, but part of a text
_ABBREVIATED = re.compile(r"(?<![^\W\d_])(?:[^\W\d_]\.)+[^\W\d_]")


def space_after(text: str) -> str:
    """Return the space between a text and the next one, "" after no text or wide punctuation."""
    is_wide_mark = is_wide(text[-1:] or " ") and unicodedata.category(text[-1])[0] == "P"
    return "" if not text or is_wide_mark else " "


@cache
def _marks(further_marks: str) -> frozenset[str]:
    return frozenset(MARKS + further_marks)


@cache
def _boundary(further_marks: str) -> re.Pattern[str]:
    """Return the pattern of a place where a sentence may end: at MARKS, or further ones."""
    marks = MARKS + re.escape(further_marks)
    begins_none = rf"{_CLOSING}{marks}"  # characters with which no sentence begins
    return re.compile(
        "|".join(
            (
                _before_space(marks, begins_none),
                _of_any_place(begins_none),
                _between_words(begins_none),
            )
        ),
        re.VERBOSE,
    )


def _before_space(marks: str, begins_none: str) -> str:
    """Return the pattern of marks before white space, and of what is around both.

    What closes a sentence are quotation marks, brackets and the signs of notes.
    """
    closing = rf"[{_AFTER_MARKS}{_NOTES}] | \[\d{{1,3}}\] | {_FRENCH_CLOSING}"
    opening = rf"[{_BEFORE_WORDS}] | (?<=[{INITIAL_QUOTES}])\s"
    return rf"""
        (?<![{_BRACKETS}{marks}])
        (?P<end> [{marks}]++ )
        (?P<closing> (?:{closing})*+ )
        \s++
        (?=
            (?P<opening> (?:{opening})* )
            (?P<next> [^\s{begins_none}] )
        )
    """


def _of_any_place(begins_none: str) -> str:
    """Return the pattern of marks that no word contains, with brackets before other brackets.

    A variation selector belongs to its mark.
    """
    return rf"""
        (?<![{_FULL}])
        [{_FULL}]++
        (?:
            (?= [{_OPENING}]* [^\s{begins_none}\ufe0e\ufe0f] )
        |
            [{_CLOSING}]+ (?=[{_OPENING}])
        )
    """


def _between_words(begins_none: str) -> str:
    """Return the pattern of a mark between two words, without white space."""
    return rf"(?<=\S) (?P<joined> [.!?] ) (?= [^\s\d{begins_none}] )"


class SentenceHabits(NamedTuple):
    """Ends of sentences as a text writes them."""

    abbreviations: Collection[str] = ()  # without their full stop
    before_lower: bool = False  # a sentence may begin in lower case
    further_marks: str = ""  # besides MARKS


USUAL_HABITS = SentenceHabits()


def split_sentences(
    line: str, habits: SentenceHabits = USUAL_HABITS, together: int = 1
) -> list[str]:
    """Return the sentences of a line, `together` at a time, without the space between the parts.

    A sentence ends at a full stop, an exclamation or a question mark, also one of another script,
    where white space follows, or a capital letter at once, and then anything but closing
    punctuation or (unless `before_lower`) a lower-case letter. A full stop ends no sentence after
    initials (`J.`), a Latin word without a vowel (`Dr.`), an abbreviation (a common one, or given
    without its full stop) or the number of a label (`Step 1.`), nor before a digit, unless that
    begins a label (`2)`).
    """
    parts = []
    start = 0
    ends = _sentence_ends(line, habits)
    for end in islice(ends, together - 1, None, together):
        parts.append(line[start:end].rstrip())
        start = end
    return [*parts, line[start:]]


def find_marks(lines: Sequence[str]) -> str:
    """Return the marks, besides MARKS, that end lines of a text and hardly occur elsewhere.

    The Greek question mark is one, which Unicode knows as a semicolon.
    """
    ends = Counter(split_ending(line).mark.strip() for line in lines)
    marks = list[str]()
    for mark, count in ends.items():
        is_unknown = len(mark) == 1 and mark not in MARKS
        if is_unknown and count >= UNMARKED * len(lines):
            occurrences = sum(line.count(mark) for line in lines)
            marks += [mark] * (count >= END_SHARE * occurrences)
    return "".join(sorted(marks))


def find_abbreviations(lines: Iterable[str]) -> list[str]:
    """Return the words of a text that nearly always have a full stop, within its lines, sorted.

    NUMBER among them means that numbers are often written with one, as ordinals are in German.
    """
    dotted = Counter[str]()
    words = Counter[str]()
    for line in lines:
        words.update(_key(word.rstrip(".")) for word in _WORD.findall(line))
        if "." in line[:-1]:
            dotted.update(_key(word) for word in _DOTTED.findall(line))
    abbreviations = [
        word
        for word, count in dotted.most_common()
        if count >= _MIN_COUNT and word != NUMBER and count >= _DOTTED_SHARE * words[word]
    ]
    if _has_ordinals(dotted, words, abbreviations):
        abbreviations.insert(0, NUMBER)
    return sorted(abbreviations[:_MAX_ABBREVIATIONS])


def _has_ordinals(
    dotted: Counter[str], words: Counter[str], abbreviations: Collection[str]
) -> bool:
    """Return whether numbers are followed by a full stop far more often than other words are."""
    count = dotted[NUMBER]
    others = dotted.total() - count - sum(dotted[word] for word in abbreviations)
    usual = others / max(1, words.total() - words[NUMBER])
    share = count / max(1, words[NUMBER])
    least = min(_ORDINAL_SHARE, max(_LEAST_ORDINALS, _ORDINAL_RATIO * usual))
    return count >= _MIN_COUNT and share >= least


def _sentence_ends(line: str, habits: SentenceHabits) -> Iterator[int]:
    if _marks(habits.further_marks).isdisjoint(line[:-1]):  # as in most lines
        return
    start = 0
    quotations = _StraightQuotations(line)
    for boundary in _boundary(habits.further_marks).finditer(line):
        if boundary["joined"]:
            is_end = _joins_sentences(line, boundary)
        elif boundary["end"] is None:
            is_label = _is_number_label(line[start : boundary.end()])
            is_end = not is_label and not quotations.end_at(boundary.end(), start)
        elif is_lower(boundary["next"]) and not habits.before_lower:
            is_end = False
        else:
            length = boundary.start() - start
            is_label = length <= _MAX_LABEL and bool(_LABEL.fullmatch(line, start, start + length))
            is_end = not is_label and _ends_sentence(line, boundary, habits.abbreviations)
        if is_end:
            start = boundary.end()
            yield start


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


def _joins_sentences(line: str, boundary: re.Match[str]) -> bool:
    """Return whether a mark without a space after it ends a sentence.

    It does between letters of scripts without spaces, or without capitals but for a full stop, and
    before a capital, but in no address.
    """
    start, end = boundary.span()
    if not is_spaced(line[start - 1]) and not is_spaced(line[end]):
        return line[start] != "." or is_wide(line[end])  # Thai has abbreviations without spaces
    if line[start] != "." and _is_uncased(line[start - 1]) and _is_uncased(line[end]):
        return True
    word = line[max(0, start - 2) : start]
    following = line[end + 1 : end + 2]
    is_before_capital = line[end].isupper() and (is_lower(following) or following.isspace())
    if not (is_before_capital and len(word) > 1 and all(map(is_lower, word))):
        return False
    before = line[max(0, start - _MAX_ADDRESS) : start].rpartition(" ")[2]
    after = line[end : end + _MAX_ADDRESS].partition(" ")[0]
    return not set(before + after[:-1]) & set("./\\@_:")


def _is_uncased(character: str) -> bool:
    """Return whether a character is of a word in a script without capitals."""
    return unicodedata.category(character) in ("Lo", "Mn", "Mc")


def _ends_sentence(line: str, boundary: re.Match[str], abbreviations: Collection[str]) -> bool:
    end = boundary["end"]
    if end[-1] in "!?" and set(boundary["closing"]) & set(QUOTES):
        return bool(boundary["opening"])  # a quotation follows; not so in `"Stop!" Tom said.`
    if end != ".":
        return True
    if ends_in_abbreviation(line, boundary.start(), abbreviations):
        return False
    is_label = _ITEM.match(line, boundary.end()) is not None
    return bool(boundary["opening"]) or is_label or not boundary["next"].isdigit()


def next_visible(text: str, start: int) -> str:
    """Return the first character from a place on that is no white space, or ""."""
    match = _SPACE.match(text, start)
    end = start if match is None else match.end()
    return text[end : end + 1]


def ends_in_abbreviation(text: str, end: int, abbreviations: Collection[str]) -> bool:
    """Return whether the word before a place, where a full stop is, is a shortened one."""
    last = _LAST_WORD.search(text, max(0, end - _MAX_ABBREVIATION), end)
    word = _key(last[0]) if last else ""
    return is_shortened(word) or word in abbreviations or word in _COMMON_ABBREVIATIONS


def _key(word: str) -> str:
    return NUMBER if word.isdigit() else word


class Ending(NamedTuple):
    """A text in three parts."""

    body: str
    mark: str  # a punctuation mark, with white space before it; "" if there is none
    closing: str  # quotation marks, brackets and white space after it


def split_ending(text: str) -> Ending:
    """Split a text at its final mark, if it has one."""
    end = len(text)
    while end and (
        text[end - 1] in _QUOTATION or unicodedata.category(text[end - 1]) in _CLOSING_CATEGORIES
    ):
        end -= 1
    last = text[end - 1 : end]
    is_mark = last and unicodedata.category(last) in ("Po", "Pd") and last not in _SIGNS
    start = len(text[: end - 1].rstrip()) if is_mark else end
    return Ending(text[:start], text[start:end], text[end:])


def usual_marks(src: Sequence[str], tgt: Sequence[str]) -> list[str]:
    """Return the final mark, with spaces before it, of most source lines; then its translations.

    None are returned for a text that has lines without a final mark.
    """
    endings = [split_ending(line).mark for line in src]
    counts = Counter(endings)
    if not endings or counts[""] > UNMARKED * len(endings):
        return []
    ((usual, _),) = counts.most_common(1)
    translated = Counter(
        split_ending(line).mark.strip()
        for mark, line in zip(endings, tgt, strict=True)
        if mark == usual
    )
    least = COMMON * translated.total()
    replacing = [mark for mark, count in translated.most_common() if mark and count > least]
    return [usual, *(mark for mark in replacing if mark != usual.strip())]


def lacks_mark(text: str) -> bool:
    """Return whether a text has words, and no punctuation mark at its end."""
    has_words = any(c.isalnum() or unicodedata.category(c) == "Cn" for c in text)  # or a name's
    return has_words and not split_ending(text).mark


def without_mark(text: str, marks: Iterable[str]) -> str:
    """Remove the final mark of a text if it is one of `marks`; initials and ellipses keep it."""
    body, mark, closing = split_ending(text)
    if mark.strip() not in {usual.strip() for usual in marks} or not mark:
        return text
    if body.endswith(mark) or (mark == "." and _ABBREVIATED.search(body[-16:])):
        return text
    return body + closing


class Affixes(NamedTuple):
    """A sentence between what is before and after it, white space included."""

    head: str
    body: str
    tail: str


def split_affixes(text: str, abbreviations: Collection[str] = ()) -> Affixes:
    """Set aside a label (`1.`, `a)`, `Q:`, `#tag`) or symbols before a text, and its tail.

    A tail has no letters and follows the first end mark after them, with closing quotation marks:
    further end marks, numbers, symbols; or it consists of symbols such as emoji. With NUMBER among
    the abbreviations, a full stop between two numbers is that of an ordinal and no end mark. A text
    without letters is all body.
    """
    if not has_letters(text):
        return Affixes("", text, "")
    start = _end_of_head(text)
    end = _start_of_tail(text, start, abbreviations)
    return Affixes(text[:start], text[start:end], text[end:])


def has_letters(text: str) -> bool:
    """Return whether a text has a letter, or a placeholder of a name."""
    if any(map(str.isalpha, text)):  # the first one, in most texts
        return True
    return any(unicodedata.category(character) == "Cn" for character in text)


def _end_of_head(text: str) -> int:
    label = _HEAD.match(text)
    if label is not None and has_letters(text[label.end() :]) and not _is_initial(label):
        return label.end()
    end = _end_of_number(text)
    if end:
        return end
    for match in re.finditer(r"\S+", text):
        if any(c.isalnum() or c in OPENING or unicodedata.category(c) == "Cn" for c in match[0]):
            start = match.start() + _end_of_bullet(match[0])
            return 0 if is_blank(text[:start]) else start
    return 0


def _is_initial(label: re.Match[str]) -> bool:
    """Return whether a letter with a full stop may be the initial of a name."""
    return label["letter"] is not None and not is_lower(label["letter"])


def _end_of_number(text: str) -> int:
    """Return the end of a label that no space has to follow, such as \u2460 or `\uff11\uff0e`.

    Nor has one to follow a usual label, such as `1.`, before letters of scripts without spaces.
    """
    if text[: _MAX_NUMBER_LABEL + 1].isascii():  # usual labels have a space after them
        return 0
    for end in range(min(_MAX_NUMBER_LABEL, len(text) - 1), 0, -1):
        number = text[:end].lstrip()
        is_single = len(number) == 1 and unicodedata.category(number) == "No"
        if not (is_single or _is_number_label(number)):
            continue
        following = text[end:].lstrip()
        is_usual = unicodedata.normalize("NFKC", number) == number
        if following[:1].isalpha() and not (is_usual and is_spaced(following[0])):
            return len(text) - len(following)
    return 0


def _is_number_label(text: str) -> bool:
    """Return whether a text is a label, such as `1.`, also in full width."""
    if len(text) > _MAX_NUMBER_LABEL:
        return False
    return _NUMBER_LABEL.fullmatch(unicodedata.normalize("NFKC", text)) is not None


def _end_of_bullet(word: str) -> int:
    """Return the end of a bullet at the start of a word of a script without spaces."""
    bullet = word[:1]
    letter = word[1:2]
    is_bullet = unicodedata.category(bullet) in ("Pd", "Po", "So") and bullet not in OPENING
    return 1 if is_bullet and letter.isalpha() and not is_spaced(letter) else 0


def _start_of_tail(text: str, start: int, abbreviations: Collection[str]) -> int:
    """Return the place from which a text has no letters, after an end mark or before symbols."""
    last = next(n for n in range(len(text), start, -1) if has_letters(text[n - 1]))
    marks = _TAIL.finditer(text, last)
    mark = next((m for m in marks if not _is_of_abbreviation(text, m, abbreviations)), None)
    if mark is not None and text[mark.end() :].strip():
        return mark.end()
    end = len(text)
    while end > last and (
        text[end - 1].isspace()
        or text[end - 1] in _JOINING
        or unicodedata.category(text[end - 1]) in _SYMBOL_CATEGORIES
    ):
        end -= 1
    return end if text[end:].strip() else len(text)


def _is_of_abbreviation(text: str, mark: re.Match[str], abbreviations: Collection[str]) -> bool:
    """Return whether a mark is a full stop before a number, as in `No. 5.` or `am 3. 10.`."""
    is_full_stop = mark[0] == "." and next_visible(text, mark.end()).isdigit()
    return is_full_stop and ends_in_abbreviation(text, mark.start(), abbreviations)
