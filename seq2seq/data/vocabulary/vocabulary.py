"""SentencePiece vocabularies: raw text to token ids, ids to detokenized text, and their files."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import Any, NamedTuple

import sentencepiece

from seq2seq.data.subword_sampling import SubwordSampler
from seq2seq.runtime import files
from seq2seq.runtime.errors import UserError
from seq2seq.text.characters import SPACE, normalized
from seq2seq.text.names.names import Names
from seq2seq.text.names.words import PLACEHOLDERS, any_of

Ids = list[int]
PAD_ID = 0
UNK_ID = 1
BOS_ID = 2
EOS_ID = 3
FIRST_ID = 4  # smallest id of a token of text
NAME_IDS = range(FIRST_ID, FIRST_ID + len(PLACEHOLDERS))  # in a vocabulary with names
FEW_TEXTS = 32  # fewer are encoded sooner one by one than by the threads of SentencePiece
UNKNOWN = "\N{DOUBLE QUESTION MARK}"  # printed for an unknown token without a word of its own
_JOINT, _SIDES, NAMES = "joint", ("src", "tgt"), "names"  # stems of files
_MAX_MODEL_BYTES = 1 << 26


class Vocabulary:
    """SentencePiece vocabulary of one language, over text normalized to NFC."""

    def __init__(self, model: bytes, sampling: float = 0.0) -> None:
        self.model = model
        self.sampling = sampling
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
            tokens = self._processor.id_to_piece(list(range(len(self))))
        except ValueError:  # in a token, or in the error that SentencePiece reports
            raise RuntimeError("it contains text that is not UTF-8") from None
        self._tokens: list[str] = tokens
        byte = self._processor.piece_to_id("<0x00>")
        # Unseen characters become bytes; in a vocabulary of words, unseen words are unknown.
        self.has_byte_fallback = bool(self._processor.is_byte(byte))

    @cached_property
    def byte_ids(self) -> range:
        """The tokens of the bytes 0 to 255, with which unseen characters are spelled, if any."""
        first = self._processor.piece_to_id("<0x00>")
        ids = range(first, first + 256)
        names = [f"<0x{byte:02X}>" for byte in range(256)]
        is_complete = self.has_byte_fallback and self._tokens[first : first + 256] == names
        return ids if is_complete else range(0)

    @cached_property
    def _user_defined(self) -> dict[str, int]:
        """User-defined tokens, with or without a space before, except placeholders of names."""
        tokens = enumerate(read_model(self.model).pieces)
        return {
            token.piece: i
            for i, token in tokens
            if token.type == token.USER_DEFINED and token.piece not in PLACEHOLDERS
        }

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """User-defined symbols of the text: each is a single token, which nothing splits."""
        return tuple(dict.fromkeys(token.removeprefix(SPACE) for token in self._user_defined))

    @cached_property
    def _symbol(self) -> re.Pattern[str]:
        return any_of(self.symbols)

    @cached_property
    def _has_own_rules(self) -> bool:
        """Return whether the model normalizes text by rules of its own, after NFC."""
        rules = read_model(self.model).normalizer_spec
        return bool(rules.precompiled_charsmap) and rules.name != "identity"

    @cached_property
    def _sampler(self) -> SubwordSampler:
        return SubwordSampler(self._processor, self.sampling, self._user_defined)

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the ids of each text, without EOS; equal texts have equal ids.

        In a vocabulary of words each word, or symbol, has one id; SentencePiece would merge some.
        """
        if not self.has_byte_fallback:
            find = self._processor.piece_to_id
            return [[find(SPACE + word) for word in self.words(text)] for text in texts]
        lines = [normalized(text) for text in texts]
        if len(lines) < FEW_TEXTS:
            return [self._processor.encode(line) for line in lines]
        ids: list[list[int]] = self._processor.encode(lines)
        return ids

    def sample(
        self, texts: Iterable[str], seed: int, numbers: Sequence[int] | None = None
    ) -> list[list[int]]:
        """Return ids under a random segmentation of each text.

        Uses subword regularization (Kudo, 2018) or BPE-dropout (Provilkov et al., 2020). The ids of
        a text are a pure function of (text, seed, its number); numbers default to positions.
        """
        lines = self._normalized(texts)
        return self._sampler.sample(lines, seed, range(len(lines)) if numbers is None else numbers)

    def sample_pairs(
        self,
        src: Iterable[str],
        tgt: Iterable[str],
        seed: int,
        numbers: Sequence[int] | None = None,
    ) -> tuple[list[Ids], list[Ids]]:
        """Return ids of both sides of pairs as `sample`, equal words of a pair segmented alike."""
        src = self._normalized(src)
        tgt = self._normalized(tgt)
        return self._sampler.sample_pairs(
            src, tgt, seed, range(len(src)) if numbers is None else numbers
        )

    def _normalized(self, texts: Iterable[str]) -> list[str]:
        lines = [normalized(text) for text in texts]
        if not self._has_own_rules:
            return lines
        return [self._processor.normalize(line).replace(SPACE, " ") for line in lines]

    def words(self, text: str) -> list[str]:
        """Return the words of a text: what is between spaces, and each symbol."""
        if self._has_own_rules:
            (text,) = self._normalized([text])
        if not self.symbols:
            return words_of(text)
        return words_of(self._symbol.sub(r" \g<0> ", normalized(text)))

    def cuts(self, word: str) -> list[int]:
        """Return the ends of the parts that a word can be cut into: it ends there, or a symbol."""
        spans = [match.span() for match in self._symbol.finditer(word)]
        inner_positions = {n for start, end in spans for n in range(start + 1, end)}
        return [n for n in range(1, len(word) + 1) if n not in inner_positions]

    def decode(self, ids: Iterable[int], unknown: Iterable[str] = ()) -> str:
        """Return the text of ids; unknown tokens are the next words of `unknown`, then UNKNOWN."""
        tokens = [int(i) for i in ids if i not in (PAD_ID, BOS_ID, EOS_ID)]
        if UNK_ID not in tokens:
            text: str = self._processor.decode(tokens)
            return text.replace(SPACE, " ")  # may be spelled by byte tokens
        words = chain(unknown, repeat(UNKNOWN))
        parts = list[str]()
        for is_unknown, group in groupby(tokens, UNK_ID.__eq__):
            run = list(group)
            parts += [next(words) for _ in run] if is_unknown else [self.decode(run)]
        return " ".join(filter(None, parts))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the token of each id; that of EOS is `</s>`."""
        return [self._tokens[i] for i in ids]


class Vocabularies(NamedTuple):
    """Source and target vocabulary; the same object if joint."""

    src: Vocabulary
    tgt: Vocabulary
    names: Names | None = None  # masked in the text of both sides

    @property
    def joint(self) -> bool:
        """Return whether both sides share one vocabulary."""
        return self.src is self.tgt

    def encode_pairs(
        self, src: Sequence[str], tgt: Sequence[str]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the ids of both sides of pairs, without EOS; names are masked."""
        src, tgt = self.mask_pairs(src, tgt)
        return self.src.encode(src), self.tgt.encode(tgt)

    def mask_pairs(
        self, src: Sequence[str], tgt: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Replace the names of pairs by placeholders, if the vocabulary has any."""
        return (src, tgt) if self.names is None else mask_names(self.names, src, tgt)


def mask_names(names: Names, src: Sequence[str], tgt: Sequence[str]) -> tuple[list[str], list[str]]:
    texts = zip(map(normalized, src), map(normalized, tgt), strict=True)
    masked = [names.mask_pair(*pair) for pair in texts]
    return [src for src, _ in masked], [tgt for _, tgt in masked]


def read_model(model: bytes) -> Any:
    """Return a serialized SentencePiece model as a ModelProto message."""
    from sentencepiece import sentencepiece_model_pb2 as messages

    message = messages.ModelProto()  # type: ignore[attr-defined]
    message.ParseFromString(model)
    return message


def check_tags(vocabularies: Vocabularies, tags: Iterable[str]) -> None:
    """Raise UserError for a tag that is not one token of the source vocabulary."""
    for tag in tags:
        (ids,) = vocabularies.src.encode([tag])
        if vocabularies.src.tokens(ids) != [SPACE + tag]:
            raise UserError(
                f"data: the tag {tag} is not one token of the vocabulary. Add it to "
                "vocabulary.symbols, so that a vocabulary with it is trained, or omit the tag"
            )


def words_of(text: str) -> list[str]:
    """Return the words of a normalized text, which spaces separate."""
    return [word for word in normalized(text).replace(SPACE, " ").split(" ") if word]


def save_vocabularies(vocabularies: Vocabularies, folder: Path) -> None:
    """Write the models, and `names.json`; raises OSError, and UserError if the folder is a link."""
    if folder.is_symlink():
        raise files.refused_link(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for stem, vocabulary in _named(vocabularies).items():
        files.atomic_write(folder / file_of(stem), vocabulary.model)
    if vocabularies.names is not None:
        files.atomic_write(folder / file_of(NAMES), vocabularies.names.stored)


def file_of(stem: str) -> str:
    """Return the name of a vocabulary's file."""
    return f"{stem}.json" if stem == NAMES else f"{stem}.model"


def load_vocabularies(
    folder: Path, sampling: float = 0.0, checksums: Mapping[str, str] | None = None
) -> Vocabularies:
    """Load what `save_vocabularies` wrote; raises UserError for missing, damaged or other files."""
    expected = checksums or {}
    stems = expected or ((_JOINT,) if (folder / f"{_JOINT}.model").exists() else _SIDES)
    loaded = list[Vocabulary]()
    names = None
    for stem in sorted(set(stems) - {NAMES}):
        path = folder / file_of(stem)
        with _reading(path, "a SentencePiece model"):
            loaded.append(Vocabulary(_read(path, expected.get(stem)), sampling))
    path = folder / file_of(NAMES)
    if NAMES in expected if expected else path.exists():
        with _reading(path, "a file of names"):
            names = Names.from_bytes(_read(path, expected.get(NAMES)))
    return Vocabularies(loaded[0], loaded[-1], names)


def checksums_of(vocabularies: Vocabularies) -> dict[str, str]:
    """Return the SHA-256 of each model by the stem of its file name."""
    contents = {name: vocabulary.model for name, vocabulary in _named(vocabularies).items()}
    if vocabularies.names is not None:
        contents[NAMES] = vocabularies.names.stored
    return {name: _checksum(content) for name, content in contents.items()}


def are_checksums(value: object) -> bool:
    """Return whether the value has the form of what `checksums_of` returns."""
    if not isinstance(value, dict):
        return False
    if sorted(value.keys() - {NAMES}) not in ([_JOINT], list(_SIDES)):
        return False
    return all(isinstance(checksum, str) for checksum in value.values())


def _named(vocabularies: Vocabularies) -> dict[str, Vocabulary]:
    if vocabularies.joint:
        return {_JOINT: vocabularies.src}
    return dict(zip(_SIDES, vocabularies[:2], strict=True))


def _read(path: Path, checksum: str | None) -> bytes:
    """Read a file of a vocabulary, and verify it if a checksum is given."""
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise OSError("not a file")
    content = files.read_bounded(path, _MAX_MODEL_BYTES)
    if checksum is not None and _checksum(content) != checksum:
        text = f"{path}: its checksum differs from the one recorded with the weights;"
        raise UserError(f"{text} it is damaged, or one of them is from another run")
    return content


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Convert a failure to read a file of this kind into a UserError."""
    files.check_readable(path)
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a run folder has its vocabulary there") from None
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not {kind} ({reason})") from None


def _checksum(model: bytes) -> str:
    return hashlib.sha256(model).hexdigest()
