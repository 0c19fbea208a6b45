"""`seq2seq check`: a config and its data looked at before a long training; writes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from seq2seq.analysis.check.data_statistics import (
    Overlap,
    Resemblance,
    examine,
    overlap,
    resemblance,
)
from seq2seq.analysis.check.findings import Finding, Split, data_findings
from seq2seq.analysis.check.forecast import Forecast, forecast
from seq2seq.analysis.check.overlap_findings import likeness_findings, overlap_findings
from seq2seq.analysis.check.token_statistics import examine_pieces
from seq2seq.config.schema import Config, ParallelFiles, TrainingConfig
from seq2seq.data.batching import encode_pairs
from seq2seq.data.corpus import ParallelText, usable
from seq2seq.data.vocabulary import train_vocabularies
from seq2seq.runs.run_folder import check_folder, run_lives
from seq2seq.runs.warm_start import read_warm_start
from seq2seq.runtime.device import bf16_note, choose_device, deterministic, memory_limit
from seq2seq.training.session import assemble, read_texts

FEW_UPDATES = 500
MUCH_MEMORY = 0.6  # of the machine's; a whole training takes up to half more than its beginning
BUSY = 0.8  # of a core; with less, others took the time


class Comparison(NamedTuple):
    """What one split shares with another: lines, and the look of its languages."""

    split: str
    other: str
    shared: Overlap
    alike: Resemblance


class Report(NamedTuple):
    """All that was found; the warnings stand first."""

    config: Config
    splits: list[Split]
    comparisons: list[Comparison]
    cost: Forecast
    findings: list[Finding]


def check(config: Config, device: str = "auto", init_from: Path | None = None) -> Report:
    """Look at the data, the vocabulary and the cost of a training; makes no file and no folder.

    `init_from` is the run that the training would begin with, if any.

    Raises UserError where `train` would (a run in run_dir is only warned of), and RunError where
    an update does not fit into memory.
    """
    check_folder(config, resume=False, overwrite=True)
    chosen, training = choose_device(device), config.training
    with deterministic(chosen, training.deterministic), memory_limit(chosen, training.memory_gb):
        return _examined(config, chosen, init_from)


def _examined(config: Config, device: torch.device, init_from: Path | None) -> Report:
    start = None if init_from is None else read_warm_start(init_from, config)
    texts = read_texts(config.data)
    train, _ = usable(texts.train)
    valid, _ = usable(texts.valid)
    vocabularies = (
        start.vocabularies
        if start is not None
        else train_vocabularies(config.vocabulary, train.src, train.tgt)
    )
    longest = config.data.max_length
    pairs = encode_pairs(train.src, train.tgt, vocabularies, longest)
    run = assemble(config, device, vocabularies, pairs, valid, start and start.weights)
    named = {name: text for name, text in texts._asdict().items() if text is not None}
    splits = [
        Split(
            name,
            *_files(getattr(config.data, name)),
            examine(text),
            examine_pieces(text, vocabularies, longest),
        )
        for name, text in named.items()
    ]
    comparisons = list(_comparisons(named))
    cost = forecast(run)
    findings = [
        *data_findings(splits, longest),
        *_comparison_findings({split.name: split for split in splits}, comparisons),
        *cost_findings(config.training, cost),
        *_precision(device, config.training.precision),
        *_folder_findings(config),
    ]
    findings.sort(key=lambda finding: not finding.warning)
    return Report(config, splits, comparisons, cost, findings)


def as_json(report: Report) -> dict[str, Any]:
    """The report for `json.dumps`, with every line number."""
    return {
        "name": report.config.name,
        "warnings": sum(finding.warning for finding in report.findings),
        "findings": [finding._asdict() for finding in report.findings],
        "texts": {split.name: _tree(split) for split in report.splits},
        "comparisons": [_tree(comparison) for comparison in report.comparisons],
        "cost": report.cost._asdict(),
    }


def cost_findings(settings: TrainingConfig, cost: Forecast) -> Iterator[Finding]:
    """Whether the training fits into its time and into memory, and is long enough to learn."""
    yield _memory(cost)
    if cost.core_share is not None and cost.core_share < BUSY:
        busy, cost = cost, _idle(cost)
        yield _load(busy, cost)
    yield from _time(settings, cost)
    updates = expected_updates(settings, cost)
    if updates is not None and updates < FEW_UPDATES:
        yield Finding(
            "updates",
            True,
            f"training ends after about {updates:,} updates, and attention seldom forms in fewer "
            f"than {FEW_UPDATES}: raise training.max_epochs, or lower training.batch_tokens",
        )


def expected_seconds(settings: TrainingConfig, cost: Forecast) -> float | None:
    """How long training goes on, validations left out; None where only patience ends it."""
    limits = []
    if cost.total_steps is not None:
        limits.append(cost.total_steps / cost.updates_per_epoch * cost.epoch_seconds)
    if settings.max_minutes is not None:
        limits.append(60 * settings.max_minutes)
    return min(limits, default=None)


def expected_updates(settings: TrainingConfig, cost: Forecast) -> int | None:
    """About how many updates training takes."""
    seconds = expected_seconds(settings, cost)
    if seconds is None:
        return None
    return int(seconds / cost.epoch_seconds * cost.updates_per_epoch)


def _memory(cost: Forecast) -> Finding:
    peak, all_ = cost.peak_bytes, cost.machine_bytes
    if peak is not None and all_ is not None and peak > MUCH_MEMORY * all_:
        return Finding(
            "memory",
            True,
            f"{size(peak)} of {size(all_)} of memory were in use: lower "
            "training.batch_tokens and raise training.accumulate instead, or lower "
            "data.max_length",
        )
    return Finding("memory", False, f"an update fits into the memory of {cost.device}")


def _time(settings: TrainingConfig, cost: Forecast) -> Iterator[Finding]:
    """Whether max_minutes lets max_epochs or max_steps be reached."""
    if cost.total_steps is None or settings.max_minutes is None:
        return
    wanted = cost.total_steps / cost.updates_per_epoch * cost.epoch_seconds
    if wanted <= 60 * settings.max_minutes:
        yield Finding("time", False, "training.max_minutes leaves time for all updates")
        return
    share = 60 * settings.max_minutes / wanted
    falls = settings.decay in ("linear", "cosine")
    yield Finding(
        "time",
        True,
        f"training.max_minutes {settings.max_minutes:g} ends training after about "
        f"{100 * share:.0f} % of its {cost.total_steps:,} updates (all take {duration(wanted)}, "
        "validations left out): raise it, or lower training.max_epochs or max_steps"
        + (f", so that the {settings.decay} decay reaches its end" if falls else ""),
    )


def _idle(cost: Forecast) -> Forecast:
    """The same where the updates get a core of their own."""
    share = cost.core_share or 1.0
    return cost._replace(
        tokens_per_second=cost.tokens_per_second / share,
        epoch_seconds=cost.epoch_seconds * share,
    )


def _load(busy: Forecast, idle: Forecast) -> Finding:
    return Finding(
        "load",
        True,
        f"the machine is busy: the measured updates got {100 * (busy.core_share or 0):.0f} % of a "
        f"core; with a whole one an epoch would take about {duration(idle.epoch_seconds)}, not "
        f"{duration(busy.epoch_seconds)}: train when it is idle",
    )


def _precision(device: torch.device, precision: str) -> Iterator[Finding]:
    slow = bf16_note(device, precision)
    if slow:
        yield Finding("precision", True, slow)


def size(number: int) -> str:
    """Bytes in words."""
    return f"{number / 2**30:.1f} GiB" if number >= 2**30 else f"{number / 2**20:.0f} MiB"


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def _comparisons(texts: dict[str, ParallelText]) -> Iterator[Comparison]:
    for name, other in (("valid", "train"), ("test", "train"), ("test", "valid")):
        if name in texts:
            pair = texts[name], texts[other]
            yield Comparison(name, other, overlap(*pair), resemblance(*pair))


def _comparison_findings(
    splits: dict[str, Split], comparisons: list[Comparison]
) -> Iterator[Finding]:
    for each in comparisons:
        yield from overlap_findings(splits[each.split], splits[each.other], each.shared)
        if each.other == "train":
            yield from likeness_findings(splits[each.split], each.alike)


def _folder_findings(config: Config) -> Iterator[Finding]:
    if run_lives(config.run_dir):
        yield Finding(
            "run_dir",
            True,
            f"run_dir: a run lives in {config.run_dir} already: `train` needs --resume or "
            "--overwrite, or another run_dir",
        )


def _files(files: ParallelFiles) -> tuple[str, str]:
    if files.tsv is not None:
        return f"{files.tsv}, column 1", f"{files.tsv}, column 2"
    return str(files.src), str(files.tgt)


def _tree(value: Any) -> Any:
    """Named tuples as objects, all the way down."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: _tree(each) for key, each in value._asdict().items()}
    return value
