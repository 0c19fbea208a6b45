"""Docstrings open with a verb or a noun, and percentages are written in one way."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("scripts", "seq2seq", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in (
        *(ROOT / page for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    )
]
OPENING = re.compile(r"\W*(What|Where|Of|How|Whether|Those)\b", re.IGNORECASE)
SPACED_PERCENT = re.compile(r"[\d}] %(?! ?\d)")  # 27 % where 27% is meant
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def relative_clauses(name: str, source: str) -> list[str]:
    """List the docstrings that open with a relative clause, as `file:line: ...`."""
    return [
        f"{name}:{line}: opens with {match[1]!r}: {text.splitlines()[0]}"
        for line, text in docstrings(source)
        if (match := OPENING.match(text))
    ]


def spaced_percentages(name: str, text: str) -> list[str]:
    """List the percentages with a space before the sign, as `file:line: ...`."""
    return [
        f"{name}:{number}: {match[0]!r}"
        for number, line in enumerate(text.splitlines(), start=1)
        for match in SPACED_PERCENT.finditer(line)
    ]


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    lines = [
        line
        for name in MODULES
        for line in relative_clauses(name, (ROOT / name).read_text("utf-8"))
    ]
    assert not lines, "\n".join(lines)


def test_pages_write_percentages_without_a_space() -> None:
    lines = [
        line
        for name in PAGES
        for line in spaced_percentages(name, (ROOT / name).read_text("utf-8"))
    ]
    assert not lines, "\n".join(lines)


def test_planted_faults_are_reported() -> None:
    for source in (
        '"""What the decoder does."""',
        'class Batch:\n    """Where sentences are."""',
        'def score():\n    """How good a model is."""',
        'async def answer():\n    """Whether a client is there."""',
    ):
        assert len(relative_clauses("planted.py", source)) == 1, source
    assert spaced_percentages("planted.md", "first\n27 % of the lines") == ["planted.md:2: '7 %'"]


def test_plain_prose_passes() -> None:
    source = '"""Return the best hypothesis."""\n# Of a batch.\nx = "What is wrong"'
    assert relative_clauses("planted.py", source) == []
    assert spaced_percentages("planted.md", "27% of them, and 7 % 3 is 1") == []


def outside_of_code(page: str) -> str:
    """Return the text of a page without its blocks of code."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.sub(r"^ *```.*?^ *```|^ {4}.*?$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_guides_leave_dates_and_tests_to_results() -> None:
    """A guide says what to do; docs/results/guides.md has when it was measured, and how tested."""
    guides = [page for page in PAGES if page.startswith("docs/how-to/")]
    assert len(guides) > 10
    provenance = re.compile(r"\b20\d\d-\d\d(?:-\d\d)?\b|`tests/[\w/]+\.py`")
    assert {
        page: found for page in guides if (found := provenance.findall(outside_of_code(page)))
    } == {}
    assert provenance.search(outside_of_code("docs/results/guides.md"))


def test_tests_that_a_page_names_exist() -> None:
    named = {
        (page, path)
        for page in PAGES
        for path in re.findall(r"\btests/[\w/]+\.py", (ROOT / page).read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert [pair for pair in sorted(named) if not (ROOT / pair[1]).is_file()] == []
