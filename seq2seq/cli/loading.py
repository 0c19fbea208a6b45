"""Load the config or the model that a subcommand names."""

import argparse
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli import arguments
from seq2seq.runtime.console import logger
from seq2seq.runtime.files import check_paths
from seq2seq.runtime.process_group import is_main_process

if TYPE_CHECKING:
    from seq2seq.config.schema import Config
    from seq2seq.inference.translator import Translator


def resolve_config(path: Path, overrides: Sequence[str]) -> "Config":
    """Load a config with overrides and log notes on keys that have no effect."""
    from seq2seq.config.schema import read_config_file

    config, notes = read_config_file(path, overrides)
    for note in notes if is_main_process() else ():
        logger.info(f"note: {note}")
    check_paths(config.run_dir, *config.data.paths())
    return config


def load_translator(options: argparse.Namespace, n_best: int = 1) -> "Translator":
    """Load the models of a command; raise UserError if its beam is smaller than `n_best`."""
    with frozen_objects():
        from seq2seq.inference.translator import Translator

        translator = Translator.load_with(options.model, arguments.model_options(options))
    translator.beam_size(options.beam, n_best)  # raises before any input is read
    return translator


@contextmanager
def frozen_objects() -> Iterator[None]:
    """Disable the garbage collector while loading, then freeze what was allocated.

    Otherwise it traverses all of torch's modules several times, the last time at exit, which takes
    a quarter of a second.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
