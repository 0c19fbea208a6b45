"""Hints for unknown keys: meaning before spelling, and no hint rather than a wrong one."""

import time
from pathlib import Path

import pytest

from seq2seq.config.errors import MAX_SHOWN
from seq2seq.config.fields import section_at
from seq2seq.config.schema import Config, ConfigError, load_config
from seq2seq.config.unknown_keys import key_descriptions, other_tools, suggest_override

MINIMAL = """\
name: tiny
run_dir: runs/tiny
data: {src_lang: en, tgt_lang: de, train: {file: a.tsv}, valid: {file: b.tsv}}
training: {max_epochs: 3}
"""
KNOWN = dict(key_descriptions(Config))
KEYS, ADVICE, SECTIONS, _, _ = other_tools()


def refusal(folder: Path, overrides: tuple[str, ...] = (), more: str = "") -> list[str]:
    path = folder / "c.yaml"
    path.write_text(MINIMAL + more, encoding="utf-8")
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
    assert refusal(tmp_path, more="7: 8\n") == ["5: 7: unknown key"]


def test_the_table_of_names_leads_to_existing_keys() -> None:
    assert len(KEYS) + len(ADVICE) > 400
    assert set(KEYS.values()) | set(SECTIONS.values()) <= KNOWN.keys()
    for key in (key for key in KNOWN if key.count(".") == 1 and not key.startswith("data.t")):
        assert key in KEYS.values() or key in ("data.valid",), f"no other name leads to {key}"
    named = [
        word.strip(",;:")
        for text in set(ADVICE.values())
        for word in text.split()
        if word.strip(",;:").startswith(("training.", "model.", "data.", "vocabulary."))
    ]
    assert named
    assert set(named) <= KNOWN.keys()


def test_no_name_is_in_both_tables_or_a_key_of_this_project() -> None:
    """A key in the wrong section is found by its name, not by its meaning in another tool."""
    assert not KEYS.keys() & ADVICE.keys()
    own = {key.rpartition(".")[2] for key in KNOWN} - {"src", "tgt", "name", "type", "size"}
    for name in {*KEYS, *ADVICE}:
        assert name == name.lower().replace("-", "_")
        section, _, leaf = name.rpartition(".")
        assert name not in KNOWN
        assert section in ("", *KNOWN, "encoder"), section
        assert section or leaf not in own, name


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        # keys that users reported
        ("training.batch_size", "training.batch_tokens"),
        ("vocabulary.vocab_size", "vocabulary.size"),
        ("model.rnn_size", "model.hidden_size"),
        ("model.attention", "model.score"),
        ("training.lr", "training.learning_rate"),
        ("epochs", "training.max_epochs"),
        ("training.fp16", "training.precision"),
        ("training.output_dir", "run_dir"),
        ("training.early_stopping", "training.patience"),
        ("training.grad_clip", "training.clip_norm"),
        ("model.depth", "model.layers"),
        ("model.enc_layers", "model.layers"),
        ("decoding.alpha", "decoding.length_penalty"),
        ("training.teacher_forcing_ratio", "training.scheduled_sampling"),
        # at least one key of each tool
        ("data.dev", "data.valid"),  # Joey NMT
        ("training.validation_freq", "training.validate_every"),
        ("training.accum_count", "training.accumulate"),  # OpenNMT-py
        ("word_vec_size", "model.embedding_size"),
        ("training.max_grad_norm", "training.clip_norm"),
        ("max-update", "training.max_steps"),  # fairseq
        ("decoding.lenpen", "decoding.length_penalty"),
        ("rnn-num-hidden", "model.hidden_size"),  # Sockeye
        ("max-num-checkpoint-not-improved", "training.patience"),
        ("learn-rate", "training.learning_rate"),  # Marian
        ("training.optimizer-delay", "training.accumulate"),
        ("training.perDeviceTrainBatchSize", "training.batch_tokens"),  # Hugging Face
        ("num_train_epochs", "training.max_epochs"),
        ("model.dropout-src", "model.dropout"),
        ("model.rnn_type", "model.cell"),
        ("layer-normalization", "model.cell"),
        ("vocabulary.alpha", "vocabulary.sampling"),  # unlike the length penalty
    ],
)
def test_a_key_of_another_tool_leads_to_the_key_of_that_meaning(
    tmp_path: Path, key: str, ours: str
) -> None:
    assert reason(tmp_path, key) == f"; did you mean '{ours}' ({KNOWN[ours]})?"


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("training.device", "choose the device by the argument device"),
        ("training.use_cuda", "choose the device by the argument device"),
        ("training.resume", "resume by the argument resume"),
        ("training.load_model", "start from another run by the argument init_from"),
        ("training.memory_gb", "a batch that does not fit memory is split"),
        ("training.shuffle", "every epoch shuffles the training pairs; remove it"),
        ("data.src", "data.src_lang and data.tgt_lang name the languages"),
        ("model.ff_size", "it belongs to Transformers"),
        ("training.beta", "Adam's betas"),
        ("decoding.n_best", "give it to `seq2seq translate --n-best N`"),
        ("decoding.batch_size", "only `seq2seq translate` has a batch size"),
    ],
)
def test_a_name_without_a_key_is_answered_with_advice(
    tmp_path: Path, key: str, advice: str
) -> None:
    assert reason(tmp_path, key).startswith(f"; {advice}")


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
        ("data.train.source", "'src'"),
        ("data.valid.trg", "'tgt'"),
        ("training.patinece", "'patience'"),  # similar spelling
        ("training.max_step", "'max_steps'"),
        ("modle", "'model'"),
        ("model.beam_sizes", "'decoding.beam_size'"),
        ("data.max_lenght", "'max_length'"),
        ("trainig", "'training'"),
        ("training.maxsteps", "'max_steps'"),
        ("training.warm_up_steps", "'warmup_steps'"),
        ("model.hidden_sz", "'hidden_size'"),
        ("decoding.lenght_penalty", "'length_penalty'"),
    ],
)
def test_misplaced_or_misspelt_keys_are_recognized(tmp_path: Path, key: str, hint: str) -> None:
    assert reason(tmp_path, key) == f"; did you mean {hint}?"


@pytest.mark.parametrize(
    "key",
    [
        "model.xyz",
        "training.learning_rate_min",
        "training.clip_norm_type",
        "model.scale_embeddings",
        "training.rate",
        "training.size",
        "model.ratio",
        "training.foo_size",
        "data.name",
        "size",
        "type",
        "decoding.sizes",
        "training.alpha",
        "training.level",
        "model.feeding",
        "vocabulary.kind",
        "training.number",
        "decoding.ngrams",
        "training.steps_per_checkpoint",
        "model.score_dim",
        "model.output",
        "training.log",
        "training.end",
        "decoding.search",
        "training.memory_format",
        "model.hidden_act",
        "data.lines",
        "vocabulary.seed_size",
    ],
)
def test_dissimilar_keys_get_no_hint(tmp_path: Path, key: str) -> None:
    assert reason(tmp_path, key) == ""


@pytest.mark.parametrize(
    ("section", "ours"),
    [("testing", "decoding"), ("optim", "training"), ("test", "decoding"), ("vocab", "vocabulary")],
)
def test_a_section_of_another_tool_is_recognized(tmp_path: Path, section: str, ours: str) -> None:
    text = f"; did you mean the section '{ours}'?"
    (line,) = refusal(tmp_path, more=f"{section}: {{beam_size: 5, alpha: 1}}")
    assert line == f"5: {section}: unknown key{text}"
    (line,) = refusal(tmp_path, (f"{section}.alpha=1",))
    assert line == f"{section} (override): unknown key{text}"


def test_text_files_outside_of_the_data_section_are_recognized(tmp_path: Path) -> None:
    lines = refusal(tmp_path, more="test: {src: a, tgt: b}\ndev: {file: c, columns: [1, 2]}\n")
    assert [line.partition("unknown key")[2] for line in lines] == [
        "; did you mean 'data.test'?",
        f"; did you mean 'data.valid' ({KNOWN['data.valid']})?",
    ]


def test_a_dotted_key_in_the_file_belongs_below_its_section(tmp_path: Path) -> None:
    lines = refusal(tmp_path, more="model.dropout: 0.1\ntraining.lr: 1\n")
    assert lines == [
        "5: model.dropout: unknown key; write dropout below the section model",
        "6: training.lr: unknown key; did you mean 'training.learning_rate' (peak learning rate)?",
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("more", ["{i}", "training{i}", "lerning_{i}"])
def test_many_errors_are_counted_without_computing_every_hint(tmp_path: Path, more: str) -> None:
    many = 80_000 if more == "{i}" else 50_000
    start = time.process_time()
    lines = refusal(tmp_path, more="".join(f"x{more.format(i=i)}: 1\n" for i in range(many)))
    assert len(lines) == MAX_SHOWN + 1
    assert lines[0].startswith("5: x")
    assert lines[-1] == f" ... and {many - MAX_SHOWN:,} more errors"
    assert time.process_time() - start < 60


def test_a_long_name_is_shortened(tmp_path: Path) -> None:
    (line,) = refusal(tmp_path, more=f"{'a' * 500_000}: 1\n")
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
    assert suggest_override("--gpu", Config) == "; choose the device by the argument device"
    assert suggest_override("--xyz", Config) == suggest_override("--train-set", Config) == ""


def test_sections_are_distinguished_from_values() -> None:
    assert section_at(Config, ("data", "test")) is not None
    assert section_at(Config, ("data", "test", "src")) is None
