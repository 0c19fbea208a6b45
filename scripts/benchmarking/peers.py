"""The peers' own scripts, run in turn with ours on the same data; what they print is read."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from benchmarking.standard import Case

DECODED = re.compile(r"Total translation time \(s\): ([\d.]+)|in ([\d.]+)s \(|took ([\d.]+)")
PIECES = re.compile(r"Tokens per second: ([\d.]+)|, ([\d.]+) tokens/s")


class Peer(NamedTuple):
    """Another tool, and which of our cases does the same work."""

    name: str
    script: str
    arguments: tuple[str, ...]
    case: Case
    batch: str  # sentences, its own best by what was measured before


PEERS = (
    Peer("Joey NMT", "run_joeynmt.sh", ("bahdanau",), Case("bahdanau"), "100"),
    Peer("OpenNMT-py, no feeding", "run_onmt.sh", ("general", "0"), Case("luong"), "100"),
    Peer("fairseq, feeding", "run_fairseq.sh", (), Case("luong", input_feeding=True), "128"),
)


class PeerTraining(NamedTuple):
    """By the tool's own log, and by the most memory that its processes held."""

    tokens_per_second: float
    peak_mib: float


class PeerSearch(NamedTuple):
    """Of the 1,000 test sentences: by the tool's own clock, and the whole command."""

    seconds: float | None
    pieces: float | None  # of output a second
    whole_seconds: float


def train(peer: Peer, scripts: Path, seconds: float) -> PeerTraining:
    """Let the peer train for so long; what it keeps is what `search` uses."""
    figures, _ = _run(peer, scripts, "train", f"{seconds:.0f}")
    speeds = [each["median"] for name, each in figures.items() if name.endswith("tgt_tok_s")]
    peaks = [each["peak_rss_mib"] for each in figures.values() if "peak_rss_mib" in each]
    if not speeds or not peaks:
        raise SystemExit(
            f"{scripts / peer.script}: {peer.name} told no speed in {seconds:.0f} seconds; "
            "give it more (--peer-seconds)"
        )
    return PeerTraining(float(speeds[0]), float(peaks[0]))


def search(peer: Peer, scripts: Path, beam: int) -> PeerSearch:
    """Let the peer translate the test set with what it trained last."""
    figures, notes = _run(peer, scripts, "decode", BEAMS=str(beam), SIZES=peer.batch)
    whole = next(each["wall_s"] for name, each in figures.items() if name.endswith(".wall"))
    return PeerSearch(_told(DECODED, notes), _told(PIECES, notes), float(whole))


def _told(pattern: re.Pattern[str], notes: list[str]) -> float | None:
    """The number that a note tells, the last where there are several."""
    found = [match for note in notes if (match := pattern.search(note))]
    return next((float(each) for each in found[-1].groups() if each), None) if found else None


def _run(
    peer: Peer, scripts: Path, what: str, *more: str, **settings: str
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The figures that a script prints, by name, and its notes."""
    script = scripts / peer.script
    found = subprocess.run(
        ["bash", str(script), what, *peer.arguments, *more],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = found.stdout.splitlines()
    figures = [json.loads(line) for line in lines if line.startswith("{")]
    if not figures:
        raise SystemExit(f"{script} {what}: printed no figure; is {peer.name} installed?")
    return {each["figure"]: each for each in figures}, [line for line in lines if line[:1] == "#"]
