"""Search over the lexical shortlist of each sentence.

Search sees a model whose target tokens are columns: places in the ascending list of a sentence,
so that special tokens and placeholders have the columns of their ids. Probabilities are normalized
over the list, as in Marian and CTranslate2. A sentence has its own list and its own product with
the output projection, whatever else is in the batch: results are batch-invariant.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from seq2seq.data.vocabulary.vocabulary import PAD_ID, Ids
from seq2seq.engines.engine import Engine
from seq2seq.engines.torch.engine import Model, TorchEngine
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference.search.interface import Hypothesis, NonFiniteError, SearchOptions
from seq2seq.inference.search.search import search
from seq2seq.inference.search.sentences import Request, padded_width
from seq2seq.inference.shortlist import Shortlist
from seq2seq.model.copying import CopyOutputs
from seq2seq.model.seq2seq import Seq2Seq


class ShortlistedSources(NamedTuple):
    """Encoded sources with the shortlist of each."""

    encoded: Any
    tokens: Tensor  # [B, L], ids; PAD_ID in empty columns
    is_empty: Tensor  # [B, L]
    src: Tensor  # [B, S], columns of the source tokens that are listed


class ShortlistMemory(NamedTuple):
    """Memory of a model with the list of each sentence and its rows of the output projection."""

    memory: Any
    tokens: Tensor  # [B, L], ids; PAD_ID in empty columns
    src: Tensor  # [B, S], columns of the source tokens, which may be copied
    weight: Tensor  # [B, L, R]
    bias: Tensor  # [B, L], -inf in empty columns

    def select(self, sentences: Tensor) -> Self:
        """Return the rows `sentences`."""
        own = (each.index_select(0, sentences) for each in self[1:])
        return type(self)(self.memory.select(sentences), *own)

    def put(self, sentences: Tensor, other: Self, taken: Tensor | slice) -> None:
        """Overwrite the rows `sentences` by rows of another memory."""
        self.memory.put(sentences, other.memory, taken)
        for own, others in zip(self[1:], other[1:], strict=True):
            own[sentences] = others[taken]


class ShortlistOutputs(NamedTuple):
    """Outputs of N decoder steps, to be projected to the lists of their sentences."""

    outputs: Tensor | CopyOutputs
    memory: ShortlistMemory


class ShortlistStep(NamedTuple):
    """Result of one step for N rows."""

    outputs: ShortlistOutputs
    state: Any
    attention_weights: Tensor | None  # [N, S]
    head_weights: Tensor | None  # [N, M, S]


class ShortlistedModel:
    """A model behind the calls of search, whose target tokens are the columns of lists."""

    def __init__(self, model: Model, shortlist: Shortlist, weight: Tensor, bias: Tensor) -> None:
        """Take a model and its output projection, [V, R] and [V], in float32."""
        self.model, self.shortlist, self.weight, self.bias = model, shortlist, weight, bias

    def encode(self, src: Tensor, src_lengths: Tensor) -> ShortlistedSources:
        """Encode source ids [B, S] with lengths [B], and list the target tokens of each."""
        width = src.shape[1]
        tokens = np.full((len(src), self.shortlist.length(width)), PAD_ID)
        is_empty = np.ones(tokens.shape, bool)
        columns = np.zeros(src.shape, np.int64)
        sources = zip(src.tolist(), src_lengths.tolist(), strict=True)
        for row, (ids, length) in enumerate(sources):
            listed = self.shortlist.tokens(ids[: length - 1], width)
            tokens[row, : len(listed)] = listed
            is_empty[row, : len(listed)] = False
            found = np.searchsorted(listed, ids[:length])
            columns[row, :length] = found.clip(max=len(listed) - 1)
        arrays = (torch.from_numpy(each) for each in (tokens, is_empty, columns))
        return ShortlistedSources(self.model.encode(src, src_lengths), *arrays)

    def start(self, encoded: ShortlistedSources) -> tuple[ShortlistMemory, Any]:
        """Return the memory of the sentences and the state before the first target position."""
        memory, state = self.model.start(encoded.encoded)
        tokens = encoded.tokens
        weight = self.weight.index_select(0, tokens.flatten()).view(*tokens.shape, -1)
        bias = self.bias[tokens].masked_fill_(encoded.is_empty, -torch.inf)
        return ShortlistMemory(memory, tokens, encoded.src, weight, bias), state

    def step(self, ids: Tensor, state: Any, memory: ShortlistMemory) -> ShortlistStep:
        """Advance N = B * K hypotheses, given their last columns [N], by one target position."""
        tokens = memory.tokens.gather(1, ids.view(len(memory.tokens), -1)).flatten()
        step = self.model.step(tokens, state, memory.memory)
        outputs = ShortlistOutputs(step.outputs, memory)
        return ShortlistStep(outputs, step.state, step.attention_weights, step.head_weights)

    def project(self, outputs: ShortlistOutputs) -> Tensor:
        """Return logits [N, L] of the columns, or log-probabilities if tokens may be copied.

        The source tokens of a joint vocabulary, which alone are copied, are all listed.
        """
        own, memory = outputs
        if not isinstance(own, CopyOutputs):
            return _logits(own, memory)
        columns = memory.src.repeat_interleave(len(own.src) // len(memory.src), 0)
        return own._replace(src=columns).mix(_logits(own.outputs, memory))


def _logits(outputs: Tensor, memory: ShortlistMemory) -> Tensor:
    """Return logits [N, L] of outputs [N, R], by one product of the same shape per sentence."""
    by_sentence = outputs.unflatten(0, (len(memory.tokens), -1))
    logits = torch.bmm(by_sentence, memory.weight.mT)
    return logits.add_(memory.bias[:, None]).flatten(0, 1)


def projection_of(model: Seq2Seq) -> tuple[Tensor, Tensor]:
    """Return the weight [V, R] and the bias [V] of the output projection."""
    return model.projection.weight.detach(), model.projection.bias.detach()


class ShortlistSearch:
    """Search over lists, where no token outside the list of its sentence is required."""

    def __init__(self, shortlist: Shortlist, models: Sequence[ShortlistedModel]) -> None:
        """Take one model or those of an ensemble, all with the same shortlist."""
        self.shortlist = shortlist
        model: Model = models[0] if len(models) == 1 else Ensemble(models)
        self.engine = TorchEngine(model, torch.device("cpu"))

    def search(
        self,
        full: Engine,
        requests: Sequence[Request],
        options: SearchOptions,
        on_found: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses for each request, best first, as `search` does.

        Sentences with a prefix or required phrases, and all if words are forbidden, are searched
        over all tokens by the `full` engine: what is required or left over may not be listed.
        """
        found: list[list[Hypothesis]] = [[] for _ in requests]
        by_model: tuple[list[int], list[int]] = ([], [])
        for i, each in enumerate(requests):
            required = each.prefix.states or each.lexical.phrases or options.forbidden is not None
            by_model[bool(required)].append(i)
        for engine, rows in zip((self.engine, full), by_model, strict=True):
            own = [requests[i] for i in rows]
            try:
                of_rows = search(engine, own, options, _renumbered(on_found, rows))
            except NonFiniteError as error:
                raise NonFiniteError(rows[error.sentence], error.value) from None
            for i, hypotheses in zip(rows, of_rows, strict=True):
                if engine is not full:
                    hypotheses = self._with_ids(requests[i].source, hypotheses)
                found[i] = hypotheses
        return found

    def _with_ids(self, source: Ids, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        """Return hypotheses of columns as hypotheses of ids."""
        tokens = self.shortlist.tokens(source, padded_width(source))
        return [each._replace(ids=tokens[each.ids].tolist()) for each in hypotheses]


def _renumbered(
    on_found: Callable[[int], None] | None, rows: Sequence[int]
) -> Callable[[int], None] | None:
    if on_found is None:
        return None
    call = on_found
    return lambda number: call(rows[number])
