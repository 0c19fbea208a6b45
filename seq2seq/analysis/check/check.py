"""Check a config and its data before a long training, without writing anything."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from seq2seq.analysis.check.data_statistics import (
    Overlap,
    Resemblance,
    overlap,
    resemblance,
    text_statistics,
)
from seq2seq.analysis.check.findings import (
    Finding,
    Split,
    data_findings,
    language_findings,
    overlap_findings,
)
from seq2seq.analysis.check.forecast import Forecast, cost_findings, forecast
from seq2seq.config.schema import Config, ParallelFiles
from seq2seq.data.batching import encode_pairs
from seq2seq.data.corpus import usable
from seq2seq.data.vocabulary import train_vocabularies
from seq2seq.runs.run_folder import check_folder, holds_run
from seq2seq.runs.warm_start import read_warm_start
from seq2seq.runtime.device import bf16_note, choose_device, deterministic
from seq2seq.training.session import new_session, read_texts


class SplitComparison(NamedTuple):
    """Lines that one split shares with another, and how alike their sides are."""

    split: str
    other: str
    shared: Overlap
    alike: Resemblance


class Report(NamedTuple):
    """Result of `seq2seq check`; warnings come first among the findings."""

    config: Config
    splits: list[Split]
    comparisons: list[SplitComparison]
    cost: Forecast
    findings: list[Finding]


def check(config: Config, device: str = "auto", init_from: Path | None = None) -> Report:
    """Examine the data, the vocabulary and the cost of a training; write no file.

    `init_from` is the run whose vocabulary and weights training would start from, if any.

    Raises UserError if `train` would (but an existing run in run_dir is only a warning), and
    RunError if an optimizer step does not fit into memory.
    """
    check_folder(config, resume=False, overwrite=True)
    chosen, training = choose_device(device), config.training
    with deterministic(chosen, training.deterministic):
        return _examine(config, chosen, init_from)


def _examine(config: Config, device: torch.device, init_from: Path | None) -> Report:
    start = None if init_from is None else read_warm_start(init_from, config)
    texts = read_texts(config.data)
    train, _ = usable(texts.train)
    usable(texts.valid)  # raises if no pair has text
    vocabularies = (
        start.vocabularies
        if start is not None
        else train_vocabularies(config.vocabulary, train.src, train.tgt)
    )
    max_length = config.data.max_length
    pairs = encode_pairs(train.src, train.tgt, vocabularies, max_length)
    weights = start and start.weights
    session = new_session(config, device, vocabularies, pairs, texts.valid, weights=weights)
    named = {name: text for name, text in texts._asdict().items() if text is not None}
    splits = {
        name: Split(
            name,
            *_files(getattr(config.data, name)),
            text_statistics(text, vocabularies, max_length),
        )
        for name, text in named.items()
    }
    comparisons = [
        SplitComparison(
            name, other, overlap(named[name], named[other]), resemblance(named[name], named[other])
        )
        for name, other in (("valid", "train"), ("test", "train"), ("test", "valid"))
        if name in named
    ]
    cost = forecast(session)
    findings = [
        *data_findings(list(splits.values()), max_length),
        *_comparison_findings(splits, comparisons),
        *cost_findings(config.training, cost),
        *_setup_findings(config, device),
    ]
    findings.sort(key=lambda finding: not finding.warning)
    return Report(config, list(splits.values()), comparisons, cost, findings)


def _comparison_findings(
    splits: dict[str, Split], comparisons: list[SplitComparison]
) -> Iterator[Finding]:
    for each in comparisons:
        yield from overlap_findings(splits[each.split], splits[each.other], each.shared)
        if each.other == "train":
            yield from language_findings(splits[each.split], each.alike)


def _setup_findings(config: Config, device: torch.device) -> Iterator[Finding]:
    if slow := bf16_note(device, config.training.precision):
        yield Finding("precision", True, slow)
    if holds_run(config.run_dir):
        text = (
            f"run_dir: {config.run_dir} holds a run. Pass --resume or --overwrite to `train`, or "
        )
        yield Finding("run_dir", True, f"{text}set another run_dir.")


def _files(files: ParallelFiles) -> tuple[str, str]:
    if files.tsv is not None:
        return f"{files.tsv}, column 1", f"{files.tsv}, column 2"
    return str(files.src), str(files.tgt)
