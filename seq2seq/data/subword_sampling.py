"""Random segmentations of words: subword regularisation, as a pure function of (text, seed).

Pieces never cross a space, so a text's segmentation is drawn word by word. Each word's possible
segmentations are worked out once and kept. (SentencePiece can draw as well, but draws differently
in each process: a resumed run would not be the run that was interrupted.)
"""

import hashlib
import math
from array import array
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import numpy as np
from sentencepiece import SentencePieceProcessor

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how SentencePiece writes the space before a word
VARIANTS = 32  # kept of each word; of BPE half as many, which are dearer to make
NEW_WORDS = 40_000  # kept at a time, and at most as many from before; some 900 bytes each


class Variants(NamedTuple):
    """Segmentations of a word, packed as bytes, for there are many."""

    code: str  # the type of ids and ends: H or I, 16 or 32 bits
    ids: bytes  # one segmentation after the other
    ends: bytes  # where each one ends
    cumulative: bytes  # float64: their cumulative probabilities; the last is 1

    def draw(self, number: float) -> list[int]:
        """The segmentation in whose share of 0 to 1 the number lies."""
        cumulative = memoryview(self.cumulative).cast("d")
        ends = memoryview(self.ends).cast(self.code)  # type: ignore[call-overload]
        n = min(bisect(cumulative, number), len(ends) - 1)
        ids = memoryview(self.ids).cast(self.code)  # type: ignore[call-overload]
        drawn: list[int] = ids[ends[n - 1] if n else 0 : ends[n]].tolist()
        return drawn


def packed(ids: list[list[int]], cumulative: list[float]) -> Variants:
    """Segmentations with their cumulative probabilities."""
    flat, ends = list(chain.from_iterable(ids)), list(accumulate(map(len, ids)))
    code = "H" if max(chain(flat, ends)) < 1 << 16 else "I"
    return Variants(
        code,
        array(code, flat).tobytes(),
        array(code, ends).tobytes(),
        array("d", cumulative).tobytes(),
    )


class SubwordSampler:
    """Draws segmentations under a unigram or BPE model of SentencePiece."""

    def __init__(self, processor: SentencePieceProcessor, amount: float) -> None:
        """`amount` is the exponent of a unigram model's distribution, or the dropout of BPE."""
        self._processor = processor
        self._amount = amount
        self._pieces = _scores(processor)
        # BPE's scores are its merges' ranks, negated; a unigram model's are log-probabilities.
        self._bpe = all(score.is_integer() for score, _ in self._pieces.values())
        self._known: dict[str, Variants] = {}
        self._before: dict[str, Variants] = {}  # known until there were too many

    def sample(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """The ids of each text under one random segmentation."""
        words = [[word for word in text.replace(SPACE, " ").split(" ") if word] for text in texts]
        draws = iter(np.random.Generator(np.random.PCG64(seed)).random(sum(map(len, words))))
        return [[i for word in line for i in self._draw(word, next(draws))] for line in words]

    def _draw(self, word: str, number: float) -> list[int]:
        variants = self._known.get(word)
        if variants is None:
            if len(self._known) == NEW_WORDS:
                self._known, self._before = {}, self._known
            variants = self._before.get(word) or self._variants(word)
            self._known[word] = variants
        return variants.draw(number)

    def _variants(self, word: str) -> Variants:
        if not self._bpe:
            return self._likeliest(word)
        ids = _dropped_out(word, self._pieces, self._amount, self._processor)
        return packed(ids, [(n + 1) / len(ids) for n in range(len(ids))])

    def _likeliest(self, word: str) -> Variants:
        """Kudo (2018), section 3.2: of the n best, each with its probability to the power given."""
        ids: list[list[int]] = self._processor.nbest_encode(word, nbest_size=VARIANTS)
        scores = [self._amount * sum(map(self._processor.get_score, each)) for each in ids]
        weights = [math.exp(score - max(scores)) for score in scores]
        return packed(ids, [part / sum(weights) for part in accumulate(weights)])


def _scores(processor: SentencePieceProcessor) -> dict[str, tuple[float, int]]:
    """Score (higher merges first) and id of each piece, special ones and bytes left out."""
    return {
        processor.id_to_piece(i): (processor.get_score(i), i)
        for i in range(processor.get_piece_size())
        if not (processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i))
    }


def _dropped_out(
    word: str,
    ranks: dict[str, tuple[float, int]],
    dropout: float,
    processor: SentencePieceProcessor,
) -> list[list[int]]:
    """Provilkov et al. (2020): merge as BPE does, each merge left out with probability `dropout`.

    The draws of a word depend on the word alone.
    """
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    generator = np.random.Generator(np.random.PCG64(seed))
    found = []
    for _ in range(VARIANTS // 2):
        pieces = list(SPACE + word)
        while merges := [
            (ranks[left + right][0], -n)
            for n, (left, right) in enumerate(pairwise(pieces))
            if left + right in ranks and generator.random() >= dropout
        ]:
            n = -max(merges)[1]
            pieces[n : n + 2] = [pieces[n] + pieces[n + 1]]
        found.append([i for piece in pieces for i in _ids(piece, ranks, processor)])
    return found


def _ids(
    piece: str, ranks: dict[str, tuple[float, int]], processor: SentencePieceProcessor
) -> list[int]:
    """The id of a piece, or those of the bytes of a character that is none."""
    if piece in ranks:
        return [ranks[piece][1]]
    return [processor.piece_to_id(f"<0x{byte:02X}>") for byte in piece.encode()]
