"""Pairs of languages that a server translates, each by its own run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from seq2seq.data import languages
from seq2seq.data.source_profile import scripts_of
from seq2seq.inference.loaded_model import DEFAULT_OPTIONS, ModelOptions
from seq2seq.inference.loading import languages_of
from seq2seq.inference.translator import Translator
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError

AUTO = "auto"  # LibreTranslate's code for an unknown source language


class LanguagePair(NamedTuple):
    """Codes of a source and a target language, as `data.src_lang` and `data.tgt_lang` have them."""

    src: str
    tgt: str

    def __str__(self) -> str:
        return f"{self.src}-{self.tgt}"


class LanguagePairs(Mapping[LanguagePair, Translator]):
    """Translators by their pairs of languages, in the order of the runs; the first is the default.

    Every pair occurs once: a request names languages, not runs.
    """

    def __init__(self, translators: Mapping[LanguagePair, Translator]) -> None:
        self._translators = dict(translators)

    def __getitem__(self, pair: LanguagePair) -> Translator:
        return self._translators[pair]

    def __iter__(self) -> Iterator[LanguagePair]:
        return iter(self._translators)

    def __len__(self) -> int:
        return len(self._translators)

    def find(self, src: str | None, tgt: str | None, text: str = "") -> LanguagePair:
        """Return the pair that a request names.

        An omitted code fits any language, as does "auto" for the source. Where no code is that of a
        pair, those that differ in case fit, then those of another region (en-US) or of three
        letters (eng). Of pairs for an unknown source, those of the script of the text fit.
        Raises UserError if no pair fits, or several do and the request names only
        one language or one without its region.
        """
        codes = (("from", None if src == AUTO else src), ("to", tgt))
        named = [f"{word} {code}" for word, code in codes if code is not None]
        src = None if src == AUTO else src
        fitting: list[LanguagePair] = []
        for form in (str, languages.folded, languages.language):
            wishes = [None if code is None else form(code) for code in (src, tgt)]
            fitting = fitting or [
                pair
                for pair in self
                if all(wish in (None, form(code)) for wish, code in zip(wishes, pair, strict=True))
            ]
        if not fitting:
            asked = " ".join(named)
            raise UserError(f"source, target: no model translates {asked}; there is {self}")
        if len(fitting) > 1 and src is None and named and text:
            sources = self.detected(text)
            fitting = [pair for pair in fitting if pair.src in sources] or fitting
        if len(fitting) > 1 and named:
            several = ", ".join(map(str, fitting))
            raise UserError(f"source, target: {several} fit; name both languages")
        return fitting[0]

    def detected(self, text: str) -> list[str]:
        """Return the codes of the languages that a text may have, by the script of its letters."""
        scripts = Counter(scripts_of(text))
        script = max(scripts, key=scripts.__getitem__, default=None)
        read: dict[str, list[str]] = {}
        for pair, translator in self.items():
            read.setdefault(pair.src, []).extend(translator.source.scripts)
        fitting = [code for code, known in read.items() if not known or script in known]
        return fitting if fitting and script else list(read)

    def languages(self) -> list[dict[str, object]]:
        """Return code, name and targets of each language, as LibreTranslate's `GET /languages`."""
        codes = dict.fromkeys(code for pair in self for code in pair)
        return [
            {
                "code": code,
                "name": languages.language_name(code),
                "targets": [pair.tgt for pair in self if pair.src == code],
            }
            for code in codes
        ]

    def __str__(self) -> str:
        return ", ".join(map(str, self))


def load_pairs(runs: Sequence[str], options: ModelOptions = DEFAULT_OPTIONS) -> LanguagePairs:
    """Load the translator of each run, as `Translator.load` does.

    Raises UserError if two translate the same languages.
    """
    places: dict[LanguagePair, str] = {}
    for run in runs:
        pair = LanguagePair(*languages_of(argument_types.path(run, "runs")))
        if pair in places:
            raise UserError(
                f"{run}: translates {pair.src} to {pair.tgt}, as {places[pair]} does, and a "
                "request names languages only; serve one of them"
            )
        places[pair] = run
    return LanguagePairs(
        {pair: Translator.load_with([run], options) for pair, run in places.items()}
    )
