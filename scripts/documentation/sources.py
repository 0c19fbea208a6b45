"""The source on pages, read when the site is built: excerpts, and links to functions.

A page links to a function by a label in brackets, ``[`train_step`]``, that a line at its end
defines: ``[`train_step`]: ../../seq2seq/training/step.py#train_step``. The site has all functions
that pages link to on a page of their own.
"""

import ast
import importlib.util
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_PLACE = re.compile(r"^<!-- source: ([\w.]+):([\w.]+) -->$", re.MULTILINE)
_DEFINITION = re.compile(r"^\[`([\w.]+)`\]: (\S+?\.py)(?:#(\S+))?\n?", re.MULTILINE)
_LABEL = re.compile(r"\[`([\w.]+)`\](?![\[(])")
_INTRODUCTION = """# Source of linked functions

The functions and classes to which pages of this site link, as they are in the package.
"""


class CodeLink(NamedTuple):
    """Definition of a label on a page: the file, as the page names it, and the name in it."""

    label: str
    target: str
    name: str

    def path(self, page: Path) -> Path:
        """Return the file that the page links to."""
        return (page.parent / self.target).resolve()


def insert_sources(markdown: str) -> str:
    """Replace each `<!-- source: MODULE:NAME -->` by the source of that object."""

    def excerpt(place: re.Match[str]) -> str:
        spec = importlib.util.find_spec(place[1])
        if spec is None or spec.origin is None:
            raise LookupError(f"{place[1]}: no such module")
        return _as_code(source_of(Path(spec.origin), place[2]))

    return _PLACE.sub(excerpt, markdown)


def code_links(markdown: str) -> list[CodeLink]:
    """Return the labels of functions that a page defines."""
    return [CodeLink(*match.groups("")) for match in _DEFINITION.finditer(markdown)]


def link_sources(markdown: str, page: Path, source_page: str) -> str:
    """Lead the links to functions of a page in `docs` to the page of their sources."""
    links = {link.label: link for link in code_links(markdown)}

    def linked(match: re.Match[str]) -> str:
        link = links.get(match[1])
        if link is None:
            return match[0]
        return f"{match[0]}({source_page}#{_anchor(link.path(page), link.name)})"

    return _LABEL.sub(linked, _DEFINITION.sub("", markdown))


def link_problems(page: Path) -> Iterator[str]:
    """Yield the links to functions of a page that lead nowhere, or elsewhere than they say."""
    markdown = page.read_text(encoding="utf-8")
    links = code_links(markdown)
    labels = set(_LABEL.findall(_DEFINITION.sub("", markdown)))
    for label in labels - {link.label for link in links}:
        yield f"[`{label}`] is not defined"
    for link in links:
        try:
            source_of(link.path(page), link.name)
        except (OSError, LookupError) as error:
            yield f"[`{link.label}`]: {error}"
            continue
        if not f".{_dotted(link.path(page), link.name)}".endswith(f".{link.label}"):
            yield f"[`{link.label}`]: leads to {link.name}"
        if link.label not in labels:
            yield f"[`{link.label}`]: is not used"


def sources_page(docs: Path) -> str:
    """Return the page of all functions that pages link to, by their files."""
    functions = {
        (link.path(page), link.name)
        for page in docs.rglob("*.md")
        for link in code_links(page.read_text(encoding="utf-8"))
    }
    parts = [_INTRODUCTION]
    for path in sorted({path for path, _ in functions}):
        parts.append(f"## `{path.relative_to(ROOT).as_posix()}`\n")
        for name in sorted(name for module_path, name in functions if module_path == path):
            code = _as_code(source_of(path, name))
            parts.append(f"### `{name}` {{ #{_anchor(path, name)} }}\n\n{code}\n")
    return "\n".join(parts)


def source_of(path: Path, name: str) -> str:
    """Return the source of what a module defines under a dotted name; raises LookupError."""
    text = path.read_text(encoding="utf-8")
    scope: ast.AST = ast.parse(text)
    for part in name.split("."):
        scope = _definition(scope, part, f"{path.name} has no {name}")
    assert isinstance(scope, ast.stmt), "a definition is a statement"
    decorators = getattr(scope, "decorator_list", [])
    first = min([scope.lineno, *(decorator.lineno for decorator in decorators)])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : scope.end_lineno]))


def _definition(scope: ast.AST, name: str, fault: str) -> ast.stmt:
    """Return the statement of a module or class that defines a name."""
    for node in getattr(scope, "body", []):
        names = [getattr(node, "name", None)]
        names += [getattr(target, "id", None) for target in getattr(node, "targets", [])]
        names.append(getattr(getattr(node, "target", None), "id", None))
        if name in names:
            statement: ast.stmt = node
            return statement
    raise LookupError(fault)


def _dotted(path: Path, name: str) -> str:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return f"{module}.{name}"


def _anchor(path: Path, name: str) -> str:
    return _dotted(path, name).replace("_", "-")  # underscores are emphasis in Markdown


def _as_code(source: str) -> str:
    return f"```python\n{source}\n```"
