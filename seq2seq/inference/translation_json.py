"""Translations as JSON objects: the format of the command line and of the server."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2seq.inference.translation import Translation
from seq2seq.runtime.strict_json import json_text


def translation_as_json(
    translation: Translation, with_nbest: bool = False, with_attention: bool = True
) -> str:
    """Format a translation with its tokens and attention weights (null without) as a JSON object.

    The weights of a line in parts are one matrix per part: a single one would be all zeros but for
    these blocks on its diagonal.
    """
    fields: dict[str, Any] = {
        "text": translation.text,
        "score": round(translation.score, 6),
        "src_tokens": translation.src_tokens,
        "tgt_tokens": translation.tokens,
        "log_probs": _rounded(translation.log_probs),
    }
    blocks = translation.attention_blocks if with_attention else None
    matrices = [_matrix_as_json(block) for block in blocks.blocks] if blocks else []
    text = json_text(fields)[:-1]
    text += _weights_field("attention", matrices)
    if with_attention and (heads := translation.head_blocks):
        text += _weights_field("head", [_heads_as_json(block) for block in heads.blocks])
    if with_nbest:
        fields = {
            "n_best": [
                {
                    "text": entry.text,
                    "score": round(entry.score, 6),
                    "tokens": entry.tokens,
                    "log_probs": _rounded(entry.log_probs),
                }
                for entry in translation.n_best
            ]
        }
        text += f", {json_text(fields)[1:-1]}"
    return text + "}"


def _weights_field(name: str, parts: Sequence[str]) -> str:
    """Format the weights of a line as one field, or as null and one array per part."""
    if len(parts) > 1:
        return f', "{name}_weights": null, "{name}_blocks": [{", ".join(parts)}]'
    return f', "{name}_weights": {parts[0] if parts else "null"}'


def _heads_as_json(weights: NDArray[np.float32]) -> str:
    return "[" + ", ".join(map(_matrix_as_json, weights)) + "]"


def _matrix_as_json(weights: NDArray[np.float32]) -> str:
    """Format a matrix row by row: as numbers of Python it would take ten times the memory."""
    return "[" + ", ".join(json_text(_rounded(row.tolist())) for row in weights) + "]"


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]
