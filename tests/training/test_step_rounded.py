"""Steps as CUDA graphs run them, without capture: rounded batches, tensors that stay the same."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from cases.models import FAMILY, GNMT, ONE_OF_EACH, UNITS, Case, make_copying_model, make_model
from cases.stopped_trainings import take_step
from cases.tiers import one_quick
from torch import Tensor, nn

from seq2seq.config.schema import load_config
from seq2seq.data.padding import Batch, make_batch
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runtime.cuda_graphs import Graphs
from seq2seq.runtime.device import choose_device
from seq2seq.training.batches import own_batches
from seq2seq.training.loss import batch_loss
from seq2seq.training.mixture_loss import LossWeights
from seq2seq.training.preparation import prepare
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import _update

CASES_OF = {
    "smoothed": [*FAMILY, *GNMT[:2], *UNITS[1:3]],
    "r-drop": ONE_OF_EACH,
    "all": FAMILY[4:8],
}
WEIGHTS = {"smoothed": (0.1,), "r-drop": (0.1, 1.0), "all": (0.0, 0.5, 0.3, 0.2)}


def ids(rows: int, max_length: int, seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, max_length + 1, (rows,), generator=generator).tolist()
    return [torch.randint(4, 11, (length,), generator=generator).tolist() for length in lengths]


def some_batch(rows: int = 5, guided: bool = False) -> Batch:
    src = ids(rows, 9, 1)
    tgt = ids(rows, 7, 2)
    if not guided:
        return make_batch(src, tgt)
    width = 1 + max(map(len, src))
    length = 1 + max(map(len, tgt))
    words = torch.arange(width).expand(rows, -1).clamp(max=6)
    return make_batch(src, tgt, words, torch.rand(rows, length, 6).softmax(-1))


def loss_and_gradients(
    model: Seq2Seq, batch: Batch, weights: tuple[float, ...]
) -> tuple[list[Tensor], dict[str, Tensor | None]]:
    model.zero_grad()
    losses = batch_loss(model, batch, LossWeights(*weights))
    losses.objective.backward()
    return list(losses), {name: value.grad for name, value in model.named_parameters()}


@pytest.mark.parametrize("rows", [5, 32, 40])
def test_a_rounded_batch_has_few_sizes_and_the_same_pairs(rows: int) -> None:
    batch = some_batch(rows)
    rounded = batch.rounded()
    assert rounded.tokens == batch.tokens == len(batch.tgt_out)
    sizes = len(rounded.src), rounded.src.shape[1], rounded.tgt_in.shape[1]
    assert [size % step for size, step in zip(sizes, (32, 8, 8), strict=True)] == [0, 0, 0]
    assert rounded.real is not None
    real = rounded.real.bool()
    width = rounded.tgt_in.shape[1]
    assert rounded.tgt_positions.view(width, -1)[:, 0].tolist() == list(range(width))
    order = rounded.tgt_positions[real].argsort()
    assert rounded.tgt_out[real][order].tolist() == batch.tgt_out.tolist()
    assert rounded.src[:rows, : batch.src.shape[1]].equal(batch.src)
    assert rounded.src_lengths[rows:].eq(1).all()


@pytest.mark.parametrize("name", WEIGHTS)
def test_padding_changes_no_loss_and_no_gradient(name: str) -> None:
    for case in CASES_OF[name]:
        attends = case.kind != "plain"
        batch = some_batch(guided=name == "all" and attends)
        _compare(case, make_model(case), batch, WEIGHTS[name] if attends else WEIGHTS[name][:2])


@pytest.mark.parametrize("name", WEIGHTS)
def test_padding_changes_no_loss_of_copied_tokens(name: str) -> None:
    for case in (Case("bahdanau", "additive", False, 1), Case("luong", "general", True, 2)):
        _compare(case, make_copying_model(case), some_batch(guided=name == "all"), WEIGHTS[name])


def _compare(case: Case, model: Seq2Seq, batch: Batch, weights: tuple[float, ...]) -> None:
    expected = loss_and_gradients(model, batch, weights)
    actual = loss_and_gradients(model, batch.rounded(), weights)
    torch.testing.assert_close(
        actual, expected, rtol=1e-6, atol=1e-6, msg=lambda text: f"{case}: {text}"
    )


# ----------------------------------------------------------------------------------- several steps


class Static(TrainingSession):
    """A session that takes steps as on a GPU."""

    is_static = True  # type: ignore[assignment]


CONFIGS = {
    "averaged": ["training.average=0.9", "training.decay=linear"],
    "accumulated": ["training.batch_tokens=200", "training.accumulate=3"],
    "sampled inputs": ["training.scheduled_sampling={linear: 12}"],
    "copying": ["model.copy=true", "vocabulary.joint=true", "vocabulary.sampling=0.2"],
}


def usual_and_static(corpus: Path, overrides: Sequence[str]) -> list[TrainingSession]:
    """Return two sessions with equal weights."""
    sessions = []
    for kind in (TrainingSession, Static):
        run = (f"run_dir={corpus.parent / kind.__name__}", "model.dropout=0")
        session, _ = prepare(load_config(corpus, (*run, *overrides)), choose_device("cpu"))
        session.__class__ = kind
        sessions.append(session)
    return sessions


def tensors_of(session: TrainingSession) -> list[Tensor]:
    """Return all that a step changes but the gradients: weights, their averages and moments."""
    states = [value for state in session.optimizer.state.values() for value in state.values()]
    return [*named_weights(session.model).values(), *session.averages.values(), *states]


def gradients_of(session: TrainingSession) -> dict[str, Tensor]:
    """Return the gradients; one that is missing is zero."""
    return {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
        for name, weight in session.model.named_parameters()
    }


@one_quick("name", CONFIGS)
@pytest.mark.usefixtures("short_sentences")
def test_static_steps_have_the_losses_and_gradients_of_the_usual_ones(
    small_corpus: Path, name: str
) -> None:
    """Each step starts from equal weights: Adam divides by gradients that may be all rounding."""
    usual, static = usual_and_static(small_corpus, CONFIGS[name])
    for step in range(10):
        rows = [torch.arange(step % 7, 100, 9 + n).numpy() for n in range(2)]
        for session in (usual, static):
            session.progress.step += 1
            take_step(session, own_batches(session, rows), 1e-2)
        torch.testing.assert_close(static.progress.losses, usual.progress.losses, rtol=1e-5, atol=0)
        expected = gradients_of(usual)
        for parameter, gradient in gradients_of(static).items():
            tolerance = 1e-4 * expected[parameter].abs().max().item()
            torch.testing.assert_close(
                gradient, expected[parameter], rtol=0, atol=tolerance, msg=parameter
            )
        for mine, usual_tensor in zip(tensors_of(static), tensors_of(usual), strict=True):
            mine.copy_(usual_tensor)
    assert usual.progress.skipped_steps() == static.progress.skipped_steps() == []


@pytest.mark.usefixtures("short_sentences")
def test_equal_gradients_give_equal_static_updates(small_corpus: Path) -> None:
    """Bitwise, at a learning rate that float32 has."""
    usual, static = usual_and_static(small_corpus, CONFIGS["averaged"])
    rows = [torch.arange(0, 100, 9).numpy()]
    for session in (usual, static):
        session.progress.step = 1
        take_step(session, own_batches(session, rows), 1e-2)
    tensors = zip(tensors_of(static), tensors_of(usual), strict=True)
    for mine, usual_tensor in tensors:
        mine.copy_(usual_tensor)
    generator = torch.Generator().manual_seed(3)
    for weight, usual_tensor in zip(
        static.model.parameters(), usual.model.parameters(), strict=True
    ):
        weight.grad = torch.randn(weight.shape, generator=generator)
        usual_tensor.grad = weight.grad.clone()
    tensors_before = [tensor.clone() for tensor in tensors_of(usual)]
    sums = torch.ones(2)
    tokens = torch.tensor(3.0)
    rates = (2**-7, 0.25)
    _update(usual, rates, sums, tokens)
    _update(static, torch.tensor(rates), sums, tokens)
    assert all(map(torch.equal, tensors_of(static), tensors_of(usual)))
    assert not any(map(torch.equal, tensors_of(usual), tensors_before))


def test_a_static_step_keeps_the_tensors_that_graphs_read(small_corpus: Path) -> None:
    session, _ = prepare(load_config(small_corpus), choose_device("cpu"))
    session.__class__ = Static
    addresses = set()
    for _ in range(3):
        session.progress.step += 1
        take_step(session, own_batches(session, [torch.arange(30).numpy()]), 1e-3)
        gradients = [parameter.grad for parameter in session.model.parameters()]
        states = [value for state in session.optimizer.state.values() for value in state.values()]
        tensors = [*session.model.parameters(), *gradients, *states, session.sums]
        addresses.add(tuple(tensor.data_ptr() for tensor in tensors if tensor is not None))
    assert len(addresses) == 1


def test_functions_are_called_as_they_are_where_nothing_can_be_captured() -> None:
    graphs = Graphs(torch.device("cpu"))
    layer = nn.Linear(3, 2)
    calls = []

    def project(inputs: Tensor) -> Tensor:
        calls.append(len(inputs))
        result: Tensor = layer(inputs)
        return result

    for rows in (4, 4, 5, 4):
        inputs = torch.rand(rows, 3)
        assert graphs.call(rows, project, inputs).equal(layer(inputs))
    assert calls == [4, 4, 5, 4]
    assert graphs.note is None
