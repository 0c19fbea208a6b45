"""Models that come with the package are called by name; en-fr translates everyday sentences."""

import re
import shutil
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from seq2seq.__main__ import main
from seq2seq.inference.loaders.load import languages_of
from seq2seq.inference.translator import Translator
from seq2seq.runs import packaged_models
from seq2seq.runtime.errors import UserError

CASES = Path(__file__).parents[1] / "cases"
EXPORT = CASES / "written_at_56a3ce7b/copying-export"
EVERYDAY = CASES / "everyday_en_fr.tsv"  # written for this test
LEAST_BLEU = 60
MOST_BYTES = 8 << 20


@pytest.fixture
def xx_yy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model of the package with the name xx-yy; the working folder is empty."""
    package = tmp_path / "package"
    monkeypatch.setattr(packaged_models, "FOLDER", package)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return shutil.copytree(EXPORT, package / "xx-yy")


def test_python_loads_a_model_of_the_package_by_name(xx_yy: Path) -> None:
    named = Translator.load("xx-yy")
    assert named.name == "xx-yy"
    assert languages_of("xx-yy") == languages_of(xx_yy)
    sentences = ["b a d", "c c"]
    expected = Translator.load(xx_yy).translate(sentences)
    assert [line.text for line in named.translate(sentences)] == [line.text for line in expected]


@pytest.mark.parametrize("command", ["translate", "attention"])
def test_commands_take_a_model_of_the_package_by_name(
    command: str, xx_yy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "-m", "xx-yy", "b a d"]) == 0
    by_name = capsys.readouterr().out
    assert main([command, "-m", str(xx_yy), "b a d"]) == 0
    assert by_name == capsys.readouterr().out


def test_evaluate_takes_a_model_of_the_package_by_name(
    xx_yy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert xx_yy.is_dir()
    Path("lines").write_text("b a d\nc c\n", "utf-8")
    assert main(["evaluate", "-m", "xx-yy", "-i", "lines", "-r", "lines"]) == 0
    assert "BLEU" in capsys.readouterr().out


def test_a_path_wins_over_a_model_of_the_package(xx_yy: Path) -> None:
    assert packaged_models.model_folder("xx-yy") == xx_yy
    Path("xx-yy").mkdir()
    assert packaged_models.model_folder("xx-yy") == Path("xx-yy")
    with pytest.raises(UserError, match=r"^xx-yy: not a run folder"):
        Translator.load("xx-yy")


@pytest.mark.parametrize("name", ["../package/xx-yy/.", "xx-yy/", "./xx-yy", "XX-YY", ""])
def test_a_model_of_the_package_is_named_exactly(name: str, xx_yy: Path) -> None:
    assert xx_yy.is_dir()
    assert packaged_models.model_folder(name) == Path(name)


@pytest.mark.parametrize("command", ["translate", "score -r x", "attention", "serve"])
def test_a_command_without_a_model_names_those_of_the_package(
    command: str, xx_yy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert xx_yy.is_dir()
    assert main(command.split()) == 2
    assert "; the package comes with -m xx-yy" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["export", "distill", "back-translate"])
def test_a_command_that_needs_a_run_names_no_model_of_the_package(
    command: str, xx_yy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert xx_yy.is_dir()
    assert main([command, "-o", "folder"]) == 2
    assert "the package comes with" not in capsys.readouterr().err
    outputs = ["-o", "folder"] if command == "export" else ["-o", "src", "tgt"]
    source = ["-i", __file__] if command == "back-translate" else []
    assert main([command, "-m", "xx-yy", *outputs, *source]) == 2
    assert "xx-yy: is an exported model of the package" in capsys.readouterr().err


def test_a_misspelt_model_of_the_package_is_suggested(
    xx_yy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert xx_yy.is_dir()
    assert main(["translate", "-m", "xx-yyy", "b a d"]) == 2
    assert "xx-yyy: no such run folder; did you mean 'xx-yy'?" in capsys.readouterr().err


def test_en_fr_is_small_and_names_its_source() -> None:
    folder = packaged_models.model_folder("en-fr")
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    assert sum(sizes) <= MOST_BYTES
    page = (folder.parent / "README.md").read_text("utf-8")
    for name in ("Tatoeba", "CC BY 2.0 FR", "en-fr"):
        assert name in page
    assert re.search(r"\b[0-9a-f]{64}\b", page), "the snapshot has a checksum"


def test_en_fr_translates_everyday_sentences() -> None:
    lines = EVERYDAY.read_text("utf-8").splitlines()
    sources, references = zip(*(line.split("\t") for line in lines), strict=True)
    assert len(set(sources)) == 50
    translations = Translator.load("en-fr").translate(sources)
    hypotheses = [translation.text for translation in translations]
    assert BLEU().corpus_score(hypotheses, [references]).score >= LEAST_BLEU
