"""Unknown words: a token without a word becomes the source word that it attends to most."""

from collections.abc import Sequence

import numpy as np

from seq2seq.data.vocabulary.vocabulary import UNK_ID, UNKNOWN, Vocabulary
from seq2seq.inference.requirements import Requirements
from seq2seq.inference.search.interface import Hypothesis
from seq2seq.inference.text_steps import Part


def text_with_words(
    part: Part, hypothesis: Hypothesis, vocabulary: Vocabulary, requirements: Requirements
) -> str:
    """Return the text of a hypothesis with the source's words for unknown ones, unless forbidden.

    Jean et al. (2015) translate the most attended word by a dictionary if they can; here it is
    copied.
    """
    prefix = part.prefix.words
    copied = [
        UNKNOWN if requirements.is_forbidden(word) else word
        for word in _attended_words(part, hypothesis)[len(prefix) :]
    ]
    text = vocabulary.decode(hypothesis.ids, prefix + copied)
    if copied and requirements.is_forbidden(text):  # as a phrase with words beside, or in a prefix
        without = vocabulary.decode(hypothesis.ids, prefix)
        return text if requirements.is_forbidden(without) else without
    return text


def _attended_words(part: Part, hypothesis: Hypothesis) -> Sequence[str]:
    """Return the most attended source word of each unknown token."""
    weights = hypothesis.attention_weights
    if weights is None or not part.words:
        return []
    unknown = np.array(hypothesis.ids) == UNK_ID
    attended = weights[unknown, : len(part.words)].argmax(axis=1)  # not end-of-sentence
    return [part.words[column] for column in attended.tolist()]
