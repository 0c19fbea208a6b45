"""Translation of one line, joined from those of its parts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from torch import Tensor

from seq2seq.inference.nbest import NBestEntry

LINE_BREAKS = re.compile("[\0\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_NO_SPACE_AFTER = tuple("\u3002\uff01\uff1f\u300d\u300f\uff09")


class AttentionMatrix(Sequence[list[float]]):
    """Attention weights [T, S]: a row for each target token, a column for each source token.

    A line in parts has one block per part on the diagonal, and zeros elsewhere. Only the blocks are
    kept, and rows are made when they are read: memory grows linearly with the length of a line.
    """

    def __init__(self, blocks: Sequence[Tensor]) -> None:
        """Take the weights of each part: float32 [T, S] on the CPU."""
        self.blocks = list(blocks)

    def __len__(self) -> int:
        return sum(len(block) for block in self.blocks)

    @overload
    def __getitem__(self, index: int) -> list[float]: ...
    @overload
    def __getitem__(self, index: slice) -> list[list[float]]: ...
    def __getitem__(self, index: int | slice) -> list[float] | list[list[float]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row, left = range(len(self))[index], 0
        width = sum(block.shape[1] for block in self.blocks)
        for block in self.blocks:
            if row < len(block):
                right = width - left - block.shape[1]
                return [0.0] * left + block[row].tolist() + [0.0] * right
            row, left = row - len(block), left + block.shape[1]
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


@dataclass(frozen=True)
class Translation:
    """Translation of one line; a blank line has a blank translation."""

    text: str = ""
    # log-probability in nats / length ** length_penalty; a mean over parts; nan if not requested
    score: float = 0.0
    src_tokens: list[str] = field(default_factory=list)  # end-of-sentence included
    tgt_tokens: list[str] = field(default_factory=list)
    attention_weights: AttentionMatrix | list[list[float]] | None = None  # [T, S], see there
    nbest: list[NBestEntry] = field(default_factory=list)  # best first
    parts: int = 1  # into which the line was split
    left_out: bool = False  # True if the end of a very long word was not translated
    notes: list[str] = field(
        default_factory=list
    )  # ways in which the line is unlike the training text
    log_probs: list[float] = field(default_factory=list)  # one per target token, nats, if requested


def join_parts(parts: list[Translation], n_best: int) -> Translation:
    """Join the translations of a line's parts; attention weights become diagonal blocks."""
    if not parts:
        return Translation(nbest=[NBestEntry("", 0.0)] * n_best)
    if len(parts) == 1:
        return _fill_nbest(parts[0], n_best)
    ranks = zip(*(_filled(part, n_best) for part in parts), strict=True)
    nbest = [_join_entries(rank) for rank in ranks]
    return Translation(
        nbest[0].text,
        nbest[0].score,
        [token for part in parts for token in part.src_tokens],
        [token for part in parts for token in part.tgt_tokens],
        _join_weights(parts),
        nbest,
        len(parts),
        log_probs=[value for part in parts for value in part.log_probs],
    )


def _join_entries(entries: Sequence[NBestEntry]) -> NBestEntry:
    lengths = [len(entry.tokens) for entry in entries]
    total = sum(n * entry.score for n, entry in zip(lengths, entries, strict=True))
    return NBestEntry(
        _join_texts([entry.text for entry in entries]),
        total / sum(lengths),
        [token for entry in entries for token in entry.tokens],
        [value for entry in entries for value in entry.log_probs],
    )


def _join_texts(texts: list[str]) -> str:
    """Join texts by spaces, except after a Chinese or Japanese sentence end."""
    line = ""
    for text in filter(None, texts):
        line += text if not line or line.endswith(_NO_SPACE_AFTER) else f" {text}"
    return line


def _join_weights(parts: list[Translation]) -> AttentionMatrix | None:
    """Return the parts' attention weights as blocks of one matrix; None if a part has none."""
    blocks: list[Tensor] = []
    for part in parts:
        if not isinstance(part.attention_weights, AttentionMatrix):
            return None
        blocks += part.attention_weights.blocks
    return AttentionMatrix(blocks)


def _filled(part: Translation, n_best: int) -> list[NBestEntry]:
    """Return the n-best list; repeat the last entry if search found fewer than `n_best` texts."""
    missing = n_best - len(part.nbest)
    return part.nbest + part.nbest[-1:] * missing


def _fill_nbest(part: Translation, n_best: int) -> Translation:
    nbest = _filled(part, n_best)
    return part if len(nbest) == len(part.nbest) else replace(part, nbest=nbest)


def with_names(tokens: list[str], names: Mapping[str, str]) -> list[str]:
    """Replace tokens that are placeholders by their names."""
    return [names.get(token, token) for token in tokens] if names else tokens
