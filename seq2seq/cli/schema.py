"""`seq2seq schema`: print the JSON schema of a config file, for editors."""

import argparse
import json
from pathlib import Path

from seq2seq.cli.output import open_output

FILE = "schema.json"  # beside a config that names it
MODELINE = f"# yaml-language-server: $schema={FILE}"
_ABOUT = f"""\
Print the JSON schema of a config file: every key with its type, description and default. Editors
with a YAML language server read it from a file that the config names in its first line:

  seq2seq schema -o {FILE}
  {MODELINE}
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
    write_schema(options.output)
    return 0


def write_schema(path: Path | None) -> None:
    """Write the schema to a file or stdout; raises errors as `open_output` does."""
    with open_output(path) as output:
        output.write(_as_text())


def _as_text() -> str:
    from seq2seq.config.schema import json_schema

    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
