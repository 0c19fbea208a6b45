"""A translator in other processes and threads: pickled, copied, forked, and used by several."""

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

from seq2seq.inference.scoring import score_lines
from seq2seq.inference.translator import Translator

LINES, OTHERS = toy_pairs(30, seed=9)


@one_quick(("how", "runs"), [("pickle", 1), ("deepcopy", 2), ("copy", 1)])
def test_a_copy_translates_the_same(tiny_run: Path, how: str, runs: int) -> None:
    translator = Translator.load(*[tiny_run] * runs, device="cpu")
    expected = translator.translate(LINES, 3, 3)
    if how == "pickle":
        copy_of_translator = pickle.loads(pickle.dumps(translator))
    else:
        copy_of_translator = getattr(copy, how)(translator)
    assert copy_of_translator.translate(LINES, 3, 3) == expected
    assert copy_of_translator.translate(LINES, 1, text_only=True)[3].text
    copy_of_translator.loaded.decoding = replace(copy_of_translator.decoding, max_length=1)
    assert translator.translate(LINES, 3, 3) == expected


@pytest.mark.thorough
def test_a_pickle_is_read_in_another_process(tiny_run: Path, tmp_path: Path) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    (tmp_path / "pickle").write_bytes(pickle.dumps(translator))
    code = "import pickle, sys; t = pickle.load(open(sys.argv[1], 'rb'))\n"
    code += "for each in t.translate(sys.argv[2:]): print(each.score)"
    call = [sys.executable, "-c", code, str(tmp_path / "pickle"), *LINES]
    scores = subprocess.run(call, capture_output=True, text=True, check=True, timeout=600).stdout
    assert scores.split() == [str(translation.score) for translation in translator.translate(LINES)]


def test_int8_weights_are_copied_and_pickled(tiny_runs: dict[str, Path]) -> None:
    translator = Translator.load(tiny_runs["luong"], device="cpu", int8=True)
    pickled = pickle.loads(pickle.dumps(translator))
    for copy_of_translator in (pickled, copy.deepcopy(translator), copy.copy(translator)):
        assert copy_of_translator.translate(LINES, 3) == translator.translate(LINES, 3)


@pytest.mark.thorough
@pytest.mark.parametrize("used", [True, False])
def test_a_forked_process_translates(tiny_runs: dict[str, Path], used: bool) -> None:
    """With two threads, and translations before the fork or none."""
    code = """
import os, sys
from seq2seq import Translator
run, used, lines = sys.argv[1], sys.argv[2] == "True", sys.argv[3:]
translator = Translator.load(run, device="cpu")
expected = [each.text for each in translator.translate(lines)] if used else None
child = os.fork()
found = [each.text for each in translator.translate(lines)]
other = [each.text for each in Translator.load(run, device="cpu").translate(lines)]
if child:
    _, status = os.waitpid(child, 0)
    sys.exit(status or found != (expected or found))
os._exit(found != (expected or found) or other != found)
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    call = [sys.executable, "-c", code, str(tiny_runs["bahdanau"]), str(used), *LINES * 4]
    process = subprocess.run(
        call, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert (process.returncode, process.stdout) == (0, "")
    assert "Traceback" not in process.stderr


def test_threads_share_a_translator(tiny_run: Path) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    expected = Translator.load(tiny_run, device="cpu").translate(LINES, 3)
    scores = score_lines(translator.loaded, LINES, OTHERS)
    with ThreadPoolExecutor(4) as pool:
        translations = list(pool.map(lambda _: translator.translate(LINES, 3), range(8)))
        scored = list(pool.map(lambda _: score_lines(translator.loaded, LINES, OTHERS), range(4)))
    assert translations == [expected] * 8
    assert scored == [scores] * 4
