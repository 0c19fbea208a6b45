"""Partial hypotheses of one sentence in the search over exported models."""

from typing import NamedTuple

from seq2seq.engines.onnx.network import Array
from seq2seq.inference.search.interface import Hypothesis
from seq2seq.inference.search.sentences import Sentence


class Node(NamedTuple):
    """The last token of a partial hypothesis, linked to those before it."""

    before: "Node | None"
    token: int
    log_prob: float  # nats
    attention_weights: Array | None  # [S]


class Finished(NamedTuple):
    """A hypothesis in the pool of its sentence."""

    score: float
    end: Node


class SentenceSearch:
    """The search of one sentence: K partial hypotheses, best first, and a pool of finished ones."""

    def __init__(self, number: int, sentence: Sentence, size: int) -> None:
        self.number, self.sentence, self.length = number, sentence, 0
        self.nodes: list[Node | None] = [None] * size
        self.prefix_states = [0] + [len(sentence.prefix.states)] * (size - 1)
        self.missing = [sentence.kept] * size
        self.progress = [sentence.lexical.start()] * size
        self.text_states: list[int] = []
        self.pool: list[Finished] = []
        self.hypotheses: list[Hypothesis] | None = None  # once the search has ended

    @property
    def finished(self) -> bool:
        """Return whether the search has ended."""
        return self.hypotheses is not None

    @property
    def room(self) -> int:
        """Return the number of tokens that may still precede end-of-sentence."""
        return self.sentence.limit - 1 - self.length

    def in_prefix(self, k: int) -> bool:
        """Return whether the prefix of partial hypothesis k is incomplete."""
        return self.prefix_states[k] < len(self.sentence.prefix.states)

    def history(self, k: int) -> list[int]:
        """Return the tokens of partial hypothesis k."""
        return [each.token for each in path_to(self.nodes[k])]


def path_to(node: Node | None) -> list[Node]:
    """Return the nodes of a hypothesis, first token first."""
    nodes = []
    while node is not None:
        nodes.append(node)
        node = node.before
    return nodes[::-1]
