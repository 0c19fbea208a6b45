"""Weights under another vocabulary, compared with rows gathered and averaged one by one."""

from pathlib import Path
from typing import Any

import torch
from conftest import tiny_config, toy_pairs
from tiers import one_quick
from torch import Tensor

from seq2seq.config.schema import Config, VocabularyConfig
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies, Vocabulary
from seq2seq.model.seq2seq import Seq2Seq, named_weights
from seq2seq.runs.checkpoint import new_model
from seq2seq.runs.warm_start import token_sources, transfer

SRC, TGT = toy_pairs(300, seed=1)
OLD: dict[str, Any] = {"size": 340}
NEW: dict[str, Any] = {"type": "bpe", "size": 380, "symbols": ["<2fr>"]}


def made(seed: int, tied: bool, copy: bool = False, **keys: Any) -> tuple[Vocabularies, Seq2Seq]:
    vocabularies = train_vocabularies(VocabularyConfig.model_validate(keys), SRC, TGT)
    tree = tiny_config(Path("run"), "luong").model_dump()
    own = {"decoder": "luong", "embedding_size": 12, "hidden_size": 20}
    tree |= {"vocabulary": keys, "model": {**own, "tie_embeddings": tied, "copy": copy}}
    torch.manual_seed(seed)
    model = new_model(Config.model_validate(tree), vocabularies)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return vocabularies, model


def tokens_of(vocabulary: Vocabulary) -> list[str]:
    return vocabulary.tokens(range(len(vocabulary)))


def expected(weight: Tensor, old: Vocabulary, token: str) -> Tensor | None:
    """Return the row of a token: its own, or the mean of its sub-tokens; None if not tested."""
    known = tokens_of(old)
    if token in known:
        return weight[known.index(token)]
    if not token.startswith("\u2581"):
        return None
    (ids,) = old.encode([token[1:]])
    return sum(weight[i] for i in ids) / len(ids)  # type: ignore[return-value]


@one_quick("tied", [True, False], ids=["tied", "untied"])
@one_quick("joint", [(1, 1), (1, 0), (0, 1), (0, 0)], ids=str)
def test_rows_of_shared_tokens_are_kept_and_others_are_means(
    joint: tuple[int, int], tied: bool
) -> None:
    old, source = made(1, tied, joint=bool(joint[0]), **OLD)
    new, model = made(2, tied, joint=bool(joint[1]), **NEW)
    transfer(source, old, model, new)
    pairs = {
        "tgt": (model.tgt_embedding.weight, source.tgt_embedding.weight),
        "projection": (model.projection.weight, source.projection.weight),
        "bias": (model.projection.bias, source.projection.bias),
        "src": (model.encoder.embedding.weight, source.encoder.embedding.weight),
    }
    one_for_two = joint == (0, 1) and tied  # the target's rows come first
    same = mean = 0
    for name, (weight, before) in pairs.items():
        vocabulary = new.src if name == "src" else new.tgt
        own = old.src if name == "src" else old.tgt
        known = set(tokens_of(own))
        for i, token in enumerate(tokens_of(vocabulary)):
            if one_for_two and (name == "src" or token not in known):
                continue
            if (row := expected(before, own, token)) is not None:
                torch.testing.assert_close(weight[i], row)
                same, mean = same + (token in known), mean + (token not in known)
    assert same > 500
    assert mean > 40 or one_for_two
    weights, before_weights = named_weights(model), named_weights(source)
    for name in weights:
        if "embedding" not in name and not name.startswith("projection"):
            assert torch.equal(weights[name], before_weights[name])


def test_tokens_inside_words_are_spelled_without_a_space() -> None:
    (old, _), (new, _) = made(1, True, **OLD), made(2, True, **NEW)
    sources, tokens = token_sources(old.src, new.src), tokens_of(new.src)
    assert sources.shared.keys().isdisjoint(sources.spelled)
    for i, ids in sources.spelled.items():
        assert "".join(old.src.tokens(ids)) == tokens[i] or tokens[i].endswith("<2fr>")
    assert sum(not tokens[i].startswith("\u2581") for i in sources.spelled) > 5
    kept, spelled = len(sources.shared), len(sources.spelled)
    assert kept + spelled == len(tokens)


def test_words_without_old_sub_tokens_keep_random_rows() -> None:
    old, source = made(1, False, type="word", size=40, joint=False)
    new, model = made(2, False, type="word", size=400, joint=False)
    random = model.encoder.embedding.weight.clone()
    transfer(source, old, model, new)
    known, tokens = tokens_of(old.src), tokens_of(new.src)
    for i, token in enumerate(tokens):
        row = source.encoder.embedding.weight[known.index(token)] if token in known else random[i]
        assert torch.equal(model.encoder.embedding.weight[i], row)
    kept = sum(token in known for token in tokens)
    assert 0 < kept < len(tokens)


def test_a_model_that_copies_is_transferred() -> None:
    old, source = made(1, True, copy=True, **OLD)
    new, model = made(2, True, copy=True, **NEW)
    transfer(source, old, model, new)
    weights, before = named_weights(model), named_weights(source)
    copying = [name for name in weights if "copying" in name]
    assert copying
    assert all(torch.equal(weights[name], before[name]) for name in copying)
