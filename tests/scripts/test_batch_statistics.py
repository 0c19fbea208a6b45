"""Statistics of scripts/batch_statistics.py, for given orders and for a run of the command."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases.toy_text import write_small_corpus

from batch_statistics import share_met

ROOT = Path(__file__).resolve().parents[2]


def test_the_share_of_repeated_batch_mates() -> None:
    epoch = [np.array(rows) for rows in ([0, 1, 2], [3, 4, 5], [6])]
    assert share_met(epoch, epoch, 7) == 1
    later_epoch = [np.array(rows) for rows in ([0, 1, 3], [2, 4, 6], [5])]
    assert share_met(epoch, later_epoch, 7) == pytest.approx((0.5 + 0.5 + 0) / 6)


@pytest.mark.thorough
def test_the_table_of_a_config(tmp_path: Path) -> None:
    config = write_small_corpus(tmp_path)
    command = [sys.executable, ROOT / "scripts" / "batch_statistics.py", config]
    process = subprocess.run(
        [*command, "vocabulary.sampling=0.1"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert [line.split()[0] for line in process.stdout.splitlines()][:2] == ["pairs", "batches"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
