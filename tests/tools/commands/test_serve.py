"""`seq2seq serve` as a process: what it prints and refuses, and how a signal stops it."""

import contextlib
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from cases.environment import project_environment
from cases.tiers import one_quick

pytest.importorskip("fastapi")

from cases.server import Reply, Served

from seq2seq.__main__ import main

ROOT = Path(__file__).resolve().parents[3]
# Translations wait until a file exists, unless they are cancelled, and create another before.
GATED = """
import sys, time
from pathlib import Path
from seq2seq.__main__ import main
from seq2seq.inference.translator import Translator
from seq2seq.runtime.cancellation import check_cancelled

gate, started = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
translate = Translator.translate

def gated(*arguments, **options):
    started.touch()
    while not gate.exists():
        check_cancelled()
        time.sleep(0.01)
    return translate(*arguments, **options)

Translator.translate = gated
sys.exit(main())
"""


class Gate(NamedTuple):
    """Files by which a test holds the translations of a server."""

    opened: Path
    started: Path

    def program(self) -> list[str]:
        return ["-c", GATED, str(self.opened), str(self.started)]

    def wait(self, server: subprocess.Popen[str]) -> None:
        """Wait until a translation has started."""
        while not self.started.exists():
            assert server.poll() is None
            time.sleep(0.01)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "opened", tmp_path / "started")


@contextmanager
def process(
    *options: str, program: Sequence[str] = ("-m", "seq2seq")
) -> Iterator[tuple[subprocess.Popen[str], Served]]:
    command = [sys.executable, *program, "serve", "--port", "0", *options]
    environment = project_environment()
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, encoding="utf-8", env=environment
    ) as started:
        try:
            assert started.stderr is not None
            lines = [started.stderr.readline()]
            while lines[-1] and "serving" not in lines[-1]:
                lines.append(started.stderr.readline())
            address = re.search(r"serving (http://127\.0\.0\.1:\d+) ", lines[-1])
            assert address, lines
            yield started, Served(address[1])
        finally:
            started.kill()


def until_refused(served: Served) -> None:
    """Wait until the server accepts no further connection."""
    with contextlib.suppress(ConnectionError):
        while served.call("/health"):
            time.sleep(0.01)


@contextmanager
def asking(served: Served, fields: dict[str, object]) -> Iterator[list[Reply]]:
    """Ask for a translation in a thread; after the block, the list has its reply, if any."""
    replies: list[Reply] = []

    def ask() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            replies.append(served.call("/v1/translate", fields))

    thread = threading.Thread(target=ask)
    thread.start()
    yield replies
    thread.join()


@pytest.mark.race
@one_quick("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_accepted_requests_complete_after_a_signal(
    number: signal.Signals, gate: Gate, tiny_runs: dict[str, Path]
) -> None:
    """New connections are refused meanwhile; the exit code is 0."""
    lines = [f"ba {n}." for n in range(9)]
    run = str(tiny_runs["luong"])
    with process("-m", run, program=gate.program()) as (started, served):
        with asking(served, {"text": lines}) as replies:
            gate.wait(started)
            started.send_signal(number)
            until_refused(served)
            gate.opened.touch()
        assert len(replies[0].json["translations"]) == len(lines)
        _, err = started.communicate(timeout=600)
        assert started.returncode == 0
        assert err == "stopped; all accepted requests have been answered\n"
        with pytest.raises(OSError, match="refused"):
            served.call("/health")


@pytest.mark.race
@pytest.mark.thorough
def test_a_second_interruption_stops_at_once(gate: Gate, tiny_runs: dict[str, Path]) -> None:
    run = str(tiny_runs["luong"])
    with process("-m", run, program=gate.program()) as (started, served):
        with asking(served, {"text": "ba."}) as replies:
            gate.wait(started)
            started.send_signal(signal.SIGINT)
            until_refused(served)  # so that the second signal is not merged with the first
            started.send_signal(signal.SIGINT)
            _, err = started.communicate(timeout=600)
        assert (started.returncode, err) == (130, "seq2seq: error: interrupted\n")
        assert [reply.status for reply in replies] in ([], [503])


def test_a_search_that_does_not_end_is_ended_after_a_signal(
    gate: Gate, tiny_runs: dict[str, Path]
) -> None:
    program = gate.program()
    program[1] = program[1].replace("check_cancelled()", "pass")
    run = str(tiny_runs["luong"])
    with process("-m", run, "--timeout", "1", program=program) as (started, served):
        with asking(served, {"text": "ba."}):
            gate.wait(started)
            started.send_signal(signal.SIGTERM)
            _, err = started.communicate(timeout=600)
        assert started.returncode == 1
        last = "seq2seq: error: stopped by --timeout: not all accepted requests have been answered"
        assert err.splitlines()[-1] in (last, last.removeprefix("seq2seq: error: "))


def with_languages(run: Path, folder: Path, src: str, tgt: str) -> Path:
    """Copy a run with other languages in its config."""
    shutil.copytree(run, folder)
    path = folder / "config.yaml"
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    tree["data"] |= {"src_lang": src, "tgt_lang": tgt}
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return folder


@pytest.mark.thorough
def test_several_runs_serve_several_pairs(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    runs = [
        with_languages(tiny_runs[decoder], tmp_path / decoder, *languages)
        for decoder, languages in (
            ("bahdanau", ("en", "de")),
            ("luong", ("de", "en")),
            ("none", ("en", "zh-Hans")),
        )
    ]
    options = [option for run in runs for option in ("-m", str(run))]
    with process(*options, "decoding.beam_size=2") as (_, served):
        assert served.call("/languages").json == [
            {"code": "en", "name": "English", "targets": ["de", "zh-Hans"]},
            {"code": "de", "name": "German", "targets": ["en"]},
            {"code": "zh-Hans", "name": "Simplified Chinese", "targets": []},
        ]
        texts = {}
        for src, tgt in (("en", "de"), ("de", "en"), ("en", "zh-Hans"), ("auto", "zh-Hans")):
            fields = {"q": "ba lo.", "source": src, "target": tgt}
            texts[src, tgt] = served.call("/translate", fields).json["translatedText"]
        assert texts["auto", "zh-Hans"] == texts["en", "zh-Hans"]
        assert len(set(texts.values())) == 3
        assert served.call("/v1/translate", {"text": "ba lo."}).json["target"] == "de"
        reply = served.call("/v1/translate", {"text": "ba lo.", "source": "en"})
        assert reply.error == "source, target: en-de, en-zh-Hans fit; name both languages"


def test_two_runs_of_one_pair_are_refused(
    tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    first_run = str(tiny_runs["bahdanau"])
    second_run = str(tiny_runs["luong"])
    assert main(["serve", "-m", first_run, "-m", second_run, "--port", "0"]) == 2
    assert capsys.readouterr().err == (
        f"seq2seq: error: {second_run}: translates xx to yy, as {first_run} does, and a request "
        "names languages only; serve one of them\n"
    )


def test_invalid_options_are_refused_in_one_line(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tiny_runs["none"])
    empty = tmp_path / "token"
    empty.write_text(" \n", encoding="utf-8")
    (blank := tmp_path / "blank").touch()
    (long_tokens := tmp_path / "many").write_text("a1\nb2 name lots\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        for options, message in (
            (["--port", port], f"--host 127.0.0.1 --port {port}: cannot listen there"),
            (["--port", "70000"], "argument --port: must be an integer from 0 to 65535"),
            (["--host", "192.0.2.1", "--port", "0"], "--host 192.0.2.1 --port 0: cannot listen"),
            (["--token-file", str(empty)], f"{empty}:1: must be a token"),
            (["--token-file", str(blank)], f"{blank}:1: must be a token"),
            (["--token-file", str(long_tokens)], f"{long_tokens}:2: must be a token of ASCII"),
            (["--token-file", str(tmp_path / "no")], f"{tmp_path / 'no'}"),
            (["--allow-origin", "example.org"], "--allow-origin: must be like https://example.org"),
            (["--allow-origin", "https://example.org/"], "not 'https://example.org/'"),
            (["--allow-origin", "https://*.example.org"], "not 'https://*.example.org'"),
            (["--allow-host", "*.example.org"], "not '*.example.org'"),
            (["--allow-host", "https://example.org"], "--allow-host: must be a name like"),
            (["--allow-host", "example.org:80"], "not 'example.org:80'"),
            (["--max-queue", "10"], "--max-queue 10: below --max-lines (1000)"),
            (["--port", "0", "decoding.beam=3"], "decoding.beam"),
        ):
            assert main(["serve", "-m", run, *options]) == 2
            err = capsys.readouterr().err.splitlines()
            assert len(err) == 1, options
            assert message in err[0]
    assert main(["serve", "-m", str(tmp_path / "missing"), "--port", "0"]) == 2
    assert "no such run folder" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["fastapi", "python-multipart"])
def test_a_missing_extra_is_named(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing_module = package.replace("-", "_")
    monkeypatch.setattr(
        "seq2seq.tools.commands.serve.is_installed", lambda name: name != missing_module
    )
    assert main(["serve", "-m", "run"]) == 2
    assert capsys.readouterr().err == (
        f"seq2seq: error: serve needs {package}. Run: pip install 'seq2seq-attention[serve]'\n"
    )


def test_a_server_open_to_other_machines_warns(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("uvicorn.Server.run", lambda _self, **_options: None)
    run = ["serve", "-m", str(tiny_runs["none"]), "--port", "0"]
    assert main([*run, "--host", "0.0.0.0"]) == 0
    assert "note: everyone who can reach 0.0.0.0 can translate" in capsys.readouterr().err
    assert main(run) == 0
    assert "note" not in capsys.readouterr().err


def test_options_may_be_environment_variables(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line wins; a value is checked as that of the option."""
    monkeypatch.setattr("uvicorn.Server.run", lambda _self, **_options: None)
    for name, value in (
        ("MODEL", str(tiny_runs["none"])),
        ("PORT", "0"),
        ("HOST", "0.0.0.0"),
        ("ALLOW_HOST", "a.example b.example"),
        ("INT8", "0"),
    ):
        monkeypatch.setenv(f"SEQ2SEQ_{name}", value)
    assert main(["serve"]) == 0
    printed = capsys.readouterr().err
    assert f"xx-yy: {tiny_runs['none']}" in printed
    assert "everyone who can reach 0.0.0.0" in printed
    assert main(["serve", "-m", str(tiny_runs["luong"]), "--host", "127.0.0.1"]) == 0
    printed = capsys.readouterr().err
    assert f"xx-yy: {tiny_runs['luong']}" in printed
    assert "everyone" not in printed
    monkeypatch.setenv("SEQ2SEQ_PORT", "many")
    assert main(["serve"]) == 2
    message = "SEQ2SEQ_PORT: must be an integer from 0 to 65535, not 'many'"
    assert capsys.readouterr().err == f"seq2seq: error: {message}\n"


def test_requirements_on_all_translations(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    """A request adds its requirements; each client has a token of its own."""
    glossary, forbidden, tokens = (tmp_path / name for name in ("glossary", "forbidden", "tokens"))
    glossary.write_text("ba\tzuzu\nlo\tkeke\n", encoding="utf-8")
    forbidden.write_text("momo\n", encoding="utf-8")
    tokens.write_text("# clients\na1\nb2 weblate 20\n", encoding="utf-8")
    run = str(tiny_runs["bahdanau"])
    files = ("--glossary", str(glossary), "--forbidden", str(forbidden))
    with process("-m", run, *files, "--token-file", str(tokens), "--log-format", "json") as (
        started,
        served,
    ):
        fields = {"q": "ba lo.", "target": "yy", "api_key": "b2"}
        text = served.call("/translate", fields).json["translatedText"]
        assert "zuzu" in text
        assert "keke" in text
        fields = {"text": "ba lo.", "glossary": [["ba", "gigi"]], "forbidden": ["zuzu"]}
        reply = served.call("/v1/translate", fields, {"Authorization": "Bearer a1"})
        (translation,) = reply.json["translations"]
        assert "gigi" in translation["text"]
        assert "keke" in translation["text"]
        fields = {"text": "ba momo.", "constraints": [["momo"]]}
        reply = served.call("/v1/translate", fields, {"Authorization": "Bearer a1"})
        assert (reply.status, "'momo' is" in reply.error) == (400, True)
        sampled = {"text": "ba lo.", "sampling": {"samples": 2}}
        assert served.call("/v1/translate", sampled, {"Authorization": "Bearer a1"}).status == 200
        started.send_signal(signal.SIGTERM)
        _, err = started.communicate(timeout=600)
    requests = [entry for line in err.splitlines() if "path" in (entry := json.loads(line))]
    logged = ("path", "status", "client", "pair", "lines", "characters")
    assert [tuple(entry[name] for name in logged if name in entry) for entry in requests] == [
        ("/translate", 200, "weblate", "xx-yy", 1, 6),
        ("/v1/translate", 200, "client 1", "xx-yy", 1, 6),
        ("/v1/translate", 400, "client 1"),
        ("/v1/translate", 200, "client 1", "xx-yy", 1, 6),
    ]


def test_the_page_loads_nothing_from_the_network(served: Served) -> None:
    paths = ("/", "/static/page.js", "/static/page.css", "/static/attention.css")
    texts = [served.call(path).body.decode() for path in paths]
    for text in texts:
        assert re.findall(r"(?:\w+:)?//[\w.]\S*", text) == []


def test_a_browser_finds_the_icon_beside_pages_that_name_none(served: Served) -> None:
    icon = served.call("/favicon.ico")
    assert (icon.status, icon.body) == (200, served.call("/static/icon.svg").body)


def test_a_port_for_metrics_that_is_taken_is_named(
    tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("prometheus_client")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = ["serve", "-m", str(tiny_runs["none"]), "--port", "0"]
        assert main([*command, "--metrics-port", str(port)]) == 2
    assert capsys.readouterr().err.startswith(
        f"seq2seq: error: --metrics-port {port}: cannot listen on 127.0.0.1 ("
    )


def test_the_health_of_a_running_server(
    tiny_runs: dict[str, Path],
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A proxy, which Docker may set in every container, is not asked."""
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("SEQ2SEQ_HOST", "0.0.0.0")
    run = str(tiny_runs["luong"])
    with process("-m", run, "--host", "127.0.0.1", program=gate.program()) as (_, served):
        monkeypatch.setenv("SEQ2SEQ_PORT", str(served.port))
        assert main(["serve", "--health"]) == 0
        assert json.loads(capsys.readouterr().out)["status"] == "ok"
    assert main(["serve", "--health"]) == 1
    message = f"--host 0.0.0.0 --port {served.port}: no server answers there (Connection refused)"
    assert capsys.readouterr().err == f"seq2seq: error: {message}\n"


def test_a_server_without_a_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve"]) == 2
    assert capsys.readouterr().err.startswith("seq2seq: error: serve needs -m RUN")


@pytest.mark.parametrize("name", ["TOKEN_FILE", "GLOSSARY", "FORBIDDEN"])
def test_an_empty_variable_opens_no_server(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compose makes one of ${TOKENS:-}."""
    monkeypatch.setenv(f"SEQ2SEQ_{name}", "")
    assert main(["serve", "-m", "run"]) == 2
    message = f"SEQ2SEQ_{name}: is empty; name a file, or unset it"
    assert capsys.readouterr().err == f"seq2seq: error: {message}\n"
