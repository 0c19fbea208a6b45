"""Dropout of each part of the network, and of complete tokens."""

from typing import Any

import pytest
import torch
from cases.models import LENGTHS, ONE_OF_EACH, SRC, TGT_IN, Case, close, make_model

from seq2seq.config.schema import ModelConfig
from seq2seq.model.builder import build_model
from seq2seq.model.decoder import stack_steps
from seq2seq.model.layers import DropoutRates, EmbeddingDropout

PARTS = ("word", "embedding", "hidden", "output")
NONE = dict.fromkeys(PARTS, 0.0)


def build(dropout: Any, **keys: Any) -> Any:
    sizes = {"embedding_size": 8, "hidden_size": 12, "layers": 2}
    config = ModelConfig.model_validate({**sizes, "dropout": dropout, **keys})
    torch.manual_seed(1)
    return build_model(config, 13, 13, joint=True)


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "gnmt", "none"])
def test_each_part_of_every_model_has_the_rate_of_the_config(decoder: str) -> None:
    rates = dict(zip(PARTS, (0.1, 0.2, 0.3, 0.4), strict=True))
    model = build(rates, decoder=decoder)
    for dropout in (model.dropout, model.encoder.embedding_dropout):
        assert (dropout.word.p, dropout.entries.p) == (0.1, 0.2)
    assert (model.encoder.dropout.p, model.decoder.dropout.p) == (0.3, 0.3)
    assert model.decoder.output_dropout.p == 0.4


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "gnmt"])
def test_each_part_acts_only_in_training(decoder: str, part: str) -> None:
    model = build({**NONE, part: 0.5}, decoder=decoder)
    without = build(0.0, decoder=decoder)
    model.load_state_dict(without.state_dict())
    expected = without(SRC, LENGTHS, TGT_IN)
    torch.manual_seed(4)
    assert not torch.equal(model.train()(SRC, LENGTHS, TGT_IN), expected)
    assert torch.equal(model.eval()(SRC, LENGTHS, TGT_IN), expected)


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "gnmt"])
def test_one_rate_draws_the_same_masks_as_a_map_of_that_rate(decoder: str) -> None:
    number = build(0.25, decoder=decoder)
    parts = build(dict.fromkeys(PARTS[1:], 0.25), decoder=decoder)
    outputs = []
    for model in (number, parts):
        torch.manual_seed(3)
        outputs.append(model(SRC, LENGTHS, TGT_IN))
    assert torch.equal(*outputs)


def test_complete_tokens_are_dropped_and_the_others_scaled() -> None:
    dropout = EmbeddingDropout(DropoutRates(word=0.25))
    embedded = torch.rand(200, 50, 7) + 1
    torch.manual_seed(2)
    outputs = dropout(embedded)
    is_nonzero = outputs[..., 0] != 0  # [200, 50]
    close(outputs, embedded * is_nonzero[..., None] / 0.75, 1e-6)
    assert 0.24 < 1 - is_nonzero.float().mean().item() < 0.26
    assert is_nonzero.any(
        0
    ).all()  # each token is drawn independently, not each position or sentence
    assert is_nonzero.any(1).all()
    assert not is_nonzero.all(0).any()
    assert not is_nonzero.all(1).any()
    dropout.eval()
    assert dropout(embedded) is embedded


def test_source_and_target_lose_words() -> None:
    model = build({**NONE, "word": 0.5}, decoder="luong")
    torch.manual_seed(5)
    embedded = model.embed(torch.full((40, 30), 3))
    assert 0.4 < (embedded == 0).all(-1).float().mean() < 0.6
    seen: list[torch.Tensor] = []
    model.encoder.run = lambda *inputs: seen.append(inputs[0])
    model.encoder(torch.full((40, 30), 3), torch.full((40,), 30))
    assert 0.4 < (seen[0] == 0).all(-1).float().mean() < 0.6


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_word_dropout_is_the_same_in_fused_passes_and_steps(case: Case) -> None:
    """The embeddings are dropped before both: gradients of dropped tokens are zero."""
    model = make_model(case)
    model.dropout = EmbeddingDropout(DropoutRates(word=0.5))
    memory, state = model.start(model.encode(SRC, LENGTHS))
    torch.manual_seed(6)
    embedded = model.embed(TGT_IN)
    assert (embedded == 0).all(-1).any()
    fused = model.decoder(embedded, state, memory).outputs
    close(fused, stack_steps(model.decoder, embedded, state, memory).outputs)
