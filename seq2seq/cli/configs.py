"""List the configs that come with the package, or copy those that are named. With one of
the demo, its corpora are unpacked into data/ unless they are there.

examples:
  seq2seq configs
  seq2seq configs demo-en-mr
"""

import argparse
import re
import shutil
import textwrap
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from itertools import takewhile
from pathlib import Path

from seq2seq.cli import arguments, schema
from seq2seq.cli.output import check_replaced, open_output
from seq2seq.config.document import shipped_configs
from seq2seq.runtime import console, errors, files

_NAME = 30  # columns
DATA = Path("data")  # parent of the corpora of the demo, in its configs
GROUPS = {  # by the first word of a name
    "demo": "The demo's corpora, which come with the package",
    "compare": "Variants in one table, by `seq2seq compare`",
    "multi30k": "Multi30k: `seq2seq download multi30k`",
    "tatoeba": "Tatoeba: `seq2seq download` fetches a pair",
    "wmt16": "WMT16",
}
_BASE = re.compile(r"^base: (.+)\.yaml$", re.MULTILINE)  # the config of a comparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="config to copy")
    text = "folder to copy to (default: configs)"
    arguments.add_output_folder(parser, text, default=Path("configs"))
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    names: list[str]
    output: Path
    overwrite: bool


def run(options: Options) -> int:
    shipped = {config.name.removesuffix(".yaml"): config for config in shipped_configs()}
    if not options.names:
        _list(shipped)
        return 0
    names = [Path(name).name.removesuffix(".yaml") for name in options.names]
    for name in names:
        if name not in shipped:
            hint = errors.did_you_mean(name, shipped) or "; `seq2seq configs` lists them"
            raise errors.UserError(f"configs: there is no config {name!r}{hint}")
        bases = set(_BASE.findall(shipped[name].read_text("utf-8"))).difference(names)
        names += [base for base in bases if not (options.output / f"{base}.yaml").exists()]
    paths = {name: options.output / shipped[name].name for name in names}
    for path in paths.values():
        check_replaced(path, options.overwrite)
    with files.write_errors(options.output):
        options.output.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        write_config(path, text := shipped[name].read_text(encoding="utf-8"))
        commands = re.findall(r"^#(   .*)", text.partition("\nname:")[0], re.M)
        console.say("\n".join([f"{path}: {_summary(shipped[name])}", *commands]))
    if any("demo" in name for name in names) and not (DATA / "demo").exists():
        from seq2seq.data.public_corpora import unpack_demo_corpora

        for line in unpack_demo_corpora(DATA):
            console.say(line)
    return 0


def _list(shipped: dict[str, Traversable]) -> None:
    """Print what each config is, in groups."""
    width = max(_NAME + 42, shutil.get_terminal_size().columns)
    indent = " " * (_NAME + 4)
    for group, heading in GROUPS.items():
        console.say(f"{heading}:")
        for name, config in shipped.items():
            if name.partition("-")[0] == group:
                text = f"  {name:{_NAME}}  {_summary(config)}"
                console.say(
                    textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)
                )
        console.say("")
    console.say("Copy some, with what they need: seq2seq configs NAME ...")


def write_config(path: Path, text: str) -> None:
    """Write a config, and the schema that it names unless that is there."""
    with open_output(path) as output:
        output.write(text)
    if not (schema_path := path.with_name(schema.FILE)).exists():
        schema.write_schema(schema_path)


def _summary(config: Traversable) -> str:
    """Return the first sentence of the comment at the top."""
    text = config.read_text(encoding="utf-8").removeprefix(f"{schema.MODELINE}\n")
    lines = takewhile(re.compile(r"# (?!  )").match, text.splitlines())
    words = " ".join(line.removeprefix("# ") for line in lines)
    return re.split(r"(?<! al)\. ", words)[0].removesuffix(".")  # not at et al.
