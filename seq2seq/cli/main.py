"""The `seq2seq` command: parses, then calls one function a subcommand.

Heavy imports stand inside those functions.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from seq2seq.cli import average
from seq2seq.cli.arguments import parse
from seq2seq.cli.compare import compare
from seq2seq.cli.evaluate import evaluate
from seq2seq.cli.input_lines import InputReport
from seq2seq.cli.loading import load
from seq2seq.cli.output import as_json as rendered_json
from seq2seq.cli.output import rendered
from seq2seq.cli.prefixes import GivenPrefixes
from seq2seq.cli.streams import (
    arrivals,
    batches,
    check_output,
    fill_closed_streams,
    open_input,
    open_output,
    say,
)
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.process_group import is_main_process, reports_errors

if TYPE_CHECKING:
    from seq2seq.config.schema import Config


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Returns 0 done, 2 refused before any work, 1 failed later, 129, 130 or 143 interrupted.
    """
    run = {
        "check": check,
        "train": train,
        "compare": compare,
        "translate": translate,
        "evaluate": evaluate,
        "score": score,
        "average": average.run,
        "attention": attention,
    }
    fill_closed_streams()
    _wait_briefly()
    try:
        options = parse(sys.argv[1:] if arguments is None else list(arguments))
        code = run[options.command](options)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _fail(f"{error}", 2)
    except RunError as error:
        return _fail(f"{error}", 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # the reader had enough, as `| head` has
        _discard_stdout()
        return 0
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}", 1)
    except (MemoryError, RuntimeError) as error:
        from seq2seq.runtime.device import is_out_of_memory

        if not is_out_of_memory(error):
            raise
        return _fail("out of memory; lower the beam size, training.batch_tokens or the model's", 1)


def check(options: argparse.Namespace) -> int:
    """`seq2seq check`: what a config's data look like, and what its training would cost."""
    config = _config(options)
    check_output(options.json, options.config, *config.data.paths())
    from seq2seq.analysis.check.check import as_json
    from seq2seq.analysis.check.check import check as examine
    from seq2seq.cli.check_report import as_text

    report = examine(config, options.device, options.init_from)
    if options.json is not None:
        with open_output(options.json) as output:
            output.write(json.dumps(as_json(report), ensure_ascii=False, indent=2) + "\n")
    if options.json is None or str(options.json) != "-":
        with open_output(None) as output:
            output.write(as_text(report) + "\n")
    return 0


def train(options: argparse.Namespace) -> int:
    """`seq2seq train`: a config to a run folder."""
    config = _config(options)
    from seq2seq.training.loop import Interrupted
    from seq2seq.training.loop import train as run_training

    try:
        run = run_training(
            config, options.device, options.resume, options.overwrite, options.init_from
        )
    except Interrupted as stop:
        if is_main_process() and not stop.done:
            say("Go on with the same command and --resume.")
        return stop.exit_code
    if is_main_process():
        run_words = shlex.quote(str(run))
        say(f"Translate:  seq2seq translate -m {run_words} -i FILE")
        if config.data.test is not None:
            say(f"Evaluate:   seq2seq evaluate -m {run_words}")
    return 0


def translate(options: argparse.Namespace) -> int:
    """`seq2seq translate`: lines in, as many lines out."""
    check_output(options.output, options.input, options.prefix_file, at_once=options.stream)
    cut = arrivals if options.stream else batches
    given = GivenPrefixes(options.prefix, options.prefix_file, options.stream)
    text_only = not options.json and options.n_best is None
    with open_input(options.input) as opened:
        lines = given.check(opened, str(options.input or "standard input"))
        translator = load(options)
        with open_output(options.output) as output:
            report = InputReport(options.input)
            for number, batch in cut(lines, options.batch_size):
                texts = report.decode(number, batch)
                prefixes = given.of(number, len(texts))
                translations = translator.translate(
                    texts, options.beam, options.n_best or 1, prefixes, text_only
                )
                report.note_parts(number, translations)
                report.note_blanks(number, translations, prefixes)
                for index, translation in enumerate(translations, start=number):
                    nbest = options.n_best is not None
                    output.write(rendered(translation, index, nbest, options.json))
                output.flush()
                if options.stream:
                    report.tell()
    report.tell()
    return 0


def score(options: argparse.Namespace) -> int:
    """`seq2seq score`: how likely given translations are; as many lines out as pairs in."""
    check_output(options.output, options.input, options.ref)
    from seq2seq.cli.score import score_files

    files = options.input, options.ref, options.output
    say(score_files(*files, options.json, lambda: load(options)))
    return 0


def attention(options: argparse.Namespace) -> int:
    """`seq2seq attention`: who looked where, as a picture, a page or JSON."""
    from seq2seq.analysis.attention.maps import AttentionMap
    from seq2seq.analysis.attention.plot import check_picture_path, write_attention

    as_json = options.output.suffix.lower() == ".json"
    check_output(options.output, options.input)
    if not as_json:
        check_picture_path(options.output)
    with open_input(options.input) as lines:
        translator = load(options)
        if not translator.attends:
            raise UserError(
                f"{options.model[0]}: a model without attention looks nowhere "
                "(model.decoder: none); take a run with decoder bahdanau or luong"
            )
        report = InputReport(options.input)
        texts = report.decode(1, list(lines))
    translations = translator.translate(texts, options.beam)
    report.note_parts(1, translations)
    report.tell()
    if as_json:
        with open_output(options.output) as output:
            items = ",\n".join(rendered_json(each) for each in translations)
            output.write(f"[\n{items}\n]\n")
        return 0
    maps = [
        AttentionMap(each.src_tokens, each.tgt_tokens, each.attention_weights or [], each.text)
        for each in translations
    ]
    for note in write_attention(maps, texts, options.output):
        say(f"note: {note}")
    return 0


def _config(options: argparse.Namespace) -> "Config":
    from seq2seq.config.schema import load_config

    config, notes = load_config(options.config, options.overrides)
    for note in notes if is_main_process() else ():
        say(f"note: {note}")
    return config


def _wait_briefly() -> None:
    """Let threads that wait for one another soon sleep: read as torch is first imported.

    Left to itself OpenMP keeps them turning for milliseconds. Where another program wants one of
    the cores, those are taken from the very thread that is waited for.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def _fail(text: str, code: int) -> int:
    if reports_errors():
        say(f"seq2seq: error: {text}")
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()
    return code


def _discard_stdout() -> None:
    """Drop what stdout does not take, or Python would try again as it ends, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
