"""Fixtures of several test files: runs with random weights, a small corpus, a server."""

import gc
import io
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cases.commands import Call, Result, exit_code
from cases.tiers import quick_values
from cases.tiny_runs import DECODERS, create_tiny_run, tiny_config
from cases.toy_text import toy_pairs, write_small_corpus
from hypothesis import HealthCheck, settings

from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.inference.loaded_model import ModelOptions
from seq2seq.runtime.console import console

if TYPE_CHECKING:
    from cases.server import Served

    from seq2seq.tools.serving.service import LanguagePairs

os.environ.pop("SEQ2SEQ_CACHE", None)  # a variable of the user who runs the tests
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
os.environ.setdefault("GOMP_SPINCOUNT", "100")  # several threads hardly wait on shared cores
sys.modules["torch.utils.tensorboard"] = None  # type: ignore[assignment]  # see `tensorboard`
# No example fails because other programs keep the machine busy.
settings.register_profile(
    "busy", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")


def pytest_report_header() -> str:
    """Return what results of floating-point operations depend on."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    threads = torch.get_num_threads()
    return f"torch {torch.__version__}: {threads} thread(s), CPU capability {capability}"


@pytest.fixture(scope="session", autouse=True)
def _signals_are_received() -> None:
    """Restore SIGINT and SIGHUP, which background jobs and `nohup` ignore, with their children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _frozen_objects_stay_frozen() -> Iterator[None]:
    """Collect no garbage among all that is loaded, which takes a quarter second each time."""
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "unfreeze", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    """Sync no file or folder: only a power failure, which no test has, would show it."""
    sync = os.fsync

    def sync_others(descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            sync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", sync_others)
        yield


@pytest.fixture
def on_console() -> Iterator[None]:
    """Print messages on stderr, as the command line does."""
    with console():
        yield


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run the command in this process."""
    from seq2seq.__main__ import main

    def run(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="ascii"))
        capsysbinary.readouterr()
        code = exit_code(lambda: main([str(argument) for argument in arguments]))
        out, err = capsysbinary.readouterr()
        return Result(code, out, err.decode())

    return run


@pytest.fixture
def tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training write to TensorBoard, which takes longer than these trainings."""
    pytest.importorskip("tensorboard")
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard")


@pytest.fixture
def no_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable TensorBoard, which takes longer than these trainings; test_reporting.py tests it."""
    monkeypatch.setattr("seq2seq.training.reporting.open_board", lambda _: (None, ""))


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training write no engine, which takes longer than these trainings."""
    monkeypatch.setattr("seq2seq.runs.graphs.store_engine", lambda _: None)


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the speed of training by no more steps than necessary."""
    monkeypatch.setattr("seq2seq.tools.analysis.check.forecast.MAX_STEPS", 2)
    monkeypatch.setattr("seq2seq.tools.analysis.check.forecast.WARM_UP_STEPS", 1)


@pytest.fixture(scope="session")
def tiny_vocabularies() -> Vocabularies:
    """Train a joint unigram vocabulary of the toy language."""
    return train_vocabularies(tiny_config(Path("run"), "none").vocabulary, *toy_pairs(300, seed=1))


@pytest.fixture(scope="session")
def tiny_runs(
    tmp_path_factory: pytest.TempPathFactory, tiny_vocabularies: Vocabularies
) -> dict[str, Path]:
    """Create a run folder for each decoder, by its name; tests must not change them.

    Weights are random but large, and EOS is likely: translations depend on their source and end.
    """
    runs = {decoder: tmp_path_factory.mktemp(decoder) for decoder in DECODERS}
    for seed, (decoder, run) in enumerate(runs.items()):
        create_tiny_run(tiny_config(run, decoder), tiny_vocabularies, seed)
    return runs


@pytest.fixture(params=quick_values(DECODERS))
def tiny_run(request: pytest.FixtureRequest, tiny_runs: dict[str, Path]) -> Path:
    """Return each of the run folders in turn."""
    return tiny_runs[request.param]


@pytest.fixture
def luong(tiny_runs: dict[str, Path]) -> Path:
    """Return the run with Luong's decoder."""
    return tiny_runs["luong"]


@pytest.fixture(scope="session")
def tiny_pairs(tiny_runs: dict[str, Path]) -> "LanguagePairs":
    """Load the run with Bahdanau's decoder as a server does."""
    pytest.importorskip("fastapi")
    from seq2seq.tools.serving.service import load_pairs

    return load_pairs([str(tiny_runs["bahdanau"])], ModelOptions("cpu"))


@pytest.fixture(scope="module")
def served(tiny_pairs: "LanguagePairs") -> "Iterator[Served]":
    """Start a server with the defaults; tests must not change its state.

    It ends with the module, as tests of others set the clock that its event loop reads, too.
    """
    from cases.server import serve

    with serve(tiny_pairs) as server:
        yield server


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let translations end by their cancellation alone; the event is set once one has started."""
    from seq2seq.inference.translator import Translator
    from seq2seq.runtime.cancellation import check_cancelled

    started = threading.Event()

    def translate(*_lines: object, **_options: object) -> None:
        started.set()
        while True:
            check_cancelled()
            time.sleep(0.01)

    monkeypatch.setattr(Translator, "translate", translate)
    return started


@pytest.fixture
def small_corpus(tmp_path: Path) -> Path:
    """Write a config that trains in a second; its files and its run_dir are beside it."""
    return write_small_corpus(tmp_path)


@pytest.fixture
def src_file(small_corpus: Path) -> Path:
    """Return the path of eleven lines of source text."""
    return small_corpus.parent / "test.src"


@pytest.fixture
def short_sentences(small_corpus: Path) -> None:
    """Shorten the sentences of the small corpus: steps and validations take less time."""
    write_small_corpus(small_corpus.parent, short=True)
