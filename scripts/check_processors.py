"""Run the quick tests as on other processors, with two threads and beside other work.

    make test-processors
    python scripts/check_processors.py --variant avx2 --variant default tests/model tests/engines

For each variant: which tests fail, and which comparisons come near their tolerance, as
`scripts/comparison_errors.py` measures. ONNX Runtime has no variable that simulates a processor,
so its part runs on this one in every variant.
"""

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
QUICK = "not thorough and not browser and not gpu and not load"
REPETITIONS = 20
BUSY_PROCESSES = 4
NO_TESTS = 5  # exit code of pytest where no test is selected


class Variant(NamedTuple):
    """Variables and pytest's options of a run of the tests."""

    name: str
    variables: Mapping[str, str] = MappingProxyType({})
    options: tuple[str, ...] = ("-m", QUICK)
    is_x86: bool = False
    busy_processes: int = 0


class Result(NamedTuple):
    name: str
    counts: str
    is_passed: bool


VARIANTS = (
    Variant("native"),
    Variant(
        "avx2",
        {
            "ATEN_CPU_CAPABILITY": "avx2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        },
        is_x86=True,
    ),
    Variant(
        "default",
        {
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
            "OPENBLAS_CORETYPE": "Nehalem",
            "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        },
        is_x86=True,
    ),
    Variant("threads", {"OMP_NUM_THREADS": "2"}),
    Variant("busy", busy_processes=BUSY_PROCESSES),
    Variant(
        "races",
        options=("-m", f"race and {QUICK}", f"--repeat={REPETITIONS}"),
        busy_processes=BUSY_PROCESSES,
    ),
)


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Keep the processors busy with this number of processes."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def run(variant: Variant, paths: Sequence[str]) -> Result:
    """Run a variant and show its output, of which the last line counts the tests."""
    command = [sys.executable, "-m", "pytest", "-p", "scripts.comparison_errors"]
    variables = {"OMP_NUM_THREADS": "1", **os.environ, **variant.variables}
    line = ""
    with (
        busy_processes(variant.busy_processes),
        subprocess.Popen(
            [*command, *variant.options, *paths],
            cwd=ROOT,
            env=variables,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
    return Result(variant.name, line.strip("= \n"), process.returncode in (0, NO_TESTS))


def can_simulate(variant: Variant) -> bool:
    return not variant.is_x86 or platform.machine().lower() in ("x86_64", "amd64")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the variants in turn; return 1 if a test of any of them failed, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [variant.name for variant in VARIANTS]
    parser.add_argument("--variant", action="append", choices=names, help="default: all of them")
    parser.add_argument("paths", nargs="*", help="files and folders of tests; default: all")
    options = parser.parse_args(arguments)
    results = []
    for variant in VARIANTS:
        if variant.name not in (options.variant or names):
            continue
        print(f"\n##### {variant.name}", flush=True)
        if can_simulate(variant):
            results.append(run(variant, options.paths))
        else:
            results.append(Result(variant.name, "skipped: this is no x86 processor", True))
    print("", *(f"{result.name}: {result.counts}" for result in results), sep="\n")
    return int(not all(result.is_passed for result in results))


if __name__ == "__main__":
    sys.exit(main())
