"""What every subcommand that translates begins with."""

import argparse
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.inference.translator import Translator


def load(options: argparse.Namespace) -> "Translator":
    """The models of `-m` as one; raises UserError where the beam is too small for `--n-best`."""
    int8 = getattr(options, "int8", False)
    with _kept_to_the_end():
        from seq2seq.inference.translator import Translator

        translator = Translator.load(*options.model, device=options.device, int8=int8)
    beam, n_best = getattr(options, "beam", None), getattr(options, "n_best", None)
    translator.beam_size(beam, n_best or 1)  # refuses early
    return translator


@contextmanager
def _kept_to_the_end() -> Iterator[None]:
    """Let Python look for no garbage among what is there once this is done, now or later.

    It would look through all of torch's modules again and again, last of all as it ends: a quarter
    of a second of a command that may take two.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
