"""Search settings of one call: together with the `decoding` section, the options of search."""

import math
from dataclasses import dataclass

from seq2seq.engines.engine import Sampling
from seq2seq.inference import descriptions, nbest
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError, argument
from seq2seq.text.glossary import Glossary

MAX_DIVERSITY = 1_000_000  # nats; beyond, float32 overflows


@dataclass(frozen=True)
class SearchSettings:
    """Requirements on all translations of a call, and the kind of search; see `descriptions`."""

    glossary: Glossary | None = None
    forbidden: tuple[str, ...] = ()
    sampling: Sampling | None = None
    groups: int = 1
    diversity: float = descriptions.DIVERSITY
    mbr: nbest.Metric | None = None
    head_attention: bool = False
    written_names: bool = True

    def __post_init__(self) -> None:
        """Raise UserError for values that are out of range or do not go together."""
        forbidden = argument_types.text_list(self.forbidden, "forbidden", "words and phrases")
        object.__setattr__(self, "forbidden", tuple(forbidden))
        sampling = self.sampling or Sampling()
        temperature, top_p = sampling.temperature, sampling.top_p
        metrics, bounded = ", ".join(nbest.METRICS), f"must be from 0 to {MAX_DIVERSITY:,}"
        for name, value, valid, rule in (
            ("mbr", self.mbr, self.mbr in (None, *nbest.METRICS), f"must be one of {metrics}"),
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


def refuse_together(name: str, **arguments: object) -> None:
    """Raise UserError for an argument that cannot be used with another that is given."""
    for other_name, value in arguments.items():
        if value is not None:
            text = f"cannot be used with {argument(other_name)}; remove one of them"
            raise UserError(f"{argument(name)} {text}")


DEFAULT_SETTINGS = SearchSettings()
