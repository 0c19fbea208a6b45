"""Sizes of values as a number times powers of the sizes of a graph's inputs.

So a size is known for all inputs at once, and grows with each of them.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

MAX_ROWS = 320  # hypotheses searched together
ENCODED_ROWS = 32  # sources encoded together
_MAX_FACTOR = 1 << 62
_MAX_POWER = 8
UNKNOWN = "has a value whose size is unknown"


class SizeError(ValueError):
    """A graph with a value of an unknown size, or an operator that models do not have."""


class InputSizes(NamedTuple):
    """Sizes of the inputs: sentences, hypotheses of each, and tokens of the longest source."""

    batch: int
    beam: int
    source: int


class Size(NamedTuple):
    """A number times powers of the sizes of the inputs, plus a number; a bound if not exact."""

    factor: int
    batch: int = 0
    beam: int = 0
    source: int = 0
    offset: int = 0  # 0 if there are no powers
    is_exact: bool = True

    @classmethod
    def limited(
        cls, factor: int, powers: Iterable[int], offset: int = 0, is_exact: bool = True
    ) -> "Size":
        """Return a size; raises SizeError for one that no model has."""
        batch, beam, source = powers
        size = cls(factor, batch, beam, source, offset, is_exact)
        if abs(factor) > _MAX_FACTOR or abs(offset) > _MAX_FACTOR or max(size.powers) > _MAX_POWER:
            raise SizeError("has a value beyond all bounds")
        return size

    @property
    def powers(self) -> tuple[int, int, int]:
        """Return the powers of the sizes of the inputs."""
        return self[1:4]

    @property
    def number(self) -> int | None:
        """Return the number if the size does not depend on the inputs."""
        return None if any(self.powers) else self.factor

    def same(self, other: "Size") -> bool:
        """Return whether two sizes are equal, or have equal bounds."""
        return self[:5] == other[:5]

    def bound(self) -> "Size":
        """Return the size as a bound that may not be reached."""
        return self._replace(is_exact=False)

    def _without_offset(self) -> "Size":
        """Return a bound that is a product: the sizes of inputs are at least 1."""
        if not self.offset:
            return self
        return Size(self.factor + max(self.offset, 0), *self.powers, is_exact=False)

    def times(self, other: "Size") -> "Size":
        """Return the product; a bound if an offset would have to be multiplied by a power."""
        is_exact = self.is_exact and other.is_exact
        for size, number in ((self, other.number), (other, self.number)):
            if number is not None:
                offset = size.offset * number
                return Size.limited(size.factor * number, size.powers, offset, is_exact)
        first = self._without_offset()
        second = other._without_offset()
        powers = map(sum, zip(first.powers, second.powers, strict=True))
        is_exact = first.is_exact and second.is_exact
        return Size.limited(first.factor * second.factor, powers, is_exact=is_exact)

    def over(self, other: "Size") -> "Size":
        """Return the quotient; raises SizeError unless it is known for all sizes."""
        powers = [mine - its for mine, its in zip(self.powers, other.powers, strict=True)]
        is_exact = self.is_exact and other.is_exact and not (self.offset or other.offset)
        if not (is_exact and other.factor) or self.factor % other.factor or min(powers) < 0:
            raise SizeError(UNKNOWN)
        return Size.limited(self.factor // other.factor, powers)

    def plus(self, other: "Size") -> "Size":
        """Return the sum; a bound if both grow with the inputs, each in its own way."""
        is_exact = self.is_exact and other.is_exact
        if self.powers == other.powers:
            offset = self.offset + other.offset
            return Size.limited(self.factor + other.factor, self.powers, offset, is_exact)
        for size, number in ((self, other.number), (other, self.number)):
            if number is not None:
                offset = size.offset + number
                return Size.limited(size.factor, size.powers, offset, is_exact)
        first = self._without_offset()
        second = other._without_offset()
        powers = map(max, zip(first.powers, second.powers, strict=True))
        return Size.limited(first.factor + second.factor, powers, is_exact=False)

    def at(self, sizes: InputSizes) -> int:
        """Return the number for given sizes of the inputs."""
        powers = zip(sizes, self.powers, strict=True)
        growth: int = math.prod(size**power for size, power in powers)
        return max(0, self.factor * growth + self.offset)


ONE = Size(1)
NAMED = {"batch": Size(1, batch=1), "rows": Size(1, batch=1, beam=1), "source": Size(1, source=1)}
Dims = tuple[Size, ...]


def product(dims: Iterable[Size]) -> Size:
    """Return the number of entries of a value with these dimensions."""
    total = ONE
    for dim in dims:
        total = total.times(dim)
    return total
