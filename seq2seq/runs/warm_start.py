"""Warm start from another run, and recovery of the vocabulary that a resumed run started with.

Under another vocabulary the rows of shared tokens stay. The row of a token that the old vocabulary
lacks is the mean of the rows of the tokens that the old vocabulary spells it with. This holds for
source and target embeddings, for the projection and for its bias.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.config.schema import Config
from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.training_data import TrainingData
from seq2seq.data.vocabulary.training import check_same_models
from seq2seq.data.vocabulary.vocabulary import (
    UNK_ID,
    Ids,
    Vocabularies,
    Vocabulary,
    checksums_of,
    load_vocabularies,
)
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs.checkpoint import load_model, update_vocabularies
from seq2seq.runs.layout import VOCABULARY
from seq2seq.runs.provenance import model_changes, recorded_vocabularies
from seq2seq.runs.training_state import TrainingState
from seq2seq.runtime.errors import DamagedFile, UnreadableFile, UserError, argument

_ANCHOR = "\U0010fffd"  # a character of no text: what follows it does not start a line


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
        transferred = describe_transfer(self.trained, vocabularies)
        return (
            f"initialised from the best weights of {self.source}, with another vocabulary: "
            f"{transferred}"
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


class TokenSources(NamedTuple):
    """Old ids of each new token: its own, those that spell it, or none."""

    shared: dict[int, int]
    spelled: dict[int, Ids]


def token_sources(old: Vocabulary, new: Vocabulary) -> TokenSources:
    """Return the old ids that the weights of each token of a new vocabulary come from."""
    old_ids = {token: i for i, token in enumerate(old.tokens(range(len(old))))}
    tokens = new.tokens(range(len(new)))
    shared = {i: old_ids[token] for i, token in enumerate(tokens) if token in old_ids}
    missing = [i for i in range(len(tokens)) if i not in shared]
    (anchor,) = old.encode([_ANCHOR])
    texts = [_ANCHOR + tokens[i].replace(SPACE, " ") for i in missing]
    spelled = {}
    for i, ids in zip(missing, old.encode(texts), strict=True):
        after = ids[len(anchor) :] if ids[: len(anchor)] == anchor else ids
        if after := [token for token in after if token != UNK_ID]:
            spelled[i] = after
    return TokenSources(shared, spelled)


def transfer(
    old: Seq2Seq, old_vocabularies: Vocabularies, new: Seq2Seq, vocabularies: Vocabularies
) -> None:
    """Copy the weights of a model to one of another vocabulary, in place.

    Rows without a source keep their value. If the new model shares a weight that the old one has
    for each side, shared tokens precede spelled ones, and the target's rows the source's.
    """
    src = token_sources(old_vocabularies.src, vocabularies.src)
    tgt = token_sources(old_vocabularies.tgt, vocabularies.tgt)
    rows = [
        (new.encoder.embedding.weight, old.encoder.embedding.weight, src),
        (new.tgt_embedding.weight, old.tgt_embedding.weight, tgt),
        (new.projection.weight, old.projection.weight, tgt),
        (new.projection.bias, old.projection.bias, tgt),
    ]
    of_vocabulary = {id(weight) for weight, _, _ in rows}
    weights = named_weights(old)
    with torch.no_grad():
        for name, parameter in new.named_parameters():
            if id(parameter) not in of_vocabulary:
                parameter.copy_(weights[name])
        for weight, source, sources in rows:
            for i, ids in sources.spelled.items():
                weight[i] = source[ids].mean(dim=0)
        for weight, source, sources in rows:
            _copy_rows(weight, source, sources.shared)


def _copy_rows(weight: Tensor, source: Tensor, rows: dict[int, int]) -> None:
    weight[list(rows)] = source[list(rows.values())].to(weight.device)


def describe_transfer(old: Vocabularies, new: Vocabularies) -> str:
    """Count the tokens whose weights are kept, composed and random, for the log."""
    sides = zip(("source", "target"), old[:2], new[:2], strict=True)
    parts = []
    for name, old_side, new_side in [*sides][: 1 if old.joint and new.joint else 2]:
        sources = token_sources(old_side, new_side)
        shared, spelled = len(sources.shared), len(sources.spelled)
        random = len(new_side) - shared - spelled
        drawn = f", {random:,} random" if random else ""
        side = "" if old.joint and new.joint else f"{name}: "
        parts.append(
            f"{side}{shared:,} of {len(new_side):,} tokens keep their weights, {spelled:,} have "
            f"the mean of their sub-tokens{drawn}"
        )
    return "; ".join(parts)
