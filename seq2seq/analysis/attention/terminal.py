"""Attention maps as text for a terminal: a shaded block for each weight."""

import unicodedata
from collections.abc import Sequence

from seq2seq.inference.attention_map import AttentionMap, label_of, labels_of

_SHADES = " \u2591\u2592\u2593\u2588"  # none, light, medium, dark and full shade


def as_text(attention: AttentionMap) -> str:
    """Draw a map: a row for each target token, a column for each source token, numbered below.

    The shades are for weights from 0, 0.1, 0.3, 0.5 and 0.7.
    """
    labels = labels_of(attention.tgt_tokens)
    width, columns = max(map(_width, labels)), len(attention.src_tokens)
    cell = len(str(columns)) + 1
    lines = [*attention.headings(), ""]
    for label, weights in zip(labels, attention.weights, strict=True):
        cells = "".join(_shade(weight) * cell for weight in weights)
        lines.append(f"{' ' * (width - _width(label))}{label} \u2502{cells}\u2502")
    lines.append(" " * (width + 2) + "".join(f"{n:>{cell}}" for n in range(1, columns + 1)))
    lines.append(_numbered(attention.src_tokens))
    return "\n".join(lines)


def _numbered(tokens: Sequence[str]) -> str:
    return "  ".join(f"{number} {label_of(token)}" for number, token in enumerate(tokens, start=1))


def _shade(weight: float) -> str:
    return _SHADES[sum(weight >= bound for bound in (0.1, 0.3, 0.5, 0.7))]


def _width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    zero = sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)
    return len(text) + wide - zero
