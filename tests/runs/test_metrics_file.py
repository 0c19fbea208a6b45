"""Lines of metrics.jsonl counted by a training state are verified, and kept if intact."""

from collections.abc import Callable
from pathlib import Path

import pytest

from seq2seq.runs.layout import METRICS
from seq2seq.runs.metrics_file import LineCount, read_metrics
from seq2seq.runs.run_folder import read_saved_metrics, restore_metrics
from seq2seq.runs.training_state import Progress

LINES = [f'{{"step": {step}, "train_loss": {9 - step}.5}}\n'.encode() for step in range(1, 9)]
LATER = [b'{"step": 9, "train_loss": 0.5}\n', b'{"step": 10, "train_loss": 0.25}\n']
Edit = Callable[[list[bytes]], list[bytes]]


def state(lines: list[bytes], step: int = 8) -> Progress:
    """Return the progress of a state saved at `step` beside these lines."""
    count = LineCount([line.rstrip(b"\n") for line in lines])
    return Progress(step=step, metrics_lines=count.lines, metrics_checksum=count.checksum)


def replaced(number: int, line: bytes) -> Edit:
    return lambda lines: [*lines[: number - 1], line, *lines[number:]]


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    (tmp_path / METRICS).write_bytes(LINES[0] + b"damaged\n")
    assert read_metrics(tmp_path) == [{"step": 1, "train_loss": 8.5}]


@pytest.mark.parametrize("later_lines", [[], LATER, LATER[:1]])
def test_intact_lines_are_kept_and_later_ones_removed_silently(
    tmp_path: Path, later_lines: list[bytes]
) -> None:
    (tmp_path / METRICS).write_bytes(b"".join(LINES + later_lines))
    assert restore_metrics(tmp_path, state(LINES)) is None
    assert (tmp_path / METRICS).read_bytes() == b"".join(LINES)


def test_an_incomplete_last_line_is_removed(tmp_path: Path) -> None:
    """A process killed during a write leaves such a line."""
    for length in range(1, len(LATER[0]) - 1):
        (tmp_path / METRICS).write_bytes(b"".join(LINES) + LATER[0][:length])
        assert restore_metrics(tmp_path, state(LINES)) is None
        assert (tmp_path / METRICS).read_bytes() == b"".join(LINES)


@pytest.mark.parametrize(
    ("edit", "damage", "kept_numbers"),
    [
        (lambda _: [], "0 of 8 lines are left", []),
        (replaced(3, LINES[2][:20] + b"\n"), "7 of 8 lines are left", [1, 2, *range(4, 9)]),
        (replaced(3, LINES[2][:20]), "6 of 8 lines are left", [1, 2, 5, 6, 7, 8]),
        (replaced(1, LINES[0][5:]), "7 of 8 lines are left", range(2, 9)),
        (replaced(5, bytes(512) + b"\n"), "7 of 8 lines are left", [1, 2, 3, 4, 6, 7, 8]),
        (replaced(8, LINES[7][:9]), "7 of 8 lines are left", range(1, 8)),
        (replaced(4, b'{"step": "4"}\n'), "7 of 8 lines are left", [1, 2, 3, *range(5, 9)]),
        (replaced(4, b"[4]\n"), "7 of 8 lines are left", [1, 2, 3, *range(5, 9)]),
        (replaced(4, b"\xff\n"), "7 of 8 lines are left", [1, 2, 3, *range(5, 9)]),
        (lambda lines: [*lines[:3], *lines[5:]], "6 of 8 lines are left", [1, 2, 3, 6, 7, 8]),
        (lambda lines: lines[:5], "5 of 8 lines are left", range(1, 6)),
        (lambda lines: lines[::-1], "8 of 8 lines are left", range(8, 0, -1)),
        (lambda lines: [line[:5] + b"\n" for line in lines], "0 of 8 lines are left", []),
    ],
)
@pytest.mark.parametrize("later_lines", [[], LATER])
def test_damage_anywhere_is_reported_in_one_line(
    tmp_path: Path, edit: Edit, damage: str, kept_numbers: list[int], later_lines: list[bytes]
) -> None:
    content = b"".join([*edit(LINES), *later_lines])
    if later_lines and content.count(b"\n") < 9:
        content = content.replace(
            LATER[0], b"\n" + LATER[0]
        )  # keep a truncated end on its own line
    (tmp_path / METRICS).write_bytes(content)
    progress = state(LINES)
    if not later_lines:
        assert (
            read_saved_metrics(tmp_path, progress)[1] == f"not as it was saved at step 8 ({damage})"
        )
        assert (tmp_path / METRICS).read_bytes() == content
    note = restore_metrics(tmp_path, progress)
    assert note is not None
    assert note.startswith(f"warning: {tmp_path / METRICS}: not as it was saved at step 8 (")
    assert note.endswith("the weights are intact, and later figures follow")
    assert "\n" not in note
    assert (tmp_path / METRICS).read_bytes() == b"".join(
        LINES[number - 1] for number in kept_numbers
    )
    restored_state = state([LINES[number - 1] for number in kept_numbers])
    assert restore_metrics(tmp_path, restored_state) is None


def test_a_changed_value_is_reported(tmp_path: Path) -> None:
    edited = [*LINES[:3], LINES[3].replace(b"5.5", b"4.5"), *LINES[4:]]
    (tmp_path / METRICS).write_bytes(b"".join(edited))
    assert edited != LINES
    note = restore_metrics(tmp_path, state(LINES))
    assert note is not None
    assert "(8 of 8 lines are left)" in note
    assert (tmp_path / METRICS).read_bytes() == b"".join(edited)


def test_without_metrics_no_damage_is_reported(tmp_path: Path) -> None:
    assert restore_metrics(tmp_path, state([], step=0)) is None
    assert not (tmp_path / METRICS).exists()
    (tmp_path / METRICS).write_bytes(
        b'{"step": 0, "valid_bleu": 1.0}\n'
    )  # killed before the first save
    assert restore_metrics(tmp_path, state([], step=0)) is None
    assert (tmp_path / METRICS).read_bytes() == b""
