"""Characters of a text and of another form of it, aligned."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, pairwise
from unicodedata import normalize

MAX_COMPARED = 500  # characters by which two forms of a text may differ


def form_of(character: str) -> str:
    """Return the form by which a character is compared: of either case, and of any width."""
    return normalize("NFKC", character).casefold()[:1]


def equal_runs(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of equal characters: where they begin in both, and their length."""
    shorter_length = min(len(a), len(b))
    start = next((n for n in range(shorter_length) if a[n] != b[n]), shorter_length)
    yield 0, 0, start
    end = next(
        (n for n in range(shorter_length - start) if a[-1 - n] != b[-1 - n]), shorter_length - start
    )
    middle = a[start : len(a) - end], b[start : len(b) - end]
    if max(map(len, middle)) <= MAX_COMPARED:
        for run in SequenceMatcher(None, *middle, autojunk=False).get_matching_blocks():
            yield start + run.a, start + run.b, run.size
    yield len(a) - end, len(b) - end, end


def cut_like(text: str, pieces: Sequence[str]) -> list[str]:
    """Cut a text where another form of it is cut into pieces; white space at a cut is left out."""
    of_text = [(form_of(c), place) for place, c in enumerate(text) if not c.isspace()]
    of_pieces = [[form_of(c) for c in piece if not c.isspace()] for piece in pieces]
    characters = [c for piece in of_pieces for c in piece]
    places = [len(text)] * (len(characters) + 1)  # in the text, of each character of the pieces
    for first, second, size in equal_runs([c for c, _ in of_text], characters):
        places[second : second + size] = [place for _, place in of_text[first : first + size]]
    from_here = list(accumulate(reversed(places), min))[::-1]  # the first place from each on
    starts = accumulate(map(len, of_pieces[:-1]))
    cuts = [0, *(from_here[start] for start in starts), len(text)]
    return [text[start:end].strip() for start, end in pairwise(cuts)]
