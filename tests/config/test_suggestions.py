"""Hints for unknown keys: meaning before spelling, and no hint rather than a wrong one."""

import difflib
from pathlib import Path
from unittest import mock

import pytest

from seq2seq.config.errors import MAX_SHOWN, ConfigIssue, summary
from seq2seq.config.fields import Shorthand, section_at
from seq2seq.config.schema import Config, ConfigError, load_config
from seq2seq.config.suggestions import _COMMON_NAMES, key_descriptions, suggest_override

MINIMAL = """\
name: tiny
run_dir: runs/tiny
data: {src_lang: en, tgt_lang: de, train: {file: a.tsv}, valid: {file: b.tsv}}
training: {max_epochs: 3}
"""
KNOWN = dict(key_descriptions(Config))


def refusal(folder: Path, overrides: tuple[str, ...] = (), sections: str = "") -> list[str]:
    path = folder / "c.yaml"
    path.write_text(MINIMAL + sections, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]


def reason(folder: Path, key: str, value: str = "1") -> str:
    """Return the message for a key given on the command line."""
    (line,) = refusal(folder, (f"{key}={value}",))
    assert line.startswith(f"{key.split('=')[0]} (override): unknown key"), line
    return line.partition("unknown key")[2]


@pytest.mark.parametrize("key", ["5", "data.5", "model.12", "data.train.1", "data.train.1.weight"])
def test_a_number_is_an_unknown_key_without_a_hint(tmp_path: Path, key: str) -> None:
    """The key is not taken for an index, since the config here has no list."""
    (line,) = refusal(tmp_path, (f"{key}=3",))
    assert line == f"{key.removesuffix('.weight')} (override): unknown key"
    assert refusal(tmp_path, sections="7: 8\n") == ["5: 7: unknown key"]


def test_common_names_of_other_tools_lead_to_existing_keys(tmp_path: Path) -> None:
    assert set(_COMMON_NAMES.values()) <= KNOWN.keys()
    names_of_keys = {key.rpartition(".")[2] for key in KNOWN}
    for name, ours in _COMMON_NAMES.items():
        assert name not in names_of_keys
        assert reason(tmp_path, f"training.{name}") == f"; did you mean '{ours}' ({KNOWN[ours]})?"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("training.hidden_size", "'model.hidden_size'"),  # another section
        ("training.seed", "'seed'"),
        ("batch_tokens", "'training.batch_tokens'"),
        ("model.max_length", "'data.max_length' or 'decoding.max_length'"),
        ("training.train", "'data.train'"),
        ("training.batch-tokens", "'batch_tokens'"),  # another form of the name
        ("model.hiddenSize", "'hidden_size'"),
        ("training.Patience", "'patience'"),
        ("training.patinece", "'patience'"),  # similar spelling
        ("training.max_step", "'max_steps'"),
        ("modle", "'model'"),
        ("model.beam_sizes", "'decoding.beam_size'"),
        ("data.max_lenght", "'max_length'"),
        ("trainig", "'training'"),
        ("training.maxsteps", "'max_steps'"),
        ("training.warm_up_steps", "'warmup_steps'"),
        ("model.hidden_sz", "'hidden_size'"),
        ("hiden", "'model.hidden_size'"),  # its first word
        ("length", "'decoding.length_penalty'"),
        ("decoding.lenght_penalty", "'length_penalty'"),
        ("data.train.scr", "'src'"),  # two letters exchanged
        ("training.epoch", "'training.max_epochs'"),  # as other tools call it, nearly
    ],
)
def test_misplaced_or_misspelt_keys_are_recognized(tmp_path: Path, key: str, hint: str) -> None:
    assert reason(tmp_path, key) == f"; did you mean {hint}?"


@pytest.mark.parametrize(
    "key",
    ["model.xyz", "training.rate", "data.name", "size", "type", "training.alpha", "model.output"],
)
def test_dissimilar_keys_get_no_hint(tmp_path: Path, key: str) -> None:
    assert reason(tmp_path, key) == ""


def test_a_dotted_key_in_the_file_belongs_below_its_section(tmp_path: Path) -> None:
    lines = refusal(tmp_path, sections="model.dropout: 0.1\n")
    assert lines == ["5: model.dropout: unknown key; write dropout below the section model"]


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", ["{i}", "training{i}", "lerning_{i}"])
def test_many_errors_are_counted_without_computing_every_hint(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = mock.Mock(side_effect=difflib.get_close_matches)
    monkeypatch.setattr(difflib, "get_close_matches", compared)
    calls = []
    for error_count in (1_000, 4_000):
        compared.reset_mock()
        lines = refusal(
            tmp_path, sections="".join(f"x{suffix.format(i=i)}: 1\n" for i in range(error_count))
        )
        assert len(lines) == MAX_SHOWN + 1
        assert lines[0].startswith("5: x")
        assert lines[-1] == f" ... and {error_count - MAX_SHOWN:,} more errors"
        calls.append(compared.call_count)
    assert calls[0] == calls[1]


def test_a_long_name_is_shortened(tmp_path: Path) -> None:
    (line,) = refusal(tmp_path, sections=f"{'a' * 500_000}: 1\n")
    assert len(line) < 150


def test_an_error_in_an_override_is_printed_among_many_errors(tmp_path: Path) -> None:
    text = "".join(f"x{i}: 1\n" for i in range(100))
    lines = refusal(tmp_path, ("model.dropout=2",), text)
    assert len(lines) == MAX_SHOWN + 1
    assert any(line.startswith("model.dropout (override): must be") for line in lines)


def test_an_option_that_is_a_key_is_recognized() -> None:
    text = "; keys of the config are set without dashes: "
    assert suggest_override("--lr", Config) == f"{text}training.learning_rate=VALUE"
    assert suggest_override("--hidden_size=3", Config) == f"{text}model.hidden_size=VALUE"
    assert suggest_override("--model.dropout", Config) == f"{text}model.dropout=VALUE"
    assert suggest_override("--seed", Config) == f"{text}seed=VALUE"
    assert suggest_override("--batch-size=3", Config) == f"{text}training.batch_tokens=VALUE"
    assert suggest_override("--xyz", Config) == suggest_override("--train-set", Config) == ""


def test_sections_are_distinguished_from_values() -> None:
    assert section_at(Config, ("data", "test")) is not None
    assert section_at(Config, ("data", "test", "src")) is None


def test_of_many_errors_the_first_ones_of_the_file_are_shown() -> None:
    lines = range(MAX_SHOWN + 2, 0, -1)
    *shown_lines, count_of_others = summary(
        Path("a.yaml"), [ConfigIssue(line, f"error {line}") for line in lines]
    )
    assert shown_lines == [f"a.yaml:{line}: error {line}" for line in range(1, MAX_SHOWN + 1)]
    assert count_of_others == "a.yaml: ... and 2 more errors"


def test_no_value_of_a_shorthand_is_taken_for_a_misspelt_key() -> None:
    """`score: {scaled_dot: 8}` names a value, `score: {nam: dot}` a key."""
    sections = [section_at(Config, tuple(key.split("."))) for key in KNOWN]
    shorthands = [section for section in sections if section and issubclass(section, Shorthand)]
    values = [
        (section, value)
        for section in shorthands
        for single in section.model_json_schema()["anyOf"][:1]
        for choice in (single, *single.get("anyOf", ()))
        for value in choice.get("enum", ())
    ]
    assert len(values) > 20
    for section, value in values:
        assert isinstance(expanded := section.expand({value: 1}), dict)
        assert value in expanded.values()


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("model.score.nam=dot", "model.score (override): has no key nam; did you mean 'name'?"),
        (
            "training.optimizer.weigth_decay=0.1",
            "training.optimizer (override): has no key weigth_decay; did you mean 'weight_decay'?",
        ),
    ],
)
def test_a_misspelt_key_of_a_shorthand(override: str, text: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, (override,)) == [text]
