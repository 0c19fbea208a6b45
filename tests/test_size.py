"""Size of the package: lines by package, modules, and names that name nothing."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "seq2seq"
# Lines at most. A change that needs more raises the number and says why.
BUDGETS = {
    "runtime": 1741,  # a GPU in a forked process is one clear line
    "config": 1565,
    "names": 1165,
    "data": 4475,
    "model": 2675,
    "engines": 2175,
    "runs": 1538,  # graphs that ONNX Runtime refuses are traced again
    "inference": 4900,
    "evaluation": 565,
    "training": 2985,
    "analysis": 2960,
    "serving": 1325,
    "cli": 3110,
}
ALL = 31_250  # with the modules at the top
MODULES = 197  # at most
PRONOUNS = frozenset(
    [
        *("each", "found", "own", "kept", "given", "wanted", "known", "shown", "both", "other"),
        *("others", "rest", "whole", "one", "ones", "these", "those", "such", "every", "either"),
    ]
)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def lines_of(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path, node


def test_every_package_stays_within_its_budget() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(BUDGETS)
    sizes = {name: sum(map(lines_of, (PACKAGE / name).rglob("*.py"))) for name in BUDGETS}
    total = sum(map(lines_of, modules()))
    print("\npackage     lines  at most")
    for name, lines in sizes.items():
        print(f"{name:10} {lines:6,} {BUDGETS[name]:8,}")
    print(f"{'all':10} {total:6,} {ALL:8,}")
    assert {name: lines for name, lines in sizes.items() if lines > BUDGETS[name]} == {}
    assert total <= ALL
    assert len(modules()) <= MODULES


def test_no_module_is_long() -> None:
    assert [path.name for path in modules() if lines_of(path) > 400] == []


def test_few_functions_have_more_than_five_parameters() -> None:
    found = []
    for path, node in nodes():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            if len([part for part in parts if part.arg not in ("self", "cls")]) > 5:
                found.append(f"{path.name}: {node.name}")
    assert len(found) <= 20, found


def test_names_name_things() -> None:
    """At most 5 pronouns as names on 1,000 lines of code."""
    lines = [line.strip() for path in modules() for line in path.read_text("utf-8").splitlines()]
    code = sum(bool(line) and not line.startswith("#") for line in lines)
    found = []
    for path, node in nodes():
        name = getattr(node, "id", None) if isinstance(node, ast.Name) else None
        name = node.arg if isinstance(node, ast.arg) else name
        name = node.attr if isinstance(node, ast.Attribute) else name
        if name is not None and name.strip("_") in PRONOUNS:
            found.append(f"{path.relative_to(PACKAGE)}: {name}")
    assert 1000 * len(found) <= 5 * code, found
