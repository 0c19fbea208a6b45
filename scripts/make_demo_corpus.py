"""Writes the demo corpora (English-French, English-Marathi) from grammars of our own, by seed."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from demo_grammar.french import french_corpus, french_lengths
from demo_grammar.marathi import marathi_corpus
from demo_grammar.splits import Splits


def write_corpus(splits: Splits, folder: Path, tgt_lang: str) -> None:
    """Write `{train,valid,test}.{en,tgt_lang}`; each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in splits.items():
        for lang, lines in zip(("en", tgt_lang), zip(*pairs, strict=True), strict=True):
            path = folder / f"{name}.{lang}"
            unfinished = folder / f".{path.name}.unfinished"
            text = "".join(f"{line}\n" for line in lines)
            unfinished.write_text(text, encoding="utf-8", newline="\n")
            unfinished.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all corpora; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="another seed, another corpus")
    parser.add_argument("--output", type=Path, default=Path("data"), help="folder to write into")
    options = parser.parse_args(arguments)
    corpora = (
        ("demo", "fr", french_corpus(options.seed)),
        ("demo-lengths", "fr", french_lengths(options.seed)),
        ("demo-en-mr", "mr", marathi_corpus(options.seed)),
    )
    for name, tgt_lang, splits in corpora:
        try:
            write_corpus(splits, options.output / name, tgt_lang)
        except OSError as error:
            print(f"{options.output / name}: cannot be written ({error.strerror})", file=sys.stderr)
            return 1
        counts = ", ".join(f"{len(pairs)} {split}" for split, pairs in splits.items())
        print(f"{options.output / name}: {counts} pairs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
