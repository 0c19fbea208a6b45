"""Search speed of a run, and the time to load it."""

import time
from pathlib import Path
from typing import NamedTuple

from benchmarking.machine import peak_mib
from seq2seq.data.lines import read_lines
from seq2seq.inference.translator import Translator
from seq2seq.inference.weights import check_int8
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import UserError

SINGLE = 50  # sentences translated one by one


class SearchSpeed(NamedTuple):
    """Search speed, with encoding and decoding of text, without start-up."""

    load_seconds: float
    sentences: float  # per second, all lines in one call
    tokens: float  # output tokens per second without EOS, in the same call
    single: float  # sentences per second, one line per call
    peak_mib: float


def supports_int8(device: str) -> bool:
    """Return whether this machine supports int8 weights."""
    try:
        check_int8(choose_device(device))
    except UserError:
        return False
    return True


def search_speed(run: Path, source: Path, beam: int, int8: bool, device: str) -> SearchSpeed:
    """Translate the lines of a file in one call, and some of them one by one."""
    lines = read_lines(source)
    started = time.perf_counter()
    translator = Translator.load(run, device=device, int8=int8)
    loaded = time.perf_counter() - started  # on CUDA with the initialisation of the device
    for _ in range(2):  # warm up the kernels
        translator.translate(lines[:SINGLE], beam, text_only=True)
    sentences, tokens = _rate(translator, [lines], beam)
    single, _ = _rate(translator, [[line] for line in lines[:SINGLE]], beam)
    return SearchSpeed(loaded, sentences, tokens, single, peak_mib(device))


def _rate(translator: Translator, calls: list[list[str]], beam: int) -> tuple[float, float]:
    """Return sentences and output tokens per second."""
    started = time.perf_counter()
    found = [each for lines in calls for each in translator.translate(lines, beam, text_only=True)]
    elapsed = time.perf_counter() - started
    tokens = sum(len(each.tokens) - each.parts for each in found)  # each part ends in EOS
    return len(found) / elapsed, tokens / elapsed
