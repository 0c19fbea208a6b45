"""`seq2seq explain`: keys, their values and defaults, and a search among them."""

from functools import cache

import pytest
from cases.commands import printed

from seq2seq.cli.explain import explanations
from seq2seq.config.fields import section_class
from seq2seq.config.schema import Config, json_schema
from seq2seq.runtime.errors import UserError


def test_a_key_is_explained_with_its_values_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(["explain", "training.label_smoothing", "precision"], capsys)
    first, second = text.rstrip("\n").split("\n\n")
    assert first.splitlines() == [
        "training.label_smoothing",
        "  probability mass spread over the vocabulary",
        "  values: number, at least 0, below 1",
        "  default: 0.1",
    ]
    assert second.startswith("training.precision\n  bf16, fp16: mixed, with float32 weights;")
    assert "values: float32, bf16, fp16, auto\n" in second
    (tied,) = explanations("tie_embeddings")
    assert "values: true, false" in tied
    section = explanations("vocabulary")
    assert len(section) > 4
    assert all(part.startswith("vocabulary.") for part in section)
    assert [part.split()[0] for part in explanations("name")] == ["name"]


def test_all_keys_are_listed_and_can_be_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seq2seq.cli.explain.json_schema", cache(json_schema))
    lines = printed(["explain"], capsys).splitlines()
    assert max(map(len, lines)) <= 88
    keys = [line.split()[0] for line in lines]
    assert all(len(line.split()) > 1 for line in lines)  # says what the key means
    for section, field in Config.model_fields.items():
        inner = section_class(field.annotation)
        for name in inner.model_fields if inner else ():
            assert f"{section}.{name}" in keys
    assert {"seed", "run_dir", "training.clip_norm", "data.test.src"} <= set(keys)
    assert all(explanations(key)[0].splitlines()[0] == key for key in keys)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("warm-up", ["training.warmup_steps", "training.decay"]),
        ("Warmup", ["training.warmup_steps"]),
        ("label smooth", ["training.label_smoothing"]),
    ],
)
def test_a_word_is_searched_in_the_keys_and_what_they_mean(
    word: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [line.split()[0] for line in printed(["explain", word], capsys).splitlines()]
    assert set(expected) <= set(keys)
    assert len(keys) < 10


@pytest.mark.parametrize(
    ("key", "meant"), [("lr", "'training.learning_rate'"), ("model.hiden_size", "'hidden_size'")]
)
def test_an_unknown_key_is_answered_with_the_one_meant(key: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"unknown key '{key}'; did you mean {meant}"):
        explanations(key)
