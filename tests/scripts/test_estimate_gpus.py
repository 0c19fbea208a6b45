"""`scripts/estimate_gpus.py`: estimates compared with independent sums."""

import pytest

import estimate_gpus
from estimate_gpus import estimate


def test_one_gpu_sends_no_gradients() -> None:
    found = estimate(1, 989e12, 10**6, 0.5)
    assert found.compute_seconds == pytest.approx(2)
    assert (found.sent_bytes, found.exchange_seconds) == (0, 0)
    assert found.efficiency == (1, 1)


@pytest.mark.parametrize("gpus", [2, 8, 64])
def test_a_ring_sends_each_part_of_the_gradients_twice(gpus: int) -> None:
    """Each GPU sends all parts but one to its neighbour: first partial sums, then complete sums."""
    parameters = 64 * 1000
    part = 4 * parameters // gpus
    sent = sum(part for _ in ("partial sums", "sums") for _ in range(gpus - 1))
    found = estimate(gpus, 1e12, parameters, 0.1)
    assert found.sent_bytes == pytest.approx(sent)
    slowest = 450e9 if gpus <= 8 else 50e9
    assert found.exchange_seconds > sent / slowest
    worst, best = found.efficiency
    assert 0 < worst < best <= 1


def test_the_table_has_a_row_for_each_size(capsys: pytest.CaptureFixture[str]) -> None:
    estimate_gpus.main(["--model", "luong"])
    title, _, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith("luong: ")
    assert [row.split()[0] for row in rows if row.split()[0].isdigit()] == ["1", "8", "64"] * 2
