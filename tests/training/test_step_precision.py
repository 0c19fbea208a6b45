"""Precision: loss scaling in fp16, and the choice of `auto`."""

import json
import re
from pathlib import Path

import pytest
import torch
from cases.tiers import one_quick

from seq2seq.__main__ import main
from seq2seq.config.schema import load_config
from seq2seq.data.batching import EpochOrder
from seq2seq.runs.layout import BEST, LOG, METRICS
from seq2seq.runs.training_state import INITIAL_LOSS_SCALE, read_state
from seq2seq.runtime import device as device_module
from seq2seq.runtime.process_group import ProcessGroup
from seq2seq.training import optimizer
from seq2seq.training import session as session_module
from seq2seq.training.batches import own_batches
from seq2seq.training.optimizer import GROWTH_STEPS, update_loss_scale
from seq2seq.training.preparation import join_run, prepare
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import train_step

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

CPU = torch.device("cpu")
LIMITS = ("training.max_steps=6", "training.validate_every=3", "decoding.max_length=8")


def test_the_loss_scale_follows_its_rule() -> None:
    state = torch.tensor([1024.0, 0.0])
    scale = 1024.0
    steps = 0
    generator = torch.Generator().manual_seed(1)
    for number in range(3 * GROWTH_STEPS):
        skipped = number < 20 and bool(torch.rand((), generator=generator) < 0.3)
        update_loss_scale(state, torch.tensor(skipped))
        steps = 0 if skipped else steps + 1
        scale = scale / 2 if skipped else scale
        if steps == GROWTH_STEPS:
            scale, steps = 2 * scale, 0
        assert state.tolist() == [scale, steps]
    for _ in range(50):
        update_loss_scale(state, torch.tensor(True))
    assert state[0] == 1


def losses_of(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    return [line["valid_loss"] for line in lines if "valid_loss" in line]


@pytest.mark.thorough
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "none"])
def test_mixed_precision_has_nearly_the_losses_of_float32(decoder: str, small_corpus: Path) -> None:
    losses = {}
    for name in ("float32", "fp16", "bf16"):
        run = small_corpus.parent / name
        model = f"model.decoder={decoder}", "model.attention_size=null", f"run_dir={run}"
        arguments = ["train", str(small_corpus), *LIMITS, *model, f"training.precision={name}"]
        assert main(arguments) == 0
        losses[name] = losses_of(run)
        assert "skipped" not in (run / LOG).read_text().replace("skipped in training", "")
    for precision in ("fp16", "bf16"):
        assert losses[precision] == pytest.approx(losses["float32"], rel=2e-2)
        assert losses[precision] != losses["float32"]


def prepared(config_file: Path, *overrides: str) -> TrainingSession:
    return prepare(load_config(config_file, overrides), CPU)[0]


def step(session: TrainingSession) -> bool:
    """Take the next step; return whether it was skipped."""
    session.progress.step += 1
    order = EpochOrder(session.data.train, 100, 1, 0)
    batches = own_batches(session, [order[session.progress.step]])
    return bool(train_step(session, batches, 1e-3).skipped)


def test_an_overflow_halves_the_scale_and_changes_no_weight(small_corpus: Path) -> None:
    session = prepared(small_corpus, "training.precision=fp16")
    session.progress.loss_scale[0] = 2.0**24
    weights = [weight.clone() for weight in session.model.parameters()]
    skipped = 0
    while step(session):
        skipped += 1
        for weight_before, weight_after in zip(weights, session.model.parameters(), strict=True):
            assert torch.equal(weight_before, weight_after)
    assert skipped > 0
    assert session.progress.loss_scale.tolist() == [2.0 ** (24 - skipped), 1]


def test_the_loss_scale_does_not_change_the_step(small_corpus: Path) -> None:
    """Powers of two are exact, as long as nothing underflows."""
    gradients = []
    for scale in (INITIAL_LOSS_SCALE, 4 * INITIAL_LOSS_SCALE):
        run = small_corpus.parent / f"{scale:.0f}"
        session = prepared(small_corpus, "training.precision=fp16", f"run_dir={run}")
        session.progress.loss_scale[0] = scale
        assert not step(session)
        gradients.append([parameter.grad for parameter in session.model.parameters()])
    for gradient, scaled_gradient in zip(*gradients, strict=True):
        assert torch.isclose(
            gradient, scaled_gradient, rtol=0, atol=1e-3 * scaled_gradient.abs().max().item()
        ).all()


@pytest.mark.thorough
def test_a_resumed_run_has_the_same_loss_scale(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimizer, "GROWTH_STEPS", 2)
    folder = small_corpus.parent
    fp16 = ["training.precision=fp16", "training.decay=constant"]
    arguments = ["train", str(small_corpus), *LIMITS, *fp16]
    assert main([*arguments, f"run_dir={folder / 'one'}"]) == 0
    other_run = f"run_dir={folder / 'other'}"
    assert main([*arguments, other_run, "training.max_steps=3"]) == 0
    assert main([*arguments, other_run, "--resume"]) == 0
    assert (folder / "one" / BEST).read_bytes() == (folder / "other" / BEST).read_bytes()
    states = [read_state(folder / name) for name in ("one", "other")]
    scales = [state.progress.loss_scale.tolist() for state in states if state is not None]
    assert scales == [[8 * INITIAL_LOSS_SCALE, 0.0]] * 2


@one_quick(("ratio", "precision"), [(0.6, "bf16"), (1.4, "float32")])
def test_auto_is_decided_by_speed_once_when_the_run_starts(
    ratio: float, precision: str, small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "_bf16_time", lambda: ratio)
    run = small_corpus.parent / "auto"
    arguments = ["train", str(small_corpus), *LIMITS, "training.precision=auto", f"run_dir={run}"]
    assert main([*arguments, "training.max_steps=3", "training.decay=constant"]) == 0
    assert re.search(rf"threads?, {precision}$", (run / LOG).read_text(), re.MULTILINE)
    monkeypatch.setattr(device_module, "_bf16_time", lambda: 2 - ratio)
    assert main([*arguments, "training.decay=constant", "--resume"]) == 0
    explicit = run.with_name("explicit")
    arguments[-2:] = [f"training.precision={precision}", f"run_dir={explicit}"]
    assert main([*arguments, "training.decay=constant"]) == 0
    assert losses_of(run) == losses_of(explicit)


@pytest.mark.parametrize("main", ["bf16", "float32"])
def test_other_ranks_train_in_the_precision_of_the_main_process(
    main: str, small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "resolve_precision", lambda *_: main)
    config = prepared(small_corpus, "training.precision=auto").config
    monkeypatch.setattr(session_module, "resolve_precision", lambda *_: "another")
    session = join_run(config, CPU, ProcessGroup(1, 2))
    assert session.progress.precision == main
