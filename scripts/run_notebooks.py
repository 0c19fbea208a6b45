"""Execute the tutorials in place, so that their outputs are those of the present code.

python scripts/run_notebooks.py                                   # all of them
python scripts/run_notebooks.py docs/tutorials/attention.ipynb
"""

import argparse
import sys
import tempfile
from pathlib import Path

import nbformat

from documentation.notebooks import execute

TUTORIALS = Path(__file__).resolve().parent.parent / "docs/tutorials"


def main() -> int:
    """Execute and overwrite notebooks, each in a temporary working directory."""
    parser = argparse.ArgumentParser(description="Execute the tutorials in place.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all tutorials")
    paths = parser.parse_args().notebooks or sorted(TUTORIALS.glob("*.ipynb"))
    for path in paths:
        print(path, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(execute(path, Path(folder)), path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
