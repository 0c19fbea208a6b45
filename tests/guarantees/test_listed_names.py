"""A list of names in a run: checked before training, then kept by whatever starts from the run."""

from pathlib import Path

import pytest
from cases.toy_names import name_pairs, some_names, spelled

from seq2seq.__main__ import main
from seq2seq.inference.translator import Translator
from seq2seq.runs.layout import BEST, METRICS

NAMES = some_names(60, seed=1)
UNKNOWN = "Pikurona"
LISTED = "पीकुरोना"  # which is not how its letters are usually spelled
STORED = Path("vocabulary/names.json")


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """Write a list of names beside a training and a validation text."""
    for split, count in (("train", 400), ("valid", 10)):
        pairs = name_pairs(NAMES, count, seed=len(split))
        text = "".join(f"{pair.src}\t{pair.tgt}\n" for pair in pairs)
        (tmp_path / f"{split}.tsv").write_text(text, encoding="utf-8")
    path = tmp_path / "names.txt"
    names = [LISTED, *map(spelled, NAMES[:9])]
    path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return path


def configured(run: str, steps: int, listed: Path) -> str:
    """Write the config of a run beside the list; return its path."""
    folder = listed.parent
    path = folder / f"{run}.yaml"
    path.write_text(
        f"""\
name: {run}
run_dir: {(folder / run).as_posix()}
data:
  src_lang: xx
  tgt_lang: mr
  train: {{file: {(folder / "train.tsv").as_posix()}}}
  valid: {{file: {(folder / "valid.tsv").as_posix()}}}
vocabulary: {{size: 310, names: {{placeholders: {listed.as_posix()}}}}}
model: {{embedding_size: 8, hidden_size: 8}}
training: {{max_steps: {steps}, batch_tokens: 200, validate_every: 4, precision: float32}}
decoding: {{max_length: 5}}
""",
        encoding="utf-8",
    )
    return str(path)


def trained(run: str, steps: int, listed: Path, *options: str) -> Path:
    """Train a run by the command line; return its folder."""
    config = configured(run, steps, listed)
    assert main(["train", config, "--device", "cpu", *options]) == 0
    return listed.parent / run


@pytest.mark.parametrize("command", ["check", "train"])
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("कमल\nRohan\tरोहन\n", r":2: 'Rohan\tरोहन' is not a name."),
        pytest.param(
            "कमल\nनीता\nRohan\n",
            ":3: Rohan is not in the script of the target text (Devanagari).",
            marks=pytest.mark.thorough,
        ),
        (None, ": no such file"),
    ],
    ids=["translation", "script", "absent"],
)
def test_a_bad_list_is_one_line_before_training(
    listed: Path,
    command: str,
    content: str | None,
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed.unlink()
    if content is not None:
        listed.write_text(content, encoding="utf-8")
    assert main([command, configured("a", 4, listed), "--device", "cpu"]) != 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "names.txt" in line]
    assert f"{listed}{problem}" in line
    assert not (listed.parent / "a" / METRICS).exists()


@pytest.mark.thorough
@pytest.mark.usefixtures("no_engine")
def test_a_resumed_run_needs_neither_the_list_nor_an_equal_one(listed: Path) -> None:
    other_list = listed.with_name("other.txt")
    other_list.write_text("कमल\n", encoding="utf-8")
    uninterrupted = trained("a", 16, listed)
    run = trained("b", 4, listed)
    stored_list = (run / STORED).read_bytes()
    listed.unlink()
    trained("b", 8, listed, "--resume")
    listed.write_text("कमल\n", encoding="utf-8")
    trained("b", 12, listed, "--resume")
    trained("b", 16, other_list, "--resume")
    for name in (METRICS, BEST):
        assert (run / name).read_bytes() == (uninterrupted / name).read_bytes()
    assert (run / STORED).read_bytes() == stored_list


@pytest.mark.thorough
@pytest.mark.usefixtures("no_engine")
def test_a_run_that_starts_from_another_has_its_list(
    listed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = trained("a", 4, listed)
    other_list = listed.with_name("other.txt")
    other_list.write_text("कमल\n", encoding="utf-8")
    listed.unlink()
    second = trained("b", 4, listed, "--init-from", str(first))
    assert (second / STORED).read_bytes() == (first / STORED).read_bytes()
    config = configured("c", 4, other_list)
    capsys.readouterr()
    assert main(["train", config, "--init-from", str(first)]) != 0
    assert "vocabulary.names: the run has its own names" in capsys.readouterr().err


@pytest.mark.thorough
def test_an_exported_run_spells_names_by_its_list(listed: Path) -> None:
    run = trained("a", 4, listed)
    listed.unlink()
    exported = listed.with_name("exported")
    assert main(["export", "-m", str(run), "-o", str(exported)]) == 0
    run.rename(run.with_name("moved"))
    for folder in (run.with_name("moved"), exported):
        (translation,) = Translator.load(folder).translate([f"The house of {UNKNOWN} sleeps."])
        assert LISTED in translation.text
