"""Alignment of a parallel text: does line n of one side translate line n of the other?

Each line is compared with its own translation and with the translations of other lines, by a small
lexical model, IBM Model 1 (Brown et al., 1993), trained on the text itself without the line. In an
aligned text its own translation agrees best; in a misaligned stretch it wins as often as by chance.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.data import corpus
from seq2seq.text.sample import sample_rows
from seq2seq.tools.analysis.check.data_statistics import TABLE
from seq2seq.tools.analysis.check.findings import Finding, Split

WINDOW, STRIDE = 200, 100  # pairs over which the agreement is averaged
MIN_PAIRS = 50  # fewer are not measured
SURE_PAIRS, MANY_PAIRS = 150, 1000  # from which low agreement is judged; strictly judged
# Agreement below which a window is misaligned, in a text of SURE_PAIRS and of MANY_PAIRS; chance is
# 0.5. Of the intact corpora that we have, no window of a text of MANY_PAIRS is below 0.87.
WEAK = 0.65
WEAK_OF_MANY = 0.75
GOOD = 0.8  # agreement of a short text from which it counts as aligned
TIE = 0.02  # difference of agreement up to which the evidence of the training text is preferred
SHIFT = 0.03  # by how much the neighbours' translations agree better in a shifted window
OFFSETS = (-1, 1)  # that a stretch may be explained by
DECOYS = (101, -101, 211, -211, 307, -307)  # distances to the lines compared with
DECOY_SHARES = (0.13, 0.29, 0.43, 0.57, 0.71, 0.87)  # the same in a short text, as shares of it

MAX_TYPES = 3000  # words of a side that the lexical model knows, the most frequent ones
MAX_FREQUENCY = 0.5  # share of lines; words in more of them are no evidence
MAX_WORDS = 20  # distinct words of a line that are scored, the rarest ones
MAX_TRAINING_ROWS = 12_000  # pairs from which a table is trained
FOLD_ROWS = 8  # consecutive pairs that are held out together
STEM = 6  # characters of a word that count, so that inflected forms are one
ITERATIONS = 4
LEXICAL_SHARE = 0.9  # interpolation of the lexical model with the words' own frequencies
_CHUNK = 4096  # pairs scored at a time

# A run of letters, digits and marks; a character of a script that is written without spaces; or
# one punctuation mark.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u0f00-\u0fff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
)
_MARKS = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"  # combining; not word characters in `re`
_TOKEN = re.compile(
    rf"[{_UNSPACED}]{{1,2}}|[^\W{_UNSPACED}](?:[^\s\W{_UNSPACED}]|[{_MARKS}])*|[^\w\s]"
)

Words = NDArray[np.int32]  # [N, MAX_WORDS] types of a side by line, padded with 0
Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Types = dict[str, int]


class Stretch(NamedTuple):
    """Consecutive misaligned lines; with `offset` k, line n fits line n + k of the target."""

    first: int
    last: int
    agreement: float
    offset: int | None


class Alignment(NamedTuple):
    """Agreement of the sides of a text, line by line."""

    pairs: int  # with text on both sides
    agreement: float | None  # share of other lines' translations that agree less; None: unmeasured
    stretches: list[Stretch]  # misaligned lines, in order


class Evidence(NamedTuple):
    """Types and lexical tables of a text, from which it or another text is measured."""

    types: tuple[Types, Types]
    tables: list[Floats]  # [source types, target types] p(t | s) / p(t), without a fold each


class _Measurement(NamedTuple):
    sides: tuple[Words, Words]
    tables: list[Floats]
    folds: Rows | None  # for the tables' own text; None for another
    decoys: Floats  # [DECOYS, N] scores with other lines' translations
    agreement: Floats  # [N] share of the decoys that score less, ties counted half

    def shifted(self, offset: int) -> Floats:
        """Return the agreement [N] of each source line with the target line `offset` later."""
        rows = np.arange(len(self.sides[0]))
        shifted_rows = np.clip(rows + offset, 0, rows[-1])
        return _share_beaten(
            scores(self.sides, self.tables, rows, shifted_rows, self.folds), self.decoys
        )


def measure_alignment(
    text: corpus.ParallelText, train: Evidence | None = None
) -> tuple[Alignment, Evidence | None]:
    """Measure a text by evidence of its own, or of the training text if that agrees better.

    Returns the evidence of this text, too; None if it has fewer than MIN_PAIRS usable pairs.
    """
    pairs = [(src.strip(), tgt.strip()) for src, tgt in zip(text.src, text.tgt, strict=True)]
    lines = [line for line, pair in enumerate(pairs) if all(pair)]
    if len(lines) < MIN_PAIRS:
        return Alignment(len(lines), None, []), None
    src, tgt = ([pairs[line][side] for line in lines] for side in (0, 1))
    types = types_of(src), types_of(tgt)
    sides = words_of(src, types[0]), words_of(tgt, types[1])
    evidence = Evidence(types, train_tables(sides))
    best = _measure_by_itself(sides, evidence.tables)
    if train is not None:
        known_words = words_of(src, train.types[0]), words_of(tgt, train.types[1])
        by_train = _measure(known_words, train.tables, None)
        best = by_train if by_train.agreement.mean() > best.agreement.mean() - TIE else best
    stretches = [
        stretch._replace(first=lines[stretch.first] + 1, last=lines[stretch.last] + 1)
        for stretch in _stretches(best)
    ]
    return Alignment(len(lines), float(best.agreement.mean()), stretches), evidence


def alignment_findings(split: Split, alignment: Alignment) -> Iterator[Finding]:
    """Judge the alignment of a split; a split that could not be measured is never passed."""
    place = f"line n of {split.tgt_file} translates line n of {split.src_file}"
    words = {"split": split, "place": place, "pairs": alignment.pairs, "least": MIN_PAIRS}
    for stretch in alignment.stretches:
        words |= _stretch_words(split, stretch, alignment.pairs)
        yield Finding("alignment", True, TABLE["alignment"]["misaligned"].format(**words))
    if not alignment.stretches:
        agreement = alignment.agreement
        kind = "unmeasured" if agreement is None else "unsure" if agreement < GOOD else "aligned"
        text = TABLE["alignment"][kind].format(agreement=agreement, **words)
        yield Finding("alignment", False, text, done=kind == "aligned")


def _stretch_words(split: Split, stretch: Stretch, pairs: int) -> dict[str, object]:
    start = f"from about line {stretch.first} to {stretch.last}, there is no sign that"
    if stretch.last - stretch.first + 1 > 0.9 * pairs:
        start = "no sign that"
    fits = ""
    cure = "Restore the order of the lines"
    if stretch.offset is not None:
        fits = f"; line n of {split.src_file} fits line n{stretch.offset:+d} of {split.tgt_file}"
        cure = f"Find the missing or additional line at about line {stretch.first}"
    return {"start": start, "fits": fits, "cure": cure, "agreement": stretch.agreement}


def _measure_by_itself(sides: tuple[Words, Words], tables: list[Floats]) -> _Measurement:
    """Measure the text of these tables, or of those of a shifted text if they agree better."""
    folds = folds_of(len(sides[0]))
    measurement = _measure(sides, tables, folds)
    agreement = float(measurement.agreement.mean())
    for offset in OFFSETS if agreement < GOOD else ():
        last = len(folds) - 1
        shifted = sides[0][:last], sides[1][1:]
        if offset < 0:
            shifted = sides[0][1:], sides[1][:last]
        rival = train_tables(shifted)
        rival_agreement = float(_measure(shifted, rival, folds[:last]).agreement.mean())
        if rival_agreement > agreement + SHIFT:
            agreement = rival_agreement
            measurement = _measure(sides, rival, folds)
    return measurement


def _measure(sides: tuple[Words, Words], tables: list[Floats], folds: Rows | None) -> _Measurement:
    count = len(sides[0])
    rows = np.arange(count)
    far = count > 4 * max(DECOYS)
    distances = DECOYS if far else [max(1, round(share * count)) for share in DECOY_SHARES]
    decoys = np.stack(
        [scores(sides, tables, rows, (rows + distance) % count, folds) for distance in distances]
    )
    agreement = _share_beaten(scores(sides, tables, rows, rows, folds), decoys)
    return _Measurement(sides, tables, folds, decoys, agreement)


def _share_beaten(values: Floats, decoys: Floats) -> Floats:
    return np.asarray(((values > decoys) + 0.5 * (values == decoys)).mean(axis=0), np.float32)


def _windows(values: Floats) -> tuple[list[int], NDArray[np.float64]]:
    """Return the first rows and the means of overlapping windows of WINDOW rows."""
    count = len(values)
    starts = [*range(0, max(0, count - WINDOW), STRIDE), max(0, count - WINDOW)]
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    ends = [min(start + WINDOW, count) for start in starts]
    return starts, (sums[ends] - sums[starts]) / (np.array(ends) - starts)


def _stretches(measurement: _Measurement) -> list[Stretch]:
    """Return the misaligned stretches; `first` and `last` are rows."""
    count = len(measurement.agreement)
    starts, means = _windows(measurement.agreement)
    limit = 0.0 if count < SURE_PAIRS else WEAK if count < MANY_PAIRS else WEAK_OF_MANY
    shifted = {offset: measurement.shifted(offset) for offset in OFFSETS}
    gains = np.max([_windows(values)[1] for values in shifted.values()], axis=0) - means
    flagged = (means < limit) | (gains > (SHIFT if count >= SURE_PAIRS else 4 * SHIFT))
    runs: list[list[int]] = []  # first and last row of adjacent flagged windows
    for start, bad in zip(starts, flagged, strict=True):
        if bad and runs and start <= runs[-1][1] + 1:
            runs[-1][1] = min(start + WINDOW, count) - 1
        elif bad:
            runs.append([start, min(start + WINDOW, count) - 1])
    return [_stretch(measurement.agreement, shifted, *run) for run in runs]


def _stretch(agreement: Floats, shifted: dict[int, Floats], first: int, last: int) -> Stretch:
    """Explain adjacent flagged windows by an offset, and find where the stretch begins and ends."""
    rows = slice(first, last + 1)
    mean = float(agreement[rows].mean())
    means = {offset: float(values[rows].mean()) for offset, values in shifted.items()}
    best = max(OFFSETS, key=means.__getitem__)
    # Neighbours on both sides may be paraphrases: they are no explanation.
    explained = means[best] > max(mean, means[-best]) + SHIFT
    start = max(0, first - WINDOW)
    end = min(len(agreement), last + 1 + WINDOW)
    gain = WEAK_OF_MANY - agreement
    if explained and mean > WEAK_OF_MANY:  # lines resemble their neighbours
        gain = shifted[best] - agreement - TIE
    begin, length = _best_segment(gain[start:end])
    rows = slice(start + begin, start + begin + length)
    offset = best if explained else None
    return Stretch(rows.start, rows.stop - 1, float(agreement[rows].mean()), offset)


def _best_segment(gains: Floats) -> tuple[int, int]:
    """Return the start and the length of the consecutive values with the largest sum."""
    sums = np.concatenate([[0.0], np.cumsum(gains, dtype=np.float64)])
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums[1:] - lowest[:-1])) + 1
    start = int(np.argmin(sums[:end]))
    return start, end - start


def tokens_of(line: str) -> list[str]:
    """Split a line into words, characters of unspaced scripts and punctuation marks."""
    return _TOKEN.findall(line)


def _stem(token: str) -> str:
    return token.lower()[:STEM]


def types_of(lines: Sequence[str]) -> Types:
    """Choose the types of a side that the lexical model knows, numbered from 1 by frequency."""
    frequencies: Counter[str] = Counter()
    for line in lines:
        frequencies.update(dict.fromkeys(map(_stem, tokens_of(line)), 1))
    least = 2 if len(lines) < 3000 else 3
    return {
        word: number
        for number, (word, count) in enumerate(frequencies.most_common(MAX_TYPES), start=1)
        if least <= count < MAX_FREQUENCY * len(lines)
    }


def words_of(lines: Sequence[str], types: Types) -> Words:
    """Return the rarest types of each line."""
    words = np.zeros((len(lines), MAX_WORDS), np.int32)
    for row, line in enumerate(lines):
        stems = set(map(_stem, tokens_of(line)))
        rarest = sorted((types[stem] for stem in stems if stem in types), reverse=True)[:MAX_WORDS]
        words[row, : len(rarest)] = rarest
    return words


def folds_of(rows: int) -> Rows:
    """Return the fold of each row: five of a short text, two of a long one."""
    return (np.arange(rows) // FOLD_ROWS) % (5 if rows < 5000 else 2)


def train_tables(sides: tuple[Words, Words]) -> list[Floats]:
    """Train a table for each fold of a text, on its other pairs."""
    folds = folds_of(len(sides[0]))
    sizes = int(sides[0].max()), int(sides[1].max())
    tables = []
    for fold in range(int(folds.max()) + 1):
        rows = np.flatnonzero(folds != fold)
        rows = rows[sample_rows(len(rows), MAX_TRAINING_ROWS)]
        tables.append(_table(sides[0][rows], sides[1][rows], sizes))
    return tables


def _table(src: Words, tgt: Words, sizes: tuple[int, int]) -> Floats:
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
        sources = np.append(0, sources[sources > 0])
        targets = targets[targets > 0]
        links.append((targets[:, None] + sources.astype(np.int64) * shape[1]).ravel())
        numbers = row * tgt.shape[1] + np.arange(len(targets))
        words.append(numbers.repeat(len(sources)))
    pairs, entries = np.unique(np.concatenate(links), return_inverse=True)
    of_word = np.concatenate(words)
    s, t = np.divmod(pairs, shape[1])
    probs = np.ones(len(pairs))
    totals = np.zeros(shape[0])
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
    sides: tuple[Words, Words], tables: list[Floats], src: Rows, tgt: Rows, folds: Rows | None
) -> Floats:
    """Return the log-likelihood ratio of each source and target row; no `folds`: by table 0."""
    result = np.zeros(len(src), np.float32)
    for start in range(0, len(src), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(src)))
        for fold, table in enumerate(tables if folds is not None else tables[:1]):
            mine = rows if folds is None else rows[folds[src[rows]] == fold]
            result[mine] = _lexical(sides[0][src[mine]], sides[1][tgt[mine]], table)
    return result


def _lexical(s: Words, t: Words, table: Floats) -> Floats:
    """Sum over target words: log of p(t | source line) / p(t), interpolated with 1."""
    present = s > 0
    ratios = table.ravel()[s[:, :, None] * np.int32(table.shape[1]) + t[:, None, :]]
    ratios *= present[:, :, None]
    mean = (ratios.sum(axis=1) + 1) / (present.sum(axis=1) + 1)[:, None]
    logs = np.log(LEXICAL_SHARE * mean + 1 - LEXICAL_SHARE)
    return np.asarray((logs * (t > 0)).sum(axis=1), np.float32)
