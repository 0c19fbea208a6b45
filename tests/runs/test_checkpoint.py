"""Run folder: checkpoints and states are restored bitwise; damaged files are refused by name."""

import io
import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from cases.toy_text import toy_pairs
from safetensors.torch import save_file
from torch import Tensor

from seq2seq.config.model import LayersConfig
from seq2seq.config.schema import Config
from seq2seq.config.training import OptimizerConfig
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies, Vocabulary, load_vocabularies
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs import checkpoint
from seq2seq.runs.checkpoint import (
    best_is_intact,
    create_run,
    load_model,
    new_model,
    save_weights,
    weights_header,
)
from seq2seq.runs.layout import BEST, CONFIG, LAST, PREVIOUS, VOCABULARY
from seq2seq.runs.run_config import provenance_of, read_config
from seq2seq.runs.training_state import (
    Progress,
    StateTensors,
    TrainingState,
    read_state,
    restore_tensors,
    save_state,
)
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.runtime.files import atomic_file
from seq2seq.training.optimizer import Optimizer

CPU = torch.device("cpu")
LIMIT = LengthLimit(1.3125, 7)
PROGRESS = Progress(
    step=17,
    epoch=2,
    batch=5,
    tokens=4321,
    best_score=12.345678901234567,
    best_step=14,
    validations_since_improvement=1,
    reported_step=12,
    seconds=98.7654321,
    losses=torch.tensor([1 / 3, 2 / 7, 91], dtype=torch.float64),
    skipped=torch.tensor([False, True, False, False, False]),  # step 16
)
OPTIMIZERS = ("adam", "adamw", "sgd")


def edited(config: Config, section: str, **changes: object) -> Config:
    """Return the config with other values in a section; dependent defaults are computed again."""
    tree = config.model_dump()
    if "decoder" in changes:
        tree["model"] |= {"score": None, "input_feeding": None, "attention_size": None}
    tree[section] |= changes
    return Config.model_validate(tree)


def edit_file(folder: Path, config: Config, **changes: object) -> Config:
    """Change the model in the config of a run folder, as an editor would."""
    config = edited(config, "model", **changes)
    (folder / CONFIG).write_text(yaml.safe_dump(config.model_dump()), encoding="utf-8")
    return config


def random_model(config: Config, vocabularies: Vocabularies, seed: int) -> Seq2Seq:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = new_model(config, vocabularies)
        with torch.no_grad():  # initialise biases too, so that all weights differ
            for weight in model.parameters():
                weight.add_(torch.randn(weight.shape), alpha=0.1)
    return model


def outputs_of(model: Seq2Seq) -> Tensor:
    src = torch.tensor([[9, 30, 21, 3], [40, 11, 3, 0]])
    tgt_in = torch.tensor([[2, 8, 33, 17, 6], [2, 5, 0, 0, 0]])
    with torch.no_grad():
        outputs: Tensor = model.eval()(src, torch.tensor([4, 3]), tgt_in)
        return model.project(outputs)


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(actual) == list(expected)
    for name, tensor in expected.items():
        assert actual[name].dtype == tensor.dtype, name
        assert torch.equal(actual[name], tensor), name


@dataclass
class State:
    """Objects that training updates, and where they come from."""

    config: Config
    vocabularies: Vocabularies
    model: Seq2Seq
    averages: dict[str, Tensor]
    optimizer: Optimizer

    def save(self, folder: Path) -> None:
        weights = named_weights(self.model)
        origin = provenance_of(self.config, self.vocabularies)
        tensors = StateTensors(weights, self.averages, self.optimizer.state)
        save_state(folder, tensors, PROGRESS, LIMIT, origin)

    def save_best(self, folder: Path) -> None:
        origin = provenance_of(self.config, self.vocabularies, model_keys_only=True)
        step = PROGRESS.step
        bleu = PROGRESS.best_score
        header = weights_header(LIMIT, step, bleu, origin)
        save_weights(folder / BEST, named_weights(self.model), header)

    def load(self, folder: Path) -> TrainingState:
        state = read_state(folder)
        if state is None:
            raise UserError(f"{folder}: no {LAST}")
        weights = named_weights(self.model)
        restore_tensors(state, StateTensors(weights, self.averages, self.optimizer.state))
        return state

    def step(self, seed: int) -> None:
        """Take a step with a gradient that depends only on the seed."""
        generator = torch.Generator().manual_seed(seed)
        for weight in self.model.parameters():
            weight.grad = torch.randn(weight.shape, generator=generator)
        self.optimizer.step(1e-3)


def new_state(config: Config, vocabularies: Vocabularies, seed: int) -> State:
    model = random_model(config, vocabularies, seed)
    averages = {name: weight + 0.5 for name, weight in named_weights(model).items()}
    optimizer = Optimizer(config.training, model.parameters())
    return State(config, vocabularies, model, averages, optimizer)


@pytest.fixture
def run(tiny_runs: dict[str, Path], tmp_path: Path) -> Path:
    """Return a run folder for one test, with both weight files."""
    folder = tmp_path / "run"
    shutil.copytree(tiny_runs["luong"], folder)
    loaded = load_model(folder, CPU)
    vocabularies = loaded.vocabularies
    config = loaded.config
    state = new_state(config, vocabularies, seed=3)
    state.step(seed=4)
    state.save(folder)
    return folder


def load_again(folder: Path, name: str) -> None:
    """Load one of the two files into a model built from the folder's config."""
    if name == BEST:
        load_model(folder, CPU)
    else:
        new_state(read_config(folder), load_vocabularies(folder / VOCABULARY), seed=0).load(folder)


# ------------------------------------------------------------------------------------- best weights


@pytest.mark.parametrize("joint", [True, False], ids=["joint", "separate"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_best_weights_are_restored_bitwise(
    tmp_path: Path, tiny_run: Path, tiny_vocabularies: Vocabularies, tied: bool, joint: bool
) -> None:
    config = edited(read_config(tiny_run), "model", tie_embeddings=tied)
    config = edited(config, "vocabulary", joint=joint)
    vocabularies = tiny_vocabularies
    if not joint:
        vocabularies = Vocabularies(
            *(Vocabulary(vocabulary.model) for vocabulary in tiny_vocabularies[:2])
        )
    model = random_model(config, vocabularies, seed=5)
    create_run(tmp_path, config, vocabularies)
    origin = provenance_of(config, vocabularies, model_keys_only=True)
    header = weights_header(LIMIT, 17, 1.5, origin)
    save_weights(tmp_path / BEST, named_weights(model), header)

    run = load_model(tmp_path, CPU)
    loaded = run.model
    same_vocabularies = run.vocabularies

    assert_same(loaded.state_dict(), model.state_dict())
    # With requires_grad, torch may use another kernel that differs in the last bits.
    assert torch.equal(outputs_of(loaded), outputs_of(model.requires_grad_(False)))
    assert (run.limit, run.config, run.step) == (LIMIT, config, 17)
    assert same_vocabularies.joint == joint
    sides = zip(same_vocabularies[:2], vocabularies[:2], strict=True)
    assert all(side.model == loaded_side.model for side, loaded_side in sides)
    assert same_vocabularies.names is None
    src = loaded.encoder.embedding.weight
    tgt = loaded.tgt_embedding.weight
    assert (loaded.projection.weight.data_ptr() == tgt.data_ptr()) == tied  # in-memory model
    assert (src.data_ptr() == tgt.data_ptr()) == (tied and joint)
    assert not loaded.training
    assert not any(weight.requires_grad or weight.is_meta for weight in loaded.parameters())
    assert not any(buffer.is_meta for buffer in loaded.buffers())


def test_the_best_weights_are_intact_with_the_vocabulary_of_their_run_alone(
    tiny_runs: dict[str, Path],
) -> None:
    loaded = load_model(tiny_runs["luong"], torch.device("cpu"))
    assert best_is_intact(tiny_runs["luong"], loaded.config, loaded.vocabularies)
    other_vocabularies = train_vocabularies(loaded.config.vocabulary, *toy_pairs(300, seed=9))
    assert not best_is_intact(tiny_runs["luong"], loaded.config, other_vocabularies)


def test_a_tied_weight_is_saved_once(run: Path) -> None:
    config = read_config(run)
    untied = edited(config, "model", tie_embeddings=False)
    sizes = []
    for config_of_case in (config, untied):
        state = new_state(config_of_case, load_vocabularies(run / VOCABULARY), seed=6)
        model = state.model
        state.save_best(run)
        header, data = plain_safetensors(run / BEST)
        assert sum(array.size for array in data.values()) == sum(
            weight.numel() for weight in set(model.parameters())
        )
        sizes.append(len(header))
    assert sizes[0] == sizes[1] - 2  # untied: the target embedding and the output projection


def test_the_length_limit_grows_with_the_source_and_is_positive() -> None:
    assert [LIMIT(length) for length in (0, 1, 2, 16)] == [7, 8, 9, 28]
    assert LengthLimit(0.1, 0)(3) == 1


# ----------------------------------------------------------------------------------- training state


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_state_is_restored_bitwise(
    run: Path, tiny_vocabularies: Vocabularies, optimizer: str
) -> None:
    optimizer_config = OptimizerConfig.model_validate({optimizer: 0.01})
    config = edited(read_config(run), "training", optimizer=optimizer_config)
    state = new_state(config, tiny_vocabularies, seed=7)
    for seed in range(3):
        state.step(seed)
    state.save(run)
    loaded_state = new_state(config, tiny_vocabularies, seed=8)
    loaded_state.step(seed=99)  # its moments are to be replaced
    averages_before = list(loaded_state.averages.values())

    loaded = loaded_state.load(run)

    assert loaded.limit == LIMIT
    assert loaded.progress.to_header() == PROGRESS.to_header()
    assert loaded.progress.skipped_steps() == [16]
    assert loaded.progress.seconds == 98.7654321
    assert not loaded.tensors  # memory is released
    assert_same(named_weights(loaded_state.model), named_weights(state.model))
    assert_same(loaded_state.averages, state.averages)
    assert all(
        a is b for a, b in zip(averages_before, loaded_state.averages.values(), strict=True)
    )  # loaded in place
    moments = 0
    for mine, theirs in zip(state.model.parameters(), loaded_state.model.parameters(), strict=True):
        expected_moments = state.optimizer.state[mine]
        assert_same(
            dict(sorted(loaded_state.optimizer.state[theirs].items())),
            dict(sorted(expected_moments.items())),
        )
        moments += len(expected_moments)
    assert moments == (0 if optimizer == "sgd" else 3 * len(named_weights(state.model)))
    for state_of_case in (state, loaded_state):
        state_of_case.step(seed=11)
    assert_same(named_weights(loaded_state.model), named_weights(state.model))


def test_a_run_without_averages_saves_none(run: Path, tiny_vocabularies: Vocabularies) -> None:
    state = replace(new_state(read_config(run), tiny_vocabularies, seed=9), averages={})
    state.step(seed=1)
    state.save(run)
    assert not [name for name in plain_safetensors(run / LAST)[1] if name.startswith("averages.")]
    loaded_state = replace(new_state(read_config(run), tiny_vocabularies, seed=10), averages={})
    loaded_state.load(run)
    assert_same(named_weights(loaded_state.model), named_weights(state.model))


# ------------------------------------------------------------------------------------ files on disk


def plain_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header metadata and arrays, parsed by hand: a length, JSON, and numbers."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    types = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
    arrays = {
        name: np.frombuffer(
            content[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]],
            types[entry["dtype"]],
        ).reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }
    return header, arrays


def test_the_files_are_plain_numbers_and_contain_no_pickle(
    run: Path, tiny_vocabularies: Vocabularies
) -> None:
    config = read_config(run)
    state = new_state(config, tiny_vocabularies, seed=12)
    state.step(seed=2)
    state.save(run)
    state.save_best(run)
    header, best = plain_safetensors(run / BEST)
    counters = json.loads(header["__metadata__"]["seq2seq"])
    assert counters["limit"] == {"ratio": LIMIT.ratio, "extra": LIMIT.extra}
    assert (counters["step"], counters["bleu"]) == (PROGRESS.step, PROGRESS.best_score)
    assert best.keys() == named_weights(state.model).keys()
    header, last = plain_safetensors(run / LAST)
    counters = json.loads(header["__metadata__"]["seq2seq"])
    assert counters["progress"]["tokens"] == PROGRESS.tokens
    for name, weight in named_weights(state.model).items():
        assert np.array_equal(best[name], weight.numpy())
        assert np.array_equal(last[f"weights.{name}"], weight.numpy())
        assert np.array_equal(last[f"averages.{name}"], state.averages[name].numpy())
        assert last[f"optimizer.step.{name}"] == 1
    assert not list(run.rglob("*.p*t")) + list(run.rglob("*.p*kl"))
    assert not list(run.rglob("*.part"))


def test_weights_are_readable_by_all_who_can_read_the_config(run: Path) -> None:
    modes = {(run / name).stat().st_mode & 0o777 for name in (CONFIG, BEST, LAST)}
    assert len(modes) == 1, "a run folder travels, to other users too"


# ----------------------------------------------------------------------------------- rejected files


def cut_short(content: bytes, share: float) -> bytes:
    return content[: int(len(content) * share)]


def flip(content: bytes, what: bytes) -> bytes:
    """Flip one bit in the header, at the start of `what`."""
    position = content.index(what)
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def pickled() -> bytes:
    buffer = io.BytesIO()
    torch.save({"weights": torch.ones(3)}, buffer)
    return buffer.getvalue()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut in the length": lambda content: content[:5],
    "cut in the header": lambda content: content[:300],
    "cut in half": lambda content: cut_short(content, 0.5),
    "cut at the last byte": lambda content: content[:-1],
    "a byte too many": lambda content: content + b"\0",
    "flipped in the header's length": lambda content: bytes([content[0] ^ 64]) + content[1:],
    "flipped in the JSON": lambda content: flip(content, b'{"__metadata__"'),
    "flipped in the name of the counters": lambda content: flip(content, b"seq2seq"),
    "flipped in a weight's name": lambda content: flip(content, b"encoder.embedding.weight"),
    "flipped in a counter's name": lambda content: flip(content, b"limit"),
    "flipped in a counter's field": lambda content: flip(content, b"ratio"),
    "text": lambda _: b"Not a file of weights, but a letter to a friend.\n" * 20,
    "a pickle": lambda _: pickled(),
}


@pytest.mark.parametrize("name", [BEST, LAST])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_file_is_refused_by_name(
    run: Path, damage: Callable[[bytes], bytes], name: str
) -> None:
    load_again(run, name)  # accepted before the damage
    path = run / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError) as caught:
        load_again(run, name)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [BEST, LAST])
def test_safetensors_of_another_program_are_refused(run: Path, name: str) -> None:
    save_file({"encoder.embedding.weight": torch.ones(2, 3)}, run / name, {"format": "pt"})
    with pytest.raises(UserError, match=f"{name}: not a seq2seq checkpoint"):
        load_again(run, name)


@pytest.mark.parametrize(("name", "other_name"), [(BEST, LAST), (LAST, BEST)])
def test_a_file_that_replaces_the_other_one_is_refused(
    run: Path, name: str, other_name: str
) -> None:
    shutil.copy(run / other_name, run / name)
    with pytest.raises(UserError) as caught:
        load_again(run, name)
    assert str(run / name) in str(caught.value)


def test_a_missing_file_is_named(run: Path, tmp_path: Path) -> None:
    for name in (BEST, LAST):
        (run / name).unlink()
        with pytest.raises(UserError, match=rf"{run}: .*{name}"):
            load_again(run, name)
    (run / CONFIG).unlink()
    with pytest.raises(UserError, match=f"{run}: not a run folder, it has no {CONFIG}"):
        read_config(run)
    with pytest.raises(UserError, match=f"{tmp_path / 'nowhere'}: no such run folder"):
        read_config(tmp_path / "nowhere")


EDITS: dict[str, dict[str, object]] = {
    "embedding": {"embedding_size": 14},
    "hidden": {"hidden_size": 22},
    "more layers": {"layers": LayersConfig(encoder=2, decoder=2)},
    "untied": {"tie_embeddings": False},
    "one direction": {"encoder": "forward"},
    "no input feeding": {"input_feeding": False},
    "other decoder": {"decoder": "bahdanau"},
    "no attention": {"decoder": "none"},
    "other score": {"score": "additive", "attention_size": 9},
}


@pytest.mark.parametrize("name", [BEST, LAST])
@pytest.mark.parametrize("changes", EDITS.values(), ids=EDITS.keys())
def test_a_config_edited_to_another_model_is_refused(
    run: Path, changes: dict[str, object], name: str
) -> None:
    edit_file(run, read_config(run), **changes)
    with pytest.raises(UserError) as caught:
        load_again(run, name)
    assert str(run / name) in str(caught.value)


@pytest.mark.parametrize("name", [BEST, LAST])
def test_a_config_edited_to_a_smaller_model_is_refused(
    run: Path, tiny_vocabularies: Vocabularies, name: str
) -> None:
    config = edit_file(run, read_config(run), layers=LayersConfig(encoder=2, decoder=2))
    state = new_state(config, tiny_vocabularies, seed=13)
    state.save(run)
    state.save_best(run)
    load_again(run, name)
    edit_file(run, config, layers=LayersConfig(encoder=1, decoder=1))
    with pytest.raises(
        UserError
    ) as caught:  # strict loading: extra weights must not be ignored silently
        load_again(run, name)
    assert str(run / name) in str(caught.value)


# ----------------------------------------------------------------------------------- write failures


def full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def half_written(path: Path, content: bytes, _: Path | None = None) -> None:
    with atomic_file(path) as aside:
        aside.write(cut_short(content, 0.5))
        full_disk()


FAILURES = {
    "half a file": ("seq2seq.runs.tensor_file.atomic_write", half_written),
    "at the sync": ("os.fsync", full_disk),
    "at the rename": ("pathlib.Path.replace", full_disk),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
@pytest.mark.parametrize("name", [BEST, LAST])
def test_a_failed_write_leaves_the_old_file_intact(
    run: Path,
    tiny_vocabularies: Vocabularies,
    monkeypatch: pytest.MonkeyPatch,
    failure: tuple[str, Callable[..., None]],
    name: str,
) -> None:
    old = (run / name).read_bytes()
    state = new_state(read_config(run), tiny_vocabularies, seed=14)

    def write() -> None:
        if name == LAST:
            state.save(run)
        else:
            state.save_best(run)

    with monkeypatch.context() as patched:
        patched.setattr(*failure)
        with pytest.raises(RunError, match=rf"{run / name}: .*No space left on device"):
            write()
    assert (run / name).read_bytes() == old
    load_again(run, name)
    write()  # succeeds once there is space again
    assert (run / name).read_bytes() != old
    load_again(run, name)


def test_a_failed_first_write_leaves_no_file(
    run: Path, tiny_vocabularies: Vocabularies, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = new_state(read_config(run), tiny_vocabularies, seed=16)
    (run / BEST).unlink()
    monkeypatch.setattr(*FAILURES["half a file"])
    with pytest.raises(RunError):
        state.save_best(run)
    with pytest.raises(UserError, match=f"has no {BEST}, which"):
        load_model(run, CPU)


def test_every_file_is_synced_before_it_is_renamed(
    run: Path, tiny_vocabularies: Vocabularies, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync = os.fsync
    rename = Path.replace

    def recorded_sync(descriptor: int) -> None:
        events.append("sync")
        sync(descriptor)

    def recorded_rename(self: Path, target: Path) -> Path:
        events.append(f"{self.name} -> {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", recorded_sync)
    monkeypatch.setattr(Path, "replace", recorded_rename)
    new_state(read_config(run), tiny_vocabularies, seed=15).save(run)
    assert events == ["sync", f"{LAST} -> {PREVIOUS}", f"{LAST}.part -> {LAST}", "sync"]


def test_a_folder_that_cannot_be_created_is_reported(
    run: Path, tmp_path: Path, tiny_vocabularies: Vocabularies
) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(RunError, match="file/run"):
        create_run(tmp_path / "file" / "run", read_config(run), tiny_vocabularies)


def test_weights_too_large_to_load_are_reported_in_one_line(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = torch.empty

    def full(*shape: Any, **options: Any) -> Tensor:
        if str(options.get("device")) not in ("cpu", "cuda"):  # but "meta", which needs no memory
            return empty(*shape, **options)
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory\nsecond line")

    monkeypatch.setattr("seq2seq.runs.checkpoint.torch.empty", full)
    for device, remedy in (("cpu", "free memory"), ("cuda", "free memory, or use device='cpu'")):
        with pytest.raises(UserError) as caught:
            load_model(tiny_runs["none"], torch.device(device))
        reason = "DefaultCPUAllocator: can't allocate memory"
        assert str(caught.value) == (
            f"model: too large for the memory of this machine ({reason}); {remedy}"
        )


def test_a_model_too_large_to_train_is_one_clear_line(
    tiny_runs: dict[str, Path], tiny_vocabularies: Vocabularies, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_config(tiny_runs["none"])
    torch_errors = "Storage size calculation overflowed with sizes=[9]", "CUDA error: out of memory"
    for reason in (*torch_errors, "another bug"):

        def build(*_: object, reason: str = reason) -> None:
            raise RuntimeError(reason)

        monkeypatch.setattr("seq2seq.runs.checkpoint.build_model", build)
        expected = RuntimeError if reason == "another bug" else UserError
        with pytest.raises(expected) as caught:
            new_model(config, tiny_vocabularies)
        advised = "lower model.hidden_size" in str(caught.value)
        assert advised == (reason in torch_errors)


def test_an_error_without_a_message_is_not_called_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError) as caught, checkpoint._enough_memory("free memory"):
        raise RuntimeError
    assert str(caught.value) == ""
