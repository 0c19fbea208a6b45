"""The documentation site: its pages, generated pages, navigation and links."""

import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import build_docs
from documentation.command_line import command_line_page, command_parsers
from documentation.config_keys import config_keys_page
from documentation.links import problems_of
from seq2seq.cli.parser import COMMANDS
from seq2seq.config.schema import json_schema, load_config

ROOT = Path(__file__).resolve().parents[2]


def pages_of(navigation: list[dict[str, Any]]) -> Iterator[str]:
    for entry in navigation:
        for target in entry.values():
            if isinstance(target, str):
                yield target
            else:
                yield from pages_of(target)


def test_every_page_is_in_the_navigation_once(tmp_path: Path) -> None:
    build_docs.stage(tmp_path / "docs")
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    staged = [path.relative_to(tmp_path / "docs") for path in (tmp_path / "docs").rglob("*.md")]
    assert sorted(pages_of(project["nav"])) == sorted(path.as_posix() for path in staged)


def test_every_option_is_on_the_command_line_page() -> None:
    page = command_line_page()
    assert [name for name, _ in command_parsers()] == list(COMMANDS)
    for name, parser in command_parsers():
        section = page.partition(f"\n## seq2seq {name}\n")[2].partition("\n## ")[0]
        options = [each for action in parser._actions for each in action.option_strings]
        assert "--device" in options or name in {"demo", "split", "average", "train", "compare"}
        assert [each for each in options if f"`{each}" not in section] == []


def test_every_key_is_on_the_page_of_config_keys() -> None:
    page, schema = config_keys_page(), json_schema()
    keys = list(schema["properties"].keys() - schema["$defs"].keys())
    for section in schema["$defs"].values():
        keys += section["properties"]
    sections = {"data", "vocabulary", "model", "training", "decoding"}
    assert [key for key in keys if f"| `{key}` |" not in page and key not in sections] == []
    assert "| `learning_rate` | number, above 0 | `0.001` |" in page
    assert "| `decay` | `constant`, `inverse_sqrt`, `linear`, `cosine`, `plateau` |" in page


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="other.html">', None),
        ('<a href="other.html#there">', None),
        ('<a href="https://example.org">', None),
        ('<img src="data:image/png;base64,AA==">', None),
        ('<a href="missing.html">', "missing.html: no such file"),
        ('<a href="other.html#nowhere">', "other.html#nowhere: no such anchor"),
        ('<a href="#nowhere">', "#nowhere: no such anchor"),
        ('<img src="missing.png">', "missing.png: no such file"),
        ('<script src="https://x.org/a.js">', "https://x.org/a.js: loaded from the network"),
        ('<link rel="stylesheet" href="//x.org/a.css">', "//x.org/a.css: loaded from the network"),
    ],
)
def test_a_wrong_link_is_found(html: str, problem: str | None, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(html, encoding="utf-8")
    (tmp_path / "other.html").write_text('<h1 id="there">', encoding="utf-8")
    assert problems_of(tmp_path) == ([f"index.html: {problem}"] if problem else [])


@pytest.mark.skipif(not importlib.util.find_spec("zensical"), reason="needs the extra docs")
def test_the_site_builds_without_a_warning() -> None:
    command = [sys.executable, "scripts/build_docs.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------------------------------ README


def test_the_readme_is_short_and_its_links_lead_to_files() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link.partition("#")[0]).is_file()] == []


def test_the_config_of_the_readme_loads(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "my-run.yaml").write_text(block, encoding="utf-8")
    config, _ = load_config(tmp_path / "my-run.yaml")
    assert config.name == yaml.safe_load(block)["name"]


@pytest.mark.skipif(
    not importlib.util.find_spec("hatch_fancy_pypi_readme"), reason="needs hatch-fancy-pypi-readme"
)
def test_no_link_of_the_readme_on_pypi_leads_nowhere() -> None:
    command = [sys.executable, "-m", "hatch_fancy_pypi_readme"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    links = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert [link for link in links if not link.startswith("https://")] == []
    assert "attention.png)" not in text
    assert "Get started · Your own corpus" in text
