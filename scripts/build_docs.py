"""Build the documentation site in build/site: stage the pages, run the generator, check all links.

    python scripts/build_docs.py

The pages of docs/ are staged in build/docs: notebooks become pages, formulas MathML, diagrams part
of their page, and excerpts of the source are inserted. Pages generated from the source join them.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from documentation.command_line import command_line_page
from documentation.config_keys import config_keys_page
from documentation.links import problems_of
from documentation.maths import render_maths
from documentation.notebooks import notebook_page
from documentation.sources import insert_sources, link_sources, sources_page
from documentation.translating import translating_page

ROOT = Path(__file__).resolve().parent.parent
STAGED, SITE = ROOT / "build/docs", ROOT / "build/site"
_DIAGRAM = re.compile(r"^!\[[^\]]*\]\([^)\s]*images/([\w-]+\.svg)\)$", re.MULTILINE)
_PAGES_ALONE = ("labs", "tutorials")  # folders that have nothing but pages
SOURCES = "reference/source.md"  # the functions to which pages link
GENERATED: dict[str, Callable[[], str]] = {
    "reference/command-line.md": command_line_page,
    "reference/config-keys.md": config_keys_page,
    "explanation/steps-and-passes.md": translating_page,
    SOURCES: partial(sources_page, ROOT / "docs"),
}


def main() -> int:
    """Build and check the site; return 1 if a page or a link is wrong."""
    stage(STAGED)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
        print(output.partition("Traceback")[0], *output.splitlines()[-1:], file=sys.stderr)
        return 1
    problems = problems_of(SITE)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    folder = os.path.relpath(SITE)
    print(f"{folder}: the site. To read it with search: python3 -m http.server -d {folder}")
    print("and open http://localhost:8000; without search, open index.html there in a browser")
    return 0


def stage(folder: Path) -> None:
    """Write all pages of the site into a new folder; raise ValueError if two have one name."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=_left_out)
    for notebook in folder.rglob("*.ipynb"):
        text = notebook_page(notebook, notebook.parent)
        _write(notebook.with_suffix(".md"), text)
        notebook.unlink()
    for path in folder.rglob("*.md"):
        text = path.read_text(encoding="utf-8").replace(".ipynb)", ".md)")
        original = ROOT / "docs" / path.relative_to(folder)
        text = link_sources(text, original, os.path.relpath(folder / SOURCES, path.parent))
        text = render_maths(insert_sources(text))
        path.write_text(_DIAGRAM.sub(_inline_diagram, text), encoding="utf-8")
    for name, page in GENERATED.items():
        _write(folder / name, page())


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Return what is no page of the navigation: solutions, and what executed notebooks leave."""
    if Path(folder).name not in _PAGES_ALONE:
        return set()
    pages = {Path(page).stem for page in re.findall(r'"([\w/-]+\.md)"', _navigation())}
    return {name for name in names if Path(name).stem not in pages or name in pages}


def _navigation() -> str:
    return (ROOT / "zensical.toml").read_text(encoding="utf-8")


def _inline_diagram(image: re.Match[str]) -> str:
    """Return a diagram as an element of the page, whose colours it takes."""
    drawing = (ROOT / "docs/images" / image[1]).read_text(encoding="utf-8")
    return f'<div class="figure">{" ".join(drawing.split())}</div>'


def _write(path: Path, text: str) -> None:
    if path.exists():
        raise ValueError(f"{path.name}: is a page and is also generated; rename one")
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
