"""Time of the steps of a distillation, and what fits into a number of hours."""

from pathlib import Path

import pytest
from cases.tiny_runs import tiny_config

from seq2seq.config.schema import Config
from seq2seq.tools.distillation import costs
from seq2seq.tools.distillation.costs import Epoch
from seq2seq.tools.distillation.plan import DistillationRequest, Outline, plan_of
from seq2seq.tools.distillation.steps import ModelScoring, Workplace

PLACE = Workplace(Path("run/distillation"))
EPOCHS = dict.fromkeys(("plain", "reversed", "student"), Epoch(seconds=600, steps=100))


def config_of(**training: object) -> Config:
    tree = tiny_config(Path("run"), "luong").model_dump()
    tree["training"] |= {"max_epochs": None, **training}
    return Config.model_validate(tree)


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({"max_epochs": 3}, 1800),
        ({"max_steps": 50}, 300),
        ({"max_minutes": 2}, 120),
        ({"max_epochs": 3, "max_steps": 50, "max_minutes": 6}, 300),
    ],
)
def test_the_first_limit_ends_a_training(limits: dict[str, object], seconds: float) -> None:
    assert costs.training_seconds(config_of(**limits), EPOCHS["plain"]) == seconds


def test_an_epoch_of_a_student_has_more_pairs() -> None:
    config = config_of(max_epochs=3)
    assert costs.training_seconds(config, EPOCHS["plain"], epoch_size=4) == 4 * 1800


def test_an_epoch_of_weighted_corpora_has_fewer_pairs() -> None:
    """A translation still takes every line."""
    tree = config_of(max_epochs=3).model_dump()
    corpora = [{"src": "a.xx", "tgt": "a.yy", "weight": 0.1}, {"src": "b.xx", "tgt": "b.yy"}]
    tree["data"] |= {"train": corpora}
    request = DistillationRequest(Config.model_validate(tree), sizes=(0.75, 0.25))
    plan = plan_of(request, Outline(2, True), PLACE)
    seconds = {step.name: costs.seconds_of(step, EPOCHS) for step in plan.steps}
    used = 0.75 * 0.1 + 0.25
    assert seconds["plain"] == pytest.approx(costs.START_SECONDS + 3 * 600 * used)
    translation = costs.TRANSLATION_EPOCHS * 0.75 * 600
    assert seconds["plain-alone-1"] == pytest.approx(costs.START_SECONDS + translation)


def test_steps_run_beside_each_other_once_what_they_need_has_ended() -> None:
    first = ModelScoring("first", ())
    second = ModelScoring("second", ())
    third = ModelScoring("third", ("first", "second"))
    fourth = ModelScoring("fourth", ("first",))
    steps = [first, second, fourth, third]
    seconds = {"first": 3, "second": 5, "third": 1, "fourth": 4}
    by_one_job = costs.ends(steps, seconds, jobs=1)
    assert by_one_job == {"first": 3, "second": 8, "fourth": 12, "third": 13}
    beside = costs.ends(steps, seconds, jobs=2)
    assert beside == {"first": 3, "second": 5, "fourth": 7, "third": 6}


def test_a_shorter_time_has_ever_fewer_parts() -> None:
    """At 12 epochs of ten minutes, a training is two hours."""
    request = DistillationRequest(config_of(max_epochs=12), generations=2)
    full = Outline(2, True, 2)
    outlines = {
        hours: costs.outline_within(hours, request, PLACE, EPOCHS, 1)
        for hours in (None, 40, 12, 9, 6, 3, 1)
    }
    assert outlines == {
        None: full,
        40: full,
        12: Outline(2, True, 1),
        9: Outline(2, False, 1),
        6: Outline(1, False, 1),
        3: Outline(1, False, 0),
        1: Outline(1, False, 0, max_minutes=60),
    }
    for hours, outline in outlines.items():
        plan = plan_of(request, outline, PLACE)
        time = costs.plan_seconds(plan, EPOCHS, 1)
        assert time <= 3600 * (hours or 99) + 60  # starts and scores of a training that is ended


def test_two_jobs_fit_more_into_the_time() -> None:
    request = DistillationRequest(config_of(max_epochs=12))
    assert costs.outline_within(9, request, PLACE, EPOCHS, 2) == Outline(2, True, 1)


def test_the_usual_plan_takes_at_most_five_times_the_plain_training() -> None:
    request = DistillationRequest(config_of(max_epochs=12))
    plan = plan_of(request, Outline(), PLACE)
    plain = costs.training_seconds(request.config, EPOCHS["plain"])
    assert costs.plan_seconds(plan, EPOCHS, 1) < costs.MULTIPLE * plain
