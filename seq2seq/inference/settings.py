"""Search settings of one call: together with the `decoding` section, the options of search."""

import math
from dataclasses import dataclass

from seq2seq.data.vocabulary.vocabulary import BOS_ID, NAME_IDS, PAD_ID, UNK_ID, Vocabularies
from seq2seq.engines.engine import Sampling
from seq2seq.inference.glossary import Glossary
from seq2seq.inference.mbr import METRICS, Metric
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.search.interface import DecodingSettings, SearchOptions
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError, argument


@dataclass(frozen=True)
class SearchSettings:
    """Requirements on all translations of a call, and the kind of search."""

    glossary: Glossary | None = None  # target phrases required by source phrases
    forbidden: tuple[str, ...] = ()  # words and phrases that no translation contains
    sampling: Sampling | None = None  # draw translations, in place of beam search
    groups: int = 1  # diverse beam search: number of groups
    diversity: float = 0.5  # penalty, nats, for a token that an earlier group takes
    mbr: Metric | None = None  # choose among the hypotheses or samples by minimum Bayes risk
    head_attention: bool = False  # also return the attention weights of each head
    written_names: bool = True  # a name whose spelling is not certain follows it as written

    def __post_init__(self) -> None:
        """Raise UserError for values that are out of range or do not go together.

        Raises TypeError for values of other types. Any ordered iterable of strings is `forbidden`.
        """
        self._check_types()
        forbidden = argument_types.text_list(self.forbidden, "forbidden", "words and phrases")
        object.__setattr__(self, "forbidden", tuple(forbidden))
        if self.mbr is not None and self.mbr not in METRICS:
            raise UserError(f"must be one of {', '.join(METRICS)}", argument="mbr", value=self.mbr)
        if self.groups < 1:
            raise UserError("must be at least 1", argument="groups", value=self.groups)
        if not 0 <= self.diversity < math.inf:
            raise UserError(
                "must be a finite number of at least 0", argument="diversity", value=self.diversity
            )
        if self.groups > 1 and (self.sampling is not None or self.glossary is not None):
            raise UserError(
                f"{argument('groups')} cannot be used with {argument('sampling')} or "
                f"{argument('glossary')}; remove one of them"
            )
        if (sampling := self.sampling) is None:
            return
        if self.glossary is not None:
            raise UserError(
                f"{argument('glossary')} cannot be used with {argument('sampling')}; remove one of "
                "them"
            )
        if not (sampling.temperature > 0 and math.isfinite(sampling.temperature)):
            raise UserError(
                "must be a positive number", argument="temperature", value=sampling.temperature
            )
        if not 0 < sampling.top_p <= 1:
            raise UserError("must be above 0 and at most 1", argument="top_p", value=sampling.top_p)
        if sampling.top_k < 0:
            raise UserError("must be at least 0", argument="top_k", value=sampling.top_k)
        if sampling.samples < 1:
            raise UserError("must be at least 1", argument="samples", value=sampling.samples)

    def _check_types(self) -> None:
        """Raise TypeError for values of other types than those of the fields."""
        argument_types.integer(self.groups, "groups", None, None)
        argument_types.check_number(self.diversity, "diversity")
        if self.glossary is not None:
            remedy = "write Glossary.read(path), or Glossary(terms) of pairs"
            argument_types.check_instance(self.glossary, Glossary, "glossary", remedy)
        if (sampling := self.sampling) is None:
            return
        argument_types.check_instance(sampling, Sampling, "sampling", "write Sampling(samples=1)")
        for name in ("samples", "top_k", "seed"):
            argument_types.integer(getattr(sampling, name), name, None, None)
        for name in ("temperature", "top_p"):
            argument_types.check_number(getattr(sampling, name), name)


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
        kept_ids=range(0) if vocabularies.names is None else NAME_IDS,
    )
