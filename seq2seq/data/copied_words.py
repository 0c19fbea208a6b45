"""Words that a translation copies from its source, as far as a training text shows.

A word of the training text is copied if the target side nearly always has it as well. A word that
the training text lacks is copied if most words of its form are that occur only once: a form is a
word with "Xx", "X" or "x" for letters by their case, and "0" for digits. A form that has hardly any
such words is copied if it is no ordinary word: if it has a digit or a mark, as addresses have.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from seq2seq.data.spread import spread_rows

MAX_PAIRS = 300_000  # examined, from all of the text
MAX_WORDS = 200_000  # translated words kept
COPIED = 0.9  # least share of the pairs of a known word in which it is copied
FORM_COPIED = 0.5  # least share of the words of a form that are copied
MIN_FORM = 5  # words of a form that occur once; of fewer, the share is unknown
_WORD = re.compile(r"\w+(?:[-.,:@/'\u2019]+\w+)*")
_GENITIVE = re.compile(r"['\u2019]s$")
_SENTENCE_END = re.compile(r"(?:^|[.!?:;\u2026])[\W_]*$")
_MARKED = re.compile(r"\d|\w[.@:/_]\w")


class CopyHabits(NamedTuple):
    """Words of a training text that are not copied, and forms of words that are, or are not."""

    translated: Collection[str] = ()
    copied_forms: Collection[str] = ()
    translated_forms: Collection[str] = ()

    def copied_in(self, line: str) -> list[str]:
        """Return the words of a source line that its translation has to contain, each once."""
        if line.isupper() or not (self.translated or self.copied_forms):
            return []
        words = (word for word, initial in _words(line) if self._is_copied(word, initial))
        return list(dict.fromkeys(words))

    def _is_copied(self, word: str, initial: bool) -> bool:
        if word in self.translated or (initial and word.lower() in self.translated):
            return False
        form = form_of(word)
        if form in self.copied_forms or form in self.translated_forms:
            return form in self.copied_forms
        return _MARKED.search(word) is not None


def copy_habits(src: Sequence[str], tgt: Sequence[str]) -> CopyHabits:
    """Return what the pairs of a training text show of copied words."""
    counts: Counter[str] = Counter()
    copied: Counter[str] = Counter()
    initial: Counter[str] = Counter()
    for i in spread_rows(len(src), MAX_PAIRS):
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
    return re.sub(r"[^\W\d_]+|\d+", lambda match: _form_of_run(match[0]), word)


def _form_of_run(run: str) -> str:
    if run[0].isdigit():
        return "0"
    return "x" if run.islower() else "X" if run.isupper() else "Xx"


def _words(line: str) -> Iterator[tuple[str, bool]]:
    """Yield the words of a line without a genitive ending, and whether each starts a sentence."""
    for match in _WORD.finditer(line):
        yield _GENITIVE.sub("", match[0]), _SENTENCE_END.search(line[: match.start()]) is not None
