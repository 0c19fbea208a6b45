"""Leftovers of a killed command are replaced by the same one; errors are short and name a file."""

import errno
from pathlib import Path

import pytest

from seq2seq.cli.output import incomplete_of, open_output
from seq2seq.runs import layout
from seq2seq.runs.graphs import export_runs
from seq2seq.runtime.errors import MAX_LINE, UserError
from seq2seq.runtime.files import atomic_file
from seq2seq.tools.averaging import check_destination
from seq2seq.tools.commands.serve import _clients


@pytest.mark.parametrize(
    "kept_names", [("topk.onnx.part",), ("topk.onnx", "encoder.onnx", "vocabulary")]
)
def test_a_killed_export_is_replaced(
    kept_names: tuple[str, ...], tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "export"
    export_runs([tiny_runs["luong"]], folder)
    expected = {path.name for path in folder.iterdir()}
    for path in folder.iterdir():
        if path.name not in kept_names and path.is_file():
            path.unlink()
    (folder / "topk.onnx.part").touch()
    export_runs([tiny_runs["luong"]], folder)
    assert {path.name for path in folder.iterdir()} == expected


def test_a_folder_with_other_files_is_no_killed_export(
    tiny_runs: dict[str, Path], tmp_path: Path
) -> None:
    for name in ("topk.onnx", "mine.txt"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match="is not an empty folder"):
        export_runs([tiny_runs["luong"]], tmp_path)
    assert (tmp_path / "mine.txt").exists()


def test_a_killed_average_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f"{layout.CONFIG}.part").touch()
    check_destination(tmp_path, [], overwrite=False)
    (tmp_path / "mine.part").touch()
    with pytest.raises(UserError, match="contains files other than a run's"):
        check_destination(tmp_path, [], overwrite=False)


def test_a_full_disk_names_the_output(tmp_path: Path) -> None:
    path = tmp_path / "output"
    with pytest.raises(OSError) as raised, atomic_file(path):  # noqa: PT011
        raise OSError(errno.ENOSPC, "No space left on device")
    assert raised.value.filename == str(path)


def test_a_complete_output_replaces_an_incomplete_one(tmp_path: Path) -> None:
    path = tmp_path / "output"
    incomplete_of(path).write_text("a line of an earlier call\n")
    with open_output(path) as output:
        output.write("all lines\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["output"]


def test_a_line_of_a_message_is_bounded() -> None:
    error = UserError(f"{'a' * 100_000}: no such file; export the run again")
    assert len(str(error)) <= MAX_LINE
    assert str(error).endswith("; export the run again")


def test_a_token_occurs_once(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    path = tmp_path / "tokens"
    path.write_text("a one 10\nb\na two 20\n")
    with pytest.raises(UserError, match=r"tokens:3: has the token of line 1 again"):
        _clients(path)
