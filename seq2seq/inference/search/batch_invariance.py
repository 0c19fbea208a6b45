"""Decoding batch sizes that leave every sentence's result bitwise unchanged.

A matrix product may round differently for another number of rows, and a translation would then
depend on the sentences decoded with it. Tiles therefore have a fixed number of rows, unless a few
steps of the model show, on this machine with this number of threads, that another number gives
equal results: kernels are chosen by shape alone. Then tiles shrink as sentences finish. Models with
too few numbers per row are not tested, since their results may be equal by chance.
"""

import os
import threading
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from seq2seq.data.batching import pad_sources
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, Ids
from seq2seq.inference.search.interface import Model

MAX_TILE_POSITIONS = 16_384  # source positions per tile of long sentences on CPU
GREEDY_FACTOR = 4  # greedy search of many sentences uses tiles larger by this factor
MIN_TILES = 8  # tiles of sentences searched before larger tiles are tested
GPU_FACTOR = 4  # a GPU, where a step takes equally long for few rows, uses larger tiles
MIN_ROWS = 2  # smallest tile tested: libraries have other kernels for a single row
TEST_STEPS = 3  # decoding steps that are compared
MIN_NUMBERS = 1500  # numbers per row, of all steps, that must be bitwise equal


class _Tested:
    """Tile sizes tested for one shape, and the result of the reference size."""

    def __init__(self, reference: int, source: Ids) -> None:
        self.sentences = 0  # searched with this shape
        self.is_safe = {reference: True}
        self.source = source or [EOS_ID]  # repeated to fill the test tile
        self.row: list[Tensor] | None = None  # the result of the reference size


_tested: WeakKeyDictionary[Model, dict[tuple[object, ...], _Tested]] = WeakKeyDictionary()

_lock = threading.Lock()


def _renew_lock() -> None:
    """Replace the lock in a forked process: the thread that held it does not exist there."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew_lock)


def tile_rows(width: int, device: torch.device) -> int:
    """Return the sentences per tile for this padded length.

    Longer sentences, which are rare, get fewer rows, so that a very long one fits in memory.
    """
    factor = 1 if device.type == "cpu" else GPU_FACTOR
    if width <= 32:
        return 64 * factor
    return (32 if width <= 64 else max(1, min(16, MAX_TILE_POSITIONS // width))) * factor


def tile_sizes(
    model: Model, sources: Sequence[Ids], width: int, beam_size: int, device: torch.device
) -> list[int]:
    """Return the numbers of sentences per tile with bitwise equal results, in ascending order.

    The largest is `tile_rows`, or four times that for greedy search of many sentences, which makes
    it a sixth faster. Sizes are tested when a model meets a length for the second time, since a
    test takes more time than a few sentences would save, and are then remembered. A GPU always uses
    full tiles, which take it little longer.
    """
    reference = tile_rows(width, device)
    if device.type != "cpu":
        return [reference]
    with _lock:  # one Python thread tests, the others wait for its result
        return _tested_sizes(model, sources, width, beam_size, reference)


def _tested_sizes(
    model: Model, sources: Sequence[Ids], width: int, beam_size: int, reference: int
) -> list[int]:
    key = width, reference, beam_size, torch.get_num_threads(), torch.get_float32_matmul_precision()
    tested = _tested.setdefault(model, {}).setdefault(key, _Tested(reference, sources[0]))
    is_first, tested.sentences = not tested.sentences, tested.sentences + len(sources)
    if is_first:
        return [reference]
    largest = reference
    if (
        beam_size == 1
        and len(sources) >= GREEDY_FACTOR * reference
        and tested.sentences >= MIN_TILES * reference
    ):
        largest = GREEDY_FACTOR * reference

    def row(count: int) -> list[Tensor]:
        return _row(model, tested.source, count, width, beam_size)

    if tested.row is None:
        tested.row = row(reference)
        while tested.is_safe[size := min(tested.is_safe)] and size // 2 >= MIN_ROWS:
            tested.is_safe[size // 2] = _is_equal(row(size // 2), tested.row)
    if max(tested.is_safe) < largest:
        tested.is_safe[largest] = _is_equal(row(largest), tested.row)
    return sorted(size for size, is_safe in tested.is_safe.items() if size <= largest and is_safe)


def smallest_fitting(sizes: Sequence[int], count: int) -> int:
    """Return the smallest of ascending sizes that holds `count` sentences, or the largest."""
    return next((size for size in sizes if size >= count), sizes[-1])


@torch.inference_mode()
def _row(model: Model, source: Ids, count: int, width: int, beam_size: int) -> list[Tensor]:
    """Return the results [1, D] of a few decoding steps of a source repeated in all rows.

    Return nothing unless all rows are bitwise equal. The source fills all positions, because sums
    of zeros would show no rounding.
    """
    full = (list(source) * width)[: width - 1]
    memory, state = model.start(model.encode(*pad_sources([full] * count, width)))
    rows = torch.arange(count)
    state = state.select(rows.repeat_interleave(beam_size))
    ids, results = torch.full((len(rows) * beam_size,), BOS_ID), []
    for _ in range(TEST_STEPS):
        step = model.step(ids, state, memory)
        logits = model.project(step.outputs).float()
        computed = [torch.log_softmax(logits, dim=-1, out=logits)]
        if step.attention_weights is not None:
            computed.append(step.attention_weights)
        if not all(torch.equal(each, each[:1].expand_as(each)) for each in computed):
            return []
        results += [each[:1].clone() for each in computed]
        state, ids = step.state, ids.fill_(int(results[0].argmax()))
    return results


def _is_equal(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Check that two results are bitwise equal and have enough numbers to show it."""
    equal = bool(one) and len(one) == len(other) and all(map(torch.equal, one, other))
    return equal and sum(each.shape[1] for each in one) >= MIN_NUMBERS
