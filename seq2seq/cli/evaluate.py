"""`seq2seq evaluate`: translations to scores."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli.loading import load
from seq2seq.cli.streams import check_output, open_output, say
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    from seq2seq.config.schema import DataConfig

Named = tuple[str, list[str]]


def evaluate(options: argparse.Namespace) -> int:
    """BLEU, chrF and TER of a run, or of existing output."""
    if bool(options.model) == bool(options.hyp):
        raise UserError("evaluate: give either -m RUN or --hyp FILE")
    if options.hyp and (options.input or options.output):
        raise UserError("evaluate --hyp: -i and -o belong to -m RUN, which translates first")
    if options.hyp and (options.beam or options.int8 or options.device != "auto"):
        raise UserError(
            "evaluate --hyp: -b, --int8 and --device belong to -m RUN, which translates"
        )
    if str(options.output) == "-":
        raise UserError("evaluate -o -: scores go to standard output; give a file")
    if len(options.hyp) > 2:
        raise UserError(f"evaluate: {len(options.hyp)} --hyp files; give one, or two to compare")
    data = _data(options)
    read = (options.input, *options.hyp, *options.ref, *(data.paths() if data else ()))
    check_output(options.output, *read)
    check_output(options.json, *read, options.output)
    from seq2seq.cli import score_report
    from seq2seq.evaluation import metrics as evaluation

    tokenize = options.tokenize or evaluation.tokenizer_of(data.tgt_lang if data else "")
    evaluation.check_tokenizer(tokenize)
    evaluation.check_seed()
    systems, references = _systems_and_references(options)
    evaluation.check_line_counts([*systems, *references])
    hypotheses = [lines for _, lines in systems]
    if options.model:
        translator = load(options)
        found = translator.translate(hypotheses[0], options.beam, text_only=True)
        hypotheses = [[each.text for each in found]]
        if options.output is not None:
            with open_output(options.output) as output:
                output.write("".join(f"{line}\n" for line in hypotheses[0]))
    lines = [reference for _, reference in references]
    scored = [*(systems if options.hyp else []), *references]
    for note in (
        *map(evaluation.tokenized_note, hypotheses),
        *(evaluation.not_nfc_note(*each) for each in scored),
    ):
        if note:
            say(f"note: {note}")
    how = (lines, options.lowercase, tokenize)
    scores = evaluation.score(hypotheses[-1], *how)
    comparison = None
    if len(hypotheses) == 2:
        comparison = evaluation.compare(hypotheses[0], hypotheses[1], *how)
    if options.json is not None:
        with open_output(options.json) as output:
            output.write(json.dumps(score_report.as_json(scores, comparison), indent=2) + "\n")
    if options.json is None or str(options.json) != "-":
        with open_output(None) as output:
            output.write(score_report.as_table(scores, comparison) + "\n")
    return 0


def _data(options: argparse.Namespace) -> "DataConfig | None":
    """What the run was trained on, where one is given."""
    if not options.model:
        return None
    from seq2seq.runs.checkpoint import read_config

    return read_config(Path(options.model[0])).data


def _systems_and_references(options: argparse.Namespace) -> tuple[list[Named], list[Named]]:
    """Sources (with -m) or hypotheses, and references, each with its name."""
    from seq2seq.data.corpus import read_pairs
    from seq2seq.data.lines import read_lines

    if options.hyp or options.input:
        if not options.ref:
            raise UserError("evaluate: give a reference, -r FILE")
        files = options.hyp or [options.input]
        return [(str(path), read_lines(path)) for path in files], [
            (str(path), read_lines(path)) for path in options.ref
        ]
    if options.ref:
        raise UserError("evaluate -m: -r needs -i FILE, the source text it translates")
    from seq2seq.runs.checkpoint import read_config

    test = read_config(Path(options.model[0])).data.test
    if test is None:
        raise UserError(
            f"{options.model[0]}: its config has no data.test; give -i FILE and -r FILE"
        )
    text = read_pairs(test)
    return [(f"{text.source_name}, source", list(text.src))], [
        (f"{text.source_name}, target", list(text.tgt))
    ]
