"""`seq2seq schema`: print the JSON schema of a config file, for editors."""

import argparse
import json
from pathlib import Path

from seq2seq.runtime.files import atomic_write, write_errors

_ABOUT = """\
Print the JSON schema of a config file: every key with its type, description and default. Editors
with a YAML language server read it from a file that the config names in its first line:

  seq2seq schema -o schema.json
  # yaml-language-server: $schema=schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write to a file instead of stdout"
    )
    parser.description = _ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(options: argparse.Namespace) -> int:
    """Print or write the schema."""
    from seq2seq.config.schema import json_schema

    text = json.dumps(json_schema(), indent=2, ensure_ascii=False)
    if options.output is None:
        print(text)
        return 0
    with write_errors(options.output):
        atomic_write(options.output, f"{text}\n".encode())
    return 0
