"""Embeddings leave at unit variance, while the rows themselves stay as small as a projection's."""

import pytest
import torch
from torch import nn

from seq2seq.model.embedding import ScaledEmbedding

V, E = 11, 7
IDS = torch.tensor([[3, 10, 0, 3], [1, 1, 2, 9], [4, 5, 6, 7]])


def test_a_row_is_scaled_by_the_root_of_its_size_and_so_is_its_gradient() -> None:
    torch.manual_seed(1)
    embedding = ScaledEmbedding(V, E).double()
    plain = nn.Embedding(V, E, _weight=embedding.weight.detach().clone())
    scaled, expected = embedding(IDS), plain(IDS) * E**0.5
    assert torch.equal(scaled, expected)
    for result in (scaled, expected):
        result.square().sum().backward()
    torch.testing.assert_close(embedding.weight.grad, plain.weight.grad)


def test_fresh_embeddings_have_unit_variance_and_fresh_rows_unit_length() -> None:
    torch.manual_seed(1)
    embedding = ScaledEmbedding(500, 64)
    embedded = embedding(torch.arange(500))
    assert embedded.std().item() == pytest.approx(1, rel=0.02)
    assert embedding.weight.norm(dim=1).mean().item() == pytest.approx(1, rel=0.02)
