"""Words that a translation copies from its source, as far as a training text shows.

A word of the training text is copied if the target side nearly always has it as well. A word that
the training text lacks is copied if most words of its form are that occur only once: a form is a
word with "Xx", "X" or "x" for letters by their case, and "0" for digits. A form that has hardly any
such words is copied if it is no ordinary word: if it has a digit or a mark, as addresses have.

A corpus copies few strings, and the same ones again: a model learns to spell those instead of
copying. Names of the corpus are therefore recombined in training, the start of one with the end of
another, and digits drawn, alike on both sides of a pair. Some get a letter with a mark, which the
vocabulary may spell in bytes, or another form: hyphenated, a code, a number, an address. All draws
are a pure function of the seed.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from seq2seq.text.characters import are_capitals
from seq2seq.text.names.words import any_of
from seq2seq.text.sample import sample_rows

MAX_PAIRS = 300_000  # examined, from all of the text
MAX_WORDS = 200_000  # translated words kept
COPIED = 0.9  # least share of the pairs of a known word in which it is copied
SHARED = 0.95  # least share of the pairs with numbers that have the same ones
FORM_COPIED = 0.5  # least share of the words of a form that are copied
MIN_FORM = 5  # words of a form that occur once; of fewer, the share is unknown
_WORD = re.compile(r"\w+(?:[-.,:@/'\u2019]+\w+)*")
_GENITIVE = re.compile(r"['\u2019]s$")
_SENTENCE_END = re.compile(r"(?:^|[.!?:;\u2026])[\W_]*$")
_DIGITS = re.compile(r"\d+")
_MARKED = re.compile(r"\d|\w[.@:/_]\w")
MIN_LETTERS = 3  # shorter words are no names
MAX_LOWER_CASE = 0.1  # occurrences in lower case per occurrence as a name; more are words
_SHARED_WORD = re.compile(r"\w+(?:[-.,:@'\u2019]\w+)*")  # also times and e-mail addresses
_GENITIVE_END = r"(?=(?:['\u2019]?s)?(?!\w))"  # matches before "s", "'s" or the end of the word
# Other forms of copied strings: X and x are replaced by letters, 0 by a digit.
_FORMS = (
    *("Xx Xx", "Xx Xx Xx", "Xx Xx-Xx", "Xx-xx", "Xx-Xx", "Xx 00", "XX"),
    *("XX000", "XX0000", "XX-0000", "X-000", "X00", "00X", "XX 000", "X0X0"),
    *("000-0000", "000-000-0000", "+00 000 0000", "00000", "0000", "00:00"),
    *("0,000", "0.00", "0.00.0"),
    *("xx.xx@xx.xx", "xx@xx.xx", "xx_xx@xx.xx", "xx00@xx-xx.xx", "www.xx.xx", "xx.xx", "xx.xx/xx"),
)
FORM_RATE = 0.3  # share of invented names that have another form
MARK_RATE = 0.2  # share of invented runs of letters in which one has a mark
_MARKED_LETTERS = [
    letter
    for letter in map(chr, range(0xC0, 0x250))
    if letter.isalpha()
    and letter.upper().lower() == letter.lower()
    and len(letter.upper() + letter.lower()) == 2
]
_RUN = re.compile(r"[^\W\d_]+|\d")  # letters, or one digit


class CopyHabits(NamedTuple):
    """Words of a training text that are not copied, and forms of words that are, or are not."""

    translated: Collection[str] = ()
    copied_forms: Collection[str] = ()
    translated_forms: Collection[str] = ()

    def copied_in(self, line: str) -> list[str]:
        """Return the words of a source line that its translation has to contain, each once."""
        if are_capitals(line) or not (self.translated or self.copied_forms):
            return []
        words = (word for word, initial in _words(line) if self._is_copied(word, initial))
        return list(dict.fromkeys(words))

    def _is_copied(self, word: str, initial: bool) -> bool:
        if word in self.translated or (initial and word.lower() in self.translated):
            return False
        form = form_of(word)
        is_copied = form in self.copied_forms
        is_translated = form in self.translated_forms
        if is_copied != is_translated:  # a record of several texts may have forms of both kinds
            return is_copied
        return _MARKED.search(word) is not None


def copy_habits(src: Sequence[str], tgt: Sequence[str]) -> CopyHabits:
    """Return what the pairs of a training text show of copied words."""
    counts: Counter[str] = Counter()
    copied: Counter[str] = Counter()
    initial: Counter[str] = Counter()
    for i in sample_rows(len(src), MAX_PAIRS):
        for word, is_initial in _words(src[i]):
            counts[word] += 1
            copied[word] += word in tgt[i]
            initial[word] += is_initial
    forms: dict[str, list[bool]] = defaultdict(list)
    for word, count in counts.items():
        if count == 1 and not (initial[word] and word != word.lower() and word.lower() in counts):
            forms[form_of(word)].append(copied[word] == 1)
    shares = {
        form: sum(copies) / len(copies) for form, copies in forms.items() if len(copies) >= MIN_FORM
    }
    translated = [word for word, n in counts.most_common() if copied[word] < COPIED * n]
    return CopyHabits(
        translated[:MAX_WORDS],
        sorted(form for form, share in shares.items() if share >= FORM_COPIED),
        sorted(form for form, share in shares.items() if share < FORM_COPIED),
    )


def form_of(word: str) -> str:
    """Return the form of a word: its case, digits and marks."""

    def form(run: re.Match[str]) -> str:
        if run[0].isdigit():
            return "0"
        return "x" if run[0].islower() else "X" if run[0].isupper() else "Xx"

    return re.sub(r"[^\W\d_]+|\d+", form, word)


def _words(line: str) -> Iterator[tuple[str, bool]]:
    """Yield the words of a line without a genitive ending, and whether each starts a sentence."""
    for match in _WORD.finditer(line):
        yield _GENITIVE.sub("", match[0]), _SENTENCE_END.search(line[: match.start()]) is not None


class NameInventor:
    """Replaces shared names and numbers of pairs by invented ones; symbols are kept."""

    def __init__(
        self, src: Sequence[str], tgt: Sequence[str], rate: float, symbols: Sequence[str] = ()
    ) -> None:
        """Collect the names of a training text; each is later replaced with probability `rate`."""
        self._rate = rate
        self._symbols = frozenset(symbols)
        self._symbol = any_of(symbols)
        self.names = frozenset(shared_names(src, tgt))
        self._parts = sorted(filter(str.isalpha, self.names))

    def invent(
        self,
        src: Sequence[str],
        tgt: Sequence[str],
        seed: int,
        numbers: Sequence[int] | None = None,
    ) -> tuple[list[str], list[str]]:
        """Return both sides of pairs with invented names, the same on both sides of a pair.

        Those of a pair are a pure function of its texts, the seed and its number.
        """
        numbers = range(len(src)) if numbers is None else numbers
        pairs = [
            self._pair(src_text, tgt_text, np.random.Generator(np.random.PCG64([seed, number])))
            for src_text, tgt_text, number in zip(src, tgt, numbers, strict=True)
        ]
        return [src for src, _ in pairs], [tgt for _, tgt in pairs]

    def _pair(self, src: str, tgt: str, generator: "np.random.Generator") -> tuple[str, str]:
        for word in dict.fromkeys(_shared_words(self._symbol.sub(" ", src))):
            if word not in self.names and not any(map(str.isdigit, word)):
                continue
            pattern = re.compile(rf"\b{re.escape(word)}{_GENITIVE_END}")
            if self._symbols:  # which are matched first, and replaced by themselves
                pattern = re.compile(f"{self._symbol.pattern}|{pattern.pattern}")
            occurrences = [
                [text for text in pattern.findall(side) if text not in self._symbols]
                for side in (src, tgt)
            ]
            counts = set(map(len, occurrences))  # 0: not shared
            if len(counts) == 1 and 0 not in counts and generator.random() < self._rate:
                form = word
                if word in self.names and generator.random() < FORM_RATE:
                    form = _FORMS[generator.integers(len(_FORMS))]
                invented = self._invented(form, generator)

                def replacement(match: re.Match[str], invented: str = invented) -> str:
                    return match[0] if match[0] in self._symbols else invented

                src, tgt = (pattern.sub(replacement, side) for side in (src, tgt))
        return src, tgt

    def _invented(self, form: str, generator: "np.random.Generator") -> str:
        """Return a string of this form: letters for letters, digits for digits."""

        def replacement(run: re.Match[str]) -> str:
            if run[0].isdigit():
                return str(generator.integers(0 if run.start() else 1, 10))
            if not self._parts:
                return run[0]
            old = run[0]
            new = self._letters(generator)
            if old.isupper():  # as many
                return new[: len(old)].upper()
            return new.capitalize() if old[0].isupper() else new.lower()

        return _RUN.sub(replacement, form)

    def _letters(self, generator: "np.random.Generator") -> str:
        """Return the start of one name and the end of another, at times with a marked letter."""
        first, last = (self._parts[i] for i in generator.integers(0, len(self._parts), 2))
        start = generator.integers(1, len(first))
        end = generator.integers(1, len(last))
        letters: str = first[:start] + last[end:]
        if generator.random() < MARK_RATE:
            n = generator.integers(len(letters))
            marked = generator.integers(len(_MARKED_LETTERS))
            letters = letters[:n] + _MARKED_LETTERS[marked] + letters[n + 1 :]
        return letters


def _shared_words(text: str) -> list[str]:
    return [_GENITIVE.sub("", word) for word in _SHARED_WORD.findall(text)]


def shared_names(src: Sequence[str], tgt: Sequence[str]) -> set[str]:
    """Return capitalised words that occur on both sides of a pair and hardly ever in lower case."""
    pairs = [(src[i], tgt[i]) for i in sample_rows(len(src), MAX_PAIRS)]
    words = [[_shared_words(side) for side in pair] for pair in pairs]
    counts = Counter(chain.from_iterable(chain.from_iterable(words)))
    return {
        word
        for src_words, tgt_words in words
        for word in {*src_words} & {*tgt_words}
        if word[0].isupper()
        and not any(map(str.isdigit, word))
        and len(word) >= MIN_LETTERS
        and counts[word.lower()] <= MAX_LOWER_CASE * counts[word]
    }


def numbers_of(text: str) -> set[str]:
    """Return the numbers in digits of any script, each without zeros before it."""
    digits = ((str(unicodedata.decimal(c)) for c in run) for run in _DIGITS.findall(text))
    return {"".join(run).lstrip("0") or "0" for run in digits}


def share_numbers(src: Sequence[str], tgt: Sequence[str]) -> bool:
    """Return whether nearly all translations have the numbers of their sources."""
    numbers = [(numbers_of(line), numbers_of(other)) for line, other in zip(src, tgt, strict=True)]
    count = sum(bool(here or there) for here, there in numbers)
    return count > 0 and sum(here != there for here, there in numbers) <= (1 - SHARED) * count
