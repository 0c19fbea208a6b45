import gzip
import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path

import pytest

from seq2seq.__main__ import main
from seq2seq.data import public_corpora
from seq2seq.data.public_corpora import read_pairs, split_pairs
from seq2seq.runtime.errors import RunError

TEXTS = {"train.en.gz": b"A dog.\nTwo cats.\n", "val.en.gz": b"A bird.\n"}
PAIRS = [
    f"Sentence {number} here.\tवाक्य {number}\tCC-BY 2.0 (France) #{number}" for number in range(230)
]


class Mirror(ThreadingHTTPServer):
    """A local web server that serves `files` by path."""

    daemon_threads = False  # closing the server waits for the last response

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.missing_bytes = 0  # number of bytes promised in Content-Length but never sent
        self.reason: str | None = None  # reason phrase of a 404; None: the standard phrase
        self.requests: list[str] = []
        self.user_agents: set[str | None] = set()
        self.url = f"http://127.0.0.1:{self.server_port}/some/folder"


class Answer(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        name = self.path.removeprefix("/some/folder/")
        self.server.requests.append(name)
        self.server.user_agents.add(self.headers["User-Agent"])
        if name not in self.server.files:
            self.send_error(404, self.server.reason)
            return
        missing_bytes = self.server.missing_bytes
        body = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + missing_bytes))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("no_proxy", "*")
    with Mirror() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def multi30k(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """Return a server for a Multi30k of only two small files."""
    checksums = {name: hashlib.sha256(text).hexdigest() for name, text in TEXTS.items()}
    monkeypatch.setattr(public_corpora, "MULTI30K", checksums)
    mirror.files = {name: gzip.compress(text) for name, text in TEXTS.items()}
    return mirror


def fetch(mirror: Mirror, name: str, output: Path) -> int:
    return main(["download", name, "-o", str(output), "--base-url", mirror.url])


def zip_of(members: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)  # dated 1980
    return buffer.getvalue()


def anki_zip(lines: list[str]) -> bytes:
    return zip_of({"mar.txt": "".join(f"{line}\n" for line in lines), "_about.txt": "About."})


def lines_of(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the text on stderr, which must be one line."""
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_multi30k_is_saved_as_served(multi30k: Mirror, tmp_path: Path) -> None:
    assert fetch(multi30k, "multi30k", tmp_path / "data") == 0
    assert files_below(tmp_path) == {"data/multi30k/train.en.gz", "data/multi30k/val.en.gz"}
    for name, packed in multi30k.files.items():
        assert (tmp_path / "data/multi30k" / name).read_bytes() == packed
    assert all(agent and "Python-urllib" not in agent for agent in multi30k.user_agents)


def test_the_reason_phrase_of_a_server_is_escaped(
    multi30k: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    multi30k.files, multi30k.reason = {}, "\x1b]0;owned\x07 \x9b31m\b"
    assert fetch(multi30k, "multi30k", tmp_path) == 1
    error = error_line(capsys)
    assert error.isprintable()
    assert "download failed: HTTP Error 404: \\u001b]0;owned\\u0007 \\u009b31m\\u0008" in error


def test_multi30k_names_every_file_and_split() -> None:
    names = [
        f"{split}.{language}.gz"
        for split in ("train", "val", "test_2016_flickr")
        for language in ("en", "de", "fr", "cs")
    ]
    assert list(public_corpora.MULTI30K) == names
    assert len(set(public_corpora.MULTI30K.values())) == 12


def test_correct_files_are_kept_and_others_replaced(
    multi30k: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "multi30k"
    folder.mkdir()
    repacked = gzip.compress(TEXTS["train.en.gz"], compresslevel=1, mtime=7)
    (folder / "train.en.gz").write_bytes(repacked)  # other bytes, same content
    (folder / "val.en.gz").write_bytes(b"half a downlo")
    assert fetch(multi30k, "multi30k", tmp_path) == 0
    assert multi30k.requests == ["val.en.gz"]
    assert (folder / "train.en.gz").read_bytes() == repacked
    assert lines_of(folder / "val.en.gz") == ["A bird."]
    assert "train.en.gz: up to date" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"Another text.\n"), b"<html>busy</html>", b""],
    ids=["other-text", "not-gzip", "empty"],
)
def test_wrong_content_is_not_kept(
    multi30k: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    multi30k.files["train.en.gz"] = content
    assert fetch(multi30k, "multi30k", tmp_path) == 1
    assert files_below(tmp_path) == set()
    message = error_line(capsys)
    assert "train.en.gz" in message
    assert public_corpora.MULTI30K["train.en.gz"] in message
    if content.startswith(b"\x1f\x8b"):
        assert hashlib.sha256(b"Another text.\n").hexdigest() in message


def test_a_failed_download_keeps_the_files_before_it(multi30k: Mirror, tmp_path: Path) -> None:
    right = multi30k.files.pop("val.en.gz")
    assert fetch(multi30k, "multi30k", tmp_path) == 1
    assert files_below(tmp_path) == {"multi30k/train.en.gz"}
    multi30k.files["val.en.gz"] = right
    assert fetch(multi30k, "multi30k", tmp_path) == 0
    assert multi30k.requests == ["train.en.gz", "val.en.gz", "val.en.gz"]


@pytest.mark.parametrize("name", ["multi30k", "anki-eng-mar"])
def test_a_file_missing_on_the_server_is_reported(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert fetch(mirror, name, tmp_path) == 1
    assert f"{mirror.url}/{mirror.requests[0]}: download failed: HTTP Error 404" in error_line(
        capsys
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["multi30k", "anki-eng-mar"])
def test_a_truncated_body_is_refused(
    multi30k: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    multi30k.files["mar-eng.zip"] = anki_zip(PAIRS)
    multi30k.missing_bytes = 5
    assert fetch(multi30k, name, tmp_path) == 1
    assert "IncompleteRead" in error_line(capsys)
    assert list(tmp_path.iterdir()) == []


def test_an_unreachable_server_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with Mirror() as gone:
        pass
    assert fetch(gone, "multi30k", tmp_path) == 1
    line = error_line(capsys)
    assert f"{gone.url}/train.en.gz: download failed: <urlopen error" in line
    assert "Check the network connection" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["wmt14"], "argument NAME: invalid choice: 'wmt14' (choose from "),
        ([], "the following arguments are required: NAME"),
        (["multi30k", "--base-url", "file:///etc"], "--base-url file:///etc: must start with "),
    ],
)
def test_invalid_arguments_are_refused_before_any_download(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["download", *words]) == 2
    assert error_line(capsys).startswith(f"seq2seq: error: {message}")


def test_anki_is_split_without_losing_lines(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.files["mar-eng.zip"] = anki_zip(PAIRS)
    assert fetch(mirror, "anki-eng-mar", tmp_path) == 0
    folder = tmp_path / "anki-eng-mar"
    assert files_below(tmp_path) == {f"anki-eng-mar/{s}.tsv.gz" for s in ("train", "dev", "test")}
    lines_by_split = {
        split: lines_of(folder / f"{split}.tsv.gz") for split in ("train", "dev", "test")
    }
    assert {split: len(lines) for split, lines in lines_by_split.items()} == {
        "train": 184,
        "dev": 23,
        "test": 23,
    }
    assert sorted(chain.from_iterable(lines_by_split.values())) == sorted(PAIRS)
    stdout = capsys.readouterr().out
    assert hashlib.sha256(mirror.files["mar-eng.zip"]).hexdigest() in stdout
    assert "specific to this command" in stdout


def test_the_same_zip_gives_the_same_bytes(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["mar-eng.zip"] = anki_zip(PAIRS)
    for name in ("one", "two"):
        assert fetch(mirror, "anki-eng-mar", tmp_path / name) == 0
    for split in ("train", "dev", "test"):
        first, second = (
            tmp_path / name / f"anki-eng-mar/{split}.tsv.gz" for name in ("one", "two")
        )
        assert first.read_bytes() == second.read_bytes()


def test_a_split_that_cannot_be_written_leaves_no_folder_to_refuse(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise RunError("no space")

    mirror.files["mar-eng.zip"] = anki_zip(PAIRS)
    with monkeypatch.context() as patch:
        patch.setattr(public_corpora, "new_file", no_space)
        assert fetch(mirror, "anki-eng-mar", tmp_path / "data") == 1
    assert not (tmp_path / "data").exists()
    assert fetch(mirror, "anki-eng-mar", tmp_path / "data") == 0


def test_a_complete_split_is_kept_and_an_incomplete_one_refused(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.files["mar-eng.zip"] = anki_zip(PAIRS)
    assert fetch(mirror, "anki-eng-mar", tmp_path) == 0
    assert fetch(mirror, "anki-eng-mar", tmp_path) == 0
    assert mirror.requests == ["mar-eng.zip"]
    assert "up to date" in capsys.readouterr().out
    (tmp_path / "anki-eng-mar/test.tsv.gz").unlink()
    assert fetch(mirror, "anki-eng-mar", tmp_path) == 1
    assert "incomplete corpus" in error_line(capsys)
    assert files_below(tmp_path) == {"anki-eng-mar/train.tsv.gz", "anki-eng-mar/dev.tsv.gz"}


def test_hostile_member_names_are_not_extracted(mirror: Mirror, tmp_path: Path) -> None:
    hostile = ["../escaped.txt", "../../mar.txt", "/escaped.txt", "x/mar.txt", "train.tsv.gz"]
    good = {"mar.txt": "\n".join(PAIRS)}
    mirror.files["mar-eng.zip"] = zip_of(dict.fromkeys(hostile, "bad\tbad\n") | good)
    assert fetch(mirror, "anki-eng-mar", tmp_path / "deep/data") == 0
    names = {f"deep/data/anki-eng-mar/{split}.tsv.gz" for split in ("train", "dev", "test")}
    assert files_below(tmp_path) == names
    assert all(
        "bad" not in gzip.decompress((tmp_path / name).read_bytes()).decode() for name in names
    )


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        pytest.param(b"not a zip", "not an intact archive", id="not-a-zip"),
        pytest.param(anki_zip(PAIRS)[:-40], "not an intact archive", id="cut-short"),
        pytest.param(zip_of({"deu.txt": "a\tb"}), "not an intact archive", id="other-member"),
        pytest.param(
            zip_of({"../mar.txt": "a\tb"}),
            r"not an intact archive of mar\.txt",
            id="member-elsewhere",
        ),
        pytest.param(zip_of({"mar.txt": "a\tb\nalone\nc\td\n"}), r"mar\.txt:2: ", id="one-column"),
        pytest.param(
            zip_of({"mar.txt": "a\t \tsource\n"}), r"mar\.txt:1: ", id="blank-translation"
        ),
        pytest.param(zip_of({"mar.txt": ""}), r"mar\.txt:1: ", id="empty"),
    ],
)
def test_a_bad_archive_is_refused(archive: bytes, message: str) -> None:
    with pytest.raises(RunError, match=message):
        read_pairs(archive, "mar.txt")


def test_a_member_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = zip_of({"mar.txt": "a\tb\n" * 5000})
    monkeypatch.setattr(public_corpora, "MAX_UNPACKED", 20_000)
    assert len(read_pairs(archive, "mar.txt")) == 5000
    monkeypatch.setattr(public_corpora, "MAX_UNPACKED", 19_999)
    with pytest.raises(RunError, match="larger than"):
        read_pairs(archive, "mar.txt")


def test_only_line_feeds_end_a_line() -> None:
    text = "\ufeffOne.\tएक\u2028दोन\r\nTwo.\tतीन\u200d\x85\n"
    pairs = read_pairs(zip_of({"mar.txt": text}), "mar.txt")
    assert pairs == ["One.\tएक\u2028दोन", "Two.\tतीन\u200d\x85"]


def test_no_sentence_of_either_language_is_in_two_splits() -> None:
    english = [f"{word} {number}" for number in range(90) for word in ("I run", "i RUN!", "We go")]
    lines = [f"{text}\tfoo {number % 150}" for number, text in enumerate(english)]
    splits = split_pairs(lines)
    assert sorted(chain.from_iterable(splits.values())) == sorted(lines)
    assert splits["dev"]
    assert splits["test"]
    for column in (0, 1):
        seen = [
            {public_corpora.sentence_key(line.split("\t")[column]) for line in splits[split]}
            for split in ("train", "dev", "test")
        ]
        assert sum(len(keys) for keys in seen) == len(set.union(*seen))


def test_the_split_does_not_depend_on_the_order_of_lines() -> None:
    forwards = split_pairs(PAIRS)
    backwards = split_pairs(PAIRS[::-1])
    assert {split: lines[::-1] for split, lines in backwards.items()} == forwards


def test_dev_and_test_have_a_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_corpora, "HELD_OUT", 7)
    splits = split_pairs(PAIRS)
    assert (len(splits["dev"]), len(splits["test"])) == (7, 7)


def test_sentence_keys_ignore_case_punctuation_and_spaces() -> None:
    assert public_corpora.sentence_key("Don't  STOP!") == public_corpora.sentence_key("dont stop")
    assert public_corpora.sentence_key("चांगला") != public_corpora.sentence_key("चागल")
    assert public_corpora.sentence_key("?!") != public_corpora.sentence_key("...")
