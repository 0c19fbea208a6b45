"""Evidence that two lines translate each other: words, copied tokens, punctuation and lengths.

The words are those of a small lexical model, IBM Model 1 (Brown et al., 1993), trained on the text
itself. A line is scored by a table trained without it, so that a wrong pair cannot confirm itself.
"""

import math
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.spread import spread_rows

MAX_TYPES = 3000  # words of a side that the lexical model knows, the most frequent ones
MAX_FREQUENCY = 0.5  # share of lines; words in more of them are no evidence
MAX_WORDS = 20  # distinct words of a line that are scored, the rarest ones
MAX_COPIES = 8  # rarest tokens of a line that are searched for on the other side
MAX_TRAINING_ROWS = 12_000  # pairs from which a table is trained
FOLD_ROWS = 8  # consecutive pairs that are held out together
STEM = 6  # characters of a word that count, so that inflected forms are one
ITERATIONS = 4
LEXICAL_SHARE = 0.9  # interpolation of the lexical model with the words' own frequencies
MAX_CORRELATION = 0.9  # so that an unusual length does not outweigh all words
_CHUNK = 4096  # pairs scored at a time
_MIN_COPY_WEIGHT = math.log(20)  # a token in more than a twentieth of the lines is no evidence

# A run of letters, digits and marks; a character of a script that is written without spaces; or
# one punctuation mark.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u0f00-\u0fff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
)
_MARKS = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"  # combining; not word characters in `re`
_TOKEN = re.compile(
    rf"[{_UNSPACED}]{{1,2}}|[^\W{_UNSPACED}](?:[^\s\W{_UNSPACED}]|[{_MARKS}])*|[^\w\s]"
)

Matrix = NDArray[np.int32]
Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


class Side(NamedTuple):
    """One side of a text as the evidence sees it; rows are pairs."""

    words: Matrix  # [N, MAX_WORDS] types of the lexical model, padded with 0
    copies: Rows  # [N, MAX_COPIES] hashes of rare tokens, padded with 0 or 1
    weights: Floats  # [N, MAX_COPIES] inverse document frequency of these tokens
    lengths: Floats  # [N] logarithm of the number of characters

    def part(self, start: int, end: int) -> "Side":
        """Return the rows from `start` to `end`."""
        rows = slice(start, end)
        words, copies, weights = self.words[rows], self.copies[rows], self.weights[rows]
        return Side(words, copies, weights, self.lengths[rows])


class Features(NamedTuple):
    """Both sides of a text; the types are those of a `Lexicon`."""

    src: Side
    tgt: Side

    @property
    def rows(self) -> int:
        """Return the number of pairs."""
        return len(self.src.lengths)

    def shifted(self, offset: int) -> "Features":
        """Pair each source line with the target line `offset` later."""
        last = self.rows - abs(offset)
        return Features(
            self.src.part(max(0, -offset), max(0, -offset) + last),
            self.tgt.part(max(0, offset), max(0, offset) + last),
        )


class Lexicon(NamedTuple):
    """Types of both sides, and the document frequencies from which words are weighted."""

    src: dict[str, int]
    tgt: dict[str, int]
    src_frequencies: Counter[str]
    tgt_frequencies: Counter[str]
    lines: int


class LexicalModel(NamedTuple):
    """Lexical tables, one for each fold, and the joint distribution of lengths."""

    tables: list[Floats]  # [source types, target types] p(t | s) / p(t) without the fold's pairs
    pairs: int  # that it was trained on
    means: tuple[float, float]
    deviations: tuple[float, float]
    correlation: float


def tokens_of(line: str) -> list[str]:
    """Split a line into words, characters of unspaced scripts and punctuation marks."""
    return _TOKEN.findall(line)


def _stem(token: str) -> str:
    return token.lower()[:STEM]


def build_lexicon(src: Sequence[str], tgt: Sequence[str]) -> Lexicon:
    """Count the words of a text and choose the types of the lexical model."""
    counts = [_document_frequencies(side) for side in (src, tgt)]
    least = 2 if len(src) < 3000 else 3
    src_types, tgt_types = (
        {
            word: number
            for number, (word, count) in enumerate(frequencies.most_common(MAX_TYPES), start=1)
            if least <= count < MAX_FREQUENCY * len(src)
        }
        for frequencies in counts
    )
    return Lexicon(src_types, tgt_types, counts[0], counts[1], len(src))


def _document_frequencies(lines: Sequence[str]) -> Counter[str]:
    """Count the lines in which each word occurs; the order is that of the text."""
    frequencies: Counter[str] = Counter()
    for line in lines:
        frequencies.update(dict.fromkeys(map(_stem, tokens_of(line)), 1))
    return frequencies


def features_of(src: Sequence[str], tgt: Sequence[str], lexicon: Lexicon) -> Features:
    """Return the features of pairs of lines."""
    return Features(
        _side(src, lexicon.src, lexicon.src_frequencies, lexicon.lines),
        _side(tgt, lexicon.tgt, lexicon.tgt_frequencies, lexicon.lines),
    )


def _side(
    lines: Sequence[str], types: dict[str, int], frequencies: Counter[str], total: int
) -> Side:
    words = np.zeros((len(lines), MAX_WORDS), np.int32)
    copies = np.zeros((len(lines), MAX_COPIES), np.int64)
    weights = np.zeros((len(lines), MAX_COPIES), np.float32)
    for row, line in enumerate(lines):
        tokens = {_stem(token): token for token in tokens_of(line)}
        rarest = sorted((types[stem] for stem in tokens if stem in types), reverse=True)
        words[row, : len(rarest[:MAX_WORDS])] = rarest[:MAX_WORDS]
        rare = sorted((frequencies[stem], token) for stem, token in tokens.items())[:MAX_COPIES]
        for column, (frequency, token) in enumerate(rare):
            copies[row, column] = zlib.crc32(token.encode(errors="replace")) + 1
            weights[row, column] = math.log(max(1.0, total / (1 + frequency)))
    weights[weights < _MIN_COPY_WEIGHT] = 0
    lengths = np.log1p([len(line) for line in lines]).astype(np.float32)
    return Side(words, copies, weights, lengths)


def folds_of(rows: int) -> Rows:
    """Return the fold of each row: five of a short text, two of a long one."""
    return (np.arange(rows) // FOLD_ROWS) % (5 if rows < 5000 else 2)


def train_model(features: Features) -> LexicalModel:
    """Train the model on a text, with a table for each fold."""
    folds = folds_of(features.rows)
    sizes = int(features.src.words.max()), int(features.tgt.words.max())
    tables = []
    for fold in range(int(folds.max()) + 1):
        rows = np.flatnonzero(folds != fold)
        rows = rows[spread_rows(len(rows), MAX_TRAINING_ROWS)]
        tables.append(_table(features.src.words[rows], features.tgt.words[rows], sizes))
    src, tgt = features.src.lengths, features.tgt.lengths
    means = float(src.mean()), float(tgt.mean())
    deviations = max(0.05, float(src.std())), max(0.05, float(tgt.std()))
    product = float(((src - means[0]) * (tgt - means[1])).mean()) / math.prod(deviations)
    correlation = min(max(product, 0.0), MAX_CORRELATION)
    return LexicalModel(tables, features.rows, means, deviations, correlation)


def _table(src: Matrix, tgt: Matrix, sizes: tuple[int, int]) -> Floats:
    """Train IBM model 1 with a null word on padded types; return p(t | s) / p(t).

    Each source word has one more count, spread as the words' own frequencies.
    """
    shape = (sizes[0] + 1, sizes[1] + 1)  # type 0: the null word, and padding
    prior = np.bincount(tgt.ravel(), minlength=shape[1]).astype(np.float64)
    prior[0] = 0
    prior /= max(1.0, float(prior.sum()))
    links: list[Rows] = [np.zeros(0, np.int64)]  # target words with the words of their sources
    words: list[Rows] = [np.zeros(0, np.int64)]
    for row, (sources, targets) in enumerate(zip(src, tgt, strict=True)):
        sources, targets = np.append(0, sources[sources > 0]), targets[targets > 0]
        links.append((targets[:, None] + sources.astype(np.int64) * shape[1]).ravel())
        numbers = row * tgt.shape[1] + np.arange(len(targets))
        words.append(numbers.repeat(len(sources)))
    pairs, entries = np.unique(np.concatenate(links), return_inverse=True)
    of_word, (s, t) = np.concatenate(words), np.divmod(pairs, shape[1])
    probs, totals = np.ones(len(pairs)), np.zeros(shape[0])
    for _ in range(ITERATIONS):
        shares = probs[entries]
        shares /= np.bincount(of_word, shares)[of_word]
        counts = np.bincount(entries, shares, len(pairs))
        totals = np.bincount(s, counts, shape[0]).astype(np.float64)
        probs = (counts + prior[t]) / (totals[s] + 1)
    table = (prior > 0) / (totals + 1)[:, None]  # for words that are in no pair together
    table[s, t] = probs / prior[t]
    return np.asarray(table, np.float32)


def scores(
    features: Features, model: LexicalModel, src: Rows, tgt: Rows, folds: Rows | None
) -> Floats:
    """Return the log-likelihood ratio of each source row and target row being translations.

    `folds` chooses the table by the source row; None for a text that the model was not trained on.
    """
    result = np.zeros(len(src), np.float32)
    for start in range(0, len(src), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        i, j = src[chunk], tgt[chunk]
        result[chunk] = _copied(features, i, j) + _length_ratio(features, model, i, j)
        for fold, table in enumerate(model.tables):
            mine = slice(None) if folds is None else np.flatnonzero(folds[i] == fold)
            result[chunk][mine] += _lexical(features, table, i[mine], j[mine])
            if folds is None:
                break
    return result


def _lexical(features: Features, table: Floats, i: Rows, j: Rows) -> Floats:
    """Sum over target words: log of p(t | source line) / p(t), interpolated with 1."""
    s, t = features.src.words[i], features.tgt.words[j]
    present = s > 0
    ratios = table.ravel()[s[:, :, None] * np.int32(table.shape[1]) + t[:, None, :]]
    ratios *= present[:, :, None]
    mean = (ratios.sum(axis=1) + 1) / (present.sum(axis=1) + 1)[:, None]
    logs = np.log(LEXICAL_SHARE * mean + 1 - LEXICAL_SHARE)
    return np.asarray((logs * (t > 0)).sum(axis=1), np.float32)


def _copied(features: Features, i: Rows, j: Rows) -> Floats:
    """Sum the weights of rare tokens that occur on both sides, such as numbers and names."""
    src, tgt = features.src.copies[i][:, :, None], features.tgt.copies[j][:, None, :]
    same = (src == tgt) & (src != 0)
    return np.asarray((same.any(axis=2) * features.src.weights[i]).sum(axis=1), np.float32)


def _length_ratio(features: Features, model: LexicalModel, i: Rows, j: Rows) -> Floats:
    """Log ratio of a bivariate normal distribution of log lengths to an uncorrelated one."""
    r = model.correlation
    x = (features.src.lengths[i] - model.means[0]) / model.deviations[0]
    y = (features.tgt.lengths[j] - model.means[1]) / model.deviations[1]
    exponent = (r * r * (x * x + y * y) - 2 * r * x * y) / (2 * (1 - r * r))
    return np.asarray(-0.5 * math.log(1 - r * r) - exponent, np.float32)
