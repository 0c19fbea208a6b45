"""SentencePiece model files: their tokens and settings, read and rearranged as protobuf fields.

A file is a `ModelProto` message of sentencepiece_model.proto. Only the fields named here are read;
the others are kept as they are. (The protobuf package would be a dependency for these few lines.)
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # ModelProto.SentencePiece.Type
UNIGRAM, BPE, WORD, CHAR = range(1, 5)  # TrainerSpec.ModelType
_VARINT, _FIXED64, _TEXT, _FIXED32 = 0, 1, 2, 5  # wire types
_TOKENS, _TRAINER, _NORMALIZER, _SELF_TEST = 1, 2, 3, 4  # fields of ModelProto
_MODEL_TYPE, _VOCAB_SIZE, _SUFFIX, _BYTE_FALLBACK = 3, 4, 24, 35  # fields of TrainerSpec
_IDS, _NAMES = range(40, 44), range(45, 49)  # fields of TrainerSpec: unk, bos, eos, pad
_NAME, _CHARSMAP, _DUMMY_PREFIX, _ESCAPE = 1, 2, 3, 5  # fields of NormalizerSpec
_DEFAULT_NAMES = "<unk>", "<s>", "</s>", "<pad>"


class Token(NamedTuple):
    """A token of a model, its score, and its type, such as NORMAL."""

    text: str
    score: float
    type: int


class ModelFile(NamedTuple):
    """Tokens of a model file, and its settings of normalization and segmentation."""

    tokens: list[Token]
    type: int  # UNIGRAM, BPE, WORD or CHAR
    special: tuple[str, ...]  # names of unk, bos, eos and pad
    normalizer: str  # name of the normalization rules; "identity" without any
    space_first: bool  # a space belongs to the word after it, and starts the text
    rest: bytes  # fields that are kept


def read_model_file(model: bytes) -> ModelFile:
    """Read a serialized model; raises ValueError if it is not one."""
    tokens, rest = [], []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for field, value, raw in _fields(model):
        if field == _TOKENS and isinstance(value, bytes):
            tokens.append(_read_token(value))
            continue
        for number, settings in ((_TRAINER, trainer), (_NORMALIZER, normalizer)):
            if field == number and isinstance(value, bytes):
                settings.update({name: each for name, each, _ in _fields(value)})
        if field != _SELF_TEST:  # expected tokens of examples, which may change
            rest.append(raw)
    special = [_text(trainer.get(f, d.encode())) for f, d in zip(_NAMES, _DEFAULT_NAMES)]  # noqa: B905
    return ModelFile(
        tokens,
        _number(trainer.get(_MODEL_TYPE, UNIGRAM)),
        tuple(special),
        _text(normalizer.get(_NAME, b"")) if normalizer.get(_CHARSMAP) else "identity",
        bool(
            normalizer.get(_DUMMY_PREFIX, 1)
            and normalizer.get(_ESCAPE, 1)
            and not trainer.get(_SUFFIX, 0)
        ),
        b"".join(rest),
    )


def user_defined(model: bytes) -> dict[str, int]:
    """Return the ids of the user-defined tokens of a serialized model."""
    tokens = read_model_file(model).tokens
    return {token.text: i for i, token in enumerate(tokens) if token.type == USER_DEFINED}


def write_model_file(file: ModelFile, tokens: Iterable[Token], byte_fallback: bool) -> bytes:
    """Serialize a model with other tokens; the first are pad, unk, bos and eos."""
    tokens = list(tokens)
    pad, unk, bos, eos = (token.text for token in tokens[:4])
    settings = _varint(_VOCAB_SIZE, len(tokens)) + _varint(_BYTE_FALLBACK, int(byte_fallback))
    for field, number in zip(_IDS, (1, 2, 3, 0), strict=True):
        settings += _varint(field, number)
    for field, name in zip(_NAMES, (unk, bos, eos, pad), strict=True):
        settings += _delimited(field, name.encode())
    # A message that occurs twice is merged: the last value of a field counts.
    parts = [*(_delimited(_TOKENS, _written(token)) for token in tokens), file.rest]
    return b"".join(parts) + _delimited(_TRAINER, settings)


def _read_token(message: bytes) -> Token:
    text, score, kind = "", 0.0, NORMAL
    for field, value, _ in _fields(message):
        if field == 1:
            text = _text(value)
        elif field == 2 and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif field == 3:
            kind = _number(value)
    return Token(text, score, kind)


def _written(token: Token) -> bytes:
    score = _key(2, _FIXED32) + struct.pack("<f", token.score)
    return _delimited(1, token.text.encode()) + score + _varint(3, token.type)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes, bytes]]:
    """Yield the number, the value and the bytes of each field; raises ValueError if malformed."""
    place = 0
    while place < len(message):
        start = place
        key, place = _read_varint(message, place)
        field, wire = key >> 3, key & 7
        value: int | bytes
        if wire == _VARINT:
            value, place = _read_varint(message, place)
        else:
            size = {_FIXED32: 4, _FIXED64: 8}.get(wire)
            if wire == _TEXT:
                size, place = _read_varint(message, place)
            if size is None or place + size > len(message):
                raise ValueError("it is not a protobuf message")
            value = message[place : place + size]
            place += size
        yield field, value, message[start:place]


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while place < len(message) and shift < 64:
        byte = message[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place
    raise ValueError("it is not a protobuf message")


def _varint(field: int, number: int) -> bytes:
    return _key(field, _VARINT) + _encoded(number)


def _delimited(field: int, content: bytes) -> bytes:
    return _key(field, _TEXT) + _encoded(len(content)) + content


def _key(field: int, wire: int) -> bytes:
    return _encoded(field << 3 | wire)


def _encoded(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def _text(value: int | bytes) -> str:
    if not isinstance(value, bytes):
        raise ValueError("a name in it is a number")
    return value.decode()


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("a number in it is text")
    return value
