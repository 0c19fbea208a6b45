"""Tiles that shrink as sentences finish: the same translations, bitwise where that is promised."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from invariance import check_batch_invariance
from searching import search
from test_search import CPU, MAKERS, random_sources, same
from tiers import one_quick
from torch import Tensor

from seq2seq.config.schema import ModelConfig
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.inference import inference_model, weights
from seq2seq.inference.ensemble import Ensemble
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.inference.run_loading import for_inference
from seq2seq.inference.search import batch_invariance as tiles
from seq2seq.inference.search.batch_invariance import (
    GPU_FACTOR,
    smallest_fitting,
    tile_rows,
    tile_sizes,
)
from seq2seq.inference.search.continuous_batching import ContinuousBatch
from seq2seq.inference.search.interface import Hypothesis, SearchOptions
from seq2seq.inference.weights import PackedWeight, int8_is_exact, prepacking_is_exact
from seq2seq.model.builder import build_model

HALVES = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def model_of(decoder: str, **more: object) -> InferenceModel:
    """Return a model so large that another order of summation changes results."""
    keys = {"decoder": decoder, "embedding_size": 48, "hidden_size": 64, "attention_size": None}
    keys |= more
    if decoder == "bahdanau":
        keys["attention_size"] = 32
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = build_model(ModelConfig.model_validate(keys), 700, 700, joint=True)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
        model.projection.bias[EOS_ID] += 3
    return InferenceModel(model)


@pytest.fixture
def always_shrinking(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Accept every tile size, and record the number of slots before and after each shrink."""
    shrunk, shrink = [], ContinuousBatch.shrink

    def sizes(_: Any, __: Sequence[Ids], width: int, beam_size: int, ___: Any) -> list[int]:
        most = tile_rows(width, CPU) * (4 if beam_size == 1 else 1)
        return [size for size in HALVES if size <= most]

    def recorded(slots: ContinuousBatch, count: int) -> list[int]:
        shrunk.append((len(slots.rows.limits), count))
        return shrink(slots, count)

    monkeypatch.setattr("seq2seq.inference.search.batched.tile_sizes", sizes)
    monkeypatch.setattr(ContinuousBatch, "shrink", recorded)
    return shrunk


SETTINGS = [(1, 0.0, 0), (4, 0.3, 0), (1, 0.0, 2), (4, 0.0, 2)]


@one_quick(
    ("maker", "settings"),
    (
        (maker, setting)
        for n, maker in enumerate(MAKERS)
        for setting in (SETTINGS[n % 2], SETTINGS[2 + n // 2 % 2])
    ),
)
def test_a_shrinking_tile_gives_the_same_results(
    maker: str,
    settings: tuple[int, float, int],
    always_shrinking: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, sources = MAKERS[maker](), random_sources(100, seed=5)
    for each in model.models if isinstance(model, Ensemble) else [model]:
        each.network.double()  # rounding may depend on the size here
    limits = [3 + (5 * n) % 23 for n in range(100)]
    beam_size, coverage_penalty, ngram = settings
    beam = SearchOptions(beam_size, 1.0, coverage_penalty, ngram)
    found = search(model, sources, limits, beam, CPU)
    assert {64, 32, 16, 8, 4} <= {before for before, _ in always_shrinking}
    assert all(after < before for before, after in always_shrinking)
    monkeypatch.setattr(
        "seq2seq.inference.search.batched.tile_sizes",
        lambda _, __, width, *___: [tile_rows(width, CPU)],
    )
    expected = search(model, sources, limits, beam, CPU)
    for some, others in zip(found, expected, strict=True):
        assert [each.ids for each in some] == [each.ids for each in others]
        assert [each.score for each in some] == pytest.approx([each.score for each in others])
        for one, other in zip(some, others, strict=True):
            assert (one.attention_weights is None) == (other.attention_weights is None)
            if one.attention_weights is not None:
                torch.testing.assert_close(one.attention_weights, other.attention_weights)


@one_quick(
    "keys",
    [
        {"decoder": "bahdanau"},
        {"decoder": "luong"},
        {"decoder": "none"},
        {"decoder": "bahdanau", "cell": "gru", "maxout": True},
        {"decoder": "luong", "cell": "gru"},
        {"decoder": "bahdanau", "cell": "layer_norm_lstm"},
        {"decoder": "luong", "cell": "layer_norm_lstm", "layers": 2},
    ],
    ids=lambda keys: "-".join(map(str, keys.values())),
)
@one_quick("beam_size", [1, 5])
def test_tested_tile_sizes_leave_results_bitwise_unchanged(
    keys: dict[str, object], beam_size: int
) -> None:
    model, sources = model_of(**keys), random_sources(90, seed=8)
    limits = [20] * 90
    everything = search(model, sources, limits, SearchOptions(beam_size), CPU)
    for start, count in ((0, 1), (7, 2), (20, 5), (31, 20), (40, 50)):
        part = slice(start, start + count)
        some = search(model, sources[part], limits[part], SearchOptions(beam_size), CPU)
        for one, other in zip(some, everything[part], strict=True):
            assert same(one, other)


def model_for_inference(int8: bool, keys: dict[str, object]) -> InferenceModel:
    """Return a model as `translate` loads it: packed or int8 weights, and approximate logits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inference_model, "MIN_INT8_SHORTLIST_WEIGHTS", 0)
        patch.setattr(weights, "int8_shortlist_pays_off", int8_is_exact)
        return for_inference(model_of(**keys).network, CPU, int8, is_single=True)


MODELS = [
    {"decoder": "bahdanau"},
    {"decoder": "bahdanau", "score": "normed_additive", "maxout": True},
    {"decoder": "luong"},
    {"decoder": "luong", "score": "dot", "layers": 2},
    {"decoder": "luong", "score": "scaled_dot", "attention_size": 32, "input_feeding": True},
    {"decoder": "gnmt", "layers": 2},
    {"decoder": "none", "cell": "gru"},
]
WEIGHTS_AND_OPTIONS = [
    (int8, options)
    for int8 in (False, True)
    for options in (SearchOptions(1, return_scores=False), SearchOptions(4))
]


@one_quick(
    ("keys", "settings"),
    (
        (keys, WEIGHTS_AND_OPTIONS[setting])
        for n, keys in enumerate(MODELS)
        for setting in ((0, 3), (1, 2))[n % 2]  # each model with both weights and both searches
    ),
)
def test_a_sentence_alone_is_translated_as_in_any_batch(
    keys: dict[str, object], settings: tuple[bool, SearchOptions]
) -> None:
    int8, options = settings
    if int8 and not int8_is_exact():
        pytest.skip("int8 products overflow here")
    model, sources = model_for_inference(int8, keys), random_sources(40, seed=4)

    def found(rows: Sequence[int]) -> list[list[Hypothesis]]:
        hypotheses = search(model, [sources[n] for n in rows], [15] * len(rows), options, CPU)
        return [[each._replace(score=0.0) if math.isnan(each.score) else each for each in some]
                for some in hypotheses]  # fmt: skip

    for batch in (1, 7):
        check_batch_invariance(found, 40, batch)


@one_quick(("beam_size", "count"), [(1, 700), (2, 150)], quick=1)
def test_a_predicted_window_depends_on_its_own_sentence_alone(beam_size: int, count: int) -> None:
    """Its centre is one number per row, which rarely reveals that a size is unsafe."""
    model, sources = model_of("luong", window=("local_p", 3)), random_sources(count, 8)
    if prepacking_is_exact():
        model.replace_weights(PackedWeight)
    model.precompute_input_gates()
    limits, beam = [12] * count, SearchOptions(beam_size)
    everything = search(model, sources, limits, beam, CPU)
    order = list(range(count))
    random.Random(1).shuffle(order)
    for start, size in ((0, count), (1, 40), (5, 1), (50, 17)):
        part = order[start : start + size]
        some = search(model, [sources[i] for i in part], [12] * len(part), beam, CPU)
        assert all(same(one, everything[i]) for i, one in zip(part, some, strict=True))


class Rounding:
    """Model whose last digit depends on the number of rows if these are fewer than `sound`."""

    def __init__(self, model: InferenceModel, sound: int) -> None:
        self.model, self.sound, self.steps = model, sound, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def step(self, *given: Any) -> Any:
        self.steps += 1
        return self.model.step(*given)

    def project(self, outputs: Tensor) -> Tensor:
        logits: Tensor = self.model.project(outputs)
        return logits if len(outputs) >= self.sound else logits * (1 + 1e-6)


def sizes_of(model: Any, sources: Sequence[Ids], beam_size: int = 1) -> list[int]:
    """Return the tile sizes that are known once a length has occurred twice."""
    tile_sizes(model, sources, 32, beam_size, CPU)
    return tile_sizes(model, sources, 32, beam_size, CPU)


@pytest.mark.parametrize(("sound", "least"), [(64, 64), (32, 32), (9, 16)])
def test_a_tile_size_that_changes_results_is_not_used(sound: int, least: int) -> None:
    model = Rounding(model_of("luong"), sound)
    if len(sizes_of(model.model, random_sources(64, 3))) < 3:
        pytest.skip("on this machine other sizes change bits anyway")
    assert sizes_of(model, random_sources(64, 3))[0] == least


def test_greedy_search_of_many_sentences_uses_larger_tiles_where_these_are_exact() -> None:
    many = random_sources(256, 3)
    for beam_size, sound, largest in ((1, 1, 256), (2, 1, 64), (1, 65, 64)):
        model = Rounding(model_of("luong"), sound)
        few = sizes_of(model.model, many[:255], beam_size)
        assert few[-1] == 64
        if 256 not in sizes_of(model.model, many):
            pytest.skip("on this machine other sizes change bits anyway")
        assert sizes_of(model, many, beam_size)[-1] == largest
        assert sizes_of(model, many[:9], beam_size)[-1] == 64


def test_larger_tiles_are_tried_once_they_pay_off() -> None:
    model, sources = model_of("luong"), random_sources(600, 3)
    if 256 not in sizes_of(model_of("luong"), sources[:256]):
        pytest.skip("on this machine other sizes change bits anyway")
    assert sizes_of(model, sources[:100])[-1] == 64
    assert tile_sizes(model, sources[100:400], 32, 1, CPU)[-1] == 64
    assert tile_sizes(model, sources[300:600], 32, 1, CPU)[-1] == 256


class Uneven(Rounding):
    """Model that computes the last rows of a tile differently from the first."""

    def project(self, outputs: Tensor) -> Tensor:
        logits: Tensor = self.model.project(outputs).clone()
        logits[self.sound :] *= 1 + 1e-6
        return logits


@pytest.mark.parametrize("sound", [128, 64, 63])
def test_every_row_of_a_tile_must_be_bitwise_equal(sound: int) -> None:
    model, many = model_of("luong"), random_sources(256, 3)
    sizes = sizes_of(model, many)
    if not {32, 256} <= set(sizes):
        pytest.skip("on this machine other sizes change bits anyway")
    expected = [size for size in sizes if size <= sound] if sound >= 64 else [64]
    assert sizes_of(Uneven(model, sound), many) == expected


def test_tiny_models_keep_the_default_tile_size() -> None:
    for maker in MAKERS.values():
        assert sizes_of(maker(), random_sources(64, 3)) == [64]


def test_sizes_are_tested_once_for_each_model_and_kind_of_search() -> None:
    model, sources = Rounding(model_of("none"), 1), random_sources(9, 3)
    assert tile_sizes(model, sources, 32, 1, CPU) == [64]
    assert not model.steps, "a single text is not worth it"
    first = tile_sizes(model, sources, 32, 1, CPU)
    steps = model.steps
    assert steps
    assert tile_sizes(model, sources[:1], 32, 1, CPU) == first
    assert model.steps == steps
    sizes_of(model, sources, beam_size=2)
    assert model.steps > steps
    assert tile_sizes(model, sources, 32, 1, torch.device("meta")) == [64 * GPU_FACTOR]
    known = len(tiles._tested)
    del model
    assert len(tiles._tested) == known - 1


def test_the_smallest_sufficient_size_is_used() -> None:
    assert [smallest_fitting([8, 32, 64], count) for count in (0, 1, 8, 9, 64, 500)] == [
        8,
        8,
        8,
        32,
        64,
        64,
    ]
