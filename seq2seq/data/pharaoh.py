"""Word alignments in Pharaoh form: `0-0 1-2` links source word 0 with target word 0, and so on.

Words are those of `words_of`: what spaces separate in a line of the text, as tokens merge to words.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.data import corpus as texts
from seq2seq.data.vocabulary.vocabulary import words_of
from seq2seq.runtime.console import counted
from seq2seq.runtime.errors import UserError
from seq2seq.text.text_files import in_step, iter_lines

if TYPE_CHECKING:
    from seq2seq.config.corpora import ParallelFiles

LINK = re.compile(r"([0-9]{1,6})([-?p])([0-9]{1,6})")  # a sure link, or a possible one: ? or p
Pair = tuple[str, str]


def iter_linked_pairs(corpus: "ParallelFiles") -> Iterator[tuple[Pair, list[int]]]:
    """Yield pairs with their links, if there are any; raises UserError as `aligned_pairs` does."""
    pairs = texts.iter_pairs(corpus)
    path = corpus.paths.get("alignment")
    if path is None:
        return ((pair, []) for pair in pairs)
    name = f"the text ({texts.source_name(corpus)})"
    return aligned_pairs(pairs, path, name, corpus.tag is not None)


def aligned_pairs(
    pairs: Iterator[Pair], path: Path, name: str, has_tag: bool
) -> Iterator[tuple[Pair, list[int]]]:
    """Yield each pair of a text with its links, line n of the file being those of pair n.

    Links are in one list: source word, target word, source word, ... A tag before the source is a
    word that the file does not count. Raises UserError for a line that is not in Pharaoh form, for
    a link to a word that the pair does not have, and for another number of lines than `name` has.
    """
    rule = "line n must be the alignment of pair n, blank for none"
    rows = in_step([(str(path), iter_lines(path)), (name, pairs)], rule)
    for number, (line, pair) in enumerate(rows, start=1):
        yield pair, _links(line, pair, f"{path}:{number}", has_tag)


def _links(line: str, pair: Pair, place: str, has_tag: bool) -> list[int]:
    words = line.split()
    if not words:
        return []
    sizes = [len(words_of(side)) for side in pair]
    tag = int(has_tag and sizes[0] > 0)
    links = []
    for word in words:
        link = LINK.fullmatch(word)
        if link is None or link[2] != "-":
            raise UserError(f"{place}: {word[:40]!r} is no link such as 0-0, as Pharaoh has them")
        for side, index, size in zip(("source", "target"), link.group(1, 3), sizes, strict=True):
            if int(index) >= (present := size - tag * (side == "source")):
                raise UserError(
                    f"{place}: {word}: the {side} has {counted(present, 'word')}, counted from 0. "
                    "Align the words that spaces separate in this very text"
                )
        links += [int(link[1]) + tag, int(link[3])]
    return links
