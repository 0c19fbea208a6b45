"""The YAML of a config: what is read as which value, and how a fault is placed."""

import re
from pathlib import Path

import pytest
from cases.configs import MINIMAL, errors_in, load, refusal, write_config

from seq2seq.config.document import read_document
from seq2seq.config.model import DropoutConfig
from seq2seq.config.schema import ConfigError, ParallelFiles, VocabularyConfig, load_config


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
    config = load_config(write_config(tmp_path, text), (f"data.tgt_lang={code}",))
    assert (config.data.src_lang, config.data.tgt_lang) == (code, code)


@pytest.mark.parametrize("null", ["", "~", "null"])
def test_null_is_none_and_none_is_a_word(tmp_path: Path, null: str) -> None:
    sections = f"decoding: {{max_length: {null}}}\nmodel:\n  decoder: none\nvocabulary:\n"
    config = load(tmp_path, sections, (f"training.max_steps={null}",))
    assert config.decoding.max_length is None
    assert config.training.max_steps is None
    assert config.model.decoder == "none"
    assert config.vocabulary == VocabularyConfig()


def test_quoted_null_is_text(tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path, MINIMAL.replace("tiny", "'null'", 1)))
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


@pytest.mark.parametrize(
    "sections", ["model: &m {dropout: 0.1}\nvocabulary: *m", "model: &m {x: *m}"]
)
def test_aliases_are_refused(tmp_path: Path, sections: str) -> None:
    (line,) = errors_in(tmp_path, sections)
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
    (line,) = refusal(write_config(tmp_path, text))
    assert line.endswith(reason)


@pytest.mark.parametrize("marks", ["\u2018\u2019", "\u201c\u201d", "\u201e\u201c", "\u00ab\u00bb"])
def test_quotation_marks_of_a_word_processor_are_named(marks: str, tmp_path: Path) -> None:
    text = re.sub("^name: (.*)$", f"name: {marks[0]}a b{marks[1]}", MINIMAL, flags=re.MULTILINE)
    assert text != MINIMAL
    (line,) = refusal(write_config(tmp_path, text))
    assert f"name: {marks[0]}a b{marks[1]} is within curly quotation marks; use ' or \"" in line
    (line,) = errors_in(tmp_path, overrides=(f"data.src_lang={marks[0]}en{marks[1]}",))
    assert f"(override): {marks[0]}en{marks[1]} is within curly quotation marks;" in line


def test_a_missing_file_is_reported_with_a_similar_name(tmp_path: Path) -> None:
    write_config(tmp_path, MINIMAL)
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
