"""Resume with the same text in other files: a text is identified by content, not by name."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cases.tiers import one_quick
from cases.toy_text import write_small_corpus

from seq2seq.__main__ import main
from seq2seq.config.schema import Config, load_config
from seq2seq.data.corpus import ParallelText, checksum_of_text, read_pairs, usable
from seq2seq.data.training_data import cached_text, open_cache
from seq2seq.runs import tensor_file
from seq2seq.runs.layout import BEST, CONFIG, LAST, LOG, METRICS
from seq2seq.runs.run_config import read_config
from seq2seq.runtime.errors import UserError
from seq2seq.training.loop import train

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

SIDES = ("src", "tgt")
AGAIN = "train again (--overwrite, or another run_dir)"
WARM = ", or start another run (another run_dir) from its best weights: --init-from half"
SETTINGS = ("decoding.max_length=5", "training.validate_every=2", "training.log_every=1")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with the runs `half` (two steps) and `complete` (four); tests must not change it."""
    folder = tmp_path_factory.mktemp("project")
    corpus = write_small_corpus(folder)
    (folder / "train.src").write_text(f"\n{(folder / 'train.src').read_text()}")  # a blank side
    (folder / "train.tgt").write_text(f"left out\n{(folder / 'train.tgt').read_text()}")
    corpus.write_text(corpus.read_text().replace(f"{folder.as_posix()}/", ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, steps in (("half", 2), ("complete", 4)):
            train(configured(corpus, name, steps), "cpu")
    return folder


@pytest.fixture
def copy(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project, which is the working directory."""
    copy = Path(shutil.copytree(project, tmp_path / "copy"))
    monkeypatch.chdir(copy)
    return copy


def configured(corpus: Path, run: str, steps: int, *overrides: str) -> Config:
    keys_of_run = (f"run_dir={run}", f"training.max_steps={steps}")
    return load_config(corpus, [*SETTINGS, *keys_of_run, *overrides])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def move() -> list[str]:
    """Move the texts to another folder; give an absolute path for the training text."""
    Path("elsewhere").mkdir()
    for split in ("train", "valid"):
        for side in ("src", "tgt"):
            Path(f"{split}.{side}").rename(f"elsewhere/{split}-{side}.txt")
    return [
        *(f"data.train.{side}={Path('elsewhere').absolute()}/train-{side}.txt" for side in SIDES),
        *(f"data.valid.{side}=elsewhere/valid-{side}.txt" for side in SIDES),
    ]


def compress() -> list[str]:
    """Compress three files; drop the pair with a blank side, which is not trained on."""
    for side in SIDES:
        lines = Path(f"train.{side}").read_text().splitlines(keepends=True)
        Path(f"train.{side}").write_text("".join(lines[1:]))
    overrides = []
    for name in ("train.src", "train.tgt", "valid.tgt"):
        Path(f"{name}.gz").write_bytes(gzip.compress(Path(name).read_bytes()))
        Path(name).unlink()
        overrides.append(f"data.{name}={name}.gz")
    return overrides


def join_sides() -> list[str]:
    overrides = []
    for split in ("train", "valid"):
        sides = (Path(f"{split}.{side}").read_text().splitlines() for side in ("src", "tgt"))
        lines = (f"{src}\t{tgt}\ta third column\r\n" for src, tgt in zip(*sides, strict=True))
        Path(f"{split}.tsv").write_text("".join(lines), newline="")
        overrides += [f"data.{split}.src=null", f"data.{split}.tgt=null"]
        overrides.append(f"data.{split}.file={split}.tsv")
    return overrides


@one_quick("change", [move, compress, join_sides], quick=1)
def test_a_run_resumes_exactly_with_the_same_text_in_other_files(
    copy: Path, change: Callable[[], list[str]]
) -> None:
    train(configured(copy / CONFIG, "half", 4, *change()), "cpu", resume=True)
    for name in (METRICS, BEST):
        assert (copy / "half" / name).read_bytes() == (copy / "complete" / name).read_bytes()
    (resumed, _), (complete, _) = (
        tensor_file.read_file(copy / run_name / LAST) for run_name in ("half", "complete")
    )
    for header in (resumed, complete):
        del header["seconds"], header["data"]["cache.text"]  # the latter counts skipped pairs
    assert resumed == complete
    assert "warning: " + str(copy / ".token-cache") not in (copy / "half" / LOG).read_text()


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("train.tgt", lambda lines: [*lines[:50], lines[51], lines[50], *lines[52:]]),
        ("train.src", lambda lines: [*lines[:-1], f"{lines[-1]} "]),
        ("valid.src", lambda lines: [lines[0].swapcase(), *lines[1:]]),
    ],
)
def test_another_text_in_the_same_files_is_refused_with_a_remedy(
    copy: Path, name: str, edit: Callable[[list[str]], list[str]]
) -> None:
    text = Path(name).read_text().splitlines()
    Path(name).write_text("".join(f"{line}\n" for line in edit(text)))
    contents_before = contents(copy / "half")
    with pytest.raises(UserError) as refused:
        train(configured(copy / CONFIG, "half", 4), "cpu", resume=True)
    assert str(refused.value) == (
        f"data.{name[:5]}: is not the text that half was trained on. Restore that text, or train "
        "again (overwrite=True, or another run_dir), or start another run (another run_dir) from "
        "its best weights: init_from=half"
    )
    assert contents(copy / "half") == contents_before


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ("training.learning_rate=0.5", WARM),
        ("vocabulary.sampling=0.5", WARM),
        ("data.max_length=39", WARM),
        ("model.hidden_size=22", ""),
        ("vocabulary.size=341", ""),
    ],
)
@pytest.mark.usefixtures("copy")
def test_a_refused_resume_suggests_a_remedy_that_works(
    capsys: pytest.CaptureFixture[str], change: str, remedy: str
) -> None:
    command = ["train", CONFIG, *SETTINGS, "training.max_steps=4", change, "--device", "cpu"]
    assert main([*command, "run_dir=half", "--resume"]) == 2
    message = capsys.readouterr().err.splitlines()
    assert message[1].startswith(f"  {change.partition('=')[0]}: ")
    assert message[2] == f"Restore them, or {AGAIN}{remedy}"
    start = ["--init-from", "half"] if remedy else []
    if "learning_rate" in change or "hidden_size" in change:
        assert main([*command, "training.max_steps=1", "run_dir=other", *start]) == 0


def test_without_best_weights_no_warm_start_is_suggested(copy: Path) -> None:
    (copy / "half" / BEST).unlink()
    with pytest.raises(
        UserError, match=r"Restore them, or train again \(overwrite=True, or another"
    ):
        train(configured(copy / CONFIG, "half", 4, "seed=9"), "cpu", resume=True)


def test_the_checksum_of_a_text_is_the_same_from_the_cache_and_in_memory(project: Path) -> None:
    config = load_config(project / CONFIG)
    files = config.data.train[0].model_copy(
        update={"src": project / "train.src", "tgt": project / "train.tgt"}
    )
    text, blank = usable(read_pairs(files))
    assert blank == 1
    with open_cache(files, project / "half") as cache:
        cached, _ = cached_text(files, cache)
        assert cached.checksum == checksum_of_text(text) == checksum_of_text(cached.text)
    other_texts = [
        ParallelText(["a", "b"], ["c", "d"]),
        ParallelText(["a", "c"], ["b", "d"]),
        ParallelText(["b", "a"], ["d", "c"]),
        ParallelText(["a"], ["c"]),
        ParallelText(["a", ""], ["c", ""]),
        ParallelText(["a "], ["c"]),
    ]
    assert len({checksum_of_text(text) for text in other_texts}) == len(other_texts)
    sizes = [(), (1, 1), (2, 0), (1, 0, 1)]  # pairs of each weighted corpus
    assert len({checksum_of_text(other_texts[0], size) for size in sizes}) == len(sizes)
    assert checksum_of_text(other_texts[0], (2,)) == checksum_of_text(other_texts[0])


# ------------------------------------------------------------------------------ locations of texts


def evaluate(run: Path | str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["evaluate", "-m", str(run), "--device", "cpu"]) == 0
    return capsys.readouterr().out


def test_a_run_finds_its_test_set_from_any_folder(
    project: Path,
    copy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(project)
    expected_scores = evaluate("complete", capsys)
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    for side in ("src", "tgt"):  # other files with the same names
        (other_folder / f"test.{side}").write_text("something else\n" * 11)
    monkeypatch.chdir(other_folder)
    assert evaluate(project / "complete", capsys) == expected_scores
    shutil.copytree(project / "complete", other_folder / "run-alone")
    assert evaluate("run-alone", capsys) == expected_scores  # at the recorded paths
    config = read_config(copy / "complete")
    assert config.data.test is not None
    assert config.data.test.src == project / "test.src"  # the recorded path, which exists
