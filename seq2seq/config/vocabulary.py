"""The `vocabulary` section of a config: segmentation of text into tokens."""

import re
import unicodedata
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from seq2seq.config.corpora import SPECIAL, split_list
from seq2seq.config.fields import (
    Bool,
    FilePath,
    Fraction,
    Int,
    NonEmptyStr,
    NotNegative,
    Section,
    Shorthand,
    dump_auto,
    key,
    read_auto,
)

_SIZE_SCHEMA = {"type": "integer", "minimum": 16, "maximum": 1_000_000}


class NamesConfig(Shorthand):
    """Treatment of names of people and places."""

    TAKES_SECOND: ClassVar[tuple[str, ...]] = ("invented",)

    kind: Literal["placeholders", "invented"] = Field(
        description="placeholders, spelled in the target's script, or invented names in training"
    )
    rate: Fraction = key(0.5, "probability to replace a name that both sides share")


class VocabularyConfig(Section):
    """Segmentation of text into tokens."""

    type: Literal["unigram", "bpe", "word", "char"] = key(
        "unigram", "subwords, words or characters"
    )
    size: Annotated[
        Annotated[Int, Field(ge=16, le=1_000_000)] | None,
        BeforeValidator(read_auto),
        PlainSerializer(dump_auto),
        WithJsonSchema({"anyOf": [_SIZE_SCHEMA, {"const": "auto"}]}),
    ] = key("auto", "tokens, special ones included, or auto: as many as suit the training text")
    model: Annotated[tuple[FilePath, ...], BeforeValidator(split_list)] = key(
        (), "existing SentencePiece models in place of type and size: one, or source and target"
    )
    joint: Bool = key(True, "share one vocabulary between both languages")
    sampling: Annotated[NotNegative, Field(le=1)] = key(
        0.0, "subword regularisation: unigram exponent, or rate of BPE-dropout; 0: off"
    )

    symbols: Annotated[tuple[NonEmptyStr, ...], BeforeValidator(split_list)] = key(
        (), "strings such as <2fr> or <num> that are one token each, which nothing splits"
    )
    names: NamesConfig | None = key(
        None,
        "placeholders: translate names as placeholders, spelled in the target's script; invented, "
        "or {invented: 0.3}: replace names that both sides share by invented ones in training, "
        "with this probability",
    )

    @field_validator("joint")
    @classmethod
    def _check_models(cls, joint: bool, info: ValidationInfo) -> bool:
        if len(info.data.get("model", ())) == 2 and joint:
            raise ValueError("must be false with two models; a joint vocabulary has one")
        return joint

    @field_validator("model")
    @classmethod
    def _count_models(cls, models: tuple[Path, ...]) -> tuple[Path, ...]:
        if len(models) > 2:
            raise ValueError("give one model, or two: source and target")
        return models

    @field_validator("symbols")
    @classmethod
    def _check_symbols(cls, symbols: tuple[str, ...]) -> tuple[str, ...]:
        for symbol in symbols:
            if SPECIAL.fullmatch(symbol):
                raise ValueError(f"{symbol} is a special token of every vocabulary; rename it")
            if not symbol.isprintable() or len(symbol) > 100 or re.search(r"[\s\u2581]", symbol):
                raise ValueError(f"{symbol!r} must be visible characters without a space")
            if unicodedata.normalize("NFC", symbol) != symbol:
                raise ValueError(f"{symbol} is not in Unicode's form NFC, in which text is read")
        if repeated := [word for n, word in enumerate(symbols) if word in symbols[:n]]:
            raise ValueError(f"{repeated[0]} occurs twice; remove one")
        return symbols

    @field_validator("names")
    @classmethod
    def _check_names(cls, names: NamesConfig | None, info: ValidationInfo) -> NamesConfig | None:
        if names is not None and names.kind == "placeholders" and info.data.get("type") == "word":
            raise ValueError("type word cannot split an ending off a name; use a subword type")
        return names

    @property
    def masks_names(self) -> bool:
        """Return whether names are placeholders in the text of the vocabulary."""
        return self.names is not None and self.names.kind == "placeholders"

    @property
    def invented_names(self) -> float:
        """Return the probability to replace a name that both sides share by an invented one."""
        return 0.0 if self.names is None or self.masks_names else self.names.rate

    @field_validator("sampling")
    @classmethod
    def _check_sampling(cls, sampling: float, info: ValidationInfo) -> float:
        kind = info.data.get("type")
        if sampling > 0 and kind in ("word", "char"):
            raise ValueError(f"must be 0 with type {kind}, which has a single segmentation")
        return sampling
