"""States of the rules for each hypothesis in search, and the mask that they make of a step."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from seq2seq.data.vocabulary.vocabulary import EOS_ID, PAD_ID
from seq2seq.engines.engine import MAY_NOT_END, MUST_END, Array, Engine, Mask
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.search.rules import NextTokens, Phrases, RequirePhrases, Rule, Tokens
from seq2seq.inference.search.sentences import Sentence


class RuleStates:
    """Rules of the sentences in search, with their states for each hypothesis of each slot."""

    def __init__(
        self, rules: Sequence[Rule], options: SearchOptions, slots: int, engine: Engine
    ) -> None:
        self.rules, self.options, self.slots, self.engine = rules, options, slots, engine
        self._rules: dict[int, list[Rule]] = {}  # by slot, where a sentence has rules
        self._states: dict[int, list[list[Any] | None]] = {}  # [K] by slot; None: no hypothesis

    def begin(self, slot: int, sentence: Sentence) -> None:
        """Start a sentence in a slot; hypotheses but the first of a group do not exist yet."""
        starts = [(rule, rule.start(sentence)) for rule in self.rules]
        applied = [(rule, state) for rule, state in starts if state is not None]
        if applied:
            self._rules[slot] = [rule for rule, _ in applied]
            first, width = [state for _, state in applied], self.options.size // self.options.groups
            self._states[slot] = [first, *[None] * (width - 1)] * self.options.groups

    def end(self, slots: Iterable[int]) -> None:
        """Forget the sentences of slots."""
        for slot in slots:
            self._rules.pop(slot, None)

    def keep(self, slots: Sequence[int]) -> None:
        """Drop all other slots and renumber these in the given order."""
        ruled = [(new, old) for new, old in enumerate(slots) if old in self._rules]
        self._states = {new: self._states[old] for new, old in ruled}
        self._rules = {new: self._rules[old] for new, old in ruled}
        self.slots = len(slots)

    def advance(self, tokens: Array, parents: Array, log_probs: Array) -> None:
        """Extend each hypothesis [B, K]: `parents` of its slot, followed by `tokens`.

        What has a log-probability of -inf is no hypothesis.
        """
        for slot, rules in self._rules.items():
            states, after = self._states[slot], list[list[Any] | None]()
            parts = (part[slot].tolist() for part in (parents, tokens, log_probs))
            for parent, token, value in zip(*parts, strict=True):
                before = states[parent]
                if before is None or value == -math.inf:
                    after.append(None)
                    continue
                pairs = zip(rules, before, strict=True)
                after.append([rule.after(state, token) for rule, state in pairs])
            self._states[slot] = after

    def phrases(self) -> dict[int, list[Phrases]]:
        """Return the phrases of slots that require some, with the progress of each hypothesis."""
        by_slot: dict[int, list[Phrases]] = {}
        for slot, rules in self._rules.items():
            if isinstance(rules[-1], RequirePhrases):
                states = [None if states is None else states[-1] for states in self._states[slot]]
                phrases = next(filter(None, states))
                start = phrases._replace(progress=phrases.lexical.start())
                by_slot[slot] = [start if state is None else state for state in states]
        return by_slot

    def mask(self, lengths: Array, limits: Array) -> Mask:
        """Return the mask of the next step, for slots of these lengths and limits [B].

        No hypothesis is empty or too short, and each ends at its limit. Empty slots have limit 0.
        """
        ends = np.zeros(self.slots, np.int8)
        ends[(lengths < max(1, self.options.min_length)) & (limits > 0)] = MAY_NOT_END
        ends[(lengths >= limits - 1) & (lengths > 0)] = MUST_END
        if not self._rules:
            return Mask(ends)
        places = _Places()
        for slot in self._rules:
            room, may_end = int(limits[slot] - 1 - lengths[slot]), ends[slot] != MAY_NOT_END
            choices = {
                k: self._choice(slot, states, room, may_end)
                for k, states in enumerate(self._states[slot])
                if states is not None
            }
            is_dead = all(choice.is_dead for choice in choices.values())
            for k, choice in choices.items():
                if is_dead:
                    choice.relax()
                places.add(slot * self.options.size + k, choice)
        return places.mask(ends, self.options.repetition_penalty)

    def _choice(self, slot: int, states: Sequence[Any], room: int, may_end: bool) -> NextTokens:
        """Return the next tokens of a hypothesis whose rules have these states."""
        rules, never = self._rules[slot], self.options.forbidden_ids
        has_phrases = isinstance(rules[-1], RequirePhrases)
        choice = NextTokens(room, () if has_phrases else never, self.engine)
        choice.forbid(never if has_phrases else ())
        choice.forbid(() if may_end else [EOS_ID])
        for rule, state in zip(rules, states, strict=True):
            rule.mask(state, choice)
        return choice


class _Places:
    """Places of a mask, collected row by row."""

    def __init__(self) -> None:
        self._allowed: list[tuple[int, Tokens]] = []
        self._forbidden: list[tuple[int, Tokens]] = []
        self._scaled: list[tuple[int, Tokens]] = []

    def add(self, row: int, choice: NextTokens) -> None:
        """Add those of a row."""
        if choice.allowed is not None:
            remaining = choice.remaining()
            if len(remaining):
                self._allowed.append((row, remaining))
            else:
                self._allowed.append((row, [PAD_ID]))
                self._forbidden.append((row, [PAD_ID]))
        else:
            self._forbidden.append((row, choice.forbidden()))
        self._scaled.append((row, choice.scaled))

    def mask(self, ends: Array, factor: float) -> Mask:
        """Return all as arrays."""
        scaled = _arrays(self._scaled)
        return Mask(
            ends,
            None if scaled is None else (*scaled, factor),
            _arrays(self._allowed),
            _arrays(self._forbidden),
        )


def _arrays(places: Sequence[tuple[int, Tokens]]) -> tuple[Array, Array] | None:
    """Return rows [M] and tokens [M], or None if there are none."""
    places = [(row, tokens) for row, tokens in places if len(tokens)]
    if not places:
        return None
    counts = [len(tokens) for _, tokens in places]
    rows = np.repeat([row for row, _ in places], counts)
    return rows, np.concatenate([np.asarray(tokens, np.int64) for _, tokens in places])
