"""Training, search and profile on random text of WMT's lengths: no corpus is needed."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarking.machine import peak_mib
from benchmarking.standard import Work, work
from seq2seq.config.schema import Config
from seq2seq.data.padding import Batch, make_batch
from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.inference.search.interface import Request, SearchOptions
from seq2seq.inference.search.search import search
from seq2seq.model.builder import build_model
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.training_state import Progress
from seq2seq.runtime.device import choose_device, synchronize
from seq2seq.training.optimizer import Optimizer
from seq2seq.training.session import OpenRun, TrainingSession
from seq2seq.training.step import train_step

MEAN, SPREAD, LONGEST = 25.0, 0.55, 100  # tokens a side, log-normal
FIRST_ID = 4  # the first token that is not special
WARM_UP_STEPS = 5
WARM_UP_EPOCHS = 2  # in the second one, steps are captured
_MODEL: dict[str, Any] = {"embedding_size": 256, "hidden_size": 512, "dropout": 0.2}
MODELS: dict[str, tuple[int, dict[str, Any]]] = {  # vocabulary and the model section
    "bahdanau": (8000, {**_MODEL, "decoder": "bahdanau", "attention_size": 256}),
    "luong": (8000, {**_MODEL, "decoder": "luong", "input_feeding": False}),
    "luong, input feeding": (8000, {**_MODEL, "decoder": "luong", "input_feeding": True}),
    "none": (8000, {**_MODEL, "decoder": "none"}),
    "gnmt": (  # as large as NVIDIA's GNMT v2; see configs/wmt16-en-de-gnmt.yaml
        32_000,
        {
            "decoder": "gnmt",
            "embedding_size": 1024,
            "hidden_size": 1024,
            "score": "normed_additive",
            "attention_size": 1024,
            "layers": {"encoder": 4, "decoder": 4, "residual": True},
            "dropout": 0.2,
        },
    ),
}


class Speed(NamedTuple):
    """Speed of a training or a search; padding is not counted."""

    src_tokens: float  # per second, end-of-sentence included
    tgt_tokens: float
    gflops: float  # in matrix products
    peak_mib: float


class Kernels(NamedTuple):
    """One training step on the device."""

    launched: int
    busy_seconds: float
    wall_seconds: float


def lengths(rows: int, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Draw lengths [rows, 2] of pairs, whose sides are about as long as each other."""
    rng = np.random.default_rng(seed)
    source = rng.lognormal(np.log(MEAN), SPREAD, rows)
    target = source * rng.lognormal(0, 0.15, rows)
    return np.clip(np.stack([source, target], 1).round(), 1, LONGEST).astype(np.int64)


def batches(vocabulary: int, tokens: int, count: int) -> Iterator[Batch]:
    """Yield batches of pairs of similar length, of at most `tokens` target positions."""
    drawn = lengths(200_000, seed=1)
    drawn = drawn[drawn[:, 1].argsort(kind="stable")]
    rng = np.random.default_rng(2)
    for start in rng.integers(0, len(drawn) - tokens, count):
        rows = max(1, tokens // (int(drawn[start, 1]) + 1))
        while rows > 1 and rows * (int(drawn[start + rows - 1, 1]) + 1) > tokens:
            rows -= 1
        src, tgt = (
            [rng.integers(FIRST_ID, vocabulary, n).tolist() for n in side]
            for side in drawn[start : start + rows].T
        )
        yield make_batch(src, tgt)


def config_of(name: str, precision: str) -> Config:
    """Return the config of one of MODELS."""
    vocabulary, model = MODELS[name]
    files = {"src": "unused.en", "tgt": "unused.de"}
    return Config.model_validate(
        {
            "name": "random",
            "run_dir": "unused",
            "data": {"src_lang": "en", "tgt_lang": "de", "train": files, "valid": files},
            "vocabulary": {"size": vocabulary},
            "model": model,
            "training": {"max_steps": 1, "precision": precision},
        }
    )


def new_session(name: str, precision: str, device: torch.device) -> TrainingSession:
    """Return a session without text, for `train_step`."""
    config, vocabulary = config_of(name, precision), MODELS[name][0]
    torch.manual_seed(1)
    built = build_model(config.model, vocabulary, vocabulary, True).to(device)
    optimizer = Optimizer(config.training, built.parameters())
    progress = Progress(precision=precision)
    progress.move_to(device, config.training.log_every)
    unused: Any = None
    return TrainingSession(config, device, unused, built, {}, optimizer, progress, OpenRun())


def training_speed(
    name: str, precision: str, batch_tokens: int, seconds: float, device: str
) -> Speed:
    """Train on batches of this size for the given time."""
    session = new_session(name, precision, choose_device(device))
    made = [batch.rounded() for batch in batches(MODELS[name][0], batch_tokens, 16)]
    for batch in made * WARM_UP_EPOCHS if session.is_static else made[:WARM_UP_STEPS]:
        _step(session, batch)
    count, used = 0, []
    synchronize(session.device)
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        used.append(made[count % len(made)])
        _step(session, used[-1])
        count += 1
        if count % 10 == 0:
            synchronize(session.device)
    synchronize(session.device)
    elapsed = time.perf_counter() - started
    src, tgt = _tokens(used)
    flop = flop_of_batches(session.model, used)
    return Speed(src / elapsed, tgt / elapsed, flop / elapsed / 1e9, peak_mib(device))


def _step(session: TrainingSession, batch: Batch) -> None:
    session.progress.step += 1
    result = train_step(session, [batch], 1e-4)
    session.progress.add(result.losses, result.skipped)


def flop_of_batches(model: Seq2Seq, used: list[Batch]) -> float:
    """Return the operations of a model's matrix products in training on the batches."""
    return _flop(work(model), used, *_tokens(used))


def _tokens(used: list[Batch]) -> tuple[int, int]:
    src = sum(int(batch.src_lengths.sum()) for batch in used)
    return src, sum(batch.tokens for batch in used)


def _flop(costs: Work, used: list[Batch], src: int, tgt: int) -> float:
    pairs = 0
    for batch in used:
        width = batch.tgt_in.shape[1]
        targets = torch.bincount(batch.tgt_positions // width, batch.real, len(batch.src))
        pairs += int((batch.src_lengths * targets).sum())
    return costs.src_token * src + costs.tgt_token * tgt + costs.pair_of_tokens * pairs


def search_speed(name: str, precision: str, beam: int, sentences: int, device: str) -> Speed:
    """Translate random sentences into as many tokens as the source has: random weights never end.

    They are translated twice, and the second time counts. The GFLOP/s are not counted.
    """
    session = new_session(name, "float32", choose_device(device))
    with torch.no_grad():
        session.model.projection.bias[2:4] = -1e4  # no end-of-sentence before the limit
    model = session.model.eval()
    engine = TorchEngine(model.half() if precision == "float16" else model, session.device)
    rng = np.random.default_rng(3)
    sizes = lengths(sentences, seed=4)[:, 0].tolist()
    sources = [rng.integers(FIRST_ID, MODELS[name][0], n).tolist() for n in sizes]
    options = SearchOptions(beam, return_scores=False, return_attention=False)
    requests = [Request(*fields) for fields in zip(sources, sizes, strict=True)]
    search(engine, requests, options)
    synchronize(session.device)
    started = time.perf_counter()
    lists = search(engine, requests, options)
    synchronize(session.device)
    elapsed = time.perf_counter() - started
    tgt = sum(len(hypotheses[0].ids) for hypotheses in lists)
    return Speed((sum(sizes) + len(sizes)) / elapsed, tgt / elapsed, 0.0, peak_mib(device))


def profile_step(name: str, precision: str, batch_tokens: int, device: str, trace: Path) -> Kernels:
    """Time a training step, then profile another; write its trace for chrome://tracing.

    Profiling makes a step slower, the first profile most of all, which is discarded.
    """
    chosen = choose_device(device)
    session = new_session(name, precision, chosen)
    made = [batch.rounded() for batch in batches(MODELS[name][0], batch_tokens, WARM_UP_STEPS + 1)]
    for batch in made * WARM_UP_EPOCHS if session.is_static else made[:WARM_UP_STEPS]:
        _step(session, batch)
    synchronize(chosen)
    started = time.perf_counter()
    _step(session, made[-1])
    synchronize(chosen)
    wall = time.perf_counter() - started
    for _ in range(2):
        with torch.profiler.profile() as profiler:
            _step(session, made[-1])
            synchronize(chosen)
    trace.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(trace))
    kernels = [
        event
        for event in profiler.events() or ()
        if str(event.device_type).endswith(chosen.type.upper())
    ]
    busy = sum(event.self_device_time_total or event.self_cpu_time_total for event in kernels)
    return Kernels(len(kernels), busy / 1e6, wall)
