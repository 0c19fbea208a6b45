"""Print the JSON schema of a config file: every key with its type, description and default. Editors
with a YAML language server read it from a file that the config names in its first line:

  seq2seq schema -o schema.json
  # yaml-language-server: $schema=schema.json
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from seq2seq.cli import arguments
from seq2seq.cli.output import open_output

FILE = "schema.json"  # beside a config that names it
MODELINE = f"# yaml-language-server: $schema={FILE}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_output(parser, "write to a file instead of stdout")


@dataclass(frozen=True)
class Options:
    """Arguments of the command."""

    output: Path | None


def run(options: Options) -> int:
    write_schema(options.output)
    return 0


def write_schema(path: Path | None) -> None:
    """Write the schema to a file or stdout; raises errors as `open_output` does."""
    from seq2seq.config.schema import json_schema

    with open_output(path) as output:
        output.write(json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")
