"""Settings of search in combination: translations do not depend on the batch."""

import random
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import pytest
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

from seq2seq.engines.engine import Sampling
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.text.glossary import Glossary

TOY = toy_pairs(66, seed=31)[0]
LINES = [*TOY[:30], "", " ".join(TOY[:8]), TOY[3], *TOY[30:], "BUDA KI MORE TA.", "\u3000"]
WORDS = sorted({word.strip(".") for line in TOY for word in line.split()})
PREFIXES = ["zu ", "", "bu"]
PHRASES = [["mo", "ka zu"], [], ["lili"]]
TERMS = Glossary([(word, f"{word[::-1]}o") for word in WORDS[::5]])
DRAWN = Sampling(4, temperature=1.3, top_k=40, top_p=0.95, seed=7)


RUNS = [("luong",), ("bahdanau", "none")]


class Case(NamedTuple):
    """Arguments of `Translator.stream`, and overrides of the config."""

    settings: SearchSettings
    prefixes: bool = False
    constraints: bool = False
    beam_size: int | None = None
    n_best: int = 1
    overrides: Sequence[str] = ()


CASES = {
    "prefix, sampling": Case(SearchSettings(sampling=DRAWN), prefixes=True, n_best=4),
    "prefix, sampling, forbidden, MBR": Case(
        SearchSettings(sampling=DRAWN, mbr="chrf", forbidden=tuple(WORDS[3::7])), prefixes=True
    ),
    "prefix, constraints, forbidden": Case(
        SearchSettings(forbidden=("ba", "re mi")), prefixes=True, constraints=True, beam_size=4
    ),
    "glossary, constraints, MBR": Case(
        SearchSettings(glossary=TERMS, mbr="bleu"), constraints=True, beam_size=4, n_best=3
    ),
    "glossary, greedy, least length": Case(
        SearchSettings(glossary=TERMS), beam_size=1, overrides=("decoding.min_length=6",)
    ),
    "groups, forbidden, repetition, prefix": Case(
        SearchSettings(groups=3, diversity=1.5, forbidden=("ba",)),
        prefixes=True,
        beam_size=6,
        n_best=4,
        overrides=("decoding.repetition_penalty=1.3",),
    ),
    "groups, MBR, n-grams, coverage": Case(
        SearchSettings(groups=2, mbr="chrf"),
        beam_size=4,
        n_best=2,
        overrides=("decoding.no_repeat_ngram=2", "decoding.coverage_penalty=0.2"),
    ),
}


def translated(translator: Translator, case: Case, rows: Sequence[int]) -> list[tuple[object, ...]]:
    """Translate the lines; return everything that is compared."""
    translations = translator.translate(
        [LINES[row] for row in rows],
        case.beam_size,
        case.n_best,
        prefixes=[PREFIXES[row % 3] for row in rows] if case.prefixes else None,
        constraints=[PHRASES[row % 3] for row in rows] if case.constraints else None,
        settings=case.settings,
    )
    return [
        tuple(
            (entry.text, entry.score, entry.tokens, entry.log_probs) for entry in translation.n_best
        )
        for translation in translations
    ]


def check(translator: Translator, case: Case) -> None:
    everything = list(range(len(LINES)))
    in_one_batch = translated(translator, case, everything)
    for size in (1, 7):
        order = random.Random(size).sample(everything, len(everything))
        for start in range(0, 7 if size == 1 else len(order), size):
            rows = order[start : start + size]
            for row, compared_row in zip(rows, translated(translator, case, rows), strict=True):
                assert compared_row == in_one_batch[row], (size, LINES[row])


@one_quick(("name", "runs"), zip(CASES, cycle(RUNS), strict=False), quick=4)
def test_a_translation_does_not_depend_on_the_batch(
    tiny_runs: dict[str, Path], runs: Sequence[str], name: str
) -> None:
    folders = [tiny_runs[run] for run in runs]
    check(Translator.load(*folders, device="cpu", overrides=CASES[name].overrides), CASES[name])


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["prefix, sampling", "glossary, constraints, MBR"])
def test_an_int8_translation_does_not_depend_on_the_batch(
    tiny_runs: dict[str, Path], name: str
) -> None:
    check(Translator.load(tiny_runs["luong"], device="cpu", int8=True), CASES[name])
