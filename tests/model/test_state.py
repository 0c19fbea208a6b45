"""Rows of memory and state: selected and overwritten without a change of layout."""

import pytest
import torch
from torch import Tensor

from seq2seq.model.copying import first_positions
from seq2seq.model.state import DecoderState, Memory

B = 5
S = 7
A = 6
C = 4


def memory(seed: int, transposed: bool) -> Memory:
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(B, A, S, generator=generator).mT
    keys = keys if transposed else keys.contiguous()
    values = torch.randn(B, S, C, generator=generator)
    src = torch.randint(9, (B, S), generator=generator)
    scores = torch.randn(B, S, 2, generator=generator)
    return Memory(keys, values, torch.rand(B, S) < 0.5, src, first_positions(src), scores)


def layout(part: Tensor) -> list[int]:
    """Return the dimensions in order of their strides."""
    return sorted(range(part.dim()), key=lambda n: -part.stride(n))


@pytest.mark.parametrize("transposed", [False, True])
def test_selected_sentences_keep_the_memory_layout(transposed: bool) -> None:
    all_sentences = memory(1, transposed)
    rows = torch.tensor([3, 0, 4])
    assert layout(all_sentences.keys) == ([0, 2, 1] if transposed else [0, 1, 2])
    selection = all_sentences.select(rows)
    for part, all_of_it in zip(selection, all_sentences, strict=True):
        assert torch.equal(part, all_of_it[rows])
        assert layout(part) == layout(all_of_it)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("other_rows", [slice(1, 4), torch.tensor([1, 2, 3])])
def test_sentences_overwrite_others(transposed: bool, other_rows: slice | Tensor) -> None:
    target = memory(1, transposed)
    source = memory(2, transposed)
    expected = [part.clone() for part in target]
    for part, its_other in zip(expected, source, strict=True):
        for n, row in enumerate([4, 0, 2]):
            part[row] = its_other[n + 1]
    target.put(torch.tensor([4, 0, 2]), source, other_rows)
    assert all(map(torch.equal, target, expected))


def test_one_state_may_start_several_hypotheses() -> None:
    state, source = (DecoderState(*torch.randn(3, 4, 1, 2).unbind()) for _ in range(2))
    state.put(torch.tensor([2, 3]), source, torch.tensor([1, 1]))
    for part, its_other in zip(state[:3], source[:3], strict=True):
        assert part is not None
        assert its_other is not None
        assert torch.equal(part[2], its_other[1])
        assert torch.equal(part[3], its_other[1])
        assert not torch.equal(part[1], its_other[1])
