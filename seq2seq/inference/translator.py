"""Translator: the Python API from text to text, which the command line uses as well."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, overload

from seq2seq.config.search_options import Decoding, values_of
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.vocabulary.vocabulary import BOS_ID, NAME_IDS, PAD_ID, UNK_ID, Vocabularies
from seq2seq.engines.engine import Engine
from seq2seq.inference.line_preparation import Preparation, PreparedLine, PreparedLines
from seq2seq.inference.lines import line_counter, line_list, lists_of_lines
from seq2seq.inference.loaded_model import LoadedModel, ModelOptions
from seq2seq.inference.loaders.load import load
from seq2seq.inference.nbest import NBestEntry
from seq2seq.inference.part_search import PartSearch
from seq2seq.inference.requirements import Requirements
from seq2seq.inference.scoring import ScoredLine, score_lines
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.settings import DEFAULT_SETTINGS, SearchSettings, check_together
from seq2seq.inference.translation import LINE_BREAKS, Translation, join_parts
from seq2seq.runtime import argument_types
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError, argument
from seq2seq.text.names.names import Masked
from seq2seq.text.source_profile import SourceProfile

if TYPE_CHECKING:
    import torch

    from seq2seq.evaluation.metrics import Scores


class LineOptions(TypedDict, total=False):
    """Further arguments of `Translator.translate`: those of `stream`."""

    prefixes: Iterable[str] | None
    text_only: bool
    on_translated: Callable[[int], object] | None
    constraints: Iterable[Sequence[str]] | None
    settings: SearchSettings


@dataclass(eq=False, repr=False)
class Translator:
    """A trained model, or an ensemble, that translates text.

    `Translator.load(run).translate(lines)` returns as objects what `seq2seq translate` prints.
    """

    loaded: LoadedModel

    @classmethod
    def load(
        cls,
        *runs: Path | str,
        device: str = "auto",
        int8: bool = False,
        overrides: Iterable[str] = (),
        float16: bool = False,
        scores: Iterable[str | type] = (),
    ) -> Self:
        """Load a run folder or an exported one, on a CPU without torch; several are an ensemble.

        `int8` quantizes weights on a CPU, and `float16` rounds weights and states on a CUDA GPU:
        both are faster. Overrides of the config's `decoding` section are such as
        "decoding.length_penalty=0.6". An ensemble uses the `decoding` section and the length limits
        of its first run. `scores` are attention scores outside of the package, by class or by name
        ("my_scores:Cosine"), which runs may use; others are not imported. Raises UserError if the
        runs do not fit together, or the device does not compute in the precision.
        """
        return cls.load_with(runs, ModelOptions(device, int8, float16, overrides, scores))

    @classmethod
    def load_with(cls, runs: Sequence[Path | str], options: ModelOptions) -> Self:
        """Load run folders or exported folders; see `load`."""
        return cls(load(runs, options))

    @property
    def engine(self) -> Engine:
        """Return the engine, which computes the model."""
        return self.loaded.engine

    @property
    def vocabularies(self) -> Vocabularies:
        """Return the vocabularies of both sides, and the names they leave out."""
        return self.loaded.vocabularies

    @property
    def limit(self) -> LengthLimit:
        """Return the limit of tokens of a translation, by those of its source."""
        return self.loaded.limit

    @property
    def decoding(self) -> Decoding:
        """Return the section `decoding` of the config."""
        return self.loaded.decoding

    @property
    def max_length(self) -> int:
        """Return the number of tokens above which a line is split."""
        return self.loaded.max_length

    @property
    def device(self) -> "torch.device | str":
        """Return the device of torch, or "cpu" for ONNX Runtime."""
        return self.loaded.device

    @property
    def source(self) -> SourceProfile:
        """Return the habits of the training text, with which lines are compared."""
        return self.loaded.source

    @property
    def name(self) -> str:
        """Return the run folders, for messages."""
        return self.loaded.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.device})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle or copy the translator with its weights, without what it has cached.

        A copy has a record of its own, which may be changed.
        """
        return {"loaded": replace(self.loaded)}

    def beam_size(self, requested: int | None, n_best: int) -> int:
        """Return the requested beam size or the config's; raises UserError if below `n_best`."""
        size = self.decoding.beam_size
        if requested is not None:
            size = argument_types.count(requested, "beam_size")
        n_best = argument_types.count(n_best, "n_best")
        if n_best > size:
            text = f"larger than the beam ({size}); increase {argument('beam_size')}"
            raise UserError(text, argument="n_best", value=n_best)
        return size

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is an iterable, too
        self, lines: str, beam_size: int | None = None, n_best: int = 1, **more: Unpack[LineOptions]
    ) -> Translation: ...
    @overload
    def translate(
        self,
        lines: Iterable[str] | PreparedLines,
        beam_size: int | None = None,
        n_best: int = 1,
        **more: Unpack[LineOptions],
    ) -> list[Translation]: ...
    def translate(
        self, lines: Any, beam_size: int | None = None, n_best: int = 1, **more: Any
    ) -> Translation | list[Translation]:
        """Translate lines, in order, to a list; or one string to one `Translation`.

        See `stream`, which yields translations one by one, for the arguments. With one string,
        `prefixes` is its prefix, a string, and `constraints` the list of its phrases. A string with
        line breaks is one line; pass `text.splitlines()` to translate its lines.
        """
        if not isinstance(lines, str):
            return list(self.stream(lines, beam_size, n_best, **more))
        for name in ("prefixes", "constraints"):
            if (value := more.get(name)) is not None:
                more[name] = [argument_types.text(value, name) if name == "prefixes" else value]
        return next(self.stream([lines], beam_size, n_best, **more))

    def stream(  # noqa: PLR0913
        self,
        lines: Iterable[str] | PreparedLines,
        beam_size: int | None = None,
        n_best: int = 1,
        *,
        prefixes: Iterable[str] | None = None,
        text_only: bool = False,
        on_translated: Callable[[int], object] | None = None,
        constraints: Iterable[Sequence[str]] | None = None,
        settings: SearchSettings = DEFAULT_SETTINGS,
    ) -> Iterator[Translation]:
        """Translate lines; yield the translations in order, so that few are held in memory.

        Lines are any ordered iterable of strings, such as a list, a generator or an open text file:
        a line feed that ends a line is ignored. Arguments are checked at once; lines are searched
        when their translations are taken.

        Lines with more sentences than those of the training text, and lines of more than
        data.max_length tokens (see `split_line`) are split, and the translations of their parts
        joined; one without a final mark is translated as if it had one, if those of the training
        text have. `notes` say so. Blank lines stay blank.

        A beam size of None is the config's, 1 is greedy search. An n-best list has `n_best`
        different texts, best first, each with its best tokens; a beam of up to 8 times the size is
        searched for missing ones. If even that finds fewer, or the line is blank, the last one is
        repeated. `text_only` gives the same text and tokens sooner, without attention weights and,
        for greedy search, with nan for a score.

        Each translation starts with its prefix, blank for none (NFC, with spaces and line breaks as
        single spaces), whose last word may continue unless a space follows it. Constraints are for
        each line the phrases that its translation contains, as often as they are given; with these,
        and the `glossary` of the settings, search allocates the beam dynamically (Post & Vilar
        2018). `on_translated` is called with the number of further lines when there are.

        Raises UserError if n_best exceeds the beam size, options exclude each other or a prefix is
        refused, TypeError for anything but strings, such as a single string in place of lines, and
        RunError if the model computes log-probabilities that are not finite.
        """
        if isinstance(lines, PreparedLines):
            is_constrained = lines.are_constrained
        else:
            lines = line_list(lines, "lines")
            is_constrained = constraints is not None
        size = self.search_size(beam_size, n_best, is_constrained, settings)
        requirements = self._requirements(settings.forbidden)
        preparation = Preparation(self.loaded, requirements, settings)
        if not isinstance(lines, PreparedLines):
            lines = preparation.prepare(lines, prefixes, constraints, not text_only)
        options = self._search_options(settings, size, text_only, requirements.forbidden)
        parts = [part for line in lines for part in line.parts]
        by_score = settings.sampling is None and settings.mbr is None
        on_part = line_counter([len(line.parts) for line in lines], on_translated)
        part_search = PartSearch(self.loaded, preparation, settings, options, n_best)
        translated = part_search.translate(parts, on_part)
        return self._joined(lines, translated, n_best, by_score)

    def prepare(
        self,
        lines: Iterable[str],
        *,
        prefixes: Iterable[str] | None = None,
        constraints: Iterable[Sequence[str]] | None = None,
        settings: SearchSettings = DEFAULT_SETTINGS,
    ) -> PreparedLines:
        """Check lines and prepare them, so that `translate` and `stream` take them as `lines`.

        Arguments are those of `stream`; its own prefixes and constraints do not count then.
        """
        preparation = Preparation(self.loaded, self._requirements(settings.forbidden), settings)
        return preparation.prepare(line_list(lines, "lines"), prefixes, constraints)

    def source_forms(self, lines: Sequence[str]) -> list[list[tuple[str, str, str]]]:
        """Return the parts of each line in the form that is searched: head, text and tail."""
        preparation = Preparation(self.loaded, self._requirements(()), DEFAULT_SETTINGS)
        return [
            [(part.head, part.text, part.tail) for part in prepared.line.parts]
            for prepared in preparation.prepare(lines, None, None, return_attention=False)
        ]

    @overload
    def score(  # type: ignore[overload-overlap]
        self, lines: str, translations: str
    ) -> ScoredLine: ...
    @overload
    def score(self, lines: Iterable[str], translations: Iterable[str]) -> list[ScoredLine]: ...
    def score(self, lines: Any, translations: Any) -> ScoredLine | list[ScoredLine]:
        """Score given translations of lines, as `score_lines` does; or that of one string."""
        if not isinstance(lines, str):
            return score_lines(self.loaded, lines, translations)
        answers = [argument_types.text(translations, "translations")]
        return score_lines(self.loaded, [lines], answers)[0]

    def evaluate(
        self,
        sources: Iterable[str],
        references: Iterable[str] | Iterable[Iterable[str]],
        beam_size: int | None = None,
    ) -> "Scores":
        """Translate lines and score them by sacrebleu against a reference each, or several.

        Several references are lists of lines, `[first, second]`.

        Returns BLEU, chrF2 and TER by "bleu", "chrf" and "ter", each with `score`, its 95% interval
        `ci` and its `signature`. Raises UserError for unequal numbers of lines, and TypeError.
        """
        from seq2seq.evaluation import metrics, segmentation, writing_notes

        lines = line_list(sources, "sources")
        answers = lists_of_lines(references, "references")
        numbered = [(f"reference {n}", texts) for n, texts in enumerate(answers, start=1)]
        reference_texts = [("references", answers[0])] if len(answers) == 1 else numbered
        metrics.check_line_counts([("sources", lines), *reference_texts])
        texts = [entry.text for entry in self.translate(lines, beam_size, text_only=True)]
        for translations in answers:
            for note in writing_notes.writing_notes(texts, translations):
                logger.info(f"note: {note}")
        words = segmentation.segmentation_of("", answers)
        return metrics.score(texts, answers, segmentation=words)

    def check_phrases(
        self, phrases: Iterable[tuple[str, Sequence[str]]], settings: SearchSettings
    ) -> None:
        """Raise UserError for required phrases, after their place, that no translation can have."""
        requirements = self._requirements(settings.forbidden)
        for place, texts in phrases:
            requirements.lexical(texts, Masked("", {}), place)

    @cached_property
    def _requirements(self) -> Callable[[tuple[str, ...]], Requirements]:
        """Return a function from forbidden words to requirements, of which it keeps the last."""
        return lru_cache(2)(partial(Requirements, self.vocabularies))

    def search_size(
        self, requested: int | None, n_best: int, constrained: bool, settings: SearchSettings
    ) -> int:
        """Return the beam size, 1 for sampling.

        Raises UserError for too few candidates, and for options that exclude each other.
        """
        check_together(settings, beam_size=requested, constraints=constrained or None)
        sampling = settings.sampling
        size = self.beam_size(requested, n_best) if sampling is None else sampling.samples
        if settings.mbr is not None and size == 1:
            remedy = f"increase {argument('beam_size')} or {argument('samples')}"
            text = f"there is only one translation to choose from; {remedy}"
            raise UserError(text, argument="mbr", value=settings.mbr)
        if size % settings.groups:
            text = f"must divide the beam size ({size})"
            raise UserError(text, argument="groups", value=settings.groups)
        if n_best > size:
            text = f"more than the samples ({size}); increase {argument('samples')}"
            raise UserError(text, argument="n_best", value=n_best)
        return size if sampling is None else 1

    def _search_options(
        self, settings: SearchSettings, size: int, text_only: bool, forbidden: Forbidden | None
    ) -> SearchOptions:
        """Combine the settings of one call with the config; `size`: the beam size."""
        decoding = self.decoding
        vocabularies = self.vocabularies
        # Weights cost hardly any time on a CPU; coverage needs them.
        attention = self.device == "cpu" or not text_only or decoding.replace_unknown
        never = (PAD_ID, BOS_ID, UNK_ID) if vocabularies.tgt.has_byte_fallback else (PAD_ID, BOS_ID)
        if settings.sampling is not None:  # bytes that are drawn seldom spell characters
            never += (*vocabularies.tgt.byte_ids,)
        values = values_of(decoding) | values_of(settings) | {"beam_size": size}
        return SearchOptions(
            **values,
            forbidden_ids=never,
            forbidden_words=forbidden,
            return_scores=not text_only or settings.mbr is not None,
            return_attention=attention,
            kept_ids=range(0) if vocabularies.names is None else NAME_IDS,
        )

    def _joined(
        self,
        lines: Iterable[PreparedLine],
        parts: Iterator[Translation],
        n_best: int,
        by_score: bool,
    ) -> Iterator[Translation]:
        """Yield the translation of each line, joined from those of its parts."""
        for prepared in lines:
            line = prepared.line
            if line.is_copied:
                translation = Translation(
                    [NBestEntry(LINE_BREAKS.sub(" ", line.text), 0.0)] * n_best
                )
            else:
                translation = join_parts([next(parts) for _ in prepared.parts], n_best, by_score)
            notes = [*line.notes, *translation.notes]
            if prepared.parts:
                notes += self.source.notes_on_sentences(line.text, translation.text)
            yield replace(translation, left_out=line.is_left_out, notes=notes)
