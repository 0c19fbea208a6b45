"""Progress: its statistics survive saving, resuming and changes of the logging interval."""

import json
import random
from pathlib import Path

import pytest
import torch

from seq2seq.runs.training_state import Progress
from seq2seq.runtime.errors import DamagedFile

CPU = torch.device("cpu")
PATH = Path("last.safetensors")


def saved_and_read(progress: Progress, log_every: int) -> Progress:
    """Return the progress after a save and a resume with this logging interval."""
    header = json.loads(json.dumps(progress.to_header()))
    resumed = Progress.from_header(header, PATH)
    assert resumed.to_header() == header
    resumed.move_to(CPU, log_every)
    return resumed


@pytest.mark.parametrize("seed", range(20))
def test_skipped_steps_are_counted_since_the_last_log_line(seed: int) -> None:
    """Compare with a count by hand, over resumes at any step with longer and shorter intervals."""
    generator = random.Random(seed)
    interval = generator.randint(1, 6)
    progress = Progress()
    progress.move_to(CPU, interval)
    skipped: list[int] = []
    sums = [0.0, 0.0, 0]
    for step in range(1, 60):
        progress.step = step
        skip = generator.random() < 0.4
        losses = [generator.random(), generator.random(), generator.randint(1, 9)]
        losses = [0.0, 0.0, 0] if skip else losses
        progress.add(torch.tensor(losses, dtype=torch.float64), torch.tensor(skip))
        skipped += [step] * skip
        sums = [total + loss for total, loss in zip(sums, losses, strict=True)]
        if generator.random() < 0.2:
            interval = generator.randint(1, 6)
            progress = saved_and_read(progress, interval)
        assert progress.skipped_steps() == skipped
        assert progress.losses.tolist() == sums
        if step % interval == 0:
            progress.reported_step = step
            progress.skipped.zero_()
            skipped.clear()


@pytest.mark.parametrize(
    "change",
    [
        {"step": "7"},
        {"losses": [1.0, 2.0]},
        {"losses": ["x", 1, 2]},
        {"skipped": [[]]},
        {"skipped": None},
        {"unknown": 1},
    ],
)
def test_a_malformed_header_is_damage(change: dict[str, object]) -> None:
    header = Progress(step=7).to_header()
    header["progress"] |= change
    with pytest.raises(DamagedFile, match=str(PATH)):
        Progress.from_header(header, PATH)
