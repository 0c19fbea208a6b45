"""The files for containers: packages as documented, files that exist, options of the server."""

import argparse
import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import yaml

from seq2seq.tools.commands import serve

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
SERVICE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"][
    "translate"
]


def options() -> set[str]:
    parser = argparse.ArgumentParser(add_help=False)
    serve.add_arguments(parser)
    return {serve.variable(action) for action in parser._actions if action.option_strings}


def test_the_packages_are_those_of_the_guide() -> None:
    (packages,) = re.findall(r"--constraint \S+ +(.*?) +&&", DOCKERFILE)
    page = (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")
    (without,) = re.findall(r"^pip install (numpy .*)$", page, re.MULTILINE)
    lists = re.findall(r"`((?:fastapi|pydantic) [a-z0-9 -]+|prometheus-client)`", page)
    assert sorted(packages.split()) == sorted(" ".join([without, *lists]).split())


def test_the_wheel_is_installed_last() -> None:
    """pip then finds no conflict to report in red."""
    page = (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")
    for text in (DOCKERFILE, page, (ROOT / ".ci/wheel").read_text(encoding="utf-8")):
        *_, before, after = re.split("--no-deps .*whl|--no-deps .*wheel", text)
        assert "sentencepiece" in before
        assert not re.search("install .*sentencepiece", after)


def names_of(requirements: list[str]) -> set[str]:
    return {re.split("[<>=~!]", requirement)[0] for requirement in requirements}


def test_the_lists_of_packages_are_those_of_the_project() -> None:
    """They are written by hand, for installations without torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci/wheel").read_text(encoding="utf-8")
    (translating,) = re.findall(r"^pip install (numpy .*)$", page, re.MULTILINE)
    (reading,) = re.findall(r"`(pydantic [a-z0-9 -]+)`", page)
    (serving,) = re.findall(r"`(fastapi [a-z0-9 -]+)`", page)
    assert set(serving.split()) == names_of(project["optional-dependencies"]["serve"])
    needed = {*translating.split(), *reading.split()}
    assert needed < names_of(project["dependencies"])
    installed = [
        line.partition("#")[0].split()[1:]
        for line in script.splitlines()
        if line.startswith("$install ") and "$wheel" not in line
    ]
    (metrics,) = project["optional-dependencies"]["metrics"]
    figures = [*names_of([metrics])]
    assert installed == [translating.split(), reading.split(), serving.split(), figures]
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8").split()
    assert {name for names in installed for name in names} <= names_of(locked)


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    kept_patterns = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    ]
    copied_paths = [
        name
        for names in re.findall(r"^COPY (?!--)(.*) \S+$", DOCKERFILE, re.MULTILINE)
        for name in names.split()
    ]
    assert {"seq2seq", "requirements.lock"} <= set(copied_paths)
    for name in copied_paths:
        assert (ROOT / name).exists()
        assert any(fnmatch(name, pattern) for pattern in kept_patterns), name


def test_variables_are_options_of_the_server() -> None:
    (line,) = re.findall(r"^ENV (.*)$", DOCKERFILE, re.MULTILINE)
    compose = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    variables = re.findall(r"SEQ2SEQ_\w+", line + compose)
    assert {"SEQ2SEQ_HOST", "SEQ2SEQ_MODEL", "SEQ2SEQ_TOKEN_FILE"} <= set(variables) <= options()


def test_both_ask_the_same_path_for_the_health_of_the_server() -> None:
    (check,) = re.findall(r"HEALTHCHECK .* CMD (\[.*\])", DOCKERFILE)
    assert SERVICE["healthcheck"]["test"] == ["CMD", *json.loads(check)]
    assert json.loads(check) == ["seq2seq", "serve", "--health"]
    assert SERVICE["stop_grace_period"] == "70s"  # beyond --timeout
