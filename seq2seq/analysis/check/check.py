"""Check a config and its data before a long training; write at most a cleaned copy of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeAlias

import torch
from tqdm import tqdm

from seq2seq.analysis.check.alignment import (
    Alignment,
    Evidence,
    alignment_findings,
    measure_alignment,
)
from seq2seq.analysis.check.cleaning import (
    Cleaning,
    check_folder_to_write,
    reasons_to_drop,
    together,
    write_cleaned,
)
from seq2seq.analysis.check.columns import column_findings
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
from seq2seq.analysis.check.split_order import SplitOrder, order_findings, split_order
from seq2seq.analysis.check.text_form import form_findings
from seq2seq.config.schema import Config, DataConfig, ParallelFiles
from seq2seq.data.batching import encode_pairs
from seq2seq.data.corpus import ParallelText, check_directions, joined, read_pairs, tagged, usable
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies, check_tags
from seq2seq.runs.run_folder import check_folder, holds_run
from seq2seq.runs.warm_start import read_warm_start
from seq2seq.runtime.console import hides_bars
from seq2seq.runtime.device import (
    bf16_note,
    choose_device,
    deterministic,
    resolve_precision,
)
from seq2seq.runtime.errors import argument
from seq2seq.runtime.files import write_errors
from seq2seq.training.pretrained import NOT_PRETRAINED, read_pretrained
from seq2seq.training.session import TrainingSession, new_session, session_data

Bar: TypeAlias = "tqdm[NoReturn]"


class SplitComparison(NamedTuple):
    """Lines that one split shares with another, and how alike their sides are."""

    split: str
    other: str
    shared: Overlap
    alike: Resemblance
    order: SplitOrder


class Report:
    """Result of `seq2seq check`; each part is computed when it is first read."""

    def __init__(
        self,
        config: Config,
        device: torch.device,
        init_from: Path | None,
        write: Path | None,
        bar: Bar,
    ) -> None:
        """Read the text, train the vocabulary and make a model: whatever may be refused."""
        self.config, self._device, self._write, self._bar = config, device, write, bar
        self._show("reading the text")
        self._start = None if init_from is None else read_warm_start(init_from, config)
        self._named = _read(config.data)
        corpora = [
            tagged(usable(self._named[name])[0], files.tag)
            for name, files in files_by_name(config.data).items()
            if is_train(name)
        ]
        self._train, self._sizes = joined(corpora), [len(corpus) for corpus in corpora]
        usable(self._named["valid"])  # raises if no pair has text
        self._show("training the vocabulary")
        self._vocabularies = (
            self._start.trained
            if self._start is not None and self._start.keeps_vocabulary
            else train_vocabularies(
                config.vocabulary, self._train.src, self._train.tgt, config.data.tags
            )
        )
        check_tags(self._vocabularies, config.data.tags)
        self._show("encoding the text")
        self._session = self._new_session()

    @property
    def lines(self) -> dict[str, int]:
        """The lines of each split."""
        return {name: len(text) for name, text in self._named.items()}

    @cached_property
    def splits(self) -> dict[str, Split]:
        """The lines, characters and tokens of each split."""
        self._show("counting lines and characters")
        return _splits(self.config.data, self._named, self._vocabularies)

    @cached_property
    def alignments(self) -> dict[str, Alignment]:
        """The agreement of the sides of each split."""
        self._show("measuring the alignment")
        return _alignments(self._named)

    @cached_property
    def comparisons(self) -> list[SplitComparison]:
        """The comparisons of the splits with one another."""
        self._show("comparing the splits")
        return _compare(self._named)

    @cached_property
    def cost(self) -> Forecast:
        """The memory and time of a training."""
        self._show("measuring training steps")
        return forecast(self._session)

    @cached_property
    def findings(self) -> list[Finding]:
        """The findings in the parts above, warnings first."""
        config, splits, named = self.config, self.splits, self._named
        findings = [
            *data_findings(list(splits.values()), config.data.max_length),
            *(
                each
                for name in named
                for each in alignment_findings(splits[name], self.alignments[name])
            ),
            *_form_findings(config.data, splits, named),
            *_comparison_findings(splits, self.comparisons),
            *cost_findings(config.training, self.cost),
            *_setup_findings(config, self._device),
        ]
        return sorted(findings, key=lambda finding: not finding.warning)

    @cached_property
    def cleaning(self) -> Cleaning | None:
        """The cleaned copy of the training text, if one is to be written."""
        if self._write is None:
            return None
        self._show("writing the cleaned text")
        return _clean(self.config.data, self._named, self.splits, self.alignments, self._write)

    def _new_session(self) -> TrainingSession:
        config, vocabularies, start = self.config, self._vocabularies, self._start
        weights = [corpus.weight for corpus in config.data.train]
        src, tgt, longest = self._train.src, self._train.tgt, config.data.max_length
        pairs = encode_pairs(src, tgt, vocabularies, longest, self._sizes, weights)
        valid = tagged(self._named["valid"], config.data.valid.tag)
        pretrained = read_pretrained(config, vocabularies) if start is None else NOT_PRETRAINED
        data = session_data(config, vocabularies, pairs, valid)
        return new_session(config, self._device, data, start, pretrained)

    def _show(self, stage: str) -> None:
        """Name the current stage on a terminal."""
        self._bar.set_description_str(f"check: {stage}")


@contextmanager
def check(
    config: Config,
    device: str = "auto",
    init_from: Path | None = None,
    write: Path | None = None,
) -> Iterator[Report]:
    """Examine the data, the vocabulary and the cost of a training; yield a report.

    `init_from` is the run whose vocabulary and weights training would start from, if any; `write`
    is a new folder for a cleaned copy of the training text, the only files written. On a terminal,
    a progress bar names what is being checked.

    Raises UserError if `train` would (but an existing run in run_dir is only a warning). Its part
    `cost` raises RunError if an optimizer step does not fit into memory.
    """
    check_folder(config, resume=False, overwrite=True)
    if write is not None:
        check_folder_to_write(write, config.data.train)
    chosen = choose_device(device)
    with (
        deterministic(chosen),
        tqdm(
            desc="check", leave=False, disable=hides_bars(), bar_format="{desc}: {elapsed}"
        ) as bar,
    ):
        yield Report(config, chosen, init_from, write, bar)


def _read(data: DataConfig) -> dict[str, ParallelText]:
    """Read every text without its tag, by the name of its split.

    Raises UserError as `read_texts` does.
    """
    named = {
        name: read_pairs(files.model_copy(update={"tag": None}))
        for name, files in files_by_name(data).items()
    }
    train = joined([text for name, text in named.items() if is_train(name)])
    others = [text for name, text in named.items() if not is_train(name)]
    check_directions(train, others, data.src_lang)
    return named


def files_by_name(data: DataConfig) -> dict[str, ParallelFiles]:
    """Return the files of each split; several training corpora are "train 1", "train 2", ..."""
    corpora = enumerate(data.train, start=1)
    train = {f"train {n}" if len(data.train) > 1 else "train": corpus for n, corpus in corpora}
    test = {} if data.test is None else {"test": data.test}
    return {**train, "valid": data.valid, **test}


def is_train(name: str) -> bool:
    """Return whether this is the name of a training text."""
    return name.startswith("train")


def _splits(
    data: DataConfig, named: dict[str, ParallelText], vocabularies: Vocabularies
) -> dict[str, Split]:
    return {
        name: Split(
            name,
            *_sides(files_by_name(data)[name]),
            text_statistics(text, vocabularies, data.max_length),
        )
        for name, text in named.items()
    }


def _alignments(named: dict[str, ParallelText]) -> dict[str, Alignment]:
    """Measure each split, the others by the evidence of the training text, too."""
    found: dict[str, Alignment] = {}
    evidence: Evidence | None = None
    for name, text in named.items():
        found[name], own = measure_alignment(text, evidence)
        evidence = evidence or own  # the first training text's
    return found


def _compare(named: dict[str, ParallelText]) -> list[SplitComparison]:
    return [
        SplitComparison(
            name,
            other,
            overlap(named[name], named[other]),
            resemblance(named[name], named[other]),
            split_order(named[name], named[other]),
        )
        for name in ("valid", "test")
        for other in named
        if name in named and (is_train(other) or (name, other) == ("test", "valid"))
    ]


def _clean(
    data: DataConfig,
    named: dict[str, ParallelText],
    splits: dict[str, Split],
    alignments: dict[str, Alignment],
    folder: Path,
) -> Cleaning:
    corpora = {}
    for name in filter(is_train, named):
        train = named[name]
        held_out = [
            line
            for other, text in named.items()
            if not is_train(other)
            for line in overlap(train, text).pairs
        ]
        corpora[name] = reasons_to_drop(
            train, splits[name].statistics, alignments[name], held_out, data.max_length
        )
    if len(corpora) == 1:
        return write_cleaned(folder, data.train[0], len(named["train"]), corpora["train"])
    with write_errors(folder):
        folder.mkdir(exist_ok=True)
    return together(
        [
            write_cleaned(folder / str(number), files, len(named[name]), corpora[name])
            for number, (name, files) in enumerate(zip(corpora, data.train, strict=True), start=1)
        ]
    )


def _form_findings(
    data: DataConfig, splits: dict[str, Split], named: dict[str, ParallelText]
) -> Iterator[Finding]:
    languages = (data.src_lang, data.tgt_lang)
    found: list[Finding] = []
    for name, text in named.items():
        split, files = splits[name], files_by_name(data)[name]
        if files.file is not None and files.is_table and files.columns is None:
            found += column_findings(name, files.file)
        for file, lines in ((split.src_file, text.src), (split.tgt_file, text.tgt)):
            found += form_findings(file, lines, languages, files.is_table)
    yield from found
    if not any(finding.warning for finding in found):
        text_ = "no sign of segmented or tokenised text, markers, quotes, headers or identifiers"
        yield Finding("form", False, text_)


def _comparison_findings(
    splits: dict[str, Split], comparisons: list[SplitComparison]
) -> Iterator[Finding]:
    for each in comparisons:
        yield from overlap_findings(splits[each.split], splits[each.other], each.shared)
        if is_train(each.other):
            yield from language_findings(splits[each.split], each.alike)
            yield from order_findings(each.split, each.other, each.order)


def _setup_findings(config: Config, device: torch.device) -> Iterator[Finding]:
    if slow := bf16_note(device, resolve_precision(config.training.precision, device)):
        yield Finding("precision", True, slow)
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
