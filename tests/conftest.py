"""Fixtures of several test files: a toy language, runs with random weights, a small corpus."""

import gc
import io
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cases.commands import Call, Result, exit_code
from cases.tiers import quick_values
from hypothesis import HealthCheck, settings

from seq2seq.config.schema import Config
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Vocabularies
from seq2seq.inference.loaded_model import ModelOptions
from seq2seq.runtime.console import console

if TYPE_CHECKING:
    from cases.server import Served

    from seq2seq.data.padding import Batch
    from seq2seq.tools.serving.service import LanguagePairs
    from seq2seq.training.session import TrainingSession

DECODERS = ("bahdanau", "luong", "none")
os.environ.pop("SEQ2SEQ_CACHE", None)  # a variable of the user who runs the tests
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
sys.modules["torch.utils.tensorboard"] = None  # type: ignore[assignment]  # see `tensorboard`
# No example fails because other programs keep the machine busy.
settings.register_profile(
    "busy", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")
ONSETS = "bdgklmnprstvz"
VOWELS = "aeiou"


def pytest_report_header() -> str:
    """Return what results of floating-point operations depend on."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    threads = torch.get_num_threads()
    return f"torch {torch.__version__}: {threads} thread(s), CPU capability {capability}"


def toy_words(count: int) -> list[str]:
    """Return the same words of one to three syllables at every call."""
    generator = random.Random(0)
    return [
        "".join(generator.choice(ONSETS) + generator.choice(VOWELS) for _ in range(syllables))
        for syllables in generator.choices((1, 2, 3), k=count)
    ]


def toy_pairs(count: int, seed: int, max_words: int = 9) -> tuple[list[str], list[str]]:
    """Return toy sentence pairs; the target has the words in reverse order and shifted vowels.

    Sentences have two words at least and `most` at most.
    """
    lexicon = toy_words(90)
    generator = random.Random(seed)
    shifted = str.maketrans(VOWELS, VOWELS[1:] + VOWELS[0])
    src = [
        " ".join(generator.choices(lexicon, k=generator.randint(2, max_words)))
        for _ in range(count)
    ]
    tgt = [" ".join(reversed(sentence.split())).translate(shifted) for sentence in src]
    return [f"{sentence}." for sentence in src], [f"{sentence}!" for sentence in tgt]


def tiny_config(run_dir: Path, decoder: str) -> Config:
    """Return a config of the smallest sizes; its data files do not exist."""
    files = {"src": "text.src", "tgt": "text.tgt"}
    tree: dict[str, Any] = {
        "name": f"tiny-{decoder}",
        "run_dir": str(run_dir),
        "data": {
            "src_lang": "xx",
            "tgt_lang": "yy",
            "train": files,
            "valid": files,
            "max_length": 40,
        },
        "vocabulary": {"size": 380},
        "model": {"decoder": decoder, "embedding_size": 12, "hidden_size": 20, "dropout": 0.25},
        "training": {"max_epochs": 1, "precision": "float32"},
        "decoding": {"beam_size": 3},
    }
    return Config.model_validate(tree)


@pytest.fixture(scope="session", autouse=True)
def _interrupts_are_received() -> None:
    """Restore SIGINT, which shells make background jobs and their children ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _frozen_objects_stay_frozen() -> Iterator[None]:
    """Let no training collect garbage among all that is loaded, which takes a quarter second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "unfreeze", lambda: None)
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


def create_tiny_run(config: Config, vocabularies: Vocabularies, seed: int) -> Path:
    """Write the run of a config with large random weights; EOS is likely."""
    import torch

    from seq2seq.data.length_limit import LengthLimit
    from seq2seq.model.seq2seq import named_weights
    from seq2seq.runs.checkpoint import create_run, new_model, save_weights, weights_header
    from seq2seq.runs.graphs import store_engine
    from seq2seq.runs.layout import BEST
    from seq2seq.runs.run_config import provenance_of

    run = Path(config.run_dir)
    create_run(run, config, vocabularies)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        weights = {
            name: 3 * weight
            for name, weight in named_weights(new_model(config, vocabularies)).items()
        }
    weights["projection.bias"][EOS_ID] = 3
    origin = provenance_of(config, vocabularies, model_keys_only=True)
    save_weights(run / BEST, weights, weights_header(LengthLimit(0.75, 3), 7, 1.25, origin))
    store_engine(run)
    return run


def copy_with_vocabularies(run: Path, target: Path, vocabularies: Vocabularies) -> None:
    """Copy a run with its weights, but with another vocabulary."""
    import torch

    from seq2seq.model.seq2seq import named_weights
    from seq2seq.runs.checkpoint import create_run, load_model, save_weights, weights_header
    from seq2seq.runs.layout import BEST
    from seq2seq.runs.run_config import provenance_of

    loaded = load_model(run, torch.device("cpu"))
    create_run(target, loaded.config, vocabularies)
    origin = provenance_of(loaded.config, vocabularies, model_keys_only=True)
    header = weights_header(loaded.limit, 7, 1.25, origin)
    save_weights(target / BEST, named_weights(loaded.model), header)


def take_step(session: "TrainingSession", batches: list["Batch"], rate: float) -> int:
    """Take a step and record it as the training loop does; return its target tokens."""
    from seq2seq.training.step import train_step

    result = train_step(session, batches, rate)
    session.progress.add(result.losses, result.skipped)
    session.progress.max_micro_batch_positions = result.max_micro_batch_positions
    return result.tokens


def train_until(config: Config, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train until SIGTERM is sent after a step, which saves the state and raises Interrupted."""
    from seq2seq.training import loop
    from seq2seq.training.step import StepResult, train_step

    def interrupted(run: "TrainingSession", batches: Sequence["Batch"], rate: float) -> StepResult:
        result = train_step(run, batches, rate)
        if run.progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", interrupted)
        with pytest.raises(loop.Interrupted):
            loop.train(config, "cpu")


def run_until_killed(act: Callable[[], object]) -> None:
    """Call a function that kills its process, in a fork of this one."""
    if sys.platform == "darwin":
        pytest.skip("Apple's BLAS does not survive a fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of pytest
        child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def train_until_killed(config: Config, step: int) -> None:
    """Start or resume a training in a process that is killed in the step of this number."""
    from seq2seq.training import loop
    from seq2seq.training.step import StepResult, train_step

    def killed(run: "TrainingSession", batches: Sequence["Batch"], rate: float) -> StepResult:
        if run.progress.step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return train_step(run, batches, rate)

    def act() -> None:
        loop.train_step = killed
        loop.train(config, "cpu", resume=True)

    run_until_killed(act)


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


@pytest.fixture(scope="session")
def served(tiny_pairs: "LanguagePairs") -> "Iterator[Served]":
    """Start a server with the defaults; tests must not change its state."""
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


def write_small_corpus(folder: Path, short: bool = False) -> Path:
    """Write text and a config that trains in a second, or in less if `short`; return the config."""
    max_words, valid, batch_tokens, max_length = (4, 5, 220, 5) if short else (9, 9, 450, 9)
    for split, count, seed in (("train", 120, 1), ("valid", valid, 2), ("test", 11, 3)):
        for side, lines in zip(("src", "tgt"), toy_pairs(count, seed, max_words), strict=True):
            content = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{side}").write_text(content, encoding="utf-8", newline="\n")
    config = folder / "config.yaml"
    here = folder.as_posix()
    config.write_text(
        f"""\
name: small
run_dir: {here}/run
data:
  src_lang: xx
  tgt_lang: yy
  train: {{src: {here}/train.src, tgt: {here}/train.tgt}}
  valid: {{src: {here}/valid.src, tgt: {here}/valid.tgt}}
  test: {{src: {here}/test.src, tgt: {here}/test.tgt}}
  max_length: 40
vocabulary: {{size: 340}}
model: {{decoder: bahdanau, embedding_size: 12, hidden_size: 20, attention_size: 14, dropout: 0.25}}
training: {{max_epochs: 2, batch_tokens: {batch_tokens}, log_every: 3, precision: float32}}
decoding: {{beam_size: 3, max_length: {max_length}}}
""",
        encoding="utf-8",
        newline="\n",
    )
    return config
