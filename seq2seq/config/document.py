"""The YAML file of a config as text by key, with line numbers, and the overrides put into it."""

from dataclasses import dataclass, field
from pathlib import Path

import yaml

from seq2seq.config.errors import RENAMED, ConfigError, ConfigIssue, KeyPath, did_you_mean
from seq2seq.runtime.files import read_bounded

Tree = dict[str, object]

_MOST_BYTES = 1 << 20  # of a config
_PLAIN_TAGS = ("str", "map", "seq")
_NULLS = ("", "~", "null", "Null", "NULL")


@dataclass
class Document:
    """The YAML file: text by key, the line of each key (from 1), and what was wrong so far."""

    tree: Tree = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)
    mistakes: list[ConfigIssue] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)  # nodes read, to tell an alias by
    broken: bool = False  # not all of it could be read


def read_document(path: Path) -> Document:
    """Read a YAML file, noting every mistake; raise ConfigError where it is no text file."""
    document = Document()
    try:
        # The plainest of PyYAML's loaders: it makes no objects, and each scalar stays text.
        root = yaml.compose(_read_text(path), Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        column = f"column {mark.column + 1}: " if mark else ""
        text = f"{column}this is not YAML: {error.problem or error.context}"
        document.mistakes.append(ConfigIssue(mark.line + 1 if mark else None, text))
    except RecursionError:
        document.mistakes.append(ConfigIssue(None, "this is not a config: nested too deeply"))
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        document.mistakes.append(ConfigIssue(None, f"this is not YAML: {reason}"))
    else:
        if isinstance(root, yaml.MappingNode):
            document.tree = _read_mapping(root, (), document)
            return document
        reason = "it is empty" if root is None else "its top level is not `key: value` lines"
        document.mistakes.append(
            ConfigIssue(None, f"{reason}; a config has lines such as `name: my-run`")
        )
    document.broken = True
    return document


def _read_text(path: Path) -> str:
    try:
        return read_bounded(path, _MOST_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        names = [entry.name for entry in _entries(path.parent)]
        raise ConfigError(f"{path}: no such file{did_you_mean(path.name, names)}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        reason = f"line {line}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"
        raise ConfigError(f"{path}: {reason}") from None
    except OSError as error:
        reason = "is a folder, not a config file" if path.is_dir() else str(error.strerror)
        raise ConfigError(f"{path}: {reason}") from None


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read_mapping(node: yaml.MappingNode, above: KeyPath, document: Document) -> Tree:
    """Turn a YAML mapping into a dict; a key set twice, a tag and an alias become mistakes."""
    tree: Tree = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.mistakes.append(ConfigIssue(line, "a key is a single word"))
            continue
        path = (*above, key_node.value)
        if path in document.lines:
            first = document.lines[path]
            text = f"{'.'.join(path)}: set twice, first on line {first}; keep one of the two"
            document.mistakes.append(ConfigIssue(line, text))
            continue
        document.lines[path] = line
        tree[key_node.value] = _read_value(value_node, path, document)
    return tree


def _read_value(node: yaml.Node, path: KeyPath, document: Document) -> object:
    """Turn a YAML value into text, None, a dict or a list, whatever type it looks like."""
    if id(node) in document.seen or node.tag.removeprefix("tag:yaml.org,2002:") not in _PLAIN_TAGS:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        what = "an alias (*)" if id(node) in document.seen else f"the tag {tag}"
        text = f"{'.'.join(path)}: {what} is not read here; write the value itself"
        document.mistakes.append(ConfigIssue(document.lines[path], text))
        document.broken = True
        return None
    document.seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        return _read_mapping(node, path, document)
    if isinstance(node, yaml.ScalarNode):
        return None if node.style is None and node.value in _NULLS else str(node.value)
    # A list of single values; one of others fits no key, and the schema says so.
    return [each.value if isinstance(each, yaml.ScalarNode) else [] for each in node.value]


def rename_keys(document: Document) -> None:
    """Give the keys of an earlier version their names of today."""
    for old, new in RENAMED.items():
        (section, key), (new_section, new_key) = old.split("."), new.split(".")
        source, target = document.tree.get(section), document.tree.get(new_section)
        if isinstance(source, dict) and isinstance(target, dict) and key in source:
            target.setdefault(new_key, source.pop(key))
            document.lines.setdefault((new_section, new_key), document.lines[section, key])


def apply_override(tree: Tree, override: str) -> KeyPath:
    """Set the key that `section.key=value` names and return its path, or raise ValueError."""
    keys, equals, value = override.partition("=")
    path, value = tuple(keys.strip().split(".")), value.strip()
    if not equals or not all(path):
        raise ValueError("an override is written section.key=value, such as model.dropout=0.2")
    section = tree
    for depth, key in enumerate(path[:-1], start=1):
        if section.get(key) is None:
            section[key] = {}
        below = section[key]
        if not isinstance(below, dict):
            raise ValueError(f"{'.'.join(path[:depth])} is a single value and has no keys")
        section = below
    section[path[-1]] = None if value in _NULLS else value
    return path
