"""What it means that splits share lines, or look like other languages than training's."""

from collections.abc import Iterator

from seq2seq.analysis.check.data_statistics import Overlap, Resemblance
from seq2seq.analysis.check.findings import Finding, Split, listed

MANY_PAIRS_KNOWN, MANY_SOURCES_KNOWN = 0.01, 0.1  # shares of the lines that deserve a warning
MARGIN, FOREIGN = 0.1, 0.1  # of a resemblance


def overlap_findings(split: Split, other: Split, found: Overlap) -> Iterator[Finding]:
    """What it means that lines of `split` stand in `other`, which training sees first."""
    lines = split.facts.lines
    pairs, sources = len(found.pairs), len(found.sources)
    known = f"{pairs or 'none'} of {lines:,} pairs stand in {other.name} too"
    if pairs > MANY_PAIRS_KNOWN * lines:
        yield Finding(
            "overlap",
            True,
            f"{split.name}: {known} ({listed(found.pairs)} of {split.name}), so its scores will "
            f"flatter the model: take them out of {other.name}",
        )
    elif sources > MANY_SOURCES_KNOWN * lines:
        yield Finding(
            "overlap",
            True,
            f"{split.name}: {sources:,} of {lines:,} sources stand in {other.name} too, with other "
            f"targets ({listed(found.sources)} of {split.name}): take them out of {other.name} "
            "for a score on unseen text",
        )
    else:
        yield Finding("overlap", False, f"{split.name}: {known}")


def likeness_findings(split: Split, found: Resemblance) -> Iterator[Finding]:
    """Whether the sides of a split are in the languages that training has on those sides."""
    src_crosses = found.src_tgt > found.src_src + MARGIN
    tgt_crosses = found.tgt_src > found.tgt_tgt + MARGIN
    where, looks = f"{split.name}", "by its letters"
    if src_crosses and tgt_crosses:
        text = (
            f"{where}: its sides look swapped, {looks}: exchange src and tgt in data.{split.name}"
        )
    elif src_crosses:
        text = (
            f"{where}: {split.src_file} is the source, but looks like train's target, {looks}: "
            f"check data.{split.name}.src"
        )
    elif tgt_crosses:
        text = (
            f"{where}: {split.tgt_file} is the target, but looks like train's source, {looks}: "
            f"check data.{split.name}.tgt"
        )
    elif min(found.src_src, found.tgt_tgt) < FOREIGN:
        side = "source" if found.src_src < found.tgt_tgt else "target"
        text = f"{where}: its {side} looks like another language than train's: check the files"
    else:
        yield Finding("languages", False, f"{where}: each side looks like the same side of train")
        return
    yield Finding("languages", True, text)
