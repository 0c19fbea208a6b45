"""`translate --format`: HTML and subtitles keep all but their text; mistakes are named."""

import re
from pathlib import Path

import pytest

from seq2seq.__main__ import main

SRT = (
    "1\r\n00:00:01,000 --> 00:00:02,000\r\nbuda <i>ki</i> ba.\r\n\r\n"
    "2\r\n00:00:03,000 --> 00:00:04,000\r\nki ba.\r\n"
)
HTML = "<title>ki ba.</title>\n<p>buda <b>ki</b> ba.</p><pre>ki ba.</pre>\n<p>12</p>"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("film.srt").write_bytes(SRT.encode())
    Path("film.txt").write_bytes(SRT.encode())
    Path("page.html").write_text(HTML, encoding="utf-8")
    Path("latin.srt").write_bytes(SRT.replace("ba", "b\xe9").encode("latin-1"))
    return tmp_path


def output(run: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["translate", "-m", str(run), *arguments]) == 0
    return capsys.readouterr().out


def test_subtitles_are_translated_by_the_ending_of_their_name(
    folder: Path, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_runs["bahdanau"]
    texts = output(run, capsys, "buda ki ba.", "ki ba.").splitlines()
    output(run, capsys, "-i", "film.srt", "-o", "film.fr.srt")
    written = (folder / "film.fr.srt").read_bytes().decode()
    parts = SRT.split("buda <i>ki</i> ba."), written.split("\r\n")
    assert written.startswith(parts[0][0])
    assert written.endswith(f"\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n{texts[1]}\r\n")
    assert re.sub("</?i>", "", parts[1][2]) == texts[0]
    assert re.findall("</?i>", parts[1][2]) == ["<i>", "</i>"]


def test_html_is_translated_between_its_tags(
    tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_runs["bahdanau"]
    title, body = output(run, capsys, "ki ba.", "buda ki ba.").splitlines()
    page = output(run, capsys, "-i", "page.html")
    assert page.startswith(f"<title>{title}</title>\n<p>")
    assert page.endswith("</p><pre>ki ba.</pre>\n<p>12</p>")
    assert re.sub("</?b>", "", page) == HTML.replace("buda <b>ki</b> ba.", body).replace(
        "<title>ki ba.", f"<title>{title}"
    )
    assert output(run, capsys, "--format", "html", HTML, "ki ba.") == f"{page}\n{title}\n"
    with_language = output(run, capsys, "--format", "html", '<html lang="xx"><p title="ki ba.">')
    assert with_language.startswith('<html lang="yy"><p title="')


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-i film.txt", "film.txt: is a file of subtitles (SubRip), not lines of text. seq2seq "),
        ("-i film.srt --json", "--json cannot be used with --format srt (the format of film.srt"),
        ("-i page.html --n-best 2", "--n-best cannot be used with --format html"),
        ("--format vtt --prefix ki ba", "--prefix cannot be used with --format vtt"),
        ("-i latin.srt", "latin.srt:3: byte 0xe9 at column 17 is not UTF-8"),
        ("-i none.srt", "none.srt: no such file"),
    ],
)
def test_mistakes_are_refused_in_one_line(
    tiny_runs: dict[str, Path], line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", "-m", str(tiny_runs["luong"]), *line.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_lines_of_subtitles_are_translated_on_request(
    tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    text = output(tiny_runs["luong"], capsys, "--format", "text", "-i", "film.srt")
    assert len(text.splitlines()) == len(SRT.splitlines())
