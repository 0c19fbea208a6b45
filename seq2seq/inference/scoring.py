"""How likely a model finds given translations: text in, log-probabilities out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from seq2seq.data.batching import Ids
from seq2seq.data.vocabulary import EOS_ID
from seq2seq.inference.forced_decoding import forced_log_probs
from seq2seq.inference.translator import Translator, is_blank


@dataclass(frozen=True)
class Scored:
    """What a model thinks of one translation, in nats; see `score_lines` for blank ones."""

    score: float = 0.0  # log_prob divided by length ** length_penalty, as a Translation has it
    log_prob: float = 0.0
    src_tokens: list[str] = field(default_factory=list)  # END included
    tgt_tokens: list[str] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)  # of each target piece

    @property
    def possible(self) -> bool:
        """Whether both sides have text, or neither."""
        return self.log_prob > -math.inf

    @property
    def perplexity(self) -> float:
        """`exp(-log_prob / length)`; 1 where there is nothing to be perplexed by."""
        return perplexity(self.log_prob, len(self.log_probs))


_BOTH_BLANK, _ONE_BLANK = Scored(), Scored(-math.inf, -math.inf)


def perplexity(log_prob: float, pieces: int) -> float:
    """The inverse of the pieces' mean probability (the geometric mean)."""
    return math.exp(min(-log_prob / max(1, pieces), 700.0))


def score_lines(
    translator: Translator, lines: Sequence[str], translations: Sequence[str]
) -> list[Scored]:
    """How likely each line's given translation is, in order; both are taken whole, however long.

    A text is cut into the pieces that the vocabulary gives it; one that search found in other
    pieces has another score. The coverage penalty of a beam is not part of it. Blank translates
    blank with certainty, and nothing else does: there the score is 0, and -inf where one side
    alone is blank.
    """
    src, tgt = translator.vocabularies
    found = []
    pairs: list[tuple[Ids, Ids]] = []
    encoded = zip(lines, translations, src.encode(lines), tgt.encode(translations), strict=True)
    for line, translation, src_ids, tgt_ids in encoded:
        blank = is_blank(line, src_ids), is_blank(translation, tgt_ids)
        found.append(_BOTH_BLANK if all(blank) else _ONE_BLANK)
        pairs.append(([], []) if any(blank) else (src_ids, tgt_ids))
    rows = [i for i, (src_ids, _) in enumerate(pairs) if src_ids]
    sources, targets = [pairs[i][0] for i in rows], [pairs[i][1] for i in rows]
    log_probs = forced_log_probs(translator.model, sources, targets, translator.device)
    for i, values in zip(rows, log_probs, strict=True):
        found[i] = _scored(translator, *pairs[i], values)
    return found


def _scored(translator: Translator, src_ids: Ids, tgt_ids: Ids, log_probs: list[float]) -> Scored:
    total = 0.0
    for each in log_probs:  # as greedy search adds up; `sum` rounds otherwise from Python 3.12 on
        total += each
    src, tgt = translator.vocabularies
    return Scored(
        total / len(log_probs) ** translator.decoding.length_penalty,
        total,
        src.tokens([*src_ids, EOS_ID]),
        tgt.tokens([*tgt_ids, EOS_ID]),
        log_probs,
    )
