"""Warm start from another run.

Under another vocabulary the rows of shared tokens stay. The row of a token that the old vocabulary
lacks is the mean of the rows of the tokens that the old vocabulary spells it with. This holds for
source and target embeddings, for the projection and for its bias.
"""

from pathlib import Path
from typing import NamedTuple

import torch

from seq2seq.config.schema import Config
from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary.vocabulary import (
    UNK_ID,
    Ids,
    Vocabularies,
    Vocabulary,
    checksums_of,
    load_vocabularies,
)
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.layout import VOCABULARY
from seq2seq.runs.run_config import model_changes
from seq2seq.runtime.errors import UserError, argument

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

    @property
    def note(self) -> str:
        """Describe the start for the log."""
        kept = "vocabulary and the " if self.keeps_vocabulary else ""
        return f"initialised from the {kept}best weights of {self.source}"


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
            weight[list(sources.shared)] = source[list(sources.shared.values())].to(weight.device)
