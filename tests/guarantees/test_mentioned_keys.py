"""Every config key that code, documentation or a config mentions exists."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from seq2seq.config.fields import section_class
from seq2seq.config.schema import Config

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = {
    name: set(section.model_fields)
    for name, info in Config.model_fields.items()
    if (section := section_class(info.annotation)) is not None
}
MODULES = {
    name: {path.stem for path in (ROOT / "seq2seq" / name).glob("*")}
    for name in SECTIONS
    if (ROOT / "seq2seq" / name).is_dir()
}
# These files mention former keys and keys of other tools.
EXCEPT = {"seq2seq/config/foreign_keys.py", "seq2seq/config/unknown_keys.py"}
MENTION = re.compile(rf"(?<![\w.\[/])({'|'.join(SECTIONS)})\.([a-z_]+)\b(?!\()")
FORMER = re.compile(r"In earlier versions|Keys by the names that|`training.max_length`")


def strings_of(source: str) -> Iterator[str]:
    """Yield the lines of strings and comments of Python source, without expressions in braces."""
    text = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in text:
            yield from re.sub(r"\{[^}]*\}", "", token.string).splitlines()


def code_spans(markdown: str) -> Iterator[str]:
    """Yield text between backticks in paragraphs without former keys."""
    prose = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    for paragraph in prose.split("\n\n"):
        if not FORMER.search(paragraph):
            yield from re.findall(r"`([^`]+)`", paragraph)


def unknown_keys(text: Iterator[str]) -> list[str]:
    return [
        f"{section}.{name}"
        for part in text
        for section, name in MENTION.findall(part)
        if name not in SECTIONS[section] | MODULES.get(section, set()) | {"md", "yaml", "json"}
    ]


@pytest.mark.parametrize("folder", ["seq2seq", "scripts", "tests/model", "docs", "configs"])
def test_every_mentioned_key_exists(folder: str) -> None:
    unknown_by_file = {}
    for path in sorted((ROOT / folder).rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix not in {".py", ".md", ".yaml"} or name in EXCEPT:
            continue
        content = path.read_text("utf-8")
        if path.suffix == ".py":
            unknown = unknown_keys(strings_of(content))
        elif path.suffix == ".md":
            unknown = unknown_keys(code_spans(content))
        else:
            unknown = unknown_keys(iter(re.findall("#.*", content)))
        if unknown:
            unknown_by_file[name] = unknown
    assert not unknown_by_file


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("set training.no_such_key", ["training.no_such_key"]),
        ("`training.losses: {coverage: 1}` and `data.max_length`", []),
        ("session.config.training.anything and model.attention", []),
    ],
)
def test_an_unknown_key_is_found(text: str, unknown: list[str]) -> None:
    assert unknown_keys(iter([text])) == unknown
