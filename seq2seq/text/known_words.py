"""Words of a training text: whether it has a word, in little memory, and its most frequent ones.

The record is a Bloom filter (Bloom 1970): it knows every word of the text, and takes some others
for such: 3 % of them with 8 bits for each word, as in texts of up to 32,000 different words, 15 %
at 65,000, and 32 % at MAX_WORDS. Of a text with more nothing is recorded.
"""

import unicodedata
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from itertools import islice

from seq2seq.text.characters import is_spaced

MAX_WORDS = 100_000
MAX_BITS = 1 << 18  # 43,692 characters in base64
BITS = 8  # for each word, as far as MAX_BITS allows
HASHES = 3
FREQUENT = 0.5  # share of the running words that the most frequent ones make up
MAX_FREQUENT = 300
_LINES_TOGETHER = 500
MAX_ANSWERS = 10_000  # kept, as most words occur again


class _LettersAlone(dict[int, int]):
    """Letters and their marks as they are, and a space for all other characters."""

    def __missing__(self, code: int) -> int:
        """Return the code of a character, or of a space."""
        kept = code if unicodedata.category(chr(code))[0] in "LM" else ord(" ")
        self[code] = kept
        return kept


_LETTERS = _LettersAlone()


def words_of(text: str) -> Iterator[str]:
    """Return the words of a text, of two letters at least and of scripts that have spaces."""
    return filter(_is_word, _runs_of_letters(text))


def _runs_of_letters(text: str) -> list[str]:
    return text.translate(_LETTERS).split()


@lru_cache(MAX_ANSWERS)
def _is_word(run: str) -> bool:
    return len(run) > 1 and run[0].isalpha() and (run.isascii() or _is_spaced(run[0]))


@lru_cache(1 << 12)
def _is_spaced(letter: str) -> bool:
    return is_spaced(letter)


def _joined_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines in lower case, some hundreds in a text, which is faster than one by one."""
    line_iterator = iter(lines)
    while block := list(islice(line_iterator, _LINES_TOGETHER)):
        yield "\n".join(block).casefold()


def frequent_words(lines: Iterable[str]) -> list[str]:
    """Return the most frequent words, which together are half of the running ones."""
    runs = Counter[str]()
    for text in _joined_lines(lines):
        runs.update(_runs_of_letters(text))
    counts = Counter({run: count for run, count in runs.items() if _is_word(run)})
    runs_left = FREQUENT * counts.total()
    frequent = list[str]()
    for word, count in counts.most_common(MAX_FREQUENT):
        if runs_left <= 0:
            break
        frequent.append(word)
        runs_left -= count
    return frequent


def record_of(lines: Iterable[str]) -> str:
    """Return the record of all words of a text; "" for one of more than MAX_WORDS."""
    words = set[str]()
    for text in _joined_lines(lines):
        words.update(filter(_is_word, set(_runs_of_letters(text))))
        if len(words) > MAX_WORDS:
            return ""
    if not words:
        return ""
    size = 8
    while size < min(MAX_BITS, BITS * len(words)):
        size *= 2
    bits = bytearray(size // 8)
    for word in words:
        for place in _places(word, size):
            bits[place >> 3] |= 1 << (place & 7)
    return b64encode(bits).decode("ascii")


def check_record(record: str) -> None:
    """Raise ValueError unless a text is a record, or empty."""
    if record and not _is_size(8 * len(b64decode(record, validate=True))):
        raise ValueError("no record of words")


def _is_size(bits: int) -> bool:
    return 8 <= bits <= MAX_BITS and bits & (bits - 1) == 0


def joined(first: str, second: str) -> str:
    """Return the record of two texts, "" if the words of one are unknown.

    In a record of twice the size each bit is there twice.
    """
    if not (first and second):
        return ""
    records = [b64decode(first), b64decode(second)]
    size = max(map(len, records))
    spread = [record * (size // len(record)) for record in records]
    bits = bytes(one | other for one, other in zip(*spread, strict=True))
    return b64encode(bits).decode("ascii")


class KnownWords:
    """Words that a record has."""

    def __init__(self, record: str) -> None:
        self._bits = b64decode(record)
        self._answers = dict[str, bool]()

    def __contains__(self, word: object) -> bool:
        if not isinstance(word, str):
            return False
        if word not in self._answers:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            self._answers[word] = self._has(word)
        return self._answers[word]

    def _has(self, word: str) -> bool:
        places = _places(word, 8 * len(self._bits))
        return all(self._bits[place >> 3] >> (place & 7) & 1 for place in places)


def _places(word: str, size: int) -> list[int]:
    """Return the bits of a word in a record of `size` bits, a power of two."""
    digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=4 * HASHES).digest()
    return [
        int.from_bytes(digest[start : start + 4], "little") % size
        for start in range(0, 4 * HASHES, 4)
    ]
