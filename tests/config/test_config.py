"""Config: values, rejected configs and their messages, and what a resumed run may change."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cases.configs import MINIMAL
from cases.tiers import one_quick
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config.document import read_document
from seq2seq.config.fields import Section, section_class, show_flow
from seq2seq.config.model import DropoutConfig, LayersConfig
from seq2seq.config.schema import (
    Config,
    ConfigError,
    Corpus,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    ParallelFiles,
    TrainingConfig,
    VocabularyConfig,
    changed_keys,
    dump_config,
    json_schema,
    load_config,
    read_config_file,
    with_paths,
)
from seq2seq.config.training import MetricConfig

SHIPPED = Path(__file__).resolve().parents[2] / "configs"


def write(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def load(folder: Path, more: str = "", overrides: tuple[str, ...] = ()) -> Config:
    config, notes = read_config_file(write(folder, MINIMAL + more), overrides)
    assert notes == []
    return config


def refusal(path: Path, overrides: tuple[str, ...] = ()) -> list[str]:
    """Return the lines of the message, one for each error."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value).splitlines()


def errors_in(folder: Path, more: str = "", overrides: tuple[str, ...] = ()) -> list[str]:
    path = write(folder, MINIMAL + more)
    return [without_path(path, line) for line in refusal(path, overrides)]


def without_path(path: Path, line: str) -> str:
    """Return a line of the message with `FILE:5: ...` as `line 5: ...`."""
    place = re.compile(rf"{re.escape(str(path))}:(?:(\d+):)? ")
    return place.sub(lambda match: f"line {match[1]}: " if match[1] else "", line, count=1)


# ----------------------------------------------------------------------------------------- values


def test_a_minimal_file_gets_every_default(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert config.data.train == (Corpus(src=Path("train.en"), tgt=Path("train.de")),)
    assert config.data.test is None
    assert (config.vocabulary, config.model) == (VocabularyConfig(), ModelConfig())
    assert (config.training, config.decoding) == (TrainingConfig(max_epochs=3), DecodingConfig())


def test_an_unknown_home_folder_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate a container whose user id belongs to no user."""

    def unknown(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    assert load(tmp_path, overrides=("run_dir=~/x",)).run_dir == Path("~/x").expanduser()
    monkeypatch.setattr(Path, "expanduser", unknown)
    (line,) = refusal(write(tmp_path, MINIMAL), ("run_dir=~/x",))
    assert "run_dir (override): cannot expand '~': no home directory; use an absolute path" in line


@pytest.mark.parametrize("text", ["3e-4", "0.0003", "3.0E-04", ".0003"])
def test_floats_need_no_decimal_point(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, overrides=(f"training.learning_rate={text}",)).training.learning_rate == (
        pytest.approx(3e-4, rel=1e-12)
    )


@pytest.mark.parametrize("text", ["4000", "4e3", "4000.0", "'4000'"])
def test_integers_may_be_written_as_floats(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, f"vocabulary: {{size: {text}}}").vocabulary.size == 4000


@pytest.mark.parametrize("seed", [2**53 + 1, 2**63 - 1])
def test_large_integers_keep_every_digit(tmp_path: Path, seed: int) -> None:
    assert load(tmp_path, f"seed: {seed}").seed == seed


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("Yes", True), ("on", True), ("FALSE", False), ("no", False)],
)
def test_flags_are_words(tmp_path: Path, text: str, value: bool) -> None:
    assert load(tmp_path, f"vocabulary: {{joint: {text}}}").vocabulary.joint is value


@pytest.mark.parametrize("code", ["no", "on", "null-ish", "1e3", "010", "2024-01-01", "12:30"])
def test_text_is_kept_as_written(tmp_path: Path, code: str) -> None:
    text = MINIMAL.replace("src_lang: en", f"src_lang: {code}")
    config = load_config(write(tmp_path, text), (f"data.tgt_lang={code}",))
    assert (config.data.src_lang, config.data.tgt_lang) == (code, code)


@pytest.mark.parametrize("null", ["", "~", "null"])
def test_null_is_none_and_none_is_a_word(tmp_path: Path, null: str) -> None:
    more = f"decoding: {{max_length: {null}}}\nmodel:\n  decoder: none\nvocabulary:\n"
    config = load(tmp_path, more, (f"training.max_steps={null}",))
    assert config.decoding.max_length is None
    assert config.training.max_steps is None
    assert config.model.decoder == "none"
    assert config.vocabulary == VocabularyConfig()


def test_quoted_null_is_text(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, MINIMAL.replace("tiny", "'null'", 1)))
    assert config.name == "null"


def test_the_last_override_wins(tmp_path: Path) -> None:
    overrides = ("model.dropout=0.1", "data.test.file=a=b.tsv", "model.dropout = 0.2", "seed=7")
    config = load(tmp_path, "model: {dropout: 0.5}", overrides)
    assert (config.model.dropout.hidden, config.seed) == (0.2, 7)
    assert config.data.test == ParallelFiles(file=Path("a=b.tsv"))


def test_an_override_may_replace_an_invalid_value(tmp_path: Path) -> None:
    config = load(tmp_path, "model: {dropout: high}", ("model.dropout=0.1",))
    assert config.model.dropout == DropoutConfig(embedding=0.1, hidden=0.1, output=0.1)


def test_windows_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load_config(path) == load(tmp_path)


@pytest.mark.parametrize("key", ["name", "run_dir", "data.train.src"])
def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path, key: str) -> None:
    """The command line can contain such text, but a config file cannot."""
    with pytest.raises(ConfigError, match=rf"{key} \(override\): is not UTF-8; use"):
        load(tmp_path, "", (f"{key}=a\udcffb",))


def test_a_config_is_frozen(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(tmp_path).model.dropout = 0.5


def test_heads_divide_the_attention_size(tmp_path: Path) -> None:
    more = "model: {decoder: luong, score: {scaled_dot: 4}, hidden_size: 30, attention_size: 15}"
    (line,) = errors_in(tmp_path, more)
    assert line.endswith(
        "model.attention_size: must be a multiple of the 4 heads of {scaled_dot: 4}; got 15"
    )
    (line,) = errors_in(tmp_path, more.replace(", attention_size: 15", ""))
    assert line.endswith(
        "model: attention_size must be a multiple of the 4 heads of {scaled_dot: 4}; it is 15, "
        "half of hidden_size, by default"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("vocabulary: {joint: false}\nmodel: {copy: true}", "copy needs vocabulary.joint: true"),
        ("model: {copy: true, decoder: none}", "needs attention to copy by"),
    ],
)
def test_copying_needs_shared_ids_and_attention(tmp_path: Path, more: str, message: str) -> None:
    (line,) = errors_in(tmp_path, more)
    assert message in line
    assert re.match(r"line \d+: model", line)
    for decoder in ("bahdanau", "luong"):
        assert (
            load(tmp_path, "", ("model.copy=true", f"model.decoder={decoder}")).model.copy is True
        )


def test_the_coverage_loss_needs_the_score(tmp_path: Path) -> None:
    (line,) = errors_in(tmp_path, "", ("training.losses.coverage=1",))
    assert "losses: coverage needs model.score: coverage" in line
    config = load(tmp_path, "model: {score: coverage}", ("training.losses.coverage=0.5",))
    assert config.training.losses.coverage == 0.5


def keys_below(schema: type[Section], above: str = "") -> Iterator[str]:
    """Yield every key with a value below a section."""
    for name, info in schema.model_fields.items():
        section = section_class(info.annotation)
        yield from [f"{above}{name}"] if section is None else keys_below(section, f"{above}{name}.")


def keys_with_a_value() -> list[str]:
    """List every key with a value; the keys of a corpus once, although three splits have them."""
    return [key for key in keys_below(Config) if not key.startswith(("data.valid.", "data.test."))]


def test_keys_with_a_value_are_listed_once() -> None:
    keys = keys_with_a_value()
    assert {"name", "data.max_length", "data.train.weight", "model.layers.encoder"} <= {*keys}
    assert len(keys) == len({*keys})


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.optimizer={adamw: 0.01}", {"name": "adamw", "weight_decay": 0.01}),
        ("training.optimizer=sgd", {"name": "sgd", "weight_decay": 0.0}),
        ("training.optimizer={weight_decay: 0.1}", {"name": "adam", "weight_decay": 0.1}),
        ("training.decay={plateau: 0.7}", {"name": "plateau", "factor": 0.7}),
        ("training.decay=plateau", {"name": "plateau", "factor": 0.5}),
        ("training.metric={chrf: 2}", {"name": "chrf", "min_improvement": 2.0}),
        ("training.scheduled_sampling={linear: 9}", {"schedule": "linear", "steps": 9}),
        ("vocabulary.names={invented: 0.3}", {"kind": "invented", "rate": 0.3, "list": None}),
        (
            "vocabulary.names={placeholders: names.txt}",
            {"kind": "placeholders", "rate": 0.5, "list": "names.txt"},
        ),
        ("model.score={scaled_dot: 8}", {"name": "scaled_dot", "heads": 8}),
        ("model.window={local_p: 5}", {"kind": "local_p", "width": 5}),
    ],
)
def test_a_single_value_or_a_pair_stands_for_a_map(
    tmp_path: Path, override: str, expected: dict[str, object]
) -> None:
    decoder = ("model.decoder=luong", "training.patience=3")
    config = load(tmp_path, "", (*decoder, override))
    key, _, _ = override.partition("=")
    section, _, name = key.partition(".")
    assert getattr(getattr(config, section), name).model_dump() == expected
    assert load(tmp_path, "", (*decoder, f"{key}={show_flow(expected)}")) == config
    assert yaml.safe_load(dump_config(config))[section][name] == expected
    assert read_config_file(write(tmp_path, dump_config(config))) == (config, [])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.decay={cosine: 0.7}", "training.decay (override): factor belongs to plateau"),
        ("vocabulary.names={kind: placeholders, rate: 0.1}", "rate belongs to invented"),
        ("vocabulary.names={kind: invented, list: a.txt}", "belongs to placeholders"),
        ("model.score={dot: 4}", "model.score (override): heads belongs to scaled_dot"),
        ("training.optimizer={name: adam, wieght_decay: 1}", "did you mean 'weight_decay'?"),
        ("training.optimizer={adamw: 1, sgd: 1}", "takes one name, such as {adamw: '1'}"),
        ("training.optimizer={adamv: 1}", "got adamv; did you mean 'adam'?"),
    ],
)
def test_a_wrong_pair_is_refused(tmp_path: Path, override: str, message: str) -> None:
    (line,) = errors_in(tmp_path, "model: {decoder: luong}", (override,))
    assert message in line


def test_the_minimum_improvement_may_change_but_not_the_metric(tmp_path: Path) -> None:
    old = load(tmp_path, "", ("training.metric=chrf",))
    assert changed_keys(old, load(tmp_path, "", ("training.metric={chrf: 1}",))) == []
    changes = changed_keys(old, load(tmp_path, "", ("training.metric={bleu: 1}",)))
    assert changes == ["training.metric.name: chrf -> bleu"]


# --------------------------------------------------------------------- decoder-dependent keys


@pytest.mark.parametrize("window", ["local_m", "local_p"])
def test_a_window_has_the_width_of_luong_by_default(tmp_path: Path, window: str) -> None:
    assert load(tmp_path).model.window is None
    model = load(tmp_path, f"model: {{window: {window}}}").model
    assert model.window is not None
    assert (model.window.kind, model.window.width) == (window, 10)


@pytest.mark.parametrize(
    ("given_keys", "score", "input_feeding", "attention_size"),
    [
        ({}, "additive", None, 7),
        ({"decoder": "luong"}, "general", True, None),
        ({"decoder": "luong", "score": "concat", "input_feeding": False}, "concat", False, 7),
        ({"decoder": "gnmt"}, "additive", None, 7),
        ({"decoder": "gnmt", "score": "dot"}, "dot", None, None),
        ({"decoder": "luong", "score": "scaled_dot", "attention_size": 5}, "scaled_dot", True, 5),
        ({"decoder": "luong", "score": "location"}, "location", True, None),
        ({"score": "normed_additive"}, "normed_additive", None, 7),
        ({"score": "coverage", "attention_size": 4}, "coverage", None, 4),
        ({"decoder": "none"}, None, None, None),
    ],
)
def test_defaults_depend_on_the_decoder(
    given_keys: dict[str, object],
    score: str | None,
    input_feeding: bool | None,
    attention_size: int | None,
) -> None:
    model = ModelConfig.model_validate({"hidden_size": 14, **given_keys})
    assert (model.score and model.score.name) == score
    assert model.input_feeding is input_feeding
    assert model.attention_size == attention_size


FULL_MODEL = (
    "model: {decoder: luong, score: {scaled_dot: 3}, input_feeding: true, attention_size: 6, "
    "window: {local_m: 2}}\n"
)
ALL_IGNORED = ["score", "input_feeding", "window", "attention_size"]


@pytest.mark.parametrize(
    ("overrides", "ignored"),
    [
        (["model.decoder=none"], ALL_IGNORED),
        (["model.decoder=bahdanau"], ["score", "input_feeding"]),
        (["model.score=dot"], ["attention_size"]),
        (["model.dropout=0.1"], []),
    ],
)
def test_keys_of_another_decoder_in_the_file_are_ignored_with_a_note(
    tmp_path: Path, overrides: list[str], ignored: list[str]
) -> None:
    config, notes = read_config_file(write(tmp_path, MINIMAL + FULL_MODEL), overrides)
    assert [note.partition(":")[0] for note in notes] == [f"model.{key}" for key in ignored]
    assert all("is ignored" in note for note in notes)
    again, no_notes = read_config_file(write(tmp_path, dump_config(config)))
    assert (again, no_notes) == (config, [])


@pytest.mark.parametrize(
    ("decoder", "override"),
    [
        ("none", "model.score=additive"),
        ("none", "model.attention_size=4"),
        ("none", "model.window=local_p"),
        ("bahdanau", "model.score=dot"),
        ("bahdanau", "model.input_feeding=false"),
        ("gnmt", "model.input_feeding=true"),
    ],
)
def test_keys_of_another_decoder_on_the_command_line_are_refused(
    tmp_path: Path, decoder: str, override: str
) -> None:
    (line,) = errors_in(tmp_path, FULL_MODEL, (f"model.decoder={decoder}", override))
    key, _, value = override.partition("=")
    assert line.startswith(f"{key} (override): ")
    assert "decoder" in line
    assert line.endswith(f"got {value}")


def test_a_coverage_penalty_without_attention_is_ignored_with_a_note(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL + "decoding: {coverage_penalty: 0.2}")
    assert load_config(path).decoding.coverage_penalty == 0.2
    config, (note,) = read_config_file(path, ("model.decoder=none",))
    assert config.decoding.coverage_penalty == 0
    reason = "decoder none has no attention for coverage_penalty"
    assert note == f"decoding.coverage_penalty: 0.2 is ignored: {reason}"
    overrides = ("model.decoder=none", "decoding.coverage_penalty=0.3")
    (line,) = errors_in(tmp_path, overrides=overrides)
    assert line == f"decoding (override): {reason}"


def test_unknown_words_are_not_replaced_without_attention(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL + "decoding: {replace_unknown: yes}")
    assert load_config(path).decoding.replace_unknown
    config, (note,) = read_config_file(path, ("model.decoder=none",))
    assert not config.decoding.replace_unknown
    reason = "decoder none has no attention for replace_unknown"
    assert note == f"decoding.replace_unknown: true is ignored: {reason}"
    overrides = ("model.decoder=none", "decoding.replace_unknown=true")
    (line,) = errors_in(tmp_path, overrides=overrides)
    assert line == f"decoding (override): {reason}"


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("3", (3, 3)),
        ("{encoder: 1, decoder: 4}", (1, 4)),
        ("{decoder: 4}", (1, 4)),
        ("{encoder: 2, decoder: 2}", (2, 2)),
    ],
)
def test_layers_are_one_number_or_one_for_each_network(
    tmp_path: Path, text: str, layers: tuple[int, int]
) -> None:
    config = load(tmp_path, f"model: {{layers: {text}}}")
    assert config.model.layers == LayersConfig(encoder=layers[0], decoder=layers[1])
    assert load(tmp_path, overrides=(f"model.layers={text}",)) == config
    assert read_config_file(write(tmp_path, dump_config(config))) == (config, [])
    assert changed_keys(config, config) == []
    changes = zip(("encoder", "decoder"), layers, strict=True)
    assert changed_keys(load(tmp_path), config) == [
        f"model.layers.{name}: 1 -> {number}" for name, number in changes if number != 1
    ]


@pytest.mark.parametrize(
    ("file", "override", "expected"),
    [
        ("layers: {encoder: 3, decoder: 2}", "layers.decoder=5", {"encoder": 3, "decoder": 5}),
        ("layers: 3", "layers.decoder=5", {"encoder": 3, "decoder": 5}),
        ("", "layers.decoder=5", {"encoder": 1, "decoder": 5}),
        ("window: local_m", "window.local_p=5", {"kind": "local_p", "width": 5}),
        ("window: {local_m: 3}", "window.local_p=5", {"kind": "local_p", "width": 5}),
        ("window: {local_m: 3}", "window.width=5", {"kind": "local_m", "width": 5}),
        ("dropout: 0.3", "dropout.word=0.1", {"word": 0.1, "embedding": 0.3, "hidden": 0.3}),
    ],
)
def test_an_override_sets_part_of_a_value(
    tmp_path: Path, file: str, override: str, expected: dict[str, object]
) -> None:
    config = load(tmp_path, f"model: {{{file}}}", (f"model.{override}",))
    values = config.model_dump()["model"][override.partition(".")[0]]
    assert {name: values[name] for name in expected} == expected


@one_quick(
    ("value", "reason"),
    [
        ("{encoder: 1, encoder: 2}", "layers.encoder: set twice"),
        ("{" * 5000, "is nested too deeply"),
    ],
)
def test_a_map_in_an_override_is_read_as_strictly_as_in_a_file(
    tmp_path: Path, value: str, reason: str
) -> None:
    for more in ((), ("model.dropout=0.1",)):
        lines = errors_in(tmp_path, "", (f"model.layers={value}", *more))
        assert all("(override): " in line and reason in line for line in lines)


def test_batches_per_step_are_a_key(tmp_path: Path) -> None:
    text = MINIMAL.replace("max_epochs: 3", "max_epochs: 3, batch_tokens: 300")
    config = load_config(write(tmp_path, text), ("training.accumulate=4",))
    assert (config.training.batch_tokens, config.training.accumulate) == (300, 4)
    assert changed_keys(load_config(write(tmp_path, text)), config) == [
        "training.accumulate: 1 -> 4"
    ]


@pytest.mark.parametrize(
    ("model", "messages"),
    [
        ("{layers: 0}", ["layers: must be at least 1; got 0"]),
        ("{layers: {decoder: 65}}", ["layers.decoder: must be at most 64; got 65"]),
        ("{layers: {decodr: 2}}", ["layers.decodr: unknown key; did you mean 'decoder'?"]),
        ("{layers: [1, 2]}", ["layers: must be an integer; got a list"]),
        ("{window: {local_p: 0}}", ["window: must be at least 1; got 0"]),
        ("{window: {local_p: }}", ["window: must be an integer; got null"]),
        ("{window: {local_p: 3, local_m: 3}}", ["window: takes one kind, such as {local_p: '3'}"]),
        (
            "{window: {local: 3}}",
            ["window: must be 'local_m' or 'local_p'; got local; did you mean 'local_p'?"],
        ),
        ("{encoder: bi}", ["encoder: must be 'bidirectional', 'forward' or 'reversed'; got bi"]),
    ],
)
def test_wrong_maps_are_refused_by_key(tmp_path: Path, model: str, messages: list[str]) -> None:
    assert errors_in(tmp_path, f"model: {model}") == [f"line 9: model.{each}" for each in messages]


LISTS = ("compare-",)  # variants: see test_variants.py
RUNS = sorted(path for path in SHIPPED.glob("*.yaml") if not path.stem.startswith(LISTS))


def test_every_shipped_config_is_valid() -> None:
    assert len(RUNS) > 20
    for path in RUNS:
        config, notes = read_config_file(path)
        assert (notes, config.name) == ([], path.stem)
        assert config.run_dir == Path("runs") / path.stem
        assert config.training.precision in ("auto", "float32")  # bf16 may be emulated


def test_a_misspelt_score_is_refused_by_every_decoder(tmp_path: Path) -> None:
    (line,) = errors_in(tmp_path, "model: {decoder: none, score: aditive}")
    assert "did you mean 'additive'?" in line


# -------------------------------------------------------------------------------- rejected configs


def test_all_errors_are_reported_at_once_by_line(tmp_path: Path) -> None:
    text = """\
name: tiny
run_dir: runs/tiny
data:
  src_lang: en
  train: {src: train.en}
  valid: {file: valid.tsv, src: valid.en}
modle: {dropout: 0.1}
model:
  decoder: bahdnau
  hidden_size: 13
  dropuot: 0.1
  beam_size: 4
training:
  max_steps: many
  learning_rate: nan
  batch_tokens: 2.5
  label_smoothing: 1
  log_every: 0
  decay: cosine
vocabulary: {type: word, sampling: 0.1, joint: 1}
decoding: 5
"""
    overrides = ("foo", "model.layers=0", "name.first=x", "seed=1.5", "training.patinece=3")
    path = write(tmp_path, text)
    assert [without_path(path, line) for line in refusal(path, overrides)] == [
        "line 5: data.train: set either src and tgt, or file alone (null unsets a key)",
        "line 6: data.valid.file: set either src and tgt, or file alone (null unsets a key); "
        "got valid.tsv",
        "line 7: modle: unknown key; did you mean 'model'?",
        "line 9: model.decoder: must be 'bahdanau', 'luong', 'gnmt' or 'none'; got bahdnau; "
        "did you mean 'bahdanau'?",
        "line 10: model.hidden_size: must be even with a bidirectional encoder; got 13",
        "line 11: model.dropuot: unknown key; did you mean 'dropout'?",
        "line 12: model.beam_size: unknown key; did you mean 'decoding.beam_size'?",
        "line 14: training.max_steps: must be an integer; got many",
        "line 15: training.learning_rate: must be a finite number; got nan",
        "line 16: training.batch_tokens: must be an integer; got 2.5",
        "line 17: training.label_smoothing: must be less than 1; got 1",
        "line 18: training.log_every: must be at least 1; got 0",
        "line 20: vocabulary.joint: must be true or false; got 1",
        "line 20: vocabulary.sampling: must be 0 with type word, which has a single "
        "segmentation; got 0.1",
        "line 21: decoding: must be a section with keys; got 5",
        "foo (override): expected section.key=value, such as model.dropout=0.2",
        "name.first=x (override): name has a single value; give it a new one",
        "seed (override): must be an integer; got 1.5",
        "data.tgt_lang: required key is missing",
        "model.layers (override): must be at least 1; got 0",
        "training.patinece (override): unknown key; did you mean 'patience'?",
    ]
    assert refusal(path, overrides)[0].startswith(f"{path}:5: data.train: set either")


def test_training_must_end(tmp_path: Path) -> None:
    (line,) = errors_in(tmp_path, overrides=("training.max_epochs=null",))
    assert line.endswith("training: set at least one of max_epochs, max_steps and max_minutes")
    assert load(tmp_path, overrides=("training.max_epochs=~", "training.max_minutes=0.5"))


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_a_decay_may_use_any_limit_of_training(tmp_path: Path, decay: str) -> None:
    by_time = ("training.max_epochs=null", "training.max_minutes=9", f"training.decay={decay}")
    assert load(tmp_path, overrides=by_time).training.decay.name == decay
    assert (
        load(tmp_path, overrides=(*by_time, "training.max_steps=10")).training.decay.name == decay
    )


def test_a_plateau_needs_patience(tmp_path: Path) -> None:
    (line,) = errors_in(tmp_path, overrides=("training.decay=plateau",))
    assert "training: decay plateau needs patience" in line
    settings = load(tmp_path, overrides=("training.decay=plateau", "training.patience=2")).training
    assert settings.decay.factor == 0.5
    assert settings.metric == MetricConfig(name="bleu", min_improvement=0)
    for wrong in ("decay.plateau=1", "decay.plateau=-1", "metric=ter", "metric.bleu=-1"):
        assert errors_in(tmp_path, overrides=(f"training.{wrong}",))


def test_scheduled_sampling_needs_both_its_keys(tmp_path: Path) -> None:
    (line,) = errors_in(tmp_path, overrides=("training.scheduled_sampling=linear",))
    assert line == "training.scheduled_sampling.steps: required key is missing"


@pytest.mark.parametrize(
    ("symbols", "reason"),
    [
        ("<s>", "<s> is a special token of every vocabulary; rename it"),
        ("<0xAB>", "<0xAB> is a special token of every vocabulary; rename it"),
        ("'<a b>'", "'<a b>' must be visible characters without a space"),
        ("<a\u2581b>", "'<a\u2581b>' must be visible characters without a space"),
        ("<\ufdd0>", r"'<\ufdd0>' must be visible characters without a space"),
        ("<e\u0301>", "<e\u0301> is not in Unicode's form NFC, in which text is read"),
        ("<a>, <b>, <a>", "<a> occurs twice; remove one"),
    ],
)
def test_wrong_symbols_are_refused(tmp_path: Path, symbols: str, reason: str) -> None:
    (line,) = errors_in(tmp_path, overrides=(f"vocabulary.symbols={symbols.strip(chr(39))}",))
    assert line.startswith(f"vocabulary.symbols (override): {reason}; got ")
    if symbols.isprintable():
        (line,) = errors_in(tmp_path, f"vocabulary: {{symbols: [{symbols}]}}")
        assert line == f"line 9: vocabulary.symbols: {reason}; got a list"


def test_symbols_are_a_list_or_separated_by_commas(tmp_path: Path) -> None:
    config = load(tmp_path, "vocabulary: {symbols: [<2fr>, '>>de<<']}")
    assert config.vocabulary.symbols == ("<2fr>", ">>de<<")
    assert load(tmp_path, overrides=("vocabulary.symbols=<2fr>, >>de<<",)) == config
    assert read_config_file(write(tmp_path, dump_config(config))) == (config, [])
    assert changed_keys(config, config) == []
    assert changed_keys(load(tmp_path), config) == ["vocabulary.symbols: [] -> [<2fr>, '>>de<<']"]


def test_the_size_is_a_number_or_auto(tmp_path: Path) -> None:
    config = load(tmp_path, "vocabulary: {size: auto}")
    assert config.vocabulary.size is None
    assert load(tmp_path, overrides=("vocabulary.size=auto",)) == config
    assert read_config_file(write(tmp_path, dump_config(config))) == (config, [])
    numbered = load(tmp_path, "vocabulary: {size: 8000}")
    assert changed_keys(numbered, config) == ["vocabulary.size: 8000 -> auto"]
    for wrong, reason in (
        ("null", "must be an integer, or auto"),
        ("many", "must be an integer; got many"),
        ("15", "must be at least 16; got 15"),
    ):
        (line,) = errors_in(tmp_path, overrides=(f"vocabulary.size={wrong}",))
        assert reason in line


def test_models_are_one_or_a_pair_and_may_be_moved(tmp_path: Path) -> None:
    one = load(tmp_path, "vocabulary: {model: a.model}")
    assert one.vocabulary.model == (Path("a.model"),)
    pair = ("vocabulary.joint=false", "vocabulary.model=a.model, b.model")
    assert load(tmp_path, overrides=pair).vocabulary.model == (Path("a.model"), Path("b.model"))
    assert read_config_file(write(tmp_path, dump_config(one))) == (one, [])
    assert changed_keys(one, load(tmp_path, overrides=("vocabulary.model=b.model",))) == []
    assert with_paths(one, Path.absolute).vocabulary.model == (Path("a.model").absolute(),)
    (line,) = errors_in(tmp_path, "vocabulary: {model: [a.model, b.model]}")
    assert "joint: must be false with two models; a joint vocabulary has one" in line
    (line,) = errors_in(tmp_path, overrides=("vocabulary.model=a,b,c", "vocabulary.joint=false"))
    assert "vocabulary.model (override): must be at most 2" in line


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_subword_vocabularies_may_sample(tmp_path: Path, kind: str) -> None:
    assert load(tmp_path, f"vocabulary: {{type: {kind}, sampling: 1}}").vocabulary.sampling == 1


def test_only_a_bidirectional_encoder_needs_an_even_hidden_size(tmp_path: Path) -> None:
    assert load(tmp_path, "model: {hidden_size: 7, encoder: forward}").model.hidden_size == 7


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", ".inf", "1e400", "-0.1", "fast", "[1]"])
def test_numbers_must_be_finite(tmp_path: Path, number: str) -> None:
    (line,) = errors_in(tmp_path, f"decoding: {{length_penalty: {number}}}")
    assert line.startswith("line 9: decoding.length_penalty: must be")


@pytest.mark.parametrize(
    ("key", "value"),
    [("name", "tiny"), ("run_dir", "runs/tiny"), ("src_lang", "en"), ("src", "train.en")],
)
def test_text_and_file_names_must_not_be_empty(tmp_path: Path, key: str, value: str) -> None:
    text = MINIMAL.replace(f"{key}: {value}", f"{key}: ''")
    (line,) = refusal(write(tmp_path, text))
    assert line.endswith(f"{key}: must not be empty")


def test_a_key_set_twice_is_refused(tmp_path: Path) -> None:
    (line,) = errors_in(tmp_path, "model:\n  dropout: 0.1\n  layers: 2\n  dropout: 0.3\n")
    assert line == "line 12: model.dropout: set twice, first on line 10; remove one of the two"


@pytest.mark.parametrize(
    "value", ["!!python/object/apply:os.system [touch x]", "!!python/name:os.system", "!mine 3"]
)
def test_yaml_tags_are_refused_and_not_executed(tmp_path: Path, value: str) -> None:
    (line,) = errors_in(tmp_path, f"seed: {value}\n")
    assert line.startswith("line 9: seed: the tag !")
    assert "write the value itself" in line


@pytest.mark.parametrize("more", ["model: &m {dropout: 0.1}\nvocabulary: *m", "model: &m {x: *m}"])
def test_aliases_are_refused(tmp_path: Path, more: str) -> None:
    (line,) = errors_in(tmp_path, more)
    assert "aliases (*) are not supported" in line


def test_syntax_errors_are_reported_by_position_with_wrong_overrides(tmp_path: Path) -> None:
    lines = errors_in(tmp_path, "model: {dropout: 0.1\nseed: 3", ("model.dropuot=1", "foo"))
    assert len(lines) == 3
    assert lines[0].startswith("line 10: column 5: invalid YAML: ")
    assert lines[1].startswith("foo (override): ")
    assert lines[2].startswith("model.dropuot (override): unknown key")


@pytest.mark.parametrize(
    ("wrong", "right", "line"),
    [
        ("a:\n\tb: 1\n", "a:\n  b: 1\n", 2),
        ("a: \tb: c\n", "a:  c\n", 1),
        ("a: b: c}\n", "a: {b: c}\n", 1),
        ("a: {b: 1\nc: 2\n", "a: {b: 1}\nc: 2\n", 2),
        ("a: [1, 2\nb: 3\n", "a: [1, 2]\nb: 3\n", 2),
        ('a: "x\n', 'a: "x"\n', 2),
        ("a: @x\n", "a: '@x'\n", 1),
        ("a: *x\n", "a: '*x'\n", 1),
        ('a: "\\d"\n', "a: '\\d'\n", 1),
        ("a:\n  b: 1\n c: 2\n", "a:\n  b: 1\n  c: 2\n", 3),
        ("a: {b: 1}}\n", "a: {b: 1}\n", 1),
        ("  a: 1\nb: 2\n", "a: 1\nb: 2\n", 2),
        ("a: x\nb y\nc: 1\n", "a: x\nb: y\nc: 1\n", 3),
    ],
)
def test_a_syntax_error_is_reported_with_its_line(
    tmp_path: Path, wrong: str, right: str, line: int
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(wrong, encoding="utf-8")
    (issue,) = read_document(path).issues
    assert issue.line == line
    assert "see also the line before" in issue.text or "begins with a tab" in issue.text
    path.write_text(right, encoding="utf-8")
    assert read_document(path).issues == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"# nothing yet\n", "the file is empty"),
        (b"- a\n- b\n", "the top level is not a mapping"),
        (b"text\n", "the top level is not a mapping"),
        (b"a: 1\n--- \nb: 2\n", "invalid YAML"),
        (b"a: \x01\n", "invalid YAML"),
        (b"a: \tb: c\n\t", "invalid YAML"),
    ],
)
def test_a_file_that_is_not_a_config_is_one_error(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    (line,) = refusal(path)
    assert line.startswith(f"{path}:")
    assert reason in line


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("  ", "\u00a0 ", "begins with a no-break space; indent with spaces"),
        ("  ", "\t", "begins with a tab; indent with spaces"),
        ("  ", "\u3000", "begins with an ideographic space; indent with spaces"),
    ],
)
def test_an_indent_that_is_no_space_is_named(
    old: str, new: str, reason: str, tmp_path: Path
) -> None:
    text = MINIMAL.replace(f"\n{old}", f"\n{new}", 1)
    assert text != MINIMAL
    (line,) = refusal(write(tmp_path, text))
    assert line.endswith(reason)


@pytest.mark.parametrize("marks", ["\u2018\u2019", "\u201c\u201d", "\u201e\u201c", "\u00ab\u00bb"])
def test_quotation_marks_of_a_word_processor_are_named(marks: str, tmp_path: Path) -> None:
    text = re.sub("^name: (.*)$", f"name: {marks[0]}a b{marks[1]}", MINIMAL, flags=re.MULTILINE)
    assert text != MINIMAL
    (line,) = refusal(write(tmp_path, text))
    assert f"name: {marks[0]}a b{marks[1]} is within curly quotation marks; use ' or \"" in line


def test_a_missing_file_is_reported_with_a_similar_name(tmp_path: Path) -> None:
    write(tmp_path, MINIMAL)
    (line,) = refusal(tmp_path / "rum.yaml")
    hint = f"did you mean '{tmp_path / 'run.yaml'}'?"
    assert line == f"{tmp_path / 'rum.yaml'}: no such file; {hint}"
    (line,) = refusal(tmp_path / "no-folder" / "run.yaml")
    assert line.endswith(f"no such file; the folder {tmp_path / 'no-folder'} does not exist")


def test_a_folder_is_not_a_config(tmp_path: Path) -> None:
    (line,) = refusal(tmp_path)
    assert line == f"{tmp_path}: is a folder, not a config file"


def test_another_encoding_is_reported_by_line(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"name: tiny\n# caf\xe9\n")
    (line,) = refusal(path)
    assert line == f"{path}:2: byte 0xe9 is not UTF-8; save the file as UTF-8"


# --------------------------------------------------------------------------------------- round trip


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@settings(deadline=None, max_examples=60)
@given(
    name=names | st.sampled_from(["null", "~", "no", "007", "1e3", "- a", "a: b", "#x", "'", "\n"]),
    folder=names.filter(lambda name: "\\" not in name and "\0" not in name) | st.just("\x85"),
    decoder=st.sampled_from(["bahdanau", "luong", "none"]),
    rate=st.floats(min_value=1e-300, max_value=1e300),
    dropout=st.floats(min_value=0, max_value=1, exclude_max=True),
    flag=st.booleans(),
    steps=st.none() | st.integers(1, 10**30),
)
def test_a_dumped_config_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    folder: str,
    decoder: str,
    rate: float,
    dropout: float,
    flag: bool,
    steps: int | None,
) -> None:
    config = Config(
        name=name,
        run_dir=Path("runs") / folder,
        data=DataConfig(
            src_lang="no",
            tgt_lang="en",
            train=ParallelFiles(src=Path("a.no"), tgt=Path("a.en")),
            valid=ParallelFiles(file=Path(folder)),
        ),
        vocabulary=VocabularyConfig(joint=flag),
        model=ModelConfig.model_validate({"decoder": decoder, "dropout": dropout}),
        training=TrainingConfig(learning_rate=rate, max_steps=steps, max_minutes=2.5),
    )
    path = tmp_path_factory.getbasetemp() / "dumped.yaml"
    path.write_text(dump_config(config), encoding="utf-8", newline="\n")
    assert read_config_file(path) == (config, [])


def test_dumped_keys_keep_the_order_of_the_schema(tmp_path: Path) -> None:
    text = dump_config(load(tmp_path, "seed: 4"))
    tree = yaml.safe_load(text)
    assert list(tree) == list(Config.model_fields)
    assert list(tree["training"]) == list(TrainingConfig.model_fields)
    assert (
        "  train:\n    src: train.en\n    tgt: train.de\n    file: null\n    columns: null\n"
        in text
    )


@pytest.mark.parametrize(
    ("files", "columns"),
    [
        ("a.csv", ["en", "de"]),
        ("a.jsonl.gz", ["en", "de"]),
        ("a.tsv", None),
        ("a.csv.txt", None),
        ("a.CSV.bz2", ["en", "de"]),
    ],
)
def test_named_columns_default_to_the_language_codes(
    tmp_path: Path, files: str, columns: list[str] | None
) -> None:
    unset = ("data.train.src=null", "data.train.tgt=null")
    data = load(
        tmp_path,
        overrides=(*unset, *(f"data.{x}.file={files}" for x in ("train", "valid", "test"))),
    ).data
    for split in (*data.train, data.valid, data.test):
        assert split is not None
        assert split.columns == columns


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.train.columns=a,b", "belongs to file; swap src and tgt to reverse the direction"),
        ("data.valid.columns=a", "give two columns, source and target, such as [english, german]"),
        ("data.valid.columns=a,a", "give two columns, source and target"),
        ("data.valid.columns=1,b", "give two names, or two numbers from 1 on"),
        ("data.valid.columns=0,1", "give two names, or two numbers from 1 on"),
        ("data.valid.columns=1,", "must not be empty"),
    ],
)
def test_wrong_columns_are_refused(tmp_path: Path, override: str, message: str) -> None:
    good = load(tmp_path, overrides=("data.valid.columns=german, english",))
    assert good.data.valid.columns == ["german", "english"]
    (line,) = errors_in(tmp_path, overrides=(override,))
    assert message in line
    assert line.startswith(override.partition("=")[0])


# ----------------------------------------------------------------------------------------- schema


def keys_of(schema: dict[str, Any], definitions: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every key of a JSON schema, dotted within sections, with its value."""
    for key, value in schema["properties"].items():
        references = [
            entry["$ref"] for entry in (value, *value.get("anyOf", ())) if "$ref" in entry
        ]
        for reference in references:
            section = definitions[reference.rpartition("/")[2]]
            value = {"description": section["description"], **section, **value}
            complete = section if "properties" in section else section["anyOf"][-1]
            below = keys_of(complete, definitions)
            yield from ((f"{key}.{name}", entry) for name, entry in below)
        yield key, value


def test_the_json_schema_describes_every_key(tmp_path: Path) -> None:
    schema = json_schema()
    keys = dict(keys_of(schema, schema["$defs"]))
    assert {"run_dir", "data.test.file", "model.score", "training.decay"} <= keys.keys()
    assert [key for key, value in keys.items() if not value.get("description")] == []
    decays = ["constant", "inverse_sqrt", "linear", "cosine", "plateau"]
    single, pair, complete = keys["training.decay"]["anyOf"]
    assert single["enum"] == complete["properties"]["name"]["enum"] == decays
    assert list(pair["properties"]) == ["plateau"]
    assert keys["training.decay"]["default"] == "constant"
    dumped = yaml.safe_load(dump_config(load(tmp_path)))
    for section in ("data", "vocabulary", "model", "training", "decoding"):
        assert {f"{section}.{key}" for key in dumped[section]} <= keys.keys()


def test_the_documentation_lists_every_key_with_its_default(tmp_path: Path) -> None:
    page = SHIPPED.parent / "docs/reference/config.md"
    text = page.read_text(encoding="utf-8")
    block = text.partition("all keys with their defaults:\n\n```yaml\n")[2].partition("```")[0]
    path = write(tmp_path, block.replace("tgt: FILE", "tgt: OTHER"))
    config = load_config(path, ("training.max_epochs=3",))
    minimal = load(tmp_path)
    for name in ("seed", "vocabulary", "model", "training", "decoding"):
        assert getattr(config, name) == getattr(minimal, name)
    assert (config.data.test, config.data.max_length) == (None, minimal.data.max_length)
    tree, dumped = yaml.safe_load(block), yaml.safe_load(dump_config(config))
    assert tree.keys() == dumped.keys()
    for name in ("data", "vocabulary", "model", "training", "decoding"):
        assert tree[name].keys() == dumped[name].keys()


# ------------------------------------------------------------------------------------ changed keys


def test_changes_that_affect_training_are_shown(tmp_path: Path) -> None:
    old = load(tmp_path)
    overrides = ("model.dropout=0.4", "data.src_lang=eng", "training.average=0.99", "seed=5")
    assert changed_keys(old, load(tmp_path, overrides=overrides)) == [
        "seed: 1 -> 5",
        "data.src_lang: en -> eng",
        *(f"model.dropout.{part}: 0.2 -> 0.4" for part in ("embedding", "hidden", "output")),
        "training.average: 0.0 -> 0.99",
    ]


def test_changes_that_do_not_affect_training_are_not_shown(tmp_path: Path) -> None:
    free = (
        "run_dir=elsewhere",
        "data.test.file=test.tsv",
        "data.train.src=b.en",  # the state records checksums of the text
        "data.valid.file=other.tsv",
        "training.save_every=2",
        "training.max_epochs=9",
        "training.max_steps=8",
        "training.max_minutes=7",
        "training.patience=6",
        "training.keep=2",
        "training.log_every=5",
        "decoding.beam_size=4",
        "decoding.max_length=3",
    )
    assert changed_keys(load(tmp_path), load(tmp_path, overrides=free)) == []


def test_the_length_of_training_matters_to_a_decaying_learning_rate(tmp_path: Path) -> None:
    old = load(tmp_path, overrides=("training.decay=linear",))
    longer = ("training.decay=linear", "training.max_epochs=4", "training.max_minutes=7")
    new = load(tmp_path, overrides=longer)
    assert changed_keys(old, new) == ["training.max_epochs: 3 -> 4"]


# ----------------------------------------------------------------------------- training corpora

CORPORA = """\
name: tiny
run_dir: runs/tiny
data:
  src_lang: en
  tgt_lang: de
  train:
    - {src: a.en, tgt: a.de}
    - file: b.csv.gz
      weight: 0.5
      tag: <bt>
  valid: {file: valid.tsv}
training: {max_epochs: 3}
"""


def test_a_list_of_corpora_is_read_and_dumped(tmp_path: Path) -> None:
    config, notes = read_config_file(write(tmp_path, CORPORA))
    first, second = config.data.train
    assert (first.src, first.weight, first.tag) == (Path("a.en"), 1.0, None)
    assert (second.file, second.weight, second.tag) == (Path("b.csv.gz"), 0.5, "<bt>")
    assert second.columns == ["en", "de"]
    assert config.data.tags == ("<bt>",)
    assert config.data.paths() == [Path(x) for x in ("a.en", "a.de", "b.csv.gz", "valid.tsv")]
    assert read_config_file(write(tmp_path, dump_config(config))) == (config, notes)


def test_a_list_of_one_corpus_is_a_corpus(tmp_path: Path) -> None:
    listed = MINIMAL.replace("{src: train.en, tgt: train.de}", "[{src: train.en, tgt: train.de}]")
    assert read_config_file(write(tmp_path, listed)) == (load(tmp_path), [])
    assert changed_keys(load_config(write(tmp_path, listed)), load(tmp_path)) == []


def test_errors_in_a_list_are_reported_by_line_and_index(tmp_path: Path) -> None:
    text = CORPORA.replace("weight: 0.5", "weigth: 2").replace("<bt>", "bt")
    text = text.replace("tgt: a.de", "file: a.tsv, weight: 0")
    path = write(tmp_path, text)
    assert [without_path(path, line) for line in refusal(path, ("data.train.src=x",))] == [
        "line 7: data.train.1.file: set either src and tgt, or file alone (null unsets a key); "
        "got a.tsv",
        "line 7: data.train.1.weight: must be greater than 0; got 0",
        "line 9: data.train.2.weigth: unknown key; did you mean 'weight'?",
        "line 10: data.train.2.tag: must be a name in angle brackets, such as <bt>, but no special "
        "token; got bt",
        "data.train.src=x (override): data.train has a list; change the file",
    ]
    empty = write(tmp_path, MINIMAL.replace("{src: train.en, tgt: train.de}", "[]"))
    assert without_path(empty, refusal(empty)[0]) == (
        "line 6: data.train: give a corpus, or a list of them; got a list"
    )
    weighted = write(tmp_path, MINIMAL.replace("valid.tsv}", "valid.tsv, weight: 2}"))
    assert "data.valid.weight: unknown key" in refusal(weighted)[0]


def test_overrides_replace_a_list_as_it_is(tmp_path: Path) -> None:
    (line,) = refusal(write(tmp_path, CORPORA), ("data.train.2.weight=2",))
    assert line == ("data.train.2.weight=2 (override): data.train has a list; change the file")


@pytest.mark.parametrize("tag", ["bt", "<b t>", "<>", "<a><b>", "<s>", "</s>", "<unk>", "<0xFF>"])
def test_a_tag_that_is_not_a_single_token_is_refused(tmp_path: Path, tag: str) -> None:
    with pytest.raises(ConfigError, match=r"data\.valid\.tag.* must be a name in angle brackets"):
        load(tmp_path, overrides=(f"data.valid.tag={tag}",))
    assert load(tmp_path, overrides=("data.valid.tag=<2de>",)).data.valid.tag == "<2de>"


def test_weights_of_several_corpora_must_not_change(tmp_path: Path) -> None:
    """The state records checksums of the text, which includes the tags."""

    def corpora(*weights: float) -> Config:
        listed = ", ".join(
            f"{{file: {weight}.tsv, weight: {weight}, tag: <t>}}" for weight in weights
        )
        text = MINIMAL.replace("{src: train.en, tgt: train.de}", f"[{listed}]")
        return load_config(write(tmp_path, text))

    old = corpora(1, 0.5)
    assert changed_keys(old, corpora(1, 0.5)) == []
    assert changed_keys(old, corpora(1, 0.25)) == ["data.train.2.weight: 0.5 -> 0.25"]
    paths = with_paths(old, lambda path: tmp_path / path.name)
    assert [each.file for each in paths.data.train] == [tmp_path / "1.tsv", tmp_path / "0.5.tsv"]
    assert paths.data.valid.file == tmp_path / "valid.tsv"
    assert changed_keys(old, paths) == []


# ------------------------------------------------------------------------------- recurrent layers


@pytest.mark.parametrize(
    ("keys", "message"),
    [("{cell: rnn}", "cell: must be 'lstm', 'layer_norm_lstm' or 'gru'; got rnn")],
)
def test_wrong_layers_are_refused(tmp_path: Path, keys: str, message: str) -> None:
    assert errors_in(tmp_path, f"model: {keys}") == [f"line 9: model.{message}"]


def test_only_the_bahdanau_decoder_has_a_maxout_layer(tmp_path: Path) -> None:
    path = write(tmp_path, f"{MINIMAL}model: {{decoder: luong, maxout: true}}")
    config, notes = read_config_file(path)
    reason = "the maxout layer belongs to decoder bahdanau"
    assert (config.model.maxout, notes) == (False, [f"model.maxout: true is ignored: {reason}"])
    (line,) = errors_in(tmp_path, "model: {decoder: luong}", ("model.maxout=true",))
    assert line == f"model.maxout (override): {reason}; got true"
    assert load(tmp_path, "model: {maxout: true, cell: gru}").model.maxout
