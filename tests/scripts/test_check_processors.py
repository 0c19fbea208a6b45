"""Variants of the tests: the errors that the plugin measures, and what the script runs."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import check_processors
from check_processors import QUICK, Variant

ROOT = Path(__file__).resolve().parents[2]
COMPARISONS = """
import numpy as np
import pytest
import torch

def test_tensors():
    found, expected = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.03])
    torch.testing.assert_close(found, expected, rtol=0, atol=0.1)

def test_nested_tensors():
    found, expected = {"a": [torch.tensor(8.0)]}, {"a": [torch.tensor(10.0)]}
    torch.testing.assert_close(found, expected, rtol=0.5, atol=0)

def test_arrays():
    found = np.array([np.nan, np.inf, 1.5])
    np.testing.assert_allclose(found, [np.nan, np.inf, 1.0], atol=1, rtol=0)

def test_approx():
    assert [1.0, 2.0] == pytest.approx([1.0, 2.06], abs=0.1)
    assert 1.0 != pytest.approx(5.0)

@pytest.mark.approximate
def test_digits():
    assert 0.3333 == pytest.approx(1 / 3, abs=5e-5)

def test_failure():
    torch.testing.assert_close(torch.ones(2), torch.tensor([1.0, 1.5]), rtol=0, atol=0.2)

def test_equal():
    torch.testing.assert_close(torch.ones(2), torch.ones(2))
"""
EXPECTED = {
    "test_failure": 2.5,
    "test_approx": 0.6,
    "test_arrays": 0.5,
    "test_nested_tensors": 0.4,
    "test_tensors": 0.3,
}


def run_plugin(folder: Path, *options: str) -> list[str]:
    """Run the comparisons with the plugin; return the lines of pytest's output."""
    path = folder / "test_comparisons.py"
    path.write_text(COMPARISONS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "scripts.comparison_errors", "-c", os.devnull]
    process = subprocess.run(
        [*command, "-p", "no:cacheprovider", *options, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return process.stdout.splitlines()


@pytest.mark.parametrize("workers", ["0", "1"])
def test_planted_errors_are_measured_as_shares_of_their_tolerances(
    tmp_path: Path, workers: str
) -> None:
    """Comparisons that are to be unequal, and those of equal values, are left out."""
    lines = run_plugin(tmp_path, "-W", "ignore", "-n", workers)
    titles = [n for n, line in enumerate(lines) if line.startswith("===")]
    (start,) = (n for n in titles if "largest errors" in lines[n])
    (middle,) = (n for n in titles if "approximate" in lines[n])
    rows = [line.split() for line in lines[start + 1 : middle] if line]
    shares = {test.rpartition("::")[2]: float(share) for share, _, test in rows}
    assert shares == pytest.approx(EXPECTED, abs=2e-3)
    assert list(shares) == list(EXPECTED)
    share, line, test = lines[middle + 1].split()
    assert (float(share), test.rpartition("::")[2]) == (
        pytest.approx(0.667, abs=2e-3),
        "test_digits",
    )
    assert line.startswith("test_comparisons.py:")
    assert "1 failed, 6 passed" in lines[-1]


@pytest.mark.thorough
def test_variants_run_in_turn_and_one_failure_fails(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Variables and options reach the tests; those of x86 are skipped on other processors."""
    path = tmp_path / "test_variables.py"
    path.write_text(
        "import os\n"
        "def test_variable():\n"
        "    assert os.environ.get('PLANTED') != '1', os.environ['OMP_NUM_THREADS']\n",
        encoding="utf-8",
    )
    variants = (
        Variant("repeated", options=("--repeat=3",), busy_processes=1),
        Variant("planted", {"PLANTED": "1", "OMP_NUM_THREADS": "3"}),
        Variant("x86", is_x86=True),
    )
    no_tests = Variant("none", options=("-m", f"race and {QUICK}"))
    monkeypatch.setattr(check_processors, "VARIANTS", variants)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert check_processors.main([str(path)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[-3].startswith("repeated: 3 passed")
    assert lines[-2].startswith("planted: 1 failed")
    assert lines[-1] == "x86: skipped: this is no x86 processor"
    assert any("AssertionError: 3" in line for line in lines)
    monkeypatch.setattr(check_processors, "VARIANTS", (*variants, no_tests))
    assert check_processors.main(["--variant", "none", str(path)]) == 0
    assert capfd.readouterr().out.splitlines()[-1].startswith("none: 1 deselected")
