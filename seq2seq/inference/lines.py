"""Lines as they are searched: checked, counted, in chunks of bounded memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from seq2seq.runtime import argument_types

MAX_ATTENTION_TOKENS = 2000  # attention weights of longer lines, quadratic in length, are dropped
MAX_SQUARED_LENGTHS = 10_000_000  # searched at once, to bound the memory of attention weights


def line_list(lines: Iterable[str], name: str) -> list[str]:
    """Return lines without line ends, as of an open file; raises TypeError for other types."""
    return [
        line[:-1].removesuffix("\r") if line.endswith("\n") else line
        for line in argument_types.text_list(lines, name)
    ]


def lists_of_lines(texts: Iterable[str] | Iterable[Iterable[str]], name: str) -> list[list[str]]:
    """Return one text, or several, as lists of lines; raises TypeError for other types."""
    entries = argument_types.ordered(texts, name, "a list of str, or of lists of str")
    if entries and not any(isinstance(entry, str) for entry in entries):
        return [line_list(entry, name) for entry in entries]
    return [line_list(entries, name)]


def line_counter(
    parts: Sequence[int], on_translated: Callable[[int], object] | None
) -> Callable[[int], None] | None:
    """Return a function of a part's number that reports complete lines, of some `parts` each."""
    if on_translated is None:
        return None
    if blank := parts.count(0):
        on_translated(blank)
    parts_left = [*parts]
    line_of = [number for number, count in enumerate(parts) for _ in range(count)]

    def count(part: int) -> None:
        parts_left[line_of[part]] -= 1
        if not parts_left[line_of[part]]:
            on_translated(1)

    return count


def bounded_slices(sizes: Sequence[int]) -> Iterator[slice]:
    """Yield slices, each of which ends where its sizes exceed MAX_SQUARED_LENGTHS in total."""
    start = total = 0
    for end, size in enumerate(sizes):
        total += size
        if total > MAX_SQUARED_LENGTHS:
            yield slice(start, end + 1)
            start = end + 1
            total = 0
    if start < len(sizes):
        yield slice(start, len(sizes))
