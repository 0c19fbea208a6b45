"""Tutorials: notebooks that are executed in place, and rendered as pages of the site."""

import base64
import itertools
import os
import re
import sys
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import nbformat

_SOLUTION = re.compile(
    r"^( *)### BEGIN SOLUTION\n.*?^ *### END SOLUTION$", re.MULTILINE | re.DOTALL
)
_GAP = r"\1# your code\n\1raise NotImplementedError"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def execute(path: Path, folder: Path) -> "nbformat.NotebookNode":
    """Run all cells of a notebook in a working directory; raise CellExecutionError if one fails."""
    import nbformat  # in the extra `docs`
    from nbclient import NotebookClient

    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": folder}})
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    client.execute(env={**os.environ, "PATH": programs, "OMP_NUM_THREADS": "1"})
    for cell in notebook.cells:
        cell.get("metadata", {}).pop("execution", None)  # times, which differ on each run
        for output in cell.get("outputs", ()):
            if "text" in output:
                output.text = output.text.replace(f"{folder}/", "")
    return notebook


def lab_sheet(solution: "nbformat.NotebookNode") -> "nbformat.NotebookNode":
    """Return a lab with gaps in place of its solutions, which nbgrader's marks enclose."""
    sheet = deepcopy(solution)
    for cell in sheet.cells:
        if cell.cell_type == "code":
            cell.source = _SOLUTION.sub(_GAP, cell.source)
            cell.outputs, cell.execution_count = [], None
    return sheet


def notebook_page(path: Path, folder: Path) -> str:
    """Return a notebook in Markdown; write its pictures to a folder beside the page."""
    import nbformat

    parts = []
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        if cell.cell_type != "code":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for is_text, group in itertools.groupby(cell.outputs, lambda output: "text" in output):
            outputs = list(group)
            if is_text:
                parts.append(_fenced("".join(output.text for output in outputs)))
                continue
            picture = f"{path.stem}_files/{number}-"
            parts += [
                _output(output, f"{picture}{place}", folder) for place, output in enumerate(outputs)
            ]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any], picture: str, folder: Path) -> str:
    """Return an output of a cell as Markdown: HTML, a picture, or text.

    Raises ValueError for an output of another kind.
    """
    data = output["data"]
    if "text/html" in data:
        return f'<div class="output">{_without_blank_lines(data["text/html"])}</div>'
    pictures = {
        ".png": base64.b64decode(data.get("image/png", "")),
        ".svg": data.get("image/svg+xml", "").encode(),
    }
    for suffix, content in pictures.items():
        if content:
            path = folder / f"{picture}{suffix}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            return f"![Output of the cell]({picture}{suffix})"
    if data.keys() != {"text/plain"}:
        raise ValueError(f"{picture}: an output of {', '.join(data)} is not shown")
    return _fenced(data["text/plain"])


def _fenced(text: str) -> str:
    """Return text in a code block, without colours."""
    text = _ESCAPES.sub("", text).strip("\n")
    return f"```text\n{text}\n```"


def _without_blank_lines(html: str) -> str:
    """Return HTML that Markdown takes for one block."""
    return "\n".join(line for line in html.splitlines() if line.strip())
