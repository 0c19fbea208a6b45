"""Two properties of the package that import-linter cannot state."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "seq2seq"
HEAVY = ("matplotlib", "numpy", "sacrebleu", "sentencepiece", "torch")
INITS = sorted(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("__init__.py"))


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from seq2seq.cli.main import main\n"
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


def test_every_package_was_found() -> None:
    assert {"seq2seq/__init__.py", "seq2seq/model/__init__.py"} <= set(INITS)
    assert len(INITS) >= 11


@pytest.mark.parametrize("path", [each for each in INITS if each != "seq2seq/__init__.py"])
def test_an_init_file_is_a_docstring(path: str) -> None:
    """A package re-exports nothing, so that a name has one place."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert len(tree.body) == 1
