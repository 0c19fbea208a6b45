"""Train a small model in two to four minutes, translate with it, score it and draw its
attention, printing each command. Writes configs/, data/ and runs/ here.
"""

import argparse
import importlib.util
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from importlib.resources import as_file
from pathlib import Path
from typing import NamedTuple

from seq2seq.cli import arguments, configs
from seq2seq.config.document import shipped_configs
from seq2seq.runtime.console import aligned_table, say
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import atomic_write, write_errors


class Demo(NamedTuple):
    """A pair of languages to show."""

    name: str  # its config, its run and its corpus have it
    tgt_lang: str
    sentences: tuple[str, ...]
    remark: str  # on the attention map
    example: str

    @property
    def config(self) -> Path:
        return Path("configs", f"{self.name}.yaml")

    @property
    def folder(self) -> Path:
        return Path("runs", self.name)


DEMOS = {
    "en-fr": Demo(
        "demo",
        "fr",
        (
            *("The small cat is black.", "The actors are opening a window."),
            "Our uncle bought a new house in August 1992.",
            "She did not write my beautiful poem.",
            "The agreement on the European Economic Area was signed in August 1992.",
        ),
        'note the reordering in "European Economic Area"',
        "The red car is old.",
    ),
    "en-mr": Demo(
        "demo-en-mr",
        "mr",
        (
            *("This is a tall tree.", "Rahul is a good boy.", "Kavita was a clever student."),
            *("Meena was not a famous doctor.", "The woman washes the red car in the morning."),
        ),
        "note the verbs, which come last in Marathi",
        "Rahul is a good boy.",
    ),
}
_NEXT = """
Done. Files:
{files}

What to try next{preparation}:
  seq2seq translate -m {run} "{example}"
  seq2seq train {config} model.decoder=luong run_dir={run}-luong
  seq2seq serve -m {run}

Your own text, one sentence per line, in train.en and train.de:
  seq2seq init my-run.yaml --src-lang en --tgt-lang de --train train.en train.de"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "English with French or with Marathi (default: en-fr)"
    parser.add_argument("--pair", choices=DEMOS, default="en-fr", help=text)
    text = "override a key of the demo's config"
    parser.add_argument("overrides", nargs="*", default=[], metavar="section.key=value", help=text)
    text = "replace an earlier run of the demo"
    parser.add_argument("--overwrite", action="store_true", help=text)


def run(options: argparse.Namespace) -> int:
    """Unpack, train, translate, evaluate and plot; return the exit code of the first failure."""
    demo = DEMOS[options.pair]
    if demo.folder.exists() and not options.overwrite:
        resume = f"seq2seq train {demo.config} run_dir={demo.folder} --resume"
        remedy = f"replace it with seq2seq demo --overwrite, or resume its training with {resume}"
        raise UserError(f"{demo.folder}: already exists; {remedy}")
    with arguments.frozen_objects():  # if a package is missing, before anything is written
        import seq2seq.training.loop  # noqa: F401
    from seq2seq.config.schema import read_config_file
    from seq2seq.data.public_corpora import unpack_demo_corpora

    (shipped,) = [config for config in shipped_configs() if config.name == demo.config.name]
    with as_file(shipped) as packaged:  # overrides are refused before anything is written
        read_config_file(demo.config if demo.config.exists() else packaged, options.overrides)
    say("1. Unpack the demo corpora: English with French and with Marathi")
    for line in unpack_demo_corpora(configs.DATA):
        say(line)
    if not demo.config.exists():
        with write_errors(demo.config):
            demo.config.parent.mkdir(exist_ok=True)
        configs.write_config(demo.config, shipped.read_text(encoding="utf-8"))
    source = demo.folder / "handful.en"
    for title, words in _commands(demo, str(source), options.overrides):
        say((f"\n{title}\n" if title else "") + f"$ seq2seq {shlex.join(words)}")
        code: int = options.call(words)
        if code:
            return code
        if words[0] == "train":
            with write_errors(source):
                atomic_write(source, "".join(f"{line}\n" for line in demo.sentences).encode())
        elif words[0] == "translate":
            lines = Path(words[-1]).read_text(encoding="utf-8").splitlines()
            for pair in zip(demo.sentences, lines, strict=True):
                say("   {}\n-> {}".format(*pair))
    say(_closing(demo))
    return 0


def _commands(demo: Demo, source: str, overrides: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of the demo, each after its title, "" for none."""
    run = demo.folder
    words = [str(demo.config), *overrides, f"run_dir={run}", "--overwrite"]
    yield "2. Train", ["train", *words]
    words = ["-m", str(run), "-i", source, "-o", str(run / f"handful.{demo.tgt_lang}")]
    title = "3. Translate a handful of sentences that are not in the training data"
    yield title, ["translate", *words]
    words = ["-m", str(run), "-o", str(run / f"test.hyp.{demo.tgt_lang}")]
    yield "4. Score the test set, which is not in the training data", ["evaluate", *words]
    title = "5. Plot the attention weights"
    for suffix in (".html", *([".png"] if importlib.util.find_spec("matplotlib") else [])):
        words = ["-m", str(run), "-i", source, "-o", str(run / f"attention{suffix}")]
        yield title, ["attention", *words]
        title = ""


def _closing(demo: Demo) -> str:
    """Return what the demo has made, and what to try next."""
    run = demo.folder
    rows = [
        ("data/demo, data/demo-en-mr", "corpora: train, valid, test, a sentence per line"),
        (f"{demo.config}", "the config: copy it for your own text"),
        (f"{run}/best.safetensors", "the model, next to its log, metrics and vocabulary"),
        (f"{run}/test.hyp.{demo.tgt_lang}", "translations of the test set"),
        (f"{run}/attention.html", demo.remark),
    ]
    return _NEXT.format(
        files=textwrap.indent(aligned_table(rows, "left"), "  "),
        preparation=_preparation(),
        run=run,
        config=demo.config,
        example=demo.example,
    )


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
