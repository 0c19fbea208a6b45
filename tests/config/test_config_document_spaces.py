"""Keys of a config with another colon, or without a space after it: named where they are."""

import re
from pathlib import Path

import pytest

from seq2seq.config.errors import ConfigError
from seq2seq.config.schema import load_config

CONFIG = """\
name: small
run_dir: runs/small
data:
  src_lang: en
  tgt_lang: fr
  train: {src: train.en, tgt: train.fr}
  valid: {src: valid.en, tgt: valid.fr}
training: {max_epochs: 1}
"""


def message_for(text: str, folder: Path) -> str:
    """Return what is said of a config, without its path."""
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{path}:")
    return line.removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("section", "key", "line"),
    [
        ("seed:3\n", "seed", 1),
        ("model:\n  embedding_size:16\n", "embedding_size", 1),
        ("model:\n  embedding_size:16\n  hidden_size:8\n", "embedding_size", 1),
        ("model:\n  layers: 2\n  embedding_size:16\n", "embedding_size", 3),
        ("model:\n  embedding_size:16\n  layers: 2\n", "embedding_size", 2),
        ("model: {embedding_size:16, layers: 2}\n", "embedding_size", 1),
        ("model:\n  dropout:\n    word:0.1\n", "word", 2),
        ("model:\n  embedding_size:\u00a016\n  layers: 2\n", "embedding_size", 2),
    ],
)
def test_a_space_that_is_missing_after_a_colon_is_named(
    section: str, key: str, line: int, tmp_path: Path
) -> None:
    message = message_for(section + CONFIG, tmp_path)
    assert message.startswith(f"{line}:")
    assert message.endswith(f"a space is missing after {key}:")


def test_a_value_with_a_colon_lacks_no_space(tmp_path: Path) -> None:
    """The error is in another line."""
    text = f"model:\n  score:\n    my_scores:Cosine\n  layers: 'a\n{CONFIG}"
    assert "invalid YAML" in message_for(text, tmp_path)


def test_deep_nesting_below_a_key_without_a_space_is_one_error(tmp_path: Path) -> None:
    assert "invalid YAML" in message_for("seed:3\nname: " + "[" * 100_000, tmp_path)


@pytest.mark.parametrize("colon", ["\uff1a", "\ufe55"])
@pytest.mark.parametrize(
    ("section", "place"),
    [
        ("seed{} 3\n", "1: has {} after seed; write :"),
        ("seed {}3\nname: x\n", "1: has {} after seed; write :"),
        ("model:\n  layers{}2\n  dropout: 0.1\n", "2: has {} after layers; write :"),
        ("model:\n  dropout{}\n    word: 0.1\n", "2: has {} after dropout; write :"),
        (
            "model: {{layers{}2}}\n",
            "1: model.layers{0}2: unknown key; it has {}; write : and a space",
        ),
    ],
)
def test_another_colon_is_named(section: str, place: str, colon: str, tmp_path: Path) -> None:
    name = "a fullwidth colon" if colon == "\uff1a" else "a small colon"
    text = section.format(colon) + (CONFIG if "name" not in section else "")
    message = message_for(text, tmp_path)
    assert message == place.replace("{0}", colon).format(name)


def test_a_file_of_other_colons_alone_is_no_mapping_of_another_kind(tmp_path: Path) -> None:
    message = message_for(CONFIG.replace(":", "\uff1a"), tmp_path)
    assert message == "1: has a fullwidth colon after name; write :"


def test_values_may_have_other_colons(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(CONFIG.replace("small", "\u6211\uff1a small\uff1a", 1), encoding="utf-8")
    assert load_config(path).name == "\u6211\uff1a small\uff1a"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed\uff1d3", "has a fullwidth equals sign; expected section.key=value"),
        ("seed\uff1a3", "has a fullwidth colon; expected section.key=value"),
        ("seed:3", "(override): expected section.key=value"),
    ],
)
def test_another_mark_of_an_override_is_named(override: str, message: str, tmp_path: Path) -> None:
    (path := tmp_path / "run.yaml").write_text(CONFIG, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_config(path, [override])
