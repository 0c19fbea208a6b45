"""Overrides of a config on the command line: `section.key=value`."""

import yaml

from seq2seq.config.characters import other_form
from seq2seq.config.document import CURLY, NULLS, Document, Tree, read_value, within_curly_marks
from seq2seq.config.fields import KeyPath, Section, Shorthand, section_at


def apply_override(tree: Tree, override: str, schema: type[Section]) -> KeyPath:
    """Set the key of an override `a.b=value` or `={...}`; return its path, or raise ValueError."""
    keys, equals, text = override.partition("=")
    path = tuple(keys.strip().split("."))
    text = text.strip()
    if not equals or not all(path):
        forms = (other_form(character, mark) for character in override for mark in "=:")
        hint = next((f"has {form}; " for form in forms if form), "")
        raise ValueError(f"{hint}expected section.key=value, such as model.dropout=0.2")
    section = tree
    for depth, key in enumerate(path[:-1], start=1):
        if section.get(key) is None:
            section[key] = {}
        kind = section_at(schema, path[:depth])
        child = section[key]
        if kind is not None and issubclass(kind, Shorthand) and child != {}:
            child = section[key] = kind.opened(child, path[depth])
        if not isinstance(child, dict):
            is_list = isinstance(child, list)
            text = "a list; change the file" if is_list else "a single value; give it a new one"
            raise ValueError(f"{'.'.join(path[:depth])} has {text}")
        section = child
    if within_curly_marks(text):
        raise ValueError(f"{text} {CURLY}")
    value: object = None if text in NULLS else text
    if text.startswith("{") and section_at(schema, path) is not None:
        value = _read_braces(text, path)
    section[path[-1]] = value
    return path


def _read_braces(text: str, path: KeyPath) -> object:
    """Parse a map in braces as strictly as in a file, but for text that is not a map."""
    document = Document()
    document.lines[path] = 1
    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
        assert node is not None, "text that starts with a brace"
        value = read_value(node, path, document)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except yaml.YAMLError:
        return text
    if document.issues:
        raise ValueError(document.issues[0].text)
    return value
