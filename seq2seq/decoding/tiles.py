"""How many sentences are computed together: the number is fixed, or shown to change no bit.

Products may change in the last digit with their number of rows, and a translation would then
depend on how many others are under way. Where a model's do not, on this machine with so many
threads, tiles shrink as sentences run out; where they do, empty rows are computed along. Which
arithmetic is done, in which order, is a matter of shapes alone: so a few steps tell, where a row
has many numbers. Those of tiny models may be equal by chance, and their tiles stay as they are.
"""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from seq2seq.batches import Ids, pad_sources
from seq2seq.decoding.hypothesis import Model
from seq2seq.vocabulary import BOS_ID

MOST_IN_TILE = 16_384  # source positions in a tile on a CPU; of many, four times that
MANY = 4  # tiles' worth of sentences, which greedy search takes together
ON_CUDA = 4  # times as many sentences: a step of few takes a GPU as long as one of many
LEAST = 2  # rows: a single one is another kind of product
STEPS = 2  # of each size that is tried
ENOUGH = 1000  # numbers of a row that must be equal to the bit

_known: WeakKeyDictionary[Model, dict[tuple[object, ...], dict[int, bool]]] = WeakKeyDictionary()


def tile_rows(width: int, device: torch.device) -> int:
    """Sentences of this padded length in a tile: fewer of the long ones, which are rare.

    The fewer the longer, beyond what training knows, lest one line take all the memory.
    """
    times = ON_CUDA if device.type == "cuda" else 1
    if width <= 32:
        return 64 * times
    return (32 if width <= 64 else max(1, min(16, MOST_IN_TILE // width))) * times


def tile_sizes(
    model: Model, sources: Sequence[Ids], width: int, beam_size: int, device: torch.device
) -> list[int]:
    """Numbers of sentences that give each the same bits, ascending to `tile_rows`, or four times.

    Four times as many are for greedy search of many, which they make faster by a sixth. What is
    sound is found out with the first source where a model meets a length for the second time, or
    more often, and kept: what it takes is more than the end of a single text would gain. A GPU
    takes little longer for a whole tile: there it is the only size.
    """
    whole = tile_rows(width, device)
    if device.type != "cpu":
        return [whole]
    known = _known.setdefault(model, {})
    key = width, whole, beam_size, torch.get_num_threads(), torch.get_float32_matmul_precision()
    if key not in known:
        known[key] = {}
        return [whole]
    sound = known[key]
    if not sound:
        sound |= _found_out(model, sources[0], whole, width, beam_size)
    most = MANY * whole if beam_size == 1 and len(sources) >= MANY * whole else whole
    while (size := max(sound)) < most:
        expected = _bits(model, sources[0], whole, width, beam_size)
        sound[2 * size] = _alike(expected, _bits(model, sources[0], 2 * size, width, beam_size))
    return sorted(size for size in sound if size <= most and sound[size])


def fitting(sizes: Sequence[int], count: int) -> int:
    """The smallest of these sizes that holds so many sentences, or else the largest."""
    return next((size for size in sizes if size >= count), sizes[-1])


def _found_out(
    model: Model, source: Ids, whole: int, width: int, beam_size: int
) -> dict[int, bool]:
    """The number of a whole tile, and its halves as long as they give every row the same bits."""
    size, sound = whole, {whole: True}
    expected = _bits(model, source, whole, width, beam_size)
    while sound[size] and (size := size // 2) >= LEAST:
        sound[size] = _alike(_bits(model, source, size, width, beam_size), expected)
    return sound


@torch.inference_mode()
def _bits(model: Model, source: Ids, count: int, width: int, beam_size: int) -> list[Tensor]:
    """What a few steps of search compute for a source in each row of a tile: tensors of N rows."""
    memory, state = model.start(model.encode(*pad_sources([source] * count, width)))
    rows = torch.arange(count)
    memory, state = memory.select(rows), state.select(rows.repeat_interleave(beam_size))
    ids, seen = torch.full((len(rows) * beam_size,), BOS_ID), []
    for _ in range(STEPS):
        step = model.step(ids, state, memory)
        seen.append(model.project(step.outputs).float().log_softmax(dim=-1))
        if step.attention_weights is not None:
            seen.append(step.attention_weights)
        state, ids = step.state, seen[0].argmax(dim=-1)
    return seen


def _alike(few: Sequence[Tensor], many: Sequence[Tensor]) -> bool:
    """Whether all rows of both are one and the same, to the bit, wherever in a tile they stand."""
    equal = all(
        torch.equal(rows, one[:1].expand_as(rows))
        for one, other in zip(few, many, strict=True)
        for rows in (one, other)
    )
    return equal and sum(each.shape[1] for each in few) >= ENOUGH
