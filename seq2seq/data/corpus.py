"""Parallel text: sentence pairs from files, and checks of pairs and languages."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from seq2seq.data.tables import iter_csv, iter_json_lines, iter_tsv
from seq2seq.runtime import file_types
from seq2seq.runtime.console import counted
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import check_regular_file
from seq2seq.text.characters import is_blank
from seq2seq.text.sample import sample_of
from seq2seq.text.text_files import aligned_lines

if TYPE_CHECKING:
    from seq2seq.config.corpora import Corpus, ParallelFiles
    from seq2seq.config.schema import DataConfig

Texts: TypeAlias = "ParallelFiles | tuple[Corpus, ...]"

_READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[tuple[str, str]]]] = {
    "tsv": iter_tsv,
    "csv": iter_csv,
    "json": iter_json_lines,
}
MIN_DISTINCT_WORDS = 20  # per side, to recognise its language
MAX_SAMPLED_LINES = 50_000  # per side of the training text, to collect its words


@dataclass(frozen=True)
class ParallelText:
    """Sentences and their translations: `tgt[i]` translates `src[i]`."""

    src: Sequence[str]
    tgt: Sequence[str]
    source_name: str = "the parallel text"  # the files, for messages

    def __len__(self) -> int:
        return len(self.src)


def checksum_of_text(text: ParallelText, sizes: Sequence[int] = ()) -> str:
    """Return a checksum of all pairs, and the sizes of several corpora, whatever their files."""
    digests = []
    for lines in (text.src, text.tgt):
        content = hashlib.sha256()
        ends = hashlib.sha256()
        end = 0
        for line in lines:
            encoded = line.encode()
            end += len(encoded)
            content.update(encoded)
            ends.update(end.to_bytes(8, sys.byteorder))
        digests += [content.hexdigest(), ends.hexdigest()]
    return combined_checksum(digests, sizes)


def combined_checksum(digests: Sequence[str], sizes: Sequence[int] = ()) -> str:
    """Return the checksum of a text, given the SHA-256 of each side's bytes and of its line ends.

    Ends are positions in those bytes, as integers of eight bytes: a cached text has them in files.
    """
    parts = [*digests, *map(str, sizes)] if len(sizes) > 1 else digests
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def read_pairs(files: Texts) -> ParallelText:
    """Return all pairs that `iter_pairs` yields, of all corpora of a list."""
    src = []
    tgt = []
    for corpus in as_list(files):
        for src_line, tgt_line in iter_pairs(corpus):
            src.append(src_line)
            tgt.append(tgt_line)
    return ParallelText(src, tgt, source_name(files))


def iter_pairs(files: "ParallelFiles") -> Iterator[tuple[str, str]]:
    """Yield the pairs of a parallel text, blank lines included, the others after its tag.

    Raises UserError for a table without rows, for what is no regular file, and as the reader of the
    format does.
    """
    for path in files.paths.values():
        check_regular_file(path)
    if files.src is not None and files.tgt is not None:
        pairs = aligned_lines(files.src, files.tgt)
    else:
        assert files.file is not None, "give src and tgt, or file"
        if files.columns is not None:
            pairs = _rows(files.file, files.columns)
        elif files.is_table:
            pairs = iter_tsv(files.file, None)
        else:
            names = "the names of its columns"
            raise UserError(f"{files.file}: set columns: [SOURCE, TARGET], {names}")
    if (tag := files.tag) is None:
        return pairs
    return ((_with_tag(src, tag), tgt) for src, tgt in pairs)


def tagged(text: ParallelText, tag: str | None) -> ParallelText:
    """Put a tag, if there is one, before the source lines that are not blank."""
    if tag is None:
        return text
    return ParallelText([_with_tag(src, tag) for src in text.src], text.tgt, text.source_name)


def _with_tag(src: str, tag: str) -> str:
    return src if is_blank(src) else f"{tag} {src}"


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield two columns of a table; raises UserError as its reader does, and if it has no row."""
    rows = _READERS[file_types.table_format(path)](path, columns)
    first = next(rows, None)
    if first is None:
        raise UserError(f"{path}: the table has no rows. It needs one pair of sentences per row.")
    yield first
    yield from rows


def as_list(files: Texts) -> "Sequence[ParallelFiles]":
    """Return the corpora of a text, which may be a single one."""
    return files if isinstance(files, tuple) else (files,)


def joined(texts: Sequence[ParallelText]) -> ParallelText:
    """Return texts one after another as one."""
    if len(texts) == 1:
        return texts[0]
    name = f"{len(texts)} corpora ({'; '.join(text.source_name for text in texts)})"
    src, tgt = ([line for text in texts for line in getattr(text, side)] for side in ("src", "tgt"))
    return ParallelText(src, tgt, name)


def paths_of(files: Texts) -> dict[str, Path]:
    """Return the paths that are set, by config key; in a list, after the number of the corpus."""
    corpora = as_list(files)
    if len(corpora) == 1:
        return corpora[0].paths
    return {
        f"{number}.{key}": path
        for number, corpus in enumerate(corpora, start=1)
        for key, path in corpus.paths.items()
    }


def source_name(files: Texts) -> str:
    """Return the paths of a parallel text as messages name it."""
    names = [
        " and ".join(str(path) for key, path in corpus.paths.items() if key != "alignment")
        for corpus in as_list(files)
    ]
    return names[0] if len(names) == 1 else f"{len(names)} corpora ({'; '.join(names)})"


def usable(text: ParallelText) -> tuple[ParallelText, int]:
    """Drop and count pairs with a blank side; raises UserError if no other remains."""
    pairs = [pair for pair in zip(text.src, text.tgt, strict=True) if has_text(*pair)]
    if not pairs:
        raise no_usable_pair(text.source_name, len(text))
    src, tgt = (list(side) for side in zip(*pairs, strict=True))
    return ParallelText(src, tgt, text.source_name), len(text) - len(pairs)


def has_text(src: str, tgt: str) -> bool:
    """Return whether neither side of a pair is blank."""
    return not (is_blank(src) or is_blank(tgt))


def no_usable_pair(name: str, pairs: int) -> UserError:
    """Return the error for a text all of whose pairs have a blank side."""
    return UserError(
        f"{name}: none of the {counted(pairs, 'pair')} has text on both sides. "
        "Check that these are the right files."
    )


def same_sides(text: ParallelText, same: int | None = None) -> str | None:
    """Return a note if at least half of the pairs have identical sides (`same`, if counted)."""
    same = sum(map(str.__eq__, text.src, text.tgt)) if same is None else same
    if 2 * same < len(text):
        return None
    pairs = counted(len(text), "pair")
    note = f"note: source and target are identical in {same:,} of {pairs} of {text.source_name}"
    return f"{note}; check that these are the right files"


def trained_on(train: ParallelText, valid: ParallelText) -> str | None:
    """Return a note if the validation text is the training text, or its start or end."""
    count = len(valid)
    for start, part in ((0, "first"), (len(train) - count, "last")):
        rows = range(count if 0 <= start <= len(train) - count else 0)
        if rows and all(
            train.src[start + row] == valid.src[row] and train.tgt[start + row] == valid.tgt[row]
            for row in rows
        ):
            some = f"the {part} {counted(count, 'pair')} of " if count < len(train) else ""
            text = f"warning: data.valid ({valid.source_name}) is {some}the training text: its"
            return f"{text} scores say nothing about other text. `seq2seq split` holds some out"
    return None


def check_directions(train: ParallelText, texts: Sequence[ParallelText], src_lang: str) -> None:
    """Raise UserError if the sides of one of `texts` are swapped relative to the training text.

    More than half of the words of each side are then on the opposite side of (a part of) that text,
    and fewer than a quarter on the same side.
    """
    vocabularies = [_words(sample_of(side, MAX_SAMPLED_LINES)) for side in (train.src, train.tgt)]
    for text in texts:
        sides = [_words(text.src), _words(text.tgt)]
        if min(map(len, sides)) < MIN_DISTINCT_WORDS:
            continue
        same, opposite = (
            [len(side & words) / len(side) for side, words in zip(sides, against, strict=True)]
            for against in (vocabularies, vocabularies[::-1])
        )
        if min(opposite) > 0.5 and max(same) < 0.25:
            raise UserError(
                f"{text.source_name}: source and target seem to be swapped relative to "
                f"{train.source_name}: {opposite[0]:.0%} of its source words occur on the target "
                f"side there and {same[0]:.0%} on the source side. Swap the sides of one of the "
                f"two: the source language is {src_lang}."
            )


def _words(lines: Iterable[str]) -> set[str]:
    return {word for line in lines for word in line.split()}


def valid_text(data: "DataConfig", train: ParallelText) -> ParallelText:
    """Read the validation text; check it and the test text against the training text."""
    texts = [read_pairs(files) for files in (data.valid, data.test) if files]
    check_directions(train, texts, data.src_lang)
    return texts[0]
