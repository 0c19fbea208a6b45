"""Alignment of a parallel text: does line n of one side translate line n of the other?

Each line is compared with its own translation and with the translations of other lines. In an
aligned text its own translation agrees best; in a misaligned stretch it wins as often as by chance.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.analysis.check import translation_evidence as lexical
from seq2seq.analysis.check.findings import Finding, Split
from seq2seq.data.corpus import ParallelText

WINDOW, STRIDE = 200, 100  # pairs over which the agreement is averaged
MIN_PAIRS = 50  # fewer are not measured
SURE_PAIRS, MANY_PAIRS = 150, 1000  # from which low agreement is judged; strictly judged
# Agreement below which a window is misaligned, in a text of SURE_PAIRS and of MANY_PAIRS; chance is
# 0.5. Of the intact corpora that we have, no window of a text of MANY_PAIRS is below 0.87.
WEAK, WEAK_OF_MANY = 0.65, 0.75
GOOD = 0.8  # agreement of a short text from which it counts as aligned
TIE = 0.02  # difference of agreement up to which the evidence of the training text is preferred
SHIFT = 0.03  # by how much the neighbours' translations agree better in a shifted window
NEIGHBOURS = (-1, 1)  # offsets that every window is compared at
OFFSETS = (*NEIGHBOURS, -2, 2, -3, 3)  # offsets that a stretch may be explained by
DECOYS = (101, -101, 211, -211, 307, -307)  # distances to the lines compared with
DECOY_SHARES = (0.13, 0.29, 0.43, 0.57, 0.71, 0.87)  # the same in a short text, as shares of it


class Stretch(NamedTuple):
    """Consecutive misaligned lines; with `offset` k, line n fits line n + k of the target."""

    first: int
    last: int
    agreement: float
    offset: int | None

    @property
    def lines(self) -> range:
        """Return the numbers of the lines."""
        return range(self.first, self.last + 1)


class Alignment(NamedTuple):
    """Agreement of the sides of a text, line by line."""

    pairs: int  # with text on both sides
    agreement: float | None  # share of other lines' translations that agree less; None: unmeasured
    stretches: list[Stretch]  # misaligned lines, in order


class Evidence(NamedTuple):
    """Lexicon and model of a text, from which it or another text is measured."""

    lexicon: lexical.Lexicon
    model: lexical.LexicalModel


class _Measurement(NamedTuple):
    features: lexical.Features
    model: lexical.LexicalModel
    folds: lexical.Rows | None  # for the model's own text; None for another
    decoys: lexical.Floats  # [DECOYS, N] scores with other lines' translations
    agreement: lexical.Floats  # [N] share of the decoys that score less, ties counted half

    def shifted(self, offset: int) -> lexical.Floats:
        """Return the agreement [N] of each source line with the target line `offset` later."""
        rows = np.arange(self.features.rows)
        shifted = np.clip(rows + offset, 0, rows[-1])
        values = lexical.scores(self.features, self.model, rows, shifted, self.folds)
        return _share_beaten(values, self.decoys)


def measure_alignment(
    text: ParallelText, train: Evidence | None = None
) -> tuple[Alignment, Evidence | None]:
    """Measure a text by evidence of its own, or of the training text if that agrees better.

    Returns the evidence of this text, too; None if it has fewer than MIN_PAIRS usable pairs.
    """
    sides = [[line.strip() for line in side] for side in (text.src, text.tgt)]
    lines = np.flatnonzero([bool(src and tgt) for src, tgt in zip(*sides, strict=True)])
    src, tgt = ([side[line] for line in lines] for side in sides)
    if len(lines) < MIN_PAIRS:
        return Alignment(len(lines), None, []), None
    lexicon = lexical.build_lexicon(src, tgt)
    evidence = Evidence(lexicon, lexical.train_model(lexical.features_of(src, tgt, lexicon)))
    best = _measure_by_itself(lexical.features_of(src, tgt, lexicon), evidence.model)
    if train is not None:
        by_train = _measure(lexical.features_of(src, tgt, train.lexicon), train.model, None)
        best = by_train if by_train.agreement.mean() > best.agreement.mean() - TIE else best
    stretches = [
        stretch._replace(first=int(lines[stretch.first]) + 1, last=int(lines[stretch.last]) + 1)
        for stretch in _stretches(best)
    ]
    return Alignment(len(lines), float(best.agreement.mean()), stretches), evidence


def alignment_findings(split: Split, alignment: Alignment) -> Iterator[Finding]:
    """Judge the alignment of a split; a split that could not be measured is never passed."""
    name, agreement = split.name, alignment.agreement
    place = f"line n of {split.tgt_file} translates line n of {split.src_file}"
    if agreement is None:
        text = f"{name}: alignment not measured: fewer than {MIN_PAIRS} pairs"
        yield Finding("alignment", False, text, done=False)
    elif alignment.stretches:
        for stretch in alignment.stretches:
            yield Finding("alignment", True, _stretch_text(split, stretch, alignment.pairs, place))
    elif agreement < GOOD:
        text = (
            f"{name}: alignment not established: {alignment.pairs:,} pairs are too few, or the "
            f"translations too free, to show that {place} (agreement {100 * agreement:.0f}%, by "
            "chance 50%). Compare some lines"
        )
        yield Finding("alignment", False, text, done=False)
    else:
        text = (
            f"{name}: no sign of misalignment: words, numbers, punctuation and lengths agree with "
            f"the same line rather than another (in {100 * agreement:.0f}% of comparisons, by "
            "chance 50%)"
        )
        yield Finding("alignment", False, text)


def _stretch_text(split: Split, stretch: Stretch, pairs: int, place: str) -> str:
    if stretch.last - stretch.first + 1 > 0.9 * pairs:
        start = "no sign that"
    else:
        start = f"from about line {stretch.first} to {stretch.last}, there is no sign that"
    fits, cure = "", "Restore the order of the lines"
    if stretch.offset is not None:
        fits = f"; line n of {split.src_file} fits line n{stretch.offset:+d} of {split.tgt_file}"
        cure = f"Find the missing or additional line at about line {stretch.first}"
    return (
        f"{split.name}: {start} {place}: words, numbers, punctuation and lengths agree in "
        f"{100 * stretch.agreement:.0f}% of comparisons (by chance 50%){fits}. {cure}, or delete "
        "these lines from both sides."
    )


def _measure_by_itself(features: lexical.Features, model: lexical.LexicalModel) -> _Measurement:
    """Measure the text that a model was trained on.

    If its lines agree badly, the model may be one of a shifted text: the offset at which a model of
    its own agrees best decides.
    """
    folds = lexical.folds_of(features.rows)
    measurement = _measure(features, model, folds)
    agreement = float(measurement.agreement.mean())
    if agreement >= GOOD:
        return measurement
    for offset in OFFSETS:
        shifted = features.shifted(offset)
        rival = lexical.train_model(shifted)
        shifted_agreement = _measure(shifted, rival, lexical.folds_of(shifted.rows)).agreement
        if float(shifted_agreement.mean()) > agreement + SHIFT:
            agreement = float(shifted_agreement.mean())
            measurement = _measure(features, rival, folds)
    return measurement


def _measure(
    features: lexical.Features, model: lexical.LexicalModel, folds: lexical.Rows | None
) -> _Measurement:
    count = features.rows
    rows = np.arange(count)
    true_scores = lexical.scores(features, model, rows, rows, folds)
    far = count > 4 * max(DECOYS)
    distances = DECOYS if far else [max(1, round(share * count)) for share in DECOY_SHARES]
    decoys = np.stack(
        [
            lexical.scores(features, model, rows, (rows + distance) % count, folds)
            for distance in distances
        ]
    )
    agreement = _share_beaten(true_scores, decoys)
    return _Measurement(features, model, folds, decoys, agreement)


def _share_beaten(values: lexical.Floats, decoys: lexical.Floats) -> lexical.Floats:
    return np.asarray(((values > decoys) + 0.5 * (values == decoys)).mean(axis=0), np.float32)


def _windows(values: lexical.Floats) -> tuple[list[int], NDArray[np.float64]]:
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
    shifted = {offset: measurement.shifted(offset) for offset in NEIGHBOURS}
    gains = np.max([_windows(values)[1] for values in shifted.values()], axis=0) - means
    flagged = (means < limit) | (gains > (SHIFT if count >= SURE_PAIRS else 4 * SHIFT))
    runs: list[list[int]] = []  # first and last row of adjacent flagged windows
    for start, bad in zip(starts, flagged, strict=True):
        if bad and runs and start <= runs[-1][1] + 1:
            runs[-1][1] = min(start + WINDOW, count) - 1
        elif bad:
            runs.append([start, min(start + WINDOW, count) - 1])
    return [_stretch(measurement, shifted, *run) for run in runs]


def _stretch(
    measurement: _Measurement, shifted: dict[int, lexical.Floats], first: int, last: int
) -> Stretch:
    """Explain adjacent flagged windows by an offset, and find where the stretch begins and ends."""
    for offset in OFFSETS:
        if offset not in shifted:
            shifted[offset] = measurement.shifted(offset)
    rows = slice(first, last + 1)
    means = {offset: float(values[rows].mean()) for offset, values in shifted.items()}
    best = max(OFFSETS, key=lambda offset: means[offset])
    # Neighbours in the same direction may be paraphrases; those in the other are no explanation.
    opposite = [means[offset] for offset in OFFSETS if offset * best < 0]
    agreement = measurement.agreement
    mean = float(agreement[rows].mean())
    explained = means[best] > max(mean, *opposite) + SHIFT
    start, end = max(0, first - WINDOW), min(len(agreement), last + 1 + WINDOW)
    gain = WEAK_OF_MANY - agreement
    if explained and mean > WEAK_OF_MANY:  # lines resemble their neighbours
        gain = shifted[best] - agreement - TIE
    begin, length = _best_segment(gain[start:end])
    first, last = start + begin, start + begin + length - 1
    rows = slice(first, last + 1)
    return Stretch(first, last, float(agreement[rows].mean()), best if explained else None)


def _best_segment(gains: lexical.Floats) -> tuple[int, int]:
    """Return the start and the length of the consecutive values with the largest sum."""
    sums = np.concatenate([[0.0], np.cumsum(gains, dtype=np.float64)])
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums[1:] - lowest[:-1])) + 1
    start = int(np.argmin(sums[:end]))
    return start, end - start
