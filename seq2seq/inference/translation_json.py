"""Translations as JSON objects: the format of `translate --json` and of the server."""

from collections.abc import Iterable
from typing import Any

from seq2seq.inference.translation import Translation
from seq2seq.runtime.strict_json import json_text


def translation_as_json(translation: Translation, with_nbest: bool = False) -> str:
    """Format a translation with its tokens and attention weights as a JSON object.

    The weights of a line in parts are one matrix per part: a single one would be all zeros but for
    these blocks on its diagonal.
    """
    fields: dict[str, Any] = {
        "text": translation.text,
        "score": round(translation.score, 6),
        "src_tokens": translation.src_tokens,
        "tgt_tokens": translation.tgt_tokens,
        "log_probs": _rounded(translation.log_probs),
    }
    weights = translation.attention_weights
    text = json_text(fields)[:-1]
    if translation.parts > 1 and weights is not None and not isinstance(weights, list):
        blocks = ", ".join(map(_matrix_as_json, weights.blocks))
        text += f', "attention_weights": null, "attention_blocks": [{blocks}]'
    else:
        text += f', "attention_weights": {_matrix_as_json(weights)}'
    if with_nbest:
        fields = {
            "n_best": [
                {
                    "text": each.text,
                    "score": round(each.score, 6),
                    "tokens": each.tokens,
                    "log_probs": _rounded(each.log_probs),
                }
                for each in translation.nbest
            ]
        }
        text += f", {json_text(fields)[1:-1]}"
    return text + "}"


def _matrix_as_json(rows: Iterable[Any] | None) -> str:
    """Format a matrix row by row: as numbers of Python it would take ten times the memory."""
    if rows is None:
        return "null"
    lists = (row if isinstance(row, list) else row.tolist() for row in rows)
    return "[" + ", ".join(json_text(_rounded(row)) for row in lists) + "]"


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]
