"""Score the translations of a test set by a run, or existing translations. TER is omitted
for texts with a line of more than 300 words; fewer than 20 lines have no interval.

examples:
  seq2seq evaluate -m runs/demo
  seq2seq evaluate -m runs/demo -i test.en -r test.fr -o hyp.fr
  seq2seq evaluate -m runs/demo --split valid --sentences worst-first.tsv
  seq2seq evaluate --hyp baseline.fr --hyp system.fr --hyp other.fr -r test.fr
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2seq.cli import arguments, conflicts, search_arguments
from seq2seq.cli.conflicts import Conflict, Need, Rows
from seq2seq.cli.input import LineReport, check_texts, is_stdin, name_of, text_lines
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.output import as_tree, check_output, open_output, progress, write_report
from seq2seq.runtime.console import aligned_table, logger
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import check_paths, outside_notes
from seq2seq.text.text_files import in_step

if TYPE_CHECKING:
    from seq2seq.config.schema import DataConfig
    from seq2seq.evaluation import metrics
    from seq2seq.evaluation.segmentation import Segmentation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_model(parser, required=False)
    arguments.add_input(parser, default="the text of --split")
    text = "text of the config to score if there is no -i (default: test)"
    parser.add_argument("--split", choices=("valid", "test"), default="test", help=text)
    arguments.add_output(parser, "write the translations to FILE")
    text = "score FILE instead of a run; repeat to test further systems against the first"
    files: dict[str, Any] = {"type": Path, "action": "append", "default": [], "metavar": "FILE"}
    parser.add_argument("--hyp", help=text, **files)
    text = "reference, may be repeated (default: the text of --split)"
    parser.add_argument("-r", "--ref", help=text, **files)
    search_arguments.add_beam(parser)
    arguments.add_lowercase(parser)
    text = "sacreBLEU tokenizer (default: by the script of the references, 13a for most)"
    parser.add_argument("--tokenize", metavar="NAME", help=text)
    text = "also write BLEU and chrF of each sentence with its texts, worst first, as TSV"
    parser.add_argument("--sentences", type=Path, metavar="FILE", help=text)
    arguments.add_json_report(parser)
    arguments.add_model_options(parser)


Texts = list[tuple[str, list[str]]]  # names, for messages, and lines


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    model: list[str]
    loading: arguments.ModelArguments
    input: Path | None
    split: str
    output: Path | None
    hyp: list[Path]
    ref: list[Path]
    beam: int | None
    lowercase: bool
    tokenize: str | None
    sentences: Path | None
    json: Path | None

    @property
    def number_of_hypotheses(self) -> int:
        """Return how many systems are to be scored."""
        return len(self.hyp)

    @property
    def repeated_ref(self) -> Path | None:
        """Return a reference that is given twice."""
        paths = enumerate(self.ref)
        return next((path for number, path in paths if path in self.ref[:number]), None)


def _says_how_to_translate(options: Options) -> bool:
    loading = options.loading
    precision = loading.int8 or loading.float16
    return bool(options.beam or precision or loading.device != "auto" or loading.decoding)


_EITHER = "evaluate: give either -m RUN or --hyp FILE"
_TRANSLATES = "need -m RUN, which translates"
_INTERVAL = "95% interval"
_STDOUT = "standard output receives the scores; give a file"
CONFLICTS: Rows = (
    Conflict("model", "hyp", _EITHER),
    Need("", "model hyp", _EITHER),
    Conflict("hyp", "input output", f"evaluate --hyp: -i and -o {_TRANSLATES} first"),
    Conflict(
        "hyp",
        _says_how_to_translate,
        f"evaluate --hyp: -b, --int8, --float16, --device and decoding.KEY {_TRANSLATES}",
    ),
    Conflict(
        lambda options: options.number_of_hypotheses > 1,
        "sentences",
        "evaluate --sentences: give one --hyp file",
    ),
    Conflict(lambda options: is_stdin(options.output), "", f"evaluate -o -: {_STDOUT}"),
    Conflict(lambda options: is_stdin(options.sentences), "", f"evaluate --sentences -: {_STDOUT}"),
    Conflict(
        lambda options: options.split == "valid",
        "hyp input",
        "evaluate: --split valid cannot be used with --hyp or -i",
    ),
    Need("hyp input", "ref", "evaluate: give a reference, -r FILE"),
    Conflict(
        "repeated_ref",
        "",
        "evaluate -r: {options.repeated_ref} is given twice; a reference counts once",
    ),
    Need("ref", "hyp input", "evaluate -m: -r needs -i FILE, the source text it translates"),
)


def run(options: Options) -> int:
    """Score the hypotheses, which the run translates first if one is given."""
    conflicts.check_together(options, CONFLICTS)
    check_texts("evaluate", options.input, *options.hyp, *options.ref)
    data, language = _recorded(options.model)
    _check_outputs(options, data)
    from seq2seq.evaluation import metrics
    from seq2seq.evaluation.bootstrap import seed_name
    from seq2seq.evaluation.segmentation import check_tokenizer, segmentation_of

    if options.tokenize:
        check_tokenizer(options.tokenize)
    seed_name()
    texts, references = _read(options, data)
    files = [*texts, *references]
    table = dict[str, list[str]]()
    if options.model:
        files = references
        table["source"] = texts[0][1]
        texts = [("translation", _translate(options, table["source"]))]
    lists = [lines for _, lines in references]
    segmentation = segmentation_of(language, lists, options.tokenize)
    _log_notes(files, texts, references, segmentation)
    _log_unlike(options, texts, references)
    hypotheses = [lines for _, lines in texts]
    how = (lists, options.lowercase, segmentation)
    if len(hypotheses) > 1:
        systems = _compare(texts, *how)
        write_report(systems_table(systems), systems_as_json(systems), options.json)
        return 0
    scores = metrics.score(hypotheses[0], *how)
    if options.sentences:
        table |= {"hypothesis": hypotheses[0], **_by_reference(lists)}
        scores_of_sentences = metrics.sentence_scores(hypotheses[0], *how)
        with open_output(options.sentences) as output:
            output.write(sentence_table(scores_of_sentences, table))
    write_report(as_table(scores), as_json(scores), options.json)
    return 0


def _check_outputs(options: Options, data: "DataConfig | None") -> None:
    """Raise UserError for an output that would replace an input, a run or another output."""
    inputs = (options.input, *options.hyp, *options.ref, *(data.paths() if data else ()))
    check_output(options.output, *inputs, runs=options.model)
    check_output(options.json, *inputs, options.output, runs=options.model)
    check_output(options.sentences, *inputs, options.output, options.json, runs=options.model)


def _by_reference(lists: Sequence[list[str]]) -> dict[str, list[str]]:
    """Return the lines of references by names of columns, numbered if they are several."""
    if len(lists) == 1:
        return {"reference": lists[0]}
    return {f"reference {number}": lines for number, lines in enumerate(lists, start=1)}


class SystemRow(NamedTuple):
    """A system by one metric; its p-value is that of a test against the first system."""

    score: float
    ci: tuple[float, float] | None
    p_value: float | None
    signature: str


Systems = list[tuple[str, dict[str, SystemRow]]]  # names, and rows by metric


def _compare(
    texts: Texts, references: list[list[str]], lowercase: bool, segmentation: "Segmentation"
) -> Systems:
    """Test all systems against the first one; log why there is no p-value."""
    from seq2seq.evaluation import metrics

    (first_name, first_lines), *others = texts
    lists = [lines for _, lines in others]
    comparisons = metrics.compare_all(first_lines, lists, references, lowercase, segmentation)
    first_rows = {
        key: SystemRow(pair.baseline.score, pair.baseline.ci, None, pair.signature)
        for key, pair in comparisons[0].items()
    }
    systems: Systems = [(first_name, first_rows)]
    for (name, _), comparison in zip(others, comparisons, strict=True):
        rows = {
            key: SystemRow(pair.system.score, pair.system.ci, pair.p_value, pair.signature)
            for key, pair in comparison.items()
        }
        systems.append((name, rows))
        if (note := metrics.few_differences_note(comparison)) is not None:
            place = f"{name}: " if len(others) > 1 else ""
            logger.info(f"note: {place}{note}")
    return systems


def sentence_table(scores: list["metrics.SentenceScore"], columns: dict[str, list[str]]) -> str:
    """Format sentences as TSV, those of the lowest BLEU first; tabs in texts become spaces."""
    rows = ["\t".join(("line", "BLEU", "chrF2", *columns))]
    for row in sorted(range(len(scores)), key=lambda row: (*scores[row], row)):
        texts = [lines[row].replace("\t", " ") for lines in columns.values()]
        numbers = [str(row + 1), f"{scores[row].bleu:.1f}", f"{scores[row].chrf:.1f}"]
        rows.append("\t".join((*numbers, *texts)))
    return "".join(f"{row}\n" for row in rows)


def _log_notes(files: Texts, hypotheses: Texts, references: Texts, words: "Segmentation") -> None:
    """Log what affects the scores; `files` are those read."""
    from seq2seq.evaluation import metrics

    notes = (
        *(metrics.tokenized_note(lines) for _, lines in hypotheses),
        *(metrics.not_nfc_note(*file) for file in files),
        words.note(),
        metrics.long_line_note([*hypotheses, *references], words),
        metrics.few_lines_note(len(references[0][1])),
    )
    for note in filter(None, notes):
        logger.info(f"note: {note}")


def _log_unlike(options: Options, hypotheses: Texts, references: Texts) -> None:
    """Log which references are written otherwise than translations."""
    from seq2seq.evaluation.writing_notes import writing_notes

    several = len(hypotheses) + len(references) > 2
    for name, lines in hypotheses:
        for reference, answers in references:
            for note in writing_notes(lines, answers, options.lowercase):
                pair = f"{reference} against {name}: " if several else ""
                logger.info(f"note: {pair}{note}")


def _recorded(models: Sequence[str]) -> tuple["DataConfig | None", str]:
    """Return the corpora that the first run's config names, if any, and its target language."""
    if not models:
        return None, ""
    with frozen_objects():
        from seq2seq.inference.loaders.load import languages_of
        from seq2seq.runs.engine_folder import is_export
        from seq2seq.runs.packaged_models import model_folder
        from seq2seq.runs.run_config import read_config
    first = model_folder(models[0])
    if is_export(first):
        return None, languages_of(first)[1]
    data = read_config(first).data
    return data, data.tgt_lang


def _read(options: Options, data: "DataConfig | None") -> tuple[Texts, Texts]:
    """Read the sources (with -m) or the hypotheses, and the references."""
    from seq2seq.data.corpus import paths_of, read_pairs

    if options.ref:
        sources = [options.input] if options.input else []
        paths = [*(options.hyp or sources), *options.ref]
        names = list(map(name_of, paths))
        rows = in_step(list(zip(names, map(text_lines, paths), strict=True)))
        texts = list(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        return texts[: -len(options.ref)], texts[-len(options.ref) :]
    files = None if data is None else data.valid if options.split == "valid" else data.test
    if files is None:
        exported = "is an exported model, which records no text"
        reason = "its config has no data.test" if data else exported
        raise UserError(f"{options.model[0]}: {reason}; give -i FILE and -r FILE")
    check_paths(*paths_of(files).values())
    for path in paths_of(files).values():
        if not path.exists():
            record = f"the run {options.model[0]} records it as its {options.split} text"
            remedy = "restore it, or give -i FILE and -r FILE"
            raise UserError(f"{path}: no such file; {record}; {remedy}")
    folder = Path(options.model[0])
    for note in outside_notes(paths_of(files).values(), folder):
        logger.info(note)
    text = read_pairs(files)
    name = text.source_name
    return [(f"{name}, source", list(text.src))], [(f"{name}, target", list(text.tgt))]


def _translate(options: Options, sources: Sequence[str]) -> list[str]:
    translate = arguments.load_translator(options.model, options.loading, options.beam).translate
    with progress("translated", len(sources)) as advance:
        translations = translate(sources, options.beam, text_only=True, on_translated=advance)
    with LineReport(options.input) as report:
        report.note_translations(1, translations)
    hypotheses = [translation.text for translation in translations]
    if options.output is not None:
        with open_output(options.output) as output:
            output.write("".join(f"{line}\n" for line in hypotheses))
    return hypotheses


def as_json(scores: "metrics.Scores") -> Any:
    """Arrange the scores of a system for JSON: an object per metric."""
    from seq2seq.evaluation.metrics import METRICS

    return as_tree({key: scores.get(key) for key in METRICS})


def systems_as_json(systems: Systems) -> Any:
    """Arrange several systems for JSON."""
    from seq2seq.evaluation.metrics import METRICS

    listed = [{"name": name, **{key: rows.get(key) for key in METRICS}} for name, rows in systems]
    return as_tree({"systems": listed})


def as_table(scores: "metrics.Scores") -> str:
    """Format the scores of a system as a table, and their signatures below it."""
    from seq2seq.evaluation.metrics import METRICS

    rows = [("", "score", _INTERVAL)]
    for key, kind in METRICS.items():
        value = scores.get(key)
        rows.append((kind.name, *(_numbers(value.score, value.ci) if value else "--")))
    return "\n\n".join([aligned_table(rows, "left"), _signatures(scores)])


def systems_table(systems: Systems) -> str:
    """Format several systems as a table for each metric, and the signatures below."""
    from seq2seq.evaluation.metrics import METRICS

    (_, first), *_ = systems
    tables = []
    for key in first:
        table = [(METRICS[key].name, "score", _INTERVAL, "p")]
        for number, (name, rows) in enumerate(systems):
            row = rows.get(key)
            if row is None:
                table.append((name, "-", "-", "-"))
                continue
            p_value = "-" if row.p_value is None else f"{row.p_value:.4f}"
            cells = *_numbers(row.score, row.ci), p_value if number else ""
            table.append((name, *cells))
        tables.append(aligned_table(table, "left"))
    legend = f"p: of the difference from {systems[0][0]}, two-sided, by the paired bootstrap"
    return "\n\n".join([*tables, legend, _signatures(first)])


def _signatures(rows: "Mapping[str, metrics.Score | SystemRow]") -> str:
    from seq2seq.evaluation.metrics import METRICS

    signatures = [(METRICS[key].name, row.signature) for key, row in rows.items()]
    return aligned_table(signatures, "left")


def _numbers(score: float, ci: tuple[float, float] | None) -> tuple[str, str]:
    return f"{score:.1f}", "-" if ci is None else f"{ci[0]:.1f} to {ci[1]:.1f}"
