"""The journal of a long translation: appended batches survive any interruption."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.runtime.errors import UserError
from seq2seq.tools.corpora.synthetic import Journal

SETTINGS = "checksum"
BATCHES = [[["één"], ["दो"]], [["", "x\ty"]], [["five"], ["six"], ["seven"]]]


def written(path: Path, batches: list[list[list[str]]]) -> list[list[str]]:
    with Journal.open(path, SETTINGS) as journal:
        for batch in batches:
            journal.append(batch)
        return list(journal.translations())


def test_translations_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    lines = [line for batch in BATCHES for line in batch]
    assert written(path, BATCHES[:1]) == lines[:2]
    assert written(path, BATCHES[1:]) == lines
    with Journal.open(path, SETTINGS) as journal:
        assert journal.line_count == 6


def test_a_journal_cut_anywhere_loses_only_the_line_being_written(tmp_path: Path) -> None:
    """After resuming, it has each line once, wherever the process was killed."""
    path = tmp_path / "journal"
    lines = written(path, BATCHES)
    content = path.read_bytes()
    ends = [n + 1 for n, byte in enumerate(content) if byte == ord("\n")]
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        complete = max(0, sum(end <= length for end in ends) - 1)
        with Journal.open(path, SETTINGS) as journal:
            assert journal.line_count == complete
            journal.append(lines[complete:])
            assert list(journal.translations()) == lines
        assert path.read_bytes() == content


@given(st.lists(st.lists(st.text(st.characters(exclude_categories=("Cs",))))))
def test_any_text_is_kept(tmp_path_factory: pytest.TempPathFactory, batch: list[list[str]]) -> None:
    path = tmp_path_factory.mktemp("any") / "journal"
    assert written(path, [batch]) == batch


def test_other_settings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path, BATCHES)
    other_settings = "another"
    with (
        pytest.raises(UserError, match=r"was begun with other settings"),
        Journal.open(path, other_settings),
    ):
        pass
    with Journal.open(path, other_settings, overwrite=True) as journal:
        assert (journal.line_count, list(journal.translations())) == (0, [])
    with Journal.open(path, SETTINGS) as journal:  # nothing would be lost
        assert journal.line_count == 0


def test_overwriting_resumes_a_journal_of_the_same_settings(tmp_path: Path) -> None:
    written(tmp_path / "journal", BATCHES)
    with Journal.open(tmp_path / "journal", SETTINGS, overwrite=True) as journal:
        assert journal.line_count == 6


@pytest.mark.parametrize("content", ["My own notes.\n", "My own notes", "My own\nnotes.\n", "\n"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_that_is_no_journal_is_kept(tmp_path: Path, content: str, overwrite: bool) -> None:
    path = tmp_path / "journal"
    path.write_text(content)
    with (
        pytest.raises(UserError, match="journal: is not a journal of translations"),
        Journal.open(path, SETTINGS, overwrite=overwrite),
    ):
        pass
    assert path.read_text() == content


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path, BATCHES)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], lines[2][:-1], *lines[3:]]))
    with (
        pytest.raises(UserError, match=r"journal:3: is damaged. Remove the file to begin again"),
        Journal.open(path, SETTINGS) as journal,
    ):
        list(journal.translations())


def test_two_processes_cannot_write_one_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with (
        Journal.open(path, SETTINGS),
        pytest.raises(UserError, match="another process is writing it"),
        Journal.open(path, SETTINGS),
    ):
        pass
