"""Weights of a run under another vocabulary: rows of shared tokens stay, others are composed.

The row of a token that the old vocabulary lacks is the mean of the rows of the tokens that the old
vocabulary spells it with. This holds for source and target embeddings, for the projection and for
its bias.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary.vocabulary import UNK_ID, Ids, Vocabularies, Vocabulary
from seq2seq.model.seq2seq import Seq2Seq, named_weights

_ANCHOR = "\U0010fffd"  # a character of no text: what follows it does not start a line


class TokenSources(NamedTuple):
    """Old ids of each new token: its own, those that spell it, or none."""

    shared: dict[int, int]
    spelled: dict[int, Ids]


def token_sources(old: Vocabulary, new: Vocabulary) -> TokenSources:
    """Return the old ids that the weights of each token of a new vocabulary come from."""
    old_ids = {token: i for i, token in enumerate(old.tokens(range(len(old))))}
    tokens = new.tokens(range(len(new)))
    shared = {i: old_ids[token] for i, token in enumerate(tokens) if token in old_ids}
    others = [i for i in range(len(tokens)) if i not in shared]
    (anchor,) = old.encode([_ANCHOR])
    texts = [_ANCHOR + tokens[i].replace(SPACE, " ") for i in others]
    spelled = {}
    for i, ids in zip(others, old.encode(texts), strict=True):
        after = ids[len(anchor) :] if ids[: len(anchor)] == anchor else ids
        if after := [each for each in after if each != UNK_ID]:
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
        kept, spelled = len(sources.shared), len(sources.spelled)
        random = len(new_side) - kept - spelled
        rest = f", {random:,} random" if random else ""
        side = "" if old.joint and new.joint else f"{name}: "
        parts.append(
            f"{side}{kept:,} of {len(new_side):,} tokens keep their weights, {spelled:,} have the "
            f"mean of their sub-tokens{rest}"
        )
    return "; ".join(parts)
