"""The `model` section of a config: architecture and sizes."""

import warnings
from typing import Annotated, Literal

from pydantic import (
    ValidationInfo,
    field_validator,
)

from seq2seq.config.compound import Named
from seq2seq.config.compound_keys import (
    DROPOUT,
    LAYERS,
    SCORE,
    WINDOW,
    DropoutConfig,
    Layers,
    LocalWindow,
)
from seq2seq.config.document import Tree
from seq2seq.config.fields import (
    Bool,
    Section,
    Size,
    ignore,
    key,
)
from seq2seq.config.scores import ADDITIVE_SCORES, fits_bahdanau, is_sized

Decoder = Literal["bahdanau", "luong", "gnmt", "none"]
_DECIDED_BY = {"attention_size": "score"}


# The key `model.copy` hides a method that pydantic has deprecated.
warnings.filterwarnings("ignore", 'Field name "copy" in "ModelConfig"', UserWarning)


class ModelConfig(Section):
    """Architecture and sizes of the model; validation fills in the keys the decoder decides."""

    decoder: Decoder = key("bahdanau", "wiring of the decoder; none: reads the final encoder state")
    score: Annotated[Named, SCORE] | None = key(
        None,
        "attention score, with the number of heads {scaled_dot: 4}, or package.module:Class; null: "
        "additive, with luong general",
    )
    input_feeding: Bool | None = key(None, "feed h~ into the next step; luong only; null: true")
    window: Annotated[LocalWindow, WINDOW] | None = key(
        None,
        "local attention (Luong et al., 2015): local_m, local_p, or with the positions on each "
        "side of the centre, such as {local_p: 5}; null: global",
    )
    embedding_size: Size = key(256, "size of source and target embeddings")
    encoder: Literal["bidirectional", "forward", "reversed"] = key(
        "bidirectional",
        "bidirectional: both directions, each of hidden_size / 2; forward: left to right; "
        "reversed: right to left",
    )
    hidden_size: Size = key(512, "size of decoder states and of encoder outputs")
    attention_size: Size | None = key(
        None,
        "hidden layer of additive scores and concat, projections of scaled_dot; null: "
        "hidden_size // 2",
    )
    layers: Annotated[Layers, LAYERS] = key(
        Layers(1, 1),
        "layers of encoder and decoder, or such as {encoder: 1, decoder: 4, residual: true}: "
        "layers but the lowest add their input to their output",
    )
    cell: Literal["lstm", "layer_norm_lstm", "gru"] = key(
        "lstm",
        "layer_norm_lstm: with layer normalisation (Ba et al., 2016); gru: the gated unit of "
        "Bahdanau et al. (2015)",
    )
    maxout: Bool = key(
        False,
        "maxout output layer, reads the previous state (Bahdanau et al., 2015); bahdanau only",
    )
    dropout: Annotated[DropoutConfig, DROPOUT] = key(
        DropoutConfig(0.0, 0.2, 0.2, 0.2),
        "dropout probability, or such as {word: 0.1, embedding: 0.2, hidden: 0.2, output: 0.2}; "
        "word: of complete tokens",
    )
    tie_embeddings: Bool = key(True, "target embedding = projection, = source embedding if joint")
    copy: Bool = key(  # type: ignore[assignment]
        False, "copy source tokens by attention (See et al., 2017); needs vocabulary.joint"
    )

    @field_validator("hidden_size")
    @classmethod
    def _check_halves(cls, hidden_size: int, info: ValidationInfo) -> int:
        if info.data.get("encoder") == "bidirectional" and hidden_size % 2:
            raise ValueError("must be even with a bidirectional encoder")
        return hidden_size

    @field_validator("score", "input_feeding", "window", "attention_size")
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

    @field_validator("maxout")
    @classmethod
    def _check_maxout(cls, maxout: bool, info: ValidationInfo) -> bool:
        if not maxout or info.data.get("decoder", "bahdanau") == "bahdanau":
            return maxout
        ignore(("model", "maxout"), maxout, "the maxout layer belongs to decoder bahdanau", info)
        return False

    @field_validator("copy")
    @classmethod
    def _check_copying(cls, copy: bool, info: ValidationInfo) -> bool:
        if copy and info.data.get("decoder") == "none":
            raise ValueError("needs attention to copy by; set decoder to bahdanau, luong or gnmt")
        return copy

    @field_validator("attention_size")
    @classmethod
    def _check_heads(cls, size: int | None, info: ValidationInfo) -> int | None:
        if size is not None and (reason := _not_divided(size, info.data.get("score"))):
            raise ValueError(reason)
        return size

    @property
    def residual(self) -> bool:
        """Return whether each layer but the lowest adds its input to its output."""
        return self.layers.residual

    @property
    def heads(self) -> int:
        """Return the number of attention heads."""
        return int(self.score.parameter or 1) if self.score is not None else 1


def _why_unused(key: str, value: object, earlier: Tree) -> str | None:
    """Return why the key does not apply to this decoder and score, or None if it does."""
    decoder, score = earlier["decoder"], earlier.get("score")
    if decoder == "none":
        return "decoder none has no attention"
    if key == "score" and decoder == "bahdanau" and not fits_bahdanau(str(value)):
        return f"decoder bahdanau takes {', '.join(ADDITIVE_SCORES)}"
    if key == "input_feeding" and decoder != "luong":
        return "input feeding belongs to decoder luong"
    if key == "attention_size" and not is_sized(score):
        return f"score {score} has no attention size"
    return None


def _model_default(key: str, earlier: Tree) -> object:
    """Return the default of a decoder-dependent key; None if the key does not apply."""
    decoder = earlier["decoder"]
    if key == "score":
        defaults = {"bahdanau": "additive", "luong": "general", "gnmt": "additive", "none": None}
        default = defaults[str(decoder)]
        return None if default is None else Named(default)
    if key == "input_feeding":
        return True if decoder == "luong" else None
    hidden_size, score = earlier.get("hidden_size"), earlier.get("score")
    if key != "attention_size" or not is_sized(score) or not isinstance(hidden_size, int):
        return None
    size = max(1, hidden_size // 2)
    if reason := _not_divided(size, score):
        raise ValueError(f"attention_size {reason}; it is {size}, half of hidden_size, by default")
    return size


def _not_divided(size: int, score: object) -> str | None:
    """Return why the heads of a score cannot share an attention size, or None if they can."""
    heads = score.parameter if isinstance(score, Named) else None
    if not heads or size % heads == 0:
        return None
    return f"must be a multiple of the {heads} heads of {{scaled_dot: {heads}}}"
