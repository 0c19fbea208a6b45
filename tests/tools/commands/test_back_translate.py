"""`seq2seq distill` and `seq2seq back-translate`: corpora that `data.train` reads unchanged."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cases.environment import project_environment
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main
from seq2seq.config.schema import DataConfig, ParallelFiles, load_config
from seq2seq.data.corpus import read_pairs
from seq2seq.engines.engine import Sampling
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.tools.commands import distill
from seq2seq.tools.corpora.synthetic import SyntheticCorpus

TEXT, _ = toy_pairs(23, seed=5)
Pairs = list[tuple[str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(distill, "BATCH_LINES", 5)
    Path("mono.xx").write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
    yield tmp_path
    assert not list(tmp_path.glob("*.part"))


def pairs_of(**files: object) -> Pairs:
    text = read_pairs(ParallelFiles.model_validate(files))
    return list(zip(text.src, text.tgt, strict=True))


def entry_of(err: str) -> dict[str, object]:
    """Return the last logged entry of data.train."""
    tree: dict[str, object] = yaml.safe_load(err.splitlines()[-1].partition("data.train: ")[2])
    return tree


@pytest.fixture
def run(tiny_runs: dict[str, Path]) -> str:
    return str(tiny_runs["luong"])


@pytest.mark.thorough
def test_distillation_pairs_the_training_text_with_its_translations(
    small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The source defaults to the training text of the first teacher; here, of an ensemble."""
    here = small_corpus.parent
    words = ["training.max_steps=2", "training.validate_every=2"]
    assert main(["train", str(small_corpus), *words]) == 0
    outputs = [str(here / "kd.xx.gz"), str(here / "kd.yy.bz2")]
    models = [str(here / "run"), str(here / "run")]
    arguments = [word for model in models for word in ("-m", model)]
    capsys.readouterr()
    assert main(["distill", *arguments, "-b", "2", "-o", *outputs, "--device", "cpu"]) == 0
    src = (here / "train.src").read_text(encoding="utf-8").splitlines()
    expected = Translator.load(*models, device="cpu").translate(src, 2)
    pairs = list(zip(src, (translation.text for translation in expected), strict=True))
    entry = entry_of(capsys.readouterr().err)
    assert entry == {"src": outputs[0], "tgt": outputs[1]}
    assert pairs_of(**entry) == pairs
    assert not list(here.glob("*.journal"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("distill -i mono.xx -o a.yy b.xx", "a.yy: has to be in xx here, but its name ends in yy."),
        (
            "distill -i mono.xx -o a b.XX.gz",
            "b.XX.gz: has to be in yy here, but its name ends in xx.",
        ),
        ("distill -i mono.yy -o a b", "mono.yy: has to be in xx here, but its name ends in yy."),
        (
            "back-translate -i mono.xx -o a.xx b.yy",
            "a.xx: has to be in yy here, but its name ends in xx.",
        ),
        (
            "back-translate -i mono.yy -o a b",
            "mono.yy: has to be in xx here, but its name ends in yy.",
        ),
    ],
)
def test_a_file_named_by_the_other_language_is_refused(
    run: str, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mono.yy").write_text("ba\n", encoding="utf-8")
    assert main([*words.split(), "-m", run, "--device", "cpu"]) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == ["mono.xx", "mono.yy"]


@pytest.mark.usefixtures("folder")
@one_quick("name", ["back.tsv", "back.csv", "back.jsonl.gz", "back.json"])
def test_a_back_translation_can_be_an_entry_of_data_train(
    run: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model translates xx to yy, so that the pairs train a model from yy to xx."""
    assert main(["back-translate", "-m", run, "-i", "mono.xx", "-o", name]) == 0
    entry = entry_of(capsys.readouterr().err)
    assert entry["tag"] == "<bt>"
    data = {"src_lang": "yy", "tgt_lang": "xx", "valid": {"file": "valid.tsv"}}
    (corpus,) = DataConfig.model_validate({**data, "train": entry}).train
    text = read_pairs(corpus)
    sources = [
        translation.text for translation in Translator.load(run, device="cpu").translate(TEXT)
    ]
    if name.endswith(".tsv"):  # TSV cannot contain tabs
        sources = [line.replace("\t", " ") for line in sources]
    assert text.src == [f"<bt> {line}" for line in sources]
    assert text.tgt == TEXT


@pytest.mark.usefixtures("folder")
def test_each_sample_is_a_pair(run: str) -> None:
    options = ["--sample", "3", "--top-k", "7", "--temperature", "0.8", "--seed", "4"]
    command = ["back-translate", "-m", run, "-i", "mono.xx", "-o", "a", "b", *options]
    assert main(command) == 0
    settings = SearchSettings(sampling=Sampling(3, 0.8, 7, 1.0, 4))
    translations = Translator.load(run, device="cpu").translate(TEXT, n_best=3, settings=settings)
    expected = [
        (entry.text, line)
        for line, translation in zip(TEXT, translations, strict=True)
        for entry in translation.n_best
    ]
    assert len({src for src, _ in expected}) > len(TEXT)
    assert pairs_of(src="a", tgt="b") == expected


@pytest.mark.usefixtures("folder")
def test_blank_lines_keep_the_pairs_aligned(run: str) -> None:
    lines = ["", *TEXT[:6], " ", TEXT[6]]
    Path("gaps").write_text("".join(f"{line}\r\n" for line in lines), encoding="utf-8")
    assert main(["distill", "-m", run, "-i", "gaps", "-o", "x.csv"]) == 0
    pairs = pairs_of(file="x.csv", columns=["xx", "yy"])
    assert [src for src, _ in pairs] == lines
    assert [n for n, (_, tgt) in enumerate(pairs) if not tgt] == [0, 7]


KILLED = """\
import sys, time
from seq2seq.tools.commands import distill
from seq2seq.__main__ import main
from seq2seq.tools.corpora.synthetic import Journal
distill.BATCH_LINES = 5
append = Journal.append
def slowly(journal, batch):
    append(journal, batch)
    print(journal.line_count, flush=True)
    while journal.line_count >= 10:
        time.sleep(0.1)  # a signal just before the call is handled after it
Journal.append = slowly
main(sys.argv[1:])
"""


@pytest.mark.race
@pytest.mark.thorough
@pytest.mark.parametrize("number", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_an_interrupted_call_resumes_without_lost_or_repeated_lines(
    folder: Path, run: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if not hasattr(signal, number):
        pytest.skip("this system has no such signal")
    command = ["back-translate", "-m", run, "-i", "mono.xx", "--device", "cpu", "-o", "a", "b"]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=project_environment(),
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["5\n", "10\n"]
        process.send_signal(getattr(signal, number))
        _, err = process.communicate(timeout=600)
    if number != "SIGKILL":
        assert "Resume with: seq2seq back-translate -m " in err
    assert sorted(path.name for path in folder.iterdir()) == ["a.journal", "mono.xx"]
    with (folder / "a.journal").open("ab") as file:
        file.write(b'["cut sho')  # as left by a kill during a write
    capsys.readouterr()
    assert main(command) == 0
    assert "a.journal: resumed after 10 of 23 lines\n" in capsys.readouterr().err
    sources = [
        translation.text for translation in Translator.load(run, device="cpu").translate(TEXT)
    ]
    assert pairs_of(src="a", tgt="b") == list(zip(sources, TEXT, strict=True))


def test_a_call_killed_while_writing_the_pairs_replaces_its_own_files(
    folder: Path, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal records that the existing first file belongs to this call."""
    command = ["distill", "-m", run, "-i", "mono.xx", "-o", "a", "b"]
    remove = Path.unlink
    with monkeypatch.context() as patch:

        def keep_the_journal(path: Path, **options: bool) -> None:
            (_refuse if path.suffix == ".journal" else remove)(path, **options)

        patch.setattr(Path, "unlink", keep_the_journal)
        assert main(command) == 1
    (folder / "b").unlink()
    monkeypatch.setattr(Translator, "stream", _refuse)  # no line is translated twice
    assert main(command) == 0
    assert len(pairs_of(src="a", tgt="b")) == 23
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "mono.xx"]


def _refuse(*_: object, **__: object) -> None:
    raise OSError(1, "killed here")


@pytest.mark.thorough
@pytest.mark.usefixtures("folder")
def test_a_call_with_other_settings_is_not_resumed(
    run: str, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*words: str) -> int:
        return main(["distill", "-i", "mono.xx", "-o", "a", "b", *words])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SyntheticCorpus, "write", _refuse)
        assert interrupted("-m", run) == 1
    other_run = str(tiny_runs["bahdanau"])
    for words in (
        ["-m", other_run],
        ["-m", run, "-b", "1"],
        ["-m", run, "decoding.length_penalty=0.5"],
    ):
        capsys.readouterr()
        assert interrupted(*words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("seq2seq: error: a.journal: was begun with other settings")
    same_weights = shutil.copytree(run, "copy")
    config = Path(same_weights, "config.yaml")
    tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    tree.setdefault("decoding", {})["repetition_penalty"] = 1.5
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert interrupted("-m", same_weights) == 2
    assert "other settings" in capsys.readouterr().err
    with Path("mono.xx").open("a", encoding="utf-8") as file:
        file.write("one more.\n")
    assert interrupted("-m", run) == 2
    assert "other settings" in capsys.readouterr().err
    assert interrupted("-m", other_run, "--overwrite") == 0
    sources = [
        translation.text for translation in Translator.load(other_run, device="cpu").translate(TEXT)
    ]
    assert [tgt for _, tgt in pairs_of(src="a", tgt="b")[:-1]] == sources


@pytest.mark.usefixtures("folder")
def test_a_text_changed_while_being_read_is_detected(
    run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    translate = Translator.translate

    def changing_the_text(*arguments: Any, **options: Any) -> object:
        Path("mono.xx").write_text("other\n" * 23, encoding="utf-8")
        return translate(*arguments, **options)

    monkeypatch.setattr(Translator, "translate", changing_the_text)
    assert main(["distill", "-m", run, "-i", "mono.xx", "-o", "a", "b"]) == 2
    assert "mono.xx: changed while being read. Try again" in capsys.readouterr().err
    assert not Path("a").exists()
    assert not Path("b").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-i mono.xx -o a b c", "-o: give two files, source and target, or one with both sides"),
        ("-i mono.xx -o a.txt", "a.txt: one file receives both sides as a table; end its name in"),
        ("-i - -o a b", "-: is read twice; give a regular file"),
        ("-i mono.xx -o a a", "-o: the files of source and target have the same name"),
        ("-i mono.xx -o mono.xx b", "mono.xx: is already read or written by this command"),
        ("-i mono.xx -o a mono.xx", "mono.xx: is already read or written by this command"),
        ("-i mono.xx -o no/a no/b", "no/a: there is no folder no; create it first"),
        ("-i nowhere -o a b", "nowhere: no such file"),
        ("-i x.jsonl -o a b", "x.jsonl: is a table; give a file with one sentence per line"),
        ("-i x.tsv.gz -o a b", "x.tsv.gz: is a table; give a file with one sentence per line"),
        ("-i empty -o a b", "empty: the file is empty"),
        ("-i bytes -o a b", "bytes:2: byte 0xff at column 1 is not UTF-8"),
        ("-i mono.xx -o kept b", "kept: exists; pass --overwrite to replace it"),
        ("-i mono.xx -o a -", "-: standard output cannot receive this output; give a file name"),
        ("-i mono.xx -o a b -b 0", "argument -b/--beam: must be an integer of at least 1"),
    ],
)
def test_invalid_arguments_are_refused_without_output(
    folder: Path, run: str, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").touch()
    Path("bytes").write_bytes(b"a\n\xff\n")
    Path("kept").write_text("mine", encoding="utf-8")
    contents_before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for command in ("distill", "back-translate"):
        capsys.readouterr()
        assert main([command, "-m", run, *words.split()]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"seq2seq: error: {message}")
        assert err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents_before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--seed 3", "--seed: needs --sample N, which draws translations"),
        ("--sample 1 -b 3", "-b cannot be used with --sample; remove one of them"),
        ("--sample 1 --temperature 0", "--temperature 0.0: must be a positive number"),
    ],
)
def test_incompatible_sampling_options_are_refused(
    folder: Path, run: str, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["back-translate", "-m", run, "-i", "mono.xx", "-o", "a", "b", *words.split()]
    assert main(command) == 2
    assert f"seq2seq: error: {message}" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["mono.xx"]


@pytest.mark.usefixtures("folder")
def test_corpora_that_cannot_be_the_default_source_are_refused(
    small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["distill", "-m", "nowhere", "-o", "a", "b"]) == 2
    assert "nowhere" in capsys.readouterr().err
    config = load_config(small_corpus)
    (corpus,) = config.data.train
    for corpora, kind in (
        ((corpus, corpus), "2 corpora"),
        ((corpus.model_copy(update={"tag": "<bt>"}),), "a text with a tag"),
    ):
        with pytest.raises(ValueError, match=f"run: was trained on {kind}; give the text to tra"):
            training_text(corpora, "run")


def training_text(corpora: object, run: str) -> object:
    from seq2seq.tools.commands.distill import _training_text

    return _training_text(corpora, run)  # type: ignore[arg-type]


@pytest.mark.usefixtures("folder")
def test_progress_on_a_terminal_starts_where_the_call_resumes(
    run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(SyntheticCorpus, "write", _refuse)
        patch.setattr(distill, "BATCH_LINES", 99)
        assert main(["distill", "-m", run, "-i", "mono.xx", "-o", "a", "b"]) == 1
    journal = Path("a.journal").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("a.journal").write_text("".join(journal[:11]), encoding="utf-8")
    capsys.readouterr()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["distill", "-m", run, "-i", "mono.xx", "-o", "a", "b"]) == 0
    err = capsys.readouterr().err
    assert "10/23" in err
    assert "23/23" in err
