"""Translator: the Python API from text to text, which the command line uses as well."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch

from seq2seq.config.schema import DecodingConfig
from seq2seq.data.batching import LengthLimit, pad_sources
from seq2seq.data.lines import is_blank
from seq2seq.data.names.names import Masked
from seq2seq.data.source_profile import NO_PROFILE, SourceProfile
from seq2seq.data.vocabulary import (
    BOS_ID,
    NAME_IDS,
    PAD_ID,
    UNK_ID,
    Ids,
    Vocabularies,
    checksums_of,
    normalized,
    words_of,
)
from seq2seq.inference import weights
from seq2seq.inference.ensemble import Ensemble
from seq2seq.inference.forbidden import Forbidden
from seq2seq.inference.glossary import Glossary
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.inference.interface import Hypothesis, Model, NonFiniteError, SearchOptions
from seq2seq.inference.lexical import NO_LEXICAL, Lexical, LexicalMaker
from seq2seq.inference.mbr import Metric, expected_utilities
from seq2seq.inference.nbest import Candidate, NBestEntry, fill, merged
from seq2seq.inference.prefixes import NO_PREFIX, Prefix, PrefixMaker, check_prefixes
from seq2seq.inference.search import search
from seq2seq.inference.settings import DEFAULT_SETTINGS, SearchSettings
from seq2seq.inference.translation import (
    AttentionMatrix,
    Translation,
    join_parts,
    split_line,
    with_tag,
)
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.checkpoint import load_model, overridden_decoding, read_source_profile
from seq2seq.runtime import argument_types
from seq2seq.runtime.callers import in_callers_terms
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import RunError, UserError

_SENTENCES = "more sentences than in lines of the training text; cut at sentence ends"
_LONG = "longer than data.max_length; translated in parts"
_LEFT_OUT = "text without spaces that exceeds the length limit; only its start was translated"
MAX_ATTENTION_TOKENS = 2000  # attention weights of longer lines, quadratic in length, are dropped
MAX_SQUARED_LENGTHS = 10_000_000  # searched at once, to bound the memory of attention weights
_BLANK_CONSTRAINED = "blank lines stay blank, without their constraints"
_LINE_BREAKS = re.compile("[\0\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")


class _Part(NamedTuple):
    """A line, or a part of a long one, that is searched on its own."""

    ids: Ids
    words: list[str]  # the words of a word vocabulary, else empty
    prefix: Prefix  # NO_PREFIX for all but a line's first part
    masked: Masked  # the text of the ids, and its names
    lexical: Lexical  # phrases that its translation must contain
    return_attention: bool  # False for very long lines


class _Line(NamedTuple):
    """A line as parts, none if it is blank; some text of it may be omitted."""

    parts: list[_Part]
    left_out: bool
    notes: list[str]
    phrases: Sequence[str]  # that the translation must contain


@dataclass(eq=False)
class Translator:
    """A trained model, or an ensemble, that translates text.

    `Translator.load(run).translate(lines)` returns as objects what `seq2seq translate` prints.
    """

    model: Model
    vocabularies: Vocabularies
    limit: LengthLimit
    decoding: DecodingConfig
    max_length: int  # lines of more tokens are split
    device: torch.device
    source: SourceProfile = NO_PROFILE  # lines are compared with the training text
    name: str = "model"  # the run folders, for messages
    _last_forbidden: tuple[tuple[str, ...], Forbidden] | None = None

    @classmethod
    @in_callers_terms
    def load(
        cls,
        *runs: Path | str,
        device: str = "auto",
        int8: bool = False,
        overrides: Iterable[str] = (),
    ) -> Self:
        """Load a run folder, or several as an ensemble; `int8` quantizes weights for speed.

        Overrides of the config's `decoding` section are such as "decoding.length_penalty=0.6". An
        ensemble uses the `decoding` section and the length limits of its first run. Raises
        UserError if the runs do not fit together or the device lacks fast, exact int8 products.
        """
        if not runs:
            raise TypeError("runs: name at least one run folder, Translator.load('runs/my-run')")
        paths = [argument_types.path(run, "runs") for run in runs]
        chosen = choose_device(argument_types.device_name(device))
        if int8:
            weights.check_int8(chosen)
        loaded = [load_model(path, chosen) for path in paths]
        models = [_for_inference(each[0], chosen, int8, len(runs) == 1) for each in loaded]
        _, vocabularies, limit, config = loaded[0]
        decoding = overridden_decoding(paths[0], config, overrides)
        for run, (_, other_vocabularies, _, other) in zip(runs, loaded, strict=True):
            if checksums_of(other_vocabularies) != checksums_of(vocabularies):
                raise UserError(
                    f"{run}: has another vocabulary than {runs[0]}; "
                    "combine runs that share one in an ensemble"
                )
            if other.data.direction != config.data.direction:
                raise UserError(
                    f"{run}: translates {other.data.direction} but {runs[0]} "
                    f"{config.data.direction}; combine runs of one direction in an ensemble"
                )
        model: Model = models[0] if len(models) == 1 else Ensemble(models)
        source, name = read_source_profile(paths[0]), ", ".join(map(str, paths))
        longest = config.data.max_length
        return cls(model, vocabularies, limit, decoding, longest, chosen, source, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the translator with its weights; raises TypeError for int8 weights."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return _restored, (type(self), _DeviceName(str(self.device)), fields)

    @property
    @torch.inference_mode()
    def attends(self) -> bool:
        """Return True if translations have attention weights."""
        src, lengths = pad_sources([[]])
        memory, state = self.model.start(
            self.model.encode(src.to(self.device), lengths.to(self.device))
        )
        bos = torch.tensor([BOS_ID], device=self.device)
        return self.model.step(bos, state, memory).attention_weights is not None

    def beam_size(self, wanted: int | None, n_best: int) -> int:
        """Return the wanted beam size or the config's; raises UserError if below `n_best`."""
        size = self.decoding.beam_size
        if wanted is not None:
            size = argument_types.integer(wanted, "beam_size")
        n_best = argument_types.integer(n_best, "n_best")
        if n_best > size:
            raise UserError(f"--n-best {n_best}: larger than the beam ({size}); increase -b")
        return size

    @in_callers_terms
    def translate(
        self,
        lines: Iterable[str],
        beam_size: int | None = None,
        n_best: int = 1,
        prefixes: Iterable[str] | None = None,
        text_only: bool = False,
        on_translated: Callable[[int], object] | None = None,
        constraints: Iterable[Sequence[str]] | None = None,
        settings: SearchSettings = DEFAULT_SETTINGS,
    ) -> list[Translation]:
        """Translate lines, in order; see `stream`, which yields them one by one."""
        return list(
            self.stream(
                lines,
                beam_size,
                n_best,
                prefixes,
                text_only,
                on_translated,
                constraints,
                settings,
            )
        )

    @in_callers_terms
    def stream(
        self,
        lines: Iterable[str],
        beam_size: int | None = None,
        n_best: int = 1,
        prefixes: Iterable[str] | None = None,
        text_only: bool = False,
        on_translated: Callable[[int], object] | None = None,
        constraints: Iterable[Sequence[str]] | None = None,
        settings: SearchSettings = DEFAULT_SETTINGS,
    ) -> Iterator[Translation]:
        """Translate lines; yield the translations in order, so that few are held in memory.

        A beam size of None is the config's, 1 is greedy search.
        Lines are any ordered iterable of strings, such as a list, a generator or an open text file:
        a line feed that ends a line is ignored.

        `text_only` gives the same text and tokens sooner, without attention weights and, for greedy
        search, with nan for a score.

        Lines with more sentences than those of the training text, and lines of more than
        data.max_length tokens (see `split_line`) are split, and the translations of their parts
        joined; `notes` say so. Blank lines stay blank. With prefixes, one per line and blank for
        none, each translation starts with its prefix (NFC, with spaces and line breaks as single
        spaces); the last word of a prefix may continue unless a space follows it.

        An n-best list has `n_best` different texts, best first, each with its best tokens; a beam
        of up to 8 times the size is searched for those that are missing. Only if even that finds
        fewer, or the line is blank, the last one is repeated.

        With constraints, for each line the phrases that its translation must contain ([] for none),
        and with the `glossary` of the settings, search allocates the beam dynamically (Post & Vilar
        2018). A phrase that is given twice occurs twice.

        `on_translated` is called with numbers of lines as they are translated, in any order.

        Raises UserError if n_best exceeds the beam size or a prefix is refused, and TypeError for
        anything but strings, such as None or a single string in place of lines. Raises RunError if
        the model computes log-probabilities that are not finite.
        """
        lines = line_list(lines, "lines")
        size = self._search_size(beam_size, n_best, constraints is not None, settings)
        masked = [self._mask(line) for line in lines]
        line_prefixes = self._prefixes(masked, prefixes)
        phrases = _phrases(lines, constraints)
        encoded = self.vocabularies.src.encode([first.text for first, *_ in masked])
        split = [
            self._require(number, self._split(*each, return_attention=not text_only), settings)
            for number, each in enumerate(
                zip(lines, masked, encoded, line_prefixes, phrases, strict=True), start=1
            )
        ]
        options = self._options(size, text_only, settings)
        parts = [part for line in split for part in line.parts]
        found = self._search(parts, options, n_best, _counted(split, on_translated), settings.mbr)
        return (
            replace(
                join_parts([next(found) for _ in line.parts], n_best),
                left_out=line.left_out,
                notes=line.notes,
            )
            for line in split
        )

    def _require(self, number: int, line: "_Line", settings: SearchSettings) -> "_Line":
        """Add to the parts of line `number` the phrases that their translations must contain."""
        if not line.phrases and settings.glossary is None:
            return line
        parts: list[_Part] = []
        for part in line.parts:
            phrases = list(line.phrases) if not parts else []
            if settings.glossary is not None:
                part = self._with_glossary(part, settings.glossary)
                phrases += settings.glossary.targets(part.masked.text)
            if (names := self.vocabularies.names) is not None:
                phrases = [names.mask_target(each, part.masked.names) for each in phrases]
            lexical = self._lexical_maker.lexical(phrases, f"constraints of line {number}")
            parts.append(part._replace(lexical=lexical))
        notes = line.notes if parts or not line.phrases else [*line.notes, _BLANK_CONSTRAINED]
        return line._replace(parts=parts, notes=notes)

    def _with_glossary(self, part: _Part, glossary: Glossary) -> _Part:
        """Spell names as the glossary does; where it has a phrase with a name, mask none."""
        if (names := self.vocabularies.names) is None or not part.masked.names:
            return part
        given = {
            mark: names.spelling(name, glossary.targets)
            for mark, name in part.masked.names.items()
            if glossary.targets(name)
        }
        terms = sum(len(glossary.targets(name)) for name in part.masked.names.values())
        text = part.masked.written
        if len(glossary.targets(text)) == terms + len(glossary.targets(part.masked.text)):
            return part._replace(masked=part.masked._replace(given=given))
        (ids,) = self.vocabularies.src.encode([text])
        return part._replace(ids=ids, masked=Masked(text, {}))

    @cached_property
    def _lexical_maker(self) -> LexicalMaker:
        return LexicalMaker(self.vocabularies.tgt)

    def _mask(self, text: str) -> list[Masked]:
        """Return a text with its names masked, in parts if it has many names."""
        names = self.vocabularies.names
        return [Masked(text, {})] if names is None else names.mask(normalized(text))

    def _prefixes(
        self, lines: Sequence[Sequence[Masked]], prefixes: Iterable[str] | None
    ) -> list[Prefix]:
        """Return the prefix of each line; equal texts are converted once."""
        if prefixes is None:
            return [NO_PREFIX] * len(lines)
        prefixes = argument_types.text_list(prefixes, "prefixes", "one per line, '' for none")
        if len(prefixes) != len(lines):
            raise UserError(
                f"{len(prefixes)} prefixes for {len(lines)} lines; give one per line, '' for none"
            )
        check_prefixes(prefixes)
        if (names := self.vocabularies.names) is not None:
            prefixes = [
                names.mask_target(normalized(prefix), parts[0].names)
                for prefix, parts in zip(prefixes, lines, strict=True)
            ]
        made = {
            text: NO_PREFIX
            if is_blank(text)
            else self._prefix_maker.prefix(_LINE_BREAKS.sub(" ", text))
            for text in set(prefixes)
        }
        return [made[text] for text in prefixes]

    @cached_property
    def _prefix_maker(self) -> PrefixMaker:
        return PrefixMaker(self.vocabularies.tgt)

    def _options(self, size: int, text_only: bool, settings: SearchSettings) -> SearchOptions:
        decoding = self.decoding
        with_bytes = self.vocabularies.tgt.has_byte_fallback
        return SearchOptions(
            size,
            decoding.length_penalty,
            decoding.coverage_penalty,
            decoding.no_repeat_ngram,
            forbidden_ids=(PAD_ID, BOS_ID, UNK_ID) if with_bytes else (PAD_ID, BOS_ID),
            min_length=decoding.min_length,
            repetition_penalty=decoding.repetition_penalty,
            forbidden=self._forbidden(settings.forbidden),
            sampling=settings.sampling,
            groups=settings.groups,
            diversity=settings.diversity,
            return_scores=not text_only or settings.mbr is not None,
            return_attention=not text_only or self._needs_attention,
            kept_ids=range(0) if self.vocabularies.names is None else NAME_IDS,
        )

    def _search_size(
        self, wanted: int | None, n_best: int, constrained: bool, settings: SearchSettings
    ) -> int:
        """Return the beam size, 1 for sampling; raises UserError for too few candidates."""
        sampling = settings.sampling
        if sampling is None:
            size = self.beam_size(wanted, n_best)
            if size % settings.groups or (settings.groups > 1 and constrained):
                raise UserError(
                    f"--groups {settings.groups}: must divide the beam size ({size}) and cannot be "
                    "used with --constraints"
                )
            return size
        if constrained:
            raise UserError("--constraints cannot be used with --sample; remove one of them")
        if n_best > sampling.samples:
            raise UserError(
                f"--n-best {n_best}: more than the samples ({sampling.samples}); increase --sample"
            )
        return 1

    def _forbidden(self, words: tuple[str, ...]) -> Forbidden | None:
        """Return the automaton of forbidden words; it is kept for the next call."""
        if not any(not is_blank(word) for word in words):
            return None
        if self._last_forbidden is None or self._last_forbidden[0] != words:
            self._last_forbidden = words, Forbidden(self.vocabularies.tgt, words)
        return self._last_forbidden[1]

    @property
    def _needs_attention(self) -> bool:
        return self.decoding.replace_unknown

    def _search(
        self,
        parts: Sequence[_Part],
        options: SearchOptions,
        n_best: int,
        on_found: Callable[[int], None] | None,
        mbr: Metric | None,
    ) -> Iterator[Translation]:
        """Yield the translation of each part."""
        for rows in _chunks(parts):
            found = self._search_parts(
                parts[rows], options, on_found and partial(_call_shifted, on_found, rows.start)
            )
            own = list(parts[rows])
            for number, part in self._with_lost_names(own, found).items():
                own[number], found[number] = part, self._search_parts([part], options, None)[0]
            kept = None if n_best > 1 or mbr or options.sampling else 1
            lists = [
                self._candidates(part, hypotheses[:kept])
                for part, hypotheses in zip(own, found, strict=True)
            ]
            if mbr is not None:
                lists = [_by_utility(each, mbr, options) for each in lists]
            elif options.sampling is None:
                lists = [merged(each) for each in lists]
                fill(lists, n_best, options.size, self._wider(own, options))
            for part, candidates in zip(own, lists, strict=True):
                yield self._translation(part, candidates[:n_best])

    def _wider(
        self, parts: Sequence[_Part], options: SearchOptions
    ) -> Callable[[list[int], int], list[list[Candidate]]]:
        """Return a function that searches some of the parts with a larger beam."""

        def search_again(numbers: list[int], size: int) -> list[list[Candidate]]:
            short = [parts[number] for number in numbers]
            wide = options._replace(size=size, return_attention=self._needs_attention)
            found = self._search_parts(short, wide, None)
            return [self._candidates(*each) for each in zip(short, found, strict=True)]

        return search_again

    def _with_lost_names(
        self, parts: Sequence[_Part], lists: Sequence[Sequence[Hypothesis]]
    ) -> dict[int, _Part]:
        """Return parts whose best translations lack a name, with all their names masked."""
        if (names := self.vocabularies.names) is None:
            return {}
        found = {}
        for number, (part, hypotheses) in enumerate(zip(parts, lists, strict=True)):
            if names.loses(part.masked, self._text(part, hypotheses[0])):
                masked = names.mask_more(part.masked)
                (ids,) = self.vocabularies.src.encode([masked.text])
                found[number] = part._replace(ids=ids, masked=masked)
        return found

    def _search_parts(
        self,
        parts: Sequence[_Part],
        options: SearchOptions,
        on_found: Callable[[int], None] | None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each part; raises RunError if the model's output overflows."""
        limits = [self.decoding.max_length or self.limit(len(part.ids)) for part in parts]
        ids, prefixes = [part.ids for part in parts], [part.prefix for part in parts]
        lexical = [part.lexical for part in parts]
        try:
            return search(
                self.model, ids, limits, options, self.device, prefixes, on_found, lexical
            )
        except NonFiniteError as error:
            text = self.vocabularies.src.decode(ids[error.sentence])
            raise RunError(
                f"{self.name}: the best next token of a translation has the log-probability "
                f"{error.value}, not a finite number, for the text {text[:60]!r}; use another model"
            ) from None

    def _split(
        self,
        line: str,
        masked: list[Masked],
        ids: Ids,
        prefix: Prefix,
        phrases: Sequence[str],
        return_attention: bool,
    ) -> _Line:
        """Split a line with more sentences or names than is usual, or with too many tokens."""
        src = self.vocabularies.src
        if has_no_tokens(line, ids):
            return _Line([], False, [], phrases)
        encoded, left_out = [ids], False
        notes, tag = self.source.notes(line), src.tag_of(line)
        if not (prefix.states or phrases) and len(texts := self.source.parts(line)) > 1:
            masked = [part for text in with_tag(texts, tag) for part in self._mask(text)]
            notes.append(_SENTENCES)
        if len(masked) > 1:
            tagged = with_tag([part.text for part in masked], tag)
            masked = [part._replace(text=text) for part, text in zip(masked, tagged, strict=True)]
            encoded = src.encode([part.text for part in masked])
        if any(len(each) > self.max_length for each in encoded):
            room = max(1, self.max_length - (tag is not None))
            found = [split_line(part.text, src, room) for part in masked]
            masked = [
                Masked(text, part.names)
                for part, (texts, _) in zip(masked, found, strict=True)
                for text in with_tag(texts, tag)
            ]
            encoded = src.encode([part.text for part in masked])
            left_out = any(omitted for _, omitted in found)
            notes += [_LONG, _LEFT_OUT] if left_out else [_LONG]
        words = [[] if src.has_byte_fallback else words_of(part.text) for part in masked]
        return_attention = return_attention and sum(map(len, encoded)) <= MAX_ATTENTION_TOKENS
        prefixes = [prefix, *[NO_PREFIX] * (len(masked) - 1)]
        parts = [
            _Part(*each, NO_LEXICAL, return_attention)
            for each in zip(encoded, words, prefixes, masked, strict=True)
        ]
        return _Line(parts, left_out, notes, phrases)

    def _candidates(self, part: _Part, hypotheses: Sequence[Hypothesis]) -> list[Candidate]:
        return [Candidate(self._text(part, each), each) for each in hypotheses]

    def _translation(self, part: _Part, candidates: Sequence[Candidate]) -> Translation:
        """Return the translation of a part by its n-best candidates."""
        src, tgt, names = self.vocabularies
        best, attention = candidates[0].hypothesis, None
        spellings = names.spellings(part.masked) if names else {}
        if part.return_attention and best.attention_weights is not None:
            attention = AttentionMatrix([best.attention_weights])
        nbest = [
            NBestEntry(
                text,
                each.score,
                with_names(tgt.tokens(each.ids), spellings),
                list(each.log_probs),
            )
            for text, each in candidates
        ]
        return Translation(
            nbest[0].text,
            best.score,
            with_names([*src.tokens(part.ids), "</s>"], part.masked.names),
            list(nbest[0].tokens),
            attention,
            nbest,
            log_probs=list(nbest[0].log_probs),
        )

    def _text(self, part: _Part, hypothesis: Hypothesis) -> str:
        """Return the text of a hypothesis, or the source if it is blank."""
        src, tgt, names = self.vocabularies
        words = part.prefix.words
        if self.decoding.replace_unknown:
            words = words + _attended_words(part, hypothesis)[len(words) :]
        text = _one_line(tgt.decode(hypothesis.ids, words))
        if is_blank(text):
            text = _one_line(" ".join(part.words) or src.decode(part.ids))
        return text if names is None else names.restore(text, part.masked)


class _DeviceName:
    """Name of a device that is set up when the name is unpickled, before the weights are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        """Set up the device as `Translator.load` does."""
        return _set_up, (self.name,)


def _set_up(name: str) -> _DeviceName:
    choose_device(name)
    return _DeviceName(name)


def _restored(kind: type[Translator], _device: _DeviceName, fields: dict[str, Any]) -> Translator:
    return kind(**fields)


def _for_inference(
    model: Seq2Seq, device: torch.device, int8: bool, is_single: bool
) -> InferenceModel:
    """Wrap a model whose weights are final, in its fastest form on this device."""
    inference = InferenceModel(model)
    if int8:
        inference.replace_weights(weights.Int8Weight)
    elif device.type == "cpu":
        if is_single and weights.int8_shortlist_pays_off():
            inference.enable_int8_shortlist()
        if weights.prepacking_is_exact():
            inference.replace_weights(weights.PackedWeight)
    inference.precompute_input_gates()
    return inference


def _phrases(
    lines: Sequence[str], constraints: Iterable[Sequence[str]] | None
) -> list[Sequence[str]]:
    """Return the phrases of each line; raises UserError for another number of lines."""
    if constraints is None:
        return [()] * len(lines)
    phrases = [
        argument_types.text_list(each, f"constraints[{number}]", "phrases, [] for none")
        for number, each in enumerate(constraints)
    ]
    if len(phrases) != len(lines):
        raise UserError(
            f"{len(phrases)} constraints for {len(lines)} lines; give one list per line, [] for "
            "none"
        )
    return [[each for each in texts if not is_blank(each)] for texts in phrases]


def _by_utility(
    candidates: Sequence[Candidate], metric: Metric, options: SearchOptions
) -> list[Candidate]:
    """Return one candidate per text, by expected utility.

    Samples are weighted equally, hypotheses of a beam by their probability.
    """
    totals = [sum(each.hypothesis.log_probs) for each in candidates]
    weights = [1.0 if options.sampling else math.exp(each - max(totals)) for each in totals]
    utilities = expected_utilities([each.text for each in candidates], weights, metric)
    order = sorted(range(len(candidates)), key=lambda number: -utilities[number])
    return merged([candidates[number] for number in order])


def _counted(
    lines: Sequence[_Line], on_translated: Callable[[int], object] | None
) -> Callable[[int], None] | None:
    """Return a function to call with the number of each part; it reports completed lines."""
    if on_translated is None:
        return None
    if blank := sum(not line.parts for line in lines):
        on_translated(blank)
    left = [len(line.parts) for line in lines]
    line_of = [number for number, line in enumerate(lines) for _ in line.parts]

    def count(part: int) -> None:
        left[line_of[part]] -= 1
        if not left[line_of[part]]:
            on_translated(1)

    return count


def _call_shifted(on_found: Callable[[int], None], start: int, number: int) -> None:
    on_found(start + number)


def line_list(lines: Iterable[str], name: str) -> list[str]:
    """Return the lines of an ordered iterable, without their line ends (as of an open file).

    Raises TypeError for anything but strings.
    """
    return [
        line[:-1].removesuffix("\r") if line.endswith("\n") else line
        for line in argument_types.text_list(lines, name)
    ]


def has_no_tokens(line: str, ids: Ids) -> bool:
    """Return True if a line with these ids contains nothing to translate."""
    return is_blank(line) or not ids


def _one_line(text: str) -> str:
    """Replace line breaks by spaces and strip white space."""
    return _LINE_BREAKS.sub(" ", text).strip()


def with_names(tokens: list[str], names: Mapping[str, str]) -> list[str]:
    """Replace tokens that are placeholders by their names."""
    return [names.get(token, token) for token in tokens] if names else tokens


def _attended_words(part: _Part, hypothesis: Hypothesis) -> list[str]:
    """Return the most attended source word of each unknown token.

    Jean et al. (2015) translate that word by a dictionary if they can; here it is copied.
    """
    if hypothesis.attention_weights is None or not part.words:
        return []
    unknown = torch.tensor(hypothesis.ids) == UNK_ID
    weights = hypothesis.attention_weights[unknown, : len(part.words)]  # not end-of-sentence
    return [part.words[i] for i in weights.argmax(dim=1).tolist()]


def _chunks(parts: Sequence[_Part]) -> Iterator[slice]:
    """Yield slices of parts to search at once, bounded by MAX_SQUARED_LENGTHS."""
    start = total = 0
    for end, part in enumerate(parts):
        length = len(part.ids) + 1
        total += length * (length + len(part.prefix.states))
        if total > MAX_SQUARED_LENGTHS:
            yield slice(start, end + 1)
            start, total = end + 1, 0
    if start < len(parts):
        yield slice(start, len(parts))
