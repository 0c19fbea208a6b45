"""Run the scripts of other tools on the same data and parse their output."""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from benchmarking.standard import Case
from seq2seq.data.vocabulary.vocabulary import Ids

SECONDS = re.compile(r"Total translation time \(s\): ([\d.]+)|in ([\d.]+)s \(|took ([\d.]+)")
OUTPUT_TOKENS = re.compile(r"Tokens per second: ([\d.]+)|, ([\d.]+) tokens/s")


class Peer(NamedTuple):
    """Another tool, and the case with the same work."""

    name: str
    script: str
    arguments: tuple[str, ...]
    case: Case
    batch: str  # sentences; its fastest batch size in earlier measurements


PEERS = (
    Peer("Joey NMT", "run_joeynmt.sh", ("bahdanau",), Case("bahdanau"), "100"),
    Peer("OpenNMT-py, no feeding", "run_onmt.sh", ("general", "0"), Case("luong"), "100"),
    Peer("fairseq, feeding", "run_fairseq.sh", (), Case("luong", input_feeding=True), "128"),
)


CTRANSLATE2 = "CTranslate2"  # for search alone; its case is that of OpenNMT-py


class PeerTraining(NamedTuple):
    """Speed by the log of the tool, and peak memory of its processes."""

    tokens_per_second: float
    peak_mib: float


class PeerSearch(NamedTuple):
    """Time to translate the 1,000 test sentences."""

    seconds: float | None  # search alone, as reported by the tool
    tokens: float | None  # output tokens per second
    command_seconds: float


def train(peer: Peer, scripts: Path, seconds: float) -> PeerTraining:
    """Train the tool for the given time; `search` uses the result."""
    figures, _ = _run(peer, scripts, "train", f"{seconds:.0f}")
    speeds = [figure["median"] for name, figure in figures.items() if name.endswith("tgt_tok_s")]
    peaks = [figure["peak_rss_mib"] for figure in figures.values() if "peak_rss_mib" in figure]
    if not speeds or not peaks:
        raise SystemExit(
            f"{scripts / peer.script}: {peer.name} reported no speed in {seconds:.0f} seconds. "
            "Raise --peer-seconds."
        )
    return PeerTraining(float(speeds[0]), float(peaks[0]))


def search(peer: Peer, scripts: Path, beam: int) -> PeerSearch:
    """Translate the test set with the last trained model of the tool."""
    figures, notes = _run(peer, scripts, "decode", BEAMS=str(beam), SIZES=peer.batch)
    command = next(figure["wall_s"] for name, figure in figures.items() if name.endswith(".wall"))
    return PeerSearch(
        _last_number(SECONDS, notes), _last_number(OUTPUT_TOKENS, notes), float(command)
    )


class RandomSearch(NamedTuple):
    """Search speed of CTranslate2 with random weights: tokens per second, and a sentence alone."""

    tokens: float
    median_ms: float
    p95_ms: float


def search_ctranslate2(
    folder: Path, sources: Sequence[Ids], beam: int, length: int, int8: bool
) -> RandomSearch:
    """Translate sources to `length` tokens each, by the environment `ct2` of a folder."""
    python = folder / "ct2" / "bin" / "python"
    if not python.exists():
        raise SystemExit(
            f"{python}: does not exist. Create it: python -m venv {folder / 'ct2'}; "
            f"{python} -m pip install ctranslate2 numpy"
        )
    script = Path(__file__).with_name("ctranslate2_speed.py")
    with TemporaryDirectory() as temporary:
        lines = Path(temporary) / "sources"
        text = "".join(" ".join(map(str, source)) + "\n" for source in sources)
        lines.write_text(text, encoding="utf-8")
        numbers = map(str, (beam, length, torch.get_num_threads()))
        process = subprocess.run(
            [
                python,
                script,
                folder / "ct2" / "model",
                lines,
                "int8" if int8 else "float32",
                *numbers,
            ],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return RandomSearch(**json.loads(process.stdout))


def _last_number(pattern: re.Pattern[str], notes: list[str]) -> float | None:
    """Return the number that a pattern matches in the last matching note."""
    matches = [match for note in notes if (match := pattern.search(note))]
    groups = matches[-1].groups() if matches else ()
    return next((float(group) for group in groups if group), None)


def _run(
    peer: Peer, scripts: Path, task: str, *more: str, **settings: str
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Run a script; return its figures by name, and its notes."""
    script = scripts / peer.script
    process = subprocess.run(
        ["bash", str(script), task, *peer.arguments, *more],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = process.stdout.splitlines()
    figures = [json.loads(line) for line in lines if line.startswith("{")]
    if not figures:
        raise SystemExit(f"{script} {task}: printed no figure. Is {peer.name} installed?")
    notes = [line for line in lines if line[:1] == "#"]
    return {figure["figure"]: figure for figure in figures}, notes
