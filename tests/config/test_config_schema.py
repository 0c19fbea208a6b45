"""Config: values, rejected ones and their messages, and what a resumed run may change."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cases.configs import MINIMAL, errors_in, load, refusal, without_path, write_config
from cases.tiers import one_quick
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config.fields import Section, section_class, show_flow
from seq2seq.config.schema import (
    Config,
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
    (line,) = refusal(write_config(tmp_path, MINIMAL), ("run_dir=~/x",))
    assert "run_dir (override): cannot expand '~': no home directory; use an absolute path" in line


def test_a_config_is_frozen(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(tmp_path).model.dropout = 0.5


def keys_below(schema: type[Section], parent: str = "") -> Iterator[str]:
    """Yield every key with a value below a section."""
    for name, info in schema.model_fields.items():
        section = section_class(info.annotation)
        yield from (
            [f"{parent}{name}"] if section is None else keys_below(section, f"{parent}{name}.")
        )


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
    assert read_config_file(write_config(tmp_path, dump_config(config))) == (config, [])


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
    for other_overrides in ((), ("model.dropout=0.1",)):
        lines = errors_in(tmp_path, "", (f"model.layers={value}", *other_overrides))
        assert all("(override): " in line and reason in line for line in lines)


def test_batches_per_step_are_a_key(tmp_path: Path) -> None:
    text = MINIMAL.replace("max_epochs: 3", "max_epochs: 3, batch_tokens: 300")
    config = load_config(write_config(tmp_path, text), ("training.accumulate=4",))
    assert (config.training.batch_tokens, config.training.accumulate) == (300, 4)
    assert changed_keys(load_config(write_config(tmp_path, text)), config) == [
        "training.accumulate: 1 -> 4"
    ]


LISTS = ("compare-",)  # variants: see test_variants.py


RUNS = sorted(path for path in SHIPPED.glob("*.yaml") if not path.stem.startswith(LISTS))


def test_every_shipped_config_is_valid() -> None:
    assert len(RUNS) > 20
    for path in RUNS:
        config, notes = read_config_file(path)
        assert (notes, config.name) == ([], path.stem)
        assert config.run_dir == Path("runs") / path.stem
        assert config.training.precision in ("auto", "float32")  # bf16 may be emulated


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
    path = write_config(tmp_path, text)
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
    assert read_config_file(write_config(tmp_path, dump_config(config))) == (config, [])
    assert changed_keys(config, config) == []
    assert changed_keys(load(tmp_path), config) == ["vocabulary.symbols: [] -> [<2fr>, '>>de<<']"]


def test_the_size_is_a_number_or_auto(tmp_path: Path) -> None:
    config = load(tmp_path, "vocabulary: {size: auto}")
    assert config.vocabulary.size is None
    assert load(tmp_path, overrides=("vocabulary.size=auto",)) == config
    assert read_config_file(write_config(tmp_path, dump_config(config))) == (config, [])
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
    single_model = load(tmp_path, "vocabulary: {model: a.model}")
    assert single_model.vocabulary.model == (Path("a.model"),)
    pair = ("vocabulary.joint=false", "vocabulary.model=a.model, b.model")
    assert load(tmp_path, overrides=pair).vocabulary.model == (Path("a.model"), Path("b.model"))
    assert read_config_file(write_config(tmp_path, dump_config(single_model))) == (single_model, [])
    assert changed_keys(single_model, load(tmp_path, overrides=("vocabulary.model=b.model",))) == []
    assert with_paths(single_model, Path.absolute).vocabulary.model == (Path("a.model").absolute(),)
    (line,) = errors_in(tmp_path, "vocabulary: {model: [a.model, b.model]}")
    assert "joint: must be false with two models; a joint vocabulary has one" in line
    (line,) = errors_in(tmp_path, overrides=("vocabulary.model=a,b,c", "vocabulary.joint=false"))
    assert "vocabulary.model (override): must be at most 2" in line


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_subword_vocabularies_may_sample(tmp_path: Path, kind: str) -> None:
    assert load(tmp_path, f"vocabulary: {{type: {kind}, sampling: 1}}").vocabulary.sampling == 1


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
    (line,) = refusal(write_config(tmp_path, text))
    assert line.endswith(f"{key}: must not be empty")


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
            keys_of_section = keys_of(complete, definitions)
            yield from ((f"{key}.{name}", entry) for name, entry in keys_of_section)
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
    path = write_config(tmp_path, block.replace("tgt: FILE", "tgt: OTHER"))
    config = load_config(path, ("training.max_epochs=3",))
    minimal = load(tmp_path)
    for name in ("seed", "vocabulary", "model", "training", "decoding"):
        assert getattr(config, name) == getattr(minimal, name)
    assert (config.data.test, config.data.max_length) == (None, minimal.data.max_length)
    tree = yaml.safe_load(block)
    dumped = yaml.safe_load(dump_config(config))
    assert tree.keys() == dumped.keys()
    for name in ("data", "vocabulary", "model", "training", "decoding"):
        assert tree[name].keys() == dumped[name].keys()


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
    free_keys = (
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
    assert changed_keys(load(tmp_path), load(tmp_path, overrides=free_keys)) == []


def test_the_length_of_training_matters_to_a_decaying_learning_rate(tmp_path: Path) -> None:
    old = load(tmp_path, overrides=("training.decay=linear",))
    longer_training = ("training.decay=linear", "training.max_epochs=4", "training.max_minutes=7")
    new = load(tmp_path, overrides=longer_training)
    assert changed_keys(old, new) == ["training.max_epochs: 3 -> 4"]
