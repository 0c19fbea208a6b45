"""Steps of a training, and trainings that are killed."""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from seq2seq.config.schema import Config

if TYPE_CHECKING:
    from seq2seq.data.padding import Batch
    from seq2seq.training.session import TrainingSession


def take_step(session: "TrainingSession", batches: list["Batch"], rate: float) -> int:
    """Take a step and record it as the training loop does; return its target tokens."""
    from seq2seq.training.step import train_step

    result = train_step(session, batches, rate)
    session.progress.add(result.losses, result.skipped)
    session.progress.max_micro_batch_positions = result.max_micro_batch_positions
    return result.tokens


def run_until_killed(act: Callable[[], object]) -> None:
    """Call a function that kills its process, in a fork of this one."""
    if sys.platform == "darwin":
        pytest.skip("Apple's BLAS does not survive a fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of pytest
        child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def train_until_killed(config: Config, step: int) -> None:
    """Start or resume a training in a process that is killed in the step of this number."""
    from seq2seq.training import loop
    from seq2seq.training.step import StepResult, train_step

    def killed(run: "TrainingSession", batches: Sequence["Batch"], rate: float) -> StepResult:
        if run.progress.step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return train_step(run, batches, rate)

    def act() -> None:
        loop.train_step = killed
        loop.train(config, "cpu", resume=True)

    run_until_killed(act)
