"""Compare float32, int8 and PyTorch's own computation of a run: texts, speed, BLEU, start, size.

    python scripts/measure_export.py runs/my-run -i SOURCE... -r REFERENCE... --runtime PYTHON

`--runtime` is the interpreter of an environment without PyTorch; without it, the start of the
export is measured in this one. Files may be .gz. Throughput is measured in turns, in one process,
best of two passes; the latency of a sentence alone is the median over the first lines, translated
one by one. OMP_NUM_THREADS sets the threads. Start-up is the wall time of `seq2seq translate` for
one line, best of five.
"""

import argparse
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tabulate import tabulate

from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.evaluation.metrics import score_by
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.graphs import export_runs
from seq2seq.text.text_files import iter_lines

BEAMS = (1, 5)
PASSES = 2
ALONE = 100  # sentences translated one by one
STARTS = 5  # repetitions; the fastest is reported
TIE = 1e-4  # nats
LINE = "A man is riding a bicycle."


def main() -> None:
    """Print the tables of one run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("-i", "--input", type=Path, nargs="+", required=True, metavar="SOURCE")
    parser.add_argument("-r", "--ref", type=Path, nargs="+", default=[], metavar="REFERENCE")
    parser.add_argument("--lines", type=int, default=2000, metavar="N", help="first N lines")
    parser.add_argument("--runtime", type=Path, default=Path(sys.executable), metavar="PYTHON")
    options = parser.parse_args()
    lines, references = (
        [line for path in paths for line in iter_lines(path)][: options.lines]
        for paths in (options.input, options.ref)
    )
    with tempfile.TemporaryDirectory() as folder:
        exports = {"float32": Path(folder) / "float32", "int8": Path(folder) / "int8"}
        for name, path in exports.items():
            export_runs([options.run], path, int8=name == "int8")
        print(f"{len(lines):,} lines, OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}")
        print(searches(options.run, lines, references))
        print(starts(options.run, exports["float32"], options.runtime))
        sizes = {name: size(path) for name, path in {"run": options.run, **exports}.items()}
        print("model, MB:", {name: round(size / 1e6, 1) for name, size in sizes.items()})
    for python in dict.fromkeys([Path(sys.executable), options.runtime]):
        print(f"packages of {python}: {size(packages(python)) / 1e6:,.0f} MB")


def searches(run: Path, lines: Sequence[str], references: Sequence[str]) -> str:
    """Return a table of each beam size and model: texts, attention, speeds and BLEU."""
    translators = {"torch": Translator.load(run, device="cpu")}
    cpu = torch.device("cpu")
    translators["torch"].loaded.engine = TorchEngine(load_model(run, cpu).model, cpu)
    for precision in ("float32", "int8"):
        translators[precision] = Translator.load(run, device="cpu", int8=precision == "int8")
    rows = []
    for beam_size in BEAMS:
        translations = {
            name: translator.translate(lines, beam_size) for name, translator in translators.items()
        }
        for name, translator in translators.items():
            equal, untied, attention = compare(translations[name], translations["torch"])
            speed = len(lines) / min(seconds(translator, lines, beam_size) for _ in range(PASSES))
            alone = [seconds(translator, [line], beam_size) for line in lines[:ALONE]]
            bleu = float("nan")
            if references:
                texts = [translation.text for translation in translations[name]]
                bleu = score_by("bleu", texts, references)
            latency = 1000 * statistics.median(alone)
            rows.append([beam_size, name, f"{equal:.2%}", untied, attention, speed, latency, bleu])
    headers = [
        "beam",
        "model",
        "equal texts",
        "no tie",
        "attention",
        "lines/s",
        "alone, ms",
        "BLEU",
    ]
    return tabulate(rows, headers, floatfmt=("", "", "", "", ".1e", ".0f", ".1f", ".2f"))


def seconds(translator: Translator, lines: Sequence[str], beam_size: int) -> float:
    """Return the time of one call."""
    begin = time.perf_counter()
    translator.translate(lines, beam_size, text_only=True)
    return time.perf_counter() - begin


def compare(
    translations: Sequence[Translation], expected: Sequence[Translation]
) -> tuple[float, int, float]:
    """Return the share of equal texts, the differences that are no tie, and that of attention."""
    equal = 0
    untied = 0
    attention = 0.0
    for ours, theirs in zip(translations, expected, strict=True):
        equal += ours.text == theirs.text
        untied += ours.text != theirs.text and abs(gap(ours, theirs)) > TIE
        if ours.tokens == theirs.tokens and ours.attention is not None:
            assert theirs.attention is not None, "of the same model"
            attention = max(attention, float(np.abs(ours.attention - theirs.attention).max()))
    return equal / len(expected), untied, attention


def gap(ours: Translation, theirs: Translation) -> float:
    """Return the smaller of two differences: of the scores, and of the first differing tokens."""
    pairs = zip(ours.tokens, theirs.tokens, ours.log_probs, theirs.log_probs, strict=False)
    steps = [
        log_prob - expected_log_prob
        for token, expected_token, log_prob, expected_log_prob in pairs
        if token != expected_token
    ]
    return min([ours.score - theirs.score, *steps[:1]], key=abs)


def starts(run: Path, exported: Path, runtime: Path) -> str:
    """Return a table of the seconds to the first translated line."""
    rows = [["run folder", start(Path(sys.executable), run)], ["export", start(runtime, exported)]]
    return tabulate(rows, ["start", "seconds"], floatfmt=("", ".2f"))


def start(python: Path, model: Path) -> float:
    """Return the shortest wall time of the command line for one line."""
    call = [str(python), "-m", "seq2seq", "translate", "-m", str(model.absolute()), LINE]
    times = []
    for _ in range(STARTS):
        begin = time.perf_counter()
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    return min(times)


def packages(python: Path) -> Path:
    """Return the folder of an interpreter's installed packages."""
    if python == Path(sys.executable):
        return Path(sysconfig.get_path("purelib"))
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.check_output([str(python), "-c", code], text=True).strip())


def size(path: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


if __name__ == "__main__":
    main()
