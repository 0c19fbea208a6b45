"""Search settings of one call: together with the `decoding` section, the options of search."""

import math
from dataclasses import dataclass

from seq2seq.data.vocabulary.vocabulary import BOS_ID, NAME_IDS, PAD_ID, UNK_ID, Vocabularies
from seq2seq.engines.engine import Sampling
from seq2seq.inference.descriptions import DIVERSITY
from seq2seq.inference.glossary import Glossary
from seq2seq.inference.mbr import METRICS, Metric
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.search.interface import DecodingSettings, SearchOptions
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError, argument

MAX_DIVERSITY = 1_000_000  # nats; beyond, float32 overflows


@dataclass(frozen=True)
class SearchSettings:
    """Requirements on all translations of a call, and the kind of search; see `descriptions`."""

    glossary: Glossary | None = None
    forbidden: tuple[str, ...] = ()
    sampling: Sampling | None = None
    groups: int = 1
    diversity: float = DIVERSITY
    mbr: Metric | None = None
    head_attention: bool = False
    written_names: bool = True

    def __post_init__(self) -> None:
        """Raise UserError for values that are out of range or do not go together.

        Raises TypeError for values of other types. Any ordered iterable of strings is `forbidden`.
        """
        self._check_types()
        forbidden = argument_types.text_list(self.forbidden, "forbidden", "words and phrases")
        object.__setattr__(self, "forbidden", tuple(forbidden))
        sampling = self.sampling or Sampling()
        temperature, top_p = sampling.temperature, sampling.top_p
        metrics, bounded = ", ".join(METRICS), f"must be from 0 to {MAX_DIVERSITY:,}"
        for name, value, valid, rule in (
            ("mbr", self.mbr, self.mbr in (None, *METRICS), f"must be one of {metrics}"),
            ("groups", self.groups, self.groups >= 1, "must be at least 1"),
            ("diversity", self.diversity, 0 <= self.diversity <= MAX_DIVERSITY, bounded),
            ("temperature", temperature, 0 < temperature < math.inf, "must be a positive number"),
            ("top_p", top_p, 0 < top_p <= 1, "must be above 0 and at most 1"),
            ("top_k", sampling.top_k, sampling.top_k >= 0, "must be at least 0"),
            ("samples", sampling.samples, sampling.samples >= 1, "must be at least 1"),
        ):
            if not valid:
                raise UserError(rule, argument=name, value=value)
        if self.groups > 1:
            refuse_together("groups", sampling=self.sampling, glossary=self.glossary)
        if self.glossary is not None:
            refuse_together("glossary", sampling=self.sampling)

    def _check_types(self) -> None:
        """Raise TypeError for values of other types than those of the fields."""
        if self.glossary is not None:
            remedy = "write Glossary.read(path), or Glossary(terms) of pairs"
            argument_types.check_instance(self.glossary, Glossary, "glossary", remedy)
        if self.sampling is not None:
            remedy = "write Sampling(samples=1)"
            argument_types.check_instance(self.sampling, Sampling, "sampling", remedy)
        numbers = (self.sampling or Sampling())._asdict()
        numbers |= {"groups": self.groups, "diversity": self.diversity}
        for name, value in numbers.items():
            if name in ("temperature", "top_p", "diversity"):
                argument_types.check_number(value, name)
            else:
                argument_types.integer(value, name, None, None)


def refuse_together(name: str, **arguments: object) -> None:
    """Raise UserError for an argument that cannot be used with another that is given."""
    for other_name, value in arguments.items():
        if value is not None:
            text = f"cannot be used with {argument(other_name)}; remove one of them"
            raise UserError(f"{argument(name)} {text}")


DEFAULT_SETTINGS = SearchSettings()


def search_options(
    settings: SearchSettings,
    decoding: DecodingSettings,
    vocabularies: Vocabularies,
    size: int,
    text_only: bool,
    forbidden: Forbidden | None,
) -> SearchOptions:
    """Combine the settings of one call with the config; `size`: the beam size."""
    with_bytes = vocabularies.tgt.has_byte_fallback
    return SearchOptions(
        size,
        decoding.length_penalty,
        decoding.coverage_penalty,
        decoding.no_repeat_ngram,
        forbidden_ids=(PAD_ID, BOS_ID, UNK_ID) if with_bytes else (PAD_ID, BOS_ID),
        min_length=decoding.min_length,
        repetition_penalty=decoding.repetition_penalty,
        forbidden=forbidden,
        sampling=settings.sampling,
        groups=settings.groups,
        diversity=settings.diversity,
        return_scores=not text_only or settings.mbr is not None,
        return_attention=not text_only or decoding.replace_unknown,
        byte_ids=vocabularies.tgt.byte_ids,
        kept_ids=range(0) if vocabularies.names is None else NAME_IDS,
    )
