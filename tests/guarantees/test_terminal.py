"""Untrusted text: control characters are escaped on a terminal but not in files and pipes."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cases.tiers import one_quick
from cases.tiny_runs import copy_with_vocabularies, tiny_config
from cases.toy_text import toy_pairs, write_small_corpus

from seq2seq.__main__ import main
from seq2seq.config.schema import load_config
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.inference.translator import Translator
from seq2seq.runs.tensor_file import read_file, save_tensors
from seq2seq.training.loop import train

termios = pytest.importorskip("termios")
ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "\x1b]0;owned\x07\x9b31m\b\u202e\u2066\u200f\x7f"
ESCAPED = r"\u001b]0;owned\u0007\u009b31m\u0008\u202e\u2066\u200f\u007f"
LINE_ENDS = "\x85\u2028\u2029"


def on_a_terminal(*arguments: object, pipe_stdout: bool = False) -> tuple[int, bytes, bytes]:
    """Run the command; return its exit code and the output to the terminal and the pipe."""
    master, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    with subprocess.Popen(
        [sys.executable, "-m", "seq2seq", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if pipe_stdout else terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        piped = process.stdout.read() if process.stdout else b""
        output = _read_rest(master)
    os.close(master)
    return process.returncode, output.replace(b"\r\n", b"\n"), piped


def _read_rest(terminal: int) -> bytes:
    """Return what is shown until no process has the terminal any more."""
    output = b""
    with suppress(OSError):  # Linux raises EIO at the end, at once if nothing is left
        while block := os.read(terminal, 1 << 16):
            output += block
    return output


def assert_no_control_characters(text: str) -> None:
    assert not set(text) & set(HOSTILE.replace("]0;owned", "").replace("31m", "") + LINE_ENDS), text


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "in"
    path.write_text("ba da.\n", encoding="utf-8")
    return path


@one_quick("options", [(), ("--n-best", "2"), ("--json",)])
def test_a_translation_is_escaped_on_a_terminal_only(
    tiny_runs: dict[str, Path], line: Path, options: tuple[str, ...]
) -> None:
    command = ("translate", "-m", tiny_runs["luong"], "-i", line, "--prefix", HOSTILE, *options)
    code, output, _ = on_a_terminal(*command)
    assert code == 0, output
    assert_no_control_characters(output.decode())
    assert ESCAPED in output.decode() or "--json" in options
    code, notes, piped = on_a_terminal(*command, pipe_stdout=True)
    assert code == 0
    assert re.fullmatch(rb"\r[^\n]*\rtranslated: 100%[^\n]*1/1[^\n]*\n", notes)
    if "--json" in options:
        text = json.loads(piped)["text"]
        assert json.loads(output)["text"] == text
        assert HOSTILE in text
    else:
        assert HOSTILE.encode() in piped


def test_messages_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = write_small_corpus(tmp_path)
    missing_run = tmp_path / f"none{HOSTILE}"
    calls: list[list[object]] = [
        ["translate", "-m", missing_run, "-i", corpus],
        ["translate", f"--{HOSTILE}", "-m", missing_run],
        ["evaluate", "--hyp", missing_run, "-r", missing_run],
        ["train", corpus, f"data.train.src={missing_run}"],
        ["train", corpus, f"data.{HOSTILE}=1"],
        ["train", missing_run],
        [HOSTILE],
    ]
    key = tmp_path / "key.yaml"
    quoted = json.dumps(f"{HOSTILE}{LINE_ENDS}")
    key.write_text(f"{quoted}: 1\n{corpus.read_text('utf-8')}", encoding="utf-8")
    value = tmp_path / "value.yaml"
    value.write_text(
        corpus.read_text("utf-8").replace("name: small", f"name: small\nseed: {quoted}"), "utf-8"
    )
    for call in [*calls, ["train", key], ["check", value]]:
        assert main([str(word) for word in call]) == 2
        error = capsys.readouterr().err
        assert_no_control_characters(error)
        assert "\\u" in error or "\\x" in error, call


@pytest.mark.parametrize("where", ["tensor", "header"])
def test_names_in_a_checkpoint_are_escaped(
    tiny_runs: dict[str, Path],
    tiny_vocabularies: object,
    tmp_path: Path,
    line: Path,
    capsys: pytest.CaptureFixture[str],
    where: str,
) -> None:
    run = tmp_path / "run"
    copy_with_vocabularies(tiny_runs["luong"], run, tiny_vocabularies)  # type: ignore[arg-type]
    path = run / "best.safetensors"
    header, tensors = read_file(path)
    if where == "tensor":
        tensors[HOSTILE] = next(iter(tensors.values())).clone()
    else:
        header["config"] = {f"model.{HOSTILE}": HOSTILE}
    save_tensors(path, tensors, header)
    assert main(["translate", "-m", str(run), "-i", str(line)]) == 2
    error = capsys.readouterr().err
    assert_no_control_characters(error)
    assert "\\u001b" in error or "\\x1b" in error


@pytest.mark.usefixtures("no_engine")
def test_log_lines_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_small_corpus(tmp_path)
    text = config.read_text("utf-8").replace("name: small", f"name: {json.dumps(HOSTILE)}")
    config.write_text(text, encoding="utf-8")
    assert main(["train", str(config), "training.max_steps=1", "--device", "cpu"]) == 0
    error = capsys.readouterr().err
    assert f"{ESCAPED}: xx -> yy" in error
    assert_no_control_characters(error)
    assert_no_control_characters((tmp_path / "run" / "train.log").read_text("utf-8"))


@pytest.mark.parametrize("command", ["translate", "score", "attention"])
def test_each_line_of_json_is_one_line_to_any_reader(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    sides = [[f"{line}{LINE_ENDS}{line}" for line in side] for side in toy_pairs(300, seed=1)]
    vocabulary = tiny_config(Path("run"), "none").vocabulary
    copy_with_vocabularies(
        tiny_runs["luong"], tmp_path / "run", train_vocabularies(vocabulary, *sides)
    )
    text = tmp_path / "in"
    text.write_text("".join(f"{line}\n" for line in sides[0][:8]), encoding="utf-8", newline="\n")
    call = [command, "-m", str(tmp_path / "run"), "-i", str(text)]
    if command == "score":
        call += ["-r", str(text)]
    output = tmp_path / "out.json"
    call += ["-o", str(output)] if command == "attention" else ["--json"]
    assert main(call) == 0
    written = output.read_text("utf-8") if command == "attention" else capsys.readouterr().out
    assert written.splitlines() == written.removesuffix("\n").split("\n")
    lines = json.loads(written) if command == "attention" else map(json.loads, written.splitlines())
    tokens = ["".join(fields["src_tokens"]) for fields in lines]
    assert len(tokens) == 8
    assert set(LINE_ENDS) <= set("".join(tokens))


def test_a_separator_in_a_translation_is_escaped_in_n_best_lists(
    tiny_runs: dict[str, Path], line: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = "||| 0 ||| ba ||| |||| |"
    call = ["translate", "-m", str(tiny_runs["luong"]), "-i", str(line), "--prefix", f"{prefix} "]
    assert main([*call, "--n-best", "3"]) == 0
    rows = [output_line.split(" ||| ") for output_line in capsys.readouterr().out.splitlines()]
    assert main([*call, "--n-best", "3", "--json"]) == 0
    nbest = json.loads(capsys.readouterr().out)["n_best"]
    assert [len(row) for row in rows] == [3, 3, 3]
    for (index, text, score), entry in zip(rows, nbest, strict=True):
        assert (index, float(score)) == ("0", entry["score"])
        assert text.replace("&#124;", "|") == entry["text"]
        assert entry["text"].startswith(prefix)


@pytest.mark.thorough
def test_progress_is_shown_only_on_a_terminal(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "in"
    text.write_text("ba da.\n\nzu\n" * 4 + "mo", encoding="utf-8")
    command = ["translate", "-m", tiny_runs["luong"], "-i", text]
    code, output, piped = on_a_terminal(*command, pipe_stdout=True)
    assert code == 0
    assert piped.count(b"\n") == 13
    assert b"/13" in output
    assert re.search(rb"13/13 \[\d\d:\d\d", output)
    _, output, _ = on_a_terminal(*command)  # with translations on the same terminal
    assert b"/13" not in output
    assert main([str(word) for word in command]) == 0
    assert capsys.readouterr().err == ""


@contextmanager
def _prompt(run: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run `translate` at a terminal; yield the process and the master end of the terminal."""
    master, terminal = pty.openpty()
    call = [sys.executable, "-m", "seq2seq", "translate", "-m", str(run), *options]
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with subprocess.Popen(call, cwd=ROOT, **streams) as process:
        os.close(terminal)
        try:
            yield process, master
        finally:
            process.kill()  # no effect unless the test failed
            os.close(master)


def test_lines_are_translated_at_a_prompt(tiny_runs: dict[str, Path]) -> None:
    with _prompt(tiny_runs["luong"]) as (process, master):
        output = _read_until(master, b"\r\n> ")
        os.write(master, "ba na\u0308.\n".encode())
        output += _read_until(master, b"\r\n> ")  # below the translation
        os.write(master, b"\x04")  # Ctrl-D
        assert process.wait(600) == 0
    (translation,) = Translator.load(tiny_runs["luong"], device="cpu").translate(["ba na\u0308."])
    assert "Type one sentence per line; end with Ctrl-D." in output.decode()
    assert translation.text in output.decode()


@pytest.mark.thorough
def test_notes_on_a_typed_line_are_printed_at_once(tiny_runs: dict[str, Path]) -> None:
    with _prompt(tiny_runs["luong"], "-b", "1") as (process, master):
        _read_until(master, b"> ")
        os.write(master, b"buda " * 60 + b"\n")
        output = _read_until(master, b"1 line (1)\r\n> ")
        while process.poll() is None:  # Python may not yet wait for keys
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
        assert process.returncode == 130
        end = _read_rest(master)
    assert b"note: longer than data.max_length; translated in parts: 1 line (1)" in output
    assert b"error" not in end


def _read_until(terminal: int, end: bytes) -> bytes:
    output = b""
    while not output.endswith(end):
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, f"nothing for a minute after {output!r}"
        output += os.read(terminal, 1 << 16)
    return output


@pytest.mark.thorough
@pytest.mark.usefixtures("no_engine")
def test_average_shows_progress_only_on_a_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = ["training.max_steps=4", "training.keep=2", "training.validate_every=2"]
    config = load_config(write_small_corpus(tmp_path), [*keys, "decoding.max_length=9"])
    run = train(config, "cpu", quiet=True)
    code, output, _ = on_a_terminal("average", run, "-o", tmp_path / "mean")
    assert code == 0, output
    assert re.search(rb"\rtranslated: +\d+%", output)
    lines = output.decode().splitlines()
    (last,) = (
        output_line for output_line in lines if "the average of 2: validation BLEU" in output_line
    )
    assert last.rpartition("\r")[2].startswith(str(tmp_path / "mean"))
    capfd.readouterr()
    assert main(["average", str(run), "-o", str(tmp_path / "again")]) == 0
    assert "lines in" not in capfd.readouterr().err
