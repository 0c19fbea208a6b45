"""Train a small model in two to four minutes, translate with it, score it and draw its
attention, printing each command. Writes configs/, data/ and runs/ here.
"""

import argparse
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import as_file
from pathlib import Path
from typing import NamedTuple

import yaml

from seq2seq.cli import arguments, configs
from seq2seq.cli.interruption import frozen_objects
from seq2seq.cli.main import main
from seq2seq.cli.options import CommandLine
from seq2seq.config.document import shipped_configs
from seq2seq.config.schema import read_config_file
from seq2seq.data.public_corpora import unpack_demo_corpora
from seq2seq.runs.layout import BEST
from seq2seq.runtime import errors, files
from seq2seq.runtime.console import say


class Demo(NamedTuple):
    """A pair of languages to show."""

    name: str  # its config, its run and its corpus have it
    tgt_lang: str
    sentences: list[str]
    remark: str  # on the attention map
    example: str


_TEXT = Path(__file__).with_name("demo.yaml").read_text("utf-8")
DEMOS = {pair: Demo(**fields) for pair, fields in yaml.safe_load(_TEXT).items()}
_CLOSING = """
Done. Files:
  data/demo*                        corpora: train, valid, test, a sentence per line
  {config:32}  the config: copy it for your own text
  {best:32}  the model, next to its log, metrics and vocabulary
  {test:32}  translations of the test set
  {attention:32}  {remark}

What to try next{preparation}:
  seq2seq translate -m {run} "{example}"
  seq2seq train {config} model.decoder=luong run_dir={run}-luong
  seq2seq serve -m {run}

Your own text, one sentence per line, in train.en and train.de:
  seq2seq init my-run.yaml --src-lang en --tgt-lang de --train train.en train.de"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "English with French or with Marathi (default: en-fr)"
    parser.add_argument("--pair", choices=DEMOS, default="en-fr", help=text)
    arguments.add_overrides(parser, "override a key of the demo's config")
    text = "replace an earlier run of the demo"
    parser.add_argument("--overwrite", action="store_true", help=text)


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    pair: str
    overrides: list[str]
    overwrite: bool
    command_line: CommandLine


def run(options: Options) -> int:
    """Unpack, train, translate, evaluate and plot; return the exit code of the first failure."""
    demo = DEMOS[options.pair]
    config = Path("configs", f"{demo.name}.yaml")
    folder = Path("runs", demo.name)
    if folder.exists() and not options.overwrite:
        resume = f"seq2seq train {config} run_dir={folder} --resume"
        remedy = f"replace it with seq2seq demo --overwrite, or resume its training with {resume}"
        raise errors.UserError(f"{folder}: already exists; {remedy}")
    _unpack(config, options.overrides)
    source = folder / "handful.en"
    for title, command in _commands(demo, config, folder, options.overrides):
        words = list(map(str, command))
        say((f"\n{title}\n" if title else "") + f"$ seq2seq {shlex.join(words)}")
        code = main(options.command_line.groups, words)
        if code:
            return code
        if words[0] == "train":
            with files.write_errors(source):
                files.atomic_write(source, "".join(f"{line}\n" for line in demo.sentences).encode())
        elif words[0] == "translate":
            lines = Path(words[-1]).read_text(encoding="utf-8").splitlines()
            for pair in zip(demo.sentences, lines, strict=True):
                say("   {}\n-> {}".format(*pair))
    names = {"best": BEST, "test": f"test.hyp.{demo.tgt_lang}", "attention": "attention.html"}
    names = {key: f"{folder}/{name}" for key, name in names.items()} | demo._asdict()
    say(_CLOSING.format(**names, config=str(config), run=folder, preparation=_preparation()))
    return 0


def _unpack(config: Path, overrides: Sequence[str]) -> None:
    """Write the config, unless it is there, and the corpora; raises UserError before that."""
    with frozen_objects():  # if a package is missing, before anything is written
        import seq2seq.training.loop  # noqa: F401
    (shipped,) = [packaged for packaged in shipped_configs() if packaged.name == config.name]
    with as_file(shipped) as packaged:
        read_config_file(config if config.exists() else packaged, overrides)
    say("1. Unpack the demo corpora: English with French and with Marathi")
    for line in unpack_demo_corpora(configs.DATA):
        say(line)
    if not config.exists():
        with files.write_errors(config):
            config.parent.mkdir(exist_ok=True)
        configs.write_config(config, shipped.read_text(encoding="utf-8"))


def _commands(
    demo: Demo, config: Path, folder: Path, overrides: Sequence[str]
) -> Iterator[tuple[str, list[object]]]:
    """Yield the commands of the demo, each after its title, "" for none."""
    text = ["-i", folder / "handful.en"]
    model = ["-m", folder]
    yield "2. Train", ["train", config, *overrides, f"run_dir={folder}", "--overwrite"]
    title = "3. Translate a handful of sentences"
    path = folder / f"handful.{demo.tgt_lang}"
    yield f"{title} that are not in the training data", ["translate", *model, *text, "-o", path]
    title = "4. Score the test set"
    path = folder / f"test.hyp.{demo.tgt_lang}"
    yield f"{title}, which is not in the training data", ["evaluate", *model, "-o", path]
    title = "5. Plot the attention weights"
    path = folder / "attention.html"
    yield title, ["attention", *model, *text, "-o", path]
    if errors.is_installed("matplotlib"):
        yield "", ["attention", *model, *text, "-o", folder / "attention.png"]


def _preparation() -> str:
    """Return what makes `seq2seq` a command of the terminal where it is none; mostly empty."""
    if shutil.which("seq2seq"):
        return ""
    folder = Path(sys.prefix, "bin")
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())
    script = folder / "activate"
    if script.exists():
        return f", after `source {shlex.quote(str(script))}`"
    return f", with `{shlex.quote(sys.executable)} -m seq2seq` for `seq2seq`"
