"""Text -> text: the Python API; the command line is a thin coat over it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import torch

from seq2seq.config.schema import DecodingConfig
from seq2seq.data.batching import Ids, pad_sources
from seq2seq.data.subword_sampling import SPACE
from seq2seq.data.vocabulary import BOS_ID, PAD_ID, UNK_ID, Vocabularies, words_of
from seq2seq.inference.ensemble import Ensemble
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.inference.interface import Hypothesis, Model, SearchOptions
from seq2seq.inference.line_splitting import cut_line
from seq2seq.inference.prefixes import NO_PREFIX, Prefix, PrefixMaker, check_prefixes
from seq2seq.inference.search import search
from seq2seq.inference.translation import Translation, joined
from seq2seq.inference.weights import (
    Int8Weight,
    PackedWeight,
    check_int8,
    int8_shortlist_pays_off,
    prepacking_is_exact,
)
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.checkpoint import LengthLimit, load_best
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import UserError

MAX_TOKENS = 2000  # of a line whose attention weights are kept: they grow as its square
_MOST_AT_ONCE = 10_000_000  # squared lengths searched at once: what attention weights take room for
_IN_NO_LINE = re.compile("[\0\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")


class _Part(NamedTuple):
    """What is searched for at once: a line, or a part of a long one."""

    ids: Ids
    words: list[str]  # the same as text where each piece is a word, else empty
    prefix: Prefix  # of the line's first part
    return_attention: (
        bool  # whether its attention weights are told: never those of a very long line
    )


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

        Of an ensemble the first run says how to search: its config's `decoding`, its lengths.
        Raises UserError where they do not fit, or the device has no int8 products, exact and fast.
        """
        chosen = choose_device(device)
        if int8:
            check_int8(chosen)
        loaded = [load_best(Path(run), chosen) for run in runs]
        rough = len(runs) == 1 and chosen.type == "cpu" and not int8 and int8_shortlist_pays_off()
        models = [_for_inference(each[0], chosen, int8, rough) for each in loaded]
        _, vocabularies, limit, config = loaded[0]
        for run, other in zip(runs, loaded, strict=True):
            if _contents(other[1]) != _contents(vocabularies):
                raise UserError(
                    f"{run}: its vocabulary is not that of {runs[0]}; an ensemble shares one"
                )
            if other[3].data.direction != config.data.direction:
                raise UserError(
                    f"{run}: translates {other[3].data.direction}, not {config.data.direction} as "
                    f"{runs[0]} does; an ensemble has one direction"
                )
        whole: Model = models[0] if len(models) == 1 else Ensemble(models)
        longest = config.data.max_length
        return cls(whole, vocabularies, limit, config.decoding, longest, chosen)

    @property
    @torch.inference_mode()
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
        self,
        lines: Sequence[str],
        beam_size: int | None = None,
        n_best: int = 1,
        prefixes: Sequence[str] | None = None,
        text_only: bool = False,
    ) -> list[Translation]:
        """One Translation a line, in order; beam_size None takes the config's, 1 is greedy.

        Text and pieces alone come sooner and are the same: there are no attention weights then, and
        greedy translations have nan for a score.

        A line of more pieces than data.max_length is cut into parts as `cut_line` says, and the
        parts' translations are joined. With prefixes, one a line and blank for none, a line's
        translation begins with that text (NFC, spaces and line breaks as single spaces); its last
        word may be continued unless a space stands behind it. Blank lines stay blank.

        Raises UserError where n_best is more than the beam holds, or a prefix is refused.
        """
        size = self.beam_size(beam_size, n_best)
        made = self._prefixes(lines, prefixes)
        cut = [
            self._parts(*each, return_attention=not text_only)
            for each in zip(lines, self.vocabularies.src.encode(lines), made, strict=True)
        ]
        beam = self._beam(size, text_only)
        found = self._searched([part for parts, _ in cut for part in parts], beam, n_best)
        return [
            replace(joined([next(found) for _ in parts], n_best), left_out=left_out)
            for parts, left_out in cut
        ]

    def _prefixes(self, lines: Sequence[str], prefixes: Sequence[str] | None) -> list[Prefix]:
        """What search takes for the prefixes of these lines; the same text is looked at once."""
        if prefixes is None:
            return [NO_PREFIX] * len(lines)
        if len(prefixes) != len(lines):
            raise UserError(
                f"{len(prefixes)} prefixes for {len(lines)} lines: give each line one, '' for none"
            )
        check_prefixes(prefixes)
        made = {text: self._maker.prefix(_IN_NO_LINE.sub(" ", text)) for text in set(prefixes)}
        return [made[text] for text in prefixes]

    @cached_property
    def _maker(self) -> PrefixMaker:
        return PrefixMaker(self.vocabularies.tgt)

    def _beam(self, size: int, text_only: bool) -> SearchOptions:
        decoding = self.decoding
        return SearchOptions(
            size,
            decoding.length_penalty,
            decoding.coverage_penalty,
            decoding.no_repeat_ngram,
            (PAD_ID, BOS_ID, UNK_ID)
            if self.vocabularies.tgt.has_byte_fallback
            else (PAD_ID, BOS_ID),
            return_scores=not text_only,
            return_attention=not text_only or decoding.replace_unknown,
        )

    def _searched(
        self, parts: Sequence[_Part], beam: SearchOptions, n_best: int
    ) -> Iterator[Translation]:
        """The translation of each part."""
        for rows in _runs(parts):
            found = search(
                self.model,
                [part.ids for part in parts[rows]],
                [self.decoding.max_length or self.limit(len(part.ids)) for part in parts[rows]],
                beam,
                self.device,
                [part.prefix for part in parts[rows]],
            )
            for part, hypotheses in zip(parts[rows], found, strict=True):
                yield self._translation(part, hypotheses, n_best)

    def _parts(
        self, line: str, ids: Ids, prefix: Prefix, return_attention: bool
    ) -> tuple[list[_Part], bool]:
        """A line as it is; nothing if it is blank; its parts if it is too long.

        And whether some of it was left out.
        """
        src = self.vocabularies.src
        if is_blank(line, ids):
            return [], False
        texts, encoded, left_out = [line], [ids], False
        if len(ids) > self.longest:
            texts, left_out = cut_line(line, src, self.longest)
            encoded = src.encode(texts)
        words = [[] if src.has_byte_fallback else words_of(text) for text in texts]
        return_attention = return_attention and sum(map(len, encoded)) <= MAX_TOKENS
        prefixes = [prefix, *[NO_PREFIX] * (len(texts) - 1)]
        parts = zip(encoded, words, prefixes, strict=True)
        return [_Part(*part, return_attention) for part in parts], left_out

    def _translation(self, part: _Part, hypotheses: list[Hypothesis], n_best: int) -> Translation:
        src, tgt = self.vocabularies
        best = hypotheses[0]
        weights = best.attention_weights if part.return_attention else None
        nbest = [
            (self._text(part, hypothesis) or self._src_text(part), hypothesis.score)
            for hypothesis in hypotheses[:n_best]
        ]
        return Translation(
            nbest[0][0],
            best.score,
            [*src.tokens(part.ids), "</s>"],
            tgt.tokens(best.ids),
            None if weights is None else weights.tolist(),
            nbest,
        )

    def _src_text(self, part: _Part) -> str:
        """What is printed where a translation is blank."""
        return _printed(" ".join(part.words) or self.vocabularies.src.decode(part.ids))

    def _text(self, part: _Part, hypothesis: Hypothesis) -> str:
        """What is printed of a hypothesis."""
        words = part.prefix.words
        if self.decoding.replace_unknown:
            words = words + _looked_at(part, hypothesis)[len(words) :]
        return _printed(self.vocabularies.tgt.decode(hypothesis.ids, words))


def _for_inference(
    model: Seq2Seq, device: torch.device, int8: bool, shortlist: bool
) -> InferenceModel:
    """Optimize a model whose weights are final."""
    inference = InferenceModel(model)
    if shortlist:
        inference.enable_int8_shortlist()
    if int8:
        inference.replace_weights(Int8Weight)
    elif device.type == "cpu" and prepacking_is_exact():
        inference.replace_weights(PackedWeight)
    inference.precompute_input_gates()
    return inference


def is_blank(line: str, ids: Ids) -> bool:
    """Whether a line, given with its ids, holds nothing to translate."""
    return not line.replace(SPACE, " ").strip() or not ids


def _printed(text: str) -> str:
    """As one line without white space at its ends."""
    return _IN_NO_LINE.sub(" ", text).strip()


def _looked_at(part: _Part, hypothesis: Hypothesis) -> list[str]:
    """For each unknown piece the source word it looked at most (Jean et al. 2015)."""
    if hypothesis.attention_weights is None or not part.words:
        return []
    looks = hypothesis.attention_weights[:, : len(part.words)]  # not at END
    unknown = torch.tensor(hypothesis.ids) == UNK_ID
    return [part.words[i] for i in looks[unknown].argmax(dim=1).tolist()]


def _contents(vocabularies: Vocabularies) -> tuple[bytes, bytes]:
    return vocabularies.src.model, vocabularies.tgt.model


def _runs(parts: Sequence[_Part]) -> Iterator[slice]:
    """Parts to search at once, lest a very long line take all the memory."""
    start = room = 0
    for end, part in enumerate(parts):
        length = len(part.ids) + 1
        room += length * (length + len(part.prefix.states))
        if room > _MOST_AT_ONCE:
            yield slice(start, end + 1)
            start, room = end + 1, 0
    if start < len(parts):
        yield slice(start, len(parts))
