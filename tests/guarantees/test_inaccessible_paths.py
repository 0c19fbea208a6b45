"""Inaccessible paths: exit code 2 before any work, and no message about damage."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cases.tiers import one_quick
from cases.toy_text import write_small_corpus

from seq2seq.__main__ import main
from seq2seq.config.schema import load_config
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.layout import BEST, CONFIG, LAST, PREVIOUS
from seq2seq.runs.training_state import read_state
from seq2seq.runtime.errors import UnreadableFile
from seq2seq.training.loop import train

resource = pytest.importorskip("resource", reason="limits, modes and pipes are those of POSIX")
UNPRIVILEGED = 65534
LONG = "x" * 300
MODEL = "vocabulary/joint.model"
SETTINGS = ("training.max_steps=1", "--device", "cpu")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with a config, its corpus and its run."""
    folder = tmp_path_factory.mktemp("corpus")
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    config = write_small_corpus(folder)
    config.write_text(config.read_text("utf-8").replace(folder.as_posix(), "."), "utf-8")
    train(load_config(config, ["training.max_steps=1"]), "cpu")
    patch.undo()
    return folder


@pytest.fixture
def here(finished: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copy the folder to a world-writable one, and change to it."""
    folder = Path(tempfile.mkdtemp())
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    monkeypatch.chdir(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def unprivileged(here: Path) -> Iterator[Path]:
    """Run as a user to whom file permissions apply."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(UNPRIVILEGED)
    yield here
    if root:
        os.seteuid(0)
    for path in here.rglob("*"):
        path.chmod(0o777)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Check for exit code 2 and a one-line message."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("seq2seq: error: ")
    return err


def names_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != "lock"}


CALLS = (  # each names one path
    "translate -m run -i PATH",
    "translate -m PATH -i test.src",
    "translate -m run -m PATH -i test.src",
    "translate -m run -i test.src -o PATH",
    "translate -m run -i test.src --prefix-file PATH",
    "evaluate --hyp PATH -r test.tgt",
    "evaluate --hyp test.tgt -r PATH",
    "evaluate --hyp test.tgt -r test.tgt --json PATH",
    "evaluate -m run -i test.src -r test.tgt -o PATH",
    "evaluate -m PATH",
    "score -m run -i test.src -r PATH",
    "score -m run -i test.src -r test.tgt -o PATH",
    "train PATH",
    "train config.yaml run_dir=PATH",
    "train config.yaml run_dir=PATH/run",
    "train config.yaml run_dir=a/b/PATH/run",
    "compare config.yaml -o a/PATH",
    "average run/best.safetensors run -o a/PATH",
    "train config.yaml run_dir=new data.train.src=PATH",
    "train config.yaml run_dir=new data.test.src=PATH",
    "train config.yaml run_dir=new --init-from PATH",
    "check PATH",
    "check config.yaml --json PATH",
    "check config.yaml data.valid.src=PATH",
    "check config.yaml run_dir=PATH",
    "check config.yaml run_dir=new --init-from PATH",
    "compare PATH",
    "compare config.yaml PATH",
    "compare config.yaml -o PATH",
    "compare config.yaml data.train.src=PATH -o cmp",
    "compare config.yaml -o cmp --json PATH",
    "average run PATH -o new",
    "average PATH -o new",
    "average run/best.safetensors run -o PATH",
    "attention -m run -i test.src -o PATH.html",
    "attention -m run -i PATH -o a.html",
)


@pytest.mark.parametrize("call", CALLS)
def test_a_name_that_is_too_long_is_refused_before_any_work(
    here: Path, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    names_before = names_of(here)
    error = refused(capsys, *call.replace("PATH", LONG).split())
    assert "File name too long" in error
    assert names_of(here) == names_before


@pytest.mark.parametrize("call", CALLS)
def test_a_path_below_a_folder_without_search_permission_is_refused(
    unprivileged: Path, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    (unprivileged / "closed").mkdir()
    (unprivileged / "closed").chmod(0o600)
    names_before = names_of(unprivileged)
    words = call.replace("a/b/PATH", "PATH").replace("a/PATH", "PATH")
    error = refused(capsys, *words.replace("PATH", "closed/file").split())
    assert "closed/" in error
    assert "Permission denied; a folder of the path may not be searched" in error
    assert names_of(unprivileged) == names_before


def test_an_output_whose_temporary_name_is_too_long_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "x" * 252  # more than 255 characters with .part
    error = refused(capsys, "translate", "-m", "run", "-i", "test.src", "-o", name)
    assert "File name too long" in error
    text = (here / CONFIG).read_text("utf-8").replace("name: small", f"name: {'y' * 240}")
    (here / "long.yaml").write_text(text, "utf-8")
    assert "File name too long" in refused(capsys, "compare", "long.yaml", "-o", "cmp")
    assert not (here / "cmp").exists()


@pytest.mark.parametrize("call", ["translate -m run -i test.src", "train config.yaml --resume"])
def test_a_run_folder_without_search_permission_is_refused(
    unprivileged: Path, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    change_mode(unprivileged / "run", 0o600)
    assert "Permission denied" in refused(capsys, *call.split())


# ------------------------------------------------------------ unreadable files of an intact run


@pytest.fixture(params=[BEST, MODEL, CONFIG, LAST])
def unreadable(request: pytest.FixtureRequest, unprivileged: Path) -> Iterator[Path]:
    """Make a file of the run unreadable; check that its content remains unchanged."""
    path = unprivileged / "run" / request.param
    content = path.read_bytes()
    make_private(path)
    yield path
    change_mode(path, 0o666)
    assert path.read_bytes() == content


def test_an_unreadable_file_is_not_reported_as_damaged(
    unreadable: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if unreadable.name == LAST:
        error = refused(capsys, "train", "config.yaml", "--resume", *SETTINGS)
    else:
        error = refused(capsys, "translate", "-m", "run", "-i", "test.src", "--device", "cpu")
    name = unreadable.relative_to(Path.cwd())
    assert error == f"seq2seq: error: {name}: cannot be read (Permission denied)\n"


@pytest.mark.usefixtures("unreadable")
def test_resuming_does_not_replace_unreadable_files(capsys: pytest.CaptureFixture[str]) -> None:
    call = ("train", "config.yaml", "--resume", "training.max_steps=2", "--device", "cpu")
    assert "cannot be read (Permission denied)" in refused(capsys, *call)


def test_advice_on_a_damaged_file_considers_unreadable_files(
    unprivileged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = unprivileged / "run"
    (run / BEST).write_bytes(b"damaged")
    make_private(run / LAST)
    (run / PREVIOUS).unlink(missing_ok=True)
    error = refused(capsys, "translate", "-m", "run", "-i", "test.src", "--device", "cpu")
    assert f"{LAST} cannot be read: make it readable first" in error
    assert "--overwrite" not in error


def make_private(path: Path) -> None:
    """Make a file unreadable: 0600 of another user, or 0000 of this one."""
    change_mode(path, 0o600 if os.geteuid() == UNPRIVILEGED else 0)


def change_mode(path: Path, mode: int) -> None:
    """Change the mode, as superuser if the tests run as superuser."""
    user = os.geteuid()
    if user == UNPRIVILEGED:
        os.seteuid(0)
    path.chmod(mode)
    os.seteuid(user)


@pytest.mark.parametrize("left", range(4))
def test_too_few_file_handles_are_not_reported_as_damage(here: Path, left: int) -> None:
    load_model(here / "run", torch_cpu())  # trigger late imports
    limits_before = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.dup(0) for _ in range(4)]  # there may be gaps between them
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(opened) + 1, limits_before[1]))
    try:
        while True:
            try:
                opened.append(os.dup(0))
            except OSError:
                break
        for _ in range(left):
            os.close(opened.pop())
        failures = 2
        for read in (
            lambda: load_model(here / "run", torch_cpu()),
            lambda: read_state(here / "run"),
        ):
            with suppress(UnreadableFile):  # DamagedFile is not a subclass
                read()
                failures -= 1
        assert failures == (0 if left == 3 else 2)
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits_before)


def torch_cpu() -> "object":
    import torch

    return torch.device("cpu")


def test_a_run_in_a_folder_whose_name_is_not_utf8_translates(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        (here / "run").rename(here / os.fsdecode(b"r\xff"))
    except OSError:
        pytest.skip("this file system takes no such name")
    call = ["translate", "-m", os.fsdecode(b"r\xff"), "-i", "test.src", "--device", "cpu"]
    assert main(call) == 0
    assert capsys.readouterr().out.count("\n") == 11


# --------------------------------------------------------------- other kinds of file, environment


@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
@pytest.mark.parametrize(
    "name", ["lock", BEST, LAST, PREVIOUS, CONFIG, "metrics.jsonl", "train.log", "vocabulary"]
)
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_training_refuses_other_kinds_of_file_before_removing_any(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, option: str, kind: str
) -> None:
    path = here / "run" / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if (name, kind) == ("vocabulary", "folder"):
        path.write_bytes(b"")
    else:
        path.mkdir() if kind == "folder" else os.mkfifo(path)
    names_before = names_of(here)
    error = refused(capsys, "train", "config.yaml", option, *SETTINGS)
    assert f"run/{name}: is not a " in error
    assert names_of(here) == names_before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "abc") for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "LOCAL_RANK")),
        *((name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_PORT")),
        ("LOCAL_WORLD_SIZE", "-1"),
        ("RANK", "1.5"),
        ("RANK", "²"),
        ("RANK", "7"),
        ("WORLD_SIZE", "0"),
        ("MASTER_PORT", "65536"),
    ],
)
@one_quick("command", ["train", "translate"])
def test_a_malformed_environment_of_torchrun_is_refused(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    command: str,
) -> None:
    valid = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29517"}
    for variable in {**valid, name: value}.items():
        monkeypatch.setenv(*variable)
    if command == "train":
        error = refused(capsys, "train", "config.yaml", "run_dir=new", *SETTINGS)
        assert "in the environment" in error
        assert "unset it, or start with torchrun" in error
    else:  # translate ignores these variables
        assert main(["translate", "-m", "run", "-i", "test.src", "--device", "cpu"]) == 0
    assert not (here / "new").exists()
