"""Greedy and beam search: ids in, ids out.

Sentences are searched in tiles of a fixed number of rows and a padded length that depends on the
sentence alone, because products change in the last digit with their number of rows: so a
translation does not depend on its company.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from seq2seq.batches import Ids, pad_sources
from seq2seq.vocabulary import BOS_ID, EOS_ID, PAD_ID

TILE_SENTENCES = 32
TILE_LENGTH_STEP = 8  # source positions


class ModelStep(Protocol):
    """What one step of a model yields for N rows."""

    @property
    def outputs(self) -> Any:
        """What `project` takes."""
        ...

    @property
    def state(self) -> Any:
        """What the next step takes; `select(rows)` gives that of other rows."""
        ...

    @property
    def attention_weights(self) -> Tensor | None:
        """Where each row looked: [N, S], None without attention."""
        ...


class Model(Protocol):
    """All that search knows of a model, one network or several; what is `Any` stays opaque."""

    def encode(self, src: Tensor, src_lengths: Tensor) -> Any:
        """Source ids [B, S], their lengths [B] (END counted) -> what `start` takes."""
        ...

    def start(self, encoded: Any) -> tuple[Any, Any]:
        """The memory of the sentences, and the state before the first target position."""
        ...

    def step(self, ids: Tensor, state: Any, memory: Any) -> ModelStep:
        """One target position: the last ids [N] of N = B * K hypotheses."""
        ...

    def project(self, outputs: Any) -> Tensor:
        """Outputs of N rows -> logits [N, V]."""
        ...


class Hypothesis(NamedTuple):
    """One translation, END included."""

    ids: Ids
    score: float  # log-probability, nats, divided by length ** length_penalty
    attention_weights: Tensor | None  # [T, S] on the CPU, END included on both sides


def search(
    model: Model,
    sources: Sequence[Ids],
    limits: Sequence[int],
    beam_size: int,
    length_penalty: float,
    device: torch.device,
) -> list[list[Hypothesis]]:
    """The hypotheses of each source (END not counted), best first.

    At most `beam_size` of them; none is empty, nor longer than its source's limit, END not counted.
    """
    found: list[list[Hypothesis]] = [[] for _ in sources]
    for rows, width in tiles(sources):
        filled = [*(sources[i] for i in rows), *[[]] * (TILE_SENTENCES - len(rows))]
        src, src_lengths = (part.to(device) for part in pad_sources(filled, width))
        steps = torch.tensor([limits[i] + 1 for i in rows] + [2] * (TILE_SENTENCES - len(rows)))
        if beam_size == 1:
            results = greedy(model, src, src_lengths, steps.to(device), length_penalty)
        else:
            results = beam(model, src, src_lengths, steps.to(device), beam_size, length_penalty)
        for i, hypotheses in zip(rows, results, strict=False):
            found[i] = [_trim(hypothesis, len(sources[i]) + 1) for hypothesis in hypotheses]
    return found


def tiles(sources: Sequence[Ids]) -> Iterator[tuple[list[int], int]]:
    """The rows of each tile and its padded source length, END counted."""
    by_width: dict[int, list[int]] = {}
    for i, ids in enumerate(sources):
        width = -(-(len(ids) + 1) // TILE_LENGTH_STEP) * TILE_LENGTH_STEP
        by_width.setdefault(width, []).append(i)
    for width in sorted(by_width):
        rows = sorted(by_width[width], key=lambda i: len(sources[i]))
        for start in range(0, len(rows), TILE_SENTENCES):
            yield rows[start : start + TILE_SENTENCES], width


def _trim(hypothesis: Hypothesis, src_length: int) -> Hypothesis:
    weights = hypothesis.attention_weights
    return hypothesis._replace(
        attention_weights=None if weights is None else weights[:, :src_length]
    )


@torch.inference_mode()
def greedy(
    model: Model, src: Tensor, src_lengths: Tensor, steps: Tensor, length_penalty: float
) -> list[list[Hypothesis]]:
    """From START take the likeliest piece until END.

    Takes src [B, S], lengths [B] and the most steps, END counted, [B].
    """
    memory, state = model.start(model.encode(src, src_lengths))
    ids = torch.full_like(src_lengths, BOS_ID)
    total = torch.zeros(len(src), device=src.device)
    finished = torch.zeros_like(src_lengths, dtype=torch.bool)
    path, looks = [], []
    for t in range(int(steps.max())):
        step = model.step(ids, state, memory)
        state = step.state
        log_probs = _log_probs(model, step.outputs, t, steps)
        best, ids = log_probs.max(dim=-1)
        total = torch.where(finished, total, total + best)
        ids = ids.masked_fill(finished, PAD_ID)
        finished = finished | (ids == EOS_ID)
        path.append(ids)
        if step.attention_weights is not None:
            looks.append(step.attention_weights)
        if finished.all():
            break
    return _collect(
        torch.stack(path, 1), total, torch.stack(looks, 1) if looks else None, length_penalty
    )


def _collect(
    paths: Tensor, totals: Tensor, looks: Tensor | None, length_penalty: float
) -> list[list[Hypothesis]]:
    lengths = (paths != PAD_ID).sum(1)
    scores = totals / lengths**length_penalty
    looks = None if looks is None else looks.float().cpu()
    found = []
    for row, (ids, length) in enumerate(zip(paths.tolist(), lengths.tolist(), strict=True)):
        weights = None if looks is None else looks[row, :length]
        found.append([Hypothesis(ids[:length], scores[row].item(), weights)])
    return found


@torch.inference_mode()
def beam(
    model: Model,
    src: Tensor,
    src_lengths: Tensor,
    steps: Tensor,
    beam_size: int,
    length_penalty: float,
) -> list[list[Hypothesis]]:
    """Keep the `beam_size` likeliest beginnings of each sentence; an ended one goes to the pool.

    A sentence is done once its pool is full and no beginning, were it to end now, would beat the
    worst in the pool. Arguments as in `greedy`.
    """
    sentences, size = len(src), beam_size
    memory, state = model.start(model.encode(src, src_lengths))
    rows = torch.arange(sentences, device=src.device).repeat_interleave(size)
    state = state.select(rows)
    first = rows.view(sentences, size) * size  # row of each sentence's first hypothesis, [B, K]
    ids = torch.full((sentences * size,), BOS_ID, device=src.device)
    scores = torch.full((sentences, size), -torch.inf, device=src.device)
    scores[:, 0] = 0
    pool = _Pool.empty(sentences, size, src.device)
    trail: list[_Trail] = []
    for t in range(int(steps.max())):
        step = model.step(ids, state, memory)
        log_probs = _log_probs(model, step.outputs, t, steps.repeat_interleave(size))
        totals = (scores.view(-1, 1) + log_probs).view(sentences, -1)  # [B, K * V]
        best, flat = totals.topk(2 * size, dim=-1)
        parents, candidates = flat // log_probs.shape[-1], flat % log_probs.shape[-1]
        ended = candidates == EOS_ID
        ends = best.masked_fill(~ended, -torch.inf)[:, :size]  # ends among the likeliest K count
        pool = pool.add(ends / (t + 1) ** length_penalty, parents[:, :size], t)
        scores, kept = best.masked_fill(ended, -torch.inf).topk(size, dim=-1)
        parents, ids = parents.gather(1, kept), candidates.gather(1, kept).flatten()
        trail.append(_Trail(ids.view(sentences, size), parents, step.attention_weights))
        pool = pool.close(scores[:, 0] / (t + 1) ** length_penalty)
        if pool.done.all():
            break
        state = step.state.select((first + parents).flatten())
    return _retrace(pool, trail)


def _log_probs(model: Model, outputs: Tensor, t: int, steps: Tensor) -> Tensor:
    """Log-probabilities [N, V] of what may follow at step t, row n ending by step `steps[n]`."""
    log_probs = model.project(outputs).float().log_softmax(dim=-1)
    log_probs[:, [PAD_ID, BOS_ID]] = -torch.inf
    if t == 0:
        log_probs[:, EOS_ID] = -torch.inf
    end = log_probs[:, EOS_ID].clone()
    log_probs.masked_fill_((t + 1 >= steps)[:, None], -torch.inf)
    log_probs[:, EOS_ID] = end
    return log_probs


class _Trail(NamedTuple):
    """One step of all beams: the pieces taken, from which hypotheses, and where those looked."""

    ids: Tensor  # [B, K]
    parents: Tensor  # [B, K]
    attention_weights: Tensor | None  # [B * K, S], of the hypotheses before the step


class _Pool(NamedTuple):
    """The best ended hypotheses of each sentence, and whether it is done."""

    scores: Tensor  # [B, K], -inf where none
    parents: Tensor  # [B, K]: the hypothesis it ended from
    steps: Tensor  # [B, K]: at which step
    done: Tensor  # [B]

    @classmethod
    def empty(cls, sentences: int, size: int, device: torch.device) -> "_Pool":
        nothing = torch.zeros(sentences, size, dtype=torch.long, device=device)
        scores = torch.full((sentences, size), -torch.inf, device=device)
        return cls(
            scores, nothing, nothing, torch.zeros(sentences, dtype=torch.bool, device=device)
        )

    def add(self, scores: Tensor, parents: Tensor, t: int) -> "_Pool":
        """Take in candidates [B, K] that end at step t, save of sentences that are done."""
        scores = scores.masked_fill(self.done[:, None], -torch.inf)
        best, kept = torch.cat([self.scores, scores], 1).topk(self.scores.shape[1], dim=-1)
        parents = torch.cat([self.parents, parents], 1).gather(1, kept)
        steps = torch.cat([self.steps, torch.full_like(scores, t, dtype=torch.long)], 1).gather(
            1, kept
        )
        return _Pool(best, parents, steps, self.done)

    def close(self, hopes: Tensor) -> "_Pool":
        """Mark sentences done whose best living score [B] cannot enter the pool as it stands."""
        return self._replace(done=self.done | (self.scores[:, -1] >= hopes))


def _retrace(pool: _Pool, trail: list[_Trail]) -> list[list[Hypothesis]]:
    ids = torch.stack([step.ids for step in trail]).tolist()  # [T][B][K]
    parents = torch.stack([step.parents for step in trail]).tolist()
    looks = [step.attention_weights for step in trail if step.attention_weights is not None]
    weights = torch.stack(looks).float().cpu() if looks else None  # [T, B * K, S]
    size = pool.scores.shape[1]
    found = []
    for sentence, entries in enumerate(zip(*(part.tolist() for part in pool[:3]), strict=True)):
        hypotheses = []
        for score, parent, last in zip(*entries, strict=True):
            if score == -torch.inf:
                continue
            path, rows, row = [EOS_ID], [], parent
            for t in reversed(range(last + 1)):
                rows.append(sentence * size + row)
                if t:
                    path.append(ids[t - 1][sentence][row])
                    row = parents[t - 1][sentence][row]
            look = None if weights is None else weights[torch.arange(last + 1), rows[::-1]]
            hypotheses.append(Hypothesis(path[::-1], score, look))
        found.append(hypotheses)
    return found
