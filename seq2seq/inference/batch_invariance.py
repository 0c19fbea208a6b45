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

from seq2seq.data.batching import Ids, pad_sources
from seq2seq.data.vocabulary import BOS_ID, EOS_ID
from seq2seq.inference.interface import Model

MOST_IN_TILE = 16_384  # source positions in a tile on a CPU; of many, four times that
MANY = 4  # tiles' worth of sentences, which greedy search takes together
WORTH = 8  # tiles' worth of sentences, of one call or more, for which that is found out
ON_CUDA = 4  # times as many sentences: a step of few takes a GPU as long as one of many
LEAST = 2  # rows: a single one is another kind of product
STEPS = 2  # of each size that is tried
ENOUGH = 1000  # numbers of a row that must be equal to the bit


class _Tried:
    """Sizes that were tried for sentences of one form, and what those that are sound compute."""

    def __init__(self, whole: int, source: Ids) -> None:
        self.sentences = 0  # of this form so far
        self.sound = {whole: True}
        self.source = source or [EOS_ID]  # they are tried with repetitions of it
        self.row: list[Tensor] | None = None  # what a whole tile computes for it


_tried: WeakKeyDictionary[Model, dict[tuple[object, ...], _Tried]] = WeakKeyDictionary()


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
    sound is found out with a source where a model meets a length for the second time, or
    more often, and kept; of larger tiles only once enough sentences were met, for it takes more
    than few would gain. A GPU takes little longer for a whole tile: there it is the only size.
    """
    whole = tile_rows(width, device)
    if device.type != "cpu":
        return [whole]
    key = width, whole, beam_size, torch.get_num_threads(), torch.get_float32_matmul_precision()
    tried = _tried.setdefault(model, {}).setdefault(key, _Tried(whole, sources[0]))
    first, tried.sentences = not tried.sentences, tried.sentences + len(sources)
    if first:
        return [whole]
    most = whole
    if beam_size == 1 and len(sources) >= MANY * whole and tried.sentences >= WORTH * whole:
        most = MANY * whole

    def row(count: int) -> list[Tensor]:
        return _row(model, tried.source, count, width, beam_size)

    if tried.row is None:
        tried.row = row(whole)
        while tried.sound[size := min(tried.sound)] and size // 2 >= LEAST:
            tried.sound[size // 2] = _alike(row(size // 2), tried.row)
    if max(tried.sound) < most:
        tried.sound[most] = _alike(row(most), tried.row)
    return sorted(size for size, sound in tried.sound.items() if size <= most and sound)


def fitting(sizes: Sequence[int], count: int) -> int:
    """The smallest of these sizes that holds so many sentences, or else the largest."""
    return next((size for size in sizes if size >= count), sizes[-1])


@torch.inference_mode()
def _row(model: Model, source: Ids, count: int, width: int, beam_size: int) -> list[Tensor]:
    """What a few steps of search compute for a source in any row of a tile: some [1, D] numbers.

    Nothing where it is not the same in all of its rows, to the bit, wherever in a tile they stand.
    The source is repeated until no position is empty: sums of zeros would tell nothing.
    """
    full = (list(source) * width)[: width - 1]
    memory, state = model.start(model.encode(*pad_sources([full] * count, width)))
    rows = torch.arange(count)
    state = state.select(rows.repeat_interleave(beam_size))
    ids, seen = torch.full((len(rows) * beam_size,), BOS_ID), []
    for _ in range(STEPS):
        step = model.step(ids, state, memory)
        logits = model.project(step.outputs).float()
        computed = [torch.log_softmax(logits, dim=-1, out=logits)]
        if step.attention_weights is not None:
            computed.append(step.attention_weights)
        if not all(torch.equal(each, each[:1].expand_as(each)) for each in computed):
            return []
        seen += [each[:1].clone() for each in computed]
        state, ids = step.state, ids.fill_(int(seen[0].argmax()))
    return seen


def _alike(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Whether both are known, the same to the bit, and enough to tell."""
    equal = bool(one) and len(one) == len(other) and all(map(torch.equal, one, other))
    return equal and sum(each.shape[1] for each in one) >= ENOUGH
