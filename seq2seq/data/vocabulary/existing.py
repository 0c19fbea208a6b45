"""Vocabularies from existing SentencePiece models, with the special tokens that models need here.

The tokens keep their order and their segmentation. Before them come padding, unknown, start and end
of sentence (ids 0 to 3), whatever their ids and names were; behind them bytes, by which unseen
characters are spelled, and symbols, as far as the model has none.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary.vocabulary import (
    Vocabularies,
    Vocabulary,
    read_model,
    rules_of,
)
from seq2seq.names.words import PLACEHOLDERS
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import check_paths, check_readable, read_bounded

if TYPE_CHECKING:
    from seq2seq.config.schema import VocabularyConfig

MAX_MODEL_BYTES = 1 << 26
_SPECIAL = "<pad>", "<unk>", "<s>", "</s>"  # in the order of their ids
_KEY = "vocabulary.model"
UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6  # ModelProto.SentencePiece.Type
_WORD, _CHAR = 3, 4  # TrainerSpec.ModelType


class Token(NamedTuple):
    """A token of a model, its score, and its type, such as BYTE."""

    piece: str
    score: float
    type: int


def existing_vocabularies(config: "VocabularyConfig", tags: Sequence[str] = ()) -> Vocabularies:
    """Read the models of a config: one for both sides, or one for each. Tags are of the source.

    Raises UserError if a file is not a SentencePiece model, or one that cannot be used.
    """
    src = _read(config.model[0], config, tags)
    if config.joint:
        return Vocabularies(src, src)
    return Vocabularies(src, _read(config.model[-1], config))


def check_same_models(
    config: "VocabularyConfig", vocabularies: Vocabularies, tags: Sequence[str] = ()
) -> None:
    """Raise UserError if a model, where its file still exists, is not that of the vocabularies."""
    if not (config.model and all(path.exists() for path in config.model)):
        return
    models = [side.model for side in existing_vocabularies(config, tags)[:2]]
    if models != [side.model for side in vocabularies[:2]]:
        names = " and ".join(map(str, config.model))
        raise UserError(
            f"{_KEY}: {names} is not what the run was started with; restore it, or start a new run"
        )


def checksums_of_models(config: "VocabularyConfig") -> list[str]:
    """Return the SHA-256 of the files of the models."""
    return [hashlib.sha256(_content(path)).hexdigest() for path in config.model]


def notes_on_models(config: "VocabularyConfig", vocabularies: Vocabularies) -> list[str]:
    """Describe the models, and the tokens that they lacked, for the log."""
    notes = []
    for path, vocabulary in zip(config.model, vocabularies[:2], strict=False):
        model = read_model(_content(path))
        tokens, rules = len(model.pieces), rules_of(model)
        added = len(vocabulary) - tokens
        more = f"; {added:,} added (special tokens, bytes, symbols)" if added else ""
        normalized = "" if rules == "identity" else f", text normalized by {rules}"
        notes.append(f"{_KEY}: {path}, {tokens:,} tokens{more}{normalized}")
    return notes


def _read(path: Path, config: "VocabularyConfig", tags: Sequence[str] = ()) -> Vocabulary:
    content = _content(path)
    try:
        Vocabulary(content)
        model = read_model(content)
    except RuntimeError:
        hint = "; give the .model file beside it" if path.suffix == ".vocab" else ""
        raise UserError(f"{_KEY}: {path} is not a SentencePiece model{hint}") from None
    if (problem := _problem(model, config)) is not None:
        raise UserError(f"{_KEY}: {path} {problem}")
    symbols = [SPACE + symbol for symbol in dict.fromkeys((*tags, *config.symbols))]
    if model.trainer_spec.model_type != _WORD:
        symbols += config.symbols
    tokens = _with_symbols([*_tokens(model, config)], symbols)
    return Vocabulary(_with_tokens(model, tokens), config.sampling)


def _content(path: Path) -> bytes:
    check_paths(path)
    check_readable(path)
    try:
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise UserError(f"{_KEY}: {path} is not a file")
        return read_bounded(path, MAX_MODEL_BYTES)
    except FileNotFoundError:
        raise UserError(f"{_KEY}: {path}: no such file") from None
    except OSError as error:
        raise UserError(f"{_KEY}: {path} cannot be read ({error.strerror or error})") from None


def _problem(model: Any, config: "VocabularyConfig") -> str | None:
    """Return why a model cannot be used, or None."""
    rules, kind = model.normalizer_spec, model.trainer_spec.model_type
    if (
        not (rules.add_dummy_prefix and rules.escape_whitespaces)
        or model.trainer_spec.treat_whitespace_as_suffix
    ):
        return (
            "does not put a space before the first word, as add_dummy_prefix=true, "
            "escape_whitespaces=true and treat_whitespace_as_suffix=false do; train it so"
        )
    ordinary = [token.piece for token in model.pieces if not _is_special(token, model)]
    if taken := [name for name in _SPECIAL if name in ordinary]:
        return f"has {taken[0]} as an ordinary token; it must be a special one"
    if kind == _WORD and config.masks_names:
        return "has words as tokens, which vocabulary.names: placeholders cannot use"
    if config.sampling > 0:
        if kind in (_WORD, _CHAR):
            return "has a single segmentation; set vocabulary.sampling: 0"
        if any(SPACE in text[1:].lstrip(SPACE) for text in ordinary):
            return "has tokens of several words; set vocabulary.sampling: 0"
    return None


def _is_special(token: Any, model: Any) -> bool:
    names = model.trainer_spec
    special = names.unk_piece, names.bos_piece, names.eos_piece, names.pad_piece
    return token.type == UNKNOWN or (token.type == CONTROL and token.piece in special)


def _tokens(model: Any, config: "VocabularyConfig") -> Iterator[Token]:
    """Yield special tokens, placeholders of names, the model's other tokens, and bytes."""
    for name in _SPECIAL:
        yield Token(name, 0.0, UNKNOWN if name == "<unk>" else CONTROL)
    marks = PLACEHOLDERS if config.masks_names else ()
    yield from (Token(mark, 0.0, USER_DEFINED) for mark in marks)
    for token in model.pieces:
        if not _is_special(token, model) and token.piece not in marks:
            yield Token(token.piece, token.score, token.type)
    has_bytes = any(token.type == BYTE for token in model.pieces)
    if model.trainer_spec.model_type != _WORD and not has_bytes:
        texts = {token.piece for token in model.pieces}
        names = (f"<0x{byte:02X}>" for byte in range(256))
        yield from (Token(name, 0.0, BYTE) for name in names if name not in texts)


def _with_tokens(model: Any, tokens: Sequence[Token]) -> bytes:
    """Serialize a model with other tokens; the first are pad, unk, bos and eos."""
    del model.pieces[:]
    for token in tokens:
        model.pieces.add(**token._asdict())
    model.DiscardUnknownFields()  # such as the expected tokens of examples, which may change
    settings = model.trainer_spec
    settings.vocab_size = len(tokens)
    settings.byte_fallback = any(token.type == BYTE for token in tokens)
    for number, name in enumerate(("pad", "unk", "bos", "eos")):
        setattr(settings, f"{name}_id", number)
        setattr(settings, f"{name}_piece", tokens[number].piece)
    return bytes(model.SerializeToString(deterministic=True))


def _with_symbols(tokens: list[Token], symbols: Sequence[str]) -> list[Token]:
    """Make tokens user-defined if they are symbols, and add the symbols that are missing."""
    places = {token.piece: n for n, token in enumerate(tokens)}
    for text in symbols:
        if text in places:
            tokens[places[text]] = Token(text, 0.0, USER_DEFINED)
        else:
            tokens.append(Token(text, 0.0, USER_DEFINED))
    return tokens
