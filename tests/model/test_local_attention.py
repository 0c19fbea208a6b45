"""Luong's windows against section 3.2 of his paper, written out position by position."""

import math

import pytest
import torch
from cases.models import (
    SRC_LENGTHS,
    B,
    H,
    R,
    S,
    T,
    close,
    embedded_targets,
    encoder_output,
    one_step,
    random_tensor,
    randomize,
)
from torch import Tensor

from seq2seq.model.attention import GeneralScore, masked_attention
from seq2seq.model.decoder import DecoderSizes, LuongDecoder
from seq2seq.model.local_attention import MonotonicWindow, PredictiveWindow, Window

K = 3
LONG = 13
LENGTHS = (13, 1, 6, 9)
PAD_MASK = torch.arange(LONG) >= torch.tensor(LENGTHS)[:, None]


def centre_in_loops(window: PredictiveWindow, q: list[float], length: int) -> float:
    """`p = S sigmoid(v . tanh(W q))`."""
    w = window.query_projection.weight.tolist()
    v = window.energy.weight[0].tolist()
    inner = [math.tanh(sum(a * b for a, b in zip(row, q, strict=True))) for row in w]
    return length / (1 + math.exp(-sum(a * b for a, b in zip(v, inner, strict=True))))


@pytest.mark.parametrize("half_width", [1, 2, 5])
def test_local_m_is_a_window_about_the_same_position(half_width: int) -> None:
    position = torch.tensor([[0, 5, 11], [0, 1, 40], [2, 5, 6], [8, 9, 10]])
    window_weights = MonotonicWindow(half_width)(random_tensor(4, K, H, seed=1), position, PAD_MASK)
    for b, length in enumerate(LENGTHS):
        for k in range(K):
            t = min(position[b, k].item(), length - 1)
            expected = [1.0 if t - half_width <= s <= t + half_width else 0.0 for s in range(LONG)]
            assert window_weights[b, k].tolist() == expected
            assert any(expected[:length])


@pytest.mark.parametrize("half_width", [1, 2, 5])
def test_local_p_is_a_cut_gaussian_about_a_predicted_position(half_width: int) -> None:
    window = PredictiveWindow(H, half_width)
    randomize(window)
    query = random_tensor(4, K, H, seed=1)
    window_weights = window(query, torch.zeros(4, K, dtype=torch.long), PAD_MASK)
    for b, length in enumerate(LENGTHS):
        for k in range(K):
            p = centre_in_loops(window, query[b, k].tolist(), length)
            sigma = half_width / 2
            expected = [
                math.exp(-((s - p) ** 2) / (2 * sigma**2)) if abs(s - p) <= half_width else 0.0
                for s in range(LONG)
            ]
            close(window_weights[b, k], torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_window_always_contains_an_unpadded_position(sign: int, dtype: torch.dtype) -> None:
    """Even if the sigmoid is exactly 0 or 1."""
    window = PredictiveWindow(H, 1).to(dtype)
    torch.nn.init.constant_(window.query_projection.weight, 9.0)
    torch.nn.init.constant_(window.energy.weight, 99.0 * sign)
    query = torch.ones(4, K, H, dtype=dtype)
    position = torch.full((4, K), 10**6)
    for tested_window in (window, MonotonicWindow(1)):
        window_weights = tested_window(query, position, PAD_MASK)
        assert window_weights.masked_fill(PAD_MASK[:, None], 0).any(-1).all()
        assert window_weights.dtype == torch.promote_types(dtype, torch.float32)


def test_gradients_of_local_p_equal_numerical_derivatives() -> None:
    window = PredictiveWindow(H, 2)
    randomize(window)
    scores = random_tensor(4, K, LONG, seed=1)
    values = random_tensor(4, LONG, 5, seed=2)
    query = random_tensor(4, K, H, seed=3)
    position = torch.zeros(4, K, dtype=torch.long)

    def run(query: Tensor, scores: Tensor, values: Tensor, *_: Tensor) -> Tensor:
        return masked_attention(scores, values, PAD_MASK, window(query, position, PAD_MASK))[0]

    assert torch.autograd.gradcheck(run, (query, scores, values, *window.parameters()))


@pytest.mark.parametrize("feeding", [True, False], ids=["feeding", "no feeding"])
@pytest.mark.parametrize("window", [MonotonicWindow(1), PredictiveWindow(H, 2)])
def test_luong_attends_within_its_window_at_every_step(window: Window, feeding: bool) -> None:
    """`a_t(s) = align(h_t, h_s) exp(-(s - p_t)^2 / (2 sigma^2))`, align over the window alone."""
    score = GeneralScore(H, H)
    decoder = LuongDecoder(DecoderSizes(8, H, R), score, window, input_feeding=feeding)
    randomize(decoder)
    memory, state = decoder.start(encoder_output(1))
    embedded = embedded_targets()
    outputs = []
    for t in range(T):
        step = one_step(decoder, embedded[:, t], state, memory)
        state = step.state
        outputs.append(step.outputs)
        assert torch.equal(state.position, torch.full((B,), t + 1))
        queries = state.hidden[:, -1]
        keys = score.project(memory.values)[0]
        for b, length in enumerate(SRC_LENGTHS):
            if isinstance(window, MonotonicWindow):
                p = float(min(t, length - 1))
                gaussian = False
                half_width = 1
            else:
                p = centre_in_loops(window, queries[b].tolist(), length)
                gaussian = True
                half_width = 2
            positions_in_window = [s for s in range(length) if abs(s - p) <= half_width]
            exponents = {s: math.exp((queries[b] @ keys[b, s]).item()) for s in positions_in_window}
            expected = torch.zeros(S, dtype=torch.float64)
            for s in positions_in_window:
                expected[s] = exponents[s] / sum(exponents.values())
                if gaussian:
                    expected[s] *= math.exp(-((s - p) ** 2) / (2 * (half_width / 2) ** 2))
            close(step.attention_weights[b], expected)
    memory, state = decoder.start(encoder_output(1))
    close(decoder(embedded, state, memory).outputs, torch.stack(outputs, dim=1))
