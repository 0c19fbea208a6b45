"""The source profile of a training text, learned from its lines."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import TypedDict

from seq2seq.text import sentences as forms
from seq2seq.text.characters import MARKS
from seq2seq.text.copied_words import CopyHabits, copy_habits, share_numbers
from seq2seq.text.entities import Entities, without_entities
from seq2seq.text.known_words import frequent_words, record_of
from seq2seq.text.line_properties import (
    WORDS,
    first_letter,
    in_capitals,
    in_lower_case,
    in_title_case,
    scripts_of,
    untagged,
)
from seq2seq.text.mark_spacing import MarkSpacing
from seq2seq.text.names.words import any_of
from seq2seq.text.quotes_and_dashes import QuotesAndDashes
from seq2seq.text.sample import sample_rows
from seq2seq.text.sentences import SentenceHabits, has_letters, split_affixes, split_sentences
from seq2seq.text.source_profile import SourceProfile, are_apart
from seq2seq.text.writing import frequent_characters, has_inner_space

MAX_LINES = 50_000  # examined, from all of the training text
MIN_LINES = 100
RARE = 0.05  # share of lines with more sentences than usual
LOWER = 0.01  # share of lines that begin in lower case, where lines begin in capitals
TELLING = 20  # least ratio of the frequencies of a word of one side, here and on the other side
MAX_WORDS = 150  # such words of a side
MAX_CAPITALISED = 8_000  # words that have capitals within lines, some 80 kB
HARDLY = 0.001  # share of lines in capitals, or with a script, below which a text hardly has them
COUNTED = 0.99  # least share of pairs with as many sentences on both sides
_LETTERS = re.compile(r"[^\W\d_]+")


def describe_source(
    lines: Sequence[str], tgt: Sequence[str], symbols: Sequence[str] = (), copies: bool = False
) -> SourceProfile:
    """Describe source lines by MAX_LINES of them; fewer than MIN_LINES do not describe a text.

    Of the symbols of the vocabulary, those that occur at the start of lines alone are tags.
    `copies`: whether the model copies words to the target side, `tgt`.
    """
    if len(lines) < MIN_LINES:
        return SourceProfile()
    rows = sample_rows(len(lines), MAX_LINES)
    sample, tgt_sample = ([side[row] for row in rows] for side in (lines, tgt))
    least = HARDLY * len(sample)
    entities = Entities.of(sample, least)
    sample = list(map(entities.read, sample))
    abbreviations = forms.find_abbreviations(sample)
    shortened = frozenset(abbreviations)
    marks = forms.find_marks(sample)
    quotes = QuotesAndDashes.of(sample, least)
    spacing = MarkSpacing.of(sample, least, shortened)
    sentence_habits = SentenceHabits(shortened, further_marks=marks)
    counts = sorted(len(split_sentences(line, sentence_habits)) for line in sample)
    scripts = Counter(script for line in sample for script in set(scripts_of(line)))
    tags = _tags(sample, symbols)
    untagged_lines = [untagged(line, tags) for line in sample]
    habits = copy_habits(lines, tgt) if copies else CopyHabits()
    src_words, tgt_words = _telling_words(sample, tgt_sample)
    most = (1 - LOWER) * len(sample)
    affixes = [split_affixes(line, shortened, marks) for line in untagged_lines]
    src_marks = usual_final_marks(sample, marks, least)
    has_marks_apart = are_apart(src_marks, spacing.apart)
    tails = ("" if has_marks_apart and forms.is_quotation(tail) else tail for *_, tail in affixes)
    initials = Counter(letter for letter in map(first_letter, sample) if letter)
    capitals = {letter: count for letter, count in initials.items() if letter.isupper()}
    return SourceProfile(
        sentences=counts[len(counts) - 1 - int(RARE * len(counts))],
        abbreviations=abbreviations,
        capitals=sum(map(in_capitals, sample)) > least,
        scripts=sorted(name for name, count in scripts.items() if count > least),
        knows_tags=True,
        tags=tags,
        translated=list(habits.translated),
        copied_forms=list(habits.copied_forms),
        translated_forms=list(habits.translated_forms),
        final_marks=forms.usual_marks(sample, tgt_sample),
        marks=marks,
        characters=frequent_characters(sample, least),
        src_marks=src_marks,
        opening_marks=quotes.opening,
        inner_marks=quotes.inner,
        closing_marks=quotes.closing,
        apart_marks=list(spacing.apart),
        joined_marks=spacing.joined,
        inner_spaces=sum(map(has_inner_space, sample)) > least,
        tgt_characters=frequent_characters(tgt_sample, least),
        tgt_marks=usual_final_marks(tgt_sample, forms.find_marks(tgt_sample), least),
        wordless=sum(not has_letters(line) for line in sample) > least,
        heads=sum(bool(parts.head) for parts in affixes) > least,
        tails=sum(map(bool, tails)) > least,
        begins_in_capitals=sum(capitals.values()) >= (1 - LOWER) * max(1, initials.total()),
        initials="".join(sorted(capitals, key=lambda letter: (-capitals[letter], letter))),
        knows_case=True,
        capitalised=written_words(untagged_lines),
        titles=sum(map(in_title_case, untagged_lines)) > least,
        lower=sum(map(in_lower_case, untagged_lines)) > least,
        tagged=len(untagged_lines) - sum(map(str.__eq__, sample, untagged_lines)) >= most,
        numbers=share_numbers(sample, tgt_sample),
        src_words=src_words,
        tgt_words=tgt_words,
        **_sentences_of_pairs(sample, tgt_sample, sentence_habits),
        known_words=record_of(lines),
        frequent_words=frequent_words(untagged_lines),
        entities=list(entities.usual),
        ordinal_words=forms.words_after_ordinals(sample) if forms.NUMBER in shortened else [],
    )


class _SentencesOfPairs(TypedDict):
    """Fields of a profile on the sentences of translations."""

    tgt_abbreviations: list[str]
    equal_sentences: bool


def _sentences_of_pairs(
    src: Sequence[str], tgt: Sequence[str], habits: SentenceHabits
) -> _SentencesOfPairs:
    """Return whether nearly all translations have as many sentences as their sources."""
    abbreviations = forms.find_abbreviations(tgt)
    of_src = habits._replace(before_lower=True)
    of_tgt = SentenceHabits(
        frozenset(abbreviations), before_lower=True, further_marks=forms.find_marks(tgt)
    )
    equal = sum(
        len(split_sentences(line, of_src)) == len(split_sentences(without_entities(other), of_tgt))
        for line, other in zip(src, tgt, strict=True)
    )
    is_usual = equal >= COUNTED * len(src)
    return {"tgt_abbreviations": abbreviations, "equal_sentences": is_usual}


def written_words(lines: Sequence[str]) -> list[str]:
    """Return words that mostly have capitals within lines, such as NATO, Paris and I.

    The most frequent ones, each with the case that it has most often; the first of a line does not
    count.
    """
    counts = Counter(word for line in lines for word in _LETTERS.findall(line)[1:])
    lower_counts = Counter[str]()
    commonest = dict[str, str]()
    for word, count in counts.most_common():
        commonest.setdefault(word.lower(), word)
        lower_counts[word.lower()] += count
    words = [
        word
        for lower, word in commonest.items()
        if word != lower and counts[word] > 1 and 2 * counts[word] > lower_counts[lower]
    ]
    return words[:MAX_CAPITALISED]


def _telling_words(src: Sequence[str], tgt: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the most frequent words of each side that the other side hardly has."""
    counts = [
        Counter(word for line in side for word in WORDS.findall(line.casefold()))
        for side in (src, tgt)
    ]
    sums = [count.total() for count in counts]
    telling: list[list[str]] = []
    for here, there in ((0, 1), (1, 0)):
        words = (
            word
            for word, count in counts[here].most_common()
            if count > 1 and count * sums[there] > TELLING * counts[there][word] * sums[here]
        )
        telling.append(list(islice(words, MAX_WORDS)))
    return telling[0], telling[1]


def usual_final_marks(lines: Sequence[str], further_marks: str, least: float) -> str:
    """Return the marks with which more than `least` lines end, the most frequent one first."""
    endings = Counter(forms.split_ending(line).mark.strip() for line in lines)
    known = MARKS + further_marks
    marks = [mark for mark, count in endings.most_common() if len(mark) == 1 and count > least]
    return "".join(mark for mark in marks if mark in known)


def _tags(lines: Sequence[str], symbols: Sequence[str]) -> list[str]:
    """Return the symbols that occur in lines, and nowhere but at their start, after other tags."""
    if not symbols:
        return []
    symbol = any_of(symbols)
    names = set(symbols)
    tags = dict[str, None]()
    elsewhere = set[str]()
    for line in lines:
        start = [*takewhile(names.__contains__, line.split(" "))]
        tags.update(dict.fromkeys(start))
        elsewhere.update(symbol.findall(" ".join(line.split(" ")[len(start) :])))
    return [tag for tag in tags if tag not in elsewhere]
