"""Check a config and its data before a long training, without writing a file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from seq2seq.analysis.check import data_statistics, findings
from seq2seq.analysis.check.alignment import (
    Alignment,
    Evidence,
    alignment_findings,
    measure_alignment,
)
from seq2seq.analysis.check.findings import Finding, Split, SplitComparison, form_findings
from seq2seq.analysis.check.forecast import (
    Forecast,
    cost_findings,
    forecast,
    size,
    training_seconds,
)
from seq2seq.config.corpora import files_by_name
from seq2seq.config.schema import Config, DataConfig, ParallelFiles, TrainingConfig
from seq2seq.data.batching import encode_pairs
from seq2seq.data.corpus import ParallelText, check_directions, joined, source_name, tagged, usable
from seq2seq.data.pharaoh import iter_linked_pairs
from seq2seq.data.training_data import cache_of, check_regular
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies, check_tags
from seq2seq.runs.checkpoint import WarmStart, read_warm_start
from seq2seq.runs.run_folder import check_folder, holds_run
from seq2seq.runtime.console import aligned_table, counted, duration, hides_bars, one_line
from seq2seq.runtime.device import choose_device, deterministic
from seq2seq.runtime.errors import argument
from seq2seq.training.session import TrainingSession, new_session, session_data


class ReportPart(NamedTuple):
    """Part of a report: its text, empty for none, and its key and value in JSON."""

    text: str
    key: str
    value: object


def check(
    config: Config, device: str = "auto", init_from: Path | None = None
) -> Iterator[ReportPart]:
    """Examine the data, the vocabulary and the cost of a training; yield each part once known.

    `init_from` is the run whose vocabulary and weights training would start from, if any. On a
    terminal, a progress bar names what is being checked.

    Raises UserError if `train` would (but an existing run in run_dir is only a warning), and
    RunError if an optimizer step does not fit into memory.
    """
    check_folder(config, resume=False, overwrite=True)
    chosen, bar_format = choose_device(device), "{desc}: {elapsed}"
    with (
        deterministic(chosen),
        tqdm(desc="check", leave=False, disable=hides_bars(), bar_format=bar_format) as bar,
    ):
        yield from _parts(
            config, chosen, init_from, lambda stage: bar.set_description_str(f"check: {stage}")
        )


def _parts(
    config: Config, device: torch.device, init_from: Path | None, stage: Callable[[str], None]
) -> Iterator[ReportPart]:
    """Yield the parts of a report; `stage` is called with the name of the next one."""
    data = config.data
    cache_of(config.run_dir)  # raises if training could have none
    check_regular(data.train)
    stage("reading the text")
    start = None if init_from is None else read_warm_start(init_from, config)
    texts = _read(data)
    usable(texts["valid"])  # raises if no pair has text
    stage("training the vocabulary")
    corpora = [
        tagged(usable(texts[name])[0], files.tag)
        for name, files in files_by_name(data).items()
        if is_train(name)
    ]
    vocabularies = _vocabularies(config, joined(corpora), start)
    stage("encoding the text")
    session = _session(config, device, vocabularies, corpora, (texts["valid"], start))
    stage("counting lines and characters")
    splits = {
        name: Split(
            name,
            *_sides(files_by_name(data)[name]),
            data_statistics.text_statistics(text, vocabularies, data.max_length),
        )
        for name, text in texts.items()
    }
    yield ReportPart(_table_of_splits(splits, data.max_length), "texts", splits)
    stage("measuring the alignment")
    alignments = _alignments(texts)
    yield ReportPart("", "alignments", alignments)
    stage("comparing the splits")
    comparisons = list(_comparisons(texts))
    yield ReportPart("", "comparisons", comparisons)
    stage("measuring training steps")
    cost = forecast(session)
    yield ReportPart(_table_of_cost(config.training, cost), "cost", cost)
    everything = [
        *findings.data_findings(list(splits.values()), data.max_length),
        *(
            finding
            for name, alignment in alignments.items()
            for finding in alignment_findings(splits[name], alignment)
        ),
        *_form_findings(data, splits, texts),
        *(
            finding
            for comparison in comparisons
            for finding in findings.overlap_findings(
                splits[comparison.split], splits[comparison.other], comparison.shared
            )
        ),
        *cost_findings(config.training, cost),
        *_setup_findings(config),
    ]
    everything.sort(key=lambda finding: not finding.warning)
    yield ReportPart(_list_of_findings(everything), "findings", everything)
    warnings = sum(finding.warning for finding in everything)
    yield ReportPart(_verdict(warnings), "warnings", warnings)


def _vocabularies(config: Config, train: ParallelText, start: WarmStart | None) -> Vocabularies:
    if start is not None:
        vocabularies = start.vocabularies
    else:
        tags = config.data.tags
        vocabularies = train_vocabularies(config.vocabulary, train.src, train.tgt, tags)
    check_tags(vocabularies, config.data.tags)
    return vocabularies


def _session(
    config: Config,
    device: torch.device,
    vocabularies: Vocabularies,
    corpora: Sequence[ParallelText],
    valid_and_start: tuple[ParallelText, WarmStart | None],
) -> TrainingSession:
    valid, start = valid_and_start
    train, sizes = joined(corpora), [len(corpus) for corpus in corpora]
    weights = [corpus.weight for corpus in config.data.train]
    longest = config.data.max_length
    pairs = encode_pairs(train.src, train.tgt, vocabularies, longest, sizes, weights)
    valid = tagged(valid, config.data.valid.tag)
    data = session_data(config, vocabularies, pairs, valid)
    return new_session(config, device, data, start)


def _read(data: DataConfig) -> dict[str, ParallelText]:
    """Read every text without its tag, by the name of its split.

    Raises UserError as `other_texts` does, and for a word alignment that does not fit.
    """
    named = {
        name: _untagged(files.model_copy(update={"tag": None}))
        for name, files in files_by_name(data).items()
    }
    train = joined([text for name, text in named.items() if is_train(name)])
    held_out = [text for name, text in named.items() if not is_train(name)]
    check_directions(train, held_out, data.src_lang)
    return named


def _untagged(files: ParallelFiles) -> ParallelText:
    """Read the pairs of a text without a tag; raises UserError as `iter_linked_pairs` does."""
    src, tgt = [], []
    for (src_line, tgt_line), _ in iter_linked_pairs(files):
        src.append(src_line)
        tgt.append(tgt_line)
    return ParallelText(src, tgt, source_name(files))


def is_train(name: str) -> bool:
    """Return whether this is the name of a training text."""
    return name.startswith("train")


def _alignments(texts: dict[str, ParallelText]) -> dict[str, Alignment]:
    """Measure the splits, each by the evidence of the first one, too."""
    alignments: dict[str, Alignment] = {}
    evidence: Evidence | None = None
    for name, text in texts.items():
        alignments[name], evidence_of_text = measure_alignment(text, evidence)
        evidence = evidence or evidence_of_text
    return alignments


def _comparisons(texts: dict[str, ParallelText]) -> Iterator[SplitComparison]:
    for name in ("valid", "test"):
        for reference in texts:
            is_earlier = is_train(reference) or (name, reference) == ("test", "valid")
            if name in texts and is_earlier:
                shared = data_statistics.overlap(texts[name], texts[reference])
                yield SplitComparison(name, reference, shared)


def _form_findings(
    data: DataConfig, splits: dict[str, Split], texts: dict[str, ParallelText]
) -> Iterator[Finding]:
    languages, warned = (data.src_lang, data.tgt_lang), False
    for name, text in texts.items():
        split, files = splits[name], files_by_name(data)[name]
        forms: list[Finding] = []
        for file, lines in ((split.src_file, text.src), (split.tgt_file, text.tgt)):
            forms += form_findings(file, lines, languages, files.is_table)
        warned = warned or any(finding.warning for finding in forms)
        yield from forms
    if not warned:
        text_ = "no sign of segmented or tokenised text, markers, headers or identifiers"
        yield Finding("form", False, text_)


def _setup_findings(config: Config) -> Iterator[Finding]:
    if holds_run(config.run_dir):
        text = (
            f"run_dir: {config.run_dir} holds a run. Pass {argument('resume', True)} or "
            f"{argument('overwrite', True)} to `train`, or set another run_dir."
        )
        yield Finding("run_dir", True, text)


def _sides(files: ParallelFiles) -> tuple[str, str]:
    if files.file is not None:
        src, tgt = files.columns or ("1", "2")
        return f"{files.file}, column {src}", f"{files.file}, column {tgt}"
    return str(files.src), str(files.tgt)


def _table_of_splits(splits: Mapping[str, Split], max_length: int) -> str:
    """Count what is unusual in each split."""
    texts = [split.statistics for split in splits.values()]
    columns = {
        "lines": [f"{text.lines:,}" for text in texts],
        "with a blank side": [_count(text.blank) for text in texts],
        f"over {max_length} tokens (data.max_length)": [_count(text.too_long) for text in texts],
        "duplicate pairs": [_count(text.duplicates) for text in texts],
        "identical sides": [_count(text.identical) for text in texts],
        "unusual length ratio": [_count(text.length_outliers) for text in texts],
        "target/source characters": [_ratio(text.length_ratio) for text in texts],
    }
    return aligned_table([("pairs", *splits), *((name, *row) for name, row in columns.items())])


def _table_of_cost(settings: TrainingConfig, cost: Forecast) -> str:
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


def _list_of_findings(everything: Sequence[Finding]) -> str:
    """Count the checks that passed, then list the notes and, last, the warnings, a line each."""
    passed = sum(finding.done and not finding.warning for finding in everything)
    lines = []
    if passed:
        lines.append(
            ("ok", f"{counted(passed, 'check')} passed, listed by {argument('json', '-')}")
        )
    lines += [("note:", f.text) for f in everything if not (f.done or f.warning)]
    lines += [("warning:", f.text) for f in everything if f.warning]
    return "\n".join(f"{label:<8} {one_line(text)}" for label, text in lines)


def _verdict(warnings: int) -> str:
    """Count the warnings."""
    count = counted(warnings, "warning") if warnings else "No warnings"
    return f"{count}; `seq2seq train` accepts this config."


def _count(lines: Sequence[int]) -> str:
    return f"{len(lines):,}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
