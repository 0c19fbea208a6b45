"""pytest plugin that measures how much of its tolerance each comparison of a test uses.

    python -m pytest -p scripts.comparison_errors tests/model

Comparisons are those of `torch.testing.assert_close`, `numpy.testing.assert_allclose` and
`pytest.approx`. The summary lists the tests with the largest shares, and apart from them those
marked `approximate`, whose errors are near their tolerance by nature: they compare with printed
digits, estimates or means of draws.
`--repeat N` runs each test N times. Workers of pytest-xdist (`-n 2`) measure, too.
"""

import math
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

SHOWN = 10
PROPERTY = "error_share"  # of a test's report


class Share(NamedTuple):
    """Error of a comparison as a share of its tolerance, and its line in a file of tests."""

    value: float
    line: str


class Errors:
    """Largest share of each test, by its id.

    A comparison beyond its tolerance counts if the test fails; others are to be unequal.
    """

    def __init__(self) -> None:
        self.worst: dict[str, Share] = {}
        self.approximate: dict[str, Share] = {}
        self._within = self._beyond = Share(0, "")

    def add(self, actual: Any, expected: Any, rtol: float, atol: float) -> None:
        """Record a comparison of numbers, arrays or tensors of the running test."""
        value = share_of(_array(actual), _array(expected), rtol, atol)
        if self._within.value < value <= 1:
            self._within = Share(value, _line())
        elif value > max(1, self._beyond.value):
            self._beyond = Share(value, _line())

    def pytest_runtest_logstart(self) -> None:
        self._within = self._beyond = Share(0, "")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the share of a test that has run to its report, which a worker sends on."""
        report = yield
        share = self._beyond if report.failed and self._beyond.value else self._within
        if call.when == "call" and share.value:
            report.user_properties.append((PROPERTY, tuple(share)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the share of a test, which may have run in another process."""
        shares = self.approximate if "approximate" in report.keywords else self.worst
        values: dict[str, Any] = dict(report.user_properties)
        if report.when == "call" and PROPERTY in values:
            shares[report.nodeid] = Share(*values[PROPERTY])

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for title, shares in (
            ("largest errors as shares of their tolerances", self.worst),
            ("and of approximate comparisons", self.approximate),
        ):
            terminalreporter.section(title)
            order = sorted(shares.items(), key=lambda item: -item[1].value)
            for test, share in order[:SHOWN]:
                terminalreporter.write_line(f"{share.value:6.3f}  {share.line}  {test}")


def share_of(actual: Any, expected: Any, rtol: float, atol: float) -> float:
    """Return the largest |actual - expected| / (atol + rtol |expected|); infinite beyond zero."""
    if actual.shape != expected.shape and actual.ndim and expected.ndim:
        return math.inf
    with np.errstate(all="ignore"):
        equal = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        shares = np.abs(actual - expected) / (atol + rtol * np.abs(expected))
    shares = np.where(equal, 0, np.nan_to_num(shares, nan=math.inf, posinf=math.inf))
    return float(shares.max(initial=0))


def _array(values: Any) -> Any:
    """Return numbers as an array of float64, or of complex128."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = (values if values.is_complex() else values.double()).numpy()
    values = np.asarray(values)
    return values if np.iscomplexobj(values) else values.astype(np.float64)


def _line() -> str:
    """Return `file:line` of the innermost frame in a file of tests, not of their helpers."""
    frame: Any = sys._getframe()
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        if file.name.startswith("test_"):
            return f"{file.name}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--repeat", type=int, default=1, help="how often each test runs")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    times: int = metafunc.config.getoption("repeat")
    if times > 1:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(times), indirect=True)


@pytest.fixture
def repetition(request: pytest.FixtureRequest) -> int:
    """Return the number of this repetition, from 0."""
    number: int = request.param
    return number


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Iterator[None]:
    """Measure while pytest runs; tests are imported later, with the functions patched."""
    errors = Errors()
    config.pluginmanager.register(errors)
    with pytest.MonkeyPatch.context() as patch:
        _patch_torch(patch, errors)
        _patch_numpy(patch, errors)
        _patch_approx(patch, errors)
        return (yield)


def _patch_torch(patch: pytest.MonkeyPatch, errors: Errors) -> None:
    from torch.testing import _comparison

    def measured(compare: Callable[[Any], None]) -> Callable[[Any], None]:
        def compare_and_add(pair: Any) -> None:
            errors.add(pair.actual, pair.expected, pair.rtol, pair.atol)
            compare(pair)

        return compare_and_add

    for kind in (_comparison.TensorLikePair, _comparison.NumberPair):
        patch.setattr(kind, "compare", measured(kind.compare))


def _patch_numpy(patch: pytest.MonkeyPatch, errors: Errors) -> None:
    assert_allclose = np.testing.assert_allclose

    def measured(
        actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0, **options: Any
    ) -> None:
        errors.add(actual, desired, rtol, atol)
        assert_allclose(actual, desired, rtol, atol, **options)

    patch.setattr(np.testing, "assert_allclose", measured)


def _patch_approx(patch: pytest.MonkeyPatch, errors: Errors) -> None:
    kind: Any = type(pytest.approx(1.0))
    equals = kind.__eq__

    def measured(approx: Any, actual: Any) -> bool:
        if isinstance(actual, int | float | np.number) and isinstance(approx.expected, int | float):
            errors.add(actual, approx.expected, 0, approx.tolerance)
        equal: bool = equals(approx, actual)
        return equal

    patch.setattr(kind, "__eq__", measured)
