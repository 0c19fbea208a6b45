"""SentencePiece vocabularies: raw text to token ids, and ids to detokenized text."""

import hashlib
import io
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import sentencepiece

from seq2seq.data.names.names import Names, train_names
from seq2seq.data.names.words import PLACEHOLDERS
from seq2seq.data.subword_sampling import SPACE, SubwordSampler
from seq2seq.runtime.argument_types import id_list, text_list
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import LONE_SURROGATE, check_readable, read_bounded
from seq2seq.runtime.folders import Folder

if TYPE_CHECKING:
    from seq2seq.config.schema import VocabularyConfig

Ids = list[int]
PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
NAME_IDS = range(4, 4 + len(PLACEHOLDERS))  # ids of placeholders in a vocabulary with names
UNKNOWN = "\N{DOUBLE QUESTION MARK}"  # printed for an unknown token without a word of its own
MIN_SIZE = 4 + 256  # special tokens and bytes
MAX_TRAINING_PAIRS = 300_000  # more cost time and memory without a better vocabulary
_LONG_WORD, _PARTS = re.compile(r"\S{2000}"), re.compile(r"\S{1,1000}|\s+")
_JOINT, _SIDES, NAMES = "joint", ("src", "tgt"), "names"  # stems of files
_TOO_LARGE, _TOO_SMALL = re.compile(r"value <= (\d+)"), re.compile(r"required_chars\. \d+ vs (\d+)")
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
    def _sampler(self) -> SubwordSampler:
        return SubwordSampler(self._processor, self.sampling)

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the ids of each text, without EOS; equal texts have equal ids.

        A word vocabulary yields one id per word. (SentencePiece itself merges consecutive unknown
        words into a single id, which loses their number.) Raises TypeError for anything but an
        ordered iterable of strings.
        """
        texts = text_list(texts, "texts")
        if not self.has_byte_fallback:
            find = self._processor.piece_to_id
            return [[find(SPACE + word) for word in words_of(text)] for text in texts]
        ids: list[list[int]] = self._processor.encode([normalized(text) for text in texts])
        return ids

    def sample(
        self, texts: Iterable[str], seed: int, numbers: Sequence[int] | None = None
    ) -> list[list[int]]:
        """Return ids under a random segmentation of each text.

        Uses subword regularization (Kudo, 2018) or BPE-dropout (Provilkov et al., 2020). The ids of
        a text are a pure function of (text, seed, its number); numbers default to positions.
        """
        lines = [normalized(text) for text in text_list(texts, "texts")]
        return self._sampler.sample(lines, seed, range(len(lines)) if numbers is None else numbers)

    def sample_pairs(
        self,
        src: Iterable[str],
        tgt: Iterable[str],
        seed: int,
        numbers: Sequence[int] | None = None,
    ) -> tuple[list[Ids], list[Ids]]:
        """Return ids of both sides of pairs as `sample`, equal words of a pair segmented alike."""
        src, tgt = ([normalized(each) for each in text_list(side, "texts")] for side in (src, tgt))
        return self._sampler.sample_pairs(
            src, tgt, seed, range(len(src)) if numbers is None else numbers
        )

    def tag_of(self, text: str) -> str | None:
        """Return the tag that begins a text: a single token that the vocabulary was given."""
        word = text.partition(" ")[0]
        if not (word.startswith("<") and word.endswith(">")):
            return None
        token = self._processor.piece_to_id(SPACE + word)
        given = token != UNK_ID and self._processor.get_score(token) == 0  # trained ones have less
        return word if given else None

    def decode(self, ids: Iterable[int], unknown: Iterable[str] = ()) -> str:
        """Return the text of ids, without special tokens.

        Each unknown token is printed as a separate word: the next of `unknown`, then UNKNOWN.
        Raises TypeError or UserError for anything but ids of this vocabulary.
        """
        kept = [i for i in id_list(ids, "ids", len(self)) if i not in (PAD_ID, BOS_ID, EOS_ID)]
        if UNK_ID not in kept:
            return self._text(kept)
        words = chain(unknown, repeat(UNKNOWN))
        return " ".join(part for part in self._parts(kept, words) if part)

    def _parts(self, ids: Sequence[int], words: Iterator[str]) -> Iterator[str]:
        """Yield the words of unknown tokens and the texts between them."""
        for is_unknown, run in groupby(ids, UNK_ID.__eq__):
            if is_unknown:
                yield from (next(words) for _ in run)
            else:
                yield self._text(list(run))

    def _text(self, ids: list[int]) -> str:
        text: str = self._processor.decode(ids)
        return text.replace(SPACE, " ")  # may be spelled by byte tokens

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Return the token of each id; that of EOS is `</s>`. Raises errors as `decode` does."""
        return [self._tokens[i] for i in id_list(ids, "ids", len(self))]


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
        return (src, tgt) if self.names is None else _mask_pairs(self.names, src, tgt)


def _mask_pairs(
    names: Names, src: Sequence[str], tgt: Sequence[str]
) -> tuple[list[str], list[str]]:
    texts = zip(map(normalized, src), map(normalized, tgt), strict=True)
    masked = [names.mask_pair(*pair) for pair in texts]
    return [src for src, _ in masked], [tgt for _, tgt in masked]


def train_vocabularies(
    config: "VocabularyConfig", src: Sequence[str], tgt: Sequence[str], tags: Sequence[str] = ()
) -> Vocabularies:
    """Train the vocabularies of both sides on at most MAX_TRAINING_PAIRS evenly spaced pairs.

    Tags of the source are single tokens, which no segmentation splits. Raises UserError if the text
    does not allow a vocabulary of the configured size.
    """
    step = -(-len(src) // MAX_TRAINING_PAIRS)
    if step > 1:
        src, tgt = src[::step], tgt[::step]
    names = None
    if config.names:
        names = train_names([normalized(text) for text in src], [normalized(text) for text in tgt])
        src, tgt = _mask_pairs(names, src, tgt)
    sides = {"this": [*src, *tgt]} if config.joint else {"the source": src, "the target": tgt}
    trained, errors = [], {}
    for side, texts in sides.items():
        try:
            trained.append(_train(config, texts, () if side == "the target" else tags))
        except RuntimeError as error:
            errors[side] = str(error)
    if errors:
        raise UserError(f"vocabulary.size: {config.size} {_size_error(errors)}")
    return Vocabularies(trained[0], trained[-1], names)


def save_vocabularies(vocabularies: Vocabularies, folder: Path) -> None:
    """Write `joint.model`, or `src.model` and `tgt.model`, and `names.json` if there are names.

    Raises OSError, and UserError if the folder is a symbolic link.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with closing(Folder(folder, create=True)) as target:
        write_vocabularies(vocabularies, target)


def write_vocabularies(vocabularies: Vocabularies, folder: Folder) -> None:
    """Write `joint.model`, or `src.model` and `tgt.model`, and any names, in an open folder.

    Raises OSError.
    """
    for stem, vocabulary in _named(vocabularies).items():
        folder.write(file_of(stem), vocabulary.model)
    if vocabularies.names is not None:
        folder.write(file_of(NAMES), vocabularies.names.stored)


def read_vocabularies(folder: Folder, stems: Sequence[str], sampling: float = 0.0) -> Vocabularies:
    """Read files by their stems: `joint`, or `src` and `tgt`, and `names` if there are names.

    Raises OSError, RuntimeError from SentencePiece for a file that is not a model, and ValueError
    for damaged names.
    """
    contents = {}
    for stem in stems:
        with os.fdopen(folder.open(file_of(stem)), "rb") as file:
            contents[stem] = file.read(_MAX_MODEL_BYTES)
    names = contents.pop(NAMES, None)
    models = [Vocabulary(model, sampling) for _, model in sorted(contents.items())]
    return Vocabularies(models[0], models[-1], None if names is None else Names.from_bytes(names))


def file_of(stem: str) -> str:
    """Return the name of a vocabulary's file."""
    return f"{stem}.json" if stem == NAMES else f"{stem}.model"


def load_vocabularies(
    folder: Path, sampling: float = 0.0, checksums: Mapping[str, str] | None = None
) -> Vocabularies:
    """Load what `save_vocabularies` wrote, and verify it if checksums are given.

    Raises UserError if a file is missing, is not a model or has another checksum.
    """
    known = checksums or {}
    stems = known or ((_JOINT,) if (folder / f"{_JOINT}.model").exists() else _SIDES)
    loaded = [
        _load(folder / file_of(stem), sampling, known.get(stem))
        for stem in sorted(stems)
        if stem != NAMES
    ]
    path = folder / file_of(NAMES)
    has_names = NAMES in known if known else path.exists()
    names = _load_names(path, known.get(NAMES)) if has_names else None
    return Vocabularies(loaded[0], loaded[-1], names)


def checksums_of(vocabularies: Vocabularies) -> dict[str, str]:
    """Return the SHA-256 of each model by the stem of its file name."""
    checksums = {name: _checksum(each.model) for name, each in _named(vocabularies).items()}
    if vocabularies.names is not None:
        checksums[NAMES] = _checksum(vocabularies.names.stored)
    return checksums


def are_checksums(value: object) -> bool:
    """Return whether the value has the form of what `checksums_of` returns."""
    if not isinstance(value, dict):
        return False
    if sorted(value.keys() - {NAMES}) not in ([_JOINT], list(_SIDES)):
        return False
    return all(isinstance(each, str) for each in value.values())


def _named(vocabularies: Vocabularies) -> dict[str, Vocabulary]:
    if vocabularies.joint:
        return {_JOINT: vocabularies.src}
    return dict(zip(_SIDES, vocabularies[:2], strict=True))


def _load(path: Path, sampling: float, checksum: str | None) -> Vocabulary:
    with _reading(path, "a SentencePiece model"):
        return Vocabulary(_read(path, checksum), sampling)


def _load_names(path: Path, checksum: str | None) -> Names:
    with _reading(path, "a file of names"):
        return Names.from_bytes(_read(path, checksum))


def _read(path: Path, checksum: str | None) -> bytes:
    """Read a file of a vocabulary, and verify it if a checksum is given."""
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise OSError("not a file")
    content = read_bounded(path, _MAX_MODEL_BYTES)
    if checksum is not None and _checksum(content) != checksum:
        raise UserError(
            f"{path}: its checksum differs from the one recorded with the weights; "
            "it is damaged, or one of them is from another run"
        )
    return content


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Convert a failure to read a file of this kind into a UserError."""
    check_readable(path)
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


def check_tags(vocabularies: Vocabularies, tags: Iterable[str]) -> None:
    """Raise UserError for a tag that is not one token of the source vocabulary."""
    for tag in tags:
        (ids,) = vocabularies.src.encode([tag])
        if vocabularies.src.tokens(ids) != [SPACE + tag]:
            raise UserError(
                f"data: the tag {tag} is not one token of the vocabulary. Train a vocabulary on "
                "text with this tag, without --init-from, or omit the tag"
            )


def _train(
    config: "VocabularyConfig", texts: Iterable[str], tags: Sequence[str] = ()
) -> Vocabulary:
    """Train a vocabulary. Raises RuntimeError, from SentencePiece, if its size does not fit."""
    written = io.BytesIO()
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
        num_threads=4,  # fixed, since the result depends on it
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        user_defined_symbols=[
            *(PLACEHOLDERS if config.names else ()),  # first, for their ids
            *(SPACE + tag for tag in tags),
        ],
        minloglevel=2,
    )
    return Vocabulary(written.getvalue(), config.sampling)


def _size_error(errors: Mapping[str, str]) -> str:
    """Explain SentencePiece's errors about the vocabulary size, one for each side of the text.

    The size is one for both sides: the message has a limit that suits those sides that have one.
    """
    most, least = (_limits(errors, pattern) for pattern in (_TOO_LARGE, _TOO_SMALL))
    reasons = []
    if most:
        verb = "allow" if len(most) > 1 else "allows"
        text = f"is more than {' and '.join(most)} text {verb}; set at most {min(most.values())}"
        reasons.append(text)
    if least:
        sides = " and ".join(least)
        text = f"is too small for the characters of {sides} text; set at least"
        reasons.append(f"{text} {max(least.values())}")
    if any("char_model_trainer" in error for error in errors.values()):
        reasons.append(f"is too small for bytes and special tokens; set at least {MIN_SIZE}")
    elif not reasons:
        side, error = next(iter(errors.items()))
        reasons.append(f"does not fit {side} text; SentencePiece reports: {error}")
    return "; it ".join(reasons)


def _limits(errors: Mapping[str, str], pattern: re.Pattern[str]) -> dict[str, int]:
    """Return, by side, the limit of the size that matching errors state."""
    found = {side: pattern.search(error) for side, error in errors.items()}
    return {side: int(match[1]) for side, match in found.items() if match}


def words_of(text: str) -> list[str]:
    """Return the words of a normalized text, which spaces separate."""
    return [word for word in normalized(text).replace(SPACE, " ").split(" ") if word]


def normalized(text: str) -> str:
    """Return the NFC of a text, with lone surrogates replaced by U+FFFD.

    Thousands of characters without a space are normalized in parts, since the time for reordering
    combining marks is quadratic in their number.
    """
    text = LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    parts = _PARTS.findall(text) if _LONG_WORD.search(text) else [text]
    return "".join(unicodedata.normalize("NFC", part) for part in parts)
