"""Selection of the best weights, patience and plateaus, against the documented rules."""

import math
import random
from typing import Any

import pytest

from seq2seq.config.schema import TrainingConfig
from seq2seq.runs.training_state import Progress
from seq2seq.training.selection import (
    FLOORS,
    MIN_DECAY,
    ValidationScores,
    best_note,
    decay_on_plateau,
    record,
)
from seq2seq.training.stopping import met_limit


def settings(**keys: Any) -> TrainingConfig:
    return TrainingConfig.model_validate({"max_steps": 10_000} | keys)


def scores(metric: str, score: float, loss: float) -> ValidationScores:
    """Return scores in which only the metric has this value."""
    return ValidationScores(loss, score if metric == "bleu" else 50.0, score)


def recorded(config: TrainingConfig, *validations: tuple[float, float]) -> tuple[Progress, int]:
    """Return progress after validations of (score, loss), and the number of the best, from 1."""
    progress = Progress()
    best = 0
    for number, (score, loss) in enumerate(validations, start=1):
        progress.step = 100 * number
        if record(progress, config, scores(config.metric.name, score, loss)):
            best = number
    assert progress.best_step == 100 * best
    return progress, best


@pytest.mark.parametrize(
    ("metric", "validations", "best"),
    [
        ("bleu", [(0.78, 3.26), (0.38, 2.46)], 2),  # near zero the loss decides
        ("bleu", [(0.38, 2.46), (0.78, 3.26)], 1),
        ("bleu", [(1.99, 2.0), (2.01, 3.0)], 2),  # above the floor the score does
        ("bleu", [(2.01, 3.0), (1.99, 2.0)], 1),
        ("bleu", [(30.0, 2.0), (29.9, 1.0)], 1),
        ("bleu", [(30.0, 2.0), (30.0, 1.9), (30.0, 1.95)], 2),  # equal scores: the loss
        ("chrf", [(12.0, 3.0), (11.0, 2.0), (19.9, 2.5)], 2),
        ("chrf", [(41.0, 3.0), (42.0, 3.5), (41.5, 1.0)], 2),
        ("loss", [(40.0, 2.0), (50.0, 2.1), (10.0, 1.9)], 3),
    ],
)
def test_the_best_validation_is_chosen_by_the_metric(
    metric: str, validations: list[tuple[float, float]], best: int
) -> None:
    assert recorded(settings(metric=metric), *validations)[1] == best


@pytest.mark.parametrize("metric", ["bleu", "chrf", "loss"])
@pytest.mark.parametrize("seed", range(10))
def test_the_best_of_many_is_the_first_maximum(metric: str, seed: int) -> None:
    generator = random.Random(seed)
    top = 2 * FLOORS.get(metric, 1.0)
    scores_and_losses = [
        (round(generator.uniform(0, top), 1), round(generator.random(), 1)) for _ in range(30)
    ]

    def rank(number: int) -> tuple[float, float]:
        score, loss = scores_and_losses[number]
        is_above_floor = metric != "loss" and score > FLOORS[metric]
        return (score if is_above_floor else 0.0, -loss)

    _, best = recorded(settings(metric=metric), *scores_and_losses)
    assert best - 1 == max(range(len(scores_and_losses)), key=rank)


@pytest.mark.parametrize(
    ("metric", "minimum", "validations", "without_improvement"),
    [
        ("bleu", 0.0, [(0.5, 4.0), (0.3, 3.9), (0.1, 3.8)], 0),  # BLEU 0, a falling loss
        ("bleu", 1.0, [(0.5, 4.0), (0.3, 3.9), (0.1, 3.8)], 0),
        ("bleu", 0.0, [(0.5, 4.0), (0.6, 4.1), (0.7, 4.2)], 2),
        ("bleu", 0.0, [(10.0, 2.0), (10.1, 2.5), (10.0, 2.0)], 1),
        ("bleu", 0.5, [(10.0, 2.0), (10.3, 1.9), (10.5, 1.8), (10.9, 1.7)], 1),  # gains add up
        ("bleu", 0.5, [(10.0, 2.0), (10.0, 1.0)], 1),
        ("bleu", 5.0, [(1.0, 2.0), (3.0, 2.1)], 1),
        ("chrf", 0.5, [(40.0, 2.0), (40.4, 1.9), (40.4, 1.8)], 2),
        ("loss", 0.0, [(9.0, 2.0), (9.0, 1.99), (9.0, 1.99)], 1),
        ("loss", 0.1, [(9.0, 2.0), (9.0, 1.95), (9.0, 1.9), (9.0, 1.85)], 1),
    ],
)
def test_patience_counts_improvements_of_the_minimum_size(
    metric: str, minimum: float, validations: list[tuple[float, float]], without_improvement: int
) -> None:
    progress, _ = recorded(settings(metric={metric: minimum}), *validations)
    assert progress.validations_since_improvement == without_improvement


def test_better_weights_are_kept_however_small_the_improvement() -> None:
    config = settings(metric={"bleu": 1.0})
    assert recorded(config, (10.0, 2.0), (10.2, 2.0), (10.1, 1.0))[1] == 2


@pytest.mark.parametrize("factor", [0.5, 0.1, 0.7])
def test_a_plateau_decays_the_rate_until_patience_ends_training(factor: float) -> None:
    config = settings(decay={"plateau": factor}, patience=2)
    progress = Progress(step=1)
    notes = []
    record(progress, config, ValidationScores(1.0, 10.0))
    for step in range(2, 100):
        progress.step = step
        record(progress, config, ValidationScores(1.0, 10.0))
        note = decay_on_plateau(progress, config)
        notes += [note] if note else []
        if met_limit(config, progress, 0.0) is not None:
            break
    decays = math.floor(math.log(MIN_DECAY) / math.log(factor) + 1e-9)
    assert progress.decays == len(notes) == decays
    assert step == 1 + 2 * (decays + 1)
    assert f"the learning rate is now {factor:.3g} of its peak" in notes[0]


def test_an_improvement_delays_the_plateau() -> None:
    config = settings(decay="plateau", patience=2)
    progress = Progress()
    for step, bleu in enumerate([10, 9, 11, 9, 9, 9, 12, 9], start=1):
        progress.step = step
        record(progress, config, ValidationScores(1.0, bleu))
        assert (decay_on_plateau(progress, config) is not None) == (step == 5)
    assert progress.decays == 1
    assert progress.validations_since_improvement == 1


def test_other_decays_have_no_plateau() -> None:
    config = settings(patience=1)
    progress, _ = recorded(config, (10.0, 1.0), (9.0, 1.0))
    assert decay_on_plateau(progress, config) is None
    assert met_limit(config, progress, 0.0) == "patience"


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        ("bleu", "Best validation BLEU 12.3 (greedy)"),
        ("chrf", "Best validation chrF 12.3 (greedy)"),
        ("loss", "Best validation loss 2.346"),
    ],
)
def test_the_log_names_the_metric(metric: str, text: str) -> None:
    config = settings(metric=metric)
    assert best_note(recorded(config, (12.34, 2.3456))[0], config) == text


def test_scores_are_shown_and_written() -> None:
    text = str(ValidationScores(2.0, 12.34, 45.67))
    assert text == "loss 2.000, perplexity 7.39, BLEU 12.3, chrF 45.7"
    assert list(ValidationScores(2.0, 1.0).figures()) == [
        "valid_loss",
        "valid_perplexity",
        "valid_bleu",
    ]
    huge = ValidationScores(1e30, 0.0)
    assert str(huge) == "loss 1e+30, perplexity inf, BLEU 0.0"
    assert huge.figures()["valid_perplexity"] == math.inf
