"""Build the documentation site in build/site: stage the pages, run the generator, check all links.

    python scripts/build_docs.py

The pages of docs/ and those generated from the source are staged in build/docs.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from documentation.command_line import command_line_page
from documentation.config_keys import config_keys_page
from documentation.links import problems_of

ROOT = Path(__file__).resolve().parent.parent
STAGED, SITE = ROOT / "build/docs", ROOT / "build/site"
GENERATED = {
    "reference/command-line.md": command_line_page,
    "reference/config-keys.md": config_keys_page,
}


def main() -> int:
    """Build and check the site; return 1 if a page or a link is wrong."""
    stage(STAGED)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    if code := subprocess.run(command, cwd=ROOT).returncode:
        return code
    problems = problems_of(SITE)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def stage(folder: Path) -> None:
    """Write all pages of the site into a new folder; raise ValueError if two have one name."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for name, page in GENERATED.items():
        path = folder / name
        if path.exists():
            raise ValueError(f"docs/{name}: is generated; rename the page")
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
