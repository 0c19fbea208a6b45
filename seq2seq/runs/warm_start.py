"""Warm start from another run, and recovery of the vocabulary that a resumed run started with."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from seq2seq.config.schema import Config
from seq2seq.data.training_data import TrainingData
from seq2seq.data.vocabulary.existing import check_same_models
from seq2seq.data.vocabulary.files import checksums_of, load_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs.checkpoint import load_model, update_vocabularies
from seq2seq.runs.layout import VOCABULARY
from seq2seq.runs.provenance import model_changes, recorded_vocabularies
from seq2seq.runs.training_state import TrainingState
from seq2seq.runs.vocabulary_transfer import describe_transfer, transfer
from seq2seq.runtime.errors import DamagedFile, UnreadableFile, UserError, argument


class WarmStart(NamedTuple):
    """Model of the run to start from, with its best weights, and its vocabulary."""

    model: Seq2Seq
    trained: Vocabularies
    keeps_vocabulary: bool  # the config has the same, so that the new run takes it
    source: str  # the run, for the log

    def initialise(self, model: Seq2Seq, vocabularies: Vocabularies) -> None:
        """Give a model of the new run the weights, as far as the vocabularies agree."""
        if not self.keeps_vocabulary:
            return transfer(self.model, self.trained, model, vocabularies)
        weights = named_weights(model)
        for name, weight in named_weights(self.model).items():
            weights[name].copy_(weight)
        return None

    def note(self, vocabularies: Vocabularies) -> str:
        """Describe the start for the log."""
        if self.keeps_vocabulary:
            return f"initialised from the vocabulary and the best weights of {self.source}"
        kept = describe_transfer(self.trained, vocabularies)
        return (
            f"initialised from the best weights of {self.source}, with another vocabulary: {kept}"
        )


def read_warm_start(folder: Path, config: Config) -> WarmStart:
    """Load the vocabulary and the best weights of a run, to start a run with this config.

    A run with other `vocabulary` keys gets a vocabulary of its own. Raises UserError if the weights
    cannot be read, do not fit the config, or would be overwritten.
    """
    if folder.resolve() == config.run_dir.resolve():
        raise UserError(
            "is run_dir itself; set another run_dir", argument="init_from", value=folder
        )
    try:
        run = load_model(folder, torch.device("cpu"))
    except UserError as error:
        raise type(error)(argument("init_from", error)) from None
    if changes := model_changes(run.config, config, ("model.",)):
        raise UserError(
            "its weights do not fit the config; set these keys to its values:",
            *(f"  {change}" for change in changes),
            argument="init_from",
            value=folder,
        )
    models, vocabularies = config.vocabulary.model, run.vocabularies
    keeps = not model_changes(run.config, config, ("vocabulary.",))
    keeps = keeps and (not models or models == run.config.vocabulary.model)
    if keeps:
        sampling = config.vocabulary.sampling
        vocabularies = load_vocabularies(folder / VOCABULARY, sampling, checksums_of(vocabularies))
    source = f"{folder}"
    if run.config.data.direction != config.data.direction:
        source += f", which translates {run.config.data.direction}"
    return WarmStart(run.model, vocabularies, keeps, source)


def resumed_vocabularies(
    state: TrainingState, config: Config, data: TrainingData, init_from: Path | None
) -> tuple[Vocabularies, list[str]]:
    """Return the run's vocabulary, and a note if its damaged files had to be replaced.

    A damaged vocabulary is copied from the run of the warm start or trained again on the same text;
    checksums prove it identical.
    """
    folder, sampling = config.run_dir / VOCABULARY, config.vocabulary.sampling
    try:
        vocabularies = recorded_vocabularies(state.path, state.header, folder, sampling)
    except (DamagedFile, UnreadableFile):
        raise  # the header itself, or a vocabulary that may be intact
    except UserError as error:
        sources: list[tuple[str, Callable[[], Vocabularies]]] = []
        if init_from is not None:
            sources.append(("copied", partial(load_vocabularies, init_from / VOCABULARY, sampling)))
        sources.append(("trained", partial(data.vocabularies, config.vocabulary)))
        for how, load in sources:
            with suppress(UserError):
                vocabularies = load()
                if checksums_of(vocabularies) == state.header["vocabulary"]:
                    update_vocabularies(config.run_dir, vocabularies)
                    return vocabularies, [f"{folder} was damaged: {how} again, bitwise identical"]
        raise UserError(
            f"{error}, but the training text does not give it either. Restore that text or the "
            f"vocabulary, or name the run of the warm start with {argument('init_from')}"
        ) from None
    check_same_models(config.vocabulary, vocabularies, data.tags)
    return vocabularies, []
