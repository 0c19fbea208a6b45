"""Section `model` of the config, and the defaults that follow from the decoder."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from seq2seq.config.document import Tree
from seq2seq.config.fields import Bool, Count, Fraction, Section, Size, ignore, key

Decoder = Literal["bahdanau", "luong", "none"]
Score = Literal[
    "additive", "normed_additive", "coverage", "dot", "general", "concat", "scaled_dot", "location"
]
Window = Literal["local_m", "local_p"]
_ADDITIVE_SCORES = ("additive", "normed_additive", "coverage")
_SIZED_SCORES = (*_ADDITIVE_SCORES, "concat", "scaled_dot")
_DECIDED_BY = {"attention_size": "score", "attention_heads": "score", "window_width": "window"}
_WINDOW_WIDTH = 10  # D of Luong et al. (2015), section 3.2


class ModelConfig(Section):
    """Architecture and sizes of the model; validation fills in the keys the decoder decides."""

    decoder: Decoder = key("bahdanau", "wiring of the decoder; none: last encoder state only")
    score: Score | None = key(None, "attention score; null: additive (bahdanau), general (luong)")
    input_feeding: Bool | None = key(None, "feed h~ into the next step; luong only; null: true")
    window: Window | None = key(None, "local attention (Luong et al., 2015); null: global")
    window_width: Size | None = key(None, "positions on each side of the centre; null: 10")
    embedding_size: Size = key(256, "size of source and target embeddings")
    bidirectional: Bool = key(True, "bidirectional encoder, each direction hidden_size / 2")
    reverse_source: Bool = key(False, "read right to left; needs bidirectional: false")
    hidden_size: Size = key(512, "size of decoder states and of encoder outputs")
    attention_size: Size | None = key(None, "additive, concat, scaled_dot; null: hidden_size // 2")
    attention_heads: Size | None = key(None, "for scaled_dot, sharing attention_size; null: one")
    num_layers: Annotated[Count, Field(le=64)] = key(1, "LSTM layers of encoder and decoder")
    dropout: Fraction = key(0.3, "dropout probability")
    tie_embeddings: Bool = key(True, "target embedding = projection, = source embedding if joint")

    @field_validator("reverse_source")
    @classmethod
    def _check_reading_direction(cls, reverse_source: bool, info: ValidationInfo) -> bool:
        if not (reverse_source and info.data.get("bidirectional")):
            return reverse_source
        reason = "needs bidirectional: false (two directions already read both ways)"
        ignore(("model", "reverse_source"), reverse_source, reason, info)
        return False

    @field_validator("hidden_size")
    @classmethod
    def _check_halves(cls, hidden_size: int, info: ValidationInfo) -> int:
        if info.data.get("bidirectional") and hidden_size % 2:
            raise ValueError("must be even with a bidirectional encoder")
        return hidden_size

    @field_validator(
        "score", "input_feeding", "window", "window_width", "attention_size", "attention_heads"
    )
    @classmethod
    def _fit_to_decoder(cls, value: object, info: ValidationInfo) -> object:
        """Fill in an unset key; refuse one that does not apply, or ignore it if set in YAML."""
        key, earlier = str(info.field_name), info.data
        if "decoder" not in earlier or _DECIDED_BY.get(key, "decoder") not in earlier:
            return value
        if value is not None:
            reason = _why_unused(key, value, earlier)
            if reason is None:
                return value
            ignore(("model", key), value, reason, info)
        return _model_default(key, earlier)

    @field_validator("attention_heads")
    @classmethod
    def _check_heads(cls, heads: int | None, info: ValidationInfo) -> int | None:
        size = info.data.get("attention_size")
        if heads is not None and size is not None and size % heads:
            raise ValueError(f"must divide attention_size {size}")
        return heads


def _why_unused(key: str, value: object, earlier: Tree) -> str | None:
    """Return why the key does not apply to this decoder and score, or None if it does."""
    decoder, score = earlier["decoder"], earlier.get("score")
    if decoder == "none":
        return "decoder none has no attention"
    if key == "score" and decoder == "bahdanau" and value not in _ADDITIVE_SCORES:
        return f"decoder bahdanau takes {', '.join(_ADDITIVE_SCORES)}"
    if key == "input_feeding" and decoder == "bahdanau":
        return "input feeding belongs to decoder luong"
    if key == "window_width" and earlier["window"] is None:
        return "no window is set"
    if key == "attention_size" and score not in _SIZED_SCORES:
        return f"score {score} has no attention size"
    if key == "attention_heads" and score != "scaled_dot":
        return f"score {score} has no heads"
    return None


def _model_default(key: str, earlier: Tree) -> object:
    """Return the default of a decoder-dependent key; None if the key does not apply."""
    decoder = earlier["decoder"]
    if key == "score":
        return {"bahdanau": "additive", "luong": "general", "none": None}[str(decoder)]
    if key == "input_feeding":
        return True if decoder == "luong" else None
    if key == "window_width":
        return None if earlier["window"] is None else _WINDOW_WIDTH
    hidden_size = earlier.get("hidden_size")
    sized = key == "attention_size" and earlier["score"] in _SIZED_SCORES
    return max(1, hidden_size // 2) if sized and isinstance(hidden_size, int) else None
