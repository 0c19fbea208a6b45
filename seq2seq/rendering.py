"""A translation as it is printed: a line, a list of the n best, a JSON object."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seq2seq.translation import Translation


def rendered(
    translation: "Translation", number: int, with_nbest: bool = False, json_lines: bool = False
) -> str:
    """The lines of the input's line `number`, from 1: its text, its n best, or an object."""
    if json_lines:
        return as_json(translation, with_nbest) + "\n"
    if not with_nbest:
        return translation.text + "\n"
    return "".join(
        f"{number - 1} ||| {text} ||| {score:.6f}\n" for text, score in translation.nbest
    )


def as_json(translation: "Translation", with_nbest: bool = False) -> str:
    """All of a translation as a JSON object."""
    weights = translation.attention_weights
    fields: dict[str, Any] = {
        "text": translation.text,
        "score": round(translation.score, 6),
        "src_pieces": translation.src_pieces,
        "tgt_pieces": translation.tgt_pieces,
        "attention_weights": weights and [[round(w, 6) for w in row] for row in weights],
    }
    if with_nbest:
        fields["nbest"] = [
            {"text": text, "score": round(score, 6)} for text, score in translation.nbest
        ]
    return json.dumps(fields, ensure_ascii=False)
