"""Parse the YAML file of a config into text by key, with the line number of every key."""

import re
import unicodedata
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from seq2seq.config.characters import name_with_article, other_form
from seq2seq.config.errors import ConfigError, ConfigIssue
from seq2seq.config.fields import KeyPath
from seq2seq.runtime import errors, file_types
from seq2seq.runtime.files import check_paths, read_bounded

Tree = dict[str, object]

_MAX_BYTES = 1 << 20
_WITHOUT_SPACE = re.compile(r"\s*(\w+:)(?=[^ \t\r\n/])")  # a key, and its value at once
_KEY = re.compile(r"\s*([a-z_]+)")
_PLAIN_TAGS = ("str", "map", "seq")
NULLS = ("", "~", "null", "Null", "NULL")
CURLY = "is within curly quotation marks; use ' or \""


@dataclass
class Document:
    """A parsed YAML file: values as text, the line of each key (from 1), and the issues found."""

    tree: Tree = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)
    issues: list[ConfigIssue] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)  # ids of parsed nodes, to detect aliases
    incomplete: bool = False  # parts could not be parsed


def read_document(path: Path) -> Document:
    """Parse a YAML file and collect every issue; raise ConfigError if it is not a text file."""
    document = Document()
    line = None
    try:
        # PyYAML's base loader creates no objects and keeps every scalar as text.
        text = _read_text(path)
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        if _has_unusual_indent(text, document) or _has_other_colon(text, document):
            return document
        mark = error.problem_mark or error.context_mark
        if mark and _lacks_space(text, mark.line, document):
            return document
        line = mark.line + 1 if mark else None
        column = f"column {mark.column + 1}: " if mark else ""
        reason = f"{column}invalid YAML: {error.problem or error.context}; see also the line "
        reason += "before. Values with special characters need quotation marks"
    except RecursionError:
        reason = "invalid config: nested too deeply"
    except yaml.YAMLError as error:
        reason = f"invalid YAML: {' '.join(str(error).split())}"
    else:
        if isinstance(root, yaml.MappingNode):
            is_refused = _has_unusual_indent(text, document, ascii_too=False)
            if not (is_refused or _has_other_colon(text, document)):
                document.tree = _read_mapping(root, (), document)
            return document
        if _has_other_colon(text, document):
            return document
        reason = "the file is empty" if root is None else "the top level is not a mapping"
        reason += "; write lines such as `name: my-run`"
    document.issues.append(ConfigIssue(line, reason))
    document.incomplete = True
    return document


def shipped_configs() -> list[Traversable]:
    """Return the configs that come with the package, by name: of the wheel, or of the clone."""
    packaged = files("seq2seq").joinpath("shipped_configs")
    folder = packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "configs"
    paths = [*folder.iterdir()] if folder.is_dir() else []
    configs = [path for path in paths if path.name.endswith(".yaml")]
    return sorted(configs, key=lambda path: path.name.removesuffix(".yaml"))


def _read_text(path: Path) -> str:
    check_paths(path)
    try:
        content = read_bounded(path, _MAX_BYTES)
        if (kind := file_types.recognise(content)) is not None:
            raise ConfigError(file_types.describe(kind, path))
        return content.decode("utf-8-sig")
    except FileNotFoundError:
        hint = errors.suggest_file(path) or "; seq2seq init writes a config that suits your text"
        if path.name in [config.name for config in shipped_configs()]:
            hint = f"; `seq2seq configs {path.stem}` copies it to configs/"
        raise ConfigError(f"{path}: no such file{hint}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        reason = f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"
        raise ConfigError(f"{path}:{line}: {reason}") from None
    except OSError as error:
        reason = "is a folder, not a config file" if path.is_dir() else str(error.strerror)
        config = path / "config.yaml"
        hint = f"; did you mean '{config}'?" if config.is_file() else ""
        raise ConfigError(f"{path}: {reason}{hint}") from None


def _has_unusual_indent(text: str, document: Document, ascii_too: bool = True) -> bool:
    """Add an issue for the first line that is indented by other characters than spaces, if any."""
    for number, line in enumerate(text.split("\n"), start=1):
        indent = line[: len(line) - len(line.lstrip())]
        not_spaces = [character for character in indent if character not in " \r"]
        if line.strip() and not_spaces and (ascii_too or not not_spaces[0].isascii()):
            reason = f"begins with {name_with_article(not_spaces[0])}; indent with spaces"
            document.issues.append(ConfigIssue(number, reason))
            document.incomplete = True
            return True
    return False


def _has_other_colon(text: str, document: Document) -> bool:
    """Add an issue for the first key that another colon follows than that of ASCII, if any."""
    for number, line in enumerate([] if text.isascii() else text.split("\n"), start=1):
        if (key := _KEY.match(line)) and (colon := other_form(line[key.end() :].lstrip(), ":")):
            document.issues.append(ConfigIssue(number, f"has {colon} after {key[1]}; write :"))
            document.incomplete = True
            return True
    return False


def _lacks_space(text: str, wrong: int, document: Document) -> bool:
    """Add an issue if a space after a colon moves a YAML error from a line, counted from 0."""
    lines = text.split("\n")
    for number in (wrong, wrong - 1):
        key = _WITHOUT_SPACE.match(lines[number]) if 0 <= number < len(lines) else None
        if key is None:
            continue
        spaced = f"{key[0]} {lines[number][key.end() :]}"
        new_text = "\n".join([*lines[:number], spaced, *lines[number + 1 :]])
        try:
            yaml.compose(new_text, Loader=yaml.BaseLoader)
        except (yaml.YAMLError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            if mark is None or mark.line <= wrong:
                continue
        reason = f"a space is missing after {key[1]}"
        document.issues.append(ConfigIssue(number + 1, reason))
        document.incomplete = True
        return True
    return False


def within_curly_marks(value: str) -> bool:
    """Return whether a value has the quotation marks of a word processor, which YAML keeps."""
    if len(value) < 2 or value.isascii():
        return False
    return all("QUOTATION MARK" in unicodedata.name(end, "") for end in (value[0], value[-1]))


def _read_mapping(node: yaml.MappingNode, parent: KeyPath, document: Document) -> Tree:
    """Convert a YAML mapping to a dict, recording the line of each key and any issue."""
    tree: Tree = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.issues.append(ConfigIssue(line, "a key must be a single word"))
            continue
        path = (*parent, key_node.value)
        if path in document.lines:
            first = document.lines[path]
            text = f"{'.'.join(path)}: set twice, first on line {first}; remove one of the two"
            document.issues.append(ConfigIssue(line, text))
            continue
        document.lines[path] = line
        tree[key_node.value] = read_value(value_node, path, document)
    return tree


def read_value(node: yaml.Node, path: KeyPath, document: Document) -> object:
    """Convert a YAML value to text, None, a dict or a list; the schema assigns its type."""
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    if id(node) in document.seen or tag.removeprefix("!!") not in _PLAIN_TAGS:
        syntax = "aliases (*) are" if id(node) in document.seen else f"the tag {tag} is"
        text = f"{'.'.join(path)}: {syntax} not supported; write the value itself"
        document.issues.append(ConfigIssue(document.lines[path], text))
        document.incomplete = True
        return None
    document.seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        return _read_mapping(node, path, document)
    if isinstance(node, yaml.ScalarNode):
        if node.style is None and within_curly_marks(node.value):
            text = f"{'.'.join(path)}: {node.value} {CURLY}"
            document.issues.append(ConfigIssue(document.lines[path], text))
        return None if node.style is None and node.value in NULLS else str(node.value)
    entries = []
    for number, entry in enumerate(node.value, start=1):
        place = (*path, str(number))
        document.lines[place] = entry.start_mark.line + 1
        entries.append(read_value(entry, place, document))
    return entries
