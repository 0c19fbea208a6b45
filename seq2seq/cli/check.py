"""`seq2seq check`: report on the data of a config and on the cost of its training."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from seq2seq.cli import arguments
from seq2seq.cli.loading import frozen_objects, resolve_config
from seq2seq.cli.output import check_output, open_output, write_json
from seq2seq.cli.progress import above_bar
from seq2seq.runtime.console import aligned_table, counted, duration, one_line

if TYPE_CHECKING:
    from seq2seq.analysis.check.alignment import Alignment
    from seq2seq.analysis.check.check import Report, SplitComparison
    from seq2seq.analysis.check.cleaning import Cleaning
    from seq2seq.analysis.check.data_statistics import Lengths
    from seq2seq.analysis.check.findings import Finding, Split
    from seq2seq.analysis.check.forecast import Forecast

Row = Sequence[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Inspect the data, the vocabulary and the training cost of a config. Writes no\n"
        "files except for --json and --write."
    )
    arguments.add_config(parser)
    arguments.add_init_from(parser)
    arguments.add_json_report(parser)
    parser.add_argument(
        "--write",
        type=arguments.folder,
        metavar="FOLDER",
        help="also write a cleaned copy of the training text to a new folder, and what was dropped",
    )
    arguments.add_device(parser)


def run(options: argparse.Namespace) -> int:
    """Check a config and print tables, warnings and a verdict."""
    config = resolve_config(options.config, options.overrides)
    runs = [config.run_dir, *([options.init_from] if options.init_from else [])]
    check_output(options.json, options.config, *config.data.paths(), runs=runs)
    with frozen_objects():
        from seq2seq.analysis.check.check import check

    with check(config, options.device, options.init_from, options.write) as report:
        try:
            if str(options.json) != "-":
                _print(sections(report))
        except BrokenPipeError:  # the reader of the text has finished
            write_json(as_json(report), options.json)
            raise
        write_json(as_json(report), options.json)
    return 0


def _print(parts: Iterable[str]) -> None:
    """Print each part as soon as it is known, above the progress bar."""
    with open_output(None) as output:
        for part in parts:
            with above_bar():
                output.write(f"{part}\n")
                output.flush()


def as_json(report: "Report") -> dict[str, Any]:
    """Arrange the report for JSON, with the numbers of all lines that were found."""
    return {
        "name": report.config.name,
        "warnings": _warnings(report),
        "findings": report.findings,
        "texts": report.splits,
        "comparisons": report.comparisons,
        "alignments": report.alignments,
        "cost": report.cost,
        "cleaning": report.cleaning,
    }


def sections(report: "Report") -> Iterator[str]:
    """Format tables of splits, sides and cost, the findings, and a verdict, each once it is known.

    The rows of the first table follow one another, and all else an empty line.
    """
    yield from _pairs(report)
    yield f"\n{_sides(report)}"
    yield f"\n{_cost(report)}"
    findings = [f"{_label(finding):<8} {one_line(finding.text)}" for finding in report.findings]
    yield "\n" + "\n".join(findings)
    if report.cleaning is not None:
        yield f"\n{_cleaning(report.cleaning)}"
    warnings = _warnings(report)
    count = f"{warnings or 'No'} warning{'s' * (warnings != 1)}"
    yield f"\n{count}; `seq2seq train` accepts this config."


def _warnings(report: "Report") -> int:
    return sum(finding.warning for finding in report.findings)


def _cleaning(cleaning: "Cleaning") -> str:
    dropped = sum(cleaning.dropped.values())
    rows = [
        (f"{_number(cleaning.kept)}", "training pairs kept, unchanged"),
        *((_number(count), f"dropped: {reason}") for reason, count in cleaning.dropped.items()),
    ]
    table = aligned_table([(count.rjust(9), text) for count, text in rows], "left")
    written = f"Wrote {one_line(', '.join(cleaning.files))}. valid and test are not copied."
    return f"{table}\n{written}" if dropped else f"{table}\nNo pair was dropped. {written}"


def _label(finding: "Finding") -> str:
    if finding.warning:
        return "warning:"
    return "ok" if finding.done else "note:"


def _pairs(report: "Report") -> Iterator[str]:
    """Yield rows of the table of splits: lines, counts, agreement, and what other splits share."""
    lines = report.lines
    too_long = f"over {report.config.data.max_length} tokens (data.max_length)"
    widest = [  # so that the columns are as wide for all rows
        ("duplicate sources, other targets", *("100.0%" for _ in lines)),
        (too_long, *lines),
        ("lines", *map(_number, lines.values())),
    ]

    def table(rows: Sequence[Row]) -> str:
        return "\n".join(aligned_table([*rows, *widest]).splitlines()[: len(rows)])

    yield table([("pairs", *lines), widest[-1]])
    splits = [*report.splits.values()]
    statistics = [split.statistics for split in splits]
    yield table(
        [
            ("with a blank side", *(_count(text.blank) for text in statistics)),
            (too_long, *(_count(text.too_long) for text in statistics)),
            ("duplicate pairs", *(_count(text.duplicates) for text in statistics)),
            (
                "duplicate sources, other targets",
                *(_count(text.ambiguous) for text in statistics),
            ),
            ("identical sides", *(_count(text.identical) for text in statistics)),
            ("unusual length ratio", *(_count(text.length_outliers) for text in statistics)),
            ("target/source characters", *(_ratio(text.length_ratio) for text in statistics)),
        ]
    )
    alignments = report.alignments
    yield table(
        [
            ("agreement of the sides", *(_share(alignments[split.name]) for split in splits)),
            ("correlation of lengths", *(_ratio(text.length_correlation) for text in statistics)),
        ]
    )
    comparisons = report.comparisons
    for name in dict.fromkeys(comparison.other for comparison in comparisons):
        yield table(_shared(splits, name, comparisons))


def _shared(
    splits: "Sequence[Split]", name: str, comparisons: "Sequence[SplitComparison]"
) -> list[Row]:
    """Return rows of the lines that the splits share with the one of a name."""
    with_name = [comparison for comparison in comparisons if comparison.other == name]
    overlaps = {comparison.split: comparison.shared for comparison in with_name}
    shared = [overlaps.get(split.name) for split in splits]
    return [
        (f"source also in {name}", *(_count(lines.sources) if lines else "" for lines in shared)),
        (f"pair also in {name}", *(_count(lines.pairs) if lines else "" for lines in shared)),
    ]


def _sides(report: "Report") -> str:
    data = report.config.data
    titles = ("mean", "95%", "longest", "line")
    rows: list[Row] = [
        ("sides", "chars", *[""] * 3, "tokens", *[""] * 3, "unknown", "bytes", "unusual"),
        ("", *titles, *titles, "", "", "lines"),
    ]
    for split in report.splits.values():
        for language, side in (
            (data.src_lang, split.statistics.src),
            (data.tgt_lang, split.statistics.tgt),
        ):
            unusual = {number for numbers in side.unusual_characters.values() for number in numbers}
            rows.append(
                (
                    f"{split.name} {language}",
                    *_lengths(side.characters),
                    *_lengths(side.tokens),
                    f"{100 * side.unknown:.1f}%",
                    f"{100 * side.bytes:.1f}%",
                    _number(len(unusual)),
                )
            )
    return aligned_table(rows)


def _cost(report: "Report") -> str:
    from seq2seq.analysis.check.forecast import size, training_seconds

    cost = report.cost
    seconds = training_seconds(report.config.training, cost)
    rows = [
        ("parameters", f"{cost.parameters:,}"),
        (
            "memory",
            f"{size(cost.state_bytes)} for weights, gradients, averages and optimizer moments "
            "(computed)",
        ),
        ("", _peak_memory(cost)),
        (
            "an epoch",
            f"{counted(cost.steps_per_epoch, 'step')}, {duration(cost.epoch_seconds)} at "
            f"{cost.tokens_per_second:,.0f} target tokens/s on {cost.device} "
            f"(from {cost.measured_steps} measured steps, without validation)",
        ),
        ("training", "until patience runs out" if seconds is None else duration(seconds)),
    ]
    return aligned_table(rows, "left")


def _peak_memory(cost: "Forecast") -> str:
    from seq2seq.analysis.check.forecast import size

    if cost.peak_bytes is None:
        return "peak unknown: this system does not report it"
    where = "by torch" if cost.device.startswith("cuda") else "of the process"
    return (
        f"{size(cost.peak_bytes)} peak {where}, measured with the widest batch; training may need "
        "up to half as much again"
    )


def _lengths(lengths: "Lengths") -> Row:
    return f"{lengths.mean:.1f}", *(_number(value) for value in lengths[1:])


def _number(value: int) -> str:
    return f"{value:,}"


def _count(lines: Sequence[int]) -> str:
    return _number(len(lines))


def _share(alignment: "Alignment") -> str:
    return "-" if alignment.agreement is None else f"{100 * alignment.agreement:.1f}%"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
