"""Train the vocabularies of a text with SentencePiece."""

import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import sentencepiece

from seq2seq.data.spread import spread
from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary.existing import existing_vocabularies, notes_on_models
from seq2seq.data.vocabulary.vocabulary import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    Vocabularies,
    Vocabulary,
    mask_with,
    normalized,
    words_of,
)
from seq2seq.names.names import learn_names
from seq2seq.names.symbols import any_of
from seq2seq.names.words import PLACEHOLDERS
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    from seq2seq.config.schema import VocabularyConfig

MIN_SIZE = 4 + 256  # special tokens and bytes
MAX_AUTO_SIZE = 32_000
MAX_TRAINING_PAIRS = 300_000  # more cost time and memory without a better vocabulary
_TOO_LARGE, _TOO_SMALL = re.compile(r"value <= (\d+)"), re.compile(r"required_chars\. \d+ vs (\d+)")


def train_vocabularies(
    config: "VocabularyConfig", src: Sequence[str], tgt: Sequence[str], tags: Sequence[str] = ()
) -> Vocabularies:
    """Train the vocabularies of both sides on MAX_TRAINING_PAIRS pairs at most.

    Tags of the source are single tokens, which no segmentation splits. Existing models of the
    config are read instead. Raises UserError if these cannot be used, or if the text does not allow
    a vocabulary of the configured size.
    """
    pairs = len(src)
    src, tgt = (spread(side, MAX_TRAINING_PAIRS) for side in (src, tgt))
    names = None
    if config.masks_names:
        src, tgt = ([normalized(text) for text in side] for side in (src, tgt))
        names = learn_names(src, tgt, config.symbols)
        src, tgt = mask_with(names, src, tgt)
    if config.model:
        return existing_vocabularies(config, tags)._replace(names=names)
    sides = {"this": [*src, *tgt]} if config.joint else {"the source": src, "the target": tgt}
    trained, errors = [], {}
    for side, texts in sides.items():
        try:
            sentences = _sentences(config, texts)
            marked = () if side == "the target" else tags
            if config.size is None:
                trained.append(_train_fitting(config, sentences, marked, pairs))
            else:
                trained.append(_train(config, sentences, marked, config.size))
        except RuntimeError as error:
            errors[side] = str(error)
    if errors:
        size = "auto" if config.size is None else config.size
        raise UserError(f"vocabulary.size: {size} {_size_error(errors)}")
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
        counts = Counter(word for text in sentences for word in words_of(text))
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
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        user_defined_symbols=[
            *(PLACEHOLDERS if config.masks_names else ()),  # first, for their ids
            *_with_space(dict.fromkeys((*tags, *config.symbols))),
            *(config.symbols if config.type != "word" else ()),
        ],
        minloglevel=2,
    )
    return Vocabulary(written.getvalue(), config.sampling)


def _sentences(config: "VocabularyConfig", texts: Iterable[str]) -> list[str]:
    """Return normalized texts; to a vocabulary of words, symbols are words."""
    if not (config.symbols and config.type == "word"):
        return [normalized(text) for text in texts]
    symbol = any_of(config.symbols)
    return [symbol.sub(r" \g<0> ", normalized(text)) for text in texts]


def _with_space(symbols: Iterable[str]) -> Iterable[str]:
    return (SPACE + symbol for symbol in symbols)


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
    matches = {side: pattern.search(error) for side, error in errors.items()}
    return {side: int(match[1]) for side, match in matches.items() if match}


def vocabulary_notes(config: "VocabularyConfig", vocabularies: Vocabularies) -> list[str]:
    """Describe, for the log, existing models, or the sizes that `auto` chose."""
    if config.model:
        return notes_on_models(config, vocabularies)
    if config.size is not None:
        return []
    sizes = [len(vocabularies.src), *([] if vocabularies.joint else [len(vocabularies.tgt)])]
    return [f"vocabulary.size: auto chose {' and '.join(f'{size:,}' for size in sizes)} tokens"]
