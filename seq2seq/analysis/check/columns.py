"""Columns of a TSV file: which are used, which are ignored, and which are natural language."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from seq2seq.analysis.check.findings import Finding, list_and_count
from seq2seq.data.compression import commands
from seq2seq.data.lines import iter_lines
from seq2seq.data.natural_language import not_language
from seq2seq.runtime.console import counted

SAMPLE = 5000  # first lines from which columns are judged


def column_findings(name: str, path: Path) -> Iterator[Finding]:
    """Report on columns that are ignored, and on lines with another number of columns."""
    if not path.is_file():  # a pipe cannot be read again
        text = f"{name}: the columns of {path} were not checked: it can be read only once"
        yield Finding("columns", False, text, done=False)
        return
    rows: list[list[str]] = []
    tabs = []
    for line in iter_lines(path):
        tabs.append(line.count("\t"))
        if len(rows) < SAMPLE:
            rows.append(line.split("\t"))
    (usual, _), *others = Counter(tabs).most_common()
    if usual > 1:
        yield _ignored(name, path, rows, usual + 1)
    if others:
        lines = [number for number, count in enumerate(tabs, start=1) if count != usual]
        text = (
            f"{path}:{lines[0]}: {counted(tabs[lines[0] - 1] + 1, 'column')}, where most lines "
            f"have {usual + 1} ({list_and_count(lines)}). Remove tabs within sentences."
        )
        yield Finding("columns", True, text)


def _ignored(name: str, path: Path, rows: list[list[str]], count: int) -> Finding:
    """Report that columns are ignored; warn if a used column is not text and others are."""
    columns = [[row[k] if k < len(row) else "" for row in rows] for k in range(count)]
    texts = [
        number
        for number, column in enumerate(columns, start=1)
        if any(cell.strip() for cell in column) and not_language(column) is None
    ]
    example = rows[0][2] if len(rows[0]) > 2 else ""
    ignored = "column 3 is" if count == 3 else f"columns 3 to {count} are"
    text = (
        f"{path}:1: {counted(count, 'column')}; columns 1 and 2 are used, {ignored} ignored "
        f"(such as {example[:40]!r})"
    )
    if len(texts) >= 2 and texts[:2] != [1, 2]:
        first, second = texts[:2]
        unpack = commands(path)
        read = f"{unpack[0]} | " if unpack else ""
        source = "" if read else f" {path}"
        text += (
            f". Only the columns {', '.join(map(str, texts))} seem to be text. Select two: "
            f"{read}cut -f{first},{second}{source} > NEW.tsv"
        )
        return Finding("columns", True, f"{name}: {text}")
    return Finding("columns", False, f"{name}: {text}", done=False)
