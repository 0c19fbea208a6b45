"""The `seq2seq` command: parses, then calls one function a subcommand.

Heavy imports stand inside those functions.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from seq2seq import __version__
from seq2seq.errors import RunError, UserError

if TYPE_CHECKING:
    from seq2seq.translator import Translation, Translator

BATCH_LINES = 2048  # read, sorted by length and translated together


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Returns 0 done, 2 refused before any work, 1 failed later, 130 or 143 interrupted.
    """
    try:
        options = _parse(sys.argv[1:] if arguments is None else list(arguments))
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _fail(f"{error}", 2)
    except RunError as error:
        return _fail(f"{error}", 1)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # the reader had enough, as `| head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}", 1)


def train(options: argparse.Namespace) -> int:
    """`seq2seq train`: a config to a run folder."""
    from seq2seq.config import load_config

    config, notes = load_config(options.config, options.overrides)
    for note in notes:
        _say(f"note: {note}")
    from seq2seq.training import Interrupted
    from seq2seq.training import train as run_training

    try:
        run = run_training(config, options.device, options.resume, options.overwrite)
    except Interrupted as stop:
        return stop.exit_code
    _say(f"Translate:  seq2seq translate -m {run} -i FILE")
    if config.data.test is not None:
        _say(f"Evaluate:   seq2seq evaluate -m {run}")
    return 0


def translate(options: argparse.Namespace) -> int:
    """`seq2seq translate`: lines in, as many lines out."""
    if options.output is not None and options.input is not None and options.output == options.input:
        raise UserError(f"-o {options.output}: is the input; choose another name")
    with _open_input(options.input) as lines:
        translator = _load(options)
        with _open_output(options.output) as output:
            report = _InputReport()
            for number, batch in _batches(lines, options.batch_size):
                texts = report.decode(number, batch)
                translations = translator.translate(texts, options.beam, options.n_best or 1)
                report.note_parts(number, translations)
                for index, translation in enumerate(translations, start=number):
                    output.write(_rendered(translation, index, options))
                output.flush()
    report.tell()
    return 0


def evaluate(options: argparse.Namespace) -> int:
    """`seq2seq evaluate`: BLEU, chrF and TER of a run, or of existing output."""
    if bool(options.model) == bool(options.hyp):
        raise UserError("evaluate: give either -m RUN or --hyp FILE")
    if options.hyp and (options.input or options.output):
        raise UserError("evaluate --hyp: -i and -o belong to -m RUN, which translates first")
    if len(options.hyp) > 2:
        raise UserError(f"evaluate: {len(options.hyp)} --hyp files; give one, or two to compare")
    _check_output(options.output)
    _check_output(options.json)
    from seq2seq import evaluation

    evaluation.check_tokenizer(options.tokenize)
    systems, references = _systems_and_references(options)
    evaluation.check_line_counts([*systems, *references])
    hypotheses = [lines for _, lines in systems]
    if options.model:
        translator = _load(options)
        hypotheses = [[each.text for each in translator.translate(hypotheses[0], options.beam)]]
        if options.output is not None:
            with _open_output(options.output) as output:
                output.write("".join(f"{line}\n" for line in hypotheses[0]))
    lines = [reference for _, reference in references]
    for note in map(evaluation.tokenized_note, hypotheses):
        if note:
            _say(f"note: {note}")
    how = (lines, options.lowercase, options.tokenize)
    scores = evaluation.score(hypotheses[-1], *how)
    comparison = None
    if len(hypotheses) == 2:
        comparison = evaluation.compare(hypotheses[0], hypotheses[1], *how)
    if options.json is not None:
        with _open_output(options.json) as output:
            output.write(json.dumps(evaluation.as_json(scores, comparison), indent=2) + "\n")
    if options.json is None or str(options.json) != "-":
        print(evaluation.as_table(scores, comparison))
    return 0


def attention(options: argparse.Namespace) -> int:
    """`seq2seq attention`: who looked where, as a picture, a page or JSON."""
    from seq2seq.attention_plot import AttentionMap, check_picture_path, write_attention

    as_json = options.output.suffix.lower() == ".json"
    if as_json:
        _check_output(options.output)
    else:
        check_picture_path(options.output)
    with _open_input(options.input) as lines:
        translator = _load(options)
        if not translator.attends:
            raise UserError(
                f"{options.model[0]}: a model without attention looks nowhere "
                "(model.decoder: none); take a run with decoder bahdanau or luong"
            )
        report = _InputReport()
        texts = report.decode(1, list(lines))
    translations = translator.translate(texts, options.beam)
    report.note_parts(1, translations)
    report.tell()
    if as_json:
        with _open_output(options.output) as output:
            items = ",\n".join(_as_json(each, nbest=False) for each in translations)
            output.write(f"[\n{items}\n]\n")
        return 0
    maps = [
        AttentionMap(each.src_pieces, each.tgt_pieces, each.attention_weights or [], each.text)
        for each in translations
    ]
    for note in write_attention(maps, texts, options.output):
        _say(f"note: {note}")
    return 0


# ----------------------------------------------------------------------------------------- parsing


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and options.run is train and all("=" in each and each[0] != "-" for each in rest):
        options.overrides = [*options.overrides, *rest]  # those given after an option
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seq2seq", description="Train, use and score attention-based recurrent translation."
    )
    parser.add_argument("--version", action="version", version=f"seq2seq {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(commands)
    _add_translate(commands)
    _add_evaluate(commands)
    _add_attention(commands)
    return parser


def _add_train(commands: Any) -> None:
    command = commands.add_parser("train", help="train a model from a YAML config")
    command.add_argument("config", type=Path, metavar="CONFIG", help="YAML file, as in configs/")
    command.add_argument(
        "overrides", nargs="*", metavar="section.key=value", help="set a key of the config"
    )
    again = command.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="go on with an interrupted run")
    again.add_argument("--overwrite", action="store_true", help="replace the run in run_dir")
    _add_device(command)
    command.set_defaults(run=train)


def _add_translate(commands: Any) -> None:
    command = commands.add_parser("translate", help="translate lines of text")
    _add_model(command, required=True)
    _add_input(command)
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: stdout")
    _add_beam(command)
    command.add_argument(
        "--n-best",
        type=_count,
        metavar="N",
        help="N lines an input: index ||| text ||| score, best first",
    )
    command.add_argument(
        "--batch-size",
        type=_count,
        metavar="N",
        help=f"lines translated together (default: {BATCH_LINES}); never changes what comes out",
    )
    command.add_argument(
        "--json", action="store_true", help="one object a line: text, score, pieces, attention"
    )
    _add_device(command)
    command.set_defaults(run=translate)


def _add_evaluate(commands: Any) -> None:
    command = commands.add_parser("evaluate", help="score a run, or existing translations")
    _add_model(command, required=False)
    _add_input(command)
    command.add_argument("-o", "--output", type=Path, metavar="HYP", help="keep the translations")
    command.add_argument(
        "--hyp",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="score this file instead; given twice: test the second against the first",
    )
    command.add_argument(
        "-r",
        "--ref",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="reference, may be repeated (default with -m: the config's test set)",
    )
    _add_beam(command)
    command.add_argument("--lowercase", action="store_true", help="ignore case")
    command.add_argument(
        "--tokenize", default="13a", metavar="T", help="sacrebleu's (default: 13a)"
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write the scores; - is stdout")
    _add_device(command)
    command.set_defaults(run=evaluate)


def _add_attention(commands: Any) -> None:
    command = commands.add_parser("attention", help="draw where the decoder looked")
    _add_model(command, required=True)
    _add_input(command)
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="FILE.png, .svg, .html (right for every script) or .json",
    )
    _add_beam(command)
    _add_device(command)
    command.set_defaults(run=attention)


def _add_model(command: Any, required: bool) -> None:
    command.add_argument(
        "-m",
        "--model",
        action="append",
        default=[],
        required=required,
        metavar="RUN",
        help="run folder; several make an ensemble",
    )


def _add_input(command: Any) -> None:
    command.add_argument(
        "-i",
        "--input",
        type=Path,
        metavar="FILE",
        help="source text, .gz is read too (default: stdin)",
    )


def _add_beam(command: Any) -> None:
    command.add_argument(
        "-b",
        "--beam",
        type=_count,
        metavar="N",
        help="beam size, 1 = greedy (default: the config's)",
    )


def _add_device(command: Any) -> None:
    command.add_argument("--device", default="auto", metavar="D", help="auto, cpu, cuda or cuda:N")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


# ------------------------------------------------------------------------------------ input, output


@contextmanager
def _open_input(path: Path | None) -> Iterator[IO[bytes]]:
    """The lines of a file or of stdin, as bytes."""
    if path is None:
        if sys.stdin.isatty():
            _say("Type a sentence a line; end with Ctrl-D.")
        yield sys.stdin.buffer
        return
    if path.is_dir():
        raise UserError(f"{path}: is a folder, not a text file")
    try:
        file = _open_bytes(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    with file:
        yield file


def _open_bytes(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        import gzip

        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def _batches(lines: IO[bytes], size: int | None) -> Iterator[tuple[int, list[bytes]]]:
    """Each batch of lines and the number, from 1, of its first; from a terminal line by line."""
    size = size or (1 if lines.isatty() else BATCH_LINES)
    number, batch = 1, []
    for line in lines:
        batch.append(line)
        if len(batch) == size:
            yield number, batch
            number, batch = number + size, []
    if batch:
        yield number, batch


class _InputReport:
    """Decodes lines, losing none, and gathers what to tell of them on stderr."""

    def __init__(self) -> None:
        self._undecodable: list[int] = []
        self._cut: list[int] = []

    def decode(self, number: int, lines: Sequence[bytes]) -> list[str]:
        """UTF-8 lines, their ends (and a byte-order mark) taken off.

        Bytes that are no UTF-8 become U+FFFD.
        """
        texts = []
        for index, line in enumerate(lines, start=number):
            content = line.removesuffix(b"\n").removesuffix(b"\r")
            if index == 1:
                content = content.removeprefix(b"\xef\xbb\xbf")
            text = content.decode("utf-8", errors="replace")
            if "\ufffd" in text and text.encode() != content:
                self._undecodable.append(index)
            texts.append(text)
        return texts

    def note_parts(self, number: int, translations: Sequence["Translation"]) -> None:
        """Remember which lines were too long for one piece."""
        self._cut += [i for i, each in enumerate(translations, start=number) if each.parts > 1]

    def tell(self) -> None:
        """Say what was done to which lines."""
        if self._undecodable:
            _say(f"note: bytes that are not UTF-8 were replaced in {_numbers(self._undecodable)}")
        if self._cut:
            cut = _numbers(self._cut)
            _say(f"note: translated in parts, being longer than any line in training: {cut}")


def _numbers(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:10]))
    return f"{len(lines)} line{'s' * (len(lines) > 1)} ({shown}{', ...' * (len(lines) > 10)})"


def _check_output(path: Path | None) -> None:
    if path is None or str(path) == "-":
        return
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give a file name")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it first")


@contextmanager
def _open_output(path: Path | None) -> Iterator[IO[str]]:
    """stdout, or a file that appears whole once all is written."""
    _check_output(path)
    if path is None or str(path) == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        return
    aside = path.with_name(path.name + ".part")
    try:
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _load(options: argparse.Namespace) -> "Translator":
    from seq2seq.translator import Translator

    translator = Translator.load(*options.model, device=options.device)
    size = options.beam or translator.decoding.beam_size
    wanted = getattr(options, "n_best", None) or 1
    if wanted > size:
        raise UserError(f"--n-best {wanted}: a beam of {size} holds no more than {size}; raise -b")
    return translator


def _rendered(translation: "Translation", number: int, options: argparse.Namespace) -> str:
    if options.json:
        return _as_json(translation, nbest=options.n_best is not None) + "\n"
    if options.n_best is None:
        return translation.text + "\n"
    return "".join(
        f"{number - 1} ||| {text} ||| {score:.6f}\n" for text, score in translation.nbest
    )


def _as_json(translation: "Translation", nbest: bool) -> str:
    weights = translation.attention_weights
    fields: dict[str, Any] = {
        "text": translation.text,
        "score": round(translation.score, 6),
        "src_pieces": translation.src_pieces,
        "tgt_pieces": translation.tgt_pieces,
        "attention_weights": weights and [[round(w, 6) for w in row] for row in weights],
    }
    if nbest:
        fields["nbest"] = [
            {"text": text, "score": round(score, 6)} for text, score in translation.nbest
        ]
    return json.dumps(fields, ensure_ascii=False)


Named = tuple[str, list[str]]


def _systems_and_references(options: argparse.Namespace) -> tuple[list[Named], list[Named]]:
    """Sources (with -m) or hypotheses, and references, each with its name."""
    from seq2seq.corpus import read_lines, read_pairs

    if options.hyp or options.input:
        if not options.ref:
            raise UserError("evaluate: give a reference, -r FILE")
        files = options.hyp or [options.input]
        return [(str(path), read_lines(path)) for path in files], [
            (str(path), read_lines(path)) for path in options.ref
        ]
    if options.ref:
        raise UserError("evaluate -m: -r needs -i FILE, the source text it translates")
    from seq2seq.checkpoint import read_config

    test = read_config(Path(options.model[0])).data.test
    if test is None:
        raise UserError(
            f"{options.model[0]}: its config has no data.test; give -i FILE and -r FILE"
        )
    text = read_pairs(test.src, test.tgt, test.tsv)
    return [(f"{text.origin}, source", text.src)], [(f"{text.origin}, target", text.tgt)]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _fail(text: str, code: int) -> int:
    _say(f"seq2seq: error: {text}")
    return code
