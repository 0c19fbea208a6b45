"""Markup within a text: taken out before translation, put back where attention places its words."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from seq2seq.text.aligned_characters import equal_runs, form_of
from seq2seq.text.characters import EOS, SPACE, is_letter
from seq2seq.text.line_properties import has_letters

Escape = Callable[[str], str]
Weights = NDArray[np.float32]
Gains = Weights  # one for each word of a translation
MAX_DEPTH = 50  # levels of elements; deeper tags are placed one by one
MAX_FRAGMENTS = 500  # maximum of a segment, whose time grows with their square
_BLANK = " \t\n\r\f"
_WHITE = re.compile(f"[{_BLANK}]+")
_TAKEN = np.float32(-1e9)


class TargetText(Protocol):
    """One translation of a line: its text, its target tokens and their attention [T, S]."""

    @property
    def text(self) -> str: ...
    @property
    def tokens(self) -> Sequence[str]: ...
    @property
    def attention(self) -> Weights | None: ...


class TranslatedLine(Protocol):
    """The translations of a line, best first, and its source tokens."""

    @property
    def n_best(self) -> Sequence[TargetText]: ...
    @property
    def src_tokens(self) -> Sequence[str]: ...


class Fragment(NamedTuple):
    """Text or markup of a document, as it is written there."""

    raw: str
    kind: str  # "text", "open", "close", "point", "block" or "break", which replaces a space
    name: str = ""  # element that a tag opens or closes
    text: str = ""  # without entities


@dataclass
class Node:
    """Markup at a place of a text; an element has the characters from `start` to `end`."""

    raw: str
    start: int
    end: int
    name: str = ""  # the element's
    closing: str = ""
    children: list["Node"] = field(default_factory=list)
    is_break: bool = False


class Segment(NamedTuple):
    """A text without its inline markup, and what puts the markup into its translation."""

    text: str
    nodes: Sequence[Node] = ()
    number: int = 1  # line of the document where it begins
    raw: str | None = None  # as it is written, with its markup

    def translated(self, translation: TranslatedLine, rank: int, escape: Escape) -> str:
        """Return an entry of an n-best list with the markup, and its text escaped.

        A text that is its own translation stays as it is written.
        """
        target = translation.n_best[rank].text
        if self.raw is not None and target == self.text:
            return self.raw
        if not self.nodes:
            return escape(target)
        root = Node("", 0, len(self.text), children=list(self.nodes))
        links = _Links(self.text, translation, rank, escape)
        return _Area(root, links, 0, len(target)).text()


class _Space(NamedTuple):
    """White space after a text, and its place among the nodes of its parent."""

    siblings: list[Node]
    place: int
    white: str


def _read(fragments: Sequence[Fragment], are_paired: bool) -> tuple[str, list[Node]]:
    """Return the text of fragments, with single spaces, and their markup as a tree.

    White space at an end of the text that markup follows is markup, too.
    """
    text = ""
    stack = [Node("", 0, 0)]
    last_space = _Space([], 0, "")  # after the last text
    for fragment in fragments:
        if fragment.kind in ("text", "break"):
            content = _WHITE.sub(" ", fragment.text)
            if content.startswith(" ") and (not text or text.endswith(" ")):
                content = content[1:]
                if fragment.kind == "text":
                    white = fragment.text[: len(fragment.text) - len(fragment.text.lstrip(_BLANK))]
                    stack[-1].children.append(Node(white, len(text), len(text)))
            if fragment.kind == "break":
                stack[-1].children.append(Node(fragment.raw, len(text), len(text), is_break=True))
            text += content
            if content:
                white = fragment.text[len(fragment.text.rstrip(_BLANK)) :]
                last_space = _Space(stack[-1].children, len(stack[-1].children), white)
        elif fragment.kind == "open" and are_paired:
            if len(stack) > MAX_DEPTH:
                return _read(fragments, are_paired=False)
            stack.append(Node(fragment.raw, len(text), len(text), fragment.name))
        elif fragment.kind == "close" and fragment.name in [node.name for node in stack]:
            while stack[-1].name != fragment.name:
                _leave_open(stack)
            node = stack.pop()
            node.closing = fragment.raw
            node.end = len(text)
            stack[-1].children.append(node)
        else:
            stack[-1].children.append(Node(fragment.raw, len(text), len(text)))
    while len(stack) > 1:
        _leave_open(stack)
    text = text.rstrip(" ")
    if last_space.white:
        node = Node(last_space.white, len(text), len(text))
        last_space.siblings.insert(last_space.place, node)
    return text, [_shortened(node, text) for node in stack[0].children]


def _leave_open(stack: list[Node]) -> None:
    """Let the tag of an element without an end be markup of its own."""
    node = stack.pop()
    stack[-1].children += [Node(node.raw, node.start, node.start), *node.children]


def _shortened(node: Node, text: str) -> Node:
    """Return a node within a text; elements without words are markup at a place."""
    node.start = min(node.start, len(text))
    node.end = min(node.end, len(text))
    node.children = [_shortened(child, text) for child in node.children]
    if node.closing and not text[node.start : node.end].strip(" "):
        content = "".join(child.raw for child in node.children)
        return Node(f"{node.raw}{content}{node.closing}", node.start, node.start)
    return node


def segments(fragments: Sequence[Fragment], number: int) -> Iterator[str | Segment]:
    """Yield the segments that fragments make, or fragments without letters as they are."""
    if not any(has_letters(fragment.text) for fragment in fragments):
        yield "".join(fragment.raw for fragment in fragments)
        return
    for start in range(0, len(fragments), MAX_FRAGMENTS):
        of_segment = fragments[start : start + MAX_FRAGMENTS]
        raw = "".join(fragment.raw for fragment in of_segment)
        yield Segment(*_read(of_segment, are_paired=True), number, raw)


class _Links:
    """Links from the words of a translation to the characters of its source."""

    def __init__(self, source: str, translation: TranslatedLine, rank: int, escape: Escape) -> None:
        entry = translation.n_best[rank]
        self.source = source
        self.target = entry.text
        self.escape = escape
        self.words = list(_words(entry.text))
        self.source_words = list(_words(source))
        bounds = np.array([(word.start, word.stop) for word in self.words], np.float32)
        self._bounds = bounds.reshape(-1, 2) * (max(1, len(source)) / max(1, len(entry.text)))
        self._attention: Weights | None = None
        if entry.attention is not None and entry.attention.size:
            columns = _spelled(source, translation.src_tokens)
            rows = _spelled(entry.text, entry.tokens)
            self._columns = [column for column in columns if column >= 0]
            self._first = np.cumsum([0, *(column >= 0 for column in columns)])
            if self._columns:
                self._attention = self._by_word(rows, entry.attention)

    def _by_word(self, rows: Sequence[int], attention: Weights) -> Weights:
        """Return the attention [words, S + 1] of words to tokens, summed from the first one."""
        tokens = [sorted({rows[place] for place in word} - {-1}) for word in self.words]
        weights = np.zeros((len(tokens), attention.shape[1] + 1), np.float32)
        for number, chosen in enumerate(tokens):
            if chosen:
                weights[number, 1:] = attention[chosen].mean(axis=0).cumsum()
        return weights

    def within(self, start: int, end: int) -> Gains:
        """Return the share of each word's attention that is on characters, else of its place."""
        if self._attention is None:
            first = self._bounds[:, 0]
            last = self._bounds[:, 1]
            common = (np.minimum(last, end) - np.maximum(first, start)).clip(0)
            shares: Gains = common / (last - first).clip(1e-6)
            return shares
        columns = self._columns[self._first[start] : self._first[end]]
        if not columns:
            return np.zeros(len(self.words), np.float32)
        sums = self._attention
        sums_within: Gains = sums[:, columns[-1] + 1] - sums[:, columns[0]]
        return sums_within


def _words(text: str) -> Iterator[range]:
    """Yield the words of a text; characters of scripts without spaces and of punctuation apart."""
    place = 0
    for is_word, characters in groupby(text, is_letter):
        run = list(characters)
        if is_word:
            yield range(place, place + len(run))
        else:
            yield from (range(n, n + 1) for n, c in enumerate(run, place) if not c.isspace())
        place += len(run)


def _spelled(text: str, tokens: Sequence[str]) -> list[int]:
    """Return for each character of a text the number of the token that has it, -1 for none."""
    of_text = [(form_of(c), place) for place, c in enumerate(text) if not c.isspace()]
    of_tokens = [
        (form_of(c), number)
        for number, token in enumerate(tokens)
        if token != EOS
        for c in token.replace(SPACE, "")
        if not c.isspace()
    ]
    numbers = [-1] * len(text)
    for first, second, size in equal_runs([c for c, _ in of_text], [c for c, _ in of_tokens]):
        for n in range(size):
            numbers[of_text[first + n][1]] = of_tokens[second + n][1]
    return numbers


# Markup in a translation: start and end of what it replaces, its number, and the markup.
_Placing = tuple[int, int, int, str]


class _Area:
    """The part of a translation that belongs to a node, where its children are placed."""

    def __init__(self, parent: Node, links: _Links, start: int, end: int) -> None:
        self._parent = parent
        self._links = links
        self._start = start
        self._end = end
        self._first = bisect_left(links.words, start, key=lambda word: word.start)
        self._last = bisect_right(links.words, end, key=lambda word: word.stop)
        self._words = links.words[self._first : self._last]
        self._free = np.ones(len(self._words), bool)
        self._breaks = sum(node.is_break for node in parent.children)
        self._broken = 0  # words before the last break

    def text(self) -> str:
        """Return this part of the translation with the markup in the node."""
        parts = list[str]()
        position = self._start
        links = self._links
        for first, last, _, text in sorted(map(self._place, count(), self._parent.children)):
            parts += [links.escape(links.target[position:first]), text]
            position = max(position, last)
        return "".join([*parts, links.escape(links.target[position : self._end])])

    def _place(self, order: int, node: Node) -> _Placing:
        """Return where a child is placed."""
        if node.is_break and self._parent.start < node.start < self._parent.end:
            return self._break(order, node)
        if node.start == node.end:
            place = self._point(node)
            return place, place, order, node.raw
        start, end = self._span(node)
        content = _Area(node, self._links, start, end).text()
        return start, end, order, f"{node.raw}{content}{node.closing}"

    def _gains(self, start: int, end: int) -> Gains:
        """Return for each word how much more it attends to characters than to the other ones."""
        parent = self._parent
        own_words = slice(self._first, self._last)
        total = self._links.within(parent.start, parent.end)[own_words]
        return 2 * self._links.within(start, end)[own_words] - total

    def _break(self, order: int, node: Node) -> _Placing:
        """Replace a space, after the last break, and before as many words as breaks are to come."""
        self._breaks -= 1
        least = self._broken + 1
        last_place = len(self._words) - 1 - self._breaks
        if least > last_place:
            return self._end, self._end, order, node.raw
        self._broken = least + int(self._sums(node.start)[least : last_place + 1].argmax())
        word_before, word_after = self._words[self._broken - 1 : self._broken + 1]
        return word_before.stop, word_after.start, order, node.raw

    def _sums(self, place: int) -> Gains:
        """Return by how much words attend to what is before a place, after each number of them."""
        return np.concatenate([[0], self._gains(self._parent.start, place).cumsum()])

    def _near(self, place: int) -> Gains:
        """Return how much the two words around each gap attend to those around a place."""
        words = self._links.source_words
        number = bisect_left(words, place, key=lambda word: word.start)
        around = words[max(0, number - 1) : number + 1]
        near = self._links.within(around[0].start, around[-1].stop)[self._first : self._last]
        gaps: Gains = np.append(near, 0) + np.append(0, near)
        return gaps

    def _point(self, node: Node) -> int:
        """Return the place of markup without text: after the word that it follows, or between."""
        if node.start <= self._parent.start or not self._words:
            return self._start
        if node.start >= self._parent.end:
            return self._end
        source_before = self._links.source[: node.start]
        if not source_before[-1].isspace():
            gains = self._gains(source_before.rfind(" ") + 1, node.start)
            last_of_best = len(gains) - 1 - int(gains[::-1].argmax())
            return self._words[last_of_best].stop
        scores = self._near(node.start) + self._sums(node.start) / len(self._words)
        number = int(scores.argmax())
        return self._words[number].start if number < len(self._words) else self._end

    def _span(self, node: Node) -> tuple[int, int]:
        """Return the run of free words that attends most to an element."""
        if (node.start, node.end) == (self._parent.start, self._parent.end):
            return self._start, self._end
        if not self._free.any():
            return self._end, self._end
        gains = np.where(self._free, self._gains(node.start, node.end), _TAKEN)
        first = last = int(gains.argmax())
        if gains[first] > 0:
            sums = np.concatenate([[0], gains.cumsum(dtype=np.float64)])
            last = int((sums[1:] - np.minimum.accumulate(sums[:-1])).argmax())
            first = int(sums[: last + 1].argmin())
        self._free[first : last + 1] = False
        return self._words[first].start, self._words[last].stop
