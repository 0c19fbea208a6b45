"""Rules on the next token: prefixes, phrases, forbidden words, n-grams, lengths, repetition.

A rule owns its state, one per hypothesis, which is never changed in place; `RuleStates` has those
of all slots. What a sentence requires is in its request: its phrases are `lexical`. To add a rule,
write its class here and name it in `rules_of`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.engines.engine import MAY_NOT_END, MUST_END, Array, EngineStep, Mask
from seq2seq.inference.search.forbidden import Forbidden, State
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.search.lexical import Lexical, PhraseProgress, Prefix
from seq2seq.inference.search.sentences import Sentence, SlotTable

Tokens = Sequence[int] | Array


class NextTokens:
    """Next tokens that one hypothesis may take."""

    def __init__(self, room: int, allowed: Array) -> None:
        """Take the number of tokens that may precede end-of-sentence, and which are allowed [V]."""
        self.room = room
        self.allowed = allowed
        self.is_bound = False  # by an incomplete prefix
        self.scaled: Tokens = ()  # their log-probabilities are multiplied by the penalty
        self.repeated: Tokens = ()  # forbidden, as they would complete an n-gram again
        self.unwanted: Tokens = ()  # forbidden, as they would complete a forbidden word
        self.unwanted_at_word_end: Callable[[], Tokens] = tuple  # likewise if their word ends
        if room <= 0:
            self.allow_only([EOS_ID])

    def allow_only(self, tokens: Tokens) -> None:
        """Allow no tokens but these, as far as they are still allowed."""
        ids = np.asarray(tokens, np.int64)
        still_allowed = self.allowed[ids]
        self.allowed = np.zeros_like(self.allowed)
        self.allowed[ids] = still_allowed

    def forbid(self, tokens: Tokens) -> None:
        """Forbid tokens."""
        self.allowed[np.asarray(tokens, np.int64)] = False

    def forbid_if_others(self, tokens: Tokens) -> None:
        """Forbid tokens unless no other remains."""
        if self.has_others(tokens):
            self.forbid(tokens)

    def exempt(self, tokens: Tokens) -> None:
        """Allow tokens whatever the other rules say, but for forbidden words and n-grams."""
        self.allowed[np.asarray(tokens, np.int64)] = True
        self.scaled = [token for token in self.scaled if token not in tokens]

    def allowed_of(self, tokens: Iterable[int]) -> list[int]:
        """Return those of the tokens that are still allowed."""
        return [token for token in tokens if self.allowed[token]]

    def has_others(self, tokens: Tokens) -> bool:
        """Return whether a token remains if these are forbidden."""
        forbidden = len(self.repeated) + len(self.unwanted) + len(tokens)  # at most
        if np.count_nonzero(self.allowed) > forbidden:
            return True
        next_allowed = self.remaining()
        next_allowed[np.asarray(tokens, np.int64)] = False
        return bool(next_allowed.any())

    def remaining(self) -> Array:
        """Return which tokens may follow: [V]."""
        next_allowed = self.allowed.copy()
        for tokens in (self.repeated, self.unwanted):
            if len(tokens):
                next_allowed[np.asarray(tokens)] = False
        return next_allowed


class Rule:
    """Restriction on the next token of a hypothesis, given those so far.

    The state is these tokens, unless a rule has another one.
    """

    def start(self, sentence: Sentence) -> Any:  # noqa: ARG002
        """Return the state of the empty hypothesis, or None if the rule does not apply."""
        return ()

    def after(self, state: Any, token: int) -> Any:
        """Return the state after one more token."""
        return (*state, token)

    def mask(self, state: Any, choice: NextTokens) -> None:
        """Restrict the choice of the next token."""
        raise NotImplementedError

    def missing(self, state: Any) -> int:  # noqa: ARG002
        """Return how many tokens a hypothesis still needs at least, as this rule counts them."""
        return 0

    def needed(self, state: Any) -> Iterable[int]:  # noqa: ARG002
        """Return the tokens of which the next one may change `missing`."""
        return ()


_States = list[tuple[Rule, Any]]  # rules of a hypothesis, with their states
_OTHER = -1  # a token that no rule needs


def missing_tokens(states: _States) -> int:
    """Return how many tokens a hypothesis still needs at least, by all rules together.

    Rules need different tokens: a name within a phrase counts as one of the phrase.
    """
    return sum(rule.missing(state) for rule, state in states)


def keep_room(states: _States, choice: NextTokens) -> None:
    """Allow the tokens after which there is room for all that is missing.

    A prefix is followed first: the limit leaves room for the rest behind it.
    """
    waiting = [(rule, state) for rule, state in states if rule.missing(state)]
    if not waiting or choice.is_bound:
        return

    def fits(token: int) -> bool:
        next_states = [(rule, rule.after(state, token)) for rule, state in waiting]
        return missing_tokens(next_states) < choice.room

    if not fits(_OTHER):
        needed = {token for rule, state in waiting for token in rule.needed(state)}
        choice.allow_only([token for token in choice.allowed_of(needed) if fits(token)])


def rules_of(options: SearchOptions) -> list[Rule]:
    """Return the rules of a search in order of application.

    A prefix comes first, as others yield to it; phrases last, as they exempt tokens from the rules
    before them, but not from forbidden words and n-grams.
    """
    rules: list[Rule] = [KeepPrefix()]
    if options.kept_ids:
        rules.append(KeepTokens(options.kept_ids))
    if options.repetition_penalty != 1:
        rules.append(PenalizeRepetition())
    if options.no_repeat_ngram:
        rules.append(NoRepeatedNgram(options.no_repeat_ngram))
    if options.forbidden_words is not None:
        rules.append(ForbidWords(options.forbidden_words))
    return [*rules, RequirePhrases(options.no_repeat_ngram, options.kept_ids)]


class KeepPrefix(Rule):
    """A hypothesis starts with the prefix of its sentence."""

    def start(self, sentence: Sentence) -> tuple[Prefix, int] | None:
        return (sentence.prefix, 0) if sentence.prefix.states else None

    def after(self, state: tuple[Prefix, int], token: int) -> tuple[Prefix, int]:
        prefix, place = state
        return prefix, prefix.after(place, token)

    def mask(self, state: tuple[Prefix, int], choice: NextTokens) -> None:
        prefix, place = state
        if place < len(prefix.states):
            choice.is_bound = True
            choice.allow_only(prefix.states[place].tokens)


class KeepTokens(Rule):
    """Tokens that a hypothesis contains once if they are in the source, and never otherwise.

    No hypothesis ends, nor has a final mark, before it contains all.
    """

    def __init__(self, ids: range) -> None:
        self.ids = ids
        self._all = np.array(ids)

    def start(self, sentence: Sentence) -> tuple[Ids, Sentence]:
        return [*sentence.placeholders], sentence

    def after(self, state: tuple[Ids, Sentence], token: int) -> tuple[Ids, Sentence]:
        missing_names, sentence = state
        if token not in missing_names:  # as most tokens
            return state
        return [name for name in missing_names if name != token], sentence

    def mask(self, state: tuple[Ids, Sentence], choice: NextTokens) -> None:
        missing_names, sentence = state
        if missing_names:
            choice.forbid([token for token in self.ids if token not in missing_names])
        else:
            choice.forbid(self._all)
        if missing_names and choice.is_bound:
            choice.forbid_if_others([EOS_ID])
        elif missing_names:
            choice.forbid([EOS_ID, *sentence.marks])

    def missing(self, state: tuple[Ids, Sentence]) -> int:
        """Return the number of tokens that no phrase has."""
        missing_names, sentence = state
        phrases = sentence.lexical.phrases
        if not (missing_names and phrases):
            return len(missing_names)
        in_phrases = {token for phrase in phrases for token in phrase.tokens}
        return sum(token not in in_phrases for token in missing_names)

    def needed(self, state: tuple[Ids, Sentence]) -> Ids:
        return state[0]


class PenalizeRepetition(Rule):
    """Log-probabilities of tokens that a hypothesis has are scaled (Keskar et al. 2019).

    They divide logits by the factor, which favours negative ones, so that implementations multiply
    those: both depend on a constant that softmax ignores. Log-probabilities are never positive.
    """

    def mask(self, state: tuple[int, ...], choice: NextTokens) -> None:
        choice.scaled = tuple(dict.fromkeys(state))


class NoRepeatedNgram(Rule):
    """No n-gram of this size occurs twice in a hypothesis, unless its prefix leaves no choice.

    Those within a phrase that it must contain do not count.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def mask(self, state: tuple[int, ...], choice: NextTokens) -> None:
        size = self.size
        latest = state[len(state) - size + 1 :]
        repeated = [
            state[start + size - 1]
            for start in range(len(state) - size + 1)
            if state[start : start + size - 1] == latest
        ]
        if repeated and not (choice.is_bound and not choice.has_others(repeated)):
            choice.repeated = repeated


class ForbidWords(Rule):
    """Words that no hypothesis contains, unless its prefix leaves no choice."""

    def __init__(self, forbidden: Forbidden) -> None:
        self.forbidden = forbidden

    def start(self, sentence: Sentence) -> State:  # noqa: ARG002
        return self.forbidden.start

    def after(self, state: State, token: int) -> State:
        return self.forbidden.after(state, token)

    def mask(self, state: State, choice: NextTokens) -> None:
        tokens = self.forbidden.forbidden_tokens(state, choice.room == 1)  # then the sentence ends
        if not choice.is_bound or choice.has_others(tokens):
            choice.unwanted = tokens
            choice.unwanted_at_word_end = lambda: self.forbidden.forbidden_tokens(state, True)


class PhraseState(NamedTuple):
    """A sentence, whose `lexical` has its phrases, and how much of them a hypothesis has."""

    sentence: Sentence
    progress: PhraseProgress


class RequirePhrases(Rule):
    """Phrases that a hypothesis must contain, unless its prefix leaves no choice.

    End-of-sentence and final marks wait for all phrases. A word that completes a phrase does not
    continue. Tokens that advance a phrase are exempt from the repetition penalty and may be tokens
    that no other hypothesis has; n-grams of phrases alone may repeat. A placeholder that a phrase
    needs is left to it, and the phrase is completed then.
    """

    def __init__(self, ngram: int = 0, kept_ids: range = range(0)) -> None:
        self.ngram = ngram
        self.kept_ids = kept_ids

    def start(self, sentence: Sentence) -> PhraseState | None:
        lexical = sentence.lexical
        return PhraseState(sentence, lexical.start()) if lexical.phrases else None

    def after(self, state: PhraseState, token: int) -> PhraseState:
        sentence, progress = state
        return PhraseState(sentence, sentence.lexical.after(progress, token))

    def mask(self, state: PhraseState, choice: NextTokens) -> None:
        sentence, progress = state
        lexical = sentence.lexical
        met_tokens = lexical.met(progress)
        if choice.is_bound:
            if met_tokens < lexical.total:
                choice.forbid_if_others([EOS_ID])
            return
        if met_tokens < lexical.total:
            choice.forbid([EOS_ID, *sentence.marks])
        if choice.room <= 0:
            return
        phrase_lengths = lexical.advancing(progress)  # so far, with the token
        advancing = list(phrase_lengths)
        missing_phrases = lexical.missing(progress)
        has_placeholder = any(
            token in self.kept_ids for ids, length in missing_phrases for token in ids[:length]
        )
        if has_placeholder:  # which comes once: the phrase that it belongs to must be completed
            advancing = [
                token
                for token in advancing
                if lexical.met(lexical.after(progress, token)) > met_tokens
            ]
            choice.allow_only(())
        elif progress.closed:
            choice.forbid(list(lexical.continuing))
        phrase_tokens = [token for ids, _ in missing_phrases for token in ids]
        choice.forbid([token for token in phrase_tokens if token in self.kept_ids])
        choice.exempt(advancing)
        choice.forbid(self._unwanted(advancing, lexical, progress, choice))
        if self.ngram:
            tokens_inside = {token for token in advancing if phrase_lengths[token] >= self.ngram}
            choice.repeated = [token for token in choice.repeated if token not in tokens_inside]

    def missing(self, state: PhraseState) -> int:
        sentence, progress = state
        return sentence.lexical.total - sentence.lexical.met(progress)

    def needed(self, state: PhraseState) -> set[int]:
        sentence, progress = state
        return {token for ids, _ in sentence.lexical.missing(progress) for token in ids}

    def _unwanted(
        self,
        advancing: Sequence[int],
        lexical: Lexical,
        progress: PhraseProgress,
        choice: NextTokens,
    ) -> list[int]:
        """Return the tokens that complete a phrase, and so a word, which is forbidden."""
        completing = [token for token in advancing if lexical.after(progress, token).closed]
        if not completing:
            return []
        unwanted_tokens = set(np.asarray(choice.unwanted_at_word_end()).tolist())
        return [token for token in completing if token in unwanted_tokens]


class SlotPhrases(NamedTuple):
    """Phrases that the sentence of a slot requires."""

    lexical: Lexical
    progress: list[PhraseProgress]  # of each hypothesis


class RuleStates:
    """Rules of the sentences in search, with their states for each hypothesis of each slot."""

    def __init__(self, rules: Sequence[Rule], options: SearchOptions, table: SlotTable) -> None:
        self.rules = rules
        self.options = options
        self.table = table
        self._states: dict[int, list[_States | None]] = {}  # [K] by slot; None: no hypothesis
        self.dead_ends = np.zeros(len(table), bool)  # at the last mask: no token remains

    def begin(self, slot: int, sentence: Sentence) -> None:
        """Start a sentence in a slot; hypotheses but the first of a group do not exist yet."""
        starts = [(rule, rule.start(sentence)) for rule in self.rules]
        states = [(rule, state) for rule, state in starts if state is not None]
        if states:
            width = self.options.beam_size // self.options.groups
            self._states[slot] = [states, *[None] * (width - 1)] * self.options.groups

    def end(self, slots: Iterable[int]) -> None:
        """Forget the sentences of slots."""
        for slot in slots:
            self._states.pop(slot, None)

    def keep(self, slots: Sequence[int]) -> None:
        """Drop all other slots and renumber these in the given order."""
        self._states = {
            number: self._states[slot] for number, slot in enumerate(slots) if slot in self._states
        }

    def advance(self, tokens: Array, parents: Array, log_probs: Array) -> None:
        """Extend each hypothesis [B, K]: `parents` of its slot, followed by `tokens`.

        What has a log-probability of -inf is no hypothesis.
        """
        for slot, hypotheses in self._states.items():
            extended = list[_States | None]()
            columns = (column[slot].tolist() for column in (parents, tokens, log_probs))
            for parent, token, log_prob in zip(*columns, strict=True):
                states = hypotheses[parent]
                if states is None or log_prob == -math.inf:
                    extended.append(None)
                else:
                    extended.append([(rule, rule.after(state, token)) for rule, state in states])
            self._states[slot] = extended

    def phrases(self) -> dict[int, SlotPhrases]:
        """Return the phrases of each slot, if all require some."""
        by_slot = {}
        for slot, hypotheses in self._states.items():
            phrase_states = [_phrase_state(states) for states in hypotheses]
            lexical = next(state for state in phrase_states if state).sentence.lexical
            progress = [state.progress if state else lexical.start() for state in phrase_states]
            by_slot[slot] = SlotPhrases(lexical, progress)
        return by_slot

    def mask(self, step: EngineStep) -> Mask:
        """Return the mask of a step.

        No hypothesis is empty or too short, and each ends at its limit. Empty slots have limit 0.
        """
        lengths = self.table.lengths
        limits = self.table.limits
        ends = np.zeros(len(limits), np.int8)
        ends[(lengths < max(1, self.options.min_length)) & (limits > 0)] = MAY_NOT_END
        ends[(lengths >= limits - 1) & (lengths > 0)] = MUST_END
        self.dead_ends = np.zeros(len(limits), bool)
        if not self._states:
            return Mask(ends)
        allowed = np.ones(step.values.shape[1], bool)
        allowed[list(self.options.forbidden_ids)] = False
        choices = dict[int, NextTokens]()  # by row
        next_allowed = list[Array]()  # [V] of each of these rows
        for slot in self._states:
            slot_allowed = allowed.copy()
            slot_allowed[EOS_ID] &= ends[slot] != MAY_NOT_END
            room = int(limits[slot] - 1 - lengths[slot])
            slot_choices = self._choices(slot, room, slot_allowed)
            slot_remaining = [choice.remaining() for choice in slot_choices.values()]
            self.dead_ends[slot] = not np.any(slot_remaining)
            choices |= slot_choices
            next_allowed += slot_remaining
        rows = [row for row, choice in choices.items() for _ in choice.scaled]
        scaled = None
        if rows:
            tokens = [np.asarray(choice.scaled, np.int64) for choice in choices.values()]
            scaled = np.array(rows), np.concatenate(tokens), self.options.repetition_penalty
        return Mask(ends, scaled, (np.array([*choices]), ~np.stack(next_allowed)))

    def _choices(self, slot: int, room: int, allowed: Array) -> dict[int, NextTokens]:
        """Return the next tokens of each hypothesis of a slot, by its row.

        Hypotheses that share their states, as those without names or phrases do, have one choice:
        a rule returns the very state that it was given where a token changes nothing.
        """
        choices = {}
        by_states = dict[tuple[int, ...], NextTokens]()
        for k, states in enumerate(self._states[slot]):
            if states is None:
                continue
            key = tuple(id(state) for _, state in states)
            if key not in by_states:
                by_states[key] = _choice(states, room, allowed.copy())
            choices[slot * self.options.beam_size + k] = by_states[key]
        return choices


def _choice(states: _States, room: int, allowed: Array) -> NextTokens:
    """Return the next tokens of a hypothesis with these states."""
    choice = NextTokens(room, allowed)
    for rule, state in states:
        rule.mask(state, choice)
    keep_room(states, choice)
    return choice


def _phrase_state(states: _States | None) -> PhraseState | None:
    """Return the state of the rule that requires phrases, if there is a hypothesis."""
    if states is None:
        return None
    (state,) = (state for rule, state in states if isinstance(rule, RequirePhrases))
    return PhraseState(*state)
