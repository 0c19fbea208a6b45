"""Sentences of a toy language, and a small corpus of them."""

import random
from pathlib import Path

ONSETS = "bdgklmnprstvz"
VOWELS = "aeiou"


def toy_words(count: int) -> list[str]:
    """Return the same words of one to three syllables at every call."""
    generator = random.Random(0)
    return [
        "".join(generator.choice(ONSETS) + generator.choice(VOWELS) for _ in range(syllables))
        for syllables in generator.choices((1, 2, 3), k=count)
    ]


def toy_pairs(count: int, seed: int, max_words: int = 9) -> tuple[list[str], list[str]]:
    """Return toy sentence pairs; the target has the words in reverse order and shifted vowels.

    Sentences have two words at least and `max_words` at most.
    """
    lexicon = toy_words(90)
    generator = random.Random(seed)
    shifted = str.maketrans(VOWELS, VOWELS[1:] + VOWELS[0])
    src = [
        " ".join(generator.choices(lexicon, k=generator.randint(2, max_words)))
        for _ in range(count)
    ]
    tgt = [" ".join(reversed(sentence.split())).translate(shifted) for sentence in src]
    return [f"{sentence}." for sentence in src], [f"{sentence}!" for sentence in tgt]


def write_small_corpus(folder: Path, short: bool = False) -> Path:
    """Write text and a config that trains in a second, or in less if `short`; return the config."""
    max_words, valid, batch_tokens, max_length = (4, 5, 220, 5) if short else (9, 9, 450, 9)
    for split, count, seed in (("train", 120, 1), ("valid", valid, 2), ("test", 11, 3)):
        for side, lines in zip(("src", "tgt"), toy_pairs(count, seed, max_words), strict=True):
            content = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{side}").write_text(content, encoding="utf-8", newline="\n")
    config = folder / "config.yaml"
    here = folder.as_posix()
    config.write_text(
        f"""\
name: small
run_dir: {here}/run
data:
  src_lang: xx
  tgt_lang: yy
  train: {{src: {here}/train.src, tgt: {here}/train.tgt}}
  valid: {{src: {here}/valid.src, tgt: {here}/valid.tgt}}
  test: {{src: {here}/test.src, tgt: {here}/test.tgt}}
  max_length: 40
vocabulary: {{size: 340}}
model: {{decoder: bahdanau, embedding_size: 12, hidden_size: 20, attention_size: 14, dropout: 0.25}}
training: {{max_epochs: 2, batch_tokens: {batch_tokens}, log_every: 3, precision: float32}}
decoding: {{beam_size: 3, max_length: {max_length}}}
""",
        encoding="utf-8",
        newline="\n",
    )
    return config
