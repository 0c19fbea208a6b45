"""Growth of the time of a call, measured so that other work on the machine matters little."""

import time
from collections.abc import Callable

ROUNDS = 25  # at most, where other work disturbs the shortest time of one of the sizes
LINEAR = 3.0  # halfway, in octaves, between the ratios of linear and quadratic time: 2 and 4


def growth(call: Callable[[int], object], size: int) -> float:
    """Return the CPU time of a call for twice a size over that for the size.

    Both are measured in turn; the shortest times count. Rounds end once the ratio is linear.
    """
    shortest = {size: float("inf"), 2 * size: float("inf")}
    ratio = float("inf")
    for _ in range(ROUNDS):
        for measured_size in shortest:
            start = time.process_time()
            call(measured_size)
            shortest[measured_size] = min(shortest[measured_size], time.process_time() - start)
        ratio = shortest[2 * size] / shortest[size]
        if ratio < LINEAR:
            break
    return ratio
