"""How many sentences a second a run translates, and how long it takes to load."""

import time
from pathlib import Path
from typing import NamedTuple

from benchmarking.processes import peak_mib
from seq2seq.data.lines import read_lines
from seq2seq.inference.translator import Translator, check_int8
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import UserError

ALONE = 50  # sentences that are translated one by one


class SearchSpeed(NamedTuple):
    """Seconds and sentences a second of what `seq2seq translate` prints without options.

    Vocabulary work is counted, start-up is not.
    """

    load_seconds: float
    together: float  # all lines in one call
    pieces: float  # of output a second, END not counted, in the same call
    alone: float  # a line a call
    peak_mib: float


def takes_int8(device: str) -> bool:
    """Whether weights of eight bits are for this machine."""
    try:
        check_int8(choose_device(device))
    except UserError:
        return False
    return True


def search_speed(run: Path, source: Path, beam: int, int8: bool, device: str) -> SearchSpeed:
    """Translate the lines of a file, all in one call and one by one."""
    lines = read_lines(source)
    began = time.perf_counter()
    translator = Translator.load(run, device=device, int8=int8)
    loaded = time.perf_counter() - began  # on CUDA, what starting it takes too
    for _ in range(2):  # kernels are made at first use; what more lines need is counted below
        translator.translate(lines[:ALONE], beam, text_only=True)
    together, pieces = _rate(translator, [lines], beam)
    alone, _ = _rate(translator, [[line] for line in lines[:ALONE]], beam)
    return SearchSpeed(loaded, together, pieces, alone, peak_mib(device))


def _rate(translator: Translator, calls: list[list[str]], beam: int) -> tuple[float, float]:
    """Sentences and pieces a second."""
    began = time.perf_counter()
    found = [each for lines in calls for each in translator.translate(lines, beam, text_only=True)]
    elapsed = time.perf_counter() - began
    pieces = sum(len(each.tgt_tokens) - each.parts for each in found)  # each part has its END
    return len(found) / elapsed, pieces / elapsed
