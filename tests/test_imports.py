"""Imports run one way: every module may import only what stands before it in the table below."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent

# One row a step. A module may import from earlier rows, never from its own row or a later one.
# Scripts come last: they may import everything here, and nothing imports them.
TABLE: tuple[tuple[str, ...], ...] = (
    (
        "seq2seq",
        "seq2seq.settings",
        "seq2seq.parallel",
        "seq2seq.cache",
        "seq2seq.checking",
        "seq2seq.decoding",
        "seq2seq.run",
        "seq2seq.pictures",
        "seq2seq.comparing",
        "seq2seq.commands",
        "seq2seq.errors",
    ),
    ("seq2seq.parallel.ranks",),
    (
        "seq2seq.parallel.exchange",
        "seq2seq.settings.config_values",
        "seq2seq.settings.config_mistakes",
        "seq2seq.run.run_lock",
        "seq2seq.whole_file",
    ),
    ("seq2seq.settings.config_file", "seq2seq.settings.config_section"),
    ("seq2seq.settings.config_model",),
    (
        "seq2seq.config",
        "seq2seq.corpus",
        "seq2seq.device",
        "seq2seq.packed",
        "seq2seq.cache.cache_folder",
    ),
    ("seq2seq.segmentation", "seq2seq.checking.data_check", "seq2seq.cache.text_cache"),
    ("seq2seq.vocabulary",),
    (
        "seq2seq.batches",
        "seq2seq.long_lines",
        "seq2seq.decoding.prefix",
        "seq2seq.cache.cache_worker",
    ),
    ("seq2seq.cache.token_files", "seq2seq.cache.token_workers"),
    ("seq2seq.cache.token_cache",),
    ("seq2seq.checking.piece_check",),
    ("seq2seq.checking.data_advice",),
    ("seq2seq.checking.overlap_advice",),
    (
        "seq2seq.model",
        "seq2seq.model.dropout",
        "seq2seq.model.embedding",
        "seq2seq.model.nonlinear",
        "seq2seq.model.state",
    ),
    ("seq2seq.model.lstm_steps",),
    (
        "seq2seq.model.attention",
        "seq2seq.model.coverage",
        "seq2seq.model.lstm",
        "seq2seq.model.windows",
    ),
    (
        "seq2seq.model.encoder",
        "seq2seq.model.unrolled_attention",
        "seq2seq.model.unrolled_layers",
    ),
    ("seq2seq.model.recurrence", "seq2seq.model.attending", "seq2seq.model.stand_in"),
    ("seq2seq.model.decoder", "seq2seq.model.int8", "seq2seq.model.packing"),
    ("seq2seq.model.rough",),
    ("seq2seq.model.seq2seq",),
    ("seq2seq.model.ensemble",),
    ("seq2seq.build",),
    (
        "seq2seq.loss",
        "seq2seq.scheduled_sampling",
        "seq2seq.optimization",
        "seq2seq.decoding.rules",
    ),
    ("seq2seq.decoding.hypothesis",),
    ("seq2seq.decoding.likeliest", "seq2seq.decoding.slots", "seq2seq.decoding.tiles"),
    ("seq2seq.decoding.greedy", "seq2seq.decoding.beam"),
    ("seq2seq.search",),
    (
        "seq2seq.run.tensor_file",
        "seq2seq.run.config_changes",
        "seq2seq.forced",
        "seq2seq.translation",
    ),
    ("seq2seq.run.origin",),
    ("seq2seq.checkpoint",),
    ("seq2seq.training_state", "seq2seq.snapshots", "seq2seq.warm_start"),
    ("seq2seq.translator", "seq2seq.resuming"),
    ("seq2seq.pictures.attention_map", "seq2seq.scoring"),
    ("seq2seq.pictures.attention_page", "seq2seq.pictures.attention_figure"),
    ("seq2seq.evaluation", "seq2seq.attention_plot", "seq2seq.reporting"),
    ("seq2seq.score_table", "seq2seq.run_folder"),
    ("seq2seq.preparation", "seq2seq.averaging"),
    (
        "seq2seq.update",
        "seq2seq.recovery",
        "seq2seq.validation",
        "seq2seq.checking.diagnosis",
        "seq2seq.ending",
    ),
    ("seq2seq.training",),
    ("seq2seq.forecast",),
    ("seq2seq.doctor", "seq2seq.commands.columns"),
    ("seq2seq.commands.check_table",),
    (
        "seq2seq.commands.loading",
        "seq2seq.streams",
        "seq2seq.commands.rendering",
        "seq2seq.commands.given_prefixes",
    ),
    ("seq2seq.commands.input_report",),
    (
        "seq2seq.comparing.variants",
        "seq2seq.comparing.bleu_counts",
        "seq2seq.comparing.source_lengths",
    ),
    ("seq2seq.compare",),
    ("seq2seq.commands.compare_table",),
    ("seq2seq.commands.compare_figure",),
    ("seq2seq.commands.compare_command", "seq2seq.commands.evaluate_command"),
    ("seq2seq.commands.arguments", "seq2seq.commands.pair_scores"),
    ("seq2seq.cli",),
    ("seq2seq.__main__",),
)
PACKAGES = (
    "seq2seq",
    "seq2seq.cache",
    "seq2seq.checking",
    "seq2seq.commands",
    "seq2seq.comparing",
    "seq2seq.decoding",
    "seq2seq.model",
    "seq2seq.parallel",
    "seq2seq.pictures",
    "seq2seq.run",
    "seq2seq.settings",
)
ROW = {module: row for row, modules in enumerate(TABLE) for module in modules}
SCRIPT_ROW = len(TABLE)
SCRIPTS = frozenset(path.stem for path in (ROOT / "scripts").glob("*.py"))
SCRIPT_PACKAGES = frozenset(path.parent.name for path in (ROOT / "scripts").glob("*/__init__.py"))

# Only an extra installs these: no module may need them merely to be imported.
EXTRAS = ("matplotlib", "tensorboard", "torch.utils.tensorboard")
# These load slowly: `seq2seq --help` must not wait for them.
HEAVY = ("matplotlib", "sacrebleu", "sentencepiece", "torch")
# These names say nothing about what is inside.
EMPTY_NAMES = ("base", "common", "helpers", "manager", "misc", "utils")


class Import(NamedTuple):
    """One imported module; `deferred` if importing the importer does not yet load it."""

    line: int
    target: str
    deferred: bool


def violations(module_name: str, source: str) -> list[str]:
    """Say, one line each, which imports break the rules.

    `module_name` is dotted: `seq2seq.model.decoder`, or `scripts.train` for a script.
    """
    tree = ast.parse(source)
    if module_name in PACKAGES:
        return init_violations(module_name, tree)
    if module_name not in ROW and not module_name.startswith("scripts."):
        return [f"{module_name}: has no place in the table of tests/test_imports.py"]
    return [
        f"{module_name}:{found.line}: imports {found.target}, {complaint}"
        for found in imports_of(tree, module_name)
        if (complaint := complaint_about(found, module_name))
    ]


def complaint_about(found: Import, module_name: str) -> str | None:
    """Say what is wrong with one import, or nothing."""
    root = found.target.removeprefix("scripts.").partition(".")[0]
    if root in {"scripts", "tests"} | SCRIPTS:
        return "which nothing may import"
    if root in SCRIPT_PACKAGES and not module_name.startswith("scripts."):
        return "which only scripts may import"
    if is_within(module_name, ["seq2seq.model"]) and not (
        root in sys.stdlib_module_names or is_within(found.target, ["torch", "seq2seq.model"])
    ):
        return "but the model knows torch and the model alone"
    if root == "seq2seq" and found.target not in ROW:
        return "which has no place in the table"
    if root == "seq2seq" and ROW[found.target] >= ROW.get(module_name, SCRIPT_ROW):
        return "which does not stand before it"
    if is_within(found.target, EXTRAS) and not found.deferred:
        return "which an extra installs: import it in the function that needs it"
    return None


def init_violations(package: str, tree: ast.Module) -> list[str]:
    """Allow a package a docstring, and `seq2seq` its version besides."""
    body = tree.body[1:] if ast.get_docstring(tree) else tree.body
    return [
        f"{package}:{node.lineno}: __init__ may hold a docstring only, not `{ast.unparse(node)}`"
        for node in body
        if not (package == "seq2seq" and ast.unparse(node).startswith("__version__ = "))
    ]


def imports_of(node: ast.AST, module_name: str, deferred: bool = False) -> Iterator[Import]:
    """Find every import below a node, at whatever depth; relative ones come out absolute."""
    for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    deferred = deferred or for_types or isinstance(node, ast.FunctionDef)
    if isinstance(node, ast.Import):
        yield from (Import(node.lineno, alias.name, deferred) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        parents = module_name.split(".")[: -node.level] if node.level else []
        origin = ".".join([*parents, node.module] if node.module else parents)
        for alias in node.names:
            yield Import(node.lineno, module_behind(origin, alias.name), deferred)
    for child in ast.iter_child_nodes(node):
        yield from imports_of(child, module_name, deferred)


def module_behind(origin: str, name: str) -> str:
    """Tell `from package import module` from `from module import name`."""
    of_package = origin in PACKAGES and name != "__version__"
    return f"{origin}.{name}" if of_package or f"{origin}.{name}" in EXTRAS else origin


def is_within(target: str, modules: Iterable[str]) -> bool:
    """Whether the target is one of the modules or inside one."""
    return any(f"{target}.".startswith(f"{module}.") for module in modules)


def sources() -> dict[str, Path]:
    """Map the dotted name of every module of the package and every script to its file."""
    files = [path for folder in ("seq2seq", "scripts") for path in (ROOT / folder).rglob("*.py")]
    dotted = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    return {name.removesuffix(".__init__"): path for name, path in dotted.items()}


SOURCES = sources()


def test_contributing_shows_the_table() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    begin = page.index("    errors < ")
    block = page[begin : page.index("\n\n", begin)]
    shown = [{name.strip() for name in row.split(",")} for row in re.split("[<|]", block)]
    rows = [set(row) - set(PACKAGES) for row in TABLE]
    names = [{m.removeprefix("seq2seq.").replace(".", "/") for m in row} for row in rows if row]
    assert shown == [*names, {"scripts"}]


@pytest.mark.parametrize("module_name", sorted(SOURCES))
def test_imports_follow_the_table(module_name: str) -> None:
    source = SOURCES[module_name].read_text(encoding="utf-8")
    assert violations(module_name, source) == []


def test_no_two_stages_need_one_another() -> None:
    """A folder is a stage as a file is one; together they too run one way."""
    needed: dict[str, set[str]] = {}
    for module_name in SOURCES.keys() & ROW.keys():
        tree = ast.parse(SOURCES[module_name].read_text(encoding="utf-8"))
        for found in imports_of(tree, module_name):
            if found.target in ROW and stage(found.target) != stage(module_name):
                needed.setdefault(stage(module_name), set()).add(stage(found.target))
    TopologicalSorter(needed).prepare()  # raises CycleError


def stage(module_name: str) -> str:
    """The file or folder of the package that a module is in."""
    return ".".join(module_name.split(".")[:2])


def test_the_modules_were_found() -> None:
    assert {"seq2seq", "seq2seq.errors", "seq2seq.model"} <= SOURCES.keys()
    assert any(name.startswith("scripts.") for name in SOURCES)


@pytest.mark.parametrize("module_name", sorted(SOURCES))
def test_names_say_what_is_inside(module_name: str) -> None:
    assert not set(module_name.split(".")) & set(EMPTY_NAMES)


@pytest.mark.parametrize(
    ("module_name", "source"),
    [
        pytest.param("seq2seq.corpus", "import seq2seq.batches", id="upward"),
        pytest.param("seq2seq.corpus", "from seq2seq.batches import Batch", id="upward-from"),
        pytest.param("seq2seq.corpus", "from seq2seq import batches", id="upward-from-package"),
        pytest.param("seq2seq.corpus", "from .batches import Batch", id="upward-relative"),
        pytest.param("seq2seq.corpus", "from . import batches", id="upward-relative-package"),
        pytest.param("seq2seq.model.encoder", "from . import decoder", id="upward-in-model"),
        pytest.param("seq2seq.corpus", "def f():\n    import seq2seq.cli", id="in-function"),
        pytest.param("seq2seq.corpus", "if True:\n    import seq2seq.cli", id="in-condition"),
        pytest.param(
            "seq2seq.decoding.greedy", "from seq2seq.decoding.beam import BeamSlots", id="same-row"
        ),
        pytest.param("seq2seq.search", "import seq2seq.search", id="itself"),
        pytest.param("seq2seq.errors", "from seq2seq import __version__", id="errors-first"),
        pytest.param("seq2seq.cli", "from scripts import train", id="script"),
        pytest.param("seq2seq.cli", "import download_data", id="script-by-its-own-name"),
        pytest.param("scripts.train", "import download_data", id="script-from-script"),
        pytest.param("seq2seq.cli", "from tests.test_imports import violations", id="tests"),
        pytest.param("seq2seq.cli", "import seq2seq.nowhere", id="not-in-table"),
        pytest.param("seq2seq.cli", "from seq2seq import UserError", id="re-exported-name"),
        pytest.param("seq2seq.nowhere", "", id="file-not-in-table"),
        pytest.param("seq2seq.model.decoder", "import seq2seq.errors", id="model-errors"),
        pytest.param("seq2seq.model.decoder", "from seq2seq.config import C", id="model-config"),
        pytest.param("seq2seq.model.decoder", "import numpy", id="model-third-party"),
        pytest.param("seq2seq.attention_plot", "import matplotlib.pyplot", id="extra"),
        pytest.param("seq2seq.training", "from torch.utils import tensorboard", id="extra-from"),
        pytest.param("seq2seq", "from seq2seq.errors import UserError", id="init-re-export"),
        pytest.param("seq2seq.model", '"""Doc."""\n__version__ = "1"', id="init-of-model"),
    ],
)
def test_a_planted_import_is_caught(module_name: str, source: str) -> None:
    assert len(violations(module_name, source)) == 1


@pytest.mark.parametrize(
    ("module_name", "source"),
    [
        ("seq2seq", '"""Doc."""\n__version__ = "1.2.3"'),
        ("seq2seq.corpus", "import gzip\nfrom seq2seq.errors import UserError"),
        ("seq2seq.model.decoder", "import math\nimport torch\nfrom torch import nn"),
        ("seq2seq.model.decoder", "from seq2seq.model.attention import Attention"),
        ("seq2seq.model.decoder", "from .attention import Attention"),
        ("seq2seq.attention_plot", "def draw():\n    from matplotlib import pyplot"),
        ("seq2seq.attention_plot", "if TYPE_CHECKING:\n    from matplotlib.axes import Axes"),
        ("seq2seq.cli", "from seq2seq import __version__, training"),
        ("scripts.train", "import sys\nfrom seq2seq.cli import main"),
    ],
)
def test_a_lawful_import_passes(module_name: str, source: str) -> None:
    assert violations(module_name, source) == []


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from seq2seq.cli import main\n"
        "sys.argv = ['seq2seq', '--help']\n"
        "try:\n"
        "    code = main()\n"
        "except SystemExit as stop:\n"
        "    code = stop.code\n"
        f"print('code', code, 'loaded', sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["code 0 loaded []"], done.stderr
