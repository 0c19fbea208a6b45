"""A list of names in the target's script, one a line, which help to spell others."""

from pathlib import Path

from seq2seq.runtime.errors import UserError
from seq2seq.text.characters import is_blank, normalized
from seq2seq.text.names.words import is_letter, target_words
from seq2seq.text.text_files import read_lines

MAX_NAMES = 30_000  # as many as the words that are kept
_BETWEEN = frozenset(" -.'\u2019\u30fb\u00a0")  # within a name of several words


def read_names(path: Path) -> dict[str, str]:
    """Return the words of the names in a file, each with its place; raises UserError.

    Blank lines and repeated names are skipped.
    """
    names: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        place = f"{path}:{number}"
        text = normalized(line).strip()
        words = [match[0] for match in target_words(text)]
        others = {character for character in text if not is_letter(character)}
        if not is_blank(text) and (not words or others - _BETWEEN):
            raise UserError(
                f"{place}: {text[:60]!r} is not a name. Give one name a line, in letters of the "
                "target language's script, without a translation."
            )
        for word in words:
            names.setdefault(word, place)
    if not names:
        raise UserError(f"{path}: has no names. Give one a line.")
    if len(names) > MAX_NAMES:
        text = f"has {len(names):,} names, of which {MAX_NAMES:,} can be used"
        raise UserError(f"{path}: {text}. Keep the most frequent.")
    return names
