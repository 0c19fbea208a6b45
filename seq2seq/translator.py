"""Text -> text: the Python API; the command line is a thin coat over it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import torch

from seq2seq.batches import Ids, pad_sources
from seq2seq.checkpoint import LengthLimit, load_best
from seq2seq.config import DecodingConfig
from seq2seq.device import choose_device
from seq2seq.errors import UserError
from seq2seq.hypothesis import Hypothesis, Model
from seq2seq.long_lines import cut_line
from seq2seq.model.ensemble import Ensemble
from seq2seq.model.int8 import int8_is_exact, to_int8
from seq2seq.search import search
from seq2seq.segmentation import SPACE
from seq2seq.vocabulary import BOS_ID, Vocabularies, Vocabulary

MOST_PIECES = 2000  # of a line whose attention weights are kept: they grow as its square
_MOST_AT_ONCE = 10_000_000  # squared lengths searched at once: what attention weights take room for
_LINE_BREAKS = re.compile("[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")


@dataclass(frozen=True)
class Translation:
    """One line's translation; a blank line's is blank."""

    text: str = ""
    score: float = 0.0  # log-probability, nats, divided by length ** length_penalty
    src_pieces: list[str] = field(default_factory=list)  # END included
    tgt_pieces: list[str] = field(default_factory=list)
    attention_weights: list[list[float]] | None = None  # rows: target pieces, columns: source
    nbest: list[tuple[str, float]] = field(default_factory=list)  # text, score; best first
    parts: int = 1  # in how many parts an over-long line was translated
    left_out: bool = False  # whether the rest of an endless stretch without a space was


class Translator:
    """A trained model, or several that answer as one, from text to text.

    `Translator.load(run).translate(lines)` gives what `seq2seq translate` prints, as objects.
    """

    def __init__(
        self,
        model: Model,
        vocabularies: Vocabularies,
        limit: LengthLimit,
        decoding: DecodingConfig,
        longest: int,
        device: torch.device,
    ) -> None:
        self.model = model
        self.vocabularies = vocabularies
        self.limit = limit
        self.decoding = decoding
        self.longest = longest  # pieces of a line that is translated in one part
        self.device = device

    @classmethod
    def load(cls, *runs: Path | str, device: str = "auto", int8: bool = False) -> Self:
        """Read run folders, several as an ensemble; `int8` rounds weights, which is faster.

        Raises UserError where they do not fit, or where the device has no exact int8 products.
        """
        chosen = choose_device(device)
        if int8:
            _check_int8(chosen)
        loaded = [load_best(Path(run), chosen) for run in runs]
        for each in loaded:
            if int8:
                to_int8(each[0])
            each[0].settle()
        model, vocabularies, limit, config = loaded[0]
        for run, other in zip(runs, loaded, strict=True):
            if _contents(other[1]) != _contents(vocabularies):
                raise UserError(
                    f"{run}: its vocabulary is not that of {runs[0]}; an ensemble shares one"
                )
        whole: Model = model if len(loaded) == 1 else Ensemble(each[0] for each in loaded)
        longest = config.training.max_length
        return cls(whole, vocabularies, limit, config.decoding, longest, chosen)

    @property
    def attends(self) -> bool:
        """Whether its translations carry attention weights."""
        src, lengths = pad_sources([[]])
        memory, state = self.model.start(
            self.model.encode(src.to(self.device), lengths.to(self.device))
        )
        bos = torch.tensor([BOS_ID], device=self.device)
        return self.model.step(bos, state, memory).attention_weights is not None

    def beam_size(self, wanted: int | None, n_best: int) -> int:
        """The beam size wanted, or else the config's; UserError if it holds fewer than n_best."""
        size = self.decoding.beam_size if wanted is None else wanted
        if n_best > size:
            raise UserError(
                f"--n-best {n_best}: a beam of {size} holds no more than {size}; raise -b"
            )
        return size

    def translate(
        self, lines: Sequence[str], beam_size: int | None = None, n_best: int = 1
    ) -> list[Translation]:
        """One Translation a line, in order; beam_size None takes the config's, 1 is greedy.

        A line of more pieces than any in training is cut into parts as `cut_line` says, and the
        parts' translations are joined. Raises UserError where n_best is more than the beam holds.
        """
        size = self.beam_size(beam_size, n_best)
        src = self.vocabularies.src
        lines_parts = [self._parts(*each) for each in zip(lines, src.encode(lines), strict=True)]
        found = self._searched([parts for parts, _ in lines_parts], size, n_best)
        return [
            replace(_join([next(found) for _ in parts], n_best), left_out=left_out)
            for parts, left_out in lines_parts
        ]

    def _searched(
        self, parts: list[list[Ids]], beam_size: int, n_best: int
    ) -> Iterator[Translation]:
        """The translation of each part of each line; of a very long line without the weights."""
        sources = [ids for line in parts for ids in line]
        looks = [sum(map(len, line)) <= MOST_PIECES for line in parts for _ in line]
        for rows in _runs(sources):
            limits = [self.decoding.max_length or self.limit(len(ids)) for ids in sources[rows]]
            found = search(
                self.model,
                sources[rows],
                limits,
                beam_size,
                self.decoding.length_penalty,
                self.device,
                self.decoding.coverage_penalty,
            )
            for ids, hypotheses, look in zip(sources[rows], found, looks[rows], strict=True):
                yield self._translation(ids, hypotheses, n_best, look)

    def _parts(self, line: str, ids: Ids) -> tuple[list[Ids], bool]:
        """A line's ids as they are; none if it is blank; those of its parts if it is too long.

        And whether some of it was left out.
        """
        if not line.replace(SPACE, " ").strip() or not ids:
            return [], False
        if len(ids) <= self.longest:
            return [ids], False
        parts, left_out = cut_line(line, self.vocabularies.src, self.longest)
        return self.vocabularies.src.encode(parts), left_out

    def _translation(
        self, src_ids: Ids, hypotheses: list[Hypothesis], n_best: int, look: bool
    ) -> Translation:
        src_text = _text(self.vocabularies.src, src_ids)  # stands where only white space is found
        best = hypotheses[0]
        weights = best.attention_weights if look else None
        nbest = [
            (_text(self.vocabularies.tgt, hypothesis.ids) or src_text, hypothesis.score)
            for hypothesis in hypotheses[:n_best]
        ]
        return Translation(
            nbest[0][0],
            best.score,
            [*self.vocabularies.src.pieces(src_ids), "</s>"],
            self.vocabularies.tgt.pieces(best.ids),
            None if weights is None else weights.tolist(),
            nbest,
        )


def _check_int8(device: torch.device) -> None:
    if device.type != "cpu":
        raise UserError(f"--int8: is for the CPU, not {device}; leave it out, or add --device cpu")
    if not int8_is_exact():
        raise UserError("--int8: this processor's int8 products overflow; leave it out")


def _text(vocabulary: Vocabulary, ids: Ids) -> str:
    return _LINE_BREAKS.sub(" ", vocabulary.decode(ids)).strip()


def _contents(vocabularies: Vocabularies) -> tuple[bytes, bytes]:
    return vocabularies.src.model, vocabularies.tgt.model


def _runs(sources: list[Ids]) -> Iterator[slice]:
    """Sources to search at once, lest a very long line take all the memory."""
    start = room = 0
    for end, ids in enumerate(sources):
        room += (len(ids) + 1) ** 2
        if room > _MOST_AT_ONCE:
            yield slice(start, end + 1)
            start, room = end + 1, 0
    if start < len(sources):
        yield slice(start, len(sources))


def _join(parts: list[Translation], n_best: int) -> Translation:
    """One Translation of a line's parts; each part's attention weights are a block of their own."""
    if not parts:
        return Translation(nbest=[("", 0.0)] * n_best)
    if len(parts) == 1:
        return _padded(parts[0], n_best)
    lengths = [len(part.tgt_pieces) for part in parts]
    ranks = [_padded(part, n_best).nbest for part in parts]
    nbest = [
        (
            " ".join(text for text, _ in rank if text),
            sum(n * score for n, (_, score) in zip(lengths, rank, strict=True)) / sum(lengths),
        )
        for rank in zip(*ranks, strict=True)
    ]
    return Translation(
        *nbest[0],
        [piece for part in parts for piece in part.src_pieces],
        [piece for part in parts for piece in part.tgt_pieces],
        _joined_weights(parts),
        nbest,
        len(parts),
    )


def _joined_weights(parts: list[Translation]) -> list[list[float]] | None:
    """The parts' attention weights as blocks of one matrix; None where a part has none."""
    columns = sum(len(part.src_pieces) for part in parts)
    joined: list[list[float]] = []
    before = 0
    for part in parts:
        if part.attention_weights is None:
            return None
        after = columns - before - len(part.src_pieces)
        joined += [[0.0] * before + row + [0.0] * after for row in part.attention_weights]
        before += len(part.src_pieces)
    return joined


def _padded(part: Translation, n_best: int) -> Translation:
    """With exactly n_best entries, the last one repeated where search found fewer."""
    missing = n_best - len(part.nbest)
    return part if missing <= 0 else replace(part, nbest=part.nbest + part.nbest[-1:] * missing)
