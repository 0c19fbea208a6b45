"""Verification of the content of cache entries, which a checksum alone does not prove usable.

Whoever can write an entry can also write a manifest with the right checksums. The structure of all
of it is checked, so that no content can make training fail later. A sample is compared with what it
was made from: all of it would take as long as building it.
"""

import random
from collections.abc import Generator, Iterable
from contextlib import closing
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.array_file import ArrayFile
from seq2seq.data.cache.arrays import (
    LINK_FILES,
    SIDES,
    TEXT_FILES,
    array_of,
    has_links,
    ids_arrays,
    iter_linked_pairs,
    link_arrays,
    open_ids,
    open_text,
    pairs_of_corpus,
    text_arrays,
)
from seq2seq.data.cache.entries import Entry, Unusable
from seq2seq.data.corpus import ParallelText, Texts, as_list, has_text, source_name
from seq2seq.data.packed_sequences import PackedIds, Selected
from seq2seq.data.pharaoh import Pair
from seq2seq.data.vocabulary.files import NAMES, file_of, read_vocabularies
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, PAD_ID, Vocabularies

_BLOCK_LINES = 10_000  # read at a time
_FIRST_PAIRS, _SAMPLED_PAIRS = 1000, 200  # compared with the files, and encoded again
_CONTINUATION = 0b10  # the first two bits of a byte within a character of UTF-8


def read_text(entry: Entry, files: Texts) -> ParallelText:
    """Open the text of an entry; raises Unusable unless every line of it can be read.

    The first pairs must be those of the files. Of several corpora, the pairs of each are counted.
    """
    if not entry.verified:
        _check_text(entry, files)
    opened = open_text(entry, source_name(files))
    with closing(_usable_pairs(files)) as pairs:
        first = list(islice(pairs, _FIRST_PAIRS))
    lines = zip(opened.src[: len(first)], opened.tgt[: len(first)], strict=True)
    if [pair for pair, _ in first] != list(lines):
        raise Unusable("its first lines are not those of the files")
    if has_links(files):
        recorded = PackedIds(*link_arrays(entry))[: len(first)]
        if [links for _, links in first] != recorded:
            raise Unusable("its first alignments are not those of the files")
    return opened


def _check_text(entry: Entry, files: Texts) -> None:
    """Raise Unusable unless counts, lines and word alignments of an entry are consistent."""
    linked, facts, corpora = has_links(files), entry.facts, as_list(files)
    _check_names(entry, (*TEXT_FILES, *(LINK_FILES if linked else ())))
    each = [pairs_of_corpus(n) for n in range(1, len(corpora) + 1)] if len(corpora) > 1 else []
    if set(facts) != {"pairs", "blank", "same", *each} or facts["same"] > facts["pairs"]:
        raise Unusable("its counts are inconsistent")
    if each and sum(facts[name] for name in each) != facts["pairs"]:
        raise Unusable("its counts are inconsistent")
    for side in SIDES:
        text, ends = text_arrays(entry, side)
        if not 0 < len(ends) == facts["pairs"]:
            raise Unusable(f"{side}.ends does not have an end for each pair")
        _check_ends(ends, len(text), f"{side}.ends", least=1)
        _check_utf8(text, ends, f"{side}.text")
    if linked:
        links, ends, lengths = link_arrays(entry)
        if not len(lengths) == len(ends) == facts["pairs"]:
            raise Unusable("links.ends does not have an end for each pair")
        _check_ends(ends, len(links), "links.ends", least=0)
        _check_lengths(lengths, ends, "links.lengths")
        if any((block % 2).any() for block in lengths.blocks()):
            raise Unusable("links.lengths is inconsistent")


def _usable_pairs(files: Texts) -> Generator[tuple[Pair, list[int]]]:
    for corpus in as_list(files):
        yield from (each for each in iter_linked_pairs(corpus) if has_text(*each[0]))


def read_ids(
    entry: Entry, text: ParallelText, vocabularies: Vocabularies, max_length: int
) -> tuple[Selected[str], Selected[str], PackedIds, PackedIds]:
    """Open the ids of an entry; raises Unusable unless they are ids of pairs of the text.

    Some of the pairs, drawn at random, are encoded again.
    """
    if not entry.verified:
        _check_ids(entry, text, vocabularies, max_length)
    opened = open_ids(entry, text, max(map(len, vocabularies[:2])))
    pairs = len(opened[0])
    sample = random.SystemRandom().sample(range(pairs), min(pairs, _SAMPLED_PAIRS))
    src, tgt = ([lines[i] for i in sample] for lines in opened[:2])
    for encoded, ids_of in zip(vocabularies.encode_pairs(src, tgt), opened[2:], strict=True):
        if encoded != [ids_of[i] for i in sample]:
            raise Unusable("its ids are not those of the text")
    return opened


def _check_ids(
    entry: Entry, text: ParallelText, vocabularies: Vocabularies, max_length: int
) -> None:
    """Raise Unusable unless the ids of an entry are those of tokens of pairs of the text."""
    names = (f"{side}.{name}" for side in SIDES for name in ("ids", "ends", "lengths"))
    _check_names(entry, ("rows", *names))
    rows = array_of(entry, "rows", np.int64)
    _check_rows(rows, len(text))
    size = max(map(len, vocabularies[:2]))
    for side, vocabulary in zip(SIDES, vocabularies[:2], strict=True):
        ids, ends, lengths = ids_arrays(entry, side, size)
        if not len(rows) == len(ends) == len(lengths):
            raise Unusable(f"{side}.ends does not have an end for each pair")
        _check_ends(ends, len(ids), f"{side}.ends", least=0, most=max_length)
        _check_lengths(lengths, ends, f"{side}.lengths")
        for block in ids.blocks():
            if not _are_tokens(block, len(vocabulary)):
                raise Unusable(f"{side}.ids has ids that are not those of tokens")


def read_models(entry: Entry, config: VocabularyConfig) -> Vocabularies:
    """Load the vocabularies of an entry; raises Unusable if they are not as configured."""
    stems = (*(("joint",) if config.joint else SIDES), *((NAMES,) if config.masks_names else ()))
    _check_names(entry, map(file_of, stems))
    try:
        vocabularies = read_vocabularies(entry.folder, stems, config.sampling)
    except RuntimeError:  # from SentencePiece
        raise Unusable("it has no SentencePiece model") from None
    except ValueError:
        raise Unusable("its file of names is damaged") from None
    for vocabulary in vocabularies[:2]:
        if config.model:  # which the key of the entry identifies
            continue
        exact = config.type in ("unigram", "bpe") and config.size is not None
        if exact and len(vocabulary) != config.size:
            raise Unusable(f"its vocabulary has {len(vocabulary):,} tokens")
        if vocabulary.has_byte_fallback != (config.type != "word"):
            raise Unusable(f"its vocabulary is not of type {config.type}")
    return vocabularies


def _check_names(entry: Entry, names: Iterable[str]) -> None:
    if different := set(names) ^ set(entry.files):
        raise Unusable(f"{min(different)} is missing, or not one of its files")


def _check_ends(
    ends: ArrayFile[np.int64], total: int, name: str, least: int, most: int | None = None
) -> None:
    """Raise Unusable unless lines of at least `least` values take up all `total` values."""
    end = 0
    for block in ends.blocks():
        lengths = np.diff(block, prepend=end)
        if block.min() < 0 or lengths.min() < least or (most is not None and lengths.max() > most):
            raise Unusable(f"{name} is inconsistent")
        end = int(block[-1])
    if end != total:
        raise Unusable(f"{name} is inconsistent")


def _check_lengths(lengths: ArrayFile[np.uint32], ends: ArrayFile[np.int64], name: str) -> None:
    end, start = 0, 0
    for block in ends.blocks():
        if not np.array_equal(np.diff(block, prepend=end), lengths[start : start + len(block)]):
            raise Unusable(f"{name} is inconsistent")
        end, start = int(block[-1]), start + len(block)


def _check_rows(rows: ArrayFile[np.int64], pairs: int) -> None:
    last = -1
    for block in rows.blocks():
        if block.min() < 0 or np.diff(block, prepend=last).min() < 1:
            raise Unusable("rows is inconsistent")
        last = int(block[-1])
    if last >= pairs:
        raise Unusable("rows is inconsistent")


def _check_utf8(text: ArrayFile[np.uint8], ends: ArrayFile[np.int64], name: str) -> None:
    """Raise Unusable unless each line is UTF-8."""
    start = 0
    for first in range(0, len(ends), _BLOCK_LINES):
        block = ends[first : first + _BLOCK_LINES]
        content = text[start : int(block[-1])]
        starts = np.append(0, block[:-1] - start)
        try:
            str(memoryview(content), "utf-8")  # type: ignore[arg-type]
        except UnicodeDecodeError:
            raise Unusable(f"{name} is not UTF-8") from None
        if (content[starts] >> 6 == _CONTINUATION).any():  # in the middle of a character
            raise Unusable(f"{name} is not UTF-8")
        start = int(block[-1])


def _are_tokens(ids: NDArray[np.unsignedinteger], size: int) -> bool:
    """Return whether all ids are those of a vocabulary, and none that text cannot have."""
    special = max(PAD_ID, BOS_ID, EOS_ID)
    low = ids[ids <= special]
    return bool(ids.max() < size) and not np.isin(low, (PAD_ID, BOS_ID, EOS_ID)).any()
