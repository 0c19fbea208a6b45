"""Warm start: the vocabulary and the best weights of another run."""

from pathlib import Path
from typing import NamedTuple

import torch

from seq2seq.config.schema import Config
from seq2seq.data.vocabulary.vocabulary import Vocabularies, checksums_of, load_vocabularies
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.layout import VOCABULARY
from seq2seq.runs.run_config import model_changes
from seq2seq.runtime.errors import UserError, argument


class WarmStart(NamedTuple):
    """Model of the run to start from, with its best weights, and its vocabulary."""

    model: Seq2Seq
    vocabularies: Vocabularies
    note: str  # for the log

    def initialise(self, model: Seq2Seq) -> None:
        """Give a model of the new run the weights."""
        weights = named_weights(model)
        for name, weight in named_weights(self.model).items():
            weights[name].copy_(weight)


def read_warm_start(folder: Path, config: Config) -> WarmStart:
    """Load the vocabulary and the best weights of a run, to start a run with this config.

    Raises UserError if the weights cannot be read, do not fit the config, or would be overwritten.
    """
    if folder.resolve() == config.run_dir.resolve():
        raise UserError(
            "is run_dir itself; set another run_dir", argument="init_from", value=folder
        )
    try:
        run = load_model(folder, torch.device("cpu"))
    except UserError as error:
        raise type(error)(argument("init_from", error)) from None
    changes, models = model_changes(run.config, config), config.vocabulary.model
    if models and models != run.config.vocabulary.model:
        changes.append("vocabulary.model: the run has its own vocabulary")
    if changes:
        raise UserError(
            "its weights do not fit the config; set these keys to its values:",
            *(f"  {change}" for change in changes),
            argument="init_from",
            value=folder,
        )
    checksums, sampling = checksums_of(run.vocabularies), config.vocabulary.sampling
    vocabularies = load_vocabularies(folder / VOCABULARY, sampling, checksums)
    note = f"initialised from the vocabulary and the best weights of {folder}"
    if run.config.data.direction != config.data.direction:
        note += f", which translates {run.config.data.direction}"
    return WarmStart(run.model, vocabularies, note)
