"""Training text in a cache, and the same read into memory."""

import gzip
import shutil
from pathlib import Path
from typing import NamedTuple

from cases.toy_text import toy_pairs
from seq2seq.config.schema import ParallelFiles, VocabularyConfig
from seq2seq.data.batching import EncodedPairs, encode_pairs
from seq2seq.data.corpus import ParallelText, read_pairs, usable
from seq2seq.data.training_data import (
    cache_notes,
    cache_of,
    cached_text,
    cached_vocabularies,
    encoded_text,
    open_cache,
)
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies, checksums_of

VOCABULARY = VocabularyConfig(size=340, sampling=0.3)
LONGEST = 30
SRC, TGT = toy_pairs(90, seed=4)
SRC[3], TGT[3] = "  \t", "blank on the other side"
SRC[5] = "e\u0301 decomposed, \u2028 a separator, \x0c and \x85 too"
SRC[7] = TGT[7] = "the same on both sides"
TGT[11] = "ba " * 40  # too long
TGT[12] += "\t a column more"


class LoadedData(NamedTuple):
    """Training data of a run and the cache entries built for it."""

    text: ParallelText
    vocabularies: Vocabularies
    pairs: EncodedPairs
    blank: int
    same: int
    notes: list[str]
    built: list[str]  # names of entries


def count_same(text: ParallelText) -> int:
    return sum(map(str.__eq__, text.src, text.tgt))


def write_files(folder: Path, way: str = "plain") -> ParallelFiles:
    """Write the text as two files or a TSV, with a byte order mark and CR LF, which are removed."""
    folder.mkdir(exist_ok=True)
    if way == "tsv":
        lines = [f"{src}\t{tgt}" for src, tgt in zip(SRC, TGT, strict=True)]
        lines[3] = f" \t{TGT[3]}"
        (folder / "train.tsv").write_bytes("\r\n".join(lines).encode())
        return ParallelFiles(file=folder / "train.tsv")
    end = ".gz" if way == "gz" else ""
    for side, lines, ending in (("src", SRC, "\r\n"), ("tgt", TGT, "\n")):
        data = b"\xef\xbb\xbf" + "".join(f"{line}{ending}" for line in lines).encode()
        path = folder / f"train.{side}{end}"
        path.write_bytes(gzip.compress(data) if end else data)
    return ParallelFiles(src=folder / f"train.src{end}", tgt=folder / f"train.tgt{end}")


def load_data(
    files: ParallelFiles,
    run: Path,
    vocabulary: VocabularyConfig = VOCABULARY,
    longest: int = LONGEST,
) -> LoadedData:
    with open_cache(files, run) as cache:
        text, notes = cached_text(files, cache)
        notes += cache_notes(cache, run)
        vocabularies, vocabulary_notes = cached_vocabularies(text, vocabulary)
        encoded, encoding_notes = encoded_text(text, vocabularies, longest)
        notes += [*vocabulary_notes, *encoding_notes]
        built = [name.partition("-")[0] for name in cache.built]
        return LoadedData(
            text.text, vocabularies, encoded.pairs, text.blank, text.same, notes, built
        )


def read_into_memory(files: ParallelFiles) -> LoadedData:
    """Read the same data without the cache."""
    text, blank = usable(read_pairs(files))
    vocabularies = train_vocabularies(VOCABULARY, text.src, text.tgt)
    pairs = encode_pairs(text.src, text.tgt, vocabularies, LONGEST)
    return LoadedData(text, vocabularies, pairs, blank, count_same(text), [], [])


def assert_same_data(cached: LoadedData, in_memory: LoadedData) -> None:
    assert cached.text.source_name == in_memory.text.source_name
    assert list(cached.text.src) == list(in_memory.text.src)
    assert list(cached.text.tgt) == list(in_memory.text.tgt)
    assert (cached.blank, cached.same) == (in_memory.blank, in_memory.same)
    assert checksums_of(cached.vocabularies) == checksums_of(in_memory.vocabularies)
    assert len(cached.pairs) == len(in_memory.pairs)
    for side, expected_side in zip(cached.pairs, in_memory.pairs, strict=True):
        same = side is None or isinstance(side, int)  # no word alignments, or a number
        assert side == expected_side if same else list(side) == list(expected_side)  # type: ignore[call-overload]


class Built(NamedTuple):
    """A cache that tests must not change, and the data expected from it."""

    files: ParallelFiles
    run: Path
    in_memory: LoadedData

    def copied_to(self, run: Path) -> None:
        """Copy the cache for another run."""
        shutil.copytree(cache_of(self.run), cache_of(run))


def build_cache(folder: Path) -> Built:
    """Write a corpus and cache it beside a run folder."""
    files = write_files(folder / "data")
    load_data(files, folder / "runs" / "run")
    return Built(files, folder / "runs" / "run", read_into_memory(files))


def entry(run: Path, kind: str) -> Path:
    (path,) = cache_of(run).glob(f"*/{kind}*")
    return path


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
