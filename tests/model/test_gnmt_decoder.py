"""GNMT's decoder against its equations, one sentence and one layer at a time."""

import pytest
import torch
from cases.models import (
    GNMT,
    SRC_LENGTHS,
    B,
    Case,
    H,
    R,
    T,
    close,
    embedded_targets,
    encoder_output,
    make_decoder,
)
from torch import Tensor

from seq2seq.model.attention_layer import Coverage
from seq2seq.model.gnmt_decoder import GNMTDecoder

GLOBAL = [case for case in GNMT if not case.window and case.score == "additive"]


def cell_of(layer: object, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Compute one LSTM step of one sentence by its equations."""
    gates = layer.input_weight @ inputs + layer.hidden_weight @ hidden + layer.bias
    o, i, f, g = gates.chunk(4)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("case", [*GLOBAL, Case("gnmt", "additive", False, 3)], ids=str)
def test_forward_follows_the_equations(case: Case, residual: bool) -> None:
    decoder = make_decoder(case)
    assert isinstance(decoder, GNMTDecoder)
    decoder.layers.residual = residual
    embedded = embedded_targets()
    encoded = encoder_output(case.num_layers)
    memory, state = decoder.start(encoded)
    outputs, weights = decoder(embedded, state, memory)[:2]
    assert outputs.shape == (B, T, R)
    score = decoder.score
    for b, length in enumerate(SRC_LENGTHS):
        hidden = [encoded.hidden[b, level] for level in range(case.num_layers)]
        cell = [encoded.cell[b, level] for level in range(case.num_layers)]
        words = encoded.outputs[b, :length]
        for t in range(T):
            context = torch.zeros(H, dtype=torch.float64)
            layer_input = embedded[b, t]
            for level, layer in enumerate(decoder.layers):
                inputs = torch.cat([layer_input, context]) if level else layer_input
                hidden[level], cell[level] = cell_of(layer, inputs, hidden[level], cell[level])
                layer_input = hidden[level] + layer_input if level and residual else hidden[level]
                if level == 0:
                    query = score.query_projection.weight @ layer_input
                    energies = [
                        score.energy.weight[0] @ (query + score.key_projection.weight @ word).tanh()
                        for word in words
                    ]
                    attended = torch.stack(energies).softmax(0)
                    context = attended @ words
            close(weights[b, t, :length], attended)
            top_and_context = 4 * torch.cat([layer_input, context])
            layer = decoder.output_layer
            close(outputs[b, t], 2 * (layer.weight @ top_and_context + layer.bias).tanh())


def test_upper_layers_run_over_all_target_positions_at_once() -> None:
    """Each layer is called once for all target positions, except with coverage."""
    case = Case("gnmt", "additive", False, 3)
    decoder = make_decoder(case)
    calls = []
    for layer in decoder.layers:
        layer.register_forward_hook(
            lambda *hook_arguments: calls.append(hook_arguments[2][0].shape)
        )
    memory, state = decoder.start(encoder_output(3))
    decoder(embedded_targets(), state, memory)
    assert calls == [(B, T, H)] * 3
    assert isinstance(make_decoder(GNMT[-1]).coverage, Coverage)
