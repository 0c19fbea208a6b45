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

MOST_IN_TILE = 16_384  # source positions in a tile on a CPU
MANY = 4  # tiles' worth of sentences
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
    """Numbers of sentences that give each the same bits, ascending to `tile_rows`.

    Greedy search of many takes twice as many, which is faster by a tenth. All this is found out
    with these sources where a model meets a length for the second time, and kept: what it takes is
    more than the end of a single text would gain. A GPU takes little longer for a whole tile: there
    it is the only size.
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
        sound |= _found_out(model, sources, whole, width, beam_size)
    most = 2 * whole if beam_size == 1 and len(sources) >= MANY * whole else whole
    if most not in sound:
        expected = _bits(model, _repeated(sources, whole), width, beam_size)
        sound[most] = _alike(expected, _bits(model, _repeated(sources, most), width, beam_size))
    return sorted(size for size in sound if size <= most and sound[size])


def fitting(sizes: Sequence[int], count: int) -> int:
    """The smallest of these sizes that holds so many sentences, or else the largest."""
    return next((size for size in sizes if size >= count), sizes[-1])


def _found_out(
    model: Model, sources: Sequence[Ids], whole: int, width: int, beam_size: int
) -> dict[int, bool]:
    """The number of a whole tile, and its halves as long as they give each row the same bits."""
    rows, size = _repeated(sources, whole), whole
    expected, sound = _bits(model, rows, width, beam_size), {whole: True}
    while sound[size] and (size := size // 2) >= LEAST:
        sound[size] = _alike(_bits(model, rows[:size], width, beam_size), expected)
    return sound


def _repeated(sources: Sequence[Ids], count: int) -> list[Ids]:
    """So many sources, the first of them again where there are too few."""
    return [sources[row % len(sources)] for row in range(count)]


@torch.inference_mode()
def _bits(model: Model, sources: Sequence[Ids], width: int, beam_size: int) -> list[Tensor]:
    """What a few steps of search compute for each hypothesis: tensors of N rows."""
    memory, state = model.start(model.encode(*pad_sources(sources, width)))
    rows = torch.arange(len(sources))
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
    """Whether the rows of the first are the first rows of the others, to the bit."""
    equal = all(torch.equal(one, other[: len(one)]) for one, other in zip(few, many, strict=True))
    return equal and sum(each.shape[1] for each in few) >= ENOUGH
