"""Places of glossary terms: a term replaces the words that attend to its source phrase.

A free translation shows which these are; with the terms in their place, its tokens are required.
(Hasler et al., 2018, place constraints by attention within one search.)
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from seq2seq.data.vocabulary.vocabulary import EOS_ID, UNK_ID, Ids, Vocabularies
from seq2seq.engines.engine import Array
from seq2seq.inference.search.interface import Hypothesis
from seq2seq.text.characters import SPACE, is_in_word, is_letter, is_spaced
from seq2seq.text.glossary import Term
from seq2seq.text.line import Part

MIN_ATTENTION = 0.2  # least attention that a word has to the phrase of its term
SHARED = 0.9  # least attention of words that are replaced with it, as a share of its own
PROMINENT = 0.7  # least share of the largest attention that it has to any token


def placed(
    part: Part, source: Sequence[int], hypothesis: Hypothesis, vocabularies: Vocabularies
) -> Ids | None:
    """Return the tokens of a hypothesis with all terms of a part in place, and end-of-sentence.

    None if a term has no place: it is a required phrase then.
    """
    if not all(is_spaced(term.target[:1]) for term in part.terms):
        return None  # its tokens depend on what is before it
    weights = hypothesis.attention_weights
    tokens = hypothesis.ids[:-1]
    spans = _token_spans(part.terms, part.text, vocabularies.src.tokens(source))
    if weights is None or spans is None or UNK_ID in tokens:
        return None
    written = vocabularies.tgt.tokens(tokens)
    is_word = np.array([any(map(is_in_word, token)) for token in written], bool)
    places = _places(weights[: len(tokens)] * is_word[:, None], list(_words(written)), spans)
    if places is None:
        return None
    targets = vocabularies.tgt.encode([term.target for term in part.terms])
    ids = Ids()
    end = 0  # of the last place
    for place, target in sorted(zip(places, targets, strict=True), key=lambda pair: pair[0].start):
        ids += [*tokens[end : place.start], *target]
        end = place.stop
    ids += [*tokens[end:], EOS_ID]
    return None if UNK_ID in ids else ids


def _token_spans(terms: Sequence[Term], text: str, tokens: Sequence[str]) -> list[range] | None:
    """Return the source tokens of each term's phrase; None if the tokens do not spell the text."""
    spelled_text = "".join(tokens).replace(SPACE, " ")
    if spelled_text.strip(" ") != " ".join(text.split()):
        return None
    shift = len(spelled_text) - len(spelled_text.lstrip(" "))
    ends = np.cumsum([len(token) for token in tokens])
    firsts = np.searchsorted(ends, [term.start + shift for term in terms], side="right")
    lasts = np.searchsorted(ends, [term.end + shift for term in terms], side="left")
    return [range(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]


def _words(tokens: Sequence[str]) -> Iterator[range]:
    """Yield the tokens of words as they are written, between spaces, such as L'homme.

    Marks around a word are apart, and so are tokens of scripts without spaces. A space that is a
    token belongs to the one after it.
    """
    starts = [place for place, token in enumerate(tokens) if place == 0 or token.startswith(SPACE)]
    for space, end in pairwise([*starts, len(tokens)]):
        start = space + 1 if tokens[space] == SPACE and space + 1 < end else space
        letters = [place for place in range(start, end) if any(map(is_letter, tokens[place]))]
        word = range(letters[0], letters[-1] + 1) if letters else range(end, end)
        if not all(map(_is_spaced, tokens[start:end])):
            word = range(end, end)
        ranges = [
            *(range(place, place + 1) for place in range(start, word.start)),
            *([word] if word else []),
            *(range(place, place + 1) for place in range(word.stop, end)),
        ]
        yield range(space, ranges[0].stop)
        yield from ranges[1:]


def _is_spaced(token: str) -> bool:
    return not any(letter.isalpha() and not is_spaced(letter) for letter in token)


def _places(weights: Array, words: Sequence[range], spans: Sequence[range]) -> list[range] | None:
    """Return the tokens that each term replaces: those of the words that attend to its phrase.

    A word attends to a phrase as one of its tokens does, unless that attends much more to another
    source token. Phrases take words in the order of their attention; words beside these that attend
    to the same phrase nearly as much are replaced with them.
    """
    to_spans = [weights[:, span.start : span.stop].sum(axis=1) for span in spans]
    to_spans = [np.where(rows >= PROMINENT * weights.max(axis=1), rows, 0.0) for rows in to_spans]
    words_of = [[rows[word.start : word.stop].max() for word in words] for rows in to_spans]
    attention = np.array(words_of)  # [terms, words]
    places: dict[int, range] = {}
    is_taken = np.zeros(len(words), bool)
    while len(places) < len(spans):
        free_attention = np.where(is_taken[None], 0.0, attention)
        free_attention[list(places)] = 0
        term, best = np.unravel_index(int(free_attention.argmax()), free_attention.shape)
        if free_attention[term, best] < MIN_ATTENTION:
            return None
        first = last = int(best)
        least_attention = np.maximum(SHARED * free_attention[term, best], attention.max(axis=0))
        belongs = free_attention[term] >= least_attention
        while first and belongs[first - 1]:
            first -= 1
        while last + 1 < len(words) and belongs[last + 1]:
            last += 1
        is_taken[first : last + 1] = True
        places[int(term)] = range(words[first].start, words[last].stop)
    return [places[term] for term in range(len(spans))]
