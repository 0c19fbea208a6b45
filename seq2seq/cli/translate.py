"""A translation, or its score, as it is printed: a line, a list of the n best, a JSON object."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seq2seq.inference.scoring import Scored
    from seq2seq.inference.translation import Translation


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
        "src_tokens": translation.src_tokens,
        "tgt_tokens": translation.tgt_tokens,
        "attention_weights": weights and [[round(w, 6) for w in row] for row in weights],
    }
    if with_nbest:
        fields["nbest"] = [
            {"text": text, "score": round(score, 6)} for text, score in translation.nbest
        ]
    return json.dumps(fields, ensure_ascii=False)


def rendered_score(scored: "Scored", json_lines: bool = False) -> str:
    """The line of a pair: its score alone, or an object, with null in the place of -inf."""
    if not json_lines:
        return f"{scored.score:.6f}\n"
    fields: dict[str, Any] = {
        "score": round(scored.score, 6) if scored.possible else None,
        "log_prob": round(scored.log_prob, 6) if scored.possible else None,
        "perplexity": round(scored.perplexity, 6) if scored.possible else None,
        "src_tokens": scored.src_tokens,
        "tgt_tokens": scored.tgt_tokens,
        "log_probs": [round(each, 6) for each in scored.log_probs],
    }
    return json.dumps(fields, ensure_ascii=False) + "\n"
