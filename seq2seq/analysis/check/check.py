"""Check a config and its data before a long training; write at most a cleaned copy of it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from seq2seq.analysis.check import data_statistics, findings, tables
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
from seq2seq.analysis.check.findings import Finding, Split, SplitComparison
from seq2seq.analysis.check.forecast import cost_findings, forecast
from seq2seq.analysis.check.text_form import column_findings, form_findings
from seq2seq.config.corpora import files_by_name
from seq2seq.config.schema import Config, DataConfig, ParallelFiles
from seq2seq.data.alignment_targets import check_words
from seq2seq.data.batching import encode_pairs
from seq2seq.data.corpus import (
    ParallelText,
    check_directions,
    joined,
    source_name,
    tagged,
    usable,
)
from seq2seq.data.pharaoh import iter_linked_pairs
from seq2seq.data.training_data import cache_of, check_regular
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies, check_tags
from seq2seq.runs.run_folder import check_folder, holds_run
from seq2seq.runs.warm_start import WarmStart, read_warm_start
from seq2seq.runtime.console import hides_bars
from seq2seq.runtime.device import bf16_note, choose_device, deterministic, resolve_precision
from seq2seq.runtime.errors import argument
from seq2seq.runtime.files import write_errors
from seq2seq.training.session import TrainingSession, new_session, session_data


class ReportPart(NamedTuple):
    """Part of a report: its text, and its value in the JSON of the report, if it has a key."""

    text: str
    key: str = ""
    value: object = None


def check(
    config: Config,
    device: str = "auto",
    init_from: Path | None = None,
    write: Path | None = None,
) -> Iterator[ReportPart]:
    """Examine the data, the vocabulary and the cost of a training; yield each part once known.

    `init_from` is the run whose vocabulary and weights training would start from, if any; `write`
    is a new folder for a cleaned copy of the training text, the only files written. On a terminal,
    a progress bar names what is being checked.

    Raises UserError if `train` would (but an existing run in run_dir is only a warning), and
    RunError if an optimizer step does not fit into memory.
    """
    check_folder(config, resume=False, overwrite=True)
    if write is not None:
        check_folder_to_write(write, config.data.train)
    chosen, bar_format = choose_device(device), "{desc}: {elapsed}"
    with (
        deterministic(chosen),
        tqdm(desc="check", leave=False, disable=hides_bars(), bar_format=bar_format) as bar,
    ):
        yield from _parts(
            config,
            chosen,
            init_from,
            write,
            lambda stage: bar.set_description_str(f"check: {stage}"),
        )


def _parts(
    config: Config,
    device: torch.device,
    init_from: Path | None,
    write: Path | None,
    stage: Callable[[str], None],
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
    yield ReportPart(tables.splits(splits, data.max_length), "texts", splits)
    stage("measuring the alignment")
    alignments = _alignments(texts)
    yield ReportPart(tables.alignments(splits, alignments), "alignments", alignments)
    stage("comparing the splits")
    comparisons = list(_comparisons(texts))
    yield ReportPart(tables.comparisons(splits, comparisons), "comparisons", comparisons)
    yield ReportPart(tables.sides(splits, (data.src_lang, data.tgt_lang)))
    stage("measuring training steps")
    cost = forecast(session)
    yield ReportPart(tables.cost(config.training, cost), "cost", cost)
    everything = [
        *findings.data_findings(list(splits.values()), data.max_length),
        *(
            finding
            for name, alignment in alignments.items()
            for finding in alignment_findings(splits[name], alignment)
        ),
        *findings.weight_findings(
            [split for name, split in splits.items() if is_train(name)],
            [corpus.weight for corpus in data.train],
        ),
        *_form_findings(data, splits, texts),
        *_comparison_findings(splits, comparisons),
        *cost_findings(config.training, cost),
        *_setup_findings(config, device),
    ]
    everything.sort(key=lambda finding: not finding.warning)
    yield ReportPart(tables.findings(everything), "findings", everything)
    if write is not None:
        stage("writing the cleaned text")
        cleaning = _clean(data, texts, splits, alignments, write)
        yield ReportPart(tables.cleaning(cleaning), "cleaning", cleaning)
    warnings = sum(finding.warning for finding in everything)
    yield ReportPart(tables.verdict(warnings), "warnings", warnings)


def _vocabularies(config: Config, train: ParallelText, start: WarmStart | None) -> Vocabularies:
    if start is not None and start.keeps_vocabulary:
        vocabularies = start.trained
    else:
        tags = config.data.tags
        vocabularies = train_vocabularies(config.vocabulary, train.src, train.tgt, tags)
    check_tags(vocabularies, config.data.tags)
    if config.training.losses.guided_alignment > 0:
        check_words(vocabularies)
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

    Raises UserError as `read_texts` does, and for a word alignment that does not fit.
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
                pair = texts[name], texts[reference]
                yield SplitComparison(
                    name,
                    reference,
                    data_statistics.overlap(*pair),
                    data_statistics.resemblance(*pair),
                    data_statistics.split_order(*pair),
                )


def _form_findings(
    data: DataConfig, splits: dict[str, Split], texts: dict[str, ParallelText]
) -> Iterator[Finding]:
    languages, warned = (data.src_lang, data.tgt_lang), False
    for name, text in texts.items():
        split, files = splits[name], files_by_name(data)[name]
        forms: list[Finding] = []
        if files.file is not None and files.is_table and files.columns is None:
            forms += column_findings(name, files.file)
        for file, lines in ((split.src_file, text.src), (split.tgt_file, text.tgt)):
            forms += form_findings(file, lines, languages, files.is_table)
        warned = warned or any(finding.warning for finding in forms)
        yield from forms
    if not warned:
        text_ = "no sign of segmented or tokenised text, markers, quotes, headers or identifiers"
        yield Finding("form", False, text_)


def _comparison_findings(
    splits: dict[str, Split], comparisons: Sequence[SplitComparison]
) -> Iterator[Finding]:
    for comparison in comparisons:
        split, reference = splits[comparison.split], splits[comparison.other]
        yield from findings.overlap_findings(split, reference, comparison.shared)
        if is_train(reference.name):
            yield from findings.language_findings(split, comparison.alike)
            yield from findings.order_findings(split.name, reference.name, comparison.order)


def _clean(
    data: DataConfig,
    texts: dict[str, ParallelText],
    splits: dict[str, Split],
    alignments: dict[str, Alignment],
    folder: Path,
) -> Cleaning:
    """Write the pairs of the training text that have no reason to be dropped."""
    corpora, held_out = [], [text for name, text in texts.items() if not is_train(name)]
    for name in filter(is_train, texts):
        shared = [n for text in held_out for n in data_statistics.overlap(texts[name], text).pairs]
        statistics = splits[name].statistics
        drop = reasons_to_drop(texts[name], statistics, alignments[name], shared, data.max_length)
        corpora.append((len(texts[name]), drop))
    if len(corpora) == 1:
        return write_cleaned(folder, data.train[0], *corpora[0])
    with write_errors(folder):
        folder.mkdir(exist_ok=True)
    numbered = enumerate(zip(data.train, corpora, strict=True), start=1)
    return together(
        [write_cleaned(folder / str(n), files, *corpus) for n, (files, corpus) in numbered]
    )


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
