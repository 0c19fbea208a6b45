"""Search options and hypotheses."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from seq2seq.data.vocabulary.vocabulary import BOS_ID, PAD_ID, Ids
from seq2seq.engines.engine import Array, Sampling
from seq2seq.runtime.errors import RunError

MIN_COVERAGE = 1e-4  # summed attention assumed for neglected source positions
MAX_FACTOR = 1e30  # larger penalties and norms overflow in float32: scores would be equal or nan

if TYPE_CHECKING:
    from seq2seq.inference.search.forbidden import Forbidden


class DecodingSettings(Protocol):
    """The `decoding` section of a config, of a run or of an exported model."""

    @property
    def beam_size(self) -> int: ...
    @property
    def length_penalty(self) -> float: ...
    @property
    def coverage_penalty(self) -> float: ...
    @property
    def no_repeat_ngram(self) -> int: ...
    @property
    def replace_unknown(self) -> bool: ...
    @property
    def max_length(self) -> int | None: ...
    @property
    def min_length(self) -> int: ...
    @property
    def repetition_penalty(self) -> float: ...


class SearchOptions(NamedTuple):
    """Beam size, scoring of hypotheses, constraints, and what is returned.

    The length penalty is `length ** length_penalty`, end-of-sentence counted, where Wu et al.
    (2016), eq. 14, have `((5 + length) / 6) ** alpha`.
    """

    size: int  # hypotheses per sentence; 1: greedy search
    length_penalty: float = 1.0  # log-probabilities are divided by length to this power
    coverage_penalty: float = 0.0  # beta of Wu et al. (2016), eq. 14; greedy: with phrases
    no_repeat_ngram: int = 0  # no n-gram of this size occurs twice in a hypothesis; 0: any may
    forbidden_ids: tuple[int, ...] = (PAD_ID, BOS_ID)  # tokens that no hypothesis contains
    min_length: int = 0  # tokens at least, end-of-sentence not counted
    repetition_penalty: float = 1.0  # factor on log-probabilities of tokens in the hypothesis
    forbidden: "Forbidden | None" = None  # words that no hypothesis contains
    sampling: Sampling | None = None  # with size 1
    groups: int = 1  # diverse beam search: number of groups, a divisor of the size
    diversity: float = 0.0  # penalty, nats, for a token that an earlier group takes at this step
    byte_ids: range = range(0)  # tokens of the bytes 0 to 255, which samples spell characters with
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
