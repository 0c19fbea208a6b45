"""Generated lines by many settings: a translation depends on its line, and obeys its rules."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cases.random_lines import fuzz_lines
from cases.toy_text import toy_pairs

from seq2seq.engines.engine import Sampling
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.text.characters import is_blank
from seq2seq.text.glossary import Glossary
from seq2seq.text.learned_profile import describe_source

TOY, REFERENCES = toy_pairs(120, seed=9)
PROFILE = describe_source(TOY, REFERENCES)
WORDS = sorted({word for line in REFERENCES for word in re.findall(r"\w+", line)})
SOURCE_WORDS = sorted({word for line in TOY for word in re.findall(r"\w+", line)})
DRAW = random.Random(7)
TERMS = Glossary({word: DRAW.choice(WORDS) for word in DRAW.sample(SOURCE_WORDS, 25)})
FORBIDDEN = tuple(DRAW.sample(WORDS, 3))
NOT_FORBIDDEN = [word for word in WORDS if word not in FORBIDDEN]
SAMPLES = Sampling(4, temperature=1.2, seed=3)
GAVE_WAY = "no translation obeys all rules of its search; left out: "
FORMS: tuple[Callable[[str], str], ...] = (
    str,
    lambda line: f"1. {line}",
    lambda line: f"\u2022 {line} \U0001f600",
    lambda line: line.rstrip("."),
    lambda line: f"{line} {TOY[0]}",
    lambda line: f"{line}\U0001f44d {TOY[1]} (1)",
    lambda line: line.replace(" ", "\u00a0"),
    lambda line: line.upper(),
    lambda line: f"  {line}\r",
    lambda line: f"{line[:-1]}\uff01\uff1f",
    lambda line: f"{line} 12:30 *",
    lambda line: line.replace("a", "a\u0301"),
)


class Setting(NamedTuple):
    """Arguments of a call, overrides of the config, and which rules the lines have."""

    settings: SearchSettings = SearchSettings()
    beam_size: int | None = 3
    n_best: int = 1
    overrides: Sequence[str] = ()
    has_prefixes: bool = False
    has_phrases: bool = False


SETTINGS = {
    "default": Setting(),
    "greedy": Setting(beam_size=1),
    "n-best": Setting(n_best=3),
    "prefixes": Setting(has_prefixes=True),
    "phrases": Setting(has_phrases=True),
    "prefixes, phrases, greedy": Setting(beam_size=1, has_prefixes=True, has_phrases=True),
    "glossary": Setting(SearchSettings(glossary=TERMS)),
    "glossary, n-best, prefixes": Setting(
        SearchSettings(glossary=TERMS), n_best=3, has_prefixes=True
    ),
    "glossary, phrases, forbidden": Setting(
        SearchSettings(glossary=Glossary({"ki": "zu"}), forbidden=FORBIDDEN), has_phrases=True
    ),
    "forbidden, prefixes": Setting(SearchSettings(forbidden=FORBIDDEN), has_prefixes=True),
    "samples": Setting(SearchSettings(sampling=SAMPLES), beam_size=None),
    "groups, n-grams": Setting(
        SearchSettings(groups=2), beam_size=4, overrides=["decoding.no_repeat_ngram=3"]
    ),
    "least length, phrases": Setting(
        overrides=["decoding.min_length=9", "decoding.no_repeat_ngram=2"], has_phrases=True
    ),
}


def generated_lines(count: int) -> Iterator[str]:
    """Yield lines of words in many forms, and lines of any content."""
    anything = fuzz_lines(count, seed=5)
    for number in range(count):
        if number % 5 == 4:
            yield next(anything).decode(errors="replace")
        else:
            yield FORMS[number % len(FORMS)](TOY[number % len(TOY)])


class Call:
    """Translates lines, each with a prefix and phrases that belong to its place."""

    def __init__(self, translator: Translator, setting: Setting, lines: Sequence[str]) -> None:
        draw = random.Random(len(lines))
        self.translator, self.setting, self.lines = translator, setting, lines
        self.prefixes = [
            "".join(draw.choice(REFERENCES).partition(" ")[: draw.randint(0, 2)]) for _ in lines
        ]
        self.phrases = [draw.sample(NOT_FORBIDDEN, draw.randint(0, 2)) for _ in lines]

    def translate(self, rows: Sequence[int], **overrides: Any) -> list[Translation]:
        setting = self.setting
        arguments = {"beam_size": setting.beam_size, "n_best": setting.n_best, **overrides}
        return self.translator.translate(
            [self.lines[row] for row in rows],
            prefixes=[self.prefixes[row] for row in rows] if setting.has_prefixes else None,
            constraints=[self.phrases[row] for row in rows] if setting.has_phrases else None,
            settings=setting.settings,
            **arguments,
        )


def compared(translation: Translation) -> object:
    entries = [(e.text, e.score, e.tokens, e.log_probs) for e in translation.n_best]
    return entries, translation.notes


def has_words(text: str, phrase: str) -> bool:
    return re.search(rf"(?<![^\W_]){re.escape(phrase)}(?![^\W_])", text) is not None


def gave_way(translation: Translation, name: str) -> bool:
    return any(GAVE_WAY in note and name in note for note in translation.notes)


def check_rules(call: Call, row: int, translation: Translation) -> None:
    text = translation.text
    setting = call.setting
    if is_blank(call.lines[row]):
        return
    prefix = " ".join(call.prefixes[row].split()) if setting.has_prefixes else ""
    assert text.startswith(prefix)
    if setting.has_phrases and not gave_way(translation, "required phrases"):
        assert all(has_words(text, phrase) for phrase in call.phrases[row])
    text_after_prefix = text[len(prefix) :]
    assert not any(has_words(text_after_prefix, word) for word in setting.settings.forbidden)
    scores = [entry.score for entry in translation.n_best]
    if setting.settings.sampling is None:
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("glossary, n-best, prefixes", 20),
        *(pytest.param(name, 200, marks=pytest.mark.thorough) for name in SETTINGS),
        *(pytest.param(name, 1_000, marks=pytest.mark.load) for name in SETTINGS),
    ],
)
def test_a_translation_depends_on_its_line_and_obeys_its_rules(
    tiny_runs: dict[str, Path], name: str, count: int
) -> None:
    """Alone as in a batch, by text alone as with attention, and the best one as in a list."""
    setting = SETTINGS[name]
    loaded = Translator.load(tiny_runs["luong"], device="cpu", overrides=setting.overrides).loaded
    translator = Translator(replace(loaded, source=PROFILE))
    call = Call(translator, setting, list(generated_lines(count)))
    rows = list(range(count))
    in_one_batch = call.translate(rows)
    for row, translation in enumerate(in_one_batch):
        check_rules(call, row, translation)
    for row in rows[:: max(1, count // 100)]:
        assert list(map(compared, call.translate([row]))) == [compared(in_one_batch[row])]
    order = random.Random(1).sample(rows, count)
    shuffled = call.translate(order)
    assert list(map(compared, shuffled)) == [compared(in_one_batch[row]) for row in order]
    text_only = call.translate(rows, text_only=True)
    assert [entry.text for entry in text_only] == [entry.text for entry in in_one_batch]
    if setting.settings.sampling is None and setting.beam_size != 1:
        by_other_n_best = call.translate(rows, n_best=1 if setting.n_best > 1 else 2)
        assert [entry.text for entry in by_other_n_best] == [entry.text for entry in in_one_batch]
