"""Properties of the package that import-linter cannot state."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, metadata, requires
from itertools import chain
from pathlib import Path

import pytest
from cases.tiers import one_quick

import seq2seq
from seq2seq.__main__ import GROUPS
from seq2seq.cli.parser import commands_of
from seq2seq.tools.analysis.compare import cell

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "seq2seq"
HEAVY = ("matplotlib", "numpy", "sacrebleu", "sentencepiece", "torch")
PUBLIC = {
    "Config": ("seq2seq.config.schema", "Config"),
    "Translator": ("seq2seq.inference.translator", "Translator"),
    "load_config": ("seq2seq.config.schema", "load_config"),
    "train": ("seq2seq.training.trained_run", "train"),
}
INITS = sorted(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("__init__.py"))


def output_of(program: str) -> list[str]:
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from seq2seq.__main__ import main\n"
        "sys.argv = ['seq2seq', '--help']\n"
        "try:\n"
        "    code = main()\n"
        "except SystemExit as stop:\n"
        "    code = stop.code\n"
        f"print('code', code, 'loaded', sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    assert output_of(program)[-1] == "code 0 loaded []"


def test_the_package_alone_loads_nothing_heavy() -> None:
    lazy = (*HEAVY, "pydantic", "yaml")
    program = f"import sys, seq2seq\nprint(sorted(set({lazy!r}) & set(sys.modules)))"
    assert output_of(program) == ["[]"]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_the_objects_of_their_modules(name: str) -> None:
    module, attribute = PUBLIC[name]
    assert getattr(seq2seq, name) is getattr(import_module(module), attribute)


def test_the_package_exports_exactly_the_public_names() -> None:
    assert set(seq2seq.__all__) == PUBLIC.keys()
    with pytest.raises(AttributeError, match="module 'seq2seq' has no attribute 'Translater'"):
        _ = seq2seq.Translater


def test_version_and_date_of_the_release_are_the_same_everywhere() -> None:
    changelog, citation, page = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("CHANGELOG.md", "CITATION.cff", "docs/how-to/cite.md")
    )
    start = (ROOT / "docs/get-started.md").read_text(encoding="utf-8")
    version, date = re.findall(r"^## (\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)$", changelog, re.M)[0]
    assert version == seq2seq.__version__
    assert f'\nversion: {version}\ndate-released: "{date}"\n' in citation
    assert f"  version = {{{version}}},\n  date = {{{date}}},\n" in page
    assert f"/v{version}/seq2seq_attention-{version}-py3-none-any.whl'" in start


def test_every_package_was_found() -> None:
    assert {"seq2seq/__init__.py", "seq2seq/model/__init__.py"} <= set(INITS)
    assert len(INITS) >= 11


def test_an_init_file_is_a_docstring() -> None:
    """A package re-exports nothing, so that a name has one place."""
    for path in INITS:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        assert len(tree.body) == 1 or path == "seq2seq/__init__.py", path


def test_no_class_name_occurs_twice() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {"Config", "Seq2Seq", "Translator"} <= places.keys()
    commands = [*commands_of(GROUPS), *commands_of(cell.GROUPS)]
    assert len(places.pop("Options")) == len(commands)  # each command has its own
    assert {
        name: class_places for name, class_places in places.items() if len(class_places) > 1
    } == {}


STARTS = """
import gc, json, sys
from importlib.abc import MetaPathFinder

class Watcher(MetaPathFinder):
    collecting = None
    def find_spec(self, name, path, target=None):
        if name == "torch":
            Watcher.collecting = gc.isenabled()

sys.meta_path.insert(0, Watcher())
from seq2seq.__main__ import main
code = main(json.loads(sys.argv[1]))
loaded = sorted(set(json.loads(sys.argv[2])) & set(sys.modules))
print(json.dumps([code, Watcher.collecting, loaded]))
"""
RARE = (  # slow to import, and needed by few commands
    *("PIL", "fastapi", "matplotlib", "pandas", "sacrebleu"),
    *("scipy", "sympy", "tensorboard", "torch._dynamo", "torch._inductor", "torch.onnx"),
)
COMMANDS: dict[
    str, tuple[list[str], list[str]]
] = {  # arguments, and the modules of RARE that they need
    "translate": (["translate", "-m", "RUN", "buda ki."], []),
    "translate as JSON": (["translate", "-m", "RUN", "--json", "-b", "2", "buda ki."], []),
    "score": (["score", "-m", "RUN", "-i", "TEST.src", "-r", "TEST.tgt"], []),
    "evaluate": (["evaluate", "-m", "RUN", "-i", "TEST.src", "-r", "TEST.tgt"], ["sacrebleu"]),
    "attention": (["attention", "-m", "RUN", "-i", "TEST.src"], []),
    "back-translate": (["back-translate", "-m", "RUN", "-i", "TEST.src", "-o", "OUT"], []),
    "check": (["check", "CONFIG"], []),
}


@one_quick("name", COMMANDS)
def test_a_command_imports_only_what_it_needs_without_garbage_collection(
    name: str, tiny_runs: dict[str, Path], small_corpus: Path
) -> None:
    folder = small_corpus.parent
    arguments, needed = COMMANDS[name]
    paths = {
        **{"RUN": str(tiny_runs["bahdanau"]), "CONFIG": str(small_corpus)},
        **{f"TEST.{side}": str(folder / f"test.{side}") for side in ("src", "tgt")},
        "OUT": str(folder / "out.tsv"),
    }
    command = [paths.get(argument, argument) for argument in arguments]
    process = subprocess.run(
        [sys.executable, "-c", STARTS, json.dumps(command), json.dumps(RARE)],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert process.returncode == 0, process.stderr
    collecting = False if name == "check" else None  # the others do not import torch
    assert json.loads(process.stdout.splitlines()[-1]) == [0, collecting, needed]


def test_names_of_test_files_are_unique() -> None:
    """Pytest imports test files by name: a second one would stop the collection of all tests."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []


def test_locked_versions_are_releases_that_pypi_has() -> None:
    """A local version such as torch 2.13.0+cpu is found on its own index alone."""
    pins = re.findall(
        r"^[\w.-]+==(.*)$", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE
    )
    assert len(pins) > 100
    assert [pin for pin in pins if "+" in pin] == []


def packages_with(texts: Iterable[str], extras: set[str]) -> set[str]:
    """Return the packages that requirements ask for here, with their extras, as `name[extra]`."""
    requirements = pytest.importorskip("packaging.requirements")
    packages = set()
    for text in texts:
        requirement = requirements.Requirement(text)
        contexts = [{"extra": extra} for extra in ("", *extras)]
        if requirement.marker is None or any(map(requirement.marker.evaluate, contexts)):
            name = re.sub("[-_.]+", "-", requirement.name).lower()
            packages |= {name, *(f"{name}[{extra}]" for extra in requirement.extras)}
    return packages


def test_every_locked_package_is_needed() -> None:
    """A package that nothing needs any longer would stay in a lock that is written by hand."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==\S+", pin)] == []
    if (sys.platform, f"with Python 3.{sys.version_info.minor}" in lines[1]) != ("linux", True):
        pytest.skip("packages of other systems and versions of Python differ")
    extras = project["optional-dependencies"].values()
    waiting = packages_with([*project["dependencies"], *chain(*extras)], set())
    needed: set[str] = set()
    try:
        while waiting := {name for name in waiting if not name.startswith(project["name"])}:
            needed |= waiting
            asked: set[str] = set()
            for package in waiting:
                name, _, extra = package.removesuffix("]").partition("[")
                asked |= packages_with(requires(name) or [], {extra})
            waiting = asked - needed
    except PackageNotFoundError as error:
        pytest.skip(f"{error.name} is not installed; make browser-test installs playwright")
    assert {pin.partition("==")[0] for pin in pins} - needed == set()


def test_locked_versions_install_on_the_oldest_python() -> None:
    """On Debian 12, with Python 3.11.2, a pin that needs 3.11.5 would make `make demo` fail."""
    specifiers = pytest.importorskip("packaging.specifiers")
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    checked = []
    refused = []
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", lock, re.MULTILINE):
        try:
            installed = metadata(name)
        except PackageNotFoundError:
            continue
        if installed["Version"] == version:
            checked.append(name)
            if not specifiers.SpecifierSet(installed["Requires-Python"] or "").contains("3.11.0"):
                refused.append(f"{name}=={version}")
    if not checked:
        pytest.skip("other versions are installed than those of the lock file")
    assert not refused
