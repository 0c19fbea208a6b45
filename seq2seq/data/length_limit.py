"""Length limits of translations, by the lengths of their sources."""

from dataclasses import dataclass

# However large a stranger's limit is, a search that never ends by itself has a bound.
_MOST = 10_000  # tokens, as of `decoding.min_length`
_MOST_RATIO = 10


@dataclass(frozen=True)
class LengthLimit:
    """Maximum length of a translation, `ratio * source length + extra` tokens."""

    ratio: float
    extra: int

    def __post_init__(self) -> None:
        if not (0 <= self.ratio < 1e6 and 0 <= self.extra < 1e6):
            raise ValueError("a length limit")

    def __call__(self, src_length: int) -> int:
        """Return the maximum number of tokens without EOS, for a source of `src_length` tokens."""
        maximum = max(_MOST, _MOST_RATIO * src_length)
        return max(1, min(int(self.ratio * src_length) + self.extra, maximum))

    def joined(self, other: "LengthLimit") -> "LengthLimit":
        """Return a limit that is nowhere below this one or another."""
        return LengthLimit(max(self.ratio, other.ratio), max(self.extra, other.extra))
