"""Random input lines: any content that a file can have, drawn from a seed."""

import random
import string
from collections.abc import Callable, Iterator

from cases.toy_text import toy_words

WORDS = toy_words(90)
SPACES = list(" \t\u00a0\u3000\u2009\x0b\x0c\x1c\x85\u2028\u2029")
PUNCTUATION = list(
    string.punctuation + "\u00ab\u00bb\u201c\u2018\u2019\u2026\u00bf\u0964\u3002\uff01"
)
UNSEEN = ["日本語", "हिन्दी", "العربية", "עברית", "ᠮᠣᠩ", "ไทย", "한국어", "ᚠᚢᚦ", "𐎀𐎁", "ა", "½"]
UNSEEN += ["😀", "👩\u200d🚀"]
MARKS = [chr(code) for code in range(0x300, 0x340)]
HIDDEN = list("\u200b\u200d\u200e\u202e\u2066\ufeff\u00ad\0\x01\x7f")
PRIVATE = list("\ue000\uf8ff\U000f0000\U0010fffd\uffff\ufdd0\U0010ffff")
SPECIAL = ["▁", "<s>", "</s>", "<pad>", "<unk>", "<0x0A>", "<0x41>", "|||", "\\n", "\r"]
INVALID = [
    b"\xff",
    b"\xc0\xaf",
    b"\xe0\xa4",
    b"\xf0\x9f",
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\x80",
]
ALL = [*WORDS[:12], *SPACES, *PUNCTUATION, *UNSEEN, *MARKS[:8], *HIDDEN, *PRIVATE, *SPECIAL]
Kind = Callable[[random.Random, int], str | bytes]


def fuzz_lines(count: int, seed: int) -> Iterator[bytes]:
    """Yield lines without line feeds; every kind occurs, long ones are rare."""
    generator = random.Random(seed)
    kinds = list(KINDS.values())
    for _ in range(count):
        length = generator.choice((1, 1, 2, 3, 5, 8, 13, 21))
        factor = 40 if generator.random() < 0.002 else 1
        line = generator.choice(kinds)(generator, length * factor)
        yield line if isinstance(line, bytes) else line.encode()


def several(alphabet: list[str], between: str = "", end: str = "") -> Kind:
    """Return a function that joins random elements of an alphabet."""
    return lambda generator, n: between.join(generator.choices(alphabet, k=n)) + end


def invalid_utf8(generator: random.Random, length: int) -> bytes:
    """Return words with bytes between them that are not valid UTF-8."""
    parts = [*generator.choices(INVALID, k=length), *(word.encode() for word in WORDS[:length])]
    generator.shuffle(parts)
    return b"".join(parts)


def random_bytes(generator: random.Random, length: int) -> bytes:
    """Return any bytes except line feeds."""
    return generator.randbytes(length).replace(b"\n", b"")


KINDS: dict[str, Kind] = {
    "words": several(WORDS, " "),
    "sentences": several([f"{word}." for word in WORDS], " "),
    "blank": several(SPACES),
    "empty": lambda *_: "",
    "many spaces": several([*WORDS[:9], " " * 30]),
    "carriage returns": several([*WORDS[:9], "\r"]),
    "a Windows end": several(WORDS, " ", "\r"),
    "spaces of all kinds": several([*WORDS[:9], *SPACES]),
    "punctuation": several(PUNCTUATION),
    "unseen scripts": several(UNSEEN),
    "unseen words": several(UNSEEN, " "),
    "marks alone": several(MARKS),
    "marks": several([*WORDS[:9], *MARKS]),
    "hidden": several(HIDDEN),
    "hidden among words": several([*WORDS[:9], *HIDDEN]),
    "private": several(PRIVATE),
    "special": several(SPECIAL),
    "byte order marks": several(["\ufeff"], end="buda"),
    "digits": several(list("0123456789.,")),
    "everything": several(ALL),
    "invalid UTF-8": invalid_utf8,
    "random bytes": random_bytes,
}
