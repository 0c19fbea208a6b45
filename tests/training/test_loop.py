"""Training: learning, stopping criteria, exact resume and refusals."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from cases.tiers import one_quick
from cases.trainings import BASE, configured, fingerprint, state_of, trained
from conftest import take_step
from safetensors import safe_open
from torch import Tensor

from seq2seq.__main__ import main
from seq2seq.config.schema import Config, TrainingConfig, load_config
from seq2seq.data.batching import EpochOrder
from seq2seq.data.corpus import read_pairs
from seq2seq.data.padding import Batch, make_batch
from seq2seq.evaluation.metrics import score_by
from seq2seq.inference.translator import Translator
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs import graphs, tensor_file
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.layout import BEST, CONFIG, LAST, LOG, METRICS, PREVIOUS, TIMING, snapshots
from seq2seq.runs.run_folder import check_folder
from seq2seq.runs.training_state import OpenFolder, read_state
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.process_group import ProcessGroup
from seq2seq.training import batches as batches_module
from seq2seq.training import loop as training
from seq2seq.training import step as step_module
from seq2seq.training import stopping, validation
from seq2seq.training.clock import Clock
from seq2seq.training.loop import Interrupted, train
from seq2seq.training.loss import Losses, batch_loss
from seq2seq.training.mixture_loss import LossWeights
from seq2seq.training.preparation import join_run, prepare
from seq2seq.training.reporting import Reporter
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import StepResult, train_step

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable TensorBoard, which takes longer than these trainings; test_reporting.py tests it."""
    monkeypatch.setattr("seq2seq.training.reporting.open_board", lambda _: (None, ""))


def lines_of(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def validations(run: Path) -> list[dict[str, float]]:
    return [line for line in lines_of(run / METRICS) if "valid_bleu" in line]


def log_of(run: Path) -> str:
    return (run / LOG).read_text(encoding="utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def after_steps(number: int, act: Callable[[], None]) -> Callable[..., StepResult]:
    """Return `train_step` with an action after the step of this number."""
    numbers = count(1)

    def step(run: TrainingSession, batches: Sequence[Batch], rate: float) -> StepResult:
        result = train_step(run, batches, rate)
        if next(numbers) == number:
            act()
        return result

    return step


def always(bleu: float) -> Callable[[TrainingSession], float]:
    """Return a validation that translates nothing and has this BLEU."""

    def valid_bleu(session: TrainingSession) -> float:
        session.hypotheses = [""] * len(session.data.valid)
        return bleu

    return valid_bleu


def interrupt(number: int = signal.SIGTERM) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


# ---------------------------------------------------------------------------------------- learning


DICTIONARY = """red-rot green-vert blue-azul small-petit big-groot old-gammel new-neu cat-gato
    dog-hund bird-ave fish-sisu house-casa tree-puu road-via river-rio"""


def write_dictionary_language(folder: Path) -> Path:
    """Write a language that is translated word by word in reverse order; return its config."""
    dictionary = dict(word.split("-") for word in DICTIONARY.split())
    for split, pairs, seed in (("train", 1500, 1), ("valid", 40, 2)):
        generator = random.Random(seed)
        src = [generator.choices(list(dictionary), k=generator.randint(2, 6)) for _ in range(pairs)]
        tgt = [[dictionary[word] for word in reversed(words)] for words in src]
        for side, sentences in (("src", src), ("tgt", tgt)):
            text = "".join(f"{' '.join(words)}\n" for words in sentences)
            (folder / f"{split}.{side}").write_text(text, encoding="utf-8", newline="\n")
    config = folder / "config.yaml"
    files = [
        f"{split}: {{src: {folder}/{split}.src, tgt: {folder}/{split}.tgt}}"
        for split in ("train", "valid")
    ]
    config.write_text(
        f"""\
name: dictionary
run_dir: {folder}/run
data: {{src_lang: xx, tgt_lang: yy, {", ".join(files)}}}
vocabulary: {{type: word, size: 64}}
model: {{embedding_size: 24, hidden_size: 48, dropout: 0}}
training: {{max_steps: 200, learning_rate: 1e-2, decay: linear, batch_tokens: 300,
           label_smoothing: 0, log_every: 10, validate_every: 200, precision: float32}}
""",
        encoding="utf-8",
    )
    return config


@pytest.mark.thorough
@pytest.mark.parametrize(
    "decoder",
    [
        ("model.decoder=bahdanau",),
        ("model.decoder=luong", "model.input_feeding=false"),  # feeding may shift the attention
    ],
    ids=["bahdanau", "luong"],
)
def test_attention_learns_a_dictionary_and_a_word_order(
    tmp_path: Path, decoder: tuple[str, ...]
) -> None:
    run = trained(write_dictionary_language(tmp_path), "decoding.max_length=9", *decoder)
    losses = [line["train_loss"] for line in lines_of(run / METRICS) if "train_loss" in line]
    assert losses[-1] < losses[0] / 10
    assert validations(run)[-1]["valid_bleu"] > 90
    translator = Translator.load(run, device="cpu")
    (translation,) = translator.translate(["small red house"])
    assert translation.text == "casa rot petit"
    assert translation.attention is not None
    assert translation.attention[:3, :3].argmax(axis=1).tolist() == [2, 1, 0]


def test_validation_metrics_are_those_of_the_best_weights(small_corpus: Path) -> None:
    run = trained(
        small_corpus, "training.average=0.9", "training.max_steps=6", "training.validate_every=6"
    )
    (metrics,) = validations(run)
    loaded = load_model(run, CPU)
    model, vocabularies, config = loaded.model, loaded.vocabularies, loaded.config
    assert config.data.valid.src is not None
    assert config.data.valid.tgt is not None
    src_lines = config.data.valid.src.read_text(encoding="utf-8").splitlines()
    tgt_lines = config.data.valid.tgt.read_text(encoding="utf-8").splitlines()
    total, tokens = 0.0, 0
    for src, tgt in zip(src_lines, tgt_lines, strict=True):  # a sentence at a time, by steps
        (src_ids,), (tgt_ids,) = vocabularies.src.encode([src]), vocabularies.tgt.encode([tgt])
        with torch.no_grad():
            ids = torch.tensor([[*src_ids, 3]])
            memory, state = model.start(model.encode(ids, torch.tensor([ids.shape[1]])))
            for last, wanted in zip([2, *tgt_ids], [*tgt_ids, 3], strict=True):
                step = model.step(torch.tensor([last]), state, memory)
                state = step.state
                total -= model.project(step.outputs).log_softmax(-1)[0, wanted].item()
                tokens += 1
    assert metrics["valid_loss"] == pytest.approx(total / tokens, rel=1e-5)
    assert metrics["valid_perplexity"] == pytest.approx(math.exp(total / tokens), rel=1e-4)


# --------------------------------------------------------------------------------- a training step


def prepared(corpus: Path, *overrides: str, run: str = "run") -> TrainingSession:
    plain = ["model.dropout=0", "training.clip_norm=1e9", "training.label_smoothing=0"]
    config = configured(corpus, *plain, *overrides, run=run)
    return prepare(config, CPU)[0]


def some_batch(run: TrainingSession, rows: range) -> Batch:
    return make_batch([run.data.train.src[i] for i in rows], [run.data.train.tgt[i] for i in rows])


def gradients(run: TrainingSession) -> dict[str, Tensor]:
    return {
        name: weight.grad.clone()
        for name, weight in run.model.named_parameters()
        if weight.grad is not None
    }


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_two_accumulated_batches_have_the_gradient_of_one_double_batch(
    small_corpus: Path, smoothing: float
) -> None:
    parts, double = (
        prepared(small_corpus, f"training.label_smoothing={smoothing}", run=name)
        for name in ("parts", "double")
    )
    tokens_of_parts = take_step(
        parts, [some_batch(parts, range(5)), some_batch(parts, range(5, 18))], 1e-3
    )
    tokens_of_double = take_step(double, [some_batch(double, range(18))], 1e-3)
    assert tokens_of_parts == tokens_of_double
    torch.testing.assert_close(
        parts.progress.losses, double.progress.losses, rtol=1e-6, atol=0
    )  # sums of float32
    wanted = gradients(double)
    assert len(wanted) == len(named_weights(double.model))
    for name, gradient in gradients(parts).items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_accumulated_batches_are_one_step(small_corpus: Path) -> None:
    single = trained(small_corpus, "training.max_epochs=1", run="single")
    double = trained(small_corpus, "training.max_epochs=1", "training.accumulate=2", run="double")
    one, two = (state_of(run / LAST)[0]["progress"] for run in (single, double))
    assert two["step"] == -(-one["step"] // 2)
    assert two["tokens"] == one["tokens"]


@pytest.mark.parametrize("limit", [0.01, 0.1])
def test_the_gradient_norm_is_at_most_clip_norm(small_corpus: Path, limit: float) -> None:
    free, clipped = (
        prepared(small_corpus, f"training.clip_norm={norm}", run=str(norm)) for norm in (1e9, limit)
    )
    for run in (free, clipped):
        take_step(run, [some_batch(run, range(9))], 1e-3)
    full_norm = math.sqrt(sum(float(each.square().sum()) for each in gradients(free).values()))
    assert full_norm > 0.2
    for name, gradient in gradients(clipped).items():
        torch.testing.assert_close(gradient, gradients(free)[name] * limit / full_norm)


@pytest.mark.thorough
def test_the_losses_of_training_and_validation_are_comparable(small_corpus: Path) -> None:
    """Both are equal on the training text, without dropout, at a learning rate near zero."""
    same = [f"data.valid.{side}={small_corpus.parent}/train.{side}" for side in ("src", "tgt")]
    same += ["data.max_length=100", "training.max_epochs=1"]
    still = ("model.dropout=0", "training.learning_rate=1e-12", "training.label_smoothing=0.3")
    config = configured(small_corpus, *same, *still)
    steps = len(EpochOrder(prepare(config, CPU)[0].data.train, config.training.batch_tokens, 1, 0))
    run = trained(small_corpus, *same, *still, f"training.log_every={steps}", run="comparable")
    train_line, valid_line = lines_of(run / METRICS)[:2]
    assert train_line["train_loss"] == pytest.approx(valid_line["valid_loss"], rel=1e-5)
    assert train_line["train_objective"] != pytest.approx(valid_line["valid_loss"], rel=1e-4)
    assert f"loss {train_line['train_loss']:.2f}, objective " in log_of(run)


def test_label_smoothing_adds_the_mean_loss_of_all_tokens(small_corpus: Path) -> None:
    run = prepared(small_corpus)
    batch = some_batch(run, range(7))
    with torch.no_grad():
        log_probs = run.model.project(run.model(*batch[:3])).log_softmax(-1).flatten(0, 1)
    log_probs = log_probs[batch.tgt_positions]
    plain = -log_probs.gather(1, batch.tgt_out[:, None]).sum()
    even = -log_probs.mean(dim=1).sum()
    for share in (0.0, 0.3):
        found = batch_loss(run.model, batch, LossWeights(share))
        torch.testing.assert_close(found.objective.detach(), (1 - share) * plain + share * even)
        torch.testing.assert_close(found.nll, plain)


@pytest.mark.thorough
def test_the_average_follows_the_weights(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: dict[str, Tensor] = {}

    def step(run: TrainingSession, batches: Sequence[Batch], rate: float) -> StepResult:
        if not followed:
            followed.update({n: w.double() for n, w in named_weights(run.model).items()})
        result = train_step(run, batches, rate)
        decay = min(0.6, (1 + run.progress.step) / (10 + run.progress.step))
        for name, weight in named_weights(run.model).items():
            followed[name] = decay * followed[name] + (1 - decay) * weight.double()
        return result

    monkeypatch.setattr(training, "train_step", step)
    limits = ("training.max_steps=15", "training.validate_every=15")
    run = trained(small_corpus, "training.average=0.6", *limits)
    _, last = state_of(run / LAST)
    _, best = state_of(run / BEST)
    for name, average in followed.items():
        torch.testing.assert_close(last[f"averages.{name}"].double(), average, rtol=1e-4, atol=1e-6)
        assert torch.equal(best[name], last[f"averages.{name}"])  # search uses the averages
    assert not all(torch.equal(last[f"weights.{name}"], best[name]) for name in best)


# -------------------------------------------------------------------------------------------- seed


@pytest.mark.thorough
def test_the_seed_determines_all_metrics_and_weights(small_corpus: Path) -> None:
    overrides = ("vocabulary.sampling=0.3", "training.max_steps=6", "training.validate_every=3")
    first = trained(small_corpus, *overrides, run="first")
    again = trained(small_corpus, *overrides, run="again")
    other = trained(small_corpus, *overrides, "seed=2", run="other")
    for name in (METRICS, BEST):
        assert (first / name).read_bytes() == (again / name).read_bytes()
        assert (first / name).read_bytes() != (other / name).read_bytes()


@pytest.mark.thorough
def test_timing_has_its_own_file(small_corpus: Path) -> None:
    run = trained(small_corpus)
    names = [{name for line in lines_of(run / file) for name in line} for file in (METRICS, TIMING)]
    assert names[0] == {
        "step",
        "train_loss",
        "train_objective",
        "learning_rate",
        "valid_loss",
        "valid_perplexity",
        "valid_bleu",
    }
    assert names[1] == {"step", "target_tokens_per_second", "seconds", "validation_seconds"}


# --------------------------------------------------------------------------- stopping and resuming


EVENTFUL = (
    "vocabulary.sampling=0.3",
    "model.decoder=luong",
    "model.layers=2",
    "model.score=coverage",
    "model.window=local_p",
    "training.scheduled_sampling={inverse_sigmoid: 5}",
    "training.losses.consistency=1",
    "training.average=0.9",
    "training.validate_every=4",
    "training.keep=2",
    "training.patience=3",
    "training.decay=cosine",
    "training.warmup_steps=3",
    "training.accumulate=2",
    "training.max_epochs=2",
    "decoding.max_length=5",
    "data.max_length=13",
    "training.batch_tokens=150",
)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A folder for the run that all interrupted runs are compared with."""
    return {"folder": tmp_path_factory.mktemp("uninterrupted")}


@pytest.fixture
def uninterrupted_run(small_corpus: Path, uninterrupted: dict[str, Any]) -> Path:
    folder: Path = uninterrupted["folder"]
    if not (folder / BEST).exists():
        shutil.copytree(
            trained(small_corpus, *EVENTFUL, run="uninterrupted"), folder, dirs_exist_ok=True
        )
        assert len(snapshots(folder)) == 2
    return folder


def assert_same_run(run: Path, expected: Path) -> None:
    """Check that all that the seed determines is bitwise equal."""
    assert [path.name for path in snapshots(run)] == [path.name for path in snapshots(expected)]
    for path in snapshots(expected):
        assert (run / path.name).read_bytes() == path.read_bytes()
    assert (run / METRICS).read_text() == (expected / METRICS).read_text()
    assert (run / BEST).read_bytes() == (expected / BEST).read_bytes()
    (counters, tensors), (wanted, wanted_tensors) = state_of(run / LAST), state_of(expected / LAST)
    assert counters["progress"] == wanted["progress"]
    assert counters["limit"] == wanted["limit"]
    assert tensors.keys() == wanted_tensors.keys()
    for name, tensor in wanted_tensors.items():
        assert torch.equal(tensors[name], tensor), name


def test_the_same_config_gives_the_same_run(small_corpus: Path, uninterrupted_run: Path) -> None:
    again = trained(small_corpus, *EVENTFUL, run="again")
    assert_same_run(again, uninterrupted_run)


@pytest.mark.thorough
def test_another_process_gives_the_same_run(small_corpus: Path) -> None:
    """Python hashes strings differently in each process: no order may depend on it."""
    settings = ("decoding.max_length=5", "training.max_steps=4", "training.max_minutes=9")
    run = trained(small_corpus, *EVENTFUL, *settings)
    other = small_corpus.parent / "other"
    command = ["train", str(small_corpus), *EVENTFUL, *settings, f"run_dir={other}"]
    subprocess.run(
        [sys.executable, "-m", "seq2seq", *command, "--device", "cpu"],
        check=True,
        capture_output=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": "1"},
    )
    assert_same_run(other, run)


def steps_of(run: Path) -> int:
    return int(state_of(run / LAST)[0]["progress"]["step"])


@one_quick("at", [1, 4, "end of an epoch", "last"], quick=1)
def test_a_resumed_run_ends_as_an_uninterrupted_one(
    small_corpus: Path, uninterrupted_run: Path, monkeypatch: pytest.MonkeyPatch, at: int | str
) -> None:
    steps = steps_of(uninterrupted_run)
    names = {"end of an epoch": steps // 2, "last": steps}
    stop = at if isinstance(at, int) else names[at]
    config = configured(small_corpus, *EVENTFUL)
    with monkeypatch.context() as patched:
        patched.setattr(training, "train_step", after_steps(stop, interrupt()))
        with pytest.raises(Interrupted) as caught:
            train(config, "cpu")
    assert caught.value.signal_number == signal.SIGTERM
    assert steps_of(config.run_dir) == stop
    assert f"Stopped at step {stop}, saved." in log_of(config.run_dir)
    train(config, "cpu", resume=True)
    assert f"resumed at step {stop}, epoch" in log_of(config.run_dir)
    assert_same_run(config.run_dir, uninterrupted_run)


@pytest.mark.thorough
def test_an_interruption_after_the_last_step_is_not_lost(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is complete, but a caller that trains several runs must not start another."""
    validate = training.validate

    def interrupted(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        validate(*arguments)

    monkeypatch.setattr(training, "validate", interrupted)
    config = configured(small_corpus, "training.max_steps=3")
    with pytest.raises(Interrupted) as caught:
        train(config, "cpu")
    assert (caught.value.signal_number, caught.value.done) == (signal.SIGTERM, True)
    assert "Best validation BLEU" in log_of(config.run_dir)
    monkeypatch.undo()
    train(config, "cpu", resume=True)
    assert "Training has already finished (" in log_of(config.run_dir)


@pytest.mark.thorough
def test_a_run_interrupted_at_every_second_step_ends_as_an_uninterrupted_one(
    small_corpus: Path, uninterrupted_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(small_corpus, *EVENTFUL)
    for turn in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(training, "train_step", after_steps(2, interrupt(signal.SIGINT)))
            with pytest.raises(Interrupted) as caught:
                train(config, "cpu", resume=turn > 0)
        assert caught.value.signal_number == signal.SIGINT
        assert steps_of(config.run_dir) == 2 * turn + 2
    train(config, "cpu", resume=True)
    assert_same_run(config.run_dir, uninterrupted_run)


@pytest.mark.thorough
def test_checkpoints_of_later_steps_are_removed_and_saved_again(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate a kill between a validation and the checkpoint after it."""
    limits = ("training.max_steps=6", "training.validate_every=2", "training.keep=2")
    complete = trained(small_corpus, *limits, run="complete")
    config = configured(small_corpus, *limits)
    saves = count(1)

    def save(run: TrainingSession, reporter: Reporter, clock: Clock) -> None:
        if next(saves) == 2:
            raise OSError("killed")
        saved(run, reporter, clock)

    saved = training.save
    with monkeypatch.context() as patched:
        patched.setattr(training, "save", save)
        with pytest.raises(OSError, match="killed"):
            train(config, "cpu")
    assert [path.name for path in snapshots(config.run_dir)] == [
        "step-2.safetensors",
        "step-4.safetensors",
    ]
    assert steps_of(config.run_dir) == 2
    prepare(config, CPU, OpenFolder(None, read_state(config.run_dir)))
    assert [path.name for path in snapshots(config.run_dir)] == ["step-2.safetensors"]
    train(config, "cpu", resume=True)
    assert_same_run(config.run_dir, complete)
    assert [path.name for path in snapshots(complete)] == [
        "step-4.safetensors",
        "step-6.safetensors",
    ]


def test_resuming_repeats_no_work(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is computed: no earlier batch is made, and no earlier epoch is ordered."""
    limits = ("training.batch_tokens=220", "training.validate_every=50", "training.max_epochs=9")
    config = configured(small_corpus, *limits)
    with monkeypatch.context() as patched:
        patched.setattr(training, "train_step", after_steps(20, interrupt()))
        with pytest.raises(Interrupted):
            train(config, "cpu")
    position = state_of(config.run_dir / LAST)[0]["progress"]
    assert position["epoch"] >= 1
    assert position["batch"] >= 1
    made: list[list[int]] = []
    ordered: list[int] = []
    make, order = batches_module.batch_of, training.EpochOrder

    def noted_make(run: TrainingSession, rows: Any, seed: int) -> Batch:
        made.append([*map(int, rows)])
        return make(run, rows, seed)

    def noted_order(pairs: Any, tokens: int, seed: int, epoch: int) -> Any:
        ordered.append(epoch)
        return order(pairs, tokens, seed, epoch)

    monkeypatch.setattr(batches_module, "batch_of", noted_make)
    monkeypatch.setattr(training, "EpochOrder", noted_order)
    monkeypatch.setattr(stopping, "EpochOrder", noted_order)
    monkeypatch.setattr(training, "train_step", after_steps(2, interrupt()))
    with pytest.raises(Interrupted):
        train(config, "cpu", resume=True)
    run = prepare(config, CPU, OpenFolder(None, read_state(config.run_dir)))[0]
    batches = order(run.data.train, 220, config.seed, position["epoch"])
    assert made == [[*map(int, rows)] for rows in batches[position["batch"] :][:2]]
    assert ordered == [0, position["epoch"]]  # epoch 0 is ordered for its length


@pytest.mark.thorough
def test_a_killed_run_resumes_from_its_last_saved_state(
    small_corpus: Path, uninterrupted_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut() -> None:
        raise MemoryError

    config = configured(small_corpus, *EVENTFUL, "training.log_every=1")
    with monkeypatch.context() as patched:
        patched.setattr(training, "train_step", after_steps(7, power_cut))
        with pytest.raises(MemoryError):
            train(config, "cpu")
    assert steps_of(config.run_dir) == 4  # the last validation
    assert lines_of(config.run_dir / METRICS)[-1]["step"] == 6
    with (config.run_dir / METRICS).open("a", encoding="utf-8") as file:
        file.write('{"step": 5, "train_lo')
    train(config, "cpu", resume=True)
    metrics = lines_of(config.run_dir / METRICS)
    assert [line["step"] for line in metrics if "train_loss" in line] == list(
        range(1, steps_of(uninterrupted_run) + 1)
    )
    assert validations(config.run_dir) == validations(uninterrupted_run)
    assert (config.run_dir / BEST).read_bytes() == (uninterrupted_run / BEST).read_bytes()
    (counters, tensors), (wanted, same) = (
        state_of(run / LAST) for run in (config.run_dir, uninterrupted_run)
    )
    assert all(torch.equal(tensors[name], tensor) for name, tensor in same.items())
    assert counters["progress"]["tokens"] == wanted["progress"]["tokens"]


@pytest.mark.thorough
def test_a_finished_run_can_be_extended(small_corpus: Path) -> None:
    long = trained(small_corpus, "training.max_epochs=3", run="long")
    short = trained(small_corpus, "training.max_epochs=2", run="short")
    train(configured(small_corpus, "training.max_epochs=3", run="short"), "cpu", resume=True)
    assert_same_run(short, long)


def test_resuming_a_finished_run_changes_nothing(small_corpus: Path) -> None:
    run = trained(small_corpus)
    before = {name: (run / name).read_bytes() for name in (METRICS, BEST, CONFIG)}
    tensors = state_of(run / LAST)[1]
    train(configured(small_corpus), "cpu", resume=True)
    assert "Training has already finished (training.max_epochs=2 reached). To train" in log_of(run)
    assert "To train further, pass resume=True and increase training.max_epochs." in log_of(run)
    assert {name: (run / name).read_bytes() for name in before} == before
    assert all(torch.equal(tensors[name], each) for name, each in state_of(run / LAST)[1].items())


def test_the_signal_handlers_are_restored(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr(training, "train_step", after_steps(1, interrupt()))
    with pytest.raises(Interrupted):
        trained(small_corpus)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_closed_terminal_stops_a_run_as_ctrl_c_does_unless_nohup_is_used(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may be under nohup
    try:
        monkeypatch.setattr(training, "train_step", after_steps(2, interrupt(signal.SIGHUP)))
        with pytest.raises(Interrupted) as caught:
            trained(small_corpus)
        assert caught.value.signal_number == signal.SIGHUP
        assert steps_of(small_corpus.parent / "run") == 2
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        monkeypatch.setattr(training, "train_step", after_steps(2, interrupt(signal.SIGHUP)))
        assert steps_of(trained(small_corpus, "training.max_steps=3", run="other")) == 3
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_ctrl_c_does_not_wait(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice() -> None:
        interrupt(signal.SIGINT)()
        interrupt(signal.SIGINT)()

    monkeypatch.setattr(training, "train_step", after_steps(2, twice))
    with pytest.raises(KeyboardInterrupt):
        trained(small_corpus)


def test_a_signal_while_the_engine_is_written_ends_a_finished_run(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's memory has been given back, and the state was saved."""
    monkeypatch.setattr(graphs, "store_engine", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted) as stopped:
        trained(small_corpus, "training.max_steps=2")
    assert stopped.value.done
    assert stopped.value.signal_number == signal.SIGTERM
    assert steps_of(small_corpus.parent / "run") == 2


# ------------------------------------------------------------------------------- stopping criteria


def stopping_criterion(run: Path) -> str:
    (line,) = (line for line in log_of(run).splitlines() if "Training finished: " in line)
    return line.partition("Training finished: ")[2]


def test_max_steps_ends_training(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.max_steps=5", "training.max_epochs=9")
    assert stopping_criterion(run) == "training.max_steps=5 reached."
    assert steps_of(run) == 5
    assert [line["step"] for line in validations(run)] == [5]  # there is always one validation


@pytest.mark.thorough
def test_max_epochs_ends_training(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.max_epochs=2", "training.max_steps=1000")
    assert stopping_criterion(run) == "training.max_epochs=2 reached."
    assert [line["step"] for line in validations(run)] == [steps_of(run) // 2, steps_of(run)]


def test_patience_ends_training(small_corpus: Path) -> None:
    still = ("training.learning_rate=1e-12", "training.validate_every=2")  # BLEU stays as it is
    run = trained(small_corpus, *still, "training.patience=3", "training.max_epochs=90")
    assert stopping_criterion(run) == "training.patience=3 reached."
    assert [line["step"] for line in validations(run)] == [2, 4, 6, 8]
    assert state_of(run / BEST)[0]["step"] == 2


class FakeTime:
    """A clock on which every step takes a quarter of a minute."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def step(self, run: TrainingSession, batches: Sequence[Batch], rate: float) -> StepResult:
        self.now += 15.0
        return train_step(run, batches, rate)


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    clock = FakeTime()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    monkeypatch.setattr(training, "train_step", clock.step)
    return clock


@pytest.mark.thorough
@pytest.mark.usefixtures("fake_time")
def test_max_minutes_ends_training_and_counts_all_processes(small_corpus: Path) -> None:
    limits = ("training.max_epochs=90", "training.validate_every=50")
    run = trained(small_corpus, *limits, "training.max_minutes=1.5")
    end = stopping_criterion(run)
    assert end.startswith("training.max_minutes=1.5 reached after 6 of ")
    assert end.endswith("steps; resume=True with a higher one makes the rest.")
    assert steps_of(run) == 6
    assert state_of(run / LAST)[0]["seconds"] == 90
    config = configured(small_corpus, *limits, "training.max_minutes=2")
    train(config, "cpu", resume=True)
    assert steps_of(run) == 8


@pytest.mark.thorough
@one_quick("decay", ["linear", "cosine"])
def test_a_decay_by_time_reaches_zero_and_resumes_where_it_was(
    small_corpus: Path, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch, decay: str
) -> None:
    """Eight steps of a quarter of a minute have the rates of a training of eight steps."""
    by_time = ("training.max_epochs=null", f"training.decay={decay}", "training.log_every=1")
    complete = trained(small_corpus, *by_time, "training.max_minutes=2", run="complete")
    steps = trained(small_corpus, *by_time, "training.max_steps=8", run="steps")
    found, wanted = (
        [line["learning_rate"] for line in lines_of(run / METRICS) if "learning_rate" in line]
        for run in (complete, steps)
    )
    assert len(found) == 8
    assert found == pytest.approx(wanted)

    def interrupted(run: TrainingSession, batches: Sequence[Batch], rate: float) -> StepResult:
        if run.progress.step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return fake_time.step(run, batches, rate)

    config = configured(small_corpus, *by_time, "training.max_minutes=2")
    with monkeypatch.context() as patch:
        patch.setattr(training, "train_step", interrupted)
        with pytest.raises(Interrupted):
            train(config, "cpu")
    train(config, "cpu", resume=True)
    assert (config.run_dir / METRICS).read_bytes() == (complete / METRICS).read_bytes()


@pytest.mark.thorough
def test_a_plateau_decays_the_rate_and_resumes_exactly(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "valid_bleu", always(50.0))
    monkeypatch.setattr(validation, "valid_loss", lambda _: 1.0)
    settings = ("training.decay={plateau: 0.2}", "training.patience=2")
    often = ("training.validate_every=1", "training.log_every=1", "training.max_epochs=50")
    complete = trained(small_corpus, *settings, *often, run="complete")
    rates = [
        line["learning_rate"] for line in lines_of(complete / METRICS) if "learning_rate" in line
    ]
    assert rates == pytest.approx([1e-3] * 3 + [2e-4] * 2 + [4e-5] * 2)
    assert stopping_criterion(complete) == "training.patience=2 reached."
    assert "step 3: no improvement in 2 validations; the learning rate is now 0.2 of" in log_of(
        complete
    )
    with monkeypatch.context() as patch:
        patch.setattr(training, "train_step", after_steps(4, interrupt()))
        with pytest.raises(Interrupted):
            trained(small_corpus, *settings, *often)
    run = train(configured(small_corpus, *settings, *often), "cpu", resume=True)
    assert fingerprint(run) == fingerprint(complete)


# ------------------------------------------------------------------------- every key has an effect


ALTERNATIVES = {
    "data.max_length": "9",
    "training.max_epochs": "1",
    "training.max_steps": "3",
    "training.max_minutes": "1e-7",
    "training.optimizer": "sgd",
    "training.learning_rate": "2e-3",
    "training.warmup_steps": "3",
    "training.decay": "linear",
    "training.metric": "chrf",
    "training.clip_norm": "0.01",
    "training.label_smoothing": "0.3",
    "training.losses": "{consistency: 1}",
    "training.batch_tokens": "150",
    "training.accumulate": "2",
    "training.average": "0.5",
    "training.validate_every": "3",
    "training.patience": "1",
    "training.precision": "bf16",
    "training.log_every": "2",
}


@pytest.fixture(scope="module")
def base_prints() -> dict[str, tuple[bytes, list[bytes]]]:
    return {}


# keys tested in test_batches.py, test_loss_scheduled_sampling.py, test_loop_save_every.py and
# tests/tools/commands/test_average.py
TESTED_ELSEWHERE = {
    "training.batch_workers",
    "training.scheduled_sampling",
    "training.keep",
    "training.save_every",
}


KEYS = {"data.max_length", *(f"training.{key}" for key in TrainingConfig.model_fields)}


@one_quick("key", sorted(KEYS - TESTED_ELSEWHERE))
def test_every_key_has_an_effect(
    small_corpus: Path, base_prints: dict[str, tuple[bytes, list[bytes]]], key: str
) -> None:
    base = list(BASE)
    if key == "training.max_epochs":
        base = ["training.max_epochs=2", "training.validate_every=5"]
    if key == "training.patience":
        base.append("training.learning_rate=1e-12")
    name = " ".join(base)
    if name not in base_prints:
        base_prints[name] = fingerprint(trained(small_corpus, *base, run="base"))
    changed = trained(small_corpus, *base, f"{key}={ALTERNATIVES[key]}", run="changed")
    assert fingerprint(changed) != base_prints[name]


@pytest.mark.thorough
@one_quick(
    ("base", "changed"),
    [
        (("training.optimizer=adamw",), "training.optimizer={adamw: 0.1}"),
        (("training.decay=plateau", "training.patience=1"), "training.decay={plateau: 0.1}"),
        (("training.metric=loss", "training.patience=1"), "training.metric={loss: 100}"),
        (("model.score=coverage",), "training.losses={coverage: 2}"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_every_parameter_has_an_effect(
    small_corpus: Path, base: tuple[str, ...], changed: str
) -> None:
    rate = ("training.learning_rate=1e-12",) if "plateau" in changed else ()
    one = trained(small_corpus, *BASE, *base, *rate, run="base")
    other = trained(small_corpus, *BASE, *base, *rate, changed, run="changed")
    assert fingerprint(one) != fingerprint(other)


# ------------------------------------------------------------------------- skipped pairs, refusals


def edit_lines(path: Path, edits: dict[int, str]) -> None:
    lines = path.read_text(encoding="utf-8").split("\n")
    for index, line in edits.items():
        lines[index] = line
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")


def test_blank_and_over_long_pairs_are_skipped_and_counted(small_corpus: Path) -> None:
    folder = small_corpus.parent
    edit_lines(folder / "train.src", {3: "", 50: " \t ", 70: "bu " * 90})
    edit_lines(folder / "train.tgt", {3: "", 20: "", 90: "do " * 81, 91: "ku " * 99})
    edit_lines(folder / "valid.tgt", {2: "\u3000"})
    run = trained(small_corpus, "training.max_steps=1", "data.max_length=80")
    log = log_of(run)
    assert "114 training pairs, 4 validation pairs" in log
    assert "skipped in training: 3 pairs with a blank side" in log
    assert "skipped in training: 3 pairs with more than 80 tokens on a side" in log
    assert "in validation: 1 pair with a blank side, which the loss leaves out and BLEU" in log


def test_validation_scores_the_lines_that_evaluate_scores(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_corpus.parent
    edit_lines(folder / "valid.src", {0: " \t", 3: ""})
    edit_lines(folder / "valid.tgt", {2: "\u3000", 3: ""})
    scored = []
    monkeypatch.setattr(validation, "score_by", lambda *texts: scored.append(texts) or 1.5)
    run = trained(small_corpus, "training.max_steps=2")
    (_, hypotheses, references, _), *_ = scored
    files = ("-i", str(folder / "valid.src"), "-r", str(folder / "valid.tgt"))
    output = folder / "out"
    assert main(["evaluate", "-m", str(run), *files, "-b", "1", "-o", str(output)]) == 0
    assert output.read_text(encoding="utf-8").split("\n")[:-1] == hypotheses
    assert (folder / "valid.tgt").read_text(encoding="utf-8").split("\n")[:-1] == references
    assert len(references) == 5


def test_a_log_without_skipped_pairs_does_not_mention_them(small_corpus: Path) -> None:
    log = log_of(trained(small_corpus, "training.max_steps=1", "data.max_length=80"))
    assert "skipped in" not in log
    assert "same text" not in log


@pytest.mark.thorough
def test_the_same_text_on_both_sides_is_reported(small_corpus: Path) -> None:
    folder = small_corpus.parent
    shutil.copy(folder / "train.src", folder / "train.tgt")
    log = log_of(trained(small_corpus, "training.max_steps=1"))
    assert "source and target are identical in 120 of 120 pairs of " in log


def refusal(config: Config, *, resume: bool = False, overwrite: bool = False) -> str:
    with pytest.raises(UserError) as caught:
        train(config, "cpu", resume=resume, overwrite=overwrite)
    return str(caught.value)


@pytest.mark.thorough
def test_validation_targets_that_are_not_nfc_are_reported(small_corpus: Path) -> None:
    edit_lines(small_corpus.parent / "valid.tgt", {4: "ba e\u0301 ka!"})
    run = trained(small_corpus, "training.max_steps=1")
    assert "valid.tgt" in log_of(run)
    assert "1 of 5 lines are not in Unicode's NFC" in log_of(run)


def test_a_folder_with_a_run_is_left_alone(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.max_steps=2")
    before = contents(run)
    message = refusal(configured(small_corpus))
    assert str(run) in message
    assert "resume=True" in message
    assert "overwrite=True" in message
    assert contents(run) == before


def test_overwrite_replaces_the_run_and_nothing_beside_it(small_corpus: Path) -> None:
    run = trained(small_corpus, "vocabulary.joint=false", "training.max_steps=6")
    (run / "notes.txt").write_text("mine", encoding="utf-8")
    fresh = trained(small_corpus, "training.max_steps=3", run="fresh")
    train(configured(small_corpus, "training.max_steps=3"), "cpu", overwrite=True)
    assert (run / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert sorted(contents(run)) == sorted([*contents(fresh), "notes.txt"])
    assert_same_run(run, fresh)
    assert log_of(run).count("Training finished: ") == 1


@one_quick("limit", ["max_steps=6", "max_epochs=1"], quick=1)
def test_the_end_is_logged_after_the_last_validation(small_corpus: Path, limit: str) -> None:
    run = trained(small_corpus, "training.max_steps=null", f"training.{limit}")
    lines = log_of(run).splitlines()
    last = max(n for n, line in enumerate(lines) if "validation loss" in line)
    (end,) = (n for n, line in enumerate(lines) if f"Training finished: training.{limit} " in line)
    assert last < end


@one_quick("name", ["vocabulary/glossary.txt", "tensorboard/other", "train.log"])
def test_files_that_no_run_wrote_are_not_removed(small_corpus: Path, name: str) -> None:
    run = small_corpus.parent / "run"
    (run / name).parent.mkdir(parents=True)
    (run / name).write_text("mine", encoding="utf-8")
    taken = name.partition("/")[0]
    message = refusal(configured(small_corpus))
    assert message.startswith(f"run_dir: {run} holds {taken}, which no run wrote. ")
    assert contents(run) == {name: b"mine"}
    (run / name).rename(small_corpus.parent / "elsewhere")
    shutil.rmtree(run)
    trained(small_corpus, "training.max_steps=1")


@one_quick("file", ["train.tgt", "valid.src"])
def test_a_run_resumes_only_with_the_text_it_was_trained_on(small_corpus: Path, file: str) -> None:
    run = trained(small_corpus, "training.max_steps=2")
    before, text = contents(run), (small_corpus.parent / file).read_text(encoding="utf-8")
    edit_lines(small_corpus.parent / file, {3: "ba ka"})
    longer = configured(small_corpus, "training.max_steps=3")
    message = refusal(longer, resume=True)
    assert message.startswith(f"data.{file[:5]}: is not the text that {run} was trained on. ")
    assert contents(run) == before
    (small_corpus.parent / file).write_text(text, encoding="utf-8")
    train(longer, "cpu", resume=True)
    assert log_of(run).count("resumed at step 2") == 1


def test_with_equal_bleu_the_weights_with_the_lower_loss_are_kept(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.0, 1.0])
    monkeypatch.setattr(validation, "valid_bleu", always(0.0))
    monkeypatch.setattr("seq2seq.training.validation.valid_loss", lambda _: next(losses))
    often = ("training.max_steps=9", "training.validate_every=1", "training.patience=2")
    run = trained(small_corpus, *often, "training.max_epochs=null")
    assert [line["valid_loss"] for line in validations(run)] == [3, 2, 2.5, 2]
    assert state_of(run / BEST)[0]["step"] == 2


@pytest.mark.thorough
def test_chrf_and_loss_select_weights_too(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.metric=chrf")
    line = validations(run)[-1]
    config = configured(small_corpus)
    found = Translator.load(run, device="cpu").translate(
        read_pairs(config.data.valid).src, beam_size=1
    )
    best = state_of(run / LAST)[0]["progress"]
    hypotheses = [each.text for each in found]
    wanted = score_by("chrf", hypotheses, read_pairs(config.data.valid).tgt)
    assert best["best_score"] == pytest.approx(wanted)
    assert f"chrF {line['valid_chrf']:.1f}" in log_of(run)
    assert f"Best validation chrF {wanted:.1f} (greedy) at step {best['best_step']}" in log_of(run)
    other = trained(small_corpus, "training.metric=loss", run="other")
    losses = {line["step"]: line["valid_loss"] for line in validations(other)}
    assert state_of(other / BEST)[0]["step"] == min(losses, key=losses.__getitem__)
    assert "valid_chrf" not in validations(other)[0]


def test_a_run_that_ran_out_of_memory_resumes_exactly(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out_once() -> None:
        failures = iter(["can't allocate memory"])

        def loss(model: Seq2Seq, batch: Batch, *weights: float) -> Losses:
            if message := next(failures, None):
                raise RuntimeError(message)
            return batch_loss(model, batch, *weights)

        monkeypatch.setattr(step_module, "batch_loss", loss)

    run_out_once()
    complete = trained(
        small_corpus, "training.max_steps=4", "training.max_epochs=null", run="complete"
    )
    run_out_once()
    run = trained(small_corpus, "training.max_steps=2", "training.max_epochs=null")
    monkeypatch.setattr(step_module, "batch_loss", batch_loss)
    longer = configured(small_corpus, "training.max_steps=4", "training.max_epochs=null")
    train(longer, "cpu", resume=True)
    tensors = state_of(complete / LAST)[1]
    assert all(torch.equal(each, tensors[name]) for name, each in state_of(run / LAST)[1].items())


@pytest.mark.thorough
def test_overwrite_accepts_an_empty_folder(small_corpus: Path) -> None:
    (small_corpus.parent / "run").mkdir()
    train(configured(small_corpus, "training.max_steps=1"), "cpu", overwrite=True)
    trained(small_corpus, "training.max_steps=1", run="new")


def test_resume_shows_what_changed_in_the_config(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.max_steps=2")
    before = contents(run)
    changed = ("model.dropout=0.2", "seed=4", "training.max_steps=9", "training.log_every=1")
    message = refusal(configured(small_corpus, *changed), resume=True)
    assert "model.dropout.hidden: 0.25 -> 0.2" in message
    assert "seed: 1 -> 4" in message
    assert "max_steps" not in message  # may change
    assert message.endswith(
        "\nRestore them, or train again (overwrite=True, or another run_dir), or start another run "
        "(another run_dir) from its best weights: "
        f"init_from={run}"
    )
    assert contents(run) == before


LEFT_BY_A_KILL = ("lock", ".token-cache/", "config.yaml.part", "vocabulary.part")


@pytest.mark.thorough
@one_quick("files", [None, [], [*LEFT_BY_A_KILL]], ids=["absent", "empty", "killed"])
def test_resume_starts_a_run_in_an_absent_or_empty_folder(
    small_corpus: Path, files: Sequence[str] | None
) -> None:
    """One command for preemptible machines: it starts the run, then resumes it."""
    settings = ("training.max_steps=6", "training.validate_every=2")
    complete = trained(small_corpus, *settings, run="complete")
    config = configured(small_corpus, *settings)
    if files is not None:
        config.run_dir.mkdir()
    for name in files or ():
        if name.endswith("/"):
            (config.run_dir / name).mkdir()
        else:
            (config.run_dir / name).touch()
    for number in (2, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training, "train_step", after_steps(number, interrupt()))
            with pytest.raises(Interrupted):
                train(config, "cpu", resume=True)
    train(config, "cpu", resume=True)
    assert_same_run(config.run_dir, complete)
    log = log_of(config.run_dir)
    assert log.count(f"{config.run_dir} had no saved state to resume: started the run") == 1
    assert log.count("resumed at step") == 2


def test_resume_starts_no_run_among_other_files(small_corpus: Path) -> None:
    config = configured(small_corpus)
    config.run_dir.mkdir()
    (config.run_dir / "notes.txt").write_text("mine")
    assert "not a run folder, it has no config.yaml of a run, and it is not empty" in refusal(
        config, resume=True
    )
    assert contents(config.run_dir) == {"notes.txt": b"mine"}


@pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
def test_a_finished_decay_is_not_extended(small_corpus: Path, decay: str) -> None:
    limits = [f"training.decay={decay}", "training.max_epochs=2"]
    config = load_config(small_corpus, limits)
    note = stopping.finished_note(config, "training.max_epochs=2 reached")
    assert ("init_from=" in note) == (decay != "constant")
    assert ("increase training.max_epochs" in note) == (decay == "constant")


def test_resume_needs_a_state(small_corpus: Path) -> None:
    config = configured(small_corpus)
    trained(small_corpus, "training.max_steps=1")
    for name in (LAST, PREVIOUS):
        (config.run_dir / name).unlink()
    assert f"it has {BEST}, but no {LAST}" in refusal(
        configured(small_corpus, "training.max_steps=1"), resume=True
    )


def test_resume_and_overwrite_exclude_each_other(small_corpus: Path) -> None:
    assert "give one of them" in refusal(configured(small_corpus), resume=True, overwrite=True)


def test_a_run_folder_that_is_a_file_is_refused(small_corpus: Path) -> None:
    (small_corpus.parent / "run").write_text("a file", encoding="utf-8")
    assert "is a file" in refusal(configured(small_corpus))


def shorten(path: Path) -> None:
    path.write_text("one line\n", encoding="utf-8")


def blank_out(path: Path) -> None:
    path.write_text("\n" * 120, encoding="utf-8")


INVALID_DATA: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "missing": ("train.src", Path.unlink, "train.src: no such file"),
    "missing test text": ("test.tgt", Path.unlink, "test.tgt: no such file"),
    "empty": (
        "valid.src",
        lambda path: path.write_bytes(b"") and None,
        "valid.src: the file is empty",
    ),
    "unequal": ("train.tgt", shorten, "train.tgt has 1"),
    "unequal test text": ("test.src", shorten, "test.src has 1 line"),
    "not UTF-8": (
        "valid.tgt",
        lambda path: path.write_bytes(b"a\nb\xff\n") and None,
        "valid.tgt:2:",
    ),
    "blank": ("train.tgt", blank_out, "none of the 120 pairs has text"),
}


@one_quick(
    ("name", "damage", "reason"), INVALID_DATA.values(), ids=INVALID_DATA.keys(), quick={0, 3}
)
def test_refused_data_leave_no_trace(
    small_corpus: Path, name: str, damage: Callable[[Path], None], reason: str
) -> None:
    run = trained(small_corpus, "training.max_steps=1", run="older")
    before = contents(run)
    damage(small_corpus.parent / name)
    config = configured(small_corpus, run="new")
    assert reason in refusal(config)
    assert not config.run_dir.exists()
    assert reason in refusal(configured(small_corpus, run="older"), overwrite=True)
    assert contents(run) == before


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("vocabulary.size=20", "vocabulary.size: 20 is too small"),
        ("vocabulary.size=9000", "vocabulary.size: 9000 is more than"),
        ("data.max_length=1", "every training pair is longer than 1 tokens"),
    ],
)
def test_a_config_that_does_not_fit_the_data_leaves_no_trace(
    small_corpus: Path, override: str, reason: str
) -> None:
    config = configured(small_corpus, override)
    assert reason in refusal(config)
    assert not config.run_dir.exists()


def test_a_missing_device_is_refused_before_any_work(small_corpus: Path) -> None:
    config = configured(small_corpus)
    with pytest.raises(UserError, match=r"^device='tpu': "):
        train(config, "tpu")
    assert not config.run_dir.exists()


def test_an_existing_folder_need_not_be_creatable(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate a read-only volume, or the root folder."""
    run = small_corpus.parent / "run"
    allowed = os.access
    monkeypatch.setattr(
        os, "access", lambda path, how: Path(path) != run.parent and allowed(path, how)
    )
    config = configured(small_corpus)
    with pytest.raises(UserError, match="cannot be created in"):
        check_folder(config, resume=False, overwrite=False)
    run.mkdir()
    check_folder(config, resume=False, overwrite=False)
    root = configured(small_corpus, "run_dir=/")
    check_folder(root, resume=False, overwrite=False)


# ----------------------------------------------------------------------------- reading and locking


def test_resuming_reads_and_verifies_the_state_once(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(small_corpus, "training.max_steps=4")
    opened: list[str] = []
    verified: list[set[str]] = []
    open_file, digest = safe_open, tensor_file._digest

    def noted_open(path: Path, **options: Any) -> Any:
        opened.append(Path(path).name)
        return open_file(path, **options)

    def noted_digest(tensors: dict[str, Tensor]) -> str:
        verified.append(set(tensors))
        return digest(tensors)

    monkeypatch.setattr("safetensors.safe_open", noted_open)
    monkeypatch.setattr(tensor_file, "_digest", noted_digest)
    monkeypatch.setattr("seq2seq.runs.training_state.save_state", lambda *_: None)  # digests too
    resumed = ["train", str(small_corpus), "decoding.max_length=5", "training.max_steps=4"]
    assert main([*resumed, f"run_dir={run}", "--resume", "--device=cpu"]) == 0
    assert opened.count(LAST) == 1
    assert PREVIOUS not in opened
    assert sum(any(name.startswith("weights.") for name in names) for names in verified) == 1
    opened.clear()
    join_run(configured(small_corpus, "training.max_steps=4"), CPU, ProcessGroup(1, 2))
    assert opened.count(LAST) == 1


def test_a_rank_that_is_not_the_main_process_writes_nothing(
    small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(small_corpus, "training.max_steps=2", "training.keep=1")
    run = train(config, "cpu")
    before = contents(run)
    capsys.readouterr()
    session = join_run(config, CPU, ProcessGroup(1, 2))
    session.save_state()
    session.save_weights(99.0, best=True)
    with Reporter() as reporter:
        reporter.log("a line")
        reporter.metrics(3, {"train_loss": 1.0})
        reporter.timing(3, {"seconds": 1.0})
        reporter.log_step(3, "loss 1")
        reporter.advance(3)
        reporter.sync()
        reporter.roll_back(1)
        assert reporter.read_metrics() == []
    assert contents(run) == before
    assert capsys.readouterr().err == ""


@pytest.mark.thorough
def test_restoring_releases_the_tensors_of_the_state(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.max_steps=2")
    state = read_state(run)
    assert state is not None
    assert state.tensors
    session, _ = prepare(
        configured(small_corpus, "training.max_steps=2"), CPU, OpenFolder(None, state)
    )
    assert not state.tensors
    assert session.progress.step == 2


def test_the_folder_is_checked_only_once_it_is_locked(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate another process that trains in the folder while this one starts."""
    finished = trained(small_corpus, "training.max_steps=1", run="finished")
    config = configured(small_corpus)

    @contextmanager
    def late(folder: Path) -> Iterator[None]:
        shutil.copytree(finished, folder)
        yield

    monkeypatch.setattr("seq2seq.runs.training_state.exclusive_lock", late)
    assert f"{config.run_dir}: already holds a run" in refusal(config)
    assert contents(config.run_dir) == contents(finished)


@one_quick("found", [1, 99])
def test_the_state_of_another_format_is_refused_in_one_line(
    small_corpus: Path, capsys: pytest.CaptureFixture[str], found: int
) -> None:
    run = trained(small_corpus, "training.max_steps=2")
    header, tensors = tensor_file.read_file(run / LAST)
    own = {key: each for key, each in header.items() if key not in ("version", "format", "tensors")}
    own["state_format"] = found
    tensor_file.save_tensors(run / LAST, tensors, own)
    before = contents(run)
    capsys.readouterr()
    call = ["train", str(small_corpus), "decoding.max_length=5", "training.max_steps=3"]
    assert main([*call, f"run_dir={run}", "--resume", "--device=cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"seq2seq: error: {run / LAST}: a training state of format {found}; this version of "
    )
    assert f"--overwrite, or start another run from its best weights with --init-from {run}" in line
    assert "damaged" not in line
    assert contents(run) == before
    again = configured(small_corpus, "training.max_steps=1", run="again")
    train(again, "cpu", init_from=run)  # its weights remain valid
    assert "initialised from" in log_of(again.run_dir)


@pytest.mark.thorough
@one_quick(
    ("override", "warned"),
    [
        (
            "training.decay=inverse_sqrt",
            "training.decay: inverse_sqrt with training.warmup_steps 0",
        ),
        ("training.warmup_steps=50", "training.warmup_steps: 50 is more than the 2 steps"),
        ("training.decay=linear", None),
    ],
)
def test_an_unsuitable_schedule_gives_one_warning(
    small_corpus: Path, override: str, warned: str | None
) -> None:
    keys = ("training.warmup_steps=0", "training.decay=constant", override)
    run = trained(small_corpus, "training.max_steps=2", *keys)
    warnings = [line for line in log_of(run).splitlines() if "warning: training." in line]
    assert len(warnings) == (1 if warned else 0)
    assert all(f"warning: {warned}" in line for line in warnings)
    again = "training.max_steps=60" if "linear" not in override else "training.max_steps=2"
    train(configured(small_corpus, again, *keys), "cpu", resume=True)
    assert log_of(run).count(f"warning: {warned}") == len(warnings)
