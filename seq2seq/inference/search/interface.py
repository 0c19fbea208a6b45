"""Requests and options that a search takes, and the hypotheses that it returns."""

from dataclasses import dataclass
from typing import NamedTuple

from seq2seq.config.search_options import CallOptions, Decoding
from seq2seq.data.vocabulary.vocabulary import BOS_ID, PAD_ID, Ids
from seq2seq.engines.engine import Array
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.search.lexical import NO_LEXICAL, NO_PREFIX, Lexical, Prefix
from seq2seq.runtime.errors import RunError


@dataclass(frozen=True)
class SearchOptions(CallOptions, Decoding):
    """The options of a config and of a call, by their names, and what follows from them.

    With sampling the beam size is 1; the number of groups divides it. The length penalty is
    `length ** length_penalty`, end-of-sentence counted, where Wu et al. (2016), eq. 14, have
    `((5 + length) / 6) ** alpha`; the coverage penalty is their beta, in greedy search with phrases
    alone.
    """

    forbidden_ids: tuple[int, ...] = (PAD_ID, BOS_ID)  # tokens that no hypothesis contains
    forbidden_words: Forbidden | None = None  # words that no hypothesis contains
    kept_ids: range = range(0)  # tokens that a hypothesis contains as its source does
    return_scores: bool = True  # if False, greedy search may save time and return nan
    return_attention: bool = True  # if False, attention weights are not kept, which saves time
    returned: int = 0  # hypotheses at most of each beam; 0: all, which takes a little longer


class NonFiniteError(RunError):
    """A model gave a sentence log-probabilities that are not finite, so search has no order."""

    def __init__(self, sentence: int, value: float) -> None:
        super().__init__(
            f"sentence {sentence + 1}: the best next token has log-probability {value}"
        )
        self.sentence = sentence  # place among the sources, from 0
        self.value = value


class Hypothesis(NamedTuple):
    """One translation, end-of-sentence included."""

    ids: Ids
    score: float  # log-probability in nats / length ** length_penalty + coverage penalty
    attention_weights: Array | None  # [T, S], float32, end-of-sentence included on both sides
    log_probs: tuple[float, ...] = ()  # one per token, nats; empty if scores are not wanted


class Request(NamedTuple):
    """A source to translate, with what its translation must begin with and contain."""

    source: Ids  # without end-of-sentence
    limit: int  # tokens at most, without end-of-sentence, but for a prefix or phrases
    prefix: Prefix = NO_PREFIX
    lexical: Lexical = NO_LEXICAL
    marks: tuple[int, ...] = ()  # tokens that wait for all that the translation contains
    fixed: Ids | None = None  # the translation, end-of-sentence included: scored, not searched

    @property
    def squared_length(self) -> int:
        """Return a measure of the memory for attention weights."""
        source = len(self.source) + 1
        return source * (source + len(self.prefix.states))
