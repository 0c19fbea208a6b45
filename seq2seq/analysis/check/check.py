"""Check a config and its data before a long training; write at most a cleaned copy of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeAlias

import torch
from tqdm import tqdm

from seq2seq.analysis.check import data_statistics, findings
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
from seq2seq.analysis.check.findings import Finding, Split
from seq2seq.analysis.check.forecast import Forecast, cost_findings, forecast
from seq2seq.analysis.check.text_form import column_findings, form_findings
from seq2seq.config.schema import Config, DataConfig, ParallelFiles
from seq2seq.data.batching import encode_pairs
from seq2seq.data.corpus import ParallelText, check_directions, joined, read_pairs, tagged, usable
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import check_tags
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
from seq2seq.training.session import TrainingSession, new_session

Bar: TypeAlias = "tqdm[NoReturn]"


class SplitComparison(NamedTuple):
    """Lines that one split shares with another, and how alike their sides are."""

    split: str
    other: str
    shared: data_statistics.Overlap
    alike: data_statistics.Resemblance
    order: data_statistics.SplitOrder


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
        longest = self.config.data.max_length
        return {
            name: Split(
                name,
                *_sides(files_by_name(self.config.data)[name]),
                data_statistics.text_statistics(text, self._vocabularies, longest),
            )
            for name, text in self._named.items()
        }

    @cached_property
    def alignments(self) -> dict[str, Alignment]:
        """The agreement of the sides of each split, by the evidence of the first one, too."""
        self._show("measuring the alignment")
        alignments: dict[str, Alignment] = {}
        evidence: Evidence | None = None
        for name, text in self._named.items():
            alignments[name], evidence_of_text = measure_alignment(text, evidence)
            evidence = evidence or evidence_of_text
        return alignments

    @cached_property
    def comparisons(self) -> list[SplitComparison]:
        """The comparisons of the splits with one another."""
        self._show("comparing the splits")
        named = self._named
        return [
            SplitComparison(
                name,
                reference,
                data_statistics.overlap(named[name], named[reference]),
                data_statistics.resemblance(named[name], named[reference]),
                data_statistics.split_order(named[name], named[reference]),
            )
            for name in ("valid", "test")
            for reference in named
            if name in named and (is_train(reference) or (name, reference) == ("test", "valid"))
        ]

    @cached_property
    def cost(self) -> Forecast:
        """The memory and time of a training."""
        self._show("measuring training steps")
        return forecast(self._session)

    @cached_property
    def findings(self) -> list[Finding]:
        """The findings in the parts above, warnings first."""
        splits, config = self.splits, self.config
        everything = [
            *findings.data_findings(list(splits.values()), config.data.max_length),
            *(
                finding
                for name, alignment in self.alignments.items()
                for finding in alignment_findings(splits[name], alignment)
            ),
            *self._form_findings(),
            *self._comparison_findings(),
            *cost_findings(config.training, self.cost),
            *_setup_findings(config, self._device),
        ]
        return sorted(everything, key=lambda finding: not finding.warning)

    @cached_property
    def cleaning(self) -> Cleaning | None:
        """The cleaned copy of the training text, if one is to be written."""
        folder, files = self._write, self.config.data.train
        if folder is None:
            return None
        self._show("writing the cleaned text")
        corpora = [self._reasons_to_drop(name) for name in filter(is_train, self._named)]
        sizes = [len(text) for name, text in self._named.items() if is_train(name)]
        if len(corpora) == 1:
            return write_cleaned(folder, files[0], sizes[0], corpora[0])
        with write_errors(folder):
            folder.mkdir(exist_ok=True)
        folders = [folder / str(number) for number in range(1, len(corpora) + 1)]
        return together(list(map(write_cleaned, folders, files, sizes, corpora)))

    def _reasons_to_drop(self, name: str) -> dict[int, str]:
        train = self._named[name]
        held_out = [
            line
            for split, text in self._named.items()
            if not is_train(split)
            for line in data_statistics.overlap(train, text).pairs
        ]
        statistics, longest = self.splits[name].statistics, self.config.data.max_length
        return reasons_to_drop(train, statistics, self.alignments[name], held_out, longest)

    def _form_findings(self) -> Iterator[Finding]:
        data = self.config.data
        languages, warned = (data.src_lang, data.tgt_lang), False
        for name, text in self._named.items():
            split, files = self.splits[name], files_by_name(data)[name]
            forms: list[Finding] = []
            if files.file is not None and files.is_table and files.columns is None:
                forms += column_findings(name, files.file)
            for file, lines in ((split.src_file, text.src), (split.tgt_file, text.tgt)):
                forms += form_findings(file, lines, languages, files.is_table)
            warned = warned or any(finding.warning for finding in forms)
            yield from forms
        if not warned:
            text_ = "no sign of segmented or tokenised text, markers, quotes, headers or "
            yield Finding("form", False, f"{text_}identifiers")

    def _comparison_findings(self) -> Iterator[Finding]:
        splits = self.splits
        for comparison in self.comparisons:
            split, reference = splits[comparison.split], splits[comparison.other]
            yield from findings.overlap_findings(split, reference, comparison.shared)
            if is_train(reference.name):
                yield from findings.language_findings(split, comparison.alike)
                yield from findings.order_findings(split.name, reference.name, comparison.order)

    def _new_session(self) -> TrainingSession:
        config, vocabularies, start = self.config, self._vocabularies, self._start
        weights = [corpus.weight for corpus in config.data.train]
        src, tgt, longest = self._train.src, self._train.tgt, config.data.max_length
        pairs = encode_pairs(src, tgt, vocabularies, longest, self._sizes, weights)
        valid = tagged(self._named["valid"], config.data.valid.tag)
        pretrained = read_pretrained(config, vocabularies) if start is None else NOT_PRETRAINED
        return new_session(
            config, self._device, vocabularies, pairs, valid, start=start, pretrained=pretrained
        )

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
    held_out = [text for name, text in named.items() if not is_train(name)]
    check_directions(train, held_out, data.src_lang)
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
