"""Check a config and its data before a long training, without writing a file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from seq2seq.config.corpora import files_by_name
from seq2seq.config.schema import Config, DataConfig, ParallelFiles, TrainingConfig
from seq2seq.data import pharaoh, training_data
from seq2seq.data.batching import encode_pairs
from seq2seq.data.corpus import ParallelText, check_directions, joined, source_name, tagged, usable
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import check_tags
from seq2seq.runs.checkpoint import LoadedRun, check_score_class, read_warm_start
from seq2seq.runs.run_folder import check_folder, holds_run
from seq2seq.runtime.console import aligned_table, counted, duration, hides_bars, one_line
from seq2seq.runtime.device import choose_device, deterministic
from seq2seq.runtime.errors import argument
from seq2seq.tools.analysis.check import alignment, findings, forecast
from seq2seq.tools.analysis.check.alignment import Alignment, Evidence
from seq2seq.tools.analysis.check.data_statistics import overlap, text_statistics
from seq2seq.tools.analysis.check.findings import Finding, Split, SplitComparison
from seq2seq.tools.analysis.check.forecast import Forecast
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
    check_score_class(config)
    torch_device = choose_device(device)
    bar_format = "{desc}: {elapsed}"
    with (
        deterministic(torch_device),
        tqdm(desc="check", leave=False, disable=hides_bars(), bar_format=bar_format) as bar,
    ):
        yield from _parts(
            config,
            torch_device,
            init_from,
            lambda stage: bar.set_description_str(f"check: {stage}"),
        )


def _parts(
    config: Config, device: torch.device, init_from: Path | None, stage: Callable[[str], None]
) -> Iterator[ReportPart]:
    """Yield the parts of a report; `stage` is called with the name of the next one."""
    data = config.data
    training_data.cache_of(config.run_dir)  # raises if training could have none
    training_data.check_regular(data.train)
    stage("reading the text")
    start = None if init_from is None else read_warm_start(init_from, config)
    texts = _read(data)
    usable(texts["valid"])  # raises if no pair has text
    stage("training the vocabulary")
    session = _session(config, device, texts, start)
    stage("counting lines and characters")
    vocabularies = session.data.vocabularies
    max_length = data.max_length
    splits = {
        name: Split(name, *_sides(files), text_statistics(texts[name], vocabularies, max_length))
        for name, files in files_by_name(data).items()
    }
    yield ReportPart(_table_of_splits(splits, data.max_length), "texts", splits)
    stage("measuring the alignment")
    alignments = _alignments(texts)
    yield ReportPart("", "alignments", alignments)
    stage("comparing the splits")
    comparisons = _comparisons(texts)
    yield ReportPart("", "comparisons", comparisons)
    stage("measuring training steps")
    cost = forecast.forecast(session)
    yield ReportPart(_table_of_cost(config.training, cost), "cost", cost)
    everything = list(findings.data_findings(list(splits.values()), data.max_length))
    for name, alignment_of_split in alignments.items():
        everything += alignment.alignment_findings(splits[name], alignment_of_split)
    everything += _form_findings(data, splits, texts)
    for split, reference, common in comparisons:
        everything += findings.overlap_findings(splits[split], splits[reference], common)
    everything += forecast.cost_findings(config.training, cost)
    run_dir_findings = list(_run_dir_findings(config.run_dir))
    everything += run_dir_findings
    everything.sort(key=lambda finding: not finding.warning)
    yield ReportPart(_list_of_findings(everything), "findings", everything)
    warnings = sum(finding.warning for finding in everything)
    count = counted(warnings, "warning") if warnings else "No warnings"
    ways = f" with {_ways_to_train()}" if run_dir_findings else ""
    verdict = f"{count}; `seq2seq train` accepts this config{ways}."
    yield ReportPart(verdict, "warnings", warnings)


def _alignments(texts: Mapping[str, ParallelText]) -> dict[str, Alignment]:
    """Measure how the sides of each split fit; the evidence of the first one serves all."""
    alignments: dict[str, Alignment] = {}
    evidence: Evidence | None = None
    for name, text in texts.items():
        alignments[name], of_text = alignment.measure_alignment(text, evidence)
        evidence = evidence or of_text
    return alignments


def _comparisons(texts: Mapping[str, ParallelText]) -> list[SplitComparison]:
    """Return what valid and test share with each training text, and test with valid."""
    return [
        SplitComparison(name, reference, overlap(texts[name], texts[reference]))
        for name in ("valid", "test")
        for reference in texts
        if name in texts and (is_train(reference) or (name, reference) == ("test", "valid"))
    ]


def _run_dir_findings(run_dir: Path) -> Iterator[Finding]:
    """Warn of a run folder that holds a run already."""
    if holds_run(run_dir):
        ways = f"Pass {_ways_to_train()} to `train`, or set another run_dir."
        yield Finding("run_dir", True, f"run_dir: {run_dir} holds a run. {ways}")


def _ways_to_train() -> str:
    """Return the options with which `train` takes a folder that holds a run."""
    return f"{argument('resume', True)} or {argument('overwrite', True)}"


def _session(
    config: Config, device: torch.device, texts: dict[str, ParallelText], start: LoadedRun | None
) -> TrainingSession:
    """Return a session in memory, as training would start it."""
    data = config.data
    files = files_by_name(config.data)
    corpora = [tagged(usable(texts[name])[0], files[name].tag) for name in files if is_train(name)]
    train = joined(corpora)
    sizes = map(len, corpora)
    weights = (text.weight for text in data.train)
    if start is not None:
        vocabularies = start.vocabularies
    else:
        vocabularies = train_vocabularies(config.vocabulary, train.src, train.tgt, data.tags)
    check_tags(vocabularies, data.tags)
    pairs = encode_pairs(train.src, train.tgt, vocabularies, data.max_length, [*sizes], [*weights])
    valid = tagged(texts["valid"], data.valid.tag)
    return new_session(config, device, session_data(config, vocabularies, pairs, valid), start)


def _read(data: DataConfig) -> dict[str, ParallelText]:
    """Read every text without its tag, by its split; raises UserError if one does not fit."""
    texts = {}
    for name, files in files_by_name(data).items():
        src = list[str]()
        tgt = list[str]()
        for pair, _ in pharaoh.iter_linked_pairs(files.model_copy(update={"tag": None})):
            src.append(pair[0])
            tgt.append(pair[1])
        texts[name] = ParallelText(src, tgt, source_name(files))
    train = joined([text for name, text in texts.items() if is_train(name)])
    held_out = [text for name, text in texts.items() if not is_train(name)]
    check_directions(train, held_out, data.src_lang)
    return texts


def is_train(name: str) -> bool:
    """Return whether this is the name of a training text."""
    return name.startswith("train")


def _form_findings(
    data: DataConfig, splits: dict[str, Split], texts: dict[str, ParallelText]
) -> Iterator[Finding]:
    languages = (data.src_lang, data.tgt_lang)
    forms = list[Finding]()
    for name, files in files_by_name(data).items():
        split = splits[name]
        text = texts[name]
        for file, lines in ((split.src_file, text.src), (split.tgt_file, text.tgt)):
            forms += findings.form_findings(file, lines, languages, files.is_table)
    yield from forms
    if not forms:
        passed = "no sign of segmented or tokenised text, markers, headers or identifiers"
        yield Finding("form", False, passed)


def _sides(files: ParallelFiles) -> tuple[str, str]:
    if files.file is not None:
        src, tgt = files.columns or ("1", "2")
        return f"{files.file}, column {src}", f"{files.file}, column {tgt}"
    return str(files.src), str(files.tgt)


def _table_of_splits(splits: Mapping[str, Split], max_length: int) -> str:
    """Count what is unusual in each split."""
    texts = [split.statistics for split in splits.values()]
    fields = {
        "with a blank side": "blank",
        f"over {max_length} tokens (data.max_length)": "too_long",
        "duplicate pairs": "duplicates",
        "identical sides": "identical",
        "unusual length ratio": "length_outliers",
    }
    rows = [
        (name, *(f"{len(getattr(text, field)):,}" for text in texts))
        for name, field in fields.items()
    ]
    ratios = ("-" if text.length_ratio is None else f"{text.length_ratio:.2f}" for text in texts)
    lines = (f"{text.lines:,}" for text in texts)
    last = ("target/source characters", *ratios)
    return aligned_table([("pairs", *splits), ("lines", *lines), *rows, last])


def _table_of_cost(settings: TrainingConfig, cost: Forecast) -> str:
    """Show the size, memory and time of the training."""
    seconds = forecast.training_seconds(settings, cost)
    size = forecast.size
    peak = "peak unknown: this system does not report it"
    if cost.peak_bytes is not None:
        where = "by torch" if cost.device.startswith("cuda") else "of the process"
        peak = f"{size(cost.peak_bytes)} peak {where}, measured with the widest batch; training"
        peak += " may need up to half as much again"
    state = f"{size(cost.state_bytes)} for weights, gradients, averages and optimizer moments"
    speed = f"{cost.tokens_per_second:,.0f} target tokens/s on {cost.hardware}"
    epoch = f"{counted(cost.steps_per_epoch, 'step')}, {duration(cost.epoch_seconds)} at {speed}"
    epoch += f" (from {cost.measured_steps} measured steps, without validation)"
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
    lines = []
    if passed := sum(finding.done and not finding.warning for finding in everything):
        listed = f"{counted(passed, 'check')} passed, listed by {argument('json', '-')}"
        lines.append(("ok", listed))
    lines += [("note:", f.text) for f in everything if not (f.done or f.warning)]
    lines += [("warning:", f.text) for f in everything if f.warning]
    return "\n".join(f"{label:<8} {one_line(text)}" for label, text in lines)
