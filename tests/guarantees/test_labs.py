"""Labs: sheets are the solutions with gaps, and no gap passes its checks as it is handed out."""

import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
from documentation.notebooks import lab_sheet  # noqa: E402

LABS = Path(__file__).resolve().parents[2] / "docs/labs"
SOLUTIONS = sorted((LABS / "solutions").glob("*.ipynb"))


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_sheet_is_its_solution_with_gaps(path: Path) -> None:
    solution = nbformat.read(path, as_version=4)
    sheet = nbformat.read(LABS / path.name, as_version=4)
    assert sheet == lab_sheet(solution)
    text = "\n".join(cell.source for cell in sheet.cells)
    marks = "\n".join(cell.source for cell in solution.cells).count("### BEGIN SOLUTION")
    assert text.count("raise NotImplementedError") == marks >= 3
    assert "SOLUTION" not in text
    assert all(not cell.get("outputs") for cell in sheet.cells)


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_the_solutions_have_been_run_without_an_error(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert all(cell.execution_count is not None for cell in cells)
    outputs = [output for cell in cells for output in cell.outputs]
    assert all(output.output_type != "error" for output in outputs)
    assert all(output.get("name") != "stderr" for output in outputs)


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_each_gap_is_followed_by_checks(path: Path) -> None:
    """After a cell with a gap, a cell fails unless the gap is filled."""
    cells = [cell.source for cell in nbformat.read(LABS / path.name, as_version=4).cells]
    gaps = [number for number, source in enumerate(cells) if "raise NotImplementedError" in source]
    for number in gaps:
        checks = "\n".join(cells[number + 1 : number + 3])
        functions = re.findall(r"^def (\w+)\(", cells[number], re.MULTILINE)
        checked_functions = [name for name in functions if f"{name}(" in checks]
        assert "assert" in checks, cells[number]
        assert checked_functions or not functions, cells[number]
