"""JSON schema of a config, for editors."""

import json
import os
import re
from pathlib import Path

import pydantic
import pytest
import yaml

from seq2seq.__main__ import main
from seq2seq.cli import schema
from seq2seq.config.schema import VARIANTS, json_schema

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"\d+(\.\d+)?e-?\d+")


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(json_schema()))
    assert main(["schema", "-o", str(tmp_path / "schema.json")]) == 0
    assert json.loads((tmp_path / "schema.json").read_text("utf-8")) == printed
    assert printed["$defs"]["ModelConfig"]["properties"]["layers"]["description"]


def test_the_schema_beside_the_shipped_configs_is_current(tmp_path: Path) -> None:
    """`seq2seq schema -o configs/schema.json` updates the file."""
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    if f"pydantic=={pydantic.VERSION}\n" not in locked:
        pytest.skip(f"pydantic {pydantic.VERSION} may word a schema unlike the locked version")
    schema.write_schema(tmp_path / "schema.json")
    assert (ROOT / "configs" / schema.FILE).read_text("utf-8") == (
        tmp_path / "schema.json"
    ).read_text("utf-8")


def test_the_schema_is_written_like_other_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["schema", "-o", "-"]) == 0
    printed = capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    Path("link").symlink_to("target")
    assert main(["schema", "-o", "link"]) == 0
    assert Path("link").is_symlink()
    assert Path("target").read_text("utf-8") == printed
    assert main(["schema", "-o", "none/schema.json"]) == 2
    assert "there is no folder none; create it first" in capsys.readouterr().err


def test_the_schema_is_written_into_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2seq.config.schema.json_schema", dict)  # fits into the buffer of a pipe
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["schema", "-o", str(pipe)]) == 0
        assert pipe.is_fifo()
        assert os.read(reader, 9) == b"{}\n"
    finally:
        os.close(reader)


def strict_numbers(tree: object) -> object:
    """Parse numbers as YAML 1.2 and editors do; PyYAML's 1.1 reads `2e-3` as text."""
    if isinstance(tree, dict):
        return {key: strict_numbers(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [strict_numbers(element) for element in tree]
    return float(tree) if isinstance(tree, str) and NUMBER.fullmatch(tree) else tree


CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


def test_every_shipped_config_is_valid_by_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json_schema())
    for path in CONFIGS:
        text = path.read_text(encoding="utf-8")
        tree = strict_numbers(yaml.safe_load(text))
        assert isinstance(tree, dict), path
        assert (text.partition("\n")[0] == schema.MODELINE) == (VARIANTS not in tree), path
        if VARIANTS in tree:  # is for seq2seq compare
            continue
        assert [error.message for error in validator.iter_errors(tree)] == [], path
        broken = {**tree, "model": {**tree.get("model", {}), "dropouts": 0.1}}
        assert not validator.is_valid(broken), path


def test_the_schema_and_its_defaults_are_valid() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    checked = 0
    for section in schema["$defs"].values():
        complete = section if "properties" in section else section["anyOf"][-1]
        for key, described in complete["properties"].items():
            assert not {"ge", "gt", "le", "lt"} & described.keys()
            if described.get("default") is not None:
                validator = jsonschema.Draft202012Validator({**described, "$defs": schema["$defs"]})
                assert validator.is_valid(described["default"]), key
                checked += 1
    assert checked > 30
