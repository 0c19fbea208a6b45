"""A training that begins with what another run has learnt: its vocabulary and its best weights."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.config.diff import changed_keys
from seq2seq.config.schema import Config
from seq2seq.data.vocabulary import Vocabularies, checksums_of, load_vocabularies
from seq2seq.runs.checkpoint import VOCABULARY, load_best, own_weights
from seq2seq.runtime.errors import UserError

_FREE = ("model.dropout:", "vocabulary.sampling:")  # shape neither weights nor vocabulary


class WarmStart(NamedTuple):
    """What a run begins with instead of pieces of its own and random weights."""

    folder: Path
    vocabularies: Vocabularies
    weights: dict[str, Tensor]
    direction: tuple[str, str]  # the languages that it translates from and to

    def note(self, config: Config) -> str:
        """What the log says of it."""
        data = config.data
        said = f"begins with the vocabulary and the best weights of {self.folder}"
        if self.direction == (data.src_lang, data.tgt_lang):
            return said
        return f"{said}, which translates {' to '.join(self.direction)}"


def read_warm_start(folder: Path, config: Config) -> WarmStart:
    """The vocabulary and the best weights of a run, for another run with this config.

    Raises UserError where they cannot be read, belong to another model or vocabulary, or would be
    overwritten.
    """
    if folder.resolve() == config.run_dir.resolve():
        raise UserError(f"--init-from {folder}: is run_dir itself; set another run_dir")
    try:
        model, vocabularies, _, other = load_best(folder, torch.device("cpu"))
    except UserError as error:
        raise type(error)(f"--init-from {error}") from None
    shaping = ["model.", "vocabulary."]
    if config.model.score == "location":
        shaping.append("data.max_length:")  # it has weights for so many positions
    changes = [
        change
        for change in changed_keys(other, config)
        if change.startswith(tuple(shaping)) and not change.startswith(_FREE)
    ]
    if changes:
        raise UserError(
            f"--init-from {folder}: its weights are of another model than the config's; "
            "set these keys as it has them:\n  " + "\n  ".join(changes)
        )
    sampling = config.vocabulary.sampling
    own = load_vocabularies(folder / VOCABULARY, sampling, checksums_of(vocabularies))
    return WarmStart(folder, own, own_weights(model), (other.data.src_lang, other.data.tgt_lang))
