"""Vocabularies trained on a text with SentencePiece, or made of existing models.

The tokens of an existing model keep their order and their segmentation. Before them come padding,
unknown, start and end of sentence (ids 0 to 3), whatever their ids and names were; behind them
bytes, by which unseen characters are spelled, and symbols, as far as the model has none.
"""

import hashlib
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import sentencepiece

from seq2seq.data.vocabulary import vocabulary
from seq2seq.data.vocabulary.vocabulary import Vocabularies, Vocabulary
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import check_paths, read_bounded
from seq2seq.text.characters import SPACE, normalized
from seq2seq.text.names.name_list import read_names
from seq2seq.text.names.names import learn_names
from seq2seq.text.names.words import PLACEHOLDERS, any_of
from seq2seq.text.sample import sample_of

if TYPE_CHECKING:
    from seq2seq.config.schema import VocabularyConfig

MIN_SIZE = 4 + 256  # special tokens and bytes
MAX_AUTO_SIZE = 32_000
MAX_TRAINING_PAIRS = 300_000  # more cost time and memory without a better vocabulary
_TOO_LARGE = re.compile(r"value <= (\d+)")
_TOO_SMALL = re.compile(r"required_chars\. \d+ vs (\d+)")
MAX_MODEL_BYTES = 1 << 26
_SPECIAL = "<pad>", "<unk>", "<s>", "</s>"  # in the order of their ids
_KEY = "vocabulary.model"
UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6  # ModelProto.SentencePiece.Type
_WORD = 3  # TrainerSpec.ModelType


def train_vocabularies(
    config: "VocabularyConfig", src: Sequence[str], tgt: Sequence[str], tags: Sequence[str] = ()
) -> Vocabularies:
    """Train the vocabularies of both sides on MAX_TRAINING_PAIRS pairs at most.

    Tags of the source are single tokens, which no segmentation splits. Existing models of the
    config are read instead. Raises UserError if these cannot be used, or if the text does not allow
    a vocabulary of the configured size.
    """
    pairs = len(src)
    src, tgt = (sample_of(side, MAX_TRAINING_PAIRS) for side in (src, tgt))
    names = None
    if config.masks_names:
        src, tgt = ([normalized(text) for text in side] for side in (src, tgt))
        listed = {} if config.listed_names is None else read_names(config.listed_names)
        names = learn_names(src, tgt, config.symbols, listed)
        src, tgt = vocabulary.mask_names(names, src, tgt)
    if config.model:
        return existing_vocabularies(config, tags)._replace(names=names)
    sides = {"this": [*src, *tgt]} if config.joint else {"the source": src, "the target": tgt}
    trained = []
    for side, texts in sides.items():
        try:
            sentences = [normalized(text) for text in texts]
            if config.symbols and config.type == "word":  # to which symbols are words
                symbol = any_of(config.symbols)
                sentences = [symbol.sub(r" \g<0> ", text) for text in sentences]
            marked = () if side == "the target" else tags
            if config.size is None:
                trained.append(_train_fitting(config, sentences, marked, pairs))
            else:
                trained.append(_train(config, sentences, marked, config.size))
        except RuntimeError as error:
            size = "auto" if config.size is None else config.size
            raise UserError(f"vocabulary.size: {size} {_size_error(str(error), side)}") from None
    return Vocabularies(trained[0], trained[-1], names)


def auto_size(pairs: int, characters: int) -> int:
    """Return a subword vocabulary's size for a text of as many pairs and different characters.

    The size grows with the third root of the pairs: 4,000 for 40,000 pairs, 8,600 for 400,000, at
    most 32,000. It leaves room for as many subwords as there are characters.
    """
    size = 100 * round(min(40 * math.pow(pairs / 40_000, 0.33), MAX_AUTO_SIZE / 100))
    return max(size, MIN_SIZE + 2 * characters)


def _train_fitting(
    config: "VocabularyConfig", sentences: Sequence[str], tags: Sequence[str], pairs: int
) -> Vocabulary:
    """Train a vocabulary of a size that suits the text; raise RuntimeError if none does."""
    if config.type == "char":
        return _train(config, sentences, tags, MAX_AUTO_SIZE)
    if config.type == "word":
        counts = Counter(word for text in sentences for word in vocabulary.words_of(text))
        repeated = sum(count > 1 for count in counts.values())
        special = 4 + len({*tags, *config.symbols})
        return _train(config, sentences, tags, min(max(16, special + repeated), MAX_AUTO_SIZE))
    size = auto_size(pairs, len(set().union(*sentences)))
    try:
        return _train(config, sentences, tags, size)
    except RuntimeError as error:
        limit = _TOO_LARGE.search(str(error)) or _TOO_SMALL.search(str(error))
        if limit is None:
            raise
        return _train(config, sentences, tags, int(limit[1]))


def _train(
    config: "VocabularyConfig", sentences: Sequence[str], tags: Sequence[str], size: int
) -> Vocabulary:
    """Train a vocabulary. Raises RuntimeError, from SentencePiece, if its size does not fit."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=written,
        model_type=config.type,
        vocab_size=size,
        hard_vocab_limit=config.type in ("unigram", "bpe"),
        character_coverage=1.0,
        byte_fallback=config.type != "word",
        normalization_rule_name="identity",
        max_sentence_length=1_000_000,  # bytes
        num_threads=4,  # fixed, since the result depends on it
        pad_id=vocabulary.PAD_ID,
        unk_id=vocabulary.UNK_ID,
        bos_id=vocabulary.BOS_ID,
        eos_id=vocabulary.EOS_ID,
        user_defined_symbols=[
            *(PLACEHOLDERS if config.masks_names else ()),  # first, for their ids
            *(SPACE + symbol for symbol in dict.fromkeys((*tags, *config.symbols))),
            *(config.symbols if config.type != "word" else ()),
        ],
        minloglevel=2,
    )
    return Vocabulary(written.getvalue(), config.sampling)


def _size_error(error: str, side: str) -> str:
    """Explain SentencePiece's error about the vocabulary size of a side of the text."""
    if match := _TOO_LARGE.search(error):
        return f"is more than {side} text allows; set at most {match[1]}"
    if least := _TOO_SMALL.search(error):
        return f"is too small for the characters of {side} text; set at least {least[1]}"
    if "char_model_trainer" in error:
        return f"is too small for bytes and special tokens; set at least {MIN_SIZE}"
    return f"does not fit {side} text; SentencePiece reports: {error}"


def vocabulary_notes(config: "VocabularyConfig", vocabularies: Vocabularies) -> list[str]:
    """Say, for the log, which sizes `auto` chose, and whether listed names have a use."""
    notes = list[str]()
    names = vocabularies.names
    if config.listed_names is not None and names is not None:
        use = "help to spell others"
        if names.copies:
            use = "have no use, as both languages write names alike"
        count = f"{len(names.content['listed']):,} names of {config.listed_names}"
        notes.append(f"vocabulary.names: {count} {use}")
    if not config.model and config.size is None:
        sizes = [len(vocabularies.src), *([] if vocabularies.joint else [len(vocabularies.tgt)])]
        written = " and ".join(f"{size:,}" for size in sizes)
        notes.append(f"vocabulary.size: auto chose {written} tokens")
    return notes


class Token(NamedTuple):
    """A token of a model, its score, and its type, such as BYTE."""

    piece: str
    score: float
    type: int


def existing_vocabularies(config: "VocabularyConfig", tags: Sequence[str] = ()) -> Vocabularies:
    """Read one model, or one a side; tags are of the source. Raises UserError if it is unusable."""
    src = _read(config.model[0], config, tags)
    if config.joint:
        return Vocabularies(src, src)
    return Vocabularies(src, _read(config.model[-1], config))


def checksums_of_models(config: "VocabularyConfig") -> list[str]:
    """Return the SHA-256 of the files of the models."""
    return [hashlib.sha256(_content(path)).hexdigest() for path in config.model]


def checksum_of_names(path: Path) -> str:
    """Return the SHA-256 of the names in a list; raises UserError as `read_names` does."""
    return hashlib.sha256("\n".join(read_names(path)).encode()).hexdigest()


def _read(path: Path, config: "VocabularyConfig", tags: Sequence[str] = ()) -> Vocabulary:
    content = _content(path)
    try:
        Vocabulary(content)
        model = vocabulary.read_model(content)
    except RuntimeError:
        raise UserError(f"{_KEY}: {path} is not a SentencePiece model") from None
    rules = model.normalizer_spec
    settings = model.trainer_spec
    has_prefix = rules.add_dummy_prefix and rules.escape_whitespaces
    if not has_prefix or settings.treat_whitespace_as_suffix:
        raise UserError(
            f"{_KEY}: {path} does not put a space before the first word, as add_dummy_prefix=true, "
            "escape_whitespaces=true and treat_whitespace_as_suffix=false do; train it so"
        )
    symbols = [SPACE + symbol for symbol in dict.fromkeys((*tags, *config.symbols))]
    if settings.model_type != _WORD:
        symbols += config.symbols
    tokens = _with_symbols([*_tokens(model, config)], symbols)
    return Vocabulary(_with_tokens(model, tokens), config.sampling)


def _content(path: Path) -> bytes:
    check_paths(path)
    try:
        return read_bounded(path, MAX_MODEL_BYTES)
    except OSError as error:
        raise UserError(f"{_KEY}: {path} cannot be read ({error.strerror})") from None


def _tokens(model: Any, config: "VocabularyConfig") -> Iterator[Token]:
    """Yield special tokens, placeholders of names, the model's other tokens, and bytes."""
    for name in _SPECIAL:
        yield Token(name, 0.0, UNKNOWN if name == "<unk>" else CONTROL)
    marks = PLACEHOLDERS if config.masks_names else ()
    yield from (Token(mark, 0.0, USER_DEFINED) for mark in marks)
    names = model.trainer_spec
    special = names.unk_piece, names.bos_piece, names.eos_piece, names.pad_piece
    for token in model.pieces:
        is_control = token.type == CONTROL and token.piece in special
        if not (is_control or token.type == UNKNOWN or token.piece in marks):
            yield Token(token.piece, token.score, token.type)
    has_bytes = any(token.type == BYTE for token in model.pieces)
    if model.trainer_spec.model_type != _WORD and not has_bytes:
        texts = {token.piece for token in model.pieces}
        byte_tokens = (f"<0x{byte:02X}>" for byte in range(256))
        yield from (Token(name, 0.0, BYTE) for name in byte_tokens if name not in texts)


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
