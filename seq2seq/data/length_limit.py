"""Length limits of translations, by the lengths of their sources."""

from dataclasses import dataclass


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
        return max(1, int(self.ratio * src_length) + self.extra)

    def joined(self, other: "LengthLimit") -> "LengthLimit":
        """Return a limit that is nowhere below this one or another."""
        return LengthLimit(max(self.ratio, other.ratio), max(self.extra, other.extra))
