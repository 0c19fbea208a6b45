"""Write a recipe as a YAML file with comments."""

import shlex
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from seq2seq.analysis.recipe.recipe import Recipe
from seq2seq.config.schema import DataConfig, ParallelFiles
from seq2seq.runtime.console import counted, duration, one_line

_WIDTH = 100


def as_yaml(path: Path, data: DataConfig, recipe: Recipe, modeline: str | None = None) -> str:
    """Format the config of a recipe, to be written to `path`: its header, then section by section.

    The run is named after the file. A comment beside a key gives the reason of its value;
    `modeline` is a first line for editors.
    """
    tree = {
        "name": path.stem,
        "run_dir": f"runs/{path.stem}",
        "data": {**_data(data), **recipe.sections["data"]},
        **{name: keys for name, keys in recipe.sections.items() if name != "data"},
    }
    first = [modeline] if modeline else []
    lines = [*first, *_header(path, data, recipe), *_entries(tree, recipe.reasons)]
    return "\n".join(lines) + "\n"


def _header(path: Path, data: DataConfig, recipe: Recipe) -> Iterator[str]:
    cost, run = recipe.cost, shlex.quote(f"runs/{path.stem}")
    text = (
        f"{data.src_lang} to {data.tgt_lang}, chosen by seq2seq init for {recipe.pairs:,} pairs: "
        f"{recipe.epochs:.1f} epochs of {counted(cost.steps_per_epoch, 'step')}, about "
        f"{duration(recipe.seconds)} at {cost.tokens_per_second:,.0f} target tokens/s "
        f"on {cost.device}."
    )
    commands = (
        f"  seq2seq check {shlex.quote(str(path))}",
        f"  seq2seq train {shlex.quote(str(path))}",
        f"  seq2seq evaluate -m {run} --split valid",
    )
    for line in (*textwrap.wrap(one_line(text), _WIDTH - 2), *map(one_line, commands)):
        yield f"# {line}"


def _data(data: DataConfig) -> dict[str, object]:
    texts = {"train": data.train[0], "valid": data.valid, "test": data.test}
    return {
        "src_lang": data.src_lang,
        "tgt_lang": data.tgt_lang,
        **{part: _files(files) for part, files in texts.items() if files is not None},
    }


def _files(files: ParallelFiles) -> dict[str, object]:
    columns = {} if files.columns is None else {"columns": files.columns}
    return {**{name: str(path) for name, path in files.paths.items()}, **columns}


def _entries(tree: Mapping[str, object], reasons: Mapping[str, str]) -> Iterator[str]:
    for key, value in tree.items():
        if key in ("name", "run_dir"):
            yield _entry(key, value, None)
            continue
        assert isinstance(value, Mapping)
        yield f"{key}:"
        for name, entry in value.items():
            yield _entry(f"  {name}", entry, reasons.get(f"{key}.{name}"))


def _entry(key: str, value: object, reason: str | None) -> str:
    text: str = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, width=float("inf"), sort_keys=False
    )
    entry = f"{key}: " + text.removesuffix("\n").removesuffix("\n...")
    return f"{entry}  # {reason}" if reason else entry
