"""Alignment of a parallel text: does line n of one side translate line n of the other?

Each line is compared with its own translation and with the translations of other lines. In an
aligned text its own translation agrees best; in a misaligned stretch it wins as often as by chance.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.analysis.check.findings import Finding, Split, list_lines
from seq2seq.analysis.check.translation_evidence import (
    Features,
    Floats,
    LexicalModel,
    Lexicon,
    Rows,
    build_lexicon,
    features_of,
    folds_of,
    scores,
    train_model,
)
from seq2seq.data.corpus import ParallelText

WINDOW, STRIDE = 200, 100  # pairs over which the agreement is averaged
MIN_PAIRS = 50  # fewer are not measured
SURE_PAIRS, MANY_PAIRS = 150, 1000  # from which low agreement is judged; strictly judged
# Agreement below which a window is misaligned, in a text of SURE_PAIRS and of MANY_PAIRS; chance is
# 0.5. Of the intact corpora that we have, no window of a text of MANY_PAIRS is below 0.87.
WEAK, WEAK_OF_MANY = 0.65, 0.75
SINGLE_PAIRS = 1500  # that a model is trained on, from which it finds single exchanged lines
GOOD = 0.8  # agreement of a short text from which it counts as aligned
TIE = 0.02  # difference of agreement up to which the evidence of the training text is preferred
SHIFT = 0.03  # by how much the neighbours' translations agree better in a shifted window
NEIGHBOURS = (-1, 1)  # offsets that every window is compared at
OFFSETS = (*NEIGHBOURS, -2, 2, -3, 3)  # offsets that a stretch may be explained by
DECOYS = (101, -101, 211, -211, 307, -307)  # distances to the lines compared with
DECOY_SHARES = (0.13, 0.29, 0.43, 0.57, 0.71, 0.87)  # the same in a short text, as shares of it
MAX_SUSPECTS = 500  # pairs of the lowest agreement that are searched for exchanged translations
# Number of the suspects above which a warning is given, and share of them: the fewer pairs a model
# was trained on, the more often it finds a better translation by chance.
MIN_EXCHANGED, MIN_SHARE, MAX_SHARE, SHARE_SCALE = 6, 0.05, 0.5, 12.0


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
    exchanged: dict[int, int]  # source lines, and the target lines that translate them better
    single_lines: bool = False  # if the evidence is enough to find single exchanged lines


class Evidence(NamedTuple):
    """Lexicon and model of a text, from which it or another text is measured."""

    lexicon: Lexicon
    model: LexicalModel


class _Measurement(NamedTuple):
    features: Features
    model: LexicalModel
    folds: Rows | None  # for the model's own text; None for another
    own: Floats  # [N] score of each pair
    decoys: Floats  # [DECOYS, N] scores with other lines' translations
    agreement: Floats  # [N] share of the decoys that score less, ties counted half

    def score(self, src: Rows, tgt: Rows) -> Floats:
        return scores(self.features, self.model, src, tgt, self.folds)

    def shifted(self, offset: int) -> Floats:
        """Return the agreement [N] of each source line with the target line `offset` later."""
        rows = np.arange(len(self.own))
        return _share_beaten(self.score(rows, np.clip(rows + offset, 0, rows[-1])), self.decoys)


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
        return Alignment(len(lines), None, [], {}), None
    own = _evidence(src, tgt)
    best = _measure_by_itself(features_of(src, tgt, own.lexicon), own.model)
    if train is not None:
        other = _measure(features_of(src, tgt, train.lexicon), train.model, None)
        best = other if other.agreement.mean() > best.agreement.mean() - TIE else best
    stretches = _stretches(best)
    exchanged = {} if stretches else _exchanged(best)
    return (
        Alignment(
            len(lines),
            float(best.agreement.mean()),
            [
                each._replace(first=int(lines[each.first]) + 1, last=int(lines[each.last]) + 1)
                for each in stretches
            ],
            {int(lines[i]) + 1: int(lines[j]) + 1 for i, j in exchanged.items()},
            best.model.pairs >= SINGLE_PAIRS,
        ),
        own,
    )


def alignment_findings(split: Split, found: Alignment) -> Iterator[Finding]:
    """Judge the alignment of a split; a split that could not be measured is never passed."""
    place = f"line n of {split.tgt_file} translates line n of {split.src_file}"
    if found.agreement is None:
        text = f"{split.name}: alignment not measured: fewer than {MIN_PAIRS} pairs"
        yield Finding("alignment", False, text, done=False)
        return
    texts = [*_stretch_texts(split, found, place), *_exchanged_texts(split, found)]
    yield from (Finding("alignment", True, text) for text in texts)
    if texts:
        return
    share = f"{100 * found.agreement:.0f}%"
    if found.agreement < GOOD:
        text = (
            f"{split.name}: alignment not established: {found.pairs:,} pairs are too few, or the "
            f"translations too free, to show that {place} (agreement {share}, by chance 50%). "
            "Compare some lines"
        )
        yield Finding("alignment", False, text, done=False)
        return
    limit = "" if found.single_lines else "; too few pairs to find single exchanged lines"
    text = (
        f"{split.name}: no sign of misalignment: words, numbers, punctuation and lengths agree "
        f"with the same line rather than another (in {share} of comparisons, by chance 50%{limit})"
    )
    yield Finding("alignment", False, text)


def _stretch_texts(split: Split, found: Alignment, place: str) -> Iterator[str]:
    for each in found.stretches:
        pairs = each.last - each.first + 1
        everywhere = pairs > 0.9 * found.pairs
        where = "" if everywhere else f"from about line {each.first} to {each.last}, "
        subject = "no sign that" if everywhere else "there is no sign that"
        fits = (
            ""
            if each.offset is None
            else f"; line n of {split.src_file} fits line n{each.offset:+d} of {split.tgt_file}"
        )
        cure = (
            "Restore the order of the lines"
            if each.offset is None
            else f"Find the missing or additional line at about line {each.first}"
        )
        yield (
            f"{split.name}: {where}{subject} {place}: words, numbers, punctuation and lengths "
            f"agree in {100 * each.agreement:.0f}% of comparisons (by chance 50%){fits}. "
            f"{cure}, or delete these lines from both sides."
        )


def _exchanged_texts(split: Split, found: Alignment) -> Iterator[str]:
    if not found.exchanged:
        return
    lines = list(found.exchanged)
    line, other = next(iter(found.exchanged.items()))
    yield (
        f"{split.name}: at least {len(lines)} lines of {split.src_file} fit the translation of "
        f"another line better than their own ({list_lines(lines)}; line {line} fits line {other} "
        f"of {split.tgt_file}). Restore the order of the lines, or delete these pairs."
    )


def _evidence(src: Sequence[str], tgt: Sequence[str]) -> Evidence:
    lexicon = build_lexicon(src, tgt)
    return Evidence(lexicon, train_model(features_of(src, tgt, lexicon)))


def _measure_by_itself(features: Features, model: LexicalModel) -> _Measurement:
    """Measure the text that a model was trained on.

    If its lines agree badly, the model may be one of a shifted text: the offset at which a model of
    its own agrees best decides.
    """
    folds = folds_of(features.rows)
    found = _measure(features, model, folds)
    agreement = float(found.agreement.mean())
    if agreement >= GOOD:
        return found
    for offset in OFFSETS:
        shifted = features.shifted(offset)
        other = train_model(shifted)
        rival = float(_measure(shifted, other, folds_of(shifted.rows)).agreement.mean())
        if rival > agreement + SHIFT:
            found, agreement = _measure(features, other, folds), rival
    return found


def _measure(features: Features, model: LexicalModel, folds: Rows | None) -> _Measurement:
    count = features.rows
    rows = np.arange(count)
    own = scores(features, model, rows, rows, folds)
    far = count > 4 * max(DECOYS)
    distances = DECOYS if far else [max(1, round(share * count)) for share in DECOY_SHARES]
    decoys = np.stack(
        [scores(features, model, rows, (rows + each) % count, folds) for each in distances]
    )
    return _Measurement(features, model, folds, own, decoys, _share_beaten(own, decoys))


def _share_beaten(values: Floats, decoys: Floats) -> Floats:
    return np.asarray(((values > decoys) + 0.5 * (values == decoys)).mean(axis=0), np.float32)


def _windows(values: Floats) -> tuple[list[int], NDArray[np.float64]]:
    """Return the first rows and the means of overlapping windows of WINDOW rows."""
    count = len(values)
    starts = [*range(0, max(0, count - WINDOW), STRIDE), max(0, count - WINDOW)]
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    ends = [min(start + WINDOW, count) for start in starts]
    return starts, (sums[ends] - sums[starts]) / (np.array(ends) - starts)


def _stretches(found: _Measurement) -> list[Stretch]:
    """Return the misaligned stretches; `first` and `last` are rows."""
    count = len(found.agreement)
    starts, means = _windows(found.agreement)
    limit = 0.0 if count < SURE_PAIRS else WEAK if count < MANY_PAIRS else WEAK_OF_MANY
    shifted = {offset: found.shifted(offset) for offset in NEIGHBOURS}
    gains = np.max([_windows(each)[1] for each in shifted.values()], axis=0) - means
    flagged = (means < limit) | (gains > (SHIFT if count >= SURE_PAIRS else 4 * SHIFT))
    runs: list[list[int]] = []  # first and last row of adjacent flagged windows
    for start, bad in zip(starts, flagged, strict=True):
        if bad and runs and start <= runs[-1][1] + 1:
            runs[-1][1] = min(start + WINDOW, count) - 1
        elif bad:
            runs.append([start, min(start + WINDOW, count) - 1])
    return [_stretch(found, shifted, *run) for run in runs]


def _stretch(found: _Measurement, shifted: dict[int, Floats], first: int, last: int) -> Stretch:
    """Explain adjacent flagged windows by an offset, and find where the stretch begins and ends."""
    for offset in OFFSETS:
        if offset not in shifted:
            shifted[offset] = found.shifted(offset)
    rows = slice(first, last + 1)
    means = {offset: float(values[rows].mean()) for offset, values in shifted.items()}
    best = max(OFFSETS, key=lambda offset: means[offset])
    # Neighbours in the same direction may be paraphrases; those in the other are no explanation.
    others = [means[offset] for offset in OFFSETS if offset * best < 0]
    own = float(found.agreement[rows].mean())
    explained = means[best] > max(own, *others) + SHIFT
    start, end = max(0, first - WINDOW), min(len(found.own), last + 1 + WINDOW)
    gain = WEAK_OF_MANY - found.agreement
    if explained and own > WEAK_OF_MANY:  # lines resemble their neighbours
        gain = shifted[best] - found.agreement - TIE
    begin, length = _best_segment(gain[start:end])
    first, last = start + begin, start + begin + length - 1
    rows = slice(first, last + 1)
    return Stretch(first, last, float(found.agreement[rows].mean()), best if explained else None)


def _best_segment(gains: Floats) -> tuple[int, int]:
    """Return the start and the length of the consecutive values with the largest sum."""
    sums = np.concatenate([[0.0], np.cumsum(gains, dtype=np.float64)])
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums[1:] - lowest[:-1])) + 1
    start = int(np.argmin(sums[:end]))
    return start, end - start


def _exchanged(found: _Measurement) -> dict[int, int]:
    """Return rows whose translation is on another row of low agreement, if there are many.

    A pair of rows counts if each is the other's best and both gain, or if a source row and a target
    row are best for each other and gain what a true pair gains over a wrong one.
    """
    count = len(found.own)
    size = min(count, max(MIN_PAIRS, min(MAX_SUSPECTS, count // 8)))
    suspects = np.sort(np.lexsort((found.own, found.agreement))[:size])
    matrix = found.score(np.repeat(suspects, size), np.tile(suspects, size)).reshape(size, size)
    usual = float(np.median(found.own - found.decoys.mean(axis=0)))
    own = np.diag(matrix).copy()
    np.fill_diagonal(matrix, -np.inf)
    best, rows = matrix.argmax(axis=1), np.arange(size)
    gain = matrix[rows, best] - own
    mutual = (best[best] == rows) & (gain > usual / 2) & (gain[best] > usual / 2)
    unique = (matrix.argmax(axis=0)[best] == rows) & (gain > usual)
    chosen = np.flatnonzero(mutual | unique)
    share = min(MAX_SHARE, max(MIN_SHARE, SHARE_SCALE / math.sqrt(found.model.pairs)))
    if len(chosen) <= max(MIN_EXCHANGED, share * size):
        return {}
    return {int(suspects[row]): int(suspects[best[row]]) for row in chosen}
