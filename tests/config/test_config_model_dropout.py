"""`model.dropout`: one number, or a map from parts of the network to rates."""

from pathlib import Path

import pytest
from cases.configs import MINIMAL

from seq2seq.config.schema import (
    Config,
    ConfigError,
    changed_keys,
    dump_config,
    load_config,
    read_config_file,
)


def load(folder: Path, model: str = "", *overrides: str) -> Config:
    path = folder / "run.yaml"
    path.write_text(MINIMAL + (f"model: {model}\n" if model else ""), encoding="utf-8")
    return load_config(path, overrides)


def refusal(folder: Path, model: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, model, *overrides)
    return str(caught.value).replace(f"{folder}/run.yaml:", "line ")


@pytest.mark.parametrize(
    ("model", "overrides", "expected"),
    [
        ("", (), (0, 0.2, 0.2, 0.2)),
        ("{dropout: 0.3}", (), (0, 0.3, 0.3, 0.3)),
        ("{dropout: {word: 0.1}}", (), (0.1, 0.2, 0.2, 0.2)),
        ("{dropout: {word: 0.1, embedding: 0.2, hidden: 0, output: 0.4}}", (), (0.1, 0.2, 0, 0.4)),
        ("{dropout: {hidden: 0.5}}", ("model.dropout.output=0.1",), (0, 0.2, 0.5, 0.1)),
        ("{dropout: {hidden: 0.5}}", ("model.dropout=0.1",), (0, 0.1, 0.1, 0.1)),
        ("{dropout: 0.3}", ("model.dropout={hidden: 0.1}",), (0, 0.2, 0.1, 0.2)),
        ("", ("model.dropout.word=0.1",), (0.1, 0.2, 0.2, 0.2)),
        ("{dropout: 0.3}", ("model.dropout.word=0.1",), (0.1, 0.3, 0.3, 0.3)),
    ],
)
def test_one_number_is_the_rate_of_all_parts_except_words(
    tmp_path: Path, model: str, overrides: tuple[str, ...], expected: tuple[float, ...]
) -> None:
    config = load(tmp_path, model, *overrides)
    assert tuple(rate for _, rate in config.model.dropout) == expected
    path = tmp_path / "dumped.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    assert read_config_file(path) == (config, [])


@pytest.mark.parametrize(
    ("model", "overrides", "message"),
    [
        ("{dropout: high}", (), "line 9: model.dropout: must be a number; got high"),
        ("{dropout: [0.1]}", (), "line 9: model.dropout: must be a number; got a list"),
        ("{dropout: {word: 1}}", (), "line 9: model.dropout.word: must be less than 1; got 1"),
        (
            "{dropout: {wrod: 0.1}}",
            (),
            "line 9: model.dropout.wrod: unknown key; did you mean 'word'?",
        ),
        (
            "",
            ("model.dropout.word=-1",),
            "model.dropout.word (override): must be at least 0; got -1",
        ),
    ],
)
def test_wrong_rates_are_refused_by_line_and_key(
    tmp_path: Path, model: str, overrides: tuple[str, ...], message: str
) -> None:
    assert refusal(tmp_path, model, *overrides).split("\n") == [message]


def test_consistency_needs_any_dropout(tmp_path: Path) -> None:
    none = "{dropout: {word: 0, embedding: 0, hidden: 0, output: 0}}"
    needed = "training.losses.consistency=1"
    assert "needs model.dropout above 0" in refusal(tmp_path, none, needed)
    config = load(tmp_path, none, needed, "model.dropout.word=0.1")
    assert config.training.losses.consistency == 1


def test_a_change_is_shown_by_part(tmp_path: Path) -> None:
    old = load(tmp_path, "{dropout: 0.3}")
    new = load(tmp_path, "{dropout: {word: 0.1}}")
    assert changed_keys(old, new) == [
        "model.dropout.word: 0.0 -> 0.1",
        *(f"model.dropout.{part}: 0.3 -> 0.2" for part in ("embedding", "hidden", "output")),
    ]
    assert changed_keys(new, new) == []
