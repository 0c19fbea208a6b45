"""The page of guarantees as a table of its promises, and each promise with its details folded."""

import re

_PROMISE = re.compile(r"\*\*(.+?)\.?\*\*")
_SENTENCE_END = re.compile(r"\.(?=\s+[A-Z`\[]|$)")
_FOOT = "\n\n`tests/test_guarantees.py`"


def fold_promises(page: str) -> str:
    """Return the page with a table of the promises, and below the first sentence of each a fold.

    Raises ValueError for an item that does not start with its promise in bold.
    """
    items, _, foot = page.partition(_FOOT)
    title, *promises = re.split(r"^- ", items, flags=re.MULTILINE)
    rows, sections = [], []
    for number, promise in enumerate((" ".join(item.split()) for item in promises), start=1):
        name = _PROMISE.match(promise)
        if name is None:
            raise ValueError(f"promise {number} does not start with its name in bold")
        sentence, details = _split(promise)
        short = _PROMISE.sub("", sentence, count=1).strip(" ,")
        rows.append(f"| [{name[1]}](#promise-{number}) | {short} |")
        sections.append(
            f"### {name[1]} {{ #promise-{number} }}\n\n{short}\n"
            '\n<details markdown="1"><summary>In full, with tests</summary>\n\n'
            f"{details}\n\n</details>\n"
        )
    table = "\n".join(["| promise | in short |", "| --- | --- |", *rows])
    return f"{title.strip()}\n\n{table}\n\n" + "\n".join(sections) + _FOOT + foot


def _split(promise: str) -> tuple[str, str]:
    """Return the first sentence of a promise, without its tests, and the text of its fold."""
    start = len(_PROMISE.match(promise)[0])  # type: ignore[index]  # as the caller has checked
    for end in _SENTENCE_END.finditer(promise, start):
        sentence, rest = promise[: end.end()], promise[end.end() :].strip()
        if sentence.count("(") == sentence.count(")") and sentence.count("`") % 2 == 0 and rest:
            return sentence, rest
    sentence, _, tests = promise.partition(" (`tests/")
    return sentence + ".", f"Tests: `tests/{tests.rstrip('.').removesuffix(')')}." if tests else ""
