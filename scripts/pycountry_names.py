"""Write a parallel text of names of countries, their parts and languages, from pycountry.

    pip install pycountry
    python scripts/pycountry_names.py ka -o names.ka.tsv

A line has an English name, a tab and its translation, if that differs. pycountry (LGPL licence),
which has the translations of Debian's iso-codes, is needed by this script alone.
"""

import argparse
import gettext
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from seq2seq.runtime.files import atomic_write
from seq2seq.text.characters import normalized

CATALOGUES = {"iso3166-1": "countries", "iso3166-2": "subdivisions", "iso639-3": "languages"}
FIELDS = ("name", "official_name", "common_name", "inverted_name")
_BREAKS = frozenset("\t\r\n")


def main() -> None:
    """Write the names of all catalogues, sorted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("language", metavar="LANGUAGE", help="a code, such as ka or el")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    pairs = dict(translations(options.language))
    if not pairs:
        raise SystemExit(f"{options.language}: pycountry has no translations into this language.")
    lines = (f"{name}\t{translation}\n" for name, translation in sorted(pairs.items()))
    atomic_write(options.output, "".join(lines).encode())
    print(f"{options.output}: {len(pairs):,} names")


def translations(language: str) -> Iterator[tuple[str, str]]:
    """Yield the names that pycountry translates into a language."""
    try:
        import pycountry
    except ModuleNotFoundError:
        raise SystemExit("pycountry is not installed. Run `pip install pycountry`.") from None
    for domain, table in CATALOGUES.items():
        catalogue = gettext.translation(domain, pycountry.LOCALES_DIR, [language], fallback=True)
        entries = [dict(entry) for entry in getattr(pycountry, table)]
        yield from translated(entries, catalogue)


def translated(
    entries: Iterable[Mapping[str, object]], catalogue: gettext.NullTranslations
) -> Iterator[tuple[str, str]]:
    """Yield the names of entries whose translation differs, without tabs and line ends."""
    for entry in entries:
        for field in FIELDS:
            name = entry.get(field)
            if isinstance(name, str):
                pair = normalized(name), normalized(catalogue.gettext(name))
                if pair[0] != pair[1] and not _BREAKS.intersection("".join(pair)):
                    yield pair


if __name__ == "__main__":
    main()
