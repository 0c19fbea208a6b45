"""Measure how names that training lacks are spelled, by cross-validation over a parallel text.

    python scripts/measure_names.py TEXT.tsv
    python scripts/measure_names.py TEXT.tsv --names NAMES.txt --pairs PAIRS.tsv

TEXT has a source and a target sentence a line, separated by a tab; it may be compressed. The rare
names that `vocabulary.names: placeholders` mines from it are divided into folds. The names of a
fold are spelled after learning from the text without all sentences that have one of them, and
compared with their spelling in those sentences. `--names` is the list of `{placeholders: FILE}`.
`--pairs` has further names, a tab, and their spellings with `|` between; those that the text lacks
are spelled after learning from all of it, and counted apart if the list has their spelling.
"""

import argparse
import time
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from seq2seq.text.characters import normalized
from seq2seq.text.names.name_list import read_names
from seq2seq.text.names.names import FREQUENT, Names, learn_names
from seq2seq.text.names.words import source_words
from seq2seq.text.text_files import read_lines


class Score(NamedTuple):
    """Numbers of names: all, those spelled right, reliable ones, and reliable ones right."""

    names: int = 0
    right: int = 0
    reliable: int = 0
    reliable_right: int = 0

    def plus(self, other: "Score") -> "Score":
        """Return the sums."""
        return Score(*(a + b for a, b in zip(self, other, strict=True)))

    def __str__(self) -> str:
        """Return a line of the report."""
        share = 100 * self.right / max(1, self.names)
        reliable = f"{self.reliable} reliable, {self.reliable_right} of them right"
        return f"{self.right} of {self.names} right ({share:.1f}%), {reliable}"


class Text(NamedTuple):
    """The sides of a parallel text, line by line."""

    src: list[str]
    tgt: list[str]


def main() -> None:
    """Print the scores of the folds together, and of further pairs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("--names", type=Path, metavar="FILE")
    parser.add_argument("--pairs", type=Path, metavar="FILE")
    parser.add_argument("--folds", type=int, default=5, help="0: only --pairs")
    parser.add_argument("--seed", type=int, default=0, help="of the division into folds")
    options = parser.parse_args()
    text = read_text(options.text)
    listed = {} if options.names is None else read_names(options.names)
    start = time.process_time()
    names = learn_names(text.src, text.tgt, (), listed)
    seconds = time.process_time() - start
    print(f"{len(names.pairs)} names mined from {len(text.src):,} pairs, {seconds:.1f} s of CPU")
    if options.folds:
        result = cross_validated(text, names, listed, options.folds, options.seed)
        print(f"left out: {result}")
    if options.pairs is not None:
        pairs = read_pairs(options.pairs)
        unseen = {name: spellings for name, spellings in pairs.items() if name not in names.pairs}
        groups: list[dict[str, list[str]]] = [{}, {}]
        for name, spellings in unseen.items():
            groups[listed.keys().isdisjoint(spellings)][name] = spellings
        for title, group in zip(("listed", "not listed"), groups, strict=True):
            if group:
                print(f"{options.pairs.name}, {title}: {score(names, group)}")


def read_text(path: Path) -> Text:
    """Read the first two columns of a TSV."""
    rows = [normalized(line).split("\t") for line in read_lines(path)]
    return Text([row[0] for row in rows], [row[1] for row in rows])


def read_pairs(path: Path) -> dict[str, list[str]]:
    """Read names, and the spellings that are right for each."""
    rows = [normalized(line).split("\t") for line in read_lines(path)]
    return {name: spellings.split("|") for name, spellings, *_ in rows}


def cross_validated(
    text: Text, names: Names, listed: Mapping[str, str], folds: int, seed: int
) -> Score:
    """Return the score of rare names that are left out, fold by fold."""
    words = [{word.text for word in source_words(line)} for line in text.src]
    rare = {name: [pair.stem] for name, pair in names.pairs.items() if pair.occurrences < FREQUENT}
    total = Score()
    for fold in range(folds):
        held = {name: stems for name, stems in rare.items() if fold_of(name, folds, seed) == fold}
        known_text = without(text, words, held)
        total = total.plus(score(learn_names(known_text.src, known_text.tgt, (), listed), held))
    return total


def fold_of(name: str, folds: int, seed: int) -> int:
    """Return the fold of a name, the same on every machine."""
    prefix = f"{seed}:" if seed else ""
    return zlib.crc32(f"{prefix}{name}".encode()) % folds


def without(text: Text, words: Iterable[Collection[str]], names: Mapping[str, object]) -> Text:
    """Return the text without the lines that have one of the names."""
    rows = [n for n, line in enumerate(words) if names.keys().isdisjoint(line)]
    return Text([text.src[n] for n in rows], [text.tgt[n] for n in rows])


def score(names: Names, pairs: Mapping[str, Collection[str]]) -> Score:
    """Spell names, each of which has some right spellings."""
    total = Score()
    for name, spellings in pairs.items():
        text, is_reliable = names.spell_word(name)
        is_right = text in spellings
        total = total.plus(Score(1, is_right, is_reliable, is_reliable and is_right))
    return total


if __name__ == "__main__":
    main()
