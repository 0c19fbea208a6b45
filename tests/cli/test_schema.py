"""The JSON schema of a config, for editors."""

import json
from pathlib import Path

import pytest

from seq2seq.cli.main import main
from seq2seq.config.schema import json_schema


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(json_schema()))
    assert main(["schema", "-o", str(tmp_path / "schema.json")]) == 0
    assert json.loads((tmp_path / "schema.json").read_text("utf-8")) == printed
    assert printed["$defs"]["ModelConfig"]["properties"]["layers"]["description"]
