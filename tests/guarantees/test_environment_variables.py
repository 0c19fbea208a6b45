"""The table of environment variables lists all that the package, scripts, tests and make read."""

import argparse
import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from seq2seq.tools.commands import serve

ROOT = Path(__file__).resolve().parents[2]
OF_THE_SYSTEM = {"PATH", "PYTHONPATH"}
OWN = re.compile("SEQ2SEQ_[A-Z_]+")
SHELL = re.compile(r"\$\{([A-Z_]+):[-+]|^([A-Z_]+) \?=", re.MULTILINE)


def documented() -> set[str]:
    """Return the names in the first column of the table."""
    page = (ROOT / "docs/reference/environment.md").read_text(encoding="utf-8")
    rows = page.partition("| --- |")[2].partition("\n\n")[0].splitlines()[1:]
    return {name for row in rows for name in re.findall("`([A-Z0-9_]+)`", row.split("|")[1])}


def read_by_python(path: Path) -> Iterator[str]:
    """Yield the names read from os.environ, and names of this project in any string."""
    source = path.read_text(encoding="utf-8")
    if "os." not in source and not OWN.search(source):
        return
    nodes = list(ast.walk(ast.parse(source)))
    constants = {
        assignment.targets[0].id: assignment.value
        for assignment in nodes
        if isinstance(assignment, ast.Assign) and isinstance(assignment.targets[0], ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from OWN.findall(node.value)
        name = name_read(node)
        if isinstance(name, ast.Name):
            name = constants[name.id]
        if name is not None:
            assert isinstance(name, ast.Constant), f"{path}: {ast.unparse(node)}"
            yield str(name.value)


def name_read(node: ast.AST) -> ast.expr | None:
    """Return the expression of the name that a node reads from os.environ, if any."""
    match node:
        case ast.Subscript(value=place, slice=name) if ast.unparse(place) == "os.environ":
            return name
        case ast.Call(func=called, args=[name, *_]) if ast.unparse(called) in (
            "os.environ.get",
            "os.environ.setdefault",
            "os.getenv",
        ):
            return name
        case ast.Compare(left=name, ops=[ast.In() | ast.NotIn()], comparators=[place]) if (
            ast.unparse(place) == "os.environ"
        ):
            return name
    return None


@cache
def in_sources() -> set[str]:
    python = [
        path for top in ("seq2seq", "scripts", "tests") for path in (ROOT / top).rglob("*.py")
    ]
    this_file = Path(__file__)
    parser = argparse.ArgumentParser(add_help=False)
    serve.add_arguments(parser)
    options = {serve.variable(action) for action in parser._actions if action.option_strings}
    variables = options | {
        name for path in python if path != this_file for name in read_by_python(path)
    }
    for path in (ROOT / "Makefile", *(ROOT / ".ci").iterdir()):
        for match in SHELL.finditer(path.read_text(encoding="utf-8")):
            variables.add(match[1] or match[2])
    return variables - OF_THE_SYSTEM


def test_every_variable_that_is_read_is_in_the_table() -> None:
    variables = in_sources()
    assert {"SEQ2SEQ_CACHE", "RANK", "OMP_NUM_THREADS", "CONSTRAINTS", "TORCH_INDEX"} <= variables
    assert variables - documented() == set()


def test_every_variable_of_this_project_in_the_table_is_read() -> None:
    variables_of_project = {name for name in documented() if OWN.fullmatch(name)}
    assert len(variables_of_project) > 5
    assert variables_of_project - in_sources() == set()
