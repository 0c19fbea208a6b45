"""The sections `data` and `vocabulary` of a config: files of the splits, and segmentation."""

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import core_schema

from seq2seq.config import fields
from seq2seq.config.fields import Bool, Count, FilePath, Fraction, NonEmptyStr, NotNegative, key
from seq2seq.runtime.file_types import is_column_number, table_format

_SIZE_SCHEMA = {"type": "integer", "minimum": 16, "maximum": 1_000_000}


def split_list(value: object) -> object:
    """Read text, as of an override, as a list, in which commas separate entries."""
    return [entry.strip() for entry in value.split(",")] if isinstance(value, str) else value


_TAG = re.compile(r"<[!-;=?-~]+>")
SPECIAL = re.compile(r"<(pad|unk|s|/s|0x[0-9A-Fa-f]{2})>")  # tokens of every vocabulary
_COLUMNS = {
    "anyOf": [
        {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 2, "maxItems": 2},
        {"type": ["string", "null"]},
    ]
}


class ParallelFiles(fields.Section):
    """Parallel text: two line-aligned files, or one file with both sides."""

    src: FilePath | None = key(None, "source text, one sentence per line; may be compressed")
    tgt: FilePath | None = key(None, "target text; line n translates line n of src")
    file: FilePath | None = key(
        None, "instead of both: CSV or JSON lines by its ending, otherwise TSV"
    )
    columns: Annotated[
        list[NonEmptyStr] | None, BeforeValidator(split_list), WithJsonSchema(_COLUMNS)
    ] = key(None, "two columns of file, by name or number; null: [1, 2], or the language codes")

    tag: NonEmptyStr | None = key(
        None, "token put before each source line, such as <bt> for back-translations"
    )

    @field_validator("file")
    @classmethod
    def _check_form(cls, file: Path | None, info: ValidationInfo) -> Path | None:
        if not {"src", "tgt"} <= info.data.keys():
            return file
        sides = [info.data["src"] is not None, info.data["tgt"] is not None]
        if any(sides) if file else not all(sides):
            raise ValueError("set either src and tgt, or file alone (null unsets a key)")
        if all(sides) and info.data["src"] == info.data["tgt"]:
            raise ValueError("src and tgt are the same file; set tgt to the translation")
        return file

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: list[str] | None, info: ValidationInfo) -> list[str] | None:
        if columns is None or "file" not in info.data:
            return columns
        if info.data["file"] is None:
            raise ValueError("belongs to file; swap src and tgt to reverse the direction")
        if len(columns) != 2 or columns[0] == columns[1]:
            raise ValueError("give two columns, source and target, such as [english, german]")
        numbers = [*map(is_column_number, columns)]
        if any(numbers) and (not all(numbers) or "0" in columns):
            raise ValueError("give two names, or two numbers from 1 on")
        if any(numbers) and table_format(info.data["file"]) == "json":
            raise ValueError(f"{info.data['file']} has names, not numbers, of columns")
        return columns

    @field_validator("tag")
    @classmethod
    def _check_tag(cls, tag: str | None) -> str | None:
        if tag is not None and (not _TAG.fullmatch(tag) or SPECIAL.fullmatch(tag)):
            raise ValueError("must be a name in angle brackets, such as <bt>, but no special token")
        return tag

    @property
    def paths(self) -> dict[str, Path]:
        """Return the paths that are set, by key."""
        paths = {key: getattr(self, key, None) for key in ("src", "tgt", "file", "alignment")}
        return {key: path for key, path in paths.items() if path is not None}

    @property
    def column_names(self) -> list[str] | None:
        """Return the columns that are read, None if they are given by number or not at all."""
        has_names = self.columns is not None and not is_column_number(self.columns[0])
        return self.columns if has_names else None

    @property
    def is_table(self) -> bool:
        """Return whether this is one file of tab-separated columns."""
        return self.file is not None and table_format(self.file) == "tsv"


class Corpus(ParallelFiles):
    """Parallel text to train on; `data.train` is one of these or a list."""

    weight: fields.Positive = key(
        1.0, "pairs per epoch: all of the corpus of the largest weight, of others in proportion"
    )
    alignment: FilePath | None = key(
        None, "word alignments in Pharaoh form, such as 0-0 1-2, for losses: guided_alignment"
    )


def _as_corpora(value: object) -> object:
    """Read a single corpus as a list of one."""
    if isinstance(value, ParallelFiles) and not isinstance(value, Corpus):
        return [Corpus.model_validate(value.model_dump())]
    if isinstance(value, list | tuple):
        if not value:
            raise ValueError("give a corpus, or a list of them")
        return list(value)
    return [value]


def _dump_corpora(corpora: tuple[Corpus, ...]) -> object:
    """Write a list of one as a single corpus."""
    trees = [corpus.model_dump() for corpus in corpora]
    return trees[0] if len(trees) == 1 else trees


class DataConfig(fields.Section):
    """Languages and files of the training, validation and test text."""

    src_lang: NonEmptyStr = Field(description="code of the source language, such as en")
    tgt_lang: NonEmptyStr = Field(description="code of the target language, such as de")
    train: Annotated[
        tuple[Corpus, ...], BeforeValidator(_as_corpora), PlainSerializer(_dump_corpora)
    ] = Field(
        description="training text: a corpus, {src: FILE, tgt: FILE} or "
        "{file: FILE}, or a list of them, each with weight and tag"
    )
    valid: ParallelFiles = Field(description="validation text, which selects the best weights")
    test: ParallelFiles | None = key(None, "test text, for the final score only")
    max_length: Count = key(100, "tokens per side; longer pairs are skipped, longer lines split")

    @field_validator("train", "valid", "test")
    @classmethod
    def _name_columns(cls, files: Any, info: ValidationInfo) -> Any:
        """Take the language codes as names of columns where none are given."""
        if isinstance(files, tuple):
            return tuple(cls._name_columns(corpus, info) for corpus in files)
        languages = [info.data.get("src_lang"), info.data.get("tgt_lang")]
        is_unnamed = files is not None and files.file is not None and files.columns is None
        if not is_unnamed or files.is_table or None in languages:
            return files
        return files.model_copy(update={"columns": languages})

    @property
    def direction(self) -> str:
        """Return the translation direction, such as "en to de"."""
        return f"{self.src_lang} to {self.tgt_lang}"

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the tags of all texts."""
        splits = (*self.train, self.valid, self.test)
        return tuple(dict.fromkeys(text.tag for text in splits if text and text.tag))

    def paths(self) -> list[Path]:
        """Return the paths of all files."""
        files = (*self.train, self.valid, self.test)
        return [path for text in files if text is not None for path in text.paths.values()]


def files_by_name(data: DataConfig) -> dict[str, ParallelFiles]:
    """Return the files of each split; several training corpora are "train 1", "train 2", ..."""
    corpora = enumerate(data.train, start=1)
    train = {f"train {n}" if len(data.train) > 1 else "train": corpus for n, corpus in corpora}
    test = {} if data.test is None else {"test": data.test}
    return {**train, "valid": data.valid, **test}


class NamesConfig(fields.Shorthand):
    """Treatment of names of people and places."""

    TAKES_SECOND: ClassVar[tuple[str, ...]] = ("invented",)

    kind: Literal["placeholders", "invented"] = Field(
        description="placeholders, spelled in the target's script, or invented names in training"
    )
    rate: Fraction = key(0.5, "probability to replace a name that both sides share")
    list: FilePath | None = key(
        None, "for placeholders: further names in the target's script, one a line"
    )

    @classmethod
    def expand(cls, value: object) -> object:
        """Return the keys that a value sets; `{placeholders: FILE}` sets the list."""
        if isinstance(value, Mapping) and value.keys() == {"placeholders"}:
            return {"kind": "placeholders", "list": value["placeholders"]}
        return super().expand(value)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = super().__get_pydantic_json_schema__(core, handler)
        _, pair, complete = schema["anyOf"]
        pair["properties"] = {**pair["properties"], "placeholders": complete["properties"]["list"]}
        return schema

    @field_validator("list")
    @classmethod
    def _check_list(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is not None and info.data.get("kind") == "invented":
            raise ValueError("belongs to placeholders, which are spelled with its help")
        return path


class VocabularyConfig(fields.Section):
    """Segmentation of text into tokens."""

    type: Literal["unigram", "bpe", "word", "char"] = key(
        "unigram", "subwords, words or characters"
    )
    size: Annotated[
        Annotated[fields.Int, Field(ge=16, le=1_000_000)] | None,
        BeforeValidator(fields.read_auto),
        PlainSerializer(fields.dump_auto),
        WithJsonSchema({"anyOf": [_SIZE_SCHEMA, {"const": "auto"}]}),
    ] = key("auto", "tokens, special ones included, or auto: as many as suit the training text")
    model: Annotated[tuple[FilePath, ...], Field(max_length=2), BeforeValidator(split_list)] = key(
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
        "placeholders: translate names as placeholders, spelled in the target's script, or "
        "{placeholders: FILE}: with the help of a list of names, one a line; invented, or "
        "{invented: 0.3}: replace names that both sides share by invented ones in training, with "
        "this probability",
    )

    @field_validator("joint")
    @classmethod
    def _check_models(cls, joint: bool, info: ValidationInfo) -> bool:
        if len(info.data.get("model", ())) == 2 and joint:
            raise ValueError("must be false with two models; a joint vocabulary has one")
        return joint

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
    def listed_names(self) -> Path | None:
        """Return the file of further names in the target's script, if any."""
        return self.names.list if self.names is not None and self.masks_names else None

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
