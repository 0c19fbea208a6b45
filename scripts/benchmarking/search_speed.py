"""Search speed of a run, and the time to load it."""

import statistics
import time
from pathlib import Path
from typing import NamedTuple

from benchmarking.machine import peak_mib
from seq2seq.data.vocabulary.vocabulary import Ids
from seq2seq.inference.translator import Translator
from seq2seq.text.text_files import read_lines

WARM_UP = 50  # sentences
ALONE = 300  # sentences translated one by one


class SearchSpeed(NamedTuple):
    """Search speed, with encoding and decoding of text, without start-up."""

    load_seconds: float
    sentences: float  # per second, all lines in one call
    tokens: float  # output tokens per second without EOS, in the same call
    median_ms: float  # latency of a sentence alone, one line per call
    p95_ms: float
    length: float  # mean output tokens of a sentence, without EOS
    peak_mib: float


def search_speed(run: Path, source: Path, beam: int, int8: bool, device: str) -> SearchSpeed:
    """Translate the lines of a file in one call, and some of them one by one."""
    lines = read_lines(source)
    started = time.perf_counter()
    translator = Translator.load(run, device=device, int8=int8)
    loaded = time.perf_counter() - started  # on CUDA with the initialisation of the device
    for _ in range(2):  # warm up the kernels
        translator.translate(lines[:WARM_UP], beam, text_only=True)
    seconds, tokens = _timed(translator, lines, beam)
    alone = [1000 * _timed(translator, [line], beam)[0] for line in lines[:ALONE]]
    return SearchSpeed(
        loaded,
        len(lines) / seconds,
        tokens / seconds,
        statistics.median(alone),
        statistics.quantiles(alone, n=20)[-1],
        tokens / len(lines),
        peak_mib(device),
    )


def source_ids(run: Path, source: Path) -> list[Ids]:
    """Return the ids of the lines of a file in the vocabulary of a run, without EOS."""
    return Translator.load(run, device="cpu").vocabularies.src.encode(read_lines(source))


def _timed(translator: Translator, lines: list[str], beam: int) -> tuple[float, int]:
    """Return the seconds that one call takes, and its output tokens."""
    started = time.perf_counter()
    translations = translator.translate(lines, beam, text_only=True)
    elapsed = time.perf_counter() - started
    tokens = sum(len(translation.tokens) - translation.parts for translation in translations)
    return elapsed, tokens  # without the EOS of each part
