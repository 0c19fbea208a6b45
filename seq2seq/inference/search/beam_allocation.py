"""Dynamic beam allocation: slots of a beam divided among numbers of met tokens.

Post & Vilar (2018), section 3. The candidates of a step are the best of all hypotheses, the best of
each, and every token that starts or continues a missing phrase. Candidates that meet the same
number of tokens form a bank, and each bank receives an equal share of the beam.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.inference.search.banks import Continuation, chosen_from_banks
from seq2seq.inference.search.constraints import Rows
from seq2seq.inference.search.lexical import Lexical, PhraseProgress
from seq2seq.inference.search.topk import Continuations


class Advancing(NamedTuple):
    """Tokens that start or continue a missing phrase, with their unconstrained log-probabilities.

    No other constraint forbids them, except a prefix.
    """

    rows: Tensor  # [M]
    tokens: Tensor  # [M]
    values: Tensor  # [M]


def advancing_tokens(log_probs: Tensor, rows: Rows) -> Advancing:
    """Return the tokens that advance the phrases of each row [N, V], before other constraints."""
    in_prefix = rows.in_prefix()
    pairs = [
        (row, token)
        for slot, lexical, progress in _constrained(rows)
        if rows.lengths[slot] < rows.limits[slot] - 1
        for k, each in enumerate(progress)
        if (row := slot * rows.beam_size + k) not in in_prefix
        for token in lexical.advancing(each)
    ]
    numbers = torch.tensor(pairs, dtype=torch.long, device=rows.device).view(-1, 2)
    of_rows, tokens = numbers.unbind(1)
    return Advancing(of_rows, tokens, log_probs[of_rows, tokens])


def constrain_lexically(log_probs: Tensor, rows: Rows, advancing: Advancing) -> None:
    """Disallow, in place, tokens after which the phrases could not be met, or would not be words.

    End-of-sentence waits for all phrases. A word that completes a phrase does not continue. Once
    only the missing tokens fit within the limit, only they are allowed.
    """
    in_prefix = rows.in_prefix()
    for slot, lexical, progress in _constrained(rows):
        left = rows.limits[slot] - 1 - rows.lengths[slot]
        for k, each in enumerate(progress):
            row = slot * rows.beam_size + k
            if row in in_prefix:
                continue
            needed = lexical.total - lexical.met(each)
            if needed:
                log_probs[row, EOS_ID] = -torch.inf
            if 0 < left <= needed:
                log_probs[row] = -torch.inf
            elif each.closed:
                log_probs[row, list(lexical.continuing)] = -torch.inf
    log_probs[advancing.rows, advancing.tokens] = advancing.values
    for slot, lexical, progress in _constrained(rows):
        left = rows.limits[slot] - 1 - rows.lengths[slot]
        for k, each in enumerate(progress):
            if 0 < left <= lexical.total - lexical.met(each):  # no token may be wasted
                for token in lexical.advancing(each):
                    if lexical.met(lexical.after(each, token)) <= lexical.met(each):
                        log_probs[slot * rows.beam_size + k, token] = -torch.inf


def allocate(
    candidates: Continuations, log_probs: Tensor, scores: Tensor, rows: Rows, advancing: Advancing
) -> None:
    """Replace the candidates [B, 2K] of sentences with phrases, in place, by those of their banks.

    Those that end come first, best first, then those that continue.
    """
    size = rows.beam_size
    totals = (
        scores.view(-1)[advancing.rows] + log_probs[advancing.rows, advancing.tokens]
    ).tolist()
    advancing_of: dict[int, list[Continuation]] = {}
    pairs = zip(advancing.rows.tolist(), advancing.tokens.tolist(), totals, strict=True)
    for row, token, total in pairs:
        advancing_of.setdefault(row // size, []).append(Continuation(total, row % size, token))
    for slot, lexical, progress in _constrained(rows):
        own = slice(slot * size, (slot + 1) * size)
        best, tokens = log_probs[own].max(dim=1)
        of_each = zip((scores[slot] + best).tolist(), range(size), tokens.tolist(), strict=True)
        of_all = zip(*(part[slot].tolist() for part in candidates), strict=True)
        found = {Continuation(*each) for each in (*of_each, *of_all)}
        found |= set(advancing_of.get(slot, ()))
        chosen = chosen_from_banks(found, lexical, progress, size, candidates.scores.shape[1])
        for part, values in zip(candidates, zip(*chosen, strict=True), strict=True):
            part[slot] = torch.tensor(values, dtype=part.dtype, device=part.device)


def _constrained(rows: Rows) -> list[tuple[int, Lexical, list[PhraseProgress]]]:
    """Return the busy slots with phrases, and the progress of their hypotheses."""
    return [
        (slot, rows.lexical[slot], rows.progress[slot])
        for slot in rows.busy()
        if rows.lexical[slot].phrases
    ]
