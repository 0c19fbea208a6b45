"""The report of `seq2seq check` for reading: tables, then what is wrong and what is fine."""

from collections.abc import Sequence

from seq2seq.analysis.check.check import Report, SplitComparison
from seq2seq.analysis.check.data_statistics import Lengths
from seq2seq.analysis.check.findings import Finding, Split
from seq2seq.analysis.check.forecast import duration, size, training_seconds
from seq2seq.cli.tables import aligned

Row = Sequence[str]


def as_text(report: Report) -> str:
    """Tables of pairs, sides and costs; the warnings; what is fine; a last line that sums up."""
    warnings = sum(finding.warning for finding in report.findings)
    findings = [f"{_label(finding):<8} {finding.text}" for finding in report.findings]
    verdict = (
        f"{warnings or 'No'} warning{'s' * (warnings != 1)}; `seq2seq train` takes this config."
    )
    parts = [_pairs(report), _sides(report), _cost(report), "\n".join(findings), verdict]
    return "\n\n".join(parts)


def _label(finding: Finding) -> str:
    if finding.warning:
        return "warning:"
    return "ok" if finding.done else "note:"


def _pairs(report: Report) -> str:
    splits = report.splits
    rows = [
        ("pairs", *(split.name for split in splits)),
        ("lines", *(_number(split.statistics.lines) for split in splits)),
        ("with a blank side", *(_count(split.statistics.blank) for split in splits)),
        (
            f"over {report.config.data.max_length} pieces (max_length)",
            *(_count(split.tokens.too_long) for split in splits),
        ),
        ("the same pair before", *(_count(split.statistics.duplicates) for split in splits)),
        (
            "the source before, other target",
            *(_count(split.statistics.ambiguous) for split in splits),
        ),
        ("both sides the same", *(_count(split.statistics.identical) for split in splits)),
        (
            "unusual ratio of lengths",
            *(_count(split.statistics.length_outliers) for split in splits),
        ),
        (
            "target per source character",
            *(_ratio(split.statistics.length_ratio) for split in splits),
        ),
        (
            "correlation of lengths",
            *(_ratio(split.statistics.length_correlation) for split in splits),
        ),
        *(
            row
            for other in ("train", "valid")
            for row in _shared(splits, other, report.comparisons)
        ),
    ]
    return aligned(rows)


def _shared(splits: Sequence[Split], other: str, all_: Sequence[SplitComparison]) -> list[Row]:
    found = {each.split: each.shared for each in all_ if each.other == other}
    if not found:
        return []
    names = [split.name for split in splits]
    return [
        (
            f"{what} also in {other}",
            *(_count(shared[name]) if name in found else "" for name in names),
        )
        for what, shared in (
            ("source", {name: each.sources for name, each in found.items()}),
            ("pair", {name: each.pairs for name, each in found.items()}),
        )
    ]


def _sides(report: Report) -> str:
    data = report.config.data
    titles = ("mean", "95 %", "longest", "line")
    rows: list[Row] = [
        ("sides", "chars", *[""] * 3, "pieces", *[""] * 3, "unknown", "bytes", "odd"),
        ("", *titles, *titles, "", "", "lines"),
    ]
    for split in report.splits:
        for language, side, pieces in (
            (data.src_lang, split.statistics.src, split.tokens.src),
            (data.tgt_lang, split.statistics.tgt, split.tokens.tgt),
        ):
            odd = {number for numbers in side.unusual_characters.values() for number in numbers}
            rows.append(
                (
                    f"{split.name} {language}",
                    *_lengths(side.characters),
                    *_lengths(pieces.lengths),
                    f"{100 * pieces.unknown:.1f} %",
                    f"{100 * pieces.bytes:.1f} %",
                    _number(len(odd)),
                )
            )
    return aligned(rows)


def _cost(report: Report) -> str:
    cost = report.cost
    whole = training_seconds(report.config.training, cost)
    rows = [
        ("parameters", f"{cost.parameters:,}"),
        (
            "memory",
            f"{size(cost.state_bytes)} of weights, gradients, averages and the optimizer's moments"
            " (counted)",
        ),
        ("", f"{size(cost.peak_bytes)} held at most ({_how_measured(cost.device)})")
        if cost.peak_bytes is not None
        else ("", "the peak is not known: this system does not tell it"),
        (
            "an epoch",
            f"{cost.steps_per_epoch:,} updates, {duration(cost.epoch_seconds)} at "
            f"{cost.tokens_per_second:,.0f} target tokens a second on {cost.device} "
            f"(from {cost.measured_steps} real updates; validation not counted)",
        ),
        ("training", "until patience ends it" if whole is None else duration(whole)),
    ]
    return "\n".join(f"{name:<11} {text}" for name, text in rows)


def _how_measured(device: str) -> str:
    rest = "the widest batch included; other batches and validation may add a half"
    if device.startswith("cuda"):
        return f"measured, what torch took on the device; {rest}"
    return f"measured, the whole process; {rest}"


def _lengths(lengths: Lengths) -> Row:
    return f"{lengths.mean:.1f}", *(_number(value) for value in lengths[1:])


def _number(value: int) -> str:
    return f"{value:,}"


def _count(lines: Sequence[int]) -> str:
    return _number(len(lines))


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
