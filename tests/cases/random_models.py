"""Models of random weights, and sources for their searches."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cases.tiny_runs import DECODERS, tiny_config
from seq2seq.config.schema import ModelConfig
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference.search.interface import Hypothesis
from seq2seq.model.builder import build_model
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.model.state import SourcePositions

VOCABULARY_SIZE = 43


def random_model(
    decoder: str, seed: int, end: float = 2.0, family: dict[str, object] | None = None
) -> Seq2Seq:
    """Return a model with large random weights, whose outputs depend on the source; EOS is likely.

    `family` sets more keys of its config.
    """
    config = tiny_config(Path("run"), decoder).model
    sizes = {"embedding_size", "hidden_size", "decoder", "dropout"}
    keys = config.model_dump(include=sizes) | (family or {})
    config = ModelConfig.model_validate(keys)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(config, VOCABULARY_SIZE, VOCABULARY_SIZE, joint=True)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
        model.projection.bias[EOS_ID] += end
    return model.eval()


def random_sources(count: int, seed: int, longest: int = 25) -> list[Ids]:
    generator = random.Random(seed)
    return [
        [generator.randrange(4, VOCABULARY_SIZE) for _ in range(generator.randint(0, longest))]
        for _ in range(count)
    ]


COVERED: dict[str, object] = {"score": "coverage", "window": {"kind": "local_m", "width": 2}}
HEADED: dict[str, object] = {"score": {"scaled_dot": 5}, "window": {"kind": "local_p", "width": 3}}


def ensemble() -> Ensemble:
    models = [random_model(decoder, 3 + n, end=1) for n, decoder in enumerate(DECODERS)]
    copying = random_model("bahdanau", 7, 1, {"copy": True})
    return Ensemble([*models, random_model("luong", 6, 1, COVERED), copying])


MAKERS: dict[str, Callable[[], Any]] = {
    "covered": lambda: random_model("bahdanau", 4, 2, COVERED),
    "headed": lambda: random_model("luong", 5, 2, HEADED),
    "location": lambda: random_model("luong", 5, 2, {"score": "location"}),
    "gnmt": lambda: random_model(
        "gnmt", 6, 2, {"layers": {"encoder": 3, "decoder": 3, "residual": True}}
    ),
    "bahdanau": lambda: random_model("bahdanau", 1),
    "luong": lambda: random_model("luong", 2),
    "copying": lambda: random_model("luong", 5, 2, {"copy": True, "window": "local_p"}),
    "none": lambda: random_model("none", 3),
    "ensemble": ensemble,
}


def teacher_forced(model: Seq2Seq, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
    """Return log-probabilities [T, V] of one sentence from one pass over the complete target."""
    unrolled = model.unroll(src, src_lengths, tgt_in)
    if model.copying is None:
        return model.project(unrolled.outputs)[0].log_softmax(-1)
    positions = SourcePositions(
        *(array.expand(tgt_in.shape[1], *array.shape[1:]) for array in unrolled.positions)
    )
    weights = unrolled.attention_weights[0]
    continued = unrolled.continued[0]
    return model.project(model.copying(unrolled.outputs[0], weights, continued, positions)[0])


def same(left_list: list[Hypothesis], right_list: list[Hypothesis]) -> bool:
    """Return whether two results are bitwise equal."""
    return [hypothesis[:2] for hypothesis in left_list] == [
        hypothesis[:2] for hypothesis in right_list
    ] and all(
        left.attention_weights is right.attention_weights  # None
        if left.attention_weights is None or right.attention_weights is None
        else np.array_equal(left.attention_weights, right.attention_weights)
        for left, right in zip(left_list, right_list, strict=True)
    )


def model_of(decoder: str, **overrides: object) -> Seq2Seq:
    """Return a model so large that another order of summation changes results."""
    keys = {"decoder": decoder, "embedding_size": 48, "hidden_size": 64, "attention_size": None}
    keys |= overrides
    if decoder == "bahdanau":
        keys["attention_size"] = 32
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = build_model(ModelConfig.model_validate(keys), 700, 700, joint=True)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
        model.projection.bias[EOS_ID] += 3
    return model.eval()
