"""The config's section `model`: what the decoder decides, and what it has no use for."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from seq2seq.config.document import Tree
from seq2seq.config.fields import Bool, Count, Fraction, Size
from seq2seq.config.section import Section, ignore

Decoder = Literal["bahdanau", "luong", "none"]
Score = Literal[
    "additive",
    "normed_additive",
    "coverage",
    "dot",
    "general",
    "concat",
    "scaled_dot",
    "location",
]
Window = Literal["local_m", "local_p"]
_BAHDANAUS_SCORES = ("additive", "normed_additive", "coverage")
_SIZED_SCORES = (*_BAHDANAUS_SCORES, "concat", "scaled_dot")
_DECIDED_BY = {"attention_size": "score", "attention_heads": "score", "window_width": "window"}
_USUAL_WIDTH = 10  # Luong et al. (2015), section 3.2


class ModelConfig(Section):
    """Which model, and its sizes; complete once made: what the decoder decides is filled in."""

    decoder: Decoder = "bahdanau"  # none: no attention, the last encoder state alone
    score: Score | None = None  # null: additive (bahdanau), general (luong)
    input_feeding: Bool | None = None  # luong only; null: true
    window: Window | None = None  # what a step may look at; null: the whole source
    window_width: Size | None = None  # positions on each side of its centre; null: 10
    embedding_size: Size = 256  # of both languages
    bidirectional: Bool = True  # each direction of the encoder then has half of hidden_size
    reverse_source: Bool = False  # an encoder of one direction reads from the end to the beginning
    hidden_size: Size = 512  # of the decoder and of the encoder's outputs
    attention_size: Size | None = None  # of scores that have one; null: hidden_size // 2
    attention_heads: Size | None = None  # scaled_dot only; null: one
    num_layers: Annotated[Count, Field(le=64)] = 1  # of the encoder and of the decoder
    dropout: Fraction = 0.3  # probability
    tie_embeddings: Bool = True  # the target embedding is also the projection to the vocabulary

    @field_validator("reverse_source")
    @classmethod
    def _reads_one_way(cls, reverse_source: bool, info: ValidationInfo) -> bool:
        if not (reverse_source and info.data.get("bidirectional")):
            return reverse_source
        reason = "needs bidirectional: false, since two directions read both ways already"
        ignore(("model", "reverse_source"), reverse_source, reason, info)
        return False

    @field_validator("hidden_size")
    @classmethod
    def _has_halves(cls, hidden_size: int, info: ValidationInfo) -> int:
        if info.data.get("bidirectional") and hidden_size % 2:
            raise ValueError("must be even where the encoder is bidirectional")
        return hidden_size

    @field_validator(
        "score", "input_feeding", "window", "window_width", "attention_size", "attention_heads"
    )
    @classmethod
    def _fit_to_decoder(cls, value: object, info: ValidationInfo) -> object:
        """Fill in what is unset; refuse what has no use, or drop it where a YAML file set it."""
        key, earlier = str(info.field_name), info.data
        if "decoder" not in earlier or _DECIDED_BY.get(key, "decoder") not in earlier:
            return value
        if value is None:
            return _model_default(key, earlier)
        reason = _why_unused(key, value, earlier)
        if reason is None:
            return value
        ignore(("model", key), value, reason, info)
        return _model_default(key, earlier)

    @field_validator("attention_heads")
    @classmethod
    def _share_alike(cls, heads: int | None, info: ValidationInfo) -> int | None:
        size = info.data.get("attention_size")
        if heads is not None and size is not None and size % heads:
            raise ValueError(f"must divide attention_size {size}")
        return heads


def _why_unused(key: str, value: object, earlier: Tree) -> str | None:
    """Why this decoder and score have no use for the value, or None where they have."""
    decoder, score = earlier["decoder"], earlier.get("score")
    if decoder == "none":
        return "decoder none has no attention"
    if key == "score" and decoder == "bahdanau" and value not in _BAHDANAUS_SCORES:
        return "decoder bahdanau takes the additive scores only"
    if key == "input_feeding" and decoder == "bahdanau":
        return "input feeding belongs to decoder luong"
    if key == "window_width" and earlier["window"] is None:
        return "no window is set"
    if key == "attention_size" and score not in _SIZED_SCORES:
        return f"score {score} has no size of its own"
    if key == "attention_heads" and score != "scaled_dot":
        return f"score {score} has no heads"
    return None


def _model_default(key: str, earlier: Tree) -> object:
    """What a key that follows from the decoder is where nobody sets it; None: it has no use."""
    decoder = earlier["decoder"]
    if key == "score":
        return {"bahdanau": "additive", "luong": "general", "none": None}[str(decoder)]
    if key == "input_feeding":
        return True if decoder == "luong" else None
    if key == "window_width":
        return None if earlier["window"] is None else _USUAL_WIDTH
    hidden_size = earlier.get("hidden_size")
    sized = key == "attention_size" and earlier["score"] in _SIZED_SCORES
    return max(1, hidden_size // 2) if sized and isinstance(hidden_size, int) else None
