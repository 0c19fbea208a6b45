"""N-best lists: hypotheses of one text are merged, and a wider beam finds what is then missing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.config.search_options import Metric as Metric
from seq2seq.inference.search.interface import Hypothesis
from seq2seq.runtime.cancellation import check_cancelled

WIDENINGS = 3  # searches with a beam of twice the size each time
MAX_BEAM = 512  # hypotheses of a widened beam, to bound its memory


class AttentionBlocks:
    """Attention weights of a line's parts: one float32 array [T, S], or [M, T, S], for each part.

    Their memory grows linearly with the length of a line, that of `matrix` with its square.
    """

    def __init__(self, blocks: Sequence[NDArray[np.float32]]) -> None:
        self.blocks = tuple(blocks)

    def matrix(self) -> NDArray[np.float32]:
        """Return the weights [..., T, S] of the line: blocks on the diagonal, zeros elsewhere."""
        if len(self.blocks) == 1:
            return self.blocks[0]
        ends = np.cumsum([block.shape[-2:] for block in self.blocks], axis=0)
        matrix = np.zeros((*self.blocks[0].shape[:-2], *ends[-1]), np.float32)
        for block, (below, right) in zip(self.blocks, ends, strict=True):
            rows, columns = block.shape[-2:]
            matrix[..., below - rows : below, right - columns : right] = block
        return matrix

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AttentionBlocks) or len(self.blocks) != len(other.blocks):
            return False
        return all(map(np.array_equal, self.blocks, other.blocks))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AttentionBlocks({', '.join(str(list(block.shape)) for block in self.blocks)})"


@dataclass(frozen=True)
class NBestEntry:
    """One translation of an n-best list, of T target tokens; see `Translation`.

    Scores of beams have the coverage penalty, too. A line in parts has the mean by target tokens.
    """

    text: str
    score: float  # log-probability in nats / T ** length_penalty
    tokens: list[str] = field(default_factory=list)  # [T], end-of-sentence included
    log_probs: list[float] = field(default_factory=list)  # [T], log-probabilities in nats
    attention_blocks: AttentionBlocks | None = None
    head_blocks: AttentionBlocks | None = None
    part_texts: tuple[str, ...] = ()  # the texts of a line's parts, if it has several

    @property
    def attention(self) -> NDArray[np.float32] | None:
        """Return the attention weights [T, S], rows of sum 1 (at most 1 with local_p), or None."""
        return None if self.attention_blocks is None else self.attention_blocks.matrix()

    @property
    def head_attention(self) -> NDArray[np.float32] | None:
        """Return the attention weights [M, T, S] of each head, whose mean `attention` is."""
        return None if self.head_blocks is None else self.head_blocks.matrix()


class Candidate(NamedTuple):
    """A hypothesis and its text."""

    text: str
    hypothesis: Hypothesis


def merged(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the best hypothesis, in whatever tokens, of each text; candidates are best first."""
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        best.setdefault(candidate.text, candidate)
    return list(best.values())


def below(first: Candidate, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates of other texts that score no more than the first one."""
    highest_score = first.hypothesis.score
    return [c for c in candidates if c.text != first.text and c.hypothesis.score <= highest_score]


def extend(candidates: list[Candidate], wider: Sequence[Candidate]) -> None:
    """Extend a list of merged candidates, in place, by those of a wider beam.

    They enter it below its first entry only: the best translation does not depend on `n_best`.
    """
    first, *lower_entries = candidates
    ranked = sorted([*lower_entries, *below(first, wider)], key=lambda c: -c.hypothesis.score)
    candidates[1:] = merged(ranked)


def expected_utilities(texts: list[str], weights: list[float], metric: Metric) -> list[float]:
    """Return the expected utility of each text against all texts, weighted (Kumar & Byrne 2004).

    `U(h) = sum over r of p(r) u(h, r)`, where `u` is sacrebleu's sentence chrF, or BLEU with
    effective order. Equal texts are scored once.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    scorer: BLEU | CHRF = CHRF() if metric == "chrf" else BLEU(effective_order=True)
    share: dict[str, float] = {}
    for text, weight in zip(texts, weights, strict=True):
        share[text] = share.get(text, 0.0) + weight
    total = sum(share.values())
    utility = {}
    for text in share:
        check_cancelled()
        scores = (
            weight * float(scorer.sentence_score(text, [reference]).score)
            for reference, weight in share.items()
        )
        utility[text] = sum(scores) / total
    return [utility[text] for text in texts]
