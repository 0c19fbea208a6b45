"""Measure the speed of seq2seq on this machine, next to the machine's peak and to other tools.

    python scripts/benchmark.py                       # everything; an hour the first time
    python scripts/benchmark.py --only training --device cuda --batch-tokens 65536
    python scripts/benchmark.py --peers DIR           # alternating with other tools

DIR holds a script for each tool, `run_NAME.sh train|decode ...`, that prints a JSON object for each
figure, and for CTranslate2 an environment, `python -m venv DIR/ct2`, with ctranslate2 and numpy.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from benchmarking import peers
from benchmarking.machine import isolated, machine_name, matmul_gflops
from benchmarking.search_speed import SearchSpeed, search_speed, source_ids
from benchmarking.standard import CASES, Case, standard
from benchmarking.training_speed import LENGTHS, length_cost, training_speed
from seq2seq.cli.output import check_output
from seq2seq.config.schema import Config
from seq2seq.runs.run_folder import holds_run
from seq2seq.runs.training_state import read_state
from seq2seq.runtime.console import say
from seq2seq.runtime.errors import UserError
from seq2seq.training.stopping import is_finished

PARTS = ("training", "search", "length", "start")
PRECISIONS = ("float32", "bf16")
SEARCH_PRECISIONS = ("float32", "int8")  # on CPUs


def main(arguments: Sequence[str]) -> None:
    """Run the chosen measurements, print each result at once, and write all as JSON."""
    options = _options(arguments)
    check_output(options.json)
    if options.threads:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)  # for all following processes
    rows: list[dict[str, Any]] = []
    say(f"{date.today()}, {machine_name(options.device)}")
    measures: dict[str, Callable[..., Iterable[dict[str, Any]]]] = {
        "training": training,
        "search": search,
        "length": length,
        "start": start,
    }
    for part in () if options.peers else options.only or PARTS:
        for row in measures[part](options):
            rows.append({"part": part, **row})
            say(_line(row))
    if options.peers is not None:
        for row in beside_peers(options):
            rows.append({"part": "peers", **row})
            say(_line(row))
    if options.json is not None:
        figures = {"date": str(date.today()), "machine": machine_name(options.device), "rows": rows}
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def training(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Measure target tokens per second, their share of the peak, and memory."""
    peaks = {
        precision: isolated(matmul_gflops, precision, options.device) for precision in PRECISIONS
    }
    for precision, rate in peaks.items():
        yield {"what": f"matrix product, {precision}", "GFLOP/s": round(rate)}
    for case in _cases(options):
        for precision in PRECISIONS:
            training = _trained(options, case, precision)
            share = training.tokens_per_second * training.flop_per_token / peaks[precision] / 1e9
            yield {
                "what": f"training, {case.name}, {precision}",
                "tokens/s": round(training.tokens_per_second),
                "of peak": f"{share:.0%}",
                "MFLOP/token": round(training.flop_per_token / 1e6, 1),
                "peak MiB": round(training.peak_mib),
            }


def search(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Measure sentences per second, greedy and with beam 5, of models trained for some minutes."""
    for case in _cases(options):
        run = _model(options, case)
        for beam in (1, 5):
            for precision in SEARCH_PRECISIONS if options.device == "cpu" else ("float32",):
                timing = _searched(options, run, beam, precision, options.device)
                yield {
                    "what": f"search, {case.name}, beam {beam}, {precision}",
                    "sentences/s": round(timing.sentences, 1),
                    "tokens/s": round(timing.tokens),
                    "alone, p50/p95 ms": f"{timing.median_ms:.1f}/{timing.p95_ms:.1f}",
                    "load s": round(timing.load_seconds, 2),
                    "peak MiB": round(timing.peak_mib),
                }


def length(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Measure training by sentence length."""
    for size in LENGTHS:
        arguments = (size, "bf16", options.device, options.seconds, options.batch_tokens)
        cost = isolated(length_cost, Case("bahdanau", tied=True), *arguments)
        yield {
            "what": f"training on sentences of {size} tokens",
            "tokens/s": round(cost.tokens_per_second),
            "peak MiB": round(cost.peak_mib),
        }


def start(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Measure the start-up of the command."""
    del options
    yield {"what": "seq2seq --help", "s": round(_seconds("--help"), 2)}


def beside_peers(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Alternate with each tool: it trains, we train, it translates, we translate."""
    parts = options.only or PARTS
    for peer in peers.PEERS:
        if options.peer and peer.name not in options.peer:
            continue
        if "training" in parts:
            yield from _training_beside(options, peer)
        if "search" in parts:
            run = _model(options, peer.case)
            for beam in (1, 5):
                yield from _search_beside(options, peer, run, beam)
    if "search" in parts and (not options.peer or peers.CTRANSLATE2 in options.peer):
        yield from _search_beside_ctranslate2(options)


def _training_beside(options: argparse.Namespace, peer: peers.Peer) -> Iterable[dict[str, Any]]:
    theirs = peers.train(peer, options.peers, options.peer_seconds)
    for precision in PRECISIONS:
        ours = _trained(options, peer.case, precision)
        yield {
            "what": f"training, {precision}, beside {peer.name}",
            "theirs": round(theirs.tokens_per_second),
            "ours": round(ours.tokens_per_second),
            "ratio": round(ours.tokens_per_second / theirs.tokens_per_second, 2),
            "memory": f"{ours.peak_mib:.0f} / {theirs.peak_mib:.0f} MiB",
        }


def _search_beside(
    options: argparse.Namespace, peer: peers.Peer, run: Path, beam: int
) -> Iterable[dict[str, Any]]:
    for precision in SEARCH_PRECISIONS:
        theirs = peers.search(peer, options.peers, beam)
        ours = _searched(options, run, beam, precision, "cpu")
        command = _seconds(
            "translate", "-m", str(run), "-i", str(_test(options)), "-o", os.devnull,
            "-b", str(beam), "--device", "cpu", *(["--int8"] if precision == "int8" else []),
        )  # fmt: skip
        row: dict[str, Any] = {"what": f"search, beam {beam}, {precision}, beside {peer.name}"}
        if theirs.seconds is not None:
            row |= {"theirs": round(1000 / theirs.seconds), "ours": round(ours.sentences)}
            row["ratio"] = round(ours.sentences * theirs.seconds / 1000, 2)
        if theirs.tokens is not None:  # fairer if one model writes longer sentences
            row |= {"their tokens/s": round(theirs.tokens), "our tokens/s": round(ours.tokens)}
            row["ratio by tokens"] = round(ours.tokens / theirs.tokens, 2)
        row["command"] = f"{theirs.command_seconds:.1f} s / {command:.1f} s"
        row["ratio of commands"] = round(theirs.command_seconds / command, 2)
        yield row


def _search_beside_ctranslate2(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Measure in turn with a Transformer-Tiny of random weights, with outputs of equal length."""
    run, name = options.ours or _model(options, Case("luong")), peers.CTRANSLATE2
    sources = isolated(source_ids, run, _test(options))
    for beam in (1, 5):
        for precision in SEARCH_PRECISIONS:
            ours = _searched(options, run, beam, precision, "cpu")
            arguments = sources, beam, round(ours.length), precision == "int8"
            theirs = isolated(peers.search_ctranslate2, options.peers, *arguments)
            yield {
                "what": f"search, beam {beam}, {precision}, beside {name}",
                "their tokens/s": round(theirs.tokens),
                "our tokens/s": round(ours.tokens),
                "ratio by tokens": round(ours.tokens / theirs.tokens, 2),
                "theirs alone, p50/p95 ms": f"{theirs.median_ms:.1f}/{theirs.p95_ms:.1f}",
                "ours alone, p50/p95 ms": f"{ours.median_ms:.1f}/{ours.p95_ms:.1f}",
            }


def _searched(
    options: argparse.Namespace, run: Path, beam: int, precision: str, device: str
) -> SearchSpeed:
    return isolated(search_speed, run, _test(options), beam, precision == "int8", device)


def _trained(options: argparse.Namespace, case: Case, precision: str) -> Any:
    arguments = (precision, options.data, options.device, options.seconds, options.batch_tokens)
    return isolated(training_speed, case, *arguments)


def _model(options: argparse.Namespace, case: Case) -> Path:
    """Return a run folder of a case; train it for some minutes if it does not exist."""
    run: Path = options.runs / case.name.replace(", ", "-").replace(" ", "-")
    limits = {"max_minutes": options.minutes, "max_epochs": 100, "batch_tokens": 1500}
    config = standard(case, options.data, run, "auto", learning_rate=1.5e-3, average=0.99, **limits)
    state = read_state(config.run_dir)
    if state is None or not is_finished(config, state.progress):
        say(f"(training {run} for {options.minutes:g} minutes, once)")
        isolated(_train, config, options.device)
    return run


def _train(config: Config, device: str) -> None:
    from seq2seq.training.loop import train

    train(config, device, resume=holds_run(config.run_dir))


def _seconds(*command: str) -> float:
    """Return the median time of three runs of the `seq2seq` command."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "seq2seq", *command], check=True, stdout=subprocess.DEVNULL
        )
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _cases(options: argparse.Namespace) -> list[Case]:
    return [case for case in CASES if not options.cases or case.name in options.cases]


def _test(options: argparse.Namespace) -> Path:
    test: Path = options.data / "test_2016_flickr.en.gz"
    return test


def _line(row: dict[str, Any]) -> str:
    figures = [f"{name} {value}" for name, value in row.items() if name != "what"]
    return f"{row['what']:<58} {'  '.join(figures)}"


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure seq2seq on this machine.", allow_abbrev=False
    )
    parser.add_argument(
        "--data", type=Path, default=Path("data/multi30k"), help="folder of Multi30k"
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", action="append", choices=PARTS, help="may be repeated")
    parser.add_argument(
        "--case", dest="cases", action="append", choices=[case.name for case in CASES]
    )
    parser.add_argument("--threads", type=int, help="default: OMP_NUM_THREADS, or torch's choice")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each training measurement")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--minutes", type=float, default=4.0, help="of training before search")
    parser.add_argument("--runs", type=Path, default=Path("runs/benchmark"))
    parser.add_argument("--peers", type=Path, metavar="DIR", help="scripts of other tools")
    parser.add_argument(
        "--peer",
        action="append",
        choices=[*(peer.name for peer in peers.PEERS), peers.CTRANSLATE2],
        help="may be repeated",
    )
    parser.add_argument("--ours", type=Path, metavar="RUN", help="run to compare with CTranslate2")
    parser.add_argument("--peer-seconds", type=float, default=180.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"benchmark.py: error: {error}")
