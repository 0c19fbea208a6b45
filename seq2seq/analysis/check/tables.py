"""Tables of a report by `check`, as text."""

from collections.abc import Mapping, Sequence

from seq2seq.analysis.check.alignment import Alignment
from seq2seq.analysis.check.cleaning import Cleaning
from seq2seq.analysis.check.data_statistics import Lengths
from seq2seq.analysis.check.findings import Finding, Split, SplitComparison
from seq2seq.analysis.check.forecast import Forecast, size, training_seconds
from seq2seq.config.schema import TrainingConfig
from seq2seq.runtime.console import aligned_table, counted, duration, one_line
from seq2seq.runtime.errors import argument

Row = Sequence[str]


def splits(splits: Mapping[str, Split], max_length: int) -> str:
    """Count what is unusual in each split."""
    texts = [split.statistics for split in splits.values()]
    columns = {
        "lines": [f"{text.lines:,}" for text in texts],
        "with a blank side": [_count(text.blank) for text in texts],
        f"over {max_length} tokens (data.max_length)": [_count(text.too_long) for text in texts],
        "duplicate pairs": [_count(text.duplicates) for text in texts],
        "duplicate sources, other targets": [_count(text.ambiguous) for text in texts],
        "identical sides": [_count(text.identical) for text in texts],
        "unusual length ratio": [_count(text.length_outliers) for text in texts],
        "target/source characters": [_ratio(text.length_ratio) for text in texts],
        "correlation of lengths": [_ratio(text.length_correlation) for text in texts],
    }
    return aligned_table([("pairs", *splits), *((name, *row) for name, row in columns.items())])


def alignments(splits: Mapping[str, Split], alignments: Mapping[str, Alignment]) -> str:
    """Show how well the sides of each split agree."""
    shares = [alignments[name].agreement for name in splits]
    texts = ["-" if share is None else f"{100 * share:.1f}%" for share in shares]
    return aligned_table([("", *splits), ("agreement of the sides", *texts)])


def comparisons(splits: Mapping[str, Split], comparisons: Sequence[SplitComparison]) -> str:
    """Count the lines that splits share with others."""
    rows: list[Row] = [("", *splits)]
    for name in dict.fromkeys(comparison.other for comparison in comparisons):
        shared = {pair.split: pair.shared for pair in comparisons if pair.other == name}
        overlaps = [shared.get(split) for split in splits]
        sources = [_count(lines.sources) if lines else "" for lines in overlaps]
        pairs = [_count(lines.pairs) if lines else "" for lines in overlaps]
        rows += [(f"source also in {name}", *sources), (f"pair also in {name}", *pairs)]
    return aligned_table(rows)


def sides(splits: Mapping[str, Split], languages: tuple[str, str]) -> str:
    """Show the lengths of lines, and tokens and characters that are unusual, of each side."""
    titles = ("mean", "95%", "longest", "line")
    rows: list[Row] = [
        ("sides", "chars", *[""] * 3, "tokens", *[""] * 3, "unknown", "bytes", "unusual"),
        ("", *titles, *titles, "", "", "lines"),
    ]
    for name, split in splits.items():
        for language, (_, side) in zip(languages, split.sides, strict=True):
            unusual = {line for lines in side.unusual_characters.values() for line in lines}
            shares = f"{100 * side.unknown:.1f}%", f"{100 * side.bytes:.1f}%"
            lengths = *_lengths(side.characters), *_lengths(side.tokens)
            rows.append((f"{name} {language}", *lengths, *shares, f"{len(unusual):,}"))
    return aligned_table(rows)


def cost(settings: TrainingConfig, cost: Forecast) -> str:
    """Show the size, memory and time of the training."""
    seconds = training_seconds(settings, cost)
    peak = "peak unknown: this system does not report it"
    if cost.peak_bytes is not None:
        where = "by torch" if cost.device.startswith("cuda") else "of the process"
        peak = (
            f"{size(cost.peak_bytes)} peak {where}, measured with the widest batch; training may "
            "need up to half as much again"
        )
    state = f"{size(cost.state_bytes)} for weights, gradients, averages and optimizer moments"
    epoch = (
        f"{counted(cost.steps_per_epoch, 'step')}, {duration(cost.epoch_seconds)} at "
        f"{cost.tokens_per_second:,.0f} target tokens/s on {cost.device} "
        f"(from {cost.measured_steps} measured steps, without validation)"
    )
    rows = [
        ("parameters", f"{cost.parameters:,}"),
        ("memory", f"{state} (computed)"),
        ("", peak),
        ("an epoch", epoch),
        ("training", "until patience runs out" if seconds is None else duration(seconds)),
    ]
    return aligned_table(rows, "left")


def findings(findings: Sequence[Finding]) -> str:
    """Count the checks that passed, then list the notes and, last, the warnings, a line each."""
    passed = sum(finding.done and not finding.warning for finding in findings)
    lines = []
    if passed:
        lines.append(
            ("ok", f"{counted(passed, 'check')} passed, listed by {argument('json', '-')}")
        )
    lines += [("note:", f.text) for f in findings if not (f.done or f.warning)]
    lines += [("warning:", f.text) for f in findings if f.warning]
    return "\n".join(f"{label:<8} {one_line(text)}" for label, text in lines)


def cleaning(cleaning: Cleaning) -> str:
    """Count the pairs that were kept and dropped."""
    dropped = {f"dropped: {reason}": count for reason, count in cleaning.dropped.items()}
    counts = {"training pairs kept, unchanged": cleaning.kept, **dropped}
    table = aligned_table([(f"{count:>9,}", text) for text, count in counts.items()], "left")
    written = f"Wrote {one_line(', '.join(cleaning.files))}. valid and test are not copied."
    return f"{table}\n{'' if dropped else 'No pair was dropped. '}{written}"


def verdict(warnings: int) -> str:
    """Count the warnings."""
    count = counted(warnings, "warning") if warnings else "No warnings"
    return f"{count}; `seq2seq train` accepts this config."


def _lengths(lengths: Lengths) -> Row:
    return f"{lengths.mean:.1f}", *(f"{value:,}" for value in lengths[1:])


def _count(lines: Sequence[int]) -> str:
    return f"{len(lines):,}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
