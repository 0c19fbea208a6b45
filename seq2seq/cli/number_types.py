"""Numbers on the command line: functions that argparse calls with their text."""

import argparse
import math
from functools import partial

MAX_COUNT = 1_000_000  # upper limit of every count on the command line


def count(text: str, least: int = 1) -> int:
    """Parse an integer from `least` to MAX_COUNT."""
    if not text.isdecimal() or int(text[:20]) < least:
        raise argparse.ArgumentTypeError(f"must be an integer of at least {least}, not {text!r}")
    if int(text[:20]) > MAX_COUNT:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_COUNT}, not {text}")
    return int(text)


count_or_zero = partial(count, least=0)


def shard(text: str) -> tuple[int, int]:
    """Parse `I/N`, the I-th of N shards, from 1."""
    number, slash, shards = text.partition("/")
    if not slash:
        raise argparse.ArgumentTypeError(f"must be I/N, such as 1/8, not {text!r}")
    if count(number) > count(shards):
        bounds = f"from 1/{shards} to {shards}/{shards}"
        raise argparse.ArgumentTypeError(f"must be {bounds}, not {text}")
    return int(number), int(shards)


def positive(text: str) -> float:
    """Parse a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return number
