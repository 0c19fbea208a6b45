"""Run folders of an earlier version: every command refuses them and names a remedy that works."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from seq2seq.cli.main import main
from seq2seq.config.unknown_keys import RENAMED
from seq2seq.runs import tensor_file
from seq2seq.runs.layout import BEST, CONFIG, LAST

pytestmark = pytest.mark.usefixtures("on_console")
OVERWRITE = (
    "(the run is of an earlier version of seq2seq; train it again: "
    "`seq2seq train CONFIG --overwrite`)"
)


def rewrite_header(path: Path, state_format: int | None = None) -> None:
    """Record the weight decay under its earlier key, and another state format."""
    header, tensors = tensor_file.read_file(path)
    own = {key: each for key, each in header.items() if key not in ("version", "format", "tensors")}
    own["config"]["training.weight_decay"] = 0.0
    if state_format is not None:
        own["state_format"] = state_format
    tensor_file.save_tensors(path, tensors, own)


@pytest.fixture
def earlier(small_corpus: Path) -> Path:
    """Return a run whose files use a key of an earlier version."""
    call = ["train", str(small_corpus), "training.max_steps=1", "--device=cpu"]
    assert main([*call, "decoding.max_length=9"]) == 0
    run = small_corpus.parent / "run"
    tree = yaml.safe_load((run / CONFIG).read_text(encoding="utf-8"))
    tree["training"]["weight_decay"] = 0.0
    (run / CONFIG).write_text(yaml.safe_dump(tree), encoding="utf-8")
    for name in (BEST, LAST):
        rewrite_header(run / name)
    return run


def refusal(capsys: pytest.CaptureFixture[str], *call: str) -> str:
    capsys.readouterr()
    assert main(call) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


CALLS: dict[str, Callable[[str, str], list[str]]] = {
    "translate": lambda run, _: ["translate", "-m", run, "a"],
    "score": lambda run, _: ["score", "-m", run, "-r", __file__, "-i", __file__],
    "evaluate": lambda run, _: ["evaluate", "-m", run],
    "attention": lambda run, _: ["attention", "-m", run, "-i", __file__],
    "average": lambda run, _: ["average", run, "-o", f"{run}-averaged"],
    "export": lambda run, _: ["export", "-m", run, "-o", f"{run}-exported"],
    "report": lambda run, _: ["report", run],
    "distill": lambda run, _: ["distill", "-m", run, "-o", f"{run}.tsv"],
    "a warm start": lambda run, corpus: [
        *("train", corpus, f"run_dir={run}-2", "--init-from", run, "--device=cpu"),
    ],
}


def test_every_command_names_the_key_and_the_remedy(
    earlier: Path, small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = RENAMED["training.weight_decay"]
    for name, call in CALLS.items():
        line = refusal(capsys, *call(str(earlier), str(small_corpus)))
        assert line.endswith(f": training.weight_decay is now {new} {OVERWRITE}"), name


def test_resuming_and_an_edited_config_are_refused_identically(
    earlier: Path, small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = RENAMED["training.weight_decay"]
    wanted = f"{earlier}: training.weight_decay is now {new} {OVERWRITE}"
    call = ["train", str(small_corpus), "decoding.max_length=9", "--device=cpu"]
    assert refusal(capsys, *call, "--resume") == f"seq2seq: error: {wanted}"
    tree = yaml.safe_load((earlier / CONFIG).read_text(encoding="utf-8"))
    del tree["training"]["weight_decay"]
    (earlier / CONFIG).write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert wanted in refusal(capsys, "translate", "-m", str(earlier), "a")
    rewrite_header(earlier / LAST, state_format=2)
    line = refusal(capsys, *call, "--resume")
    assert line.endswith("Train again with --overwrite")


def test_the_remedy_works(earlier: Path, small_corpus: Path) -> None:
    call = ["train", str(small_corpus), "training.max_steps=1", "--device=cpu"]
    assert main([*call, "decoding.max_length=9", "--overwrite"]) == 0
    assert main(["translate", "-m", str(earlier), "a"]) == 0


def test_a_damaged_config_is_not_taken_for_an_earlier_version(
    earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (earlier / CONFIG).write_text("name: run\n", encoding="utf-8")
    line = refusal(capsys, "translate", "-m", str(earlier), "a")
    assert line.endswith("(`seq2seq train CONFIG --resume` writes it again)")
