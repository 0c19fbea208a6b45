"""Divide a parallel text into train, valid and test without leaks.

Pairs with the same source or the same target are connected. A connected component stays together,
so that no source and no target of one part occurs in another.
"""

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.corpus import has_text, iter_pairs, no_usable_pair, source_name
from seq2seq.data.tables import pair_writer
from seq2seq.runtime import console, errors
from seq2seq.runtime.files import appearing_together
from seq2seq.text.sameness import sentence_key

if TYPE_CHECKING:
    from seq2seq.config.schema import ParallelFiles

PARTS = ("train", "valid", "test")
_HELD_OUT, _SMALL = 1000, 20  # pairs of valid and of test; divisor of the pairs of a small text
DROPPED = -1  # part of a pair with a blank side


class Division(NamedTuple):
    """Part of each pair, as an index of PARTS or DROPPED, and the number of components."""

    parts: NDArray[np.int8]
    components: int

    def count(self, part: int) -> int:
        """Return the number of pairs of a part."""
        return int(np.count_nonzero(self.parts == part))


def divide(
    pairs: Iterable[tuple[str, str]],
    sizes: Mapping[str, int | None],
    seed: int,
    name: str,
    options: Mapping[str, str] | None = None,
) -> Division:
    """Choose components at random for valid and test, of at most `sizes` pairs; train has the rest.

    A size of None is `default_size`.

    A pure function of the arguments. Texts that differ in case, in white space or in Unicode's
    normal form count as the same. Pairs with a blank side are dropped. Raises UserError, naming the
    text and the part's option (the one in `options`, or the part's name), if a part cannot have its
    pairs, or train would be empty.
    """
    options = {part: f"--{part}" for part in PARTS} | dict(options or {})
    labels = _components(pairs)
    usable_labels = labels[labels >= 0]
    chosen_sizes = {
        part: default_size(len(usable_labels)) if size is None else size
        for part, size in sizes.items()
    }
    if not len(usable_labels):
        raise no_usable_pair(name, len(labels))
    if sum(chosen_sizes.values()) >= len(usable_labels):
        pairs_with_text = console.counted(len(usable_labels), "pair")
        lower = " and ".join(options[part] for part, size in chosen_sizes.items() if size)
        raise errors.UserError(
            f"{name}: {pairs_with_text} with text leave none for train; lower {lower}"
        )
    members = np.bincount(usable_labels, minlength=1)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(np.flatnonzero(members))
    part_of = np.zeros(len(members), np.int8)
    start = 0
    for part in PARTS[1:]:
        chosen, start = _choose(members, order, start, chosen_sizes[part])
        part_of[chosen] = PARTS.index(part)
        size = int(members[chosen].sum())
        if size < (needed := chosen_sizes[part]):
            text = f"{part} can have {size:,} of {console.counted(needed, 'pair')}, as many of"
            reason = f"the {len(usable_labels):,} pairs with text share sources and targets"
            raise errors.UserError(f"{name}: {text} {reason}; lower {options[part]}")
    return Division(np.where(labels >= 0, part_of[labels], DROPPED).astype(np.int8), len(order))


def default_size(pairs: int) -> int:
    """Return the number of pairs of valid, and of test, in a text of `pairs`."""
    return max(1, min(_HELD_OUT, pairs // _SMALL))


def write_parts(
    files: "ParallelFiles",
    division: Division,
    outputs: Mapping[str, Sequence[Path]],
    columns: Sequence[str],
) -> None:
    """Write the parts named in `outputs`, each in two files or one, in the order of the text.

    A crash leaves no part beside one of an earlier division: some are missing until all are there.
    Raises UserError if the text is not the one that was divided, and errors as `pair_writer` does.
    """
    with ExitStack() as stack:
        renames = stack.enter_context(appearing_together())
        writers = {
            PARTS.index(part): stack.enter_context(pair_writer(paths, columns, renames))
            for part, paths in outputs.items()
        }
        written = 0
        for part, pair in zip(division.parts.tolist(), iter_pairs(files), strict=False):
            written += 1
            if part in writers:
                writers[part](*pair)
        if written != len(division.parts):
            raise errors.UserError(f"{source_name(files)}: changed while being read. Try again")


def holds_part(
    path: Path, files: "ParallelFiles", division: Division, part: str, side: int
) -> bool:
    """Return whether a text file has a side (0 or 1) of a part, as `write_parts` writes it."""
    number = PARTS.index(part)
    pairs = zip(division.parts.tolist(), iter_pairs(files), strict=False)
    expected = (f"{pair[side]}\n".encode() for own, pair in pairs if own == number)
    with path.open("rb") as lines:
        return all(line == text for line, text in zip_longest(lines, expected))


def _choose(
    members: NDArray[np.int64], order: NDArray[np.int64], start: int, size: int
) -> tuple[list[int], int]:
    """Return components of `size` pairs in all, in random order, and where the next part starts.

    A component with more pairs than are still wanted is left to train.
    """
    chosen: list[int] = []
    for place in range(start, len(order)):
        if not size:
            return chosen, place
        component = int(order[place])
        if members[component] <= size:
            chosen.append(component)
            size -= int(members[component])
    return chosen, len(order)


def _components(pairs: Iterable[tuple[str, str]]) -> NDArray[np.int64]:
    """Return the component of each pair; -1 for one with a blank side."""
    digests: tuple[array[int], array[int]] = (array("Q"), array("Q"))
    usable = array("b")
    for src, tgt in pairs:
        usable.append(has_text(src, tgt))
        if usable[-1]:
            for side, text in zip(digests, (src, tgt), strict=True):
                side.append(_digest(text))
    labels = np.full(len(usable), -1, np.int64)
    labels[np.array(usable, bool)] = _connected(*digests)
    return labels


def _connected(src: "array[int]", tgt: "array[int]") -> NDArray[np.int64]:
    """Return the component of each pair, given the digests of its texts."""
    src_texts, tgt_texts = (
        np.unique(np.array(side, np.uint64), return_inverse=True)[1] for side in (src, tgt)
    )
    count = int(src_texts.max(initial=-1)) + 1
    parents = array("q", range(count + int(tgt_texts.max(initial=-1)) + 1))  # parents in a forest
    for texts in zip(src_texts, tgt_texts + count, strict=True):
        first, second = sorted(_root(parents, int(text)) for text in texts)
        parents[second] = first
    return np.array([_root(parents, int(text)) for text in src_texts], np.int64)


def _root(parents: "array[int]", node: int) -> int:
    while parents[node] != node:
        parents[node] = parents[parents[node]]  # halve the path
        node = parents[node]
    return node


def _digest(text: str) -> int:
    digest = hashlib.blake2b(
        sentence_key(text).encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()
    return int.from_bytes(digest, "little")
