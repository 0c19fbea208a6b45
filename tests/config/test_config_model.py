"""Keys of the model: defaults that depend on the decoder, notes, and refusals."""

import re
from pathlib import Path

import pytest
from cases.configs import MINIMAL, errors_in, load, write_config

from seq2seq.config.model import LayersConfig
from seq2seq.config.schema import (
    ModelConfig,
    changed_keys,
    dump_config,
    load_config,
    read_config_file,
)


def test_heads_divide_the_attention_size(tmp_path: Path) -> None:
    sections = (
        "model: {decoder: luong, score: {scaled_dot: 4}, hidden_size: 30, attention_size: 15}"
    )
    (line,) = errors_in(tmp_path, sections)
    assert line.endswith(
        "model.attention_size: must be a multiple of the 4 heads of {scaled_dot: 4}; got 15"
    )
    (line,) = errors_in(tmp_path, sections.replace(", attention_size: 15", ""))
    assert line.endswith(
        "model: attention_size must be a multiple of the 4 heads of {scaled_dot: 4}; it is 15, "
        "half of hidden_size, by default"
    )


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ("vocabulary: {joint: false}\nmodel: {copy: true}", "copy needs vocabulary.joint: true"),
        ("model: {copy: true, decoder: none}", "needs attention to copy by"),
    ],
)
def test_copying_needs_shared_ids_and_attention(
    tmp_path: Path, sections: str, message: str
) -> None:
    (line,) = errors_in(tmp_path, sections)
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
    config, notes = read_config_file(write_config(tmp_path, MINIMAL + FULL_MODEL), overrides)
    assert [note.partition(":")[0] for note in notes] == [f"model.{key}" for key in ignored]
    assert all("is ignored" in note for note in notes)
    again, no_notes = read_config_file(write_config(tmp_path, dump_config(config)))
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
    path = write_config(tmp_path, MINIMAL + "decoding: {coverage_penalty: 0.2}")
    assert load_config(path).decoding.coverage_penalty == 0.2
    config, (note,) = read_config_file(path, ("model.decoder=none",))
    assert config.decoding.coverage_penalty == 0
    reason = "decoder none has no attention for coverage_penalty"
    assert note == f"decoding.coverage_penalty: 0.2 is ignored: {reason}"
    overrides = ("model.decoder=none", "decoding.coverage_penalty=0.3")
    (line,) = errors_in(tmp_path, overrides=overrides)
    assert line == f"decoding (override): {reason}"


def test_unknown_words_are_not_replaced_without_attention(tmp_path: Path) -> None:
    path = write_config(tmp_path, MINIMAL + "decoding: {replace_unknown: yes}")
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
    assert read_config_file(write_config(tmp_path, dump_config(config))) == (config, [])
    assert changed_keys(config, config) == []
    changes = zip(("encoder", "decoder"), layers, strict=True)
    assert changed_keys(load(tmp_path), config) == [
        f"model.layers.{name}: 1 -> {number}" for name, number in changes if number != 1
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
    assert errors_in(tmp_path, f"model: {model}") == [
        f"line 9: model.{message}" for message in messages
    ]


def test_a_misspelt_score_is_refused_by_every_decoder(tmp_path: Path) -> None:
    (line,) = errors_in(tmp_path, "model: {decoder: none, score: aditive}")
    assert "did you mean 'additive'?" in line


def test_only_a_bidirectional_encoder_needs_an_even_hidden_size(tmp_path: Path) -> None:
    assert load(tmp_path, "model: {hidden_size: 7, encoder: forward}").model.hidden_size == 7


@pytest.mark.parametrize(
    ("keys", "message"),
    [("{cell: rnn}", "cell: must be 'lstm', 'layer_norm_lstm' or 'gru'; got rnn")],
)
def test_wrong_layers_are_refused(tmp_path: Path, keys: str, message: str) -> None:
    assert errors_in(tmp_path, f"model: {keys}") == [f"line 9: model.{message}"]


def test_only_the_bahdanau_decoder_has_a_maxout_layer(tmp_path: Path) -> None:
    path = write_config(tmp_path, f"{MINIMAL}model: {{decoder: luong, maxout: true}}")
    config, notes = read_config_file(path)
    reason = "the maxout layer belongs to decoder bahdanau"
    assert (config.model.maxout, notes) == (False, [f"model.maxout: true is ignored: {reason}"])
    (line,) = errors_in(tmp_path, "model: {decoder: luong}", ("model.maxout=true",))
    assert line == f"model.maxout (override): {reason}; got true"
    assert load(tmp_path, "model: {maxout: true, cell: gru}").model.maxout
