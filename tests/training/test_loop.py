"""Training: what it learns and records, and the effect of every key."""

import math
import random
from pathlib import Path

import pytest
import torch
from cases.tiers import one_quick
from cases.trainings import BASE, fingerprint, lines_of, trained, validations

from seq2seq.config.schema import TrainingConfig
from seq2seq.inference.translator import Translator
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.layout import BEST, METRICS, TIMING

pytestmark = pytest.mark.usefixtures("no_engine", "no_tensorboard", "short_sentences")


CPU = torch.device("cpu")


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
    model = loaded.model
    vocabularies = loaded.vocabularies
    config = loaded.config
    assert config.data.valid.src is not None
    assert config.data.valid.tgt is not None
    src_lines = config.data.valid.src.read_text(encoding="utf-8").splitlines()
    tgt_lines = config.data.valid.tgt.read_text(encoding="utf-8").splitlines()
    total = 0.0
    tokens = 0
    for src, tgt in zip(src_lines, tgt_lines, strict=True):  # a sentence at a time, by steps
        (src_ids,), (tgt_ids,) = vocabularies.src.encode([src]), vocabularies.tgt.encode([tgt])
        with torch.no_grad():
            ids = torch.tensor([[*src_ids, 3]])
            memory, state = model.start(model.encode(ids, torch.tensor([ids.shape[1]])))
            for last, target in zip([2, *tgt_ids], [*tgt_ids, 3], strict=True):
                step = model.step(torch.tensor([last]), state, memory)
                state = step.state
                total -= model.project(step.outputs).log_softmax(-1)[0, target].item()
                tokens += 1
    assert metrics["valid_loss"] == pytest.approx(total / tokens, rel=1e-5)
    assert metrics["valid_perplexity"] == pytest.approx(math.exp(total / tokens), rel=1e-4)


@pytest.mark.thorough
def test_the_seed_determines_all_metrics_and_weights(small_corpus: Path) -> None:
    overrides = ("vocabulary.sampling=0.3", "training.max_steps=6", "training.validate_every=3")
    first = trained(small_corpus, *overrides, run="first")
    again = trained(small_corpus, *overrides, run="again")
    other_seed = trained(small_corpus, *overrides, "seed=2", run="other")
    for name in (METRICS, BEST):
        assert (first / name).read_bytes() == (again / name).read_bytes()
        assert (first / name).read_bytes() != (other_seed / name).read_bytes()


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
    ids=lambda parameter: parameter if isinstance(parameter, str) else "",
)
def test_every_parameter_has_an_effect(
    small_corpus: Path, base: tuple[str, ...], changed: str
) -> None:
    rate = ("training.learning_rate=1e-12",) if "plateau" in changed else ()
    base_run = trained(small_corpus, *BASE, *base, *rate, run="base")
    changed_run = trained(small_corpus, *BASE, *base, *rate, changed, run="changed")
    assert fingerprint(base_run) != fingerprint(changed_run)
