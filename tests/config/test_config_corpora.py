"""Keys of the data: lists of corpora, tags and columns."""

from pathlib import Path

import pytest
from cases.configs import MINIMAL, errors_in, load, refusal, without_path, write_config

from seq2seq.config.schema import (
    Config,
    ConfigError,
    changed_keys,
    dump_config,
    load_config,
    read_config_file,
    with_paths,
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
    config, notes = read_config_file(write_config(tmp_path, CORPORA))
    first, second = config.data.train
    assert (first.src, first.weight, first.tag) == (Path("a.en"), 1.0, None)
    assert (second.file, second.weight, second.tag) == (Path("b.csv.gz"), 0.5, "<bt>")
    assert second.columns == ["en", "de"]
    assert config.data.tags == ("<bt>",)
    assert config.data.paths() == [Path(x) for x in ("a.en", "a.de", "b.csv.gz", "valid.tsv")]
    assert read_config_file(write_config(tmp_path, dump_config(config))) == (config, notes)


def test_a_list_of_one_corpus_is_a_corpus(tmp_path: Path) -> None:
    listed = MINIMAL.replace("{src: train.en, tgt: train.de}", "[{src: train.en, tgt: train.de}]")
    assert read_config_file(write_config(tmp_path, listed)) == (load(tmp_path), [])
    assert changed_keys(load_config(write_config(tmp_path, listed)), load(tmp_path)) == []


def test_errors_in_a_list_are_reported_by_line_and_index(tmp_path: Path) -> None:
    text = CORPORA.replace("weight: 0.5", "weigth: 2").replace("<bt>", "bt")
    text = text.replace("tgt: a.de", "file: a.tsv, weight: 0")
    path = write_config(tmp_path, text)
    assert [without_path(path, line) for line in refusal(path, ("data.train.src=x",))] == [
        "line 7: data.train.1.file: set either src and tgt, or file alone (null unsets a key); "
        "got a.tsv",
        "line 7: data.train.1.weight: must be greater than 0; got 0",
        "line 9: data.train.2.weigth: unknown key; did you mean 'weight'?",
        "line 10: data.train.2.tag: must be a name in angle brackets, such as <bt>, but no special "
        "token; got bt",
        "data.train.src=x (override): data.train has a list; change the file",
    ]
    empty = write_config(tmp_path, MINIMAL.replace("{src: train.en, tgt: train.de}", "[]"))
    assert without_path(empty, refusal(empty)[0]) == (
        "line 6: data.train: give a corpus, or a list of them; got a list"
    )
    weighted = write_config(tmp_path, MINIMAL.replace("valid.tsv}", "valid.tsv, weight: 2}"))
    assert "data.valid.weight: unknown key" in refusal(weighted)[0]


def test_overrides_replace_a_list_as_it_is(tmp_path: Path) -> None:
    (line,) = refusal(write_config(tmp_path, CORPORA), ("data.train.2.weight=2",))
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
        return load_config(write_config(tmp_path, text))

    old = corpora(1, 0.5)
    assert changed_keys(old, corpora(1, 0.5)) == []
    assert changed_keys(old, corpora(1, 0.25)) == ["data.train.2.weight: 0.5 -> 0.25"]
    paths = with_paths(old, lambda path: tmp_path / path.name)
    assert [corpus.file for corpus in paths.data.train] == [
        tmp_path / "1.tsv",
        tmp_path / "0.5.tsv",
    ]
    assert paths.data.valid.file == tmp_path / "valid.tsv"
    assert changed_keys(old, paths) == []
