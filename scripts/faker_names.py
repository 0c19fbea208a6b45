"""Write a list of names for `vocabulary.names: {placeholders: FILE}` from Faker's locales.

    pip install faker
    python scripts/faker_names.py mr_IN hi_IN ne_NP -o names.txt
    python scripts/faker_names.py ja_JP --script katakana -o names.txt

First and last names of persons, each once, of letters and their marks only. Faker (MIT licence) is
needed by this script alone. `--script` keeps the names of one script, by Unicode's names of its
letters: the locale ja_JP has each name in kanji, katakana and Latin letters.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from seq2seq.runtime.files import atomic_write
from seq2seq.text.characters import normalized
from seq2seq.text.names.words import is_letter, script_of

PREFIXES = ("first_name", "last_name", "middle_name")


def main() -> None:
    """Write the names of all locales, sorted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("locales", nargs="+", metavar="LOCALE")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--script", metavar="NAME", help="such as katakana or devanagari")
    options = parser.parse_args()
    names = {name for locale in options.locales for name in names_of(provider(locale))}
    if options.script:
        names = {name for name in names if is_of(name, options.script.upper())}
    atomic_write(options.output, "".join(f"{name}\n" for name in sorted(names)).encode())
    print(f"{options.output}: {len(names):,} names")


def provider(locale: str) -> object:
    """Return Faker's tables of the names of persons in a locale."""
    try:
        from faker import Faker
    except ModuleNotFoundError:
        raise SystemExit("faker is not installed. Run `pip install faker`.") from None
    try:
        (generator,) = Faker(locale).factories
    except AttributeError:
        raise SystemExit(f"{locale}: Faker has no names of this locale.") from None
    tables: object = next(p for p in generator.providers if "person" in type(p).__module__)
    return tables


def names_of(tables: object) -> Iterator[str]:
    """Yield the names in tables of words, of weighted words, or of tuples of spellings."""
    for key in dir(tables):
        table = getattr(tables, key)
        if key.startswith(PREFIXES) and not callable(table):
            for row in table:
                for name in (row,) if isinstance(row, str) else row:
                    text = normalized(name)
                    if text and all(map(is_letter, text)):
                        yield text


def is_of(name: str, script: str) -> bool:
    """Return whether all letters of a name are of a script."""
    return {script_of(letter) for letter in name if letter.isalpha()} == {script}


if __name__ == "__main__":
    main()
