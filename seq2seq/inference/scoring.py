"""Scores of given translations by forced decoding: text in, log-probabilities out."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, PAD_ID, Ids
from seq2seq.engines.engine import Array, Engine, StepOptions
from seq2seq.inference.lines import MAX_ATTENTION_TOKENS, bounded_slices, line_list
from seq2seq.inference.loaded_model import LoadedModel
from seq2seq.inference.nbest import AttentionBlocks, NBestEntry
from seq2seq.inference.search.sentences import by_width
from seq2seq.inference.search.strategies import length_penalty, total_of
from seq2seq.inference.translation import Translation, with_names
from seq2seq.runtime.errors import UserError
from seq2seq.text.characters import is_blank, normalized
from seq2seq.text.names.names import Masked

Pair = tuple[Ids, Ids]  # source and target


@dataclass(frozen=True)
class ScoredLine:
    """Log-probability of one given translation, nats; see `score_lines` for blank lines."""

    score: float = 0.0  # log_prob / length ** length_penalty, as in a Translation
    log_prob: float = 0.0
    src_tokens: list[str] = field(default_factory=list)  # end-of-sentence included
    tokens: list[str] = field(default_factory=list)  # target tokens, end-of-sentence included
    log_probs: list[float] = field(default_factory=list)  # one per target token, nats

    @property
    def possible(self) -> bool:
        """Return True if both sides have text, or neither."""
        return bool(self.log_probs) or self.log_prob > -math.inf

    @property
    def perplexity(self) -> float:
        """Return `exp(-log_prob / length)`; 1 for blank lines."""
        return perplexity(self.log_prob, len(self.log_probs))


_BOTH_BLANK = ScoredLine()
_ONE_BLANK = ScoredLine(-math.inf, -math.inf)


def perplexity(log_prob: float, tokens: int) -> float:
    """Return `exp(-log_prob / tokens)`, at most e^700."""
    return math.exp(min(-log_prob / max(1, tokens), 700.0))


def score_lines(
    loaded: LoadedModel, lines: Iterable[str], translations: Iterable[str]
) -> list[ScoredLine]:
    """Score the given translation of each line; lines of any length are scored in one part.

    Texts are segmented by the vocabulary; a translation that search found in other tokens has
    another score. The coverage penalty is not included. The score is 0 if both sides are blank,
    -inf if one is. Raises TypeError for anything but strings, and UserError for different numbers
    of lines and translations.
    """
    pairs = _encoded(loaded, lines, translations)
    scored = [pair.ids for pair in pairs if not any(pair.blank)]
    decoded = iter(forced_decodings(loaded.engine, scored))
    return [
        _scored_line(loaded, pair, next(decoded).log_probs)
        if not any(pair.blank)
        else (_BOTH_BLANK if all(pair.blank) else _ONE_BLANK)
        for pair in pairs
    ]


def attend(
    loaded: LoadedModel, lines: Iterable[str], translations: Iterable[str], heads: bool = False
) -> Iterator[Translation]:
    """Yield the given translation of each line with the attention weights of forced decoding.

    Blank sides, and lines of more than MAX_ATTENTION_TOKENS, have no weights. With `heads`, those
    of each head are returned, too. Raises errors as `score_lines` does.
    """
    pairs = _encoded(loaded, lines, translations)
    sizes = [(len(src) + 1) * (len(tgt) + 1) for src, tgt in (pair.ids for pair in pairs)]
    for rows in bounded_slices(sizes):
        attended = [pair.ids for pair in pairs[rows] if pair.has_attention]
        decoded = iter(forced_decodings(loaded.engine, attended, True, heads))
        for pair in pairs[rows]:
            entry = NBestEntry(pair.translation, 0.0)
            tokens = list[str]()
            if pair.has_attention:
                log_probs, weights, head_weights = next(decoded)
                scored = _scored_line(loaded, pair, log_probs)
                tokens = scored.src_tokens
                values = (scored.score, scored.tokens, log_probs)
                blocks = as_blocks(weights), as_blocks(head_weights)
                entry = NBestEntry(pair.translation, *values, *blocks)
            yield Translation([entry], tokens, sources=[pair.line])


class _EncodedPair(NamedTuple):
    """A line and its translation, with the ids of both."""

    line: str
    translation: str
    source: Masked  # the line with masked names
    ids: Pair

    @property
    def blank(self) -> list[bool]:
        """Return for each side whether it has nothing to score."""
        sides = zip((self.line, self.translation), self.ids, strict=True)
        return [is_blank(text) or not ids for text, ids in sides]

    @property
    def has_attention(self) -> bool:
        """Return whether neither side is blank or too long for attention weights."""
        return not any(self.blank) and max(map(len, self.ids)) <= MAX_ATTENTION_TOKENS


def as_blocks(weights: Array | None) -> AttentionBlocks | None:
    """Copy weights that are a part of those of a batch or beam."""
    return None if weights is None else AttentionBlocks([weights.copy()])


def _encoded(
    loaded: LoadedModel, lines: Iterable[str], translations: Iterable[str]
) -> list[_EncodedPair]:
    """Return each line and its translation with the ids of both, the names on both sides masked."""
    lines = line_list(lines, "lines")
    translations = line_list(translations, "translations")
    if len(lines) != len(translations):
        raise UserError(f"{len(lines)} lines have {len(translations)} translations; give one each")
    src, tgt, names = loaded.vocabularies
    sources = [Masked(line, {}) for line in lines]
    targets = translations
    if names is not None:
        pairs = zip(map(normalized, lines), map(normalized, translations), strict=True)
        masked = [names.mask_translation(*pair) for pair in pairs]
        sources = [source for source, _ in masked]
        targets = [target for _, target in masked]
    ids = zip(src.encode([source.text for source in sources]), tgt.encode(targets), strict=True)
    return list(map(_EncodedPair, lines, translations, sources, ids))


def _scored_line(loaded: LoadedModel, pair: _EncodedPair, log_probs: list[float]) -> ScoredLine:
    total = total_of(log_probs)
    norm = length_penalty(np.array(len(log_probs)), loaded.decoding.length_penalty)
    src, tgt, names = loaded.vocabularies
    src_ids, tgt_ids = pair.ids
    spellings = names.spellings(pair.source) if names else {}
    return ScoredLine(
        total / float(norm),
        total,
        with_names(src.tokens([*src_ids, EOS_ID]), pair.source.names),
        with_names(tgt.tokens([*tgt_ids, EOS_ID]), spellings),
        log_probs,
    )


class ForcedDecoding(NamedTuple):
    """Log-probabilities of given target tokens, in nats, and their attention weights if wanted."""

    log_probs: list[float]  # one per target token, end-of-sentence included
    attention_weights: Array | None  # [T, S], end-of-sentence included
    head_weights: Array | None  # [M, T, S] of M heads, if the model has them


def forced_decodings(
    engine: Engine, pairs: Sequence[Pair], attention: bool = False, heads: bool = False
) -> list[ForcedDecoding]:
    """Decode given targets, end-of-sentence included; sources and targets are without it.

    Decodes step by step in the slots of search, so that the values are those of greedy search.
    Without attention, memory grows with the longest source, not with the target.
    """
    decodings = [ForcedDecoding([], None, None) for _ in pairs]
    options = StepOptions((), attention=attention, heads=heads)
    for width, rows in by_width([src for src, _ in pairs]).items():
        rows = sorted(rows, key=lambda i: len(pairs[i][1]))
        while rows:
            count = engine.slot_count(width, 1, len(rows))
            batch = rows[:count]
            rows = rows[count:]
            padded = [pairs[i] for i in batch] + [([], [])] * (count - len(batch))
            decoded = _decode_batch(engine, padded, width, options)
            for i, decoding in zip(batch, decoded, strict=False):
                decodings[i] = decoding
    return decodings


def _decode_batch(
    engine: Engine, pairs: Sequence[Pair], width: int, options: StepOptions
) -> list[ForcedDecoding]:
    """Decode pairs of the same padded width, each in a slot."""
    rows = engine.spread(engine.encode([src for src, _ in pairs], width), 1, options)
    longest = max(len(tgt) + 1 for _, tgt in pairs)
    ids = np.full((longest + 1, len(pairs)), PAD_ID)  # row t: the t-th tokens, from BOS on
    ids[0] = BOS_ID
    for column, (_, tgt) in zip(ids.T, pairs, strict=True):
        column[1 : len(tgt) + 2] = [*tgt, EOS_ID]
    log_probs = []
    weights = []
    head_weights = []
    for previous_tokens, tokens in pairwise(ids):
        step = engine.step(rows, previous_tokens)
        log_probs.append(engine.log_probs(step, np.arange(len(pairs)), tokens))
        rows = step.rows
        if step.attention is not None:
            weights.append(step.attention)
        if step.heads is not None:
            head_weights.append(step.heads)
    table = np.stack(log_probs, axis=1).tolist()
    attention = _of_pairs(weights, pairs)
    heads = _of_pairs(head_weights, pairs)
    return [
        ForcedDecoding(row[: len(tgt) + 1], *weights)
        for (_, tgt), row, *weights in zip(pairs, table, attention, heads, strict=True)
    ]


def _of_pairs(steps: Sequence[Array], pairs: Sequence[Pair]) -> Sequence[Array | None]:
    """Return the weights [..., T, S] of each pair, given those of all steps [N, ..., S], if any."""
    if not steps:
        return [None] * len(pairs)
    stacked = np.stack(steps, axis=-2)
    return [
        weights[..., : len(tgt) + 1, : len(src) + 1]
        for (src, tgt), weights in zip(pairs, stacked, strict=True)
    ]
