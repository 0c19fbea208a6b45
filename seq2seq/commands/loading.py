"""What every subcommand that translates begins with."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.translator import Translator


def load(options: argparse.Namespace) -> "Translator":
    """The models of `-m` as one; raises UserError where the beam is too small for `--n-best`."""
    from seq2seq.translator import Translator

    int8 = getattr(options, "int8", False)
    translator = Translator.load(*options.model, device=options.device, int8=int8)
    beam, n_best = getattr(options, "beam", None), getattr(options, "n_best", None)
    translator.beam_size(beam, n_best or 1)  # refuses early
    return translator
