"""The source profile of a training text, learned from a sample of its lines.

Each function adds what it learns to the profile; `describe_source` has the list.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice, takewhile

from seq2seq.text.affixes import is_quotation, split_affixes, split_brackets
from seq2seq.text.characters import AFTER_MARKS, MARKS, normalized
from seq2seq.text.copied_words import copy_habits, share_numbers
from seq2seq.text.entities import Entities, without_entities
from seq2seq.text.final_marks import marks_as_typed
from seq2seq.text.known_words import frequent_words, record_of
from seq2seq.text.learned_sentences import (
    count_words,
    endings_of,
    find_abbreviations,
    find_marks,
    find_pauses,
    usual_marks,
    words_after_ordinals,
)
from seq2seq.text.line_properties import (
    WORDS,
    first_letter,
    has_letters,
    in_capitals,
    in_lower_case,
    in_title_case,
    scripts_of,
    untagged,
)
from seq2seq.text.mark_spacing import MarkSpacing
from seq2seq.text.names.words import any_of
from seq2seq.text.quote_spacing import QuoteSpacing
from seq2seq.text.quotes_and_dashes import QuotesAndDashes
from seq2seq.text.sample import sample_rows
from seq2seq.text.sentences import SentenceHabits, count_sentences
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
_CLOSING = f"{AFTER_MARKS} "  # after a final mark


def describe_source(
    lines: Sequence[str], tgt: Sequence[str], symbols: Sequence[str] = (), copies: bool = False
) -> SourceProfile:
    """Describe source lines by MAX_LINES of them; fewer than MIN_LINES do not describe a text.

    Of the symbols of the vocabulary, those that occur at the start of lines alone are tags.
    Lines are read in NFC, as models are trained on them.
    `copies`: whether the model copies words to the target side, `tgt`.
    """
    if len(lines) < MIN_LINES:
        return SourceProfile()
    text = _TrainingText(_in_nfc(lines), _in_nfc(tgt), symbols)
    profile = SourceProfile()
    for learn in (
        _with_tags,
        _with_characters,
        _with_marks,
        _with_sentences,
        _with_labels_and_tails,
        _with_first_letters,
        _with_case,
        _with_words,
    ):
        profile = learn(profile, text)
    return _with_copied_words(profile, text) if copies else profile


def _in_nfc(lines: Iterable[str]) -> list[str]:
    return [line if line.isascii() else normalized(line) for line in lines]


class _Side:
    """Lines of one side, and what several habits are learned from."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    @cached_property
    def endings(self) -> list[str]:
        """Return the final mark of each line, with white space before it."""
        own_marks = self.further_marks
        return endings_of(self.lines, own_marks) if own_marks else self._usual_endings

    @cached_property
    def further_marks(self) -> str:
        """Return the marks that end sentences, besides those of Unicode."""
        return find_marks(self.lines, self._usual_endings)

    @cached_property
    def pause_marks(self) -> str:
        """Return the marks that end sentences elsewhere, and none of this text."""
        return find_pauses(self.lines, self._usual_endings)

    @cached_property
    def _usual_endings(self) -> list[str]:
        return endings_of(self.lines)

    @cached_property
    def abbreviations(self) -> list[str]:
        """Return the words that nearly always have a full stop, without it."""
        return find_abbreviations(self.lines, self._word_counts)

    @cached_property
    def words_after_ordinals(self) -> list[str]:
        """Return the words that often follow a number with a full stop."""
        return words_after_ordinals(self.lines, self._word_counts)

    @cached_property
    def _word_counts(self) -> Counter[str]:
        return count_words(self.lines)

    def final_marks(self, least: float) -> str:
        """Return the marks with which more than `least` lines end, the most frequent one first."""
        endings = Counter(map(str.strip, self.endings))
        marks = [mark for mark, count in endings.most_common() if count > least]
        return "".join(mark for mark in marks if mark in self._known_marks)

    @cached_property
    def _known_marks(self) -> frozenset[str]:
        """Return the marks of Unicode, and those of the text, which it may type twice."""
        return frozenset((*MARKS, *marks_as_typed(self.further_marks)))


class _TrainingText:
    """All pairs of a training text, and a sample of them, in which entities are characters."""

    def __init__(self, lines: Sequence[str], tgt: Sequence[str], symbols: Sequence[str]) -> None:
        self.all_src = lines
        self.all_tgt = tgt
        rows = sample_rows(len(lines), MAX_LINES)
        sample = [lines[row] for row in rows]
        self.least = HARDLY * len(sample)  # lines with what a text has
        self.entities = Entities.of(sample, self.least)
        self.src = _Side([self.entities.read(line) for line in sample])
        self.tgt = _Side([tgt[row] for row in rows])
        self.tags = _tags(self.src.lines, symbols)
        self.untagged = [untagged(line, self.tags) for line in self.src.lines]

    @cached_property
    def sentence_habits(self) -> SentenceHabits:
        """Return how the source side writes the ends of sentences."""
        return SentenceHabits(
            frozenset(self.src.abbreviations),
            further_marks=self.src.further_marks,
            ordinal_words=frozenset(self.src.words_after_ordinals),
            pause_marks=self.src.pause_marks,
        )

    def have(self, properties: Iterable[object]) -> bool:
        """Return whether more than HARDLY of the lines have a property, given for each."""
        return sum(map(bool, properties)) > self.least


def _with_tags(profile: SourceProfile, text: _TrainingText) -> SourceProfile:
    """Add the symbols that begin lines."""
    tagged = sum(map(str.__ne__, text.src.lines, text.untagged))
    is_tagged = tagged >= (1 - LOWER) * len(text.src.lines)
    return replace(profile, knows_tags=True, tags=text.tags, tagged=is_tagged)


def _with_characters(profile: SourceProfile, text: _TrainingText) -> SourceProfile:
    """Add which characters there are, and whether lines have words."""
    src = text.src.lines
    scripts = Counter(chain.from_iterable(set(scripts_of(line)) for line in src))
    return replace(
        profile,
        characters=frequent_characters(src, text.least),
        tgt_characters=frequent_characters(text.tgt.lines, text.least),
        scripts=sorted(name for name, count in scripts.items() if count > text.least),
        inner_spaces=text.have(map(has_inner_space, src)),
        entities=list(text.entities.usual),
        wordless=text.have(not has_letters(line) for line in src),
    )


def _with_marks(profile: SourceProfile, text: _TrainingText) -> SourceProfile:
    """Add which marks end lines, quote and join words, and the spaces before them."""
    quotes = QuotesAndDashes.of(text.src.lines, text.least)
    quote_spacing = QuoteSpacing.of(text.src.lines, text.least)
    spacing = MarkSpacing.of(text.src.lines, text.least, text.sentence_habits.abbreviations)
    return replace(
        profile,
        final_marks=usual_marks(text.src.endings, text.tgt.endings),
        marks=text.src.further_marks,
        src_marks=text.src.final_marks(text.least),
        tgt_marks=text.tgt.final_marks(text.least),
        opening_marks=quotes.opening,
        inner_marks=quotes.inner,
        closing_marks=quotes.closing,
        apart_marks=list(spacing.apart),
        joined_marks=spacing.joined,
        apart_quotes=list(quote_spacing.apart),
        joined_quotes=quote_spacing.joined,
        line_ends=_line_ends(text),
    )


def _line_ends(text: _TrainingText) -> str:
    """Return the characters but letters and digits with which more than a few lines end."""
    ends = Counter(line.rstrip(_CLOSING)[-1:] for line in text.src.lines)
    return "".join(sorted(c for c, count in ends.items() if count > text.least and not c.isalnum()))


def _with_sentences(profile: SourceProfile, text: _TrainingText) -> SourceProfile:
    """Add how many sentences lines and their translations have, and what does not end one."""
    src = text.src
    counts = sorted(count_sentences(line, text.sentence_habits) for line in src.lines)
    return replace(
        profile,
        sentences=counts[len(counts) - 1 - int(RARE * len(counts))],
        abbreviations=src.abbreviations,
        tgt_abbreviations=text.tgt.abbreviations,
        ordinal_words=src.words_after_ordinals,
        pause_marks=src.pause_marks,
        equal_sentences=_are_equally_many(text),
    )


def _are_equally_many(text: _TrainingText) -> bool:
    """Return whether nearly all translations have as many sentences as their sources."""
    src = text.sentence_habits._replace(before_lower=True)
    tgt = SentenceHabits(
        frozenset(text.tgt.abbreviations), before_lower=True, further_marks=text.tgt.further_marks
    )
    equal = sum(
        count_sentences(line, src) == count_sentences(without_entities(translation), tgt)
        for line, translation in zip(text.src.lines, text.tgt.lines, strict=True)
    )
    return equal >= COUNTED * len(text.src.lines)


def _with_labels_and_tails(profile: SourceProfile, text: _TrainingText) -> SourceProfile:
    """Add whether lines have labels before sentences, and symbols and numbers after them.

    A quotation mark apart is none of these in a text of tokens.
    """
    habits = text.sentence_habits
    affixes = [
        split_affixes(line, habits.abbreviations, habits.further_marks) for line in text.untagged
    ]
    has_marks_apart = are_apart(profile.src_marks, profile.apart_marks)
    tails = (tail for *_, tail in affixes if not (has_marks_apart and is_quotation(tail)))
    return replace(
        profile,
        heads=text.have(parts.head for parts in affixes),
        tails=text.have(tails),
        brackets=text.have(split_brackets(line).head for line in text.untagged),
    )


def _with_first_letters(profile: SourceProfile, text: _TrainingText) -> SourceProfile:
    """Add with which capitals lines begin."""
    letters = Counter(filter(None, map(first_letter, text.src.lines)))
    capitals = _capitals_of(letters)
    least = (1 - LOWER) * max(1, letters.total())
    return replace(
        profile,
        begins_in_capitals=capitals.total() >= least,
        initials=_most_frequent_first(capitals),
        tgt_initials=_most_frequent_first(
            _capitals_of(Counter(filter(None, map(first_letter, text.tgt.lines))))
        ),
    )


def _capitals_of(letters: Counter[str]) -> Counter[str]:
    return Counter({letter: count for letter, count in letters.items() if letter.isupper()})


def _most_frequent_first(letters: Counter[str]) -> str:
    """Return the letters; of equally frequent ones, the I with a dot before the usual one."""
    return "".join(sorted(letters, key=lambda letter: (-letters[letter], -ord(letter))))


def _with_case(profile: SourceProfile, text: _TrainingText) -> SourceProfile:
    """Add which words have capitals, and whether there are lines in one case."""
    return replace(
        profile,
        capitals=text.have(map(in_capitals, text.src.lines)),
        titles=text.have(map(in_title_case, text.untagged)),
        lower=text.have(map(in_lower_case, text.untagged)),
        knows_case=True,
        capitalised=written_words(text.untagged),
    )


def _with_words(profile: SourceProfile, text: _TrainingText) -> SourceProfile:
    """Add which words and numbers are known, and which are of one side alone."""
    src_words, tgt_words = _telling_words(text.src.lines, text.tgt.lines)
    return replace(
        profile,
        src_words=src_words,
        tgt_words=tgt_words,
        numbers=share_numbers(text.src.lines, text.tgt.lines),
        known_words=record_of(text.all_src),
        frequent_words=frequent_words(text.untagged),
    )


def _with_copied_words(profile: SourceProfile, text: _TrainingText) -> SourceProfile:
    """Add which words translations have as their sources do."""
    habits = copy_habits(text.all_src, text.all_tgt)
    return replace(
        profile,
        translated=list(habits.translated),
        copied_forms=list(habits.copied_forms),
        translated_forms=list(habits.translated_forms),
    )


def written_words(lines: Sequence[str]) -> list[str]:
    """Return words that mostly have capitals within lines, such as NATO, Paris and I.

    The most frequent ones, each with the case that it has most often; the first of a line does not
    count.
    """
    counts = Counter(chain.from_iterable(_LETTERS.findall(line)[1:] for line in lines))
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
        Counter(chain.from_iterable(map(WORDS.findall, map(str.casefold, side))))
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
