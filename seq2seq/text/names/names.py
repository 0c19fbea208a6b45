"""Names in parallel text: masked by placeholders before a model sees them, restored after it.

"Rahul is a good boy." becomes "\ufdd0 is a good boy.", and the placeholder of its translation
becomes the name, spelled in the target's script, with the case ending that the model gave it (Luong
et al., 2015, "Addressing the rare word problem", copy the aligned word in the same way).
"""

import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from seq2seq.runtime.errors import UserError
from seq2seq.text.names import words as name_words
from seq2seq.text.names.detection import NameDetector
from seq2seq.text.names.mining import NameMiner, NamePair
from seq2seq.text.names.sounds import ends_stem, starts_unit, units_of
from seq2seq.text.names.speller import Speller
from seq2seq.text.names.words import (
    PLACEHOLDERS,
    SourceWord,
    any_of,
    is_letter,
    script_of,
    symbol_positions,
    target_words,
)

MIN_NAMES = 10  # least number of different names to learn from
FREQUENT = 20  # occurrences from which the model may learn a name as a word
MAX_WORDS = 200_000  # source words kept
MAX_TARGET_WORDS = 30_000  # kept for the speller
MAX_MASKED = 100_000  # pairs kept, for the next epoch
_MIN_SCRIPT = 0.01  # least share of a script in the letters of the target
FORMAT = 1
Span = tuple[int, int]  # start and end in a text
_INITIALS = re.compile(r"(?<!\w)(?:[^\W\d_]\. ?)+\Z")


class Masked(NamedTuple):
    """A source text with placeholders, and the names that they replace."""

    text: str
    names: Mapping[str, str]  # by placeholder
    given: Mapping[str, str] = MappingProxyType({})  # spellings that are given, by placeholder

    @property
    def written(self) -> str:
        """Return the text with its names as written."""
        text = self.text
        for mark, name in self.names.items():
            text = text.replace(mark, name)
        return text


class Names:
    """Finds the names of a language pair, masks and spells them; trained on parallel text."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        """`content`: as `learn_names` returns it."""
        self.content = content
        self.pairs = {name: NamePair(*pair) for name, pair in content["names"].items()}
        symbols = content.get("symbols", [])  # are not names, and have none in them
        self._symbol = any_of(symbols)
        counts = content["lower"], content["capitalised"]
        self._detector = NameDetector(self.pairs, *counts, symbols)
        self.copies = _are_alike(self.pairs)
        self._spellings: dict[str, tuple[str, bool]] = {}  # of `spell_word`
        self._masked_pairs: dict[tuple[str, str], tuple[str, str]] = {}

    @cached_property
    def _speller(self) -> Speller:
        pairs = [(name.lower(), pair.stem) for name, pair in self.pairs.items()]
        loans = [*self.content.get("loans", {}).items()]
        return Speller(pairs, self.content["words"], self.content.get("listed", []), loans)

    def mask(self, text: str) -> list[Masked]:
        """Replace the names of a normalized source text, with their initials, by placeholders.

        Names that the model may have learned as words remain. A text with more names than there are
        placeholders is returned in parts.
        """
        text = name_words.without_placeholders(text)
        runs = self._rare_runs(text)
        if not runs:
            return [Masked(text, {})]
        size = len(PLACEHOLDERS)
        groups = [runs[n : n + size] for n in range(0, len(runs), size)]
        starts = [0, *(group[0][0].start for group in groups[1:]), len(text)]
        return [
            _mask_runs(text[start:end].rstrip(" "), group, start)
            for group, start, end in zip(groups, starts, starts[1:], strict=False)
        ]

    def _rare_runs(self, text: str) -> list[list[SourceWord]]:
        """Return the names that the model cannot have learned, adjacent ones together."""
        words = [word for word in self._detector.names_in(text) if self._is_rare(word)]
        return list(_runs(text, [self._with_initials(text, word) for word in words]))

    def _with_initials(self, text: str, word: SourceWord) -> SourceWord:
        """Return a name from its initials on, as in "A. K. Sen".

        A single letter that is a common word, such as "I", may end the sentence before.
        """
        initials = _INITIALS.search(text, 0, word.start)
        if initials is None or not initials[0].isupper():
            return word
        first, *rest = [letter for letter in initials[0] if letter.isalpha()]
        lower = self.content["lower"]
        capitalised = self.content["capitalised"]
        count = max(lower.get(first.lower(), 0), capitalised.get(first, 0))
        if not rest and initials.start() and count >= FREQUENT:
            return word
        return word._replace(start=initials.start())

    def loses(self, masked: Masked, translation: str) -> bool:
        """Return whether a translation lacks a name that `mask` left as a word."""
        frequent = (word.text for word in self._detector.names_in(masked.text))
        return any(name in self.pairs and not self._has(translation, name) for name in frequent)

    def _has(self, translation: str, name: str) -> bool:
        """Return whether a translation has a name of `pairs`, as written or by its stem."""
        stem = self.pairs[name].stem
        if len(stem) > 1 and not starts_unit(stem[-1]):  # endings may change its last vowel
            stem = stem[:-1]
        return name in translation or stem in translation

    def mask_frequent(self, masked: Masked) -> Masked:
        """Replace the names that `mask` left as words, as far as there are placeholders."""
        unused_marks = [mark for mark in PLACEHOLDERS if mark not in masked.names]
        runs = list(_runs(masked.text, self._detector.names_in(masked.text)))
        frequent = _mask_runs(masked.text, runs[: len(unused_marks)], 0, unused_marks)
        return Masked(frequent.text, {**masked.names, **frequent.names}, masked.given)

    def _is_rare(self, word: SourceWord) -> bool:
        pair = self.pairs.get(word.text)
        return pair is None or pair.occurrences < FREQUENT

    def mask_pair(self, src: str, tgt: str) -> tuple[str, str]:
        """Replace names that occur on both sides of a pair by the same placeholders.

        Names that may be learned as words are kept in every second pair, a function of the pair.
        """
        if (src, tgt) not in self._masked_pairs:
            if len(self._masked_pairs) == MAX_MASKED:
                self._masked_pairs.clear()
            self._masked_pairs[src, tgt] = self._mask_pair(src, tgt)
        return self._masked_pairs[src, tgt]

    def _mask_pair(self, src: str, tgt: str) -> tuple[str, str]:
        src = name_words.without_placeholders(src)
        tgt = name_words.without_placeholders(tgt)
        words = self._detector.names_in(src)
        if not words:
            return src, tgt
        seed = zlib.crc32(f"{src}\t{tgt}".encode("utf-8", "replace"))
        words = [word for word in words if self._is_rare(word) or (seed >> 8) % 2]
        places: list[tuple[Span, Span]] = []
        for run in _runs(src, words):
            places += self._located(src, tgt, run, [place for _, place in places])
        places = places[: len(PLACEHOLDERS)]
        marks = [PLACEHOLDERS[(seed + n) % len(PLACEHOLDERS)] for n in range(len(places))]
        tgt = _replace(tgt, [place for _, place in places], marks)
        return _replace(src, [place for place, _ in places], marks), tgt

    def mask_translation(self, src: str, tgt: str) -> tuple[Masked, str]:
        """Replace names that `mask` replaces, in both texts if a translation has them."""
        src = name_words.without_placeholders(src)
        runs = self._rare_runs(src)[: len(PLACEHOLDERS)]
        tgt = self.mask_target(tgt, _mask_runs(src, runs, 0).names)
        marks = [mark for mark in PLACEHOLDERS if mark in tgt]
        translated = [run for mark, run in zip(PLACEHOLDERS, runs, strict=False) if mark in tgt]
        return _mask_runs(src, translated, 0, marks), tgt

    def mask_target(self, tgt: str, names: Mapping[str, str]) -> str:
        """Replace those names of a source text that a target text has by placeholders."""
        tgt = name_words.without_placeholders(tgt)
        for mark, name in names.items():
            if (place := self._find(tgt, name, [])) is not None:
                end = place[1] + _ending(tgt[place[1] :])
                tgt = tgt[:end] + tgt[end:].removeprefix(f" ({name})")  # which `restore` adds
                tgt = _replace(tgt, [place], [mark])
        return tgt

    def _located(
        self, src: str, tgt: str, run: Sequence[SourceWord], taken_spans: Sequence[Span]
    ) -> list[tuple[Span, Span]]:
        """Return the places of a run of names on both sides: together, or those found alone."""
        span = (run[0].start, run[-1].end)
        if (place := self._find(tgt, src[slice(*span)], taken_spans)) is not None:
            return [(span, place)]
        places: list[tuple[Span, Span]] = []
        for word in run if len(run) > 1 else ():
            places += self._located(
                src, tgt, [word], [*taken_spans, *(place for _, place in places)]
            )
        return places

    def _find(self, tgt: str, name: str, taken_spans: Sequence[Span]) -> Span | None:
        """Return the first place of a name's spelling on the target side that is not taken."""
        for spelling in dict.fromkeys((self.spelling(name), name)):
            for match in re.finditer(re.escape(spelling), tgt):
                start, end = match.span()
                is_end = end == len(tgt) or not is_letter(tgt[end])
                if not is_end:  # but perhaps that of a stem
                    is_end = starts_unit(tgt[end]) and ends_stem(units_of(tgt[:end][-2:])[-1])
                is_start = not start or not is_letter(tgt[start - 1])
                is_free = (start, end) not in taken_spans
                is_name = start not in symbol_positions(self._symbol, tgt)
                if is_start and is_end and is_free and is_name:
                    return start, end
        return None

    def spelling(
        self, name: str, spellings_of: Callable[[str], Sequence[str]] = lambda _: ()
    ) -> str:
        """Return the spelling of a name's words in the target's script: given, or the model's."""
        words = name.split(" ")
        return " ".join(" ".join(spellings_of(word)) or self.spell_word(word)[0] for word in words)

    def spell_word(self, word: str) -> tuple[str, bool]:
        """Return the spelling of a name of one word, and whether it is reliable."""
        pair = self.pairs.get(word) or (word.isupper() and self.pairs.get(word.capitalize()))
        if pair:
            return pair.stem, True
        if self.copies or word.isupper():
            return word, True
        if word not in self._spellings:
            self._spellings[word] = self._speller.spell(word.lower()) or (word, True)
        return self._spellings[word]

    def restore(self, text: str, masked: Masked) -> str:
        """Replace the placeholders of a target text by the spellings of names.

        A spelling that is not reliable is followed by the name as written, in parentheses, after
        the ending that the translation gave it.
        """
        for mark in name_words.placeholders_in(text):
            text_before, _, text_after = text.partition(mark)
            end = _ending(text_after)
            space = " " if text_before and is_letter(text_before[-1]) else ""
            name = masked.names[mark]
            spelling = masked.given.get(mark) or self.spelling(name)
            words = () if mark in masked.given else name.split(" ")
            written = "" if all(self.spell_word(word)[1] for word in words) else f" ({name})"
            text = f"{text_before}{space}{spelling}{text_after[:end]}{written}{text_after[end:]}"
        return text

    def spellings(self, masked: Masked) -> dict[str, str]:
        """Return the spellings of names by placeholder."""
        names = masked.names
        given = masked.given
        return {mark: given.get(mark) or self.spelling(name) for mark, name in names.items()}

    @cached_property
    def stored(self) -> bytes:
        """Return the content as JSON."""
        return json.dumps(self.content, ensure_ascii=False, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return names from what is `stored`. Raises ValueError for anything else."""
        try:
            content = json.loads(data)
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']}")
            return cls(content)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a file of names ({error!r})") from None


def learn_names(
    src: Sequence[str],
    tgt: Sequence[str],
    symbols: Sequence[str] = (),
    listed: Mapping[str, str] = MappingProxyType({}),
) -> Names:
    """Learn to detect and spell names of normalized text; raises UserError if it has hardly any.

    `listed`: further names in the target's script, and the places of each, for messages.
    """
    if symbols:
        src, tgt = ([any_of(symbols).sub(" ", text) for text in side] for side in (src, tgt))
    miner = NameMiner(src, tgt)
    pairs = miner.mine()
    counts = miner.counts
    if len(pairs) < MIN_NAMES:
        raise UserError(
            f"vocabulary.names: found {len(pairs)} names of similar sound in both languages of the "
            "training text, too few to learn from; set it to null"
        )
    target = Counter(match[0] for line in tgt for match in target_words(line))
    _check_scripts(listed, target)
    common = dict(counts.lower.most_common(MAX_WORDS))
    capitalised = dict(counts.capitalised.most_common(MAX_WORDS))
    return Names(
        {
            "format": FORMAT,
            "names": {name: list(pair) for name, pair in pairs.items()},
            "lower": common,
            "capitalised": {word: n for word, n in capitalised.items() if word not in pairs},
            "words": [word for word, _ in target.most_common(MAX_TARGET_WORDS)],
            **({"symbols": list(symbols)} if symbols else {}),
            **({"listed": list(listed)} if listed else {}),
            **({} if _are_alike(pairs) else {"loans": miner.mine_loans()}),
        }
    )


def _are_alike(pairs: Mapping[str, NamePair]) -> bool:
    """Return whether both languages write names alike."""
    return 2 * sum(name == pair.stem for name, pair in pairs.items()) > len(pairs)


def _check_scripts(listed: Mapping[str, str], words: Counter[str]) -> None:
    """Raise UserError for a listed name of another script than the target's words."""
    letters = Counter[str]()
    for word, count in words.items() if listed else ():
        letters.update(dict.fromkeys(word, count))
    scripts = Counter[str]()
    for letter, count in letters.items():
        if letter.isalpha():  # marks may belong to several scripts
            scripts[script_of(letter)] += count
    least = _MIN_SCRIPT * scripts.total()
    known = {script for script, count in scripts.items() if count >= least}
    for name, place in listed.items():
        if not known.issuperset(map(script_of, filter(str.isalpha, name))):
            written = " and ".join(sorted(script.capitalize() for script in known))
            raise UserError(
                f"{place}: {name} is not in the script of the target text ({written}). "
                "List names as the target language writes them."
            )


def _runs(text: str, words: Sequence[SourceWord]) -> Iterator[list[SourceWord]]:
    """Yield names together that follow one another with a single space between."""
    run: list[SourceWord] = []
    for word in words:
        if run and text[run[-1].end : word.start] != " ":
            yield run
            run = []
        run.append(word)
    if run:
        yield run


def _mask_runs(
    text: str,
    runs: Sequence[Sequence[SourceWord]],
    offset: int,
    marks: Sequence[str] = PLACEHOLDERS,
) -> Masked:
    """Replace the names of a part of a text that starts at an offset."""
    spans = [(run[0].start - offset, run[-1].end - offset) for run in runs]
    names = {mark: text[slice(*span)] for mark, span in zip(marks, spans, strict=False)}
    return Masked(_replace(text, spans, list(names)), names)


def _ending(text: str) -> int:
    """Return the end of the word that a text begins with, such as a case ending; 0 without any."""
    word = next(target_words(text), None)
    return word.end() if word is not None and word.start() == 0 else 0


def _replace(text: str, spans: Sequence[tuple[int, int]], marks: Sequence[str]) -> str:
    for (start, end), mark in sorted(zip(spans, marks, strict=True), reverse=True):
        text = f"{text[:start]}{mark}{text[end:]}"
    return text
