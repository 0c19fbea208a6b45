"""Output paths: no output replaces an input of the call, and none is left incomplete."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from cases.environment import project_environment
from cases.tiers import one_quick

from seq2seq.__main__ import main
from seq2seq.cli import input as input_lines
from seq2seq.cli.output import open_output
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import RunError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def here(small_corpus: Path, tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a directory with `run`, its corpus and config, and `hyp`, an earlier output."""
    folder = small_corpus.parent
    shutil.copytree(tiny_runs["luong"], folder / "run")
    (folder / "run" / "last.safetensors").write_bytes(b"state")
    (folder / "run" / "train.log").write_bytes(b"log")
    (folder / "hyp").write_bytes((folder / "test.tgt").read_bytes())
    monkeypatch.chdir(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


READING_RUN = (
    "translate -m run -i test.src -o",
    "score -m run -i test.src -r test.tgt -o",
    "attention -m run -i test.src -o",
    "evaluate -m run -i test.src -r test.tgt -o",
    "evaluate -m run -i test.src -r test.tgt --json",
    "check config.yaml --json",
    "check config.yaml run_dir=new --init-from run --json",
    "translate -m other -m run -i test.src -o",
)


@pytest.mark.parametrize("call", READING_RUN)
@pytest.mark.parametrize(
    "path",
    [
        "run/best.safetensors",
        "run/config.yaml",
        "run/last.safetensors",
        "run/previous.safetensors",  # fallback of --resume
        "run/step-12.safetensors",
        "run/vocabulary/joint.model",
        "run/vocabulary/src.model",
        "run/train.log",
        "run/../run/./best.safetensors",
        "link",
        "hard",
        "folder/best.safetensors",
    ],
)
def test_no_output_replaces_a_file_of_the_run(
    here: Path, capsys: pytest.CaptureFixture[str], call: str, path: str
) -> None:
    (here / "link").symlink_to("run/best.safetensors")
    (here / "hard").hardlink_to(here / "run" / "vocabulary" / "joint.model")
    (here / "folder").symlink_to("run")
    contents_before = contents(here)
    assert main([*call.split(), path]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        rf"seq2seq: error: {Path(path)}: is a file of the run \S*run; choose another name\n", err
    )
    assert contents(here) == contents_before


@pytest.mark.parametrize(
    "call",
    [
        "translate -m run -i IN -o",
        "translate -m run -i test.src --prefix-file IN -o",
        "score -m run -i IN -r test.tgt -o",
        "score -m run -i test.src -r IN -o",
        "evaluate -m run -i IN -r test.tgt -o",
        "evaluate --hyp IN -r test.tgt --json",
        "evaluate --hyp test.tgt -r IN --json",
        "attention -m run -i IN -o",
        "check config.yaml data.test.tgt=IN --json",
        "check IN --json",
        "compare IN --json",
    ],
)
@pytest.mark.parametrize("path", ["IN", "./IN", "run/../IN", "link", "hard", "links/IN"])
def test_no_output_replaces_an_input(
    here: Path, capsys: pytest.CaptureFixture[str], call: str, path: str
) -> None:
    source = "config.yaml" if call.split()[1] == "IN" else "test.src"
    (here / "IN").write_bytes((here / source).read_bytes())
    (here / "link").symlink_to("IN")
    (here / "hard").hardlink_to(here / "IN")
    (here / "links").symlink_to(".")
    contents_before = contents(here)
    assert main([*call.split(), path]) == 2
    assert f"{Path(path)}: is already read or written by this" in capsys.readouterr().err
    assert contents(here) == contents_before


def test_the_temporary_file_replaces_no_input(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "new.part").write_bytes((here / "test.src").read_bytes())
    assert main(["translate", "-m", "run", "-i", "new.part", "-o", "new"]) == 2
    assert "new: is written as " in capsys.readouterr().err
    assert (here / "new.part").read_bytes() == (here / "test.src").read_bytes()


def test_an_interrupted_output_replaces_no_input(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "test.src").rename("out.incomplete")
    contents_before = contents(here)
    assert main(["translate", "-m", "run", "-i", "out.incomplete", "-o", "out"]) == 2
    message = "out: is written as out.incomplete if the command fails, which this command reads"
    assert message in capsys.readouterr().err
    assert contents(here) == contents_before


@pytest.mark.parametrize("output", ["cmp/curves.svg", "cmp/small-seed2.valid.hyp"])
def test_a_comparison_does_not_replace_its_inputs(
    here: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    (here / "cmp").mkdir()
    (here / output).write_bytes((here / "train.src").read_bytes())
    call = ["compare", "config.yaml", "-o", "cmp", f"data.train.src={output}"]
    assert main(call) == 2
    assert f"{output}: would be replaced by an output" in capsys.readouterr().err
    assert (here / output).read_bytes() == (here / "train.src").read_bytes()
    for path in (output, "cmp/small-seed1/best.safetensors"):
        assert main(["compare", "config.yaml", "-o", "cmp", "--json", path]) == 2
    assert [path_in_folder.name for path_in_folder in (here / "cmp").iterdir()] == [
        Path(output).name
    ]


@pytest.mark.parametrize("option", ["--overwrite", "--resume"])
@pytest.mark.parametrize("text", ["run/train.log", "run/vocabulary/text", "run/best.safetensors"])
def test_training_refuses_text_files_that_its_run_replaces(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, option: str
) -> None:
    (here / text).write_bytes((here / "train.src").read_bytes())
    contents_before = contents(here)
    assert main(["train", "config.yaml", f"data.train.src={text}", option]) == 2
    assert f"data: {text} is one of the files that the run in " in capsys.readouterr().err
    assert contents(here) == contents_before


@pytest.mark.parametrize("path", ["run/hyp.txt", "run/best.safetensors.txt", "new"])
def test_files_of_other_names_are_written(here: Path, path: str) -> None:
    for _ in range(2):  # the second call replaces its own output
        assert main(["translate", "-m", "run", "-i", "test.src", "-o", path]) == 0
    assert (here / path).read_bytes().count(b"\n") == 11


@pytest.mark.race
@pytest.mark.thorough
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_terminated_call_leaves_no_temporary_file(here: Path, name: str) -> None:
    number = getattr(signal, name)
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{name} is ignored here, as by nohup")
    os.mkfifo(here / "slow")
    call = [sys.executable, "-m", "seq2seq", *["translate", "-m", "run", "-i", "slow", "-o", "out"]]
    environment = project_environment()
    with subprocess.Popen(call, stderr=subprocess.PIPE, env=environment) as process:
        with (here / "slow").open("wb") as slow:
            slow.write(b"ba ba.\n")
            slow.flush()
            while not (here / "out.part").exists():
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(number)
            assert process.wait(600) == 128 + number
        assert process.stderr is not None
        assert process.stderr.read() == b"seq2seq: error: interrupted\n"
    assert not [path.name for path in here.iterdir() if path.name.startswith("out")]


@pytest.mark.race
@one_quick("name", ["SIGTERM", "SIGINT"])
def test_a_terminated_call_keeps_finished_translations(here: Path, name: str) -> None:
    number = getattr(signal, name)
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{name} is ignored here, as by nohup")
    os.mkfifo(here / "slow")
    options = ["translate", "-m", "run", "-i", "slow", "-o", "out", "--batch-size", "2"]
    environment = project_environment()
    call = [sys.executable, "-m", "seq2seq", *options]
    with subprocess.Popen(call, stderr=subprocess.PIPE, env=environment) as process:
        with (here / "slow").open("wb") as slow:
            slow.write(b"ba ba.\nzu.\n" * 2 + b"ba")
            slow.flush()
            part = here / "out.part"
            while not part.exists() or part.read_bytes().count(b"\n") < 4:
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(number)
            assert process.wait(600) == 128 + number
        assert process.stderr is not None
        error = process.stderr.read().decode()
    incomplete = (here / "out.incomplete").read_bytes()
    assert sorted(path.name for path in here.glob("out*")) == ["out.incomplete"]
    assert incomplete.count(b"\n") in (2, 4)
    count = incomplete.count(b"\n")
    note = f"out.incomplete: the translations of the first {count} lines\n"
    assert error.endswith(f"{note}seq2seq: error: interrupted\n")
    assert (
        main(["translate", "-m", "run", "-o", "complete", *["ba ba.", "zu."] * (count // 2)]) == 0
    )
    assert (here / "complete").read_bytes() == incomplete


@pytest.mark.parametrize("options", [(), ("--n-best", "2", "-b", "2"), ("--json",)])
def test_the_lines_of_an_incomplete_batch_are_kept_and_counted(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
) -> None:
    stream = Translator.stream

    def interrupted(*arguments: Any, **options: Any) -> Iterator[Translation]:
        yield from islice(stream(*arguments, **options), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(Translator, "stream", interrupted)
    assert main(["translate", "-m", "run", "-i", "test.src", "-o", "out", *options]) == 130
    note = "out.incomplete: the translations of the first 3 lines\n"
    assert note in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert main(["translate", "-m", "run", "-i", "test.src", "-o", "all", *options]) == 0
    lines = (here / "all").read_bytes().splitlines()[: 3 * (1 + ("--n-best" in options))]
    assert (here / "out.incomplete").read_bytes().splitlines() == lines


def fail_after(text: str, path: Path, lines_of_each: int = 1) -> None:
    """Write a text in place of an output and fail, as when the disk is full."""
    with (
        open_output(path) as output,
        output.kept_on_failure("the scores of the first", "pair", lines_of_each),
    ):
        output.write(text)
        raise RunError("no space")


@pytest.mark.parametrize(
    ("part_size", "line_count", "note"), [(1, 5, "5 pairs"), (2, 4, "2 pairs")]
)
def test_complete_lines_are_kept_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, part_size: int, line_count: int, note: str
) -> None:
    """A full disk may leave a part of a line, and of the lines of a list."""
    with caplog.at_level("INFO"), pytest.raises(RunError, match="no space"):
        fail_after("a\nb\nc\nd\ne\nf", tmp_path / "out", part_size)
    incomplete = tmp_path / "out.incomplete"
    assert incomplete.read_text(encoding="utf-8").splitlines() == list("abcde")[:line_count]
    assert caplog.messages == [f"{incomplete}: the scores of the first {note}"]
    assert list(tmp_path.iterdir()) == [incomplete]


def test_nothing_is_kept_of_no_complete_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no space"):
        fail_after("a", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_lines_are_counted_for_a_bar_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    open_input = input_lines.open_input
    monkeypatch.setattr(
        input_lines,
        "open_input",
        lambda *arguments: opened.append(arguments) or open_input(*arguments),
    )
    assert main(["translate", "-m", "run", "-i", "test.src", "-o", "out"]) == 0
    assert (here / "out").exists()
    assert len(opened) == 1


@pytest.mark.skipif(
    not Path("/proc/version").exists(), reason="needs a /proc, which takes no files"
)
@pytest.mark.parametrize("call", READING_RUN[:5])
def test_an_output_that_cannot_be_created_is_named_as_given(
    here: Path, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    shutil.copytree(here / "run", here / "other")
    name = "hyp.json" if call.endswith("--json") or call.startswith("attention") else "hyp"
    assert main([*call.split(), f"/proc/{name}"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == (f"seq2seq: error: /proc/{name}: cannot be written (No such file or directory)")


@one_quick("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_open_descriptor_is_written_where_it_stands(
    tiny_runs: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """Other programs write to it before and after."""
    program = "from seq2seq.__main__ import main; import sys; sys.exit(main(sys.argv[1:]))"
    log = tmp_path / "job.log"
    with log.open("wb") as file:
        for text in (b"header\n", b""):
            file.write(text)
            file.flush()
            command = [sys.executable, "-c", program, "translate", "-o", name]
            command += ["-m", str(tiny_runs["bahdanau"])]
            subprocess.run(command, input=b"buda\n", stdout=file, check=True, cwd=tmp_path)
            file.seek(0, os.SEEK_END)
        file.write(b"footer\n")
    lines = log.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4
    assert (lines[0], lines[-1]) == ("header", "footer")
    assert lines[1] == lines[2]


def test_an_incomplete_output_replaces_no_link_and_no_larger_one(tmp_path: Path) -> None:
    def fail(lines: int) -> None:
        with (
            suppress(ValueError),
            open_output(tmp_path / "out") as output,
            output.kept_on_failure("has the first", "line"),
        ):
            output.write("line\n" * lines)
            raise ValueError

    incomplete = tmp_path / "out.incomplete"
    precious = tmp_path / "precious"
    precious.write_text("mine")
    incomplete.symlink_to(precious)
    for lines, size in ((3, 15), (2, 15), (4, 20)):
        fail(lines)
        assert incomplete.stat().st_size == size
        assert not incomplete.is_symlink()
    assert precious.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.incomplete", "precious"]
