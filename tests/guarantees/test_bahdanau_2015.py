"""The model of Bahdanau et al. (2015), appendix A, written in NumPy, one number at a time.

Values are compared, and gradients with central differences of the NumPy model.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from cases.models import LENGTHS, SRC, TGT_IN, close, randomize

from seq2seq.config.schema import ModelConfig
from seq2seq.model.builder import build_model
from seq2seq.model.decoder import BahdanauDecoder
from seq2seq.model.recurrent import GRULayer
from seq2seq.model.seq2seq import Seq2Seq

Array = Any
E, H, A, V = 5, 6, 7, 13  # annotations of size H, half of each direction; l = H / 2


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def build(layers: int = 1) -> Seq2Seq:
    sizes = {"embedding_size": E, "hidden_size": H, "attention_size": A, "layers": layers}
    keys = {"cell": "gru", "maxout": True, "tie_embeddings": False, "dropout": 0.0}
    model = build_model(ModelConfig.model_validate({**sizes, **keys}), V, V, joint=False)
    randomize(model)
    return model


def unit(weights: dict[str, Array], name: str, x: Array, h: Array) -> Array:
    """A.1.1: `h' = (1 - z) h + z h~`; `x` is the sum of the input products and biases."""
    size = len(h)
    U_r, U_z = np.split(weights[f"{name}.hidden_weight"], 2)
    U = weights[f"{name}.candidate_weight"]
    r = np.array([sigmoid(x[i] + sum(U_r[i][j] * h[j] for j in range(size))) for i in range(size)])
    z = [sigmoid(x[size + i] + sum(U_z[i][j] * h[j] for j in range(size))) for i in range(size)]
    new = []
    for i in range(size):
        candidate = np.tanh(x[2 * size + i] + sum(U[i][j] * (r[j] * h[j]) for j in range(size)))
        new.append((1 - z[i]) * h[i] + z[i] * candidate)
    return np.array(new)


def annotations(weights: dict[str, Array], words: list[int]) -> tuple[Array, Array]:
    """A.2.1: `h_j = [forward; backward]`, and the backward state at the first word."""
    embedded = weights["encoder.embedding.weight"][words] * np.sqrt(E)
    states = []
    for direction, order in (("forward", range(len(words))), ("backward", range(len(words))[::-1])):
        name = f"encoder.{direction}_layers.0"
        h = np.zeros(H // 2)
        annotations_of_direction = np.zeros((len(words), H // 2))
        for j in order:
            x = weights[f"{name}.input_weight"] @ embedded[j] + weights[f"{name}.bias"]
            h = annotations_of_direction[j] = unit(weights, name, x, h)
        states.append(annotations_of_direction)
    return np.concatenate(states, axis=1), states[1][0]


def attend(weights: dict[str, Array], s: Array, h: Array) -> Array:
    """A.1.2: `e_ij = v_a . tanh(W_a s_{i-1} + U_a h_j)`, its softmax and the context c_i."""
    W = weights["decoder.score.query_projection.weight"]
    U = weights["decoder.score.key_projection.weight"]
    v = weights["decoder.score.energy.weight"][0]
    e = np.array([sum(v[k] * np.tanh(W[k] @ s + U[k] @ h_j) for k in range(A)) for h_j in h])
    alpha = np.exp(e - e.max()) / np.exp(e - e.max()).sum()
    return sum(a * h_j for a, h_j in zip(alpha, h, strict=True))


def log_likelihood(weights: dict[str, Array], src: list[int], tgt: list[int]) -> float:
    """A.2.2: `log p(y_2 ... | y_1, x)` of one pair."""
    h, first = annotations(weights, src)
    s = np.tanh(
        weights["decoder.initial_hidden.weight"] @ first + weights["decoder.initial_hidden.bias"]
    )
    total = 0.0
    for last, target in itertools.pairwise(tgt):
        y = weights["tgt_embedding.weight"][last] * np.sqrt(E)
        c = attend(weights, s, h)
        state_and_context = np.concatenate(
            [4 * s, 4 * c, y]
        )  # the last state; see the docstring of outputs
        u = (
            weights["decoder.output_layer.weight"] @ state_and_context
            + weights["decoder.output_layer.bias"]
        )
        t = np.array([2 * max(u[2 * j], u[2 * j + 1]) for j in range(len(u) // 2)])
        logits = weights["projection.weight"] @ t + weights["projection.bias"]
        total += logits[target] - np.log(np.exp(logits).sum())
        name = "decoder.layers.0"
        x = weights[f"{name}.input_weight"] @ y + weights[f"{name}.bias"]
        s = unit(weights, name, x + weights["decoder.context_gates.weight"] @ c, s)
    return float(total)


def pairs() -> Iterator[tuple[list[int], list[int]]]:
    for src, length, tgt in zip(SRC, LENGTHS, TGT_IN, strict=True):
        yield src[:length].tolist(), tgt.tolist()


def arrays(model: Seq2Seq) -> dict[str, Array]:
    return {name: weight.detach().numpy().copy() for name, weight in model.named_parameters()}


def likelihood_of(model: Seq2Seq) -> torch.Tensor:
    log_probs = model.project(model(SRC, LENGTHS, TGT_IN[:, :-1])).log_softmax(-1)
    return log_probs.gather(2, TGT_IN[:, 1:, None]).sum()


def test_the_model_equals_that_of_the_paper() -> None:
    model = build()
    assert model.decoder.output_layer.out_features == H  # 2 l, of which maxout keeps l
    assert model.projection.in_features == H // 2
    weights = arrays(model)
    expected = sum(log_likelihood(weights, src, tgt) for src, tgt in pairs())
    assert likelihood_of(model).item() == pytest.approx(expected, abs=1e-10)


def test_its_gradients_are_the_derivatives_of_the_model_of_the_paper() -> None:
    model = build()
    step = 1e-6
    likelihood_of(model).backward()
    generator = np.random.default_rng(3)
    for name, parameter in model.named_parameters():
        for index in {int(i) for i in generator.integers(parameter.numel(), size=6)}:
            values = []
            for sign in (1, -1):
                weights = arrays(model)
                weights[name].reshape(-1)[index] += sign * step
                values.append(sum(log_likelihood(weights, src, tgt) for src, tgt in pairs()))
            slope = (values[0] - values[1]) / (2 * step)
            assert parameter.grad is not None
            assert parameter.grad.view(-1)[index].item() == pytest.approx(slope, abs=1e-6), name


def test_the_gru_of_torch_differs() -> None:
    """It resets after the matrix product, and its z is the weight of the old state."""
    layer = GRULayer(E, H).double()
    randomize(layer)
    theirs = torch.nn.GRUCell(E, H).double()
    x = torch.randn(4, E).double()
    h = torch.randn(4, H).double()

    def of_torch(U: torch.Tensor) -> torch.Tensor:
        W = layer.input_weight
        U_rz = layer.hidden_weight
        with torch.no_grad():
            theirs.weight_ih.copy_(torch.cat([W[:H], -W[H : 2 * H], W[2 * H :]]))
            theirs.weight_hh.copy_(torch.cat([U_rz[:H], -U_rz[H:], U]))
            theirs.bias_ih.copy_(
                torch.cat([layer.bias[:H], -layer.bias[H : 2 * H], layer.bias[2 * H :]])
            )
            theirs.bias_hh.zero_()
        return theirs(x, h)

    def ours() -> torch.Tensor:
        return layer.step(layer.gates(x), h, h[:, :0])[0]

    assert not torch.allclose(ours(), of_torch(layer.candidate_weight))
    diagonal = torch.diag(torch.linspace(-1, 1, H).double())  # then both products are equal
    with torch.no_grad():
        layer.candidate_weight.copy_(diagonal)
    close(ours(), of_torch(diagonal))


def test_initial_recurrent_matrices_are_orthogonal() -> None:
    layer = GRULayer(E, H)
    for matrix in (*layer.hidden_weight.chunk(2), layer.candidate_weight):
        close(matrix @ matrix.t(), torch.eye(H), 1e-5)


def test_a_maxout_layer_reads_the_last_state() -> None:
    """The first output does not depend on the decoder's recurrent weights."""
    model = build(2)
    assert isinstance(model.decoder, BahdanauDecoder)
    outputs = model(SRC, LENGTHS, TGT_IN)
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.hidden_weight += 1
    changed_outputs = model(SRC, LENGTHS, TGT_IN)
    close(changed_outputs[:, 0], outputs[:, 0])
    assert not torch.allclose(changed_outputs[:, 1], outputs[:, 1])
