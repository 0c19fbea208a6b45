"""`seq2seq demo`: train, translate and evaluate on the corpora that come with the package."""

import argparse
import importlib.util
import shlex
import shutil
import sys
from importlib.resources import as_file, files
from pathlib import Path

from seq2seq.cli import schema
from seq2seq.cli.loading import frozen_objects
from seq2seq.runtime.console import say
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import atomic_write, write_errors

_PACKAGED = files("seq2seq").joinpath("demo_data", "demo.yaml")
CONFIG, RUN, DATA = Path("configs/demo.yaml"), Path("runs/demo"), Path("data")
SENTENCES = (
    "The small cat is black.",
    "The actors are opening a window.",
    "Our uncle bought a new house in August 1992.",
    "She did not write my beautiful poem.",
    "The agreement on the European Economic Area was signed in August 1992.",
)
_NEXT = f"""
Done. Files:
  {DATA}/demo, {DATA}/demo-en-mr         corpora: train, valid and test, one sentence per line
  {CONFIG}                  the config: copy it for your own text
  {RUN}/best.safetensors         the model, next to its log, metrics and vocabulary
  {RUN}/test.hyp.fr              translations of the test set
  {RUN}/attention.html           note the reordering in "European Economic Area"

What to try next%s:
  seq2seq translate -m {RUN} "The red car is old."
  seq2seq train {CONFIG} model.decoder=luong run_dir=runs/demo-luong
  seq2seq serve -m {RUN}

Your own text, one sentence per line, in train.en and train.de:
  seq2seq init my-run.yaml --src-lang en --tgt-lang de --train train.en train.de"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Train a small English-French model in two to four minutes, translate with it, score it\n"
        "and draw its attention, printing each command. Writes configs/, data/ and runs/ here."
    )
    text = "override a key of the demo's config"
    parser.add_argument("overrides", nargs="*", default=[], metavar="section.key=value", help=text)
    text = "replace an earlier run of the demo"
    parser.add_argument("--overwrite", action="store_true", help=text)


def run(options: argparse.Namespace) -> int:
    """Unpack, train, translate, evaluate and plot; return the exit code of the first failure."""
    if RUN.exists() and not options.overwrite:
        raise UserError(
            f"{RUN}: already exists; replace it with seq2seq demo --overwrite, or resume its "
            f"training with seq2seq train {CONFIG} run_dir={RUN} --resume"
        )
    with frozen_objects():  # if a package is missing, before anything is written
        import seq2seq.training.loop  # noqa: F401
    from seq2seq.config.schema import read_config_file
    from seq2seq.data.demo_corpora import unpack_demo_corpora

    with as_file(_PACKAGED) as packaged:  # overrides are refused before anything is written
        read_config_file(CONFIG if CONFIG.exists() else packaged, options.overrides)
    say("1. Unpack the demo corpora: English with French and with Marathi")
    for line in unpack_demo_corpora(DATA):
        say(line)
    _write_config()
    say("\n2. Train")
    if code := _call(
        options, "train", str(CONFIG), *options.overrides, f"run_dir={RUN}", "--overwrite"
    ):
        return code
    say("\n3. Translate a handful of sentences that are not in the training data")
    source, translations = RUN / "handful.en", RUN / "handful.fr"
    with write_errors(source):
        atomic_write(source, "".join(f"{line}\n" for line in SENTENCES).encode())
    if code := _call(
        options, "translate", "-m", str(RUN), "-i", str(source), "-o", str(translations)
    ):
        return code
    lines = translations.read_text(encoding="utf-8").splitlines()
    for pair in zip(SENTENCES, lines, strict=True):
        say("   {}\n-> {}".format(*pair))
    say("\n4. Score the test set: 500 sentences, none of them in the training data")
    if code := _call(options, "evaluate", "-m", str(RUN), "-o", str(RUN / "test.hyp.fr")):
        return code
    say("\n5. Plot the attention weights")
    suffixes = [".html", *([".png"] if importlib.util.find_spec("matplotlib") else [])]
    for suffix in suffixes:
        plot = RUN / f"attention{suffix}"
        if code := _call(options, "attention", "-m", str(RUN), "-i", str(source), "-o", str(plot)):
            return code
    say(_NEXT % _preparation())
    return 0


def _write_config() -> None:
    """Write the config of the demo and the schema that it names, unless they exist."""
    with write_errors(CONFIG):
        CONFIG.parent.mkdir(exist_ok=True)
        if not CONFIG.exists():
            atomic_write(CONFIG, _PACKAGED.read_bytes())
    if not (path := CONFIG.with_name(schema.FILE)).exists():
        schema.write_schema(path)


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


def _call(options: argparse.Namespace, *words: str) -> int:
    """Print a command, then run it in this process; return its exit code."""
    say(f"$ seq2seq {shlex.join(words)}")
    code: int = options.call(words)
    return code
