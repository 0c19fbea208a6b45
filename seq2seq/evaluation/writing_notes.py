"""Notes on references that are written otherwise than the translations: scores fall by it."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from seq2seq.runtime.errors import argument
from seq2seq.text.characters import QUOTES
from seq2seq.text.sample import sample_rows

_SAMPLE = 2000  # lines that are compared
_UNLIKE = 0.5  # difference between two shares of lines that writing alone explains
_ALWAYS, _NEVER = 0.1, 0.01  # shares of lines with a form that a text has, or hardly has
_FEWEST = 3  # lines with a mark that the other text writes otherwise
_FREQUENT = 0.02  # share of lines, likewise
_STRAY = 0.1  # of the lines with a mark, those that the other text may have, too
_SHIFTS = (-2, -1, 1, 2)  # lines
_SHIFTED = 2.0  # times the likeness of lines beside each other
_LIKE = 0.05  # least likeness of lines that belong together
_FEWEST_SHIFTED = 10  # lines
_GRAM = 4  # characters of the n-grams by which lines are alike

_SPACED = re.compile(r"\s[^\w\s](?=\s|$)")
_ATTACHED = re.compile(r"\w[^\w\s](?=\s|$)")
_ENTITY = re.compile(r"&(?:\w+|#\d+|#x[0-9a-fA-F]+);")
_QUOTATION = frozenset(QUOTES)
_PIECE = re.compile("@@(?=\\s|$)|\u2581|\uffed")


_Mark = tuple[str, bool]  # a mark, and whether it follows a space


class Texts(NamedTuple):
    """Corresponding lines of translations and a reference."""

    hypotheses: Sequence[str]
    references: Sequence[str]


def writing_notes(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> list[str]:
    """Return how a reference is written otherwise than the translations, with a remedy for each.

    With `lowercase`, scores ignore case.
    """
    rows = list(sample_rows(len(references), _SAMPLE))
    texts = Texts([hypotheses[row] for row in rows], [references[row] for row in rows])
    notes = [*_forms(texts), *([] if lowercase else _cases(texts)), *_marks(texts)]
    if (shift := shift_of(hypotheses, references)) is not None:
        line = "line" if abs(shift) == 1 else "lines"
        place = "below" if shift > 0 else "above"
        text = f"references seem to be {abs(shift)} {line} {place} the translations"
        notes.append(f"{text}; look for a missing line in one of the files")
    return notes


def _share(has: Callable[[str], object], lines: Sequence[str]) -> float:
    """Return the share of the lines with a form."""
    return sum(map(bool, map(has, lines))) / max(1, len(lines))


def _forms(texts: Texts) -> Iterator[str]:
    """Yield notes on tokenised, segmented and escaped text of one side."""
    for kind, pattern, remedy in (
        ("subword pieces such as @@ or \u2581", _PIECE, "join them first"),
        ("HTML entities", _ENTITY, "unescape them first"),
    ):
        shares = _share(pattern.search, texts.hypotheses), _share(pattern.search, texts.references)
        if max(shares) > _ALWAYS / 2 and min(shares) < _NEVER:
            yield f"{_side(shares)} have {kind}, and {_other(shares)} do not; {remedy}"
    shares = _spaced(texts) or (0.0, 0.0)
    if abs(shares[0] - shares[1]) > _UNLIKE:
        text = f"{_side(shares)} seem to be tokenised (spaces before {max(shares):.0%} of"
        text = f"{text} their marks), and {_other(shares)} do not ({min(shares):.0%})"
        yield f"{text}; detokenise them first, or compare with scores of tokenised text alone"


def _spaced(texts: Texts) -> tuple[float, float] | None:
    """Return each side's share of marks at the ends of words that follow a space; None without any.

    Of few marks, those alone count that both sides have in a line.
    """
    rows = [tuple(map(_marks_at_ends, pair)) for pair in zip(*texts, strict=True)]
    if min(sum(len(row[side]) for row in rows) for side in (0, 1)) < _FEWEST:
        rows = [_of_both(*row) for row in rows]
    ours, theirs = ([is_spaced for row in rows for _, is_spaced in row[side]] for side in (0, 1))
    return (sum(ours) / len(ours), sum(theirs) / len(theirs)) if ours and theirs else None


def _of_both(ours: list[_Mark], theirs: list[_Mark]) -> tuple[list[_Mark], ...]:
    """Return the marks of two lines that both have."""
    common = {mark for mark, _ in ours} & {mark for mark, _ in theirs}
    return tuple([mark for mark in marks if mark[0] in common] for marks in (ours, theirs))


def _marks_at_ends(line: str) -> list[_Mark]:
    """Return the marks at the ends of words, and whether each follows a space."""
    spaced = [(mark[-1], True) for mark in _SPACED.findall(line)]
    return spaced + [(mark[-1], False) for mark in _ATTACHED.findall(line)]


def _cases(texts: Texts) -> Iterator[str]:
    """Yield notes on text in lower case, or in capitals, of one side."""
    for kind, is_so in (("in lower case", str.islower), ("in capitals", str.isupper)):
        shares = _share(is_so, texts.hypotheses), _share(is_so, texts.references)
        if abs(shares[0] - shares[1]) > _UNLIKE:
            remedy = f"{argument('lowercase')} ignores case"
            text = f"{_side(shares)} are {kind} ({max(shares):.0%} of the lines), and"
            yield f"{text} {_other(shares)} are not ({min(shares):.0%}); {remedy}"


def _marks(texts: Texts) -> Iterator[str]:
    """Yield a note on marks that each side writes otherwise, such as two kinds of apostrophes."""
    ours, theirs = map(_lines_by_mark, texts)
    pairs = [
        (mark, other)
        for mark, lines in ours.items()
        for other, other_lines in theirs.items()
        if _is_same_kind(mark, other)
        and len(theirs.get(mark, ())) <= _STRAY * len(lines)
        and len(ours.get(other, ())) <= _STRAY * len(other_lines)
        and min(len(lines), len(other_lines)) >= _FREQUENT * len(texts.references)
        and len(lines & other_lines) > _UNLIKE * min(len(lines), len(other_lines))
        and (
            min(len(lines), len(other_lines)) >= _FEWEST
            or _in_equal_words(texts, lines & other_lines, mark, other)
        )
    ]
    if pairs:
        hypothesis_marks = " ".join(dict.fromkeys(mark for mark, _ in pairs))
        reference_marks = " ".join(dict.fromkeys(other for _, other in pairs))
        text = f"references write {reference_marks} where translations write {hypothesis_marks}"
        yield f"{text}; write one of them in both"


def _in_equal_words(texts: Texts, rows: Iterable[int], mark: str, other: str) -> bool:
    """Return whether a word differs between corresponding lines by these marks alone."""
    return any(
        word.replace(mark, other) in texts.references[row].split()
        for row in rows
        for word in texts.hypotheses[row].split()
        if mark in word and any(map(str.isalnum, word))
    )


def _is_same_kind(mark: str, other: str) -> bool:
    """Return whether two marks are forms of one: of quotation marks, of hyphens, of full stops."""
    if mark == other:
        return False
    categories = {unicodedata.category(character) for character in (mark, other)}
    if categories == {"Pd"} or _QUOTATION.issuperset((mark, other)):
        return True
    names = [f" {unicodedata.name(character, character)}" for character in (mark, other)]
    return names[0].endswith(names[1]) or names[1].endswith(names[0])


def _lines_by_mark(lines: Sequence[str]) -> dict[str, set[int]]:
    """Return the numbers of the lines that have a mark, for each."""
    numbers: dict[str, set[int]] = {}
    for number, line in enumerate(lines):
        for character in {*_ENTITY.sub("", _PIECE.sub("", line))}:
            if unicodedata.category(character)[0] in "PS":
                numbers.setdefault(character, set()).add(number)
    return numbers


def shift_of(hypotheses: Sequence[str], references: Sequence[str]) -> int | None:
    """Return by how many lines the references are below the translations; None by none.

    A line that is missing in the middle moves the second half alone.
    """
    half = len(references) // 2
    for start, end in ((0, len(references)), (half, len(references))):
        if end - start < _FEWEST_SHIFTED:
            continue
        rows = [start + row for row in sample_rows(end - start, _SAMPLE // 4)]
        likeness = {
            shift: _likeness(hypotheses, references, rows, shift) for shift in (0, *_SHIFTS)
        }
        best = max(likeness, key=likeness.__getitem__)
        if likeness[best] > max(_LIKE, _SHIFTED * likeness[0]):
            return best
    return None


def _likeness(
    hypotheses: Sequence[str], references: Sequence[str], rows: Sequence[int], shift: int
) -> float:
    """Return the share of n-grams of characters that lines have in common with shifted ones."""
    common = total = 0
    for row in rows:
        if 0 <= row + shift < len(references):
            ours = _grams(hypotheses[row])
            theirs = _grams(references[row + shift])
            common += 2 * (ours & theirs).total()
            total += ours.total() + theirs.total()
    return common / total if total else 0.0


def _grams(line: str) -> Counter[str]:
    text = "".join(character for character in line.casefold() if character.isalnum())
    return Counter(text[start : start + _GRAM] for start in range(len(text) - _GRAM + 1))


def _side(shares: tuple[float, float]) -> str:
    return "references" if shares[1] > shares[0] else "translations"


def _other(shares: tuple[float, float]) -> str:
    return "translations" if shares[1] > shares[0] else "references"
