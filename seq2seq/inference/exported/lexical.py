"""Lexical constraints in NumPy: the beam allocation of `inference.search.beam_allocation`."""

from collections.abc import Iterator, Sequence

import numpy as np

from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.engines.onnx.network import Array
from seq2seq.inference.exported.sentence_search import SentenceSearch
from seq2seq.inference.search.banks import Continuation, chosen_from_banks

Advancing = list[tuple[int, int, float]]  # partial hypothesis, token, its log-probability


def advancing_tokens(own: Array, each: SentenceSearch) -> Advancing:
    """Return the tokens that advance the phrases of a sentence, before other constraints.

    Takes its log-probabilities [K, V]. Only prefixes and the limit forbid these tokens.
    """
    if each.room <= 0:
        return []
    return [
        (k, token, own[k, token].item())
        for k in _outside_prefix(each)
        for token in each.sentence.lexical.advancing(each.progress[k])
    ]


def constrain_lexically(own: Array, each: SentenceSearch, advancing: Advancing) -> None:
    """Disallow tokens of [K, V], in place, as the function of this name does for torch."""
    lexical = each.sentence.lexical
    needed = [lexical.total - lexical.met(progress) for progress in each.progress]
    stuck = [k for k in _outside_prefix(each) if 0 < each.room <= needed[k]]
    for k in _outside_prefix(each):
        if needed[k]:
            own[k, EOS_ID] = -np.inf
        if k in stuck:
            own[k] = -np.inf
        elif each.progress[k].closed:
            own[k, list(lexical.continuing)] = -np.inf
    for k, token, value in advancing:
        own[k, token] = value
    for k in stuck:  # no token may be wasted
        for token in lexical.advancing(each.progress[k]):
            after = lexical.after(each.progress[k], token)
            if lexical.met(after) <= lexical.met(each.progress[k]):
                own[k, token] = -np.inf


def allocate(
    candidates: Sequence[Array],
    own: Array,
    scores: Array,
    each: SentenceSearch,
    advancing: Advancing,
) -> None:
    """Replace the candidates of a sentence, in place, by those of the banks of its phrases.

    Takes their scores, parents and tokens [2K], log-probabilities [K, V] and scores [K].
    """
    best = own.argmax(axis=1).tolist()
    pairs = {(k, token) for k, token, _ in advancing} | set(enumerate(best))
    found = {Continuation((scores[k] + own[k, token]).item(), k, token) for k, token in pairs}
    found |= {
        Continuation(*values)
        for values in zip(*(part.tolist() for part in candidates), strict=True)
    }
    chosen = chosen_from_banks(
        found, each.sentence.lexical, each.progress, len(own), len(candidates[0])
    )
    for part, values in zip(candidates, zip(*chosen, strict=True), strict=True):
        part[:] = values


def _outside_prefix(each: SentenceSearch) -> Iterator[int]:
    return (k for k in range(len(each.progress)) if not each.in_prefix(k))
