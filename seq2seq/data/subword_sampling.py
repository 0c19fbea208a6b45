"""Subword regularization: random segmentations of words, a pure function of (text, seed).

Tokens never cross a space, so each word of a text is sampled independently, where Kudo (2018)
samples among the best segmentations of a sentence. The candidate segmentations of a word are
computed once and kept. (SentencePiece's own sampling differs between processes: a resumed run would
not repeat the interrupted one.)
"""

import hashlib
import math
import re
from array import array
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import numpy as np
from sentencepiece import SentencePieceProcessor

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's symbol for the space before a word
CANDIDATES = 32  # per word; half as many for BPE, whose candidates take longer to compute
_EDGES = re.compile(r"^\W+|\W+$")  # punctuation around a word
MAX_NEW_WORDS = 40_000  # kept, besides as many previous ones; about 900 bytes each


class Candidates(NamedTuple):
    """Segmentations of a word, packed as bytes to save memory."""

    code: str  # type of ids and ends: H or I, 16 or 32 bits
    ids: bytes  # the segmentations, concatenated
    ends: bytes  # the end of each segmentation
    cumulative: bytes  # float64 cumulative probabilities; the last is 1

    def draw(self, number: float) -> list[int]:
        """Return the segmentation whose interval of the cumulative probabilities has the number."""
        cumulative = memoryview(self.cumulative).cast("d")
        ends = memoryview(self.ends).cast(self.code)  # type: ignore[call-overload]
        n = min(bisect(cumulative, number), len(ends) - 1)
        ids = memoryview(self.ids).cast(self.code)  # type: ignore[call-overload]
        drawn: list[int] = ids[ends[n - 1] if n else 0 : ends[n]].tolist()
        return drawn


def pack_candidates(ids: list[list[int]], cumulative: list[float]) -> Candidates:
    """Pack segmentations and their cumulative probabilities."""
    flat, ends = list(chain.from_iterable(ids)), list(accumulate(map(len, ids)))
    code = "H" if max(chain(flat, ends)) < 1 << 16 else "I"
    return Candidates(
        code,
        array(code, flat).tobytes(),
        array(code, ends).tobytes(),
        array("d", cumulative).tobytes(),
    )


class SubwordSampler:
    """Samples segmentations under a unigram or BPE model of SentencePiece."""

    def __init__(self, processor: SentencePieceProcessor, amount: float) -> None:
        """`amount`: the exponent of a unigram model's probabilities, or the BPE dropout rate."""
        self._processor = processor
        self._amount = amount
        self._scores = _scores(processor)
        # Scores of BPE are negated merge ranks; those of a unigram model are log-probabilities.
        self._bpe = all(score.is_integer() for score, _ in self._scores.values())
        self._known: dict[str, Candidates] = {}
        self._previous: dict[str, Candidates] = {}  # words known before MAX_NEW_WORDS was reached

    def sample(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """Return the ids of each text under one random segmentation."""
        words = [_words(text) for text in texts]
        return [self._line(*each) for each in zip(words, _numbers(words, seed), strict=True)]

    def sample_pairs(
        self, src: Sequence[str], tgt: Sequence[str], seed: int
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the ids of both sides, `tgt` drawn with seed + 1, equal words segmented alike.

        A word of a pair that occurs before, on either side and whatever punctuation surrounds it,
        takes the random number of its first occurrence. A string that is copied from source to
        target thus consists of the same tokens on both sides.
        """
        sides = [[_words(text) for text in texts] for texts in (src, tgt)]
        numbers = [_numbers(side, seed + n) for n, side in enumerate(sides)]
        found: tuple[list[list[int]], list[list[int]]] = ([], [])
        for lines in zip(*sides, *numbers, strict=True):
            first: dict[str, float] = {}
            for words, own, side in zip(lines[:2], lines[2:], found, strict=True):
                shared = [
                    first.setdefault(_EDGES.sub("", word), number)
                    for word, number in zip(words, own, strict=True)
                ]
                side.append(self._line(words, shared))
        return found

    def _line(self, words: Sequence[str], numbers: Sequence[float]) -> list[int]:
        drawn = map(self._draw, words, numbers)
        return [*chain.from_iterable(drawn)]

    def _draw(self, word: str, number: float) -> list[int]:
        candidates = self._known.get(word)
        if candidates is None:
            if len(self._known) == MAX_NEW_WORDS:
                self._known, self._previous = {}, self._known
            candidates = self._previous.get(word) or self._candidates(word)
            self._known[word] = candidates
        return candidates.draw(number)

    def _candidates(self, word: str) -> Candidates:
        if word[0] == "<" and word[-1] == ">" and SPACE + word in self._scores:  # a tag
            return pack_candidates([[self._scores[SPACE + word][1]]], [1.0])
        if not self._bpe:
            return self._n_best(word)
        ids = _bpe_dropout(word, self._scores, self._amount, self._processor)
        return pack_candidates(ids, [(n + 1) / len(ids) for n in range(len(ids))])

    def _n_best(self, word: str) -> Candidates:
        """Return the n best segmentations, weighted by P(x)^amount (Kudo, 2018, section 3.2)."""
        ids: list[list[int]] = self._processor.nbest_encode(word, nbest_size=CANDIDATES)
        scores = [self._amount * sum(map(self._processor.get_score, each)) for each in ids]
        weights = [math.exp(score - max(scores)) for score in scores]
        return pack_candidates(ids, [part / sum(weights) for part in accumulate(weights)])


def _words(text: str) -> list[str]:
    return [word for word in text.replace(SPACE, " ").split(" ") if word]


def _numbers(lines: Sequence[Sequence[str]], seed: int) -> list[list[float]]:
    """Return a random number below 1 for each word of each line."""
    numbers = np.random.Generator(np.random.PCG64(seed)).random(sum(map(len, lines)))
    ends = [*accumulate(map(len, lines))]
    return [numbers[end - len(line) : end].tolist() for line, end in zip(lines, ends, strict=True)]


def _scores(processor: SentencePieceProcessor) -> dict[str, tuple[float, int]]:
    """Return the score and id of each token, except special tokens and bytes."""
    return {
        processor.id_to_piece(i): (processor.get_score(i), i)
        for i in range(processor.get_piece_size())
        if not (processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i))
    }


def _bpe_dropout(
    word: str,
    scores: dict[str, tuple[float, int]],
    dropout: float,
    processor: SentencePieceProcessor,
) -> list[list[int]]:
    """Return segmentations by BPE that drops each merge at random (Provilkov et al., 2020).

    They depend on the word alone.
    """
    seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    generator = np.random.Generator(np.random.PCG64(seed))
    found = []
    for _ in range(CANDIDATES // 2):
        tokens = list(SPACE + word)
        while merges := [
            (scores[left + right][0], -n)
            for n, (left, right) in enumerate(pairwise(tokens))
            if left + right in scores and generator.random() >= dropout
        ]:
            n = -max(merges)[1]
            tokens[n : n + 2] = [tokens[n] + tokens[n + 1]]
        found.append([i for token in tokens for i in _ids(token, scores, processor)])
    return found


def _ids(
    token: str, scores: dict[str, tuple[float, int]], processor: SentencePieceProcessor
) -> list[int]:
    """Return the id of a token, or the ids of the bytes of a character that has none."""
    if token in scores:
        return [scores[token][1]]
    return [processor.piece_to_id(f"<0x{byte:02X}>") for byte in token.encode()]
