"""Score a translation as papers on Multi30k do: lowercased, normalised and tokenised.

    pip install sacremoses
    python scripts/papers_bleu.py de hyp.de test_2016_flickr.lc.norm.tok.de

The translation is detokenised text, one sentence per line. The reference, of data/task1/tok in
Multi30k's repository, has been lowercased, normalised and tokenised by the same rules of Moses; it
may be compressed.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU

from seq2seq.runtime.errors import ReportedError
from seq2seq.text.text_files import read_lines


def main() -> None:
    """Print the score and its signature."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("language", help="code of the target language")
    parser.add_argument("hypotheses", type=Path, metavar="TRANSLATION")
    parser.add_argument("references", type=Path, metavar="REFERENCE")
    options = parser.parse_args()
    try:
        hypotheses, references = map(read_lines, (options.hypotheses, options.references))
    except ReportedError as error:
        sys.exit(f"error: {error}")
    if len(hypotheses) != len(references):
        sys.exit(
            f"error: {options.hypotheses} has {len(hypotheses):,} lines, {options.references} "
            f"{len(references):,}"
        )
    bleu = BLEU(tokenize="none", force=True)  # no warning that text is tokenised
    score = bleu.corpus_score(tokenised(hypotheses, options.language), [references])
    print(f"BLEU {score.score:.2f} {bleu.get_signature()}")


def tokenised(lines: Sequence[str], language: str) -> list[str]:
    """Return the lines lowercased, with normalised punctuation, and tokenised."""
    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer
    except ModuleNotFoundError:
        sys.exit("error: sacremoses is not installed. Run: pip install sacremoses")
    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower()), escape=True, return_str=True)
        for line in lines
    ]


if __name__ == "__main__":
    main()
