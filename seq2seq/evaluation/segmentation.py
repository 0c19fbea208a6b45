"""Segmentation of text into words for BLEU and TER, by the script of the references."""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import NamedTuple

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.tokenizers.tokenizer_ter import TercomTokenizer

from seq2seq.runtime.errors import UserError, argument
from seq2seq.text.sample import sample_of

DEFAULT_TOKENIZER = "13a"
_BY_SPACES = (DEFAULT_TOKENIZER, "intl", "none")  # tokenizers that split words at spaces
# Scripts without spaces between words, by the start of the Unicode names of their letters.
_NAMED_ALIKE = (
    *("Thai", "Lao", "Khmer", "Myanmar", "Tibetan", "Tai", "New Tai", "Ahom"),
    *("Javanese", "Balinese", "Yi", "Nushu", "Tangut"),
)
_UNSPACED = {
    **dict.fromkeys(("CJK", "IDEOGRAPHIC", "BOPOMOFO"), "Han"),
    **dict.fromkeys(("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HALFWIDTH KATAKANA"), "Kana"),
    **{name.upper(): name for name in _NAMED_ALIKE},
}
_JAPANESE_CODES = ("ja", "jpn", "jp", "japanese")  # for references in Han characters alone
_UNSPACED_SHARE = 0.3  # share of letters; one Han character is worth several Latin letters
_KANA_SHARE = 0.05  # kana among Han and kana, from which a text is taken to be Japanese
_SAMPLED_LINES = 2000
_TER_TOKENIZERS = {
    asian: TercomTokenizer(normalized=asian, asian_support=asian) for asian in (False, True)
}


class Segmentation(NamedTuple):
    """Segmentation of hypotheses and references into words.

    `tokenize` names sacrebleu's tokenizer for BLEU. `asian` turns on sacrebleu's Asian support in
    TER, which splits at Chinese characters. `script` is the script of references without spaces
    between words; None for other references.
    """

    tokenize: str = DEFAULT_TOKENIZER
    asian: bool = False
    script: str | None = None

    def ter_words(self, line: str) -> int:
        """Return the number of words of a line in TER."""
        return len(_TER_TOKENIZERS[self.asian](line).split())

    def validation_note(self) -> str | None:
        """Return a note for the log of a training on such references, where BLEU is measured."""
        bleu = f"BLEU uses sacrebleu's tokenizer {self.tokenize}, as seq2seq evaluate does"
        place = f"the validation references are in {self.script} script"
        return self.script and f"{place}, without spaces between words: {bleu}"

    def note(self) -> str | None:
        """Return a note on references without spaces between words."""
        if self.script is None:
            return None
        bleu = f"BLEU uses sacrebleu's tokenizer {self.tokenize}"
        between = "text between spaces"
        if self.tokenize in _BY_SPACES:
            char = argument("tokenize", "char")
            bleu += f", which counts {between} as one word ({char} would not)"
        splits = "splits at Chinese characters (asian:yes)"
        ter = splits if self.asian else f"counts {between} as one word"
        place = f"the references are in {self.script} script, without spaces between words"
        return f"{place}: {bleu}; TER {ter}"


BY_SPACES = Segmentation()  # for text with spaces between words


def segmentation_of(
    language: str, references: Iterable[Sequence[str]], tokenize: str | None = None
) -> Segmentation:
    """Return the segmentation for one or more lists of references in a language.

    The script of the references decides, so that the spelling of the language code does not
    matter: sacrebleu's `zh` for Chinese, `char` for Japanese and other scripts without spaces
    (Thai, Lao, Khmer, Burmese, Tibetan, ...), `13a` otherwise. The code (which may be empty)
    decides only whether Han characters without kana are Chinese or Japanese. `tokenize` replaces
    the choice for BLEU.
    """
    sample = (line for lines in references for line in sample_of(lines, _SAMPLED_LINES))
    letters = Counter[str | None]()  # and marks, by unspaced script
    for character, count in Counter(chain.from_iterable(sample)).items():
        if unicodedata.category(character)[0] in "LM":
            letters[_script(character)] += count
    unspaced = {script: count for script, count in letters.items() if script is not None}
    if sum(unspaced.values()) < max(1, _UNSPACED_SHARE * letters.total()):
        return Segmentation(tokenize or DEFAULT_TOKENIZER)
    han = unspaced.pop("Han", 0)
    kana = unspaced.pop("Kana", 0)
    if unspaced and max(unspaced.values()) > han + kana:
        return Segmentation(tokenize or "char", False, max(unspaced, key=unspaced.__getitem__))
    code = re.split("[-_]", language.lower())[0]
    if code in _JAPANESE_CODES or kana >= _KANA_SHARE * (han + kana):
        return Segmentation(tokenize or "char", True, "Japanese")
    return Segmentation(tokenize or "zh", True, "Chinese")


@cache
def _script(character: str) -> str | None:
    name = unicodedata.name(character, "")
    scripts = (script for start, script in _UNSPACED.items() if name.startswith(f"{start} "))
    return next(scripts, None)


@contextmanager
def quiet_sacrebleu() -> Iterator[None]:
    """Suppress sacrebleu's progress and hints; the relevant ones are notes of ours."""
    logger = logging.getLogger("sacrebleu")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@quiet_sacrebleu()
def check_tokenizer(tokenize: str) -> None:
    """Check that a BLEU tokenizer is known to sacrebleu and can be loaded; raises UserError."""
    if tokenize not in BLEU.TOKENIZERS:
        text = f"unknown BLEU tokenizer {tokenize!r}:"
        raise UserError(f"{text} choose one of {', '.join(BLEU.TOKENIZERS)}")
    try:
        BLEU(tokenize=tokenize)
    except OSError as error:
        text = f"BLEU tokenizer {tokenize!r} needs a model that sacrebleu could not download"
        raise UserError(f"{text} ({error})") from error
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"BLEU tokenizer {tokenize!r} cannot be used here: {reason}") from error
