"""Translation of one line, joined from those of its parts, with scores and attention weights."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from math import isnan
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seq2seq.inference import attention_figure, attention_map, attention_table
from seq2seq.inference.attention_map import AttentionMap
from seq2seq.inference.nbest import AttentionBlocks, NBestEntry
from seq2seq.runtime.errors import UserError, is_installed, not_installed
from seq2seq.runtime.files import json_text
from seq2seq.text.sentences import space_after

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE_BREAKS = re.compile("[\0\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
MAX_COMBINATIONS = 2000  # compared for the n-best list of a line in parts
_BLANK = NBestEntry("", 0.0)


@dataclass(frozen=True)
class Translation:
    """Translation of one line; a blank line has a blank translation.

    `text`, `score`, `tokens`, `log_probs` and `attention` are those of the best entry,
    `n_best[0]`. T is the number of target tokens and S that of source tokens, end-of-sentence
    included; a line in several parts has one end-of-sentence for each of them on both sides.
    """

    n_best: list[NBestEntry] = field(default_factory=lambda: [_BLANK])  # best first, never empty
    src_tokens: list[str] = field(default_factory=list)  # [S]
    parts: int = 1  # into which the line was split
    left_out: bool = False  # True if the end of a very long word was not translated
    # differences from the training text; words that got hardly any attention
    notes: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)  # each part as the line has it

    @property
    def text(self) -> str:
        """Return the text, without line breaks."""
        return self.n_best[0].text

    @property
    def score(self) -> float:
        """Return the score of the best entry; nan if not requested."""
        return self.n_best[0].score

    @property
    def tokens(self) -> list[str]:
        """Return the target tokens [T]."""
        return self.n_best[0].tokens

    @property
    def log_probs(self) -> list[float]:
        """Return the log-probabilities of the target tokens [T] in nats; empty if not requested."""
        return self.n_best[0].log_probs

    @property
    def attention(self) -> NDArray[np.float32] | None:
        """Return the attention weights [T, S]; None without, as for very long lines."""
        return self.n_best[0].attention

    @property
    def attention_blocks(self) -> AttentionBlocks | None:
        """Return the attention weights of each part, without the zeros between parts."""
        return self.n_best[0].attention_blocks

    @property
    def head_attention(self) -> NDArray[np.float32] | None:
        """Return the weights [M, T, S] of M heads, by `SearchSettings(head_attention=True)`."""
        return self.n_best[0].head_attention

    def attention_maps(self, source: str | None = None) -> Iterator[AttentionMap]:
        """Yield the weights of each part or of its heads, below the text of the line or its part.

        A source replaces that of a line in one part.
        """
        sources = self.sources if source is None or self.parts > 1 else [source]
        for attention, heads in attention_map.part_maps(self.n_best[0], self.src_tokens, sources):
            if heads is None:
                yield attention
                continue
            for number, weights in enumerate(heads, start=1):
                yield attention._replace(weights=weights, head=f"head {number} of {len(heads)}")

    def plot(self, words: bool = False) -> "Figure":
        """Return the attention weights by tokens or words as a figure, which a notebook shows.

        Raises UserError if there are none, or matplotlib is missing.
        """
        maps = list(self.attention_maps())
        if not maps:
            raise UserError("there are no attention weights to plot; translate without text_only")
        if not is_installed("matplotlib"):
            raise not_installed("plot needs matplotlib", "plot", "")
        shown = map(attention_map.by_words, maps) if words else maps
        return attention_figure.map_figure(list(shown))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        score = "" if isnan(self.score) else f", score={self.score:.2f}"
        return f"Translation({self.text!r}{score})"

    def _repr_html_(self) -> str:
        """Return the text and its attention weights as a heat map, for a notebook."""
        return attention_table.notebook_maps(self.text, self.score, self.attention_maps())


def join_parts(parts: list[Translation], n_best: int, by_score: bool = False) -> Translation:
    """Join the translations of a line's parts; attention weights become diagonal blocks.

    The entries are the first of all parts, the second and so on; `by_score`, the best combinations.
    """
    if not parts:
        return Translation([_BLANK] * n_best)
    if len(parts) == 1:
        return replace(parts[0], n_best=_filled(parts[0].n_best, n_best))
    lists = [part.n_best for part in parts]
    if by_score and n_best > 1:
        joined_entries = _filled(_best_joined(lists, n_best), n_best)
    else:
        filled_lists = (_filled(entries, n_best) for entries in lists)
        joined_entries = [_join_entries(entries) for entries in zip(*filled_lists, strict=True)]
    return Translation(
        joined_entries,
        [token for part in parts for token in part.src_tokens],
        parts=len(parts),
        notes=[note for part in parts for note in part.notes],
        sources=[source for part in parts for source in part.sources],
    )


def _best_joined(lists: Sequence[Sequence[NBestEntry]], n_best: int) -> list[NBestEntry]:
    """Return the best combinations of entries, one of each list, with different texts.

    The first joins the first ones, with the score `s`. One of L tokens and score `r` has
    L (r - s), a sum over its entries: those with the MAX_COMBINATIONS largest are compared.
    """
    first = _join_entries([entries[0] for entries in lists])
    combinations: list[tuple[float, list[NBestEntry]]] = [(0.0, [])]
    for entries in lists:
        gains = [len(entry.tokens) * (entry.score - first.score) for entry in entries]
        extended = (
            (total + gain, [*earlier_entries, entry])
            for total, earlier_entries in combinations
            for gain, entry in zip(gains, entries, strict=True)
        )
        combinations = nlargest(MAX_COMBINATIONS, extended, key=itemgetter(0))
    best_by_text = {first.text: first}
    for _, entries in combinations:
        entry = _join_entries(entries)
        rival = best_by_text.get(entry.text)
        if entry.score <= first.score and (rival is None or entry.score > rival.score):
            best_by_text[entry.text] = entry
    entries = sorted(best_by_text.values(), key=lambda entry: (-entry.score, entry is not first))
    return entries[:n_best]


def _join_entries(entries: Sequence[NBestEntry]) -> NBestEntry:
    lengths = [len(entry.tokens) for entry in entries]
    total = sum(n * entry.score for n, entry in zip(lengths, entries, strict=True))
    return NBestEntry(
        _join_texts([entry.text for entry in entries]),
        total / sum(lengths),
        [token for entry in entries for token in entry.tokens],
        [value for entry in entries for value in entry.log_probs],
        _join_blocks([entry.attention_blocks for entry in entries]),
        _join_blocks([entry.head_blocks for entry in entries]),
        tuple(entry.text for entry in entries),
    )


def _join_texts(texts: list[str]) -> str:
    """Join texts by spaces, except after a Chinese or Japanese sentence end."""
    line = ""
    for text in filter(None, texts):
        line += f"{space_after(line)}{text}"
    return line


def _join_blocks(parts: Sequence[AttentionBlocks | None]) -> AttentionBlocks | None:
    """Return the parts' attention weights as blocks of one matrix; None if a part has none."""
    present_parts = [part for part in parts if part is not None]
    if len(present_parts) < len(parts):
        return None
    return AttentionBlocks([block for part in present_parts for block in part.blocks])


def _filled(entries: list[NBestEntry], n_best: int) -> list[NBestEntry]:
    """Return the n-best list; repeat the last entry if search found fewer than `n_best` texts."""
    return [*entries[:n_best], *entries[-1:] * (n_best - len(entries))]


def with_names(tokens: list[str], names: Mapping[str, str]) -> list[str]:
    """Replace tokens that are placeholders by their names."""
    return [names.get(token, token) for token in tokens] if names else tokens


def translation_as_json(
    translation: Translation, with_nbest: bool = False, with_attention: bool = True
) -> str:
    """Format a translation with its tokens and attention weights (null without) as a JSON object.

    The weights of a line in parts are one matrix per part, without the zeros between them.
    """
    best = translation.n_best[0]
    src_tokens = translation.src_tokens
    text = json_text(_fields(best, src_tokens=src_tokens, tgt_tokens=best.tokens))[:-1]
    text += _weights_field("attention", best.attention_blocks if with_attention else None)
    if with_attention and (heads := best.head_blocks):
        text += _weights_field("head", heads)
    if with_nbest:
        entries = [_fields(entry, tokens=entry.tokens) for entry in translation.n_best]
        text += f', "n_best": {json_text(entries)}'
    return text + "}"


def _fields(entry: NBestEntry, **tokens: list[str]) -> dict[str, Any]:
    score = round(entry.score, 6)
    log_probs = _rounded(entry.log_probs)
    return {"text": entry.text, "score": score, **tokens, "log_probs": log_probs}


def _weights_field(name: str, blocks: AttentionBlocks | None) -> str:
    """Format the weights of a line as one field, or as null and one array per part."""
    parts = [_weights_as_json(block) for block in blocks.blocks] if blocks else []
    if len(parts) > 1:
        return f', "{name}_weights": null, "{name}_blocks": [{", ".join(parts)}]'
    return f', "{name}_weights": {parts[0] if parts else "null"}'


def _weights_as_json(weights: NDArray[np.float32]) -> str:
    """Format weights row by row: as numbers of Python they would take ten times the memory."""
    if weights.ndim == 1:
        return json_text(_rounded(weights.tolist()))
    return "[" + ", ".join(map(_weights_as_json, weights)) + "]"


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 6) for value in values]
