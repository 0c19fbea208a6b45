"""Lines as no one would write them, drawn from a seed: what a file can hold, `translate` must take."""

import random
from collections.abc import Callable, Iterator

from conftest import toy_words

WORDS = toy_words(90)
SPACES = [
    " ",
    "\t",
    "\u00a0",
    "\u3000",
    "\u2009",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\u2028",
    "\u2029",
]
PUNCTUATION = list(".,;:!?-()[]{}<>/\\|@#$%^&*_+=~`'\"…«»„“”‘’¿¡·।、。！？")
UNSEEN = [
    "日本語",
    "हिन्दी",
    "العربية",
    "עברית",
    "ᠮᠣᠩ",
    "ไทย",
    "한국어",
    "ᚠᚢᚦ",
    "𐎀𐎁",
    "ა",
    "½",
    "😀",
    "👩\u200d🚀",
]
MARKS = [chr(code) for code in range(0x300, 0x340)]
HIDDEN = [
    "\u200b",
    "\u200d",
    "\u200e",
    "\u202e",
    "\u2066",
    "\ufeff",
    "\u00ad",
    "\0",
    "\x01",
    "\x7f",
]
PRIVATE = ["\ue000", "\uf8ff", "\U000f0000", "\U0010fffd", "\uffff", "\ufdd0", "\U0010ffff"]
SPECIAL = [
    "▁",
    "<s>",
    "</s>",
    "<pad>",
    "<unk>",
    "<0x0A>",
    "<0x41>",
    " ||| ",
    "\\n",
    "${HOME}",
    "\r",
]
SPOILT = [
    b"\xff",
    b"\xc0\xaf",
    b"\xe0\xa4",
    b"\xf0\x9f\x98",
    b"\xed\xa0\x80",
    b"\xed\xbf\xbf",
    b"\x80",
]
ALL = [*WORDS[:12], *SPACES, *PUNCTUATION, *UNSEEN, *MARKS[:8], *HIDDEN, *PRIVATE, *SPECIAL]


def odd_lines(count: int, seed: int) -> Iterator[bytes]:
    """Lines without their ends: none has a line feed, every kind comes up, long ones seldom."""
    generator = random.Random(seed)
    names = list(KINDS)
    for _ in range(count):
        kind = KINDS[generator.choice(names)]
        length = generator.choice((1, 1, 2, 3, 5, 8, 13, 21))
        line = kind(generator, 40 * length if generator.random() < 0.002 else length)
        yield line if isinstance(line, bytes) else line.encode()


def several(alphabet: list[str], between: str = "") -> Callable[[random.Random, int], str]:
    """Lines of so many of these."""
    return lambda generator, length: between.join(generator.choices(alphabet, k=length))


def spoilt(generator: random.Random, length: int) -> bytes:
    """Words with bytes between them that are no UTF-8."""
    parts = [*generator.choices(SPOILT, k=length), *(word.encode() for word in WORDS[:length])]
    generator.shuffle(parts)
    return b"".join(parts)


def random_bytes(generator: random.Random, length: int) -> bytes:
    """Any bytes but a line feed."""
    return generator.randbytes(length).replace(b"\n", b"")


KINDS: dict[str, Callable[[random.Random, int], str | bytes]] = {
    "words": several(WORDS, " "),
    "sentences": several([f"{word}." for word in WORDS], " "),
    "blank": several(SPACES),
    "empty": lambda *_: "",
    "many spaces": several([*WORDS[:9], " " * 30]),
    "carriage returns": several([*WORDS[:9], "\r"]),
    "a Windows end": lambda generator, length: several(WORDS, " ")(generator, length) + "\r",
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
    "a byte order mark": lambda generator, length: "\ufeff" * (length % 3) + WORDS[length],
    "digits": several(list("0123456789.,")),
    "everything": several(ALL),
    "spoilt": spoilt,
    "random bytes": random_bytes,
}
