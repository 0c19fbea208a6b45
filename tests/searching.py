"""Search over parallel lists, as tests build them."""

from collections.abc import Callable, Sequence

import torch

from seq2seq.data.vocabulary.vocabulary import Ids
from seq2seq.engines.torch.engine import Model, TorchEngine
from seq2seq.inference.search import search as module
from seq2seq.inference.search.interface import Hypothesis, SearchOptions
from seq2seq.inference.search.lexical import NO_LEXICAL, Lexical
from seq2seq.inference.search.prefixes import NO_PREFIX, Prefix
from seq2seq.inference.search.sentences import Request


def requests_of(
    sources: Sequence[Ids],
    limits: Sequence[int],
    prefixes: Sequence[Prefix] | None = None,
    lexical: Sequence[Lexical] | None = None,
) -> list[Request]:
    """Return a request for each source."""
    prefixes = prefixes or [NO_PREFIX] * len(sources)
    lexical = lexical or [NO_LEXICAL] * len(sources)
    return [Request(*each) for each in zip(sources, limits, prefixes, lexical, strict=True)]


def search(
    model: Model,
    sources: Sequence[Ids],
    limits: Sequence[int],
    options: SearchOptions,
    device: torch.device,
    prefixes: Sequence[Prefix] | None = None,
    on_found: Callable[[int], None] | None = None,
    lexical: Sequence[Lexical] | None = None,
) -> list[list[Hypothesis]]:
    """Search by the torch engine over a model."""
    requests = requests_of(sources, limits, prefixes, lexical)
    return module.search(TorchEngine(model, device), requests, options, on_found)
