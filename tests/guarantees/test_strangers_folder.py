"""Effects of a stranger's folder: files opened, modules imported, processes started."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from seq2seq.__main__ import main
from seq2seq.config.schema import Config
from seq2seq.runs.graphs import export_runs
from seq2seq.runs.layout import BEST
from seq2seq.runs.tensor_file import read_file, save_tensors

_EVENTS = ("subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn", "os.system", "pty.spawn")
_watched: list["Watch"] = []  # the one that is active; a hook cannot be removed


class Watch:
    """Record of what happens; opening a pipe is an error, as reading it would never end."""

    def __init__(self, pipe: Path) -> None:
        self.pipe = os.fspath(pipe)
        self.opened: set[str] = set()
        self.started: list[str] = []
        self.imported: set[str] = set()

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.fspath(arguments[0])
            self.opened.add(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100
            if os.fsdecode(path) == self.pipe:
                raise OSError("a pipe is opened")
        elif event == "import":
            self.imported.add(str(arguments[0]))
        elif event in _EVENTS:
            self.started.append(event)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for watch in _watched:
        watch.note(event, arguments)


@pytest.fixture(scope="module", autouse=True)
def _hooked() -> None:
    sys.addaudithook(_hook)


@pytest.fixture
def strange_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder of the user, with texts, a module and a pipe; work in another one."""
    folder = tmp_path / "outside"
    folder.mkdir()
    lines = "".join(f"ba lo mi {number}.\n" for number in range(4))
    for name in ("secret.txt", "other.txt"):
        (folder / name).write_text(lines, encoding="utf-8")
    (folder / "evil.py").write_text("class X:\n    pass\n", encoding="utf-8")
    os.mkfifo(folder / "pipe")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def leaves(tree: Any, parent_keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in a tree, its inner ones included."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(entries):
        yield (*parent_keys, key)
        if isinstance(value, dict | list):
            yield from leaves(value, (*parent_keys, key))


def changed(tree: Any, path: tuple[Any, ...], value: object) -> Any:
    copy = json.loads(json.dumps(tree))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return copy


def without_defaults(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a config without the keys that have their defaults, which is read sooner."""
    config = Config.model_validate(tree)
    short_tree = config.model_dump(mode="json", exclude_defaults=True)
    assert Config.model_validate(short_tree) == config
    return short_tree


def is_config(tree: dict[str, Any]) -> bool:
    try:
        Config.model_validate(tree)
    except ValidationError:
        return False
    return True


def hostile_values(strange_folder: Path) -> list[object]:
    secret = str(strange_folder / "secret.txt")
    pipe = str(strange_folder / "pipe")
    other_file = str(strange_folder / "other.txt")
    pairs = [{"src": secret, "tgt": other_file}, {"src": pipe, "tgt": pipe}, {"file": secret}]
    return [secret, pipe, "../outside/secret.txt", "evil:X", [secret], "/dev/zero", *pairs]


def check(words: list[str], strange_folder: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Run a command; return the files of the user that it opened, each of which it has named."""
    watch = Watch(strange_folder / "pipe")
    _watched.append(watch)
    try:
        code = main(words)
    finally:
        _watched.remove(watch)
    errors = capsys.readouterr().err
    assert code in (0, 1, 2), errors
    assert "Traceback" not in errors
    assert watch.started == []
    assert "evil" not in watch.imported
    assert "/dev/zero" not in watch.opened
    opened = {path for path in watch.opened if Path(path).is_relative_to(strange_folder)}
    assert all(f"outside/{Path(path).name}" in errors for path in opened), (opened, errors)
    return opened


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["translate", "evaluate", "report", "distill"])
def test_a_config_opens_nothing_that_is_not_named(
    command: str,
    strange_folder: Path,
    tiny_runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A value that is no config is refused by the same function in all commands.

    So `translate` has all of these, and the others one of each key.
    """
    run = shutil.copytree(tiny_runs["luong"], tmp_path / "run")
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    config["data"]["test"] = {"src": "test.src", "tgt": "test.tgt"}
    short_config = without_defaults(config)
    line = Path("line.txt")
    line.write_text("ba lo mi.\n", encoding="utf-8")
    words = {
        "translate": ["translate", "-m", str(run), "-i", str(line), "--device", "cpu"],
        "evaluate": ["evaluate", "-m", str(run), "--device", "cpu"],
        "report": ["report", str(run), "-o", "page.html", "--device", "cpu"],
        "distill": ["distill", "-m", str(run), "-o", "made.tsv", "--overwrite", "--device", "cpu"],
    }[command]
    read = set()
    for path in leaves(config):
        refused_values = 0
        for value in hostile_values(strange_folder):
            section = path[0]
            tree = short_config | {section: changed(config, path, value)[section]}
            if command != "translate" and not is_config(tree):
                refused_values += 1
                if refused_values > 1:
                    continue
            (run / "config.yaml").write_text(json.dumps(tree), encoding="utf-8")  # which is YAML
            read |= check(words, strange_folder, capsys)
            page = Path("page.html")
            assert not page.exists() or "ba lo mi 2." not in page.read_text("utf-8")
    expected = {str(strange_folder / name) for name in ("secret.txt", "other.txt")}
    assert read == (set() if command == "translate" else expected)


@pytest.mark.thorough
def test_an_export_opens_nothing_outside_of_its_folder(
    strange_folder: Path,
    tiny_runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "export"
    export_runs([tiny_runs["luong"]], folder)
    description = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    line = Path("line.txt")
    line.write_text("ba lo mi.\n", encoding="utf-8")
    for path in leaves(description):
        for value in hostile_values(strange_folder):
            text = json.dumps(changed(description, path, value))
            (folder / "export.json").write_text(text, encoding="utf-8")
            assert (
                check(["translate", "-m", str(folder), "-i", str(line)], strange_folder, capsys)
                == set()
            )


@pytest.mark.thorough
def test_headers_of_weights_open_nothing(
    strange_folder: Path,
    tiny_runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Give them right checksums, as a stranger would."""
    run = shutil.copytree(tiny_runs["luong"], tmp_path / "run")
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    (run / "config.yaml").write_text(json.dumps(without_defaults(config)), encoding="utf-8")
    header, tensors = read_file(run / BEST)
    line = Path("line.txt")
    line.write_text("ba lo mi.\n", encoding="utf-8")
    words = ["translate", "-m", str(run), "-i", str(line), "--device", "cpu"]
    for path in leaves(header):
        for value in hostile_values(strange_folder):
            save_tensors(run / BEST, tensors, changed(header, path, value))
            assert check(words, strange_folder, capsys) == set()
