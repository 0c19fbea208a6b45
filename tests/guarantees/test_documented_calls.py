"""The calls on the documentation page give the responses that it shows, for any model."""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from cases.server import Served

from seq2seq.tools.commands.serve import add_arguments
from seq2seq.tools.serving.v1 import TranslateLines

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/server.md").read_text(encoding="utf-8")


def calls() -> list[list[str]]:
    commands = re.findall(r"^curl (?:.*\\\n)*.*", PAGE, re.MULTILINE)
    return [shlex.split(command.replace("\\\n", " ")) for command in commands]


def test_the_calls_have_the_documented_responses(served: Served) -> None:
    """The target language is that of the test's model."""
    paths = []
    for _, _, url, *options in calls():
        path = url.removeprefix("http://127.0.0.1:8000")
        options_and_values = list(pairwise(options))
        data = [value for name, value in options_and_values if name in ("-d", "--data-urlencode")]
        headers = dict(value.split(": ") for name, value in options_and_values if name == "-H")
        kind = headers.get("Content-Type", "application/x-www-form-urlencoded")
        body = "&".join(data).replace("target=fr", "target=yy").encode()
        reply = served.call(path, body, {"Content-Type": kind})
        assert reply.status == 200, reply.body
        paths.append((path, sorted(reply.json)))
    assert paths == [
        ("/translate", ["translatedText"]),
        ("/v1/translate", ["documents", "notes", "source", "target", "translations"]),
    ]
    (response,) = re.findall(r"```json\n(.*)\n```", PAGE)
    assert list(json.loads(response)) == ["translatedText"]


def test_nginx_accepts_the_documented_configuration(tmp_path: Path) -> None:
    if (nginx := shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")) is None:
        pytest.skip("there is no nginx: apt-get install nginx-light")
    (configuration,) = re.findall(r"```nginx\n(.*?)```", PAGE, re.DOTALL)
    plain = re.sub(
        r" +ssl_certificate.*\n", "", configuration.replace("listen 443 ssl", "listen 8443")
    )
    names = ("access_log", "error_log", "client_body_temp_path", "proxy_temp_path")
    temporary_paths = ("fastcgi_temp_path", "uwsgi_temp_path", "scgi_temp_path")
    paths = "".join(f"{name} {tmp_path}/{name};\n" for name in (*names, *temporary_paths))
    path = tmp_path / "nginx.conf"
    path.write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\n{paths}{plain}}}\n", "utf-8")
    command = [nginx, "-t", "-c", str(path), "-e", f"{tmp_path}/errors"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (tried.returncode, "test is successful" in tried.stderr) == (0, True), tried.stderr


def test_every_option_and_setting_is_on_the_page() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    options = [option for option in parser._option_string_actions if option.startswith("--")]
    shared_options = {"--model", "--device", "--port"}
    assert [
        option for option in options if option not in PAGE and option not in shared_options
    ] == []
    words = re.findall(r"`(\w+)`", PAGE)
    fields_of_text = {"text", "source", "target", "attention"}
    assert set(TranslateLines.model_fields) - fields_of_text <= set(words)
