"""The encoder against torch.nn.LSTM on packed sequences; padding has no effect and no gradient."""

import pytest
import torch
from cases.models import B, E, H, S, V, close, random_tensor, randomize
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2seq.model.encoder import Encoder
from seq2seq.model.state import EncoderOutput

SRC = torch.tensor([[3, 7, 1, 9, 2], [5, 2, 0, 0, 0], [8, 8, 4, 2, 0]])
SRC_LENGTHS = torch.tensor([5, 2, 4])
PAD_MASK = torch.arange(S) >= SRC_LENGTHS[:, None]
DIRECTIONS = pytest.mark.parametrize(
    "bidirectional", [True, False], ids=["two directions", "one direction"]
)
LAYERS = pytest.mark.parametrize("num_layers", [1, 2])


def make_encoder(
    num_layers: int, bidirectional: bool, dropout: float = 0.0, reverse: bool = False
) -> Encoder:
    encoder = Encoder(nn.Embedding(V, E), H, num_layers, bidirectional, dropout, reverse)
    randomize(encoder)
    return encoder


def torch_lstm(encoder: Encoder, num_layers: int, bidirectional: bool) -> nn.LSTM:
    """Return torch.nn.LSTM with the encoder's weights."""
    size = encoder.direction_size
    lstm = nn.LSTM(E, size, num_layers, batch_first=True, bidirectional=bidirectional).double()
    ends = [("", encoder.forward_layers), ("_reverse", encoder.backward_layers)]
    with torch.no_grad():
        for suffix, layers in ends[: 2 if bidirectional else 1]:
            for level, layer in enumerate(layers):
                for name, weight in (
                    ("weight_ih", layer.input_weight),
                    ("weight_hh", layer.hidden_weight),
                    ("bias_ih", layer.bias),
                    ("bias_hh", torch.zeros_like(layer.bias)),
                ):
                    o, i, f, g = weight.chunk(4)
                    getattr(lstm, f"{name}_l{level}{suffix}").copy_(torch.cat([i, f, g, o]))
    return lstm


def joined(states: Tensor, num_layers: int) -> Tensor:
    """Reshape final states [L * directions, B, D] to [B, L, H]."""
    return states.unflatten(0, (num_layers, -1)).permute(2, 0, 1, 3).flatten(2)


def weighted(encoded: EncoderOutput) -> Tensor:
    """Return a scalar that depends differently on every output and every final state."""
    factors = (random_tensor(*part.shape, seed=30 + n) for n, part in enumerate(encoded[:3]))
    pairs = zip(encoded[:3], factors, strict=True)
    return torch.stack([(part * factor.detach()).sum() for part, factor in pairs]).sum()


@DIRECTIONS
def test_residual_layers_add_their_input(bidirectional: bool) -> None:
    """Compare with three encoders of one layer, each reading the sum of those below."""
    encoder = make_encoder(3, bidirectional)
    encoder.forward_layers.residual = encoder.backward_layers.residual = True
    encoder.dropout = nn.Identity()
    sums = inputs = encoder.embedding(SRC)
    ends = []
    for level in range(3):
        single_layer = make_encoder(1, bidirectional)
        for stack, direction in zip(single_layer.directions, encoder.directions, strict=True):
            stack[0] = direction[level]
        layer_output = single_layer.run(inputs, SRC_LENGTHS)
        sums = layer_output.outputs + sums if level else layer_output.outputs
        inputs = sums
        ends.append(layer_output.hidden[:, 0])
    encoded = encoder(SRC, SRC_LENGTHS)
    close(encoded.outputs, sums)
    close(encoded.hidden, torch.stack(ends, 1))
    assert not encoded.outputs[PAD_MASK].any()


@DIRECTIONS
@LAYERS
def test_encoder_equals_torch_lstm_on_packed_sequences(
    num_layers: int, bidirectional: bool
) -> None:
    encoder = make_encoder(num_layers, bidirectional)
    lstm = torch_lstm(encoder, num_layers, bidirectional)
    encoded = encoder(SRC, SRC_LENGTHS)
    packed = pack_padded_sequence(
        encoder.embedding(SRC), SRC_LENGTHS, batch_first=True, enforce_sorted=False
    )
    packed_outputs, (hidden, cell) = lstm(packed)
    outputs, _ = pad_packed_sequence(packed_outputs, batch_first=True)
    expected = EncoderOutput(
        outputs, joined(hidden, num_layers), joined(cell, num_layers), PAD_MASK
    )

    assert torch.equal(encoded.pad_mask, PAD_MASK)
    for left, right in zip(encoded[:3], expected[:3], strict=True):
        close(left, right)
    assert not encoded.outputs[PAD_MASK].any()
    (left,) = torch.autograd.grad(weighted(encoded), encoder.embedding.weight)
    (right,) = torch.autograd.grad(weighted(expected), encoder.embedding.weight)
    close(left, right)
    assert encoded.outputs.shape == (B, S, H)
    assert encoded.hidden.shape == encoded.cell.shape == (B, num_layers, H)


@DIRECTIONS
@LAYERS
def test_padded_ids_have_no_effect(num_layers: int, bidirectional: bool) -> None:
    encoder = make_encoder(num_layers, bidirectional)
    weights = list(encoder.parameters())
    other_padding = SRC.masked_fill(PAD_MASK, 10)
    results = []
    for src in (SRC, other_padding):
        encoded = encoder(src, SRC_LENGTHS)
        results.append((encoded, torch.autograd.grad(weighted(encoded), weights)))
    (encoded, gradients), (changed, changed_gradients) = results
    pairs = zip((*encoded[:4], *gradients), (*changed[:4], *changed_gradients), strict=True)
    for left, right in pairs:
        assert torch.equal(left, right)
    unread = torch.ones(V, dtype=torch.bool).index_fill(0, SRC[~PAD_MASK], False)
    assert torch.equal(gradients[0].any(dim=1), ~unread)


@DIRECTIONS
@LAYERS
def test_a_sentence_alone_has_the_states_that_it_has_in_a_batch(
    num_layers: int, bidirectional: bool
) -> None:
    encoder = make_encoder(num_layers, bidirectional)
    batch = encoder(SRC, SRC_LENGTHS)
    for row, length in enumerate(SRC_LENGTHS.tolist()):
        single = encoder(SRC[row : row + 1, :length], SRC_LENGTHS[row : row + 1])
        close(single.outputs[0], batch.outputs[row, :length])
        close(single.hidden[0], batch.hidden[row])
        close(single.cell[0], batch.cell[row])


@LAYERS
def test_final_states_equal_those_of_the_last_word_forward_and_the_first_backward(
    num_layers: int,
) -> None:
    encoder = make_encoder(num_layers, bidirectional=True)
    encoded = encoder(SRC, SRC_LENGTHS)
    half = H // 2
    last = encoded.outputs[torch.arange(B), SRC_LENGTHS - 1, :half]
    assert torch.equal(encoded.hidden[:, -1, :half], last)
    assert torch.equal(encoded.hidden[:, -1, half:], encoded.outputs[:, 0, half:])


def test_one_direction_reads_no_later_word_and_two_directions_read_all() -> None:
    changed_src = SRC.clone()
    changed_src[:, 1] = 6
    for bidirectional in (True, False):
        encoder = make_encoder(1, bidirectional)
        first_outputs, changed_outputs = (
            encoder(src, SRC_LENGTHS).outputs[:, 0] for src in (SRC, changed_src)
        )
        assert torch.equal(first_outputs, changed_outputs) == (not bidirectional)


def reverse_unpadded(rows: Tensor) -> Tensor:
    """Reverse the unpadded part of each row of `rows` [B, S, *]."""
    rows = rows.clone()
    for row, length in enumerate(SRC_LENGTHS.tolist()):
        rows[row, :length] = rows[row, :length].flip(0)
    return rows


@LAYERS
def test_a_reversing_encoder_equals_a_plain_one_over_the_reversed_source(num_layers: int) -> None:
    plain, reversing = (
        make_encoder(num_layers, False, reverse=reverse) for reverse in (False, True)
    )
    expected = plain(reverse_unpadded(SRC), SRC_LENGTHS)
    encoded = reversing(SRC, SRC_LENGTHS)
    assert not torch.equal(encoded.outputs, plain(SRC, SRC_LENGTHS).outputs)
    close(encoded.outputs, reverse_unpadded(expected.outputs))
    close(encoded.hidden, expected.hidden)
    close(encoded.cell, expected.cell)
    assert torch.equal(encoded.pad_mask, PAD_MASK)
    assert torch.equal(
        encoded.hidden[:, -1], encoded.outputs[:, 0]
    )  # the last step reads the first word
    mirrored = encoded._replace(outputs=reverse_unpadded(encoded.outputs))
    (left,) = torch.autograd.grad(weighted(mirrored), reversing.embedding.weight)
    (right,) = torch.autograd.grad(weighted(expected), plain.embedding.weight)
    close(left, right)


@LAYERS
def test_padding_has_no_effect_on_a_reversing_encoder(num_layers: int) -> None:
    encoder = make_encoder(num_layers, False, reverse=True)
    weights = list(encoder.parameters())
    results = []
    for src in (SRC, SRC.masked_fill(PAD_MASK, 10)):
        encoded = encoder(src, SRC_LENGTHS)
        assert not encoded.outputs[PAD_MASK].any()
        results.append((*encoded[:4], *torch.autograd.grad(weighted(encoded), weights)))
    for left, right in zip(*results, strict=True):
        assert torch.equal(left, right)
    for row, length in enumerate(SRC_LENGTHS.tolist()):
        single = encoder(SRC[row : row + 1, :length], SRC_LENGTHS[row : row + 1])
        close(single.outputs[0], encoder(SRC, SRC_LENGTHS).outputs[row, :length])


def test_two_directions_are_not_reversed() -> None:
    with pytest.raises(ValueError, match="bidirectional encoder already reads the source reversed"):
        make_encoder(1, True, reverse=True)


@DIRECTIONS
@LAYERS
def test_dropout_acts_only_in_training(num_layers: int, bidirectional: bool) -> None:
    expected = make_encoder(num_layers, bidirectional)(SRC, SRC_LENGTHS).outputs
    encoder = make_encoder(num_layers, bidirectional, dropout=0.5)
    assert torch.equal(encoder.eval()(SRC, SRC_LENGTHS).outputs, expected)
    encoder.train()
    torch.manual_seed(1)
    first, second = (encoder(SRC, SRC_LENGTHS).outputs for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(encoder(SRC, SRC_LENGTHS).outputs, first)


def test_an_odd_hidden_size_needs_a_single_direction() -> None:
    with pytest.raises(ValueError, match="hidden_size 13 must be even"):
        Encoder(nn.Embedding(V, E), 13, 1, True, 0.0)
    assert Encoder(nn.Embedding(V, E), 13, 1, False, 0.0).direction_size == 13


@DIRECTIONS
def test_bf16_autocast_keeps_states_in_float32_and_values_close(bidirectional: bool) -> None:
    encoder = make_encoder(2, bidirectional).float()
    exact = encoder(SRC, SRC_LENGTHS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = encoder(SRC, SRC_LENGTHS)
    for left, right in zip(rounded[:3], exact[:3], strict=True):
        assert left.dtype == torch.float32
        assert 0 < (left - right).norm() / right.norm() < 0.02
