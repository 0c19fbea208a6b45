"""The `model` section of a config: architecture and sizes."""

import re
import warnings
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from seq2seq.config.fields import Bool, Count, Fraction, Section, Shorthand, Size, ignore, key

Decoder = Literal["bahdanau", "luong", "gnmt", "none"]
ATTENTIONAL = ", ".join(name for name in get_args(Decoder) if name != "none")
_ADDITIVE_SCORES = ("additive", "normed_additive", "coverage")
_SIZED_SCORES = (*_ADDITIVE_SCORES, "concat", "scaled_dot")
_SCORES = (*_ADDITIVE_SCORES, "dot", "general", "concat", "scaled_dot", "location")
_EXTERNAL = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"  # package.module:Class
_DECIDED_BY = {"attention_size": "score"}


def _check_score(name: str) -> str:
    """Refuse a string that is neither a score of the package nor the name of a class."""
    if name in _SCORES or re.fullmatch(_EXTERNAL, name, re.ASCII):
        return name
    expected = f"{', '.join(map(repr, _SCORES))} or a class such as my_scores:Cosine"
    raise PydanticCustomError("literal_error", "must be {expected}", {"expected": expected})


class ScoreConfig(Shorthand):
    """Attention score, and the heads of scaled_dot."""

    TAKES_SECOND: ClassVar[tuple[str, ...]] = ("scaled_dot",)

    name: Annotated[
        str,
        AfterValidator(_check_score),
        WithJsonSchema(
            {"anyOf": [{"enum": [*_SCORES]}, {"type": "string", "pattern": f"^{_EXTERNAL}$"}]}
        ),
    ] = Field(description="a score of the package, or package.module:Class")
    heads: Size = key(1, "number of attention heads, which share attention_size")

    @property
    def is_external(self) -> bool:
        """Return whether the score is a class outside of the package."""
        return ":" in self.name

    @property
    def is_sized(self) -> bool:
        """Return whether the score takes `attention_size`."""
        return self.name in _SIZED_SCORES or self.is_external

    @property
    def fits_bahdanau(self) -> bool:
        """Return whether the decoder of Bahdanau et al. takes the score."""
        return self.name in _ADDITIVE_SCORES or self.is_external


class WindowConfig(Shorthand):
    """Window of local attention."""

    kind: Literal["local_m", "local_p"] = Field(
        description="local_m: moves by one position a step; local_p: its centre is predicted"
    )
    width: Size = key(10, "positions on each side of the centre: D of Luong et al. (2015)")


class LayersConfig(Shorthand):
    """Numbers of layers of encoder and decoder."""

    SHARED: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    encoder: Annotated[Count, Field(le=64)] = key(1, "layers of the encoder")
    decoder: Annotated[Count, Field(le=64)] = key(1, "layers of the decoder")
    residual: Bool = key(False, "layers but the lowest add their input to their output")


class DropoutConfig(Shorthand):
    """Dropout probabilities of the parts of the network."""

    SHARED: ClassVar[tuple[str, ...]] = ("embedding", "hidden", "output")

    word: Fraction = key(0.0, "of complete tokens, in source and target")
    embedding: Fraction = key(0.2, "of each entry of the embeddings")
    hidden: Fraction = key(0.2, "of outputs of layers that other layers and the attention read")
    output: Fraction = key(0.2, "of the decoder's output layer")


# The key `model.copy` hides a method that pydantic has deprecated.
warnings.filterwarnings("ignore", 'Field name "copy" in "ModelConfig"', UserWarning)


class ModelConfig(Section):
    """Architecture and sizes of the model; validation fills in the keys the decoder decides."""

    decoder: Decoder = key(
        "bahdanau",
        "bahdanau: attends with the state before a step; luong: with the state after it; gnmt: all "
        "layers read what the lowest attends to; none: no attention, reads the final encoder state",
    )
    score: ScoreConfig | None = key(
        None,
        "attention score, with the number of heads {scaled_dot: 4}, or package.module:Class; null: "
        "additive, with luong general",
    )
    input_feeding: Bool | None = key(None, "feed h~ into the next step; luong only; null: true")
    window: WindowConfig | None = key(
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
    layers: LayersConfig = key(
        1,
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
    dropout: DropoutConfig = key(
        0.2,
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
        key = str(info.field_name)
        data = info.data
        if "decoder" not in data or _DECIDED_BY.get(key, "decoder") not in data:
            return value
        if value is not None:
            reason = _why_unused(key, value, data)
            if reason is None:
                return value
            ignore(("model", key), value, reason, info)
        return _model_default(key, data)

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
            raise ValueError(f"needs attention to copy by; set decoder to one of {ATTENTIONAL}")
        return copy

    @field_validator("attention_size")
    @classmethod
    def _check_heads(cls, size: int | None, info: ValidationInfo) -> int | None:
        if size is not None and (reason := _not_divided(size, info.data.get("score"))):
            raise ValueError(reason)
        return size


def _why_unused(key: str, value: object, data: dict[str, Any]) -> str | None:
    """Return why the key does not apply to this decoder and score, or None if it does."""
    decoder = data["decoder"]
    score = data.get("score")
    if decoder == "none":
        return "decoder none has no attention"
    if isinstance(value, ScoreConfig) and decoder == "bahdanau" and not value.fits_bahdanau:
        return f"decoder bahdanau takes {', '.join(_ADDITIVE_SCORES)}"
    if key == "input_feeding" and decoder != "luong":
        return "input feeding belongs to decoder luong"
    if key == "attention_size" and score is not None and not score.is_sized:
        return f"score {score.name} has no attention size"
    return None


def _model_default(key: str, data: dict[str, Any]) -> object:
    """Return the default of a decoder-dependent key; None if the key does not apply."""
    decoder = data["decoder"]
    score = data.get("score")
    if key == "score" and decoder != "none":
        return ScoreConfig(name="general" if decoder == "luong" else "additive")
    if key == "input_feeding":
        return True if decoder == "luong" else None
    is_sized = key == "attention_size" and score is not None and score.is_sized
    if not is_sized or "hidden_size" not in data:
        return None
    size = max(1, data["hidden_size"] // 2)
    if reason := _not_divided(size, score):
        raise ValueError(f"attention_size {reason}; it is {size}, half of hidden_size, by default")
    return size


def _not_divided(size: int, score: ScoreConfig | None) -> str | None:
    """Return why the heads of a score cannot share an attention size, or None if they can."""
    if score is None or size % score.heads == 0:
        return None
    return f"must be a multiple of the {score.heads} heads of {{scaled_dot: {score.heads}}}"
