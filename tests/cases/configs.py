"""Configs of the fewest keys, and the messages about them."""

import re
from pathlib import Path

import pytest

from seq2seq.config.schema import Config, ConfigError, load_config, read_config_file

MINIMAL = """\
name: tiny
run_dir: runs/tiny
data:
  src_lang: en
  tgt_lang: de
  train: {src: train.en, tgt: train.de}
  valid: {file: valid.tsv}
training: {max_epochs: 3}
"""


def write_config(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def load(folder: Path, sections: str = "", overrides: tuple[str, ...] = ()) -> Config:
    config, notes = read_config_file(write_config(folder, MINIMAL + sections), overrides)
    assert notes == []
    return config


def refusal(path: Path, overrides: tuple[str, ...] = ()) -> list[str]:
    """Return the lines of the message, one for each error."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value).splitlines()


def errors_in(folder: Path, sections: str = "", overrides: tuple[str, ...] = ()) -> list[str]:
    path = write_config(folder, MINIMAL + sections)
    return [without_path(path, line) for line in refusal(path, overrides)]


def without_path(path: Path, line: str) -> str:
    """Return a line of the message with `FILE:5: ...` as `line 5: ...`."""
    place = re.compile(rf"{re.escape(str(path))}:(?:(\d+):)? ")
    return place.sub(lambda match: f"line {match[1]}: " if match[1] else "", line, count=1)
