"""Diagnosis of a run: every kind of failure is reported, and a sound run gets no warning."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from cases.toy_text import toy_pairs

from seq2seq.config.schema import Config, load_config
from seq2seq.data.vocabulary.vocabulary import UNK_ID, Vocabularies
from seq2seq.runs.layout import LOG, METRICS
from seq2seq.runs.metrics_file import read_metrics
from seq2seq.training.diagnosis import FEW_STEPS, UNKNOWN, Metrics, ValidationResult, diagnose
from seq2seq.training.loop import train

SOURCES, REFERENCES = toy_pairs(40, seed=5)
DEMO = Path(__file__).resolve().parents[2] / "configs" / "demo.yaml"


def configured(*overrides: str) -> Config:
    """Return the demo's config with overrides."""
    return load_config(DEMO, overrides)


CONFIG = configured()


def make_metrics(
    valid: Sequence[float] = (5.0, 3.0, 2.0),
    train: Sequence[float] = (6.0, 4.0, 3.0, 2.5),
    bleu: Sequence[float] = (1.0, 12.0, 30.0),
    step_size: int = 1000,
) -> Metrics:
    """Return the lines of metrics.jsonl of a training with these losses and scores."""
    lines = [{"step": step_size * n, "train_loss": loss} for n, loss in enumerate(train, start=1)]
    for n, (loss, score) in enumerate(zip(valid, bleu, strict=True), start=1):
        lines.append({"step": step_size * n, "valid_loss": loss, "valid_bleu": score})
    return lines


def mostly_right(lines: Sequence[str]) -> list[str]:
    """Return the references with a fifth of the words wrong, as translations of a fair model."""
    generator = random.Random(3)
    return [
        " ".join("zaza" if generator.random() < 0.2 else word for word in line.split())
        for line in lines
    ]


def diagnose_run(
    hypotheses: Sequence[str], metrics: Metrics | None = None, config: Config = CONFIG
) -> list[str]:
    result = ValidationResult(
        SOURCES, REFERENCES, hypotheses, make_metrics() if metrics is None else metrics
    )
    return diagnose(result, config)


def single_warning(
    hypotheses: Sequence[str], metrics: Metrics | None = None, config: Config = CONFIG
) -> str:
    (warning,) = diagnose_run(hypotheses, metrics, config)
    assert "\n" not in warning
    return warning


POOR = make_metrics(bleu=(0.0, 0.1, 0.4))
RISING = make_metrics(valid=(3.0, 3.5, 4.0), bleu=(11.0, 11.0, 11.0))
FAR = make_metrics(valid=(7.0, 6.0, 6.5), train=(6.0, 3.0, 2.0, 1.5), bleu=(2.5, 2.5, 2.5))


# -------------------------------------------------------------------------------------- sound runs


def test_a_sound_run_gets_no_warning() -> None:
    assert diagnose_run(mostly_right(REFERENCES)) == []
    assert diagnose_run(REFERENCES) == []


@pytest.mark.parametrize(
    "metrics",
    [
        pytest.param(make_metrics(valid=(3.0, 2.0, 2.4)), id="overfits only late"),
        pytest.param(make_metrics(valid=(2.1,), bleu=(55.0,)), id="one validation"),
        pytest.param(make_metrics(train=()), id="too short for a line of the log"),
        pytest.param(
            make_metrics(train=(1.5, 1.5, 1.5, 1.5)), id="converged before the first line"
        ),
        pytest.param(make_metrics(valid=(2.9, 2.8, 2.8), train=(3, 2, 1.5, 1.3)), id="small data"),
        pytest.param([], id="no metrics yet"),
    ],
)
def test_metrics_of_sound_runs_give_no_warning(metrics: Metrics) -> None:
    assert diagnose_run(mostly_right(REFERENCES), metrics) == []


def test_too_few_translations_give_no_warning() -> None:
    assert diagnose_run([]) == []
    assert diagnose(ValidationResult(["a"] * 3, ["b"] * 3, [""] * 3, make_metrics()), CONFIG) == []


def test_a_property_shared_by_the_references_is_no_fault() -> None:
    repeated = ["tra la la la la la la la la la"] * 20 + list(REFERENCES[:20])
    assert diagnose(ValidationResult(SOURCES, repeated, repeated, make_metrics()), CONFIG) == []
    blank = [""] * 15 + list(REFERENCES[15:])
    assert diagnose(ValidationResult(SOURCES, blank, blank, make_metrics()), CONFIG) == []
    assert diagnose(ValidationResult(blank, REFERENCES, blank, make_metrics()), CONFIG) == []
    unknown = [f"{UNKNOWN} ba {n}" for n in range(40)]
    assert diagnose(ValidationResult(SOURCES, unknown, unknown, make_metrics()), CONFIG) == []
    assert diagnose(ValidationResult(SOURCES, SOURCES, SOURCES, make_metrics()), CONFIG) == []


# ------------------------------------------------------------------------------------ translations


def test_empty_translations_are_reported() -> None:
    text = single_warning([""] * 10 + REFERENCES[10:])
    assert "25% of the last validation's translations are empty" in text
    assert "training.learning_rate" in text


def test_one_output_for_every_input_is_reported() -> None:
    text = single_warning(["ba da."] * 30 + REFERENCES[30:], POOR)
    assert "75% of the last validation's translations are one and the same" in text
    assert "seq2seq check" in text


@pytest.mark.parametrize(
    "loop", [" na na na na na", " so it goes so it goes so it goes so it goes"]
)
def test_endless_repetition_is_reported(loop: str) -> None:
    text = single_warning([line + loop for line in REFERENCES])
    assert "100% of the last validation's translations repeat themselves" in text
    assert "training.max_epochs" in text


def test_unknown_words_are_reported(tiny_vocabularies: Vocabularies) -> None:
    assert tiny_vocabularies.tgt.decode([UNK_ID]).strip() == UNKNOWN
    text = single_warning([" ".join(UNKNOWN for _ in line.split()) for line in REFERENCES], POOR)
    assert (
        f"100% of the words of the last validation's translations are unknown ({UNKNOWN})" in text
    )
    assert "vocabulary.size" in text


def test_copies_of_the_source_are_reported() -> None:
    text = single_warning(SOURCES, POOR)
    assert "copies of their source" in text
    assert "data.train" in text


@pytest.mark.parametrize(("factor", "word"), [(0.4, "short"), (2.5, "long")])
def test_lengths_far_from_the_references_are_reported(factor: float, word: str) -> None:
    hypotheses = [(line * 3)[: int(factor * len(line))] for line in REFERENCES]
    ratio = sum(map(len, hypotheses)) / sum(map(len, REFERENCES))
    assert f"too {word}, {ratio:.2f} times as long as the references" in single_warning(hypotheses)


# ------------------------------------------------------------------------------------------ scores


def test_a_falling_loss_with_low_bleu_is_reported() -> None:
    text = single_warning(list(reversed(REFERENCES)), POOR)
    assert "BLEU is 0.4: the loss fell from 5.00 to 2.00; train longer" in text


def test_a_loss_that_hardly_falls_is_reported() -> None:
    slow = make_metrics(valid=(5.0, 4.9, 4.8), train=(6.0, 5.5, 5.2, 5.0), bleu=(0.0, 0.1, 0.4))
    text = single_warning(list(reversed(REFERENCES)), slow)
    assert "hardly fallen" in text
    assert "seq2seq check" in text


def test_a_short_training_is_the_first_cause_reported() -> None:
    step_size = FEW_STEPS // 10
    early = make_metrics(bleu=(0.0, 0.1, 0.4), step_size=step_size)
    assert f"{4 * step_size} steps are few" in single_warning(list(reversed(REFERENCES)), early)
    assert f"{4 * step_size} steps are few" in single_warning(["ba."] * 40, early)


# ------------------------------------------------------------------------------------------ losses


@pytest.mark.parametrize(
    ("metrics", "words", "key"),
    [
        (
            make_metrics(train=(8.1, 8.0, 8.2, 8.1), bleu=(2.5, 2.5, 2.5)),
            "the training loss has hardly fallen (8.10 to 8.10)",
            "training.learning_rate",
        ),
        (
            RISING,
            "risen from the first validation (3.00 to 4.00) while the training loss fell (6.00 to",
            "model.dropout",
        ),
        (
            FAR,
            "the validation loss (6.00 at its best) is far above the training loss (1.50)",
            "data.valid",
        ),
    ],
)
def test_abnormal_losses_are_reported(metrics: Metrics, words: str, key: str) -> None:
    text = single_warning(mostly_right(REFERENCES), metrics)
    assert words in text
    assert key in text


def test_a_diverged_training_is_reported_and_no_data_is_blamed() -> None:
    diverged = make_metrics(valid=(9.0, 5e5, 3e6), train=(9.0, 9.5, 1e5, 4e6), bleu=(0.0, 0.0, 0.0))
    for hypotheses in (["ba da."] * 40, [""] * 40, REFERENCES):
        text = single_warning(hypotheses, diverged)
        assert "the training loss rose from 9.00 to 4000000.00, so the training diverged" in text
        assert "training.learning_rate (now 0.005)" in text
        assert "data" not in text


def test_losses_that_rise_together_are_not_called_overfitting() -> None:
    """Late in training, label smoothing makes a model less certain of its predictions."""
    metrics = make_metrics(
        valid=(0.30, 0.35, 0.40), train=(0.5, 0.51, 0.52, 0.53), bleu=(90, 91, 92)
    )
    for line, objective in zip(metrics, (1.9, 1.8, 1.7, 1.6), strict=False):
        line["train_objective"] = objective
    assert diagnose_run(mostly_right(REFERENCES), metrics) == []


REPEATED = [f"{line} na na na na na" for line in REFERENCES]


# ------------------------------------------------------------------------------ complete trainings


@pytest.mark.thorough
def test_a_training_that_ends_too_early_warns_in_its_log(small_corpus: Path) -> None:
    config = load_config(small_corpus, ["decoding.max_length=9", "training.max_epochs=1"])
    run = train(config, "cpu")
    lines = (run / LOG).read_text(encoding="utf-8").splitlines()
    place = next(n for n, line in enumerate(lines) if "Best validation BLEU" in line)
    warnings = lines[place + 1 :]
    assert warnings
    assert all(" warning: " in line for line in warnings)
    assert "steps are few" in warnings[0]


def test_the_metrics_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('{"step": 3, "train_loss": 2.5}\n{"step": 4}\n', "utf-8")
    assert read_metrics(tmp_path) == [{"step": 3, "train_loss": 2.5}, {"step": 4}]


@pytest.mark.parametrize("limit", ["max_epochs", "max_minutes"])
def test_only_the_limit_that_ended_training_is_to_be_raised(limit: str) -> None:
    result = ValidationResult(SOURCES, REFERENCES, REPEATED, make_metrics(), ended_by=limit)
    (text,) = diagnose(result, CONFIG)
    assert [name for name in ("max_epochs", "max_minutes", "max_steps") if name in text] == [limit]
