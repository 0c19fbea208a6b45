"""Execute the tutorials and labs in place, so that their outputs are those of the present code.

    python scripts/run_notebooks.py                                   # all of them
    python scripts/run_notebooks.py docs/tutorials/attention.ipynb

A lab is kept with its solutions in docs/labs/solutions; its sheet in docs/labs has gaps instead.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import nbformat

from documentation.notebooks import execute, lab_sheet

DOCS = Path(__file__).resolve().parent.parent / "docs"
SOLUTIONS = DOCS / "labs/solutions"


def main() -> int:
    """Execute and overwrite notebooks, each in a temporary working directory; write lab sheets."""
    parser = argparse.ArgumentParser(description="Execute the tutorials and labs in place.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of them")
    tutorials = sorted((DOCS / "tutorials").glob("*.ipynb"))
    paths = parser.parse_args().notebooks or [*tutorials, *sorted(SOLUTIONS.glob("*.ipynb"))]
    for path in paths:
        print(path, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(path, Path(folder))
        nbformat.write(notebook, path)
        if path.resolve().parent == SOLUTIONS:
            nbformat.write(lab_sheet(notebook), SOLUTIONS.parent / path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
