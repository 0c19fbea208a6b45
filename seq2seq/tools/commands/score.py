"""Print the score of each given translation: its log-probability under the model,
normalised for length as in beam search.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.cli import arguments
from seq2seq.cli import input as input_lines
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.output import check_output, open_output
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.files import json_text

if TYPE_CHECKING:
    from seq2seq.inference.scoring import ScoredLine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_model(parser)
    arguments.add_input(parser)
    text = "translations to score: line n translates input line n"
    parser.add_argument("-r", "--ref", type=Path, required=True, metavar="FILE", help=text)
    arguments.add_output(parser)
    text = "print one object per line: score, log_prob, perplexity, tokens and their log_probs"
    parser.add_argument("--json", action="store_true", help=text)
    arguments.add_model_options(parser)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    model: list[str]
    loading: arguments.ModelArguments
    input: Path | None
    ref: Path
    output: Path | None
    json: bool


def run(options: Options) -> int:
    input_lines.check_texts("score", options.input or Path("-"), options.ref)
    check_output(options.output, options.input, options.ref, runs=options.model)
    with frozen_objects():
        from seq2seq.inference.scoring import perplexity, score_lines

    (src_report, sources), (report, targets) = input_lines.read_texts([options.input, options.ref])
    translator = arguments.load_translator(options.model, options.loading)
    total = 0.0
    tokens = 0
    with (
        open_output(options.output) as output,
        output.kept_on_failure("the scores of the first", "pair"),
    ):
        for start in range(0, len(sources), input_lines.BATCH_LINES):
            rows = slice(start, start + input_lines.BATCH_LINES)
            scored = score_lines(translator.loaded, sources[rows], targets[rows])
            _check_finite(scored, start + 1, options)
            output.write("".join(_format(line, options.json) for line in scored))
            output.flush()
            for number, line in enumerate(scored, start + 1):
                report.note(input_lines.ONE_SIDED, number, not line.possible)
            total += sum(line.log_prob for line in scored if line.possible)
            tokens += sum(len(line.log_probs) for line in scored)
    src_report.log()
    report.log()
    if not tokens:
        logger.info("no perplexity: no pair has text on both sides")
        return 0
    logger.info(f"perplexity {perplexity(total, tokens):.2f} over {tokens:,} tokens, </s> included")
    return 0


def _check_finite(scored: "Sequence[ScoredLine]", number: int, options: Options) -> None:
    """Raise RunError for a log-probability that is not finite; `number` counts the first line."""
    for index, line in enumerate(scored, start=number):
        for value in filterfalse(math.isfinite, line.log_probs):
            text = f"a token has the log-probability {value}, which is not a finite number"
            models = ", ".join(map(str, options.model))
            raise RunError(f"{options.ref}:{index}: {text}, under {models}; use another model")


def _format(scored: "ScoredLine", as_json: bool) -> str:
    if not as_json:
        return f"{scored.score:.6f}\n"
    fields: dict[str, Any] = {  # JSON has no -inf
        "score": round(scored.score, 6) if scored.possible else None,
        "log_prob": round(scored.log_prob, 6) if scored.possible else None,
        "perplexity": round(scored.perplexity, 6) if scored.possible else None,
        "src_tokens": scored.src_tokens,
        "tgt_tokens": scored.tokens,
        "log_probs": [round(value, 6) for value in scored.log_probs],
    }
    return json_text(fields) + "\n"
