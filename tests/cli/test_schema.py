"""The JSON schema of a config, for editors."""

import json
import re
from pathlib import Path

import pytest
import yaml

from seq2seq.cli.main import main
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


def strict_numbers(tree: object) -> object:
    """Read numbers as YAML 1.2 and editors do; PyYAML's 1.1 has `2e-3` as text."""
    if isinstance(tree, dict):
        return {key: strict_numbers(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [strict_numbers(each) for each in tree]
    return float(tree) if isinstance(tree, str) and NUMBER.fullmatch(tree) else tree


CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_config_fits_the_schema(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    tree = strict_numbers(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert isinstance(tree, dict)
    if VARIANTS in tree:
        pytest.skip("is for seq2seq compare")
    validator = jsonschema.Draft202012Validator(json_schema())
    assert [error.message for error in validator.iter_errors(tree)] == []
    broken = {**tree, "model": {**tree.get("model", {}), "dropouts": 0.1}}
    assert not validator.is_valid(broken)


def test_the_schema_is_one_and_its_defaults_fit_it() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    checked = 0
    for section in schema["$defs"].values():
        for key, each in section["properties"].items():
            assert not {"ge", "gt", "le", "lt"} & each.keys()
            if each.get("default") is not None:
                validator = jsonschema.Draft202012Validator({**each, "$defs": schema["$defs"]})
                assert validator.is_valid(each["default"]), key
                checked += 1
    assert checked > 30
