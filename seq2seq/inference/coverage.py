"""Coverage of a source by attention: words that a translation may have left out.

The coverage of a word is the attention that all target tokens pay to it (Tu et al., 2016), about 1
for a word that is translated.
"""

from collections.abc import Iterator, Sequence

from seq2seq.data.subword_sampling import SPACE
from seq2seq.engines.engine import Array
from seq2seq.inference.token_labels import EOS, joined, text_of

COVERED = 0.6  # maximum coverage of words in a run that is noted, on average
MISSING = 4.0  # least number of letters of such a run that would have to be attended to
NOTE = "hardly any attention, perhaps not translated: "


def notes_on_coverage(tokens: Sequence[str], weights: Array | None) -> list[str]:
    """Return a note on a run of source words that got hardly any attention [T, S], if there is one.

    Words count by their letters: short ones, such as articles, often have no translation of their
    own. Weights that sum to less than 1, as those of a window, are scaled.
    """
    if weights is None or not (total := float(weights.sum())):
        return []
    coverage = (weights.sum(axis=0) * (len(weights) / total)).tolist()
    worst = lacking = 0.0
    run = first = range(0)
    for span in _words(tokens):
        lack = COVERED - sum(coverage[span.start : span.stop])
        if lack > 0 or lacking > 0:
            text = "".join(tokens[span.start : span.stop])
            letters = sum(map(str.isalpha, joined([text]) if "<0x" in text else text))
            first = first if lacking > 0 else span
            lacking = max(0.0, lacking) + lack * letters
            if lacking > worst:
                worst, run = lacking, range(first.start, span.stop)
    if worst < MISSING:
        return []
    return [NOTE + text_of(tokens[run.start : run.stop])]


def _words(tokens: Sequence[str]) -> Iterator[range]:
    """Yield the indices of each word's tokens, without the end of the sentence."""
    start = 0
    for place, token in enumerate(tokens):
        if place > start and (token == EOS or token[0] == SPACE):
            yield range(start, place)
            start = place
