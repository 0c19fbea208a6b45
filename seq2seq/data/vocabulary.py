"""Text <-> ids over SentencePiece: raw text in, clean text out."""

import hashlib
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import NamedTuple

import sentencepiece

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.subword_sampling import SPACE, SubwordSampler
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import atomic_write, read_bounded

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
UNKNOWN = "\N{DOUBLE QUESTION MARK}"  # printed for a piece that stands for no known word
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONG_WORD, _PARTS = re.compile(r"\S{2000}"), re.compile(r"\S{1,1000}|\s+")
LEAST = 4 + 256  # special pieces and bytes
_JOINT, _SIDES = "joint", ("src", "tgt")
MOST_PAIRS = 300_000  # that pieces are learnt from; more would cost time and memory alone
_MOST_BYTES = 1 << 26  # of a model's file


class Vocabulary:
    """One language's pieces: normalises to NFC, and nothing more that changes what is printed."""

    def __init__(self, model: bytes, sampling: float = 0.0) -> None:
        self.model = model
        self.sampling = sampling
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        byte = self._processor.piece_to_id("<0x00>")
        self.has_byte_fallback = bool(
            self._processor.is_byte(byte)
        )  # what it lacks; else that is unknown

    @cached_property
    def _sampler(self) -> SubwordSampler:
        return SubwordSampler(self._processor, self.sampling)

    @cached_property
    def _pieces(self) -> list[str]:
        return [self._processor.id_to_piece(i) for i in range(len(self))]

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Each text's ids, END not counted; the same text always has the same ids.

        A vocabulary of words has an id for each word. (SentencePiece would give several unknown
        ones in a row a single id, and nobody could tell how many they were.)
        """
        if not self.has_byte_fallback:
            find = self._processor.piece_to_id
            return [[find(SPACE + word) for word in words_of(text)] for text in texts]
        ids: list[list[int]] = self._processor.encode([normalized(text) for text in texts])
        return ids

    def sample(self, texts: Sequence[str], seed: int) -> list[list[int]]:
        """Each text's ids under one random segmentation, a pure function of (texts, seed).

        That is subword regularization (Kudo 2018) or BPE-dropout (Provilkov et al. 2020).
        """
        return self._sampler.sample([normalized(text) for text in texts], seed)

    def decode(self, ids: Sequence[int], unknown: Iterable[str] = ()) -> str:
        """The text of ids, special ones left out.

        Each unknown piece is a word of its own: the next of `unknown`, or UNKNOWN beyond them.
        """
        kept = [i for i in ids if i not in (PAD_ID, BOS_ID, EOS_ID)]
        if UNK_ID not in kept:
            return self._text(kept)
        words = chain(unknown, repeat(UNKNOWN))
        return " ".join(part for part in self._parts(kept, words) if part)

    def _parts(self, ids: Sequence[int], words: Iterator[str]) -> Iterator[str]:
        """The unknown pieces' words, and the text of what stands between them."""
        for is_unknown, run in groupby(ids, UNK_ID.__eq__):
            if is_unknown:
                yield from (next(words) for _ in run)
            else:
                yield self._text(list(run))

    def _text(self, ids: list[int]) -> str:
        text: str = self._processor.decode(ids)
        return text.replace(SPACE, " ")  # bytes can spell it

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The piece that stands for each id; END is `</s>`."""
        return [self._pieces[i] for i in ids]


class Vocabularies(NamedTuple):
    """The source's and the target's; one and the same object where joint."""

    src: Vocabulary
    tgt: Vocabulary

    @property
    def joint(self) -> bool:
        """Whether both sides share their ids."""
        return self.src is self.tgt


def train_vocabularies(
    config: VocabularyConfig, src: Sequence[str], tgt: Sequence[str]
) -> Vocabularies:
    """Learn the pieces of both sides from training text: MOST_PAIRS or fewer, evenly spread.

    Raises UserError where the text does not allow a vocabulary of the size the config asks for.
    """
    step = -(-len(src) // MOST_PAIRS)
    if step > 1:
        src, tgt = src[::step], tgt[::step]
    if config.joint:
        joint = _train(config, [*src, *tgt])
        return Vocabularies(joint, joint)
    return Vocabularies(_train(config, src), _train(config, tgt))


def save_vocabularies(vocabularies: Vocabularies, folder: Path) -> None:
    """Write `joint.model`, or `src.model` and `tgt.model`; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, vocabulary in _named(vocabularies).items():
        atomic_write(folder / f"{name}.model", vocabulary.model)


def load_vocabularies(
    folder: Path, sampling: float = 0.0, checksums: Mapping[str, str] | None = None
) -> Vocabularies:
    """Read what `save_vocabularies` wrote, and compare its checksums with those given.

    Raises UserError where a file is missing, is none or has another checksum.
    """
    known = checksums or {}
    names = known or ((_JOINT,) if (folder / f"{_JOINT}.model").exists() else _SIDES)
    loaded = [_load(folder / f"{name}.model", sampling, known.get(name)) for name in sorted(names)]
    return Vocabularies(loaded[0], loaded[-1])


def checksums_of(vocabularies: Vocabularies) -> dict[str, str]:
    """SHA-256 of each model, by the name of its file without `.model`."""
    return {name: _checksum(each.model) for name, each in _named(vocabularies).items()}


def are_checksums(value: object) -> bool:
    """Whether this may be what `checksums_of` gave."""
    if not isinstance(value, dict) or sorted(value) not in ([_JOINT], list(_SIDES)):
        return False
    return all(isinstance(each, str) for each in value.values())


def _named(vocabularies: Vocabularies) -> dict[str, Vocabulary]:
    if vocabularies.joint:
        return {_JOINT: vocabularies.src}
    return dict(zip(_SIDES, vocabularies, strict=True))


def _load(path: Path, sampling: float, checksum: str | None) -> Vocabulary:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise OSError("not a file")
        model = read_bounded(path, _MOST_BYTES)
        if checksum is not None and _checksum(model) != checksum:
            raise UserError(
                f"{path}: its checksum is not the one that the weights record; "
                "it is damaged, or one of them is of another run"
            )
        return Vocabulary(model, sampling)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a run folder holds its vocabulary there") from None
    except (OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not a SentencePiece model ({reason})") from None


def _checksum(model: bytes) -> str:
    return hashlib.sha256(model).hexdigest()


def _train(config: VocabularyConfig, texts: Iterable[str]) -> Vocabulary:
    written = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([normalized(text) for text in texts]),
            model_writer=written,
            model_type=config.type,
            vocab_size=config.size,
            hard_vocab_limit=config.type in ("unigram", "bpe"),
            character_coverage=1.0,
            byte_fallback=config.type != "word",
            normalization_rule_name="identity",
            max_sentence_length=1_000_000,  # bytes
            num_threads=4,  # fixed: the pieces must not depend on the machine
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(_size_mistake(config.size, str(error))) from None
    return Vocabulary(written.getvalue(), config.sampling)


def _size_mistake(size: int, error: str) -> str:
    """SentencePiece's refusal of a vocabulary size, in words of the config."""
    mistake = f"vocabulary.size: {size}"
    if most := re.search(r"value <= (\d+)", error):
        return f"{mistake} is more than this text has pieces; at most {most[1]}"
    if least := re.search(r"required_chars\. \d+ vs (\d+)", error):
        return f"{mistake} is too small for the characters of this text; at least {least[1]}"
    if "char_model_trainer" in error:
        return f"{mistake} is too small for bytes and special pieces; at least {LEAST}"
    return f"{mistake} does not fit this text; SentencePiece says: {error}"


def words_of(text: str) -> list[str]:
    """The words of a text as a vocabulary takes it: what stands between spaces."""
    return [word for word in normalized(text).replace(SPACE, " ").split(" ") if word]


def normalized(text: str) -> str:
    """NFC; a lone surrogate, which no file can hold but a Python string can, becomes U+FFFD.

    Runs of thousands of characters without a space are normalised in parts: the time that Python
    takes to put combining marks in order grows as the square of their number.
    """
    text = _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    parts = _PARTS.findall(text) if _LONG_WORD.search(text) else [text]
    return "".join(unicodedata.normalize("NFC", part) for part in parts)
