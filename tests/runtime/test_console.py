"""Messages on stderr, and tables."""

import io
import logging
import sys
import unicodedata

import pytest
from tqdm import tqdm

from seq2seq.runtime.console import aligned_table, counted, logger, printable, say, size_in_bytes

pytestmark = pytest.mark.usefixtures("on_console")


def test_messages_go_to_the_current_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logger.info("note: 100 % of it")
    assert capsys.readouterr() == ("", "note: 100 % of it\n")
    logger.error("once more")
    assert capsys.readouterr() == ("", "once more\n")


def test_messages_are_not_printed_twice_where_the_root_logger_is_configured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = seen.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        logger.info("one line")
    finally:
        logging.getLogger().removeHandler(handler)
    assert seen == []
    assert capsys.readouterr().err == "one line\n"


def test_a_message_appears_above_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with tqdm(total=3, file=stderr, desc="reading"):
        logger.info("note: above")
    lines = stderr.getvalue().splitlines()
    assert any(line.endswith("note: above") or line == "note: above" for line in lines)
    assert not any("reading" in line and "note" in line.rpartition("\r")[2] for line in lines)


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_a_closed_stderr_does_not_stop_the_program(
    monkeypatch: pytest.MonkeyPatch, with_tqdm: bool
) -> None:
    class ClosedPipe(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", ClosedPipe())
    if not with_tqdm:
        monkeypatch.delitem(sys.modules, "tqdm", raising=False)
    logger.info("a message without a reader")


@pytest.mark.parametrize("align", ["left", "right"])
def test_columns_are_aligned_and_text_is_unchanged(align: str) -> None:
    rows = [("", "score", "p"), ("chrF2", "7", "1e-3"), ("a name", "+07.10", ""), ("b", "-", "nan")]
    lines = aligned_table(rows, align).split("\n")
    assert [line == line.rstrip() for line in lines] == [True] * 4
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row, line in zip(rows, lines, strict=True):
        padded = line.ljust(sum(widths) + 4)
        starts = [0, widths[0] + 2, widths[0] + widths[1] + 4]
        cells = [padded[start : start + width] for start, width in zip(starts, widths, strict=True)]
        pads = [text.ljust if align == "left" else text.rjust for text in row[1:]]
        expected = [row[0].ljust(widths[0])]
        expected += [pad(width) for pad, width in zip(pads, widths[1:], strict=True)]
        assert cells == expected


def test_terminal_and_bidirectional_controls_are_escaped() -> None:
    reordering = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    marks = {"LEFT-TO-RIGHT MARK", "RIGHT-TO-LEFT MARK", "ARABIC LETTER MARK"}
    for number in range(sys.maxunicode + 1):
        char = chr(number)
        escaped = (
            (unicodedata.category(char) in ("Cc", "Zl", "Zp", "Cs") and char not in "\t\n")
            or unicodedata.bidirectional(char) in reordering
            or unicodedata.name(char, "") in marks
        )
        assert printable(f"a{char}b") == (f"a\\u{number:04x}b" if escaped else f"a{char}b")


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_messages_are_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, with_tqdm: bool
) -> None:
    if not with_tqdm:
        monkeypatch.delitem(sys.modules, "tqdm", raising=False)
    logger.error("\x1b[2J\ta\r\nb\x9b")
    say("\x1b[2J")
    assert capsys.readouterr() == ("\\u001b[2J\n", "\\u001b[2J\ta\\u000d\\u000ab\\u009b\n")


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 lines"), (1, "1 line"), (2000, "2,000 lines"), (1.0, "1 line"), (0.5, "0.5 lines")],
)
def test_a_number_has_its_noun_in_the_plural_unless_it_is_one(number: float, text: str) -> None:
    assert counted(number, "line") == text


def test_bytes_are_shown_in_a_suitable_unit() -> None:
    assert [size_in_bytes(size) for size in (0, 1234, 999_999, 1_000_000)] == [
        *("0.0 kB", "1.2 kB", "1000.0 kB", "1.0 MB")
    ]
