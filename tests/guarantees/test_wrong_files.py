"""Non-text files are named by their kind in every reader; out-of-memory errors have a remedy."""

import gzip
import io
import sys
import zipfile
from pathlib import Path

import pytest

from seq2seq.__main__ import main
from seq2seq.cli import translate as translate_command

TEXT = "buda ki.\n" * 20


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("train.en", TEXT)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_corpus: Path) -> Path:
    """Change to a directory with an archive, a compressed config and a valid config."""
    monkeypatch.chdir(tmp_path)
    Path("v.zip").write_bytes(archive())
    Path("packed.yaml").write_bytes(gzip.compress(small_corpus.read_bytes()))
    Path("config.yaml").write_bytes(small_corpus.read_bytes())
    Path("text").write_text(TEXT, encoding="utf-8")
    return tmp_path


READERS = {
    "translate -m RUN -i v.zip": "v.zip",
    "translate -m RUN --stream -i v.zip": "v.zip",
    "translate -m RUN -i text --prefix-file v.zip": "v.zip",
    "score -m RUN -i v.zip -r text": "v.zip",
    "score -m RUN -i text -r v.zip": "v.zip",
    "attention -m RUN -i v.zip -o a.html": "v.zip",
    "evaluate --hyp v.zip -r text": "v.zip",
    "evaluate --hyp text -r v.zip": "v.zip",
    "evaluate -m RUN -i v.zip -r text": "v.zip",
    "train config.yaml data.train.src=v.zip": "v.zip",
    "train config.yaml data.valid.tgt=v.zip": "v.zip",
    "check config.yaml data.test.src=v.zip": "v.zip",
    "train v.zip": "v.zip",
}


@pytest.mark.parametrize("line", READERS)
def test_every_reader_reports_an_archive(
    folder: Path, tiny_runs: dict[str, Path], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tiny_runs["luong"]) if word == "RUN" else word for word in line.split()]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == ("seq2seq: error: v.zip: is a zip archive, not text. Unpack it: unzip v.zip\n")
    assert not (folder / "a.html").exists()


def test_a_compressed_config_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "packed.yaml"]) == 2
    assert capsys.readouterr().err == (
        "seq2seq: error: packed.yaml: is compressed by gzip, not text. "
        "Unpack it: gzip -dc < packed.yaml > NEW_FILE\n"
    )
    assert folder.exists()


@pytest.mark.parametrize("arguments", [[], ["--stream"]])
def test_an_archive_on_standard_input_is_reported(
    tiny_runs: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(archive())))
    assert main(["translate", "-m", str(tiny_runs["luong"]), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "seq2seq: error: standard input: is a zip archive, not text. Unpack it: unzip FILE\n"
    )


@pytest.mark.parametrize("arguments", [[], ["--stream"]])
def test_a_line_that_is_too_long_is_refused(
    tiny_runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"ba ki\n" + b"bu " * (30 << 20), 1))
    words = ["translate", "-m", str(tiny_runs["luong"]), "-i", str(path), "--batch-size", "1"]
    assert main([*words, *arguments]) == 2
    err = capsys.readouterr().err
    assert f"{path}:2: the line is longer than 16 MiB. Give one sentence per line\n" in err


def test_options_that_reduce_memory_are_suggested(
    folder: Path,
    tiny_runs: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(translate_command.arguments, "load_translator", fail)
    run = str(tiny_runs["luong"])
    assert main(["translate", "-m", run, "-i", "text"]) == 1
    assert "error: out of memory; translate with a smaller -b or" in capsys.readouterr().err
    assert folder.exists()
