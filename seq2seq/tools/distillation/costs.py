"""Time of a distillation: an epoch is measured by training steps, and each step follows from it.

Whether students pay is decided by scores, in best_model.py.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from seq2seq.config.schema import Config
from seq2seq.data.batching import encode_pairs
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.runtime.device import choose_device, deterministic
from seq2seq.tools.analysis.check.forecast import forecast
from seq2seq.tools.analysis.recipe import TextFacts
from seq2seq.tools.distillation.plan import (
    PLAIN,
    REVERSED,
    STUDENT,
    DistillationRequest,
    Outline,
    StepPlan,
    plan_of,
)
from seq2seq.tools.distillation.steps import CorpusTranslation, Step, Training, Workplace
from seq2seq.training.session import new_session, session_data

# Epochs of training that take as long at most as the translation of the text by one model with beam
# 3: in a distillation of 20,000 pairs five of them took 0.3 to 0.53 of an epoch for each model.
TRANSLATION_EPOCHS = 0.6
MULTIPLE = 5.0  # time of all steps, in multiples of the plain training
START_SECONDS = 5.0  # until a command has loaded its packages, its text and its models
SCORING_SECONDS = 15.0  # of a validation text of usual size by one model


class Epoch(NamedTuple):
    """Cost of an epoch of a config that uses every pair of the user's text, whatever its weight."""

    seconds: float
    steps: float


Epochs = Mapping[str, Epoch]  # by the name of the training; students have that of STUDENT


def measure_epoch(config: Config, facts: TextFacts, device: torch.device) -> Epoch:
    """Measure training steps on a sample of the text; return the cost of an epoch of all of it."""
    sample = facts.sample
    settings = config.vocabulary
    with deterministic(device):
        vocabularies = train_vocabularies(settings, sample.src, sample.tgt, config.data.tags)
        pairs = encode_pairs(sample.src, sample.tgt, vocabularies, config.data.max_length)
        data = session_data(config, vocabularies, pairs, sample)
        cost = forecast(new_session(config, device, data))
    scale = facts.pairs / len(sample)
    return Epoch(cost.epoch_seconds * scale, cost.steps_per_epoch * scale)


def measure(request: DistillationRequest, facts: TextFacts, device: str) -> dict[str, Epoch]:
    """Measure an epoch of each model: the reversed one and students have the user's config."""
    torch_device = choose_device(device)
    own_epoch = measure_epoch(request.config, facts, torch_device)
    epochs = dict.fromkeys((PLAIN, REVERSED, STUDENT), own_epoch)
    for number, config in enumerate(request.teachers, start=1):
        epochs[f"teacher-{number}"] = measure_epoch(config, facts, torch_device)
    return epochs


def epoch_of(name: str, epochs: Epochs) -> Epoch:
    """Return the cost of an epoch of a training, by its name."""
    if name in epochs:
        return epochs[name]
    return epochs[STUDENT if name.startswith(STUDENT) else PLAIN]


def training_seconds(config: Config, epoch: Epoch, epoch_size: float = 1.0) -> float:
    """Return the time of a training without its validations, by its first limit."""
    settings = config.training
    limits = list[float]()
    if settings.max_epochs is not None:
        limits.append(settings.max_epochs * epoch.seconds * epoch_size)
    if settings.max_steps is not None:
        limits.append(settings.max_steps * epoch.seconds / epoch.steps)
    if settings.max_minutes is not None:
        limits.append(60 * settings.max_minutes)
    return min(limits)


def seconds_of(step: Step, epochs: Epochs) -> float:
    """Return the expected time of a step."""
    if isinstance(step, Training):
        epoch = epoch_of(step.name, epochs)
        return START_SECONDS + training_seconds(step.config, epoch, step.epoch_size)
    if isinstance(step, CorpusTranslation):
        seconds = sum(epoch_of(name, epochs).seconds for name in step.models)
        return START_SECONDS + TRANSLATION_EPOCHS * step.size * seconds
    return START_SECONDS + SCORING_SECONDS * len(step.models)


def ends(steps: Sequence[Step], seconds: Mapping[str, float], jobs: int) -> dict[str, float]:
    """Return when each step ends, in seconds from now, if `jobs` of them run at once.

    Each of them starts as soon as all that it needs is there and one of the jobs is free, the first
    in the order of the steps first.
    """
    free_from = [0.0] * jobs
    ended = dict[str, float]()
    for step in steps:
        ready = max((ended.get(name, 0.0) for name in step.needs), default=0.0)
        start = max(heapq.heappop(free_from), ready)
        ended[step.name] = start + seconds[step.name]
        heapq.heappush(free_from, ended[step.name])
    return ended


def total_seconds(
    parts: Iterable[Sequence[Step]], seconds: Mapping[str, float], jobs: int
) -> float:
    """Return the time of parts of a plan, each of which begins when the one before has ended."""
    return sum(max(ends(part, seconds, jobs).values(), default=0.0) for part in parts)


def plan_seconds(plan: StepPlan, epochs: Epochs, jobs: int) -> float:
    """Return the expected time of a plan."""
    seconds = {step.name: seconds_of(step, epochs) for step in plan.steps}
    return total_seconds(plan, seconds, jobs)


def outlines(largest: Outline) -> Iterator[Outline]:
    """Yield outlines from a wanted one to a plain training, each cheaper than the one before.

    First goes the second generation, then the reversed model, then all teachers but one.
    """
    teachers = largest.teachers
    for generations in range(largest.generations, 0, -1):
        yield largest._replace(generations=generations)
    if largest.has_reversed:
        yield Outline(teachers, False)
    if teachers > 1:
        yield Outline(1, largest.has_reversed)
        yield Outline(1, False)
    yield Outline(1, False, 0)


def outline_within(
    hours: float | None, request: DistillationRequest, place: Workplace, epochs: Epochs, jobs: int
) -> Outline:
    """Return the largest outline that a number of hours allows: all without a number.

    If not even a plain training fits, it is ended by the time.
    """
    for outline in outlines(request.most):
        plan = plan_of(request, outline, place)
        if hours is None or plan_seconds(plan, epochs, jobs) <= 3600 * hours:
            return outline
    assert hours is not None, "without a number of hours the first outline fits"
    return Outline(1, False, 0, 60 * hours)
