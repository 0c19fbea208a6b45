"""Prefixes of translations as automata, from tokens."""

from collections.abc import Sequence

import numpy as np

from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.inference.search.lexical import Prefix, PrefixState


def prefix_of(*states: dict[int, int | None]) -> Prefix:
    """Build a prefix from each state's tokens and the states they lead to; None completes it."""
    return Prefix(
        [
            PrefixState(
                np.array(list(state)),
                {token: target for token, target in state.items() if target is not None},
            )
            for state in states
        ],
        [],
    )


def forced(ids: Sequence[int]) -> Prefix:
    return prefix_of(*({i: n + 1 if n + 1 < len(ids) else None} for n, i in enumerate(ids)))


def begins(prefix: Prefix, ids: Ids) -> bool:
    state = 0
    for token in ids:
        if state == len(prefix.states):
            return True
        if token not in prefix.states[state].tokens.tolist():
            return False
        state = prefix.after(state, token)
    return state == len(prefix.states)


CHOICES = prefix_of({4: 1, 5: 2, 6: None}, {6: 2}, {4: None, EOS_ID: None})
