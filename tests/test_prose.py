"""Prose and names use the field's terms: a list of words and openings that do not occur."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tiers import one_quick

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        *(ROOT / page for page in PAGES),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs").rglob("*.ipynb"),
        *(ROOT / "configs").rglob("*.yaml"),
        *(ROOT / "scripts").rglob("*.py"),
        *(ROOT / "seq2seq").rglob("*.py"),
        *(path for path in (ROOT / "tests").rglob("*.py") if path.name != "test_prose.py"),
    )
)
PHRASES = re.compile(
    r"\b(anew|lest|nobody|learnt|likeliest|mend(s|ed|ing)?|odd|beginnings?|company|whole|wholly"
    r"|told|tells?|telling|looks?|looked|looking|read-?outs?|pieces?|stands?|stood|standing"
    r"|goes on|go on|went on|going on|hangs? on|hung on|to the bit|no bit|so many"
    r"|in any company|what goes on)\b",
    re.IGNORECASE,
)
SPACED_PERCENT = re.compile(r"[\d}] %(?! ?\d)")  # 27 % where 27% is meant
OPENINGS = re.compile(r"\W*(What|Where|Of|How|Whether|Those)\b", re.IGNORECASE)
# Names of other projects' interfaces.
FOREIGN = re.compile(
    r"SentencePiece|sentencepiece\w*|id_to_piece|piece_to_id|get_piece_size|--piece\w*|\bpiece_size\b"
)
NAMES = {
    *("anew", "lest", "nobody", "learnt", "likeliest", "mend", "company", "whole", "told"),
    *("tell", "tells", "look", "looks", "looked", "readout", "piece", "pieces", "untaken"),
    *("rough", "roughly", "roughen", "speaks", "beginnings", "stood"),
}
# Modules that use the fields of SentencePiece's messages, such as `pieces`.
MESSAGES = re.compile(r"data/vocabulary/(training|vocabulary)\.py|data/test_existing_models\.py")


def prose_of(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and whether its opening counts, for each comment and string of a module."""
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            docstrings.add(node.body[0].lineno)
    above = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line = token.start[0]
            yield line, token.string, line != above + 1 or not token.line.lstrip().startswith("#")
            above = line
        elif token.type == tokenize.STRING:
            yield token.start[0], token.string, token.start[0] in docstrings


def names_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield every identifier of a module, with its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def findings(name: str, text: str) -> list[str]:
    """List the words, openings and names that do not belong, as `file:line: ...`."""
    found = []
    if name.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
    if not name.endswith(".py"):
        lines = enumerate(text.splitlines(), start=1)
        prose = [(number, line, False) for number, line in lines]
    else:
        prose = list(prose_of(text))
        if name.startswith("tests/"):  # other strings are data
            prose = [each for each in prose if each[2] or each[1].startswith("#")]
        own = {"piece", "pieces"} if MESSAGES.search(name) else set()
        for line, identifier in names_of(text):
            words = set(re.findall(r"[A-Z]?[a-z]+", FOREIGN.sub("", identifier)))
            if unwanted := {word.lower() for word in words} & NAMES - own:
                found.append(f"{name}:{line}: name {identifier}: {', '.join(sorted(unwanted))}")
    for line, string, opens in prose:
        matches = PHRASES.finditer(FOREIGN.sub("", string)), SPACED_PERCENT.finditer(string)
        for match in chain(*matches):
            found.append(f"{name}:{line}: {match[0]!r} in {' '.join(string.split())[:90]}")
        if opens and (match := OPENINGS.match(string.lstrip("rRfFbB\"'# "))):
            found.append(f"{name}:{line}: opens with {match[1]!r}: {' '.join(string.split())[:90]}")
    return found


@one_quick("of_tests", [False, True])
def test_the_fields_terms_are_used(of_tests: bool) -> None:
    names = [name for name in FILES if name.startswith("tests/") == of_tests]
    found = [
        line for name in names for line in findings(name, (ROOT / name).read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_a_planted_word_is_found() -> None:
    for source in (
        '"""What the decoder does."""',
        '"""Return the whole batch."""',
        "x = 1  # of a batch",
        "# Whether it is done\nx = 1",
        'raise ValueError("start it anew")',
        "src_pieces = 1",
        'def f():\n    """Return the likeliest token."""',
        'f"{100 * share:.0f} % of the lines"',
    ):
        assert len(findings("planted.py", source)) == 1, source


def test_plain_prose_passes() -> None:
    for source in (
        '"""Return the best hypothesis of a sentence."""',
        "processor.piece_to_id(token)  # SentencePiece's own name",
        "# Batch-invariant on CPU: the reduction order is fixed,\n# of which tests exist.\nx = 1",
    ):
        assert findings("planted.py", source) == [], source
