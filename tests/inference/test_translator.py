"""Text to text: one output line per input line, for any line, batch and place of the run."""

import gc
import itertools
import random
import re
import shutil
import subprocess
import sys
import unicodedata
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases.tiers import one_quick
from cases.tiny_runs import DECODERS, copy_with_vocabularies, tiny_config
from cases.toy_text import toy_pairs, toy_words

from seq2seq.cli import arguments
from seq2seq.config.schema import DecodingConfig, ModelConfig, VocabularyConfig
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import EOS_ID, UNK_ID, UNKNOWN, Vocabularies
from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference import lines as source_lines
from seq2seq.inference.lines import MAX_ATTENTION_TOKENS
from seq2seq.inference.loaded_model import LoadedModel
from seq2seq.inference.nbest import NBestEntry
from seq2seq.inference.search.interface import Hypothesis
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import Translation, join_parts
from seq2seq.inference.translator import Translator
from seq2seq.model.builder import build_model
from seq2seq.runs.checkpoint import load_model
from seq2seq.runtime.errors import UserError
from seq2seq.text.long_lines import MAX_PARTS, split_line
from seq2seq.text.source_profile import SourceProfile

LINES, _ = toy_pairs(24, seed=21)
LONGEST = 40  # data.max_length of the tiny runs


@pytest.fixture(scope="module", params=DECODERS)
def translator(request: pytest.FixtureRequest, tiny_runs: dict[str, Path]) -> Translator:
    return Translator.load(tiny_runs[request.param], device="cpu")


def load(run: Path) -> Translator:
    return Translator.load(run, device="cpu")


# ------------------------------------------------------------------- one output line per input line


AWKWARD = [
    "👩\u200d🚀 🏳️\u200d🌈",
    "日本語",
    "العربية ᠮᠣᠩ",
    "ba\rka",
    "ba\r",
    "ba\u2028ka\u2029ke\x85ki\vko\fku\x1ck\x1dk\x1ek",
    "ba\x00ka",
    "\u0301\u0302\u0303",
    "▁",
    "▁▁ba▁",
    "<s>",
    "</s>",
    "<pad> <unk>",
    "<0x41>",
    "<0x0A>",
    "\ufeffba\u200b",
    "\U0010ffff",
]
BLANK = ["", " ", "\t \t", "\u00a0\u3000", "\u2028", "\r", "\x85"]


def check_shape(translator: Translator, line: str, translation: Translation) -> None:
    """Check the properties of every translation of a line that is not blank."""
    assert len(translation.text.splitlines()) <= 1
    assert translation.text == translation.text.strip()
    assert (translation.n_best[0].text, translation.n_best[0].score) == (
        translation.text,
        translation.score,
    )
    assert translation.score < 0
    assert translation.src_tokens[-1] == translation.tokens[-1] == "</s>"
    assert translation.src_tokens.count("</s>") == translation.parts
    assert translation.tokens.count("</s>") == translation.parts
    assert spelled(translation.src_tokens) == without_spaces(line)
    weights = translation.attention
    size = len(translation.src_tokens) - translation.parts
    assert (weights is not None) == (translator.engine.attends and size <= MAX_ATTENTION_TOKENS)
    if weights is not None:
        assert weights.shape == (len(translation.tokens), len(translation.src_tokens))
        assert weights.sum(axis=1) == pytest.approx(1, rel=1e-4)


def spelled(tokens: list[str]) -> str:
    """Return the text of the tokens, with bytes decoded, without spaces and EOS."""
    content = b"".join(
        bytes([int(byte[1], 16)]) if (byte := re.fullmatch("<0x(..)>", token)) else token.encode()
        for token in tokens
        if token != "</s>"
    )
    return without_spaces(content.decode())


def without_spaces(text: str) -> str:
    return unicodedata.normalize("NFC", "".join(text.replace("▁", " ").split()))


@pytest.mark.parametrize("beam_size", [1, 3])
def test_awkward_lines_have_one_translation_each(translator: Translator, beam_size: int) -> None:
    for line, translation in zip(
        AWKWARD, translator.translate(AWKWARD, beam_size=beam_size), strict=True
    ):
        if line == "▁":  # the marker of a space in vocabularies
            assert translation == Translation(n_best=[NBestEntry("", 0.0)])
        else:
            check_shape(translator, line, translation)


def test_blank_lines_stay_blank_and_lines_stay_in_order(translator: Translator) -> None:
    lines = [line for pair in zip(LINES, BLANK * 4, strict=False) for line in pair]
    translations = translator.translate(lines)
    assert len(translations) == len(lines)
    assert translations[::2] == translator.translate(LINES)
    for translation in translations[1::2]:
        assert translation == Translation(n_best=[NBestEntry("", 0.0)])
    assert translator.translate(BLANK) == translations[1 : 2 * len(BLANK) : 2]
    assert translator.translate([]) == []


def test_translations_differ_between_lines(translator: Translator) -> None:
    """Otherwise the tests of order and batches would prove little."""
    assert len({translation.text for translation in translator.translate(LINES)}) > 5


def test_translations_do_not_depend_on_the_batch(translator: Translator) -> None:
    lines = [*LINES[:12], *AWKWARD, *BLANK, "ba ka. " * 20]
    everything = translator.translate(lines, n_best=2)
    generator = random.Random(1)
    for size in (1, 9, 36):
        rows = generator.choices(range(len(lines)), k=size)
        translations = translator.translate([lines[i] for i in rows], n_best=2)
        assert translations == [everything[i] for i in rows]


def test_text_is_free_of_line_breaks(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any output of a model: bytes can encode a line break."""
    vocabulary = translator.vocabularies.tgt
    ids = {token: i for i, token in enumerate(vocabulary.tokens(range(len(vocabulary))))}
    breaks = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
    emitted = [ids[f"<0x{byte:02X}>"] for byte in f"a{breaks}b".encode()]

    def always(*_: object) -> list[list[Hypothesis]]:
        return [[Hypothesis([*emitted, EOS_ID], -1.0, None)]]

    monkeypatch.setattr("seq2seq.inference.part_search.search", always)
    (translation,) = translator.translate(["ba"], beam_size=1)
    assert translation.text == f"a{' ' * len(breaks)}b"
    assert [(entry.text, entry.score) for entry in translation.n_best] == [(translation.text, -1.0)]


# ----------------------------------------------------------------------------------- lines too long


TOO_LONG = {
    "many words": "ba ka velo " * 150,
    "sentences": "ba ka velo. zu ti! ke? " * 20,
    "no spaces": "ba" * 350,
    "no spaces, unseen": "日本語" * 70,
    "joined emoji": "👩\u200d🚀" * 30,
    "letters in two parts": "e\u0301" * 200,
    "marks alone": "\u0301" * 150,
    "full stops": "." * 200,
    "one word between": f"ba {'ka' * 100} ke. {LINES[0]}",
}


@pytest.mark.parametrize("line", TOO_LONG.values(), ids=list(TOO_LONG))
def test_a_line_too_long_is_cut_into_parts_that_fit(translator: Translator, line: str) -> None:
    first, translation, last = translator.translate([LINES[0], line, LINES[1]])
    assert [first, last] == translator.translate(LINES[:2])
    assert translation.parts > 1
    check_shape(translator, line, translation)
    blocks = list(zip(ends(translation.tokens), ends(translation.src_tokens), strict=True))
    tgt_start = src_start = 0
    for tgt_end, src_end in blocks:
        assert 1 < src_end - src_start <= LONGEST + 1
        for row in (translation.attention if translation.attention is not None else [])[
            tgt_start:tgt_end
        ]:
            assert sum(row[src_start:src_end]) == pytest.approx(1, rel=1e-4)
        tgt_start = tgt_end
        src_start = src_end


def ends(tokens: list[str]) -> list[int]:
    return [n for n, token in enumerate(tokens, start=1) if token == "</s>"]


def test_a_line_is_cut_only_where_it_is_too_long(translator: Translator) -> None:
    src = translator.vocabularies.src
    word = next(word for word in toy_words(90) if len(src.encode([word])[0]) == 1)
    just = " ".join([word] * LONGEST)
    assert len(src.encode([just])[0]) == LONGEST
    assert translator.translate([just])[0].parts == 1
    assert translator.translate([f"{just} {word}"])[0].parts == 2


def test_parts_are_complete_sentences_where_these_fit(translator: Translator) -> None:
    sentences = [*LINES[:6], "ba ka ve!", "zu ti?"]
    (translation,) = translator.translate([" ".join(sentences)])
    parts = translator.translate(sentences)
    assert translation.parts == len(sentences)
    assert translation.text.split() == [word for part in parts for word in part.text.split()]
    assert translation.src_tokens == [token for part in parts for token in part.src_tokens]
    assert translation.tokens == [token for part in parts for token in part.tokens]
    count = sum(len(part.tokens) for part in parts)
    total = sum(part.score * len(part.tokens) for part in parts)
    assert translation.score == pytest.approx(total / count)


def test_every_part_of_a_long_line_reaches_the_text(translator: Translator) -> None:
    line = " ".join(LINES[:10]).replace(".", "")
    (translation,) = translator.translate([line])
    parts: list[list[str]] = [[]]
    for token in translation.src_tokens:
        if token == "</s>":
            parts.append([])
        else:
            parts[-1].append(token)
    texts = ["".join(tokens).replace("▁", " ").strip() for tokens in parts[:-1]]
    assert " ".join(texts) == line
    translated_parts = translator.translate(texts)
    assert translation.text.split() == [
        word for part in translated_parts for word in part.text.split()
    ]


@pytest.mark.thorough
def test_a_very_long_line_takes_little_time_and_memory(tiny_runs: dict[str, Path]) -> None:
    translator = load(tiny_runs["none"])
    line = "ba ka velo zu " * 1250
    (translation,) = translator.translate([line], beam_size=1)
    assert translation.parts > 100
    assert not translation.left_out
    check_shape(translator, line, translation)


def test_only_the_start_of_an_endless_word_is_translated(translator: Translator) -> None:
    """A megabyte of it would take minutes, and no language has such words."""
    word = "xq" * 500_000
    first, translation, last = translator.translate(
        [LINES[0], f"{LINES[0]} {word} {LINES[1]}", LINES[1]], beam_size=1
    )
    assert (translation.parts, translation.left_out) == (MAX_PARTS + 2, True)
    assert translation.text.startswith(f"{first.text} ")
    assert translation.text.endswith(f" {last.text}")
    src = translator.vocabularies.src
    parts, left_out = split_line(word, src, LONGEST)
    assert left_out
    assert len(parts) == MAX_PARTS
    assert word.startswith("".join(parts))
    assert max(len(ids) for ids in src.encode(parts)) == LONGEST
    just = "".join(parts)
    while len(src.encode([just])[0]) > MAX_PARTS * LONGEST:
        just = just[:-1]
    parts, left_out = split_line(f"{just} {just}", src, LONGEST)  # long, but not endless
    assert not left_out
    assert "".join(parts).replace(" ", "") == just + just


def test_a_word_with_a_no_break_space_is_not_cut_there(translator: Translator) -> None:
    word = "ka\u00a0ka"
    parts, _ = split_line(f"{LINES[0]} {word} " * 3, translator.vocabularies.src, LONGEST)
    assert len(parts) > 1
    assert " ".join(parts).split(" ").count(word) == 3


def test_parts_of_chinese_are_joined_without_a_space() -> None:
    texts = ["\u597d\u3002", "", "\u4f60\u3002\u300d", "ja.", "nein."]
    parts = [Translation([NBestEntry(text, 0.0, ["y"])], ["x"]) for text in texts]
    assert join_parts(parts, 1).text == "\u597d\u3002\u4f60\u3002\u300dja. nein."


def test_full_stops_of_scripts_without_spaces_end_sentences(
    tiny_vocabularies: Vocabularies,
) -> None:
    line = "日本語。「日本。」語。。日本語。日本"
    parts, left_out = split_line(line, tiny_vocabularies.src, 40)
    assert parts == ["日本語。", "「日本。」語。。", "日本語。", "日本"]
    assert not left_out
    assert split_line("3.5 tons. ba", tiny_vocabularies.src, 40)[0] == ["3.5 tons.", "ba"]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_sentences_are_translated_one_by_one_where_the_training_text_has_one_per_line(
    tiny_run: Path, beam_size: int
) -> None:
    translator = load(tiny_run)
    first = "Zu ba."
    second = "Ka velo?"
    in_one_part = translator.translate([f"{first} {second}"], beam_size)[0]
    assert (in_one_part.parts, in_one_part.notes) == (1, [])
    translator.loaded.source = SourceProfile(sentences=1)
    parts = translator.translate([first, second], beam_size)
    line, single = translator.translate([f"{first} {second}", first], beam_size)
    assert line.text == " ".join(part.text for part in parts)
    assert line.tokens == [token for part in parts for token in part.tokens]
    assert line.parts == 2
    assert line.notes == ["more sentences than in lines of the training text; cut at sentence ends"]
    assert (single.text, single.notes) == (parts[0].text, [])
    check_shape(translator, f"{first} {second}", line)


def test_a_long_sentence_among_several_is_split_again(translator: Translator) -> None:
    translator = Translator(replace(translator.loaded, source=SourceProfile(sentences=1)))
    long = "Velo" + " velo" * 3 * LONGEST
    line, first = translator.translate([f"Zu. {long}", "Zu."], 1)
    assert line.text.startswith(f"{first.text} ")
    assert line.parts > 3
    assert len(line.notes) == 2


def test_a_line_with_a_prefix_is_translated_as_one(translator: Translator) -> None:
    translator = Translator(replace(translator.loaded, source=SourceProfile(sentences=1)))
    line = translator.translate(["Zu ba. Ka."], 1, prefixes=["ba"])[0]
    assert line.parts == 1


# ------------------------------------------------------------------------------------------- n-best


@pytest.mark.parametrize("n_best", [1, 2, 3])
def test_every_line_has_n_best_entries(translator: Translator, n_best: int) -> None:
    lines = [*LINES[:9], *AWKWARD[:5], "", TOO_LONG["sentences"]]
    for translation in translator.translate(lines, n_best=n_best):
        assert len(translation.n_best) == n_best
        scores = [candidate.score for candidate in translation.n_best]
        assert scores == sorted(scores, reverse=True)
        assert all(
            len(text.splitlines()) <= 1 for text in (entry.text for entry in translation.n_best)
        )
        assert (translation.n_best[0].text, translation.n_best[0].score) == (
            translation.text,
            translation.score,
        )


def test_the_best_entry_does_not_depend_on_n_best(translator: Translator) -> None:
    for best, three in zip(
        translator.translate(LINES), translator.translate(LINES, n_best=3), strict=True
    ):
        assert replace(three, n_best=three.n_best[:1]) == best


def test_n_best_beyond_the_beam_is_refused(translator: Translator) -> None:
    assert len(translator.translate(["ba"], beam_size=7, n_best=7)[0].n_best) == 7
    for beam_size, n_best in ((None, 4), (2, 3), (1, 2)):
        with pytest.raises(
            UserError, match=rf"{n_best}: larger than the beam \({beam_size or 3}\)"
        ):
            translator.translate(LINES, beam_size=beam_size, n_best=n_best)


def test_missing_n_best_entries_repeat_the_last(tiny_runs: dict[str, Path]) -> None:
    translator = load(tiny_runs["luong"])
    translator.loaded.limit = LengthLimit(0.0, 1)  # one token: as many hypotheses as tokens
    size = len(translator.vocabularies.tgt)
    (translation,) = translator.translate(["ba"], beam_size=size, n_best=size)
    assert len(translation.n_best) == size
    assert translation.n_best[-1] == translation.n_best[-2]


# ------------------------------------------------------------------------------ limits and settings


def test_translations_keep_to_the_limit(tiny_runs: dict[str, Path]) -> None:
    translator = load(tiny_runs["bahdanau"])
    for translation in translator.translate(LINES):
        assert len(translation.tokens) <= translator.limit(len(translation.src_tokens) - 1) + 1
    translator.loaded.decoding = replace(translator.decoding, max_length=2)
    lengths = {len(translation.tokens) for translation in translator.translate(LINES)}
    assert lengths <= {2, 3}
    assert 3 in lengths


def test_the_beam_size_defaults_to_that_of_the_config(tiny_runs: dict[str, Path]) -> None:
    translator = load(tiny_runs["luong"])
    assert translator.translate(LINES) == translator.translate(LINES, beam_size=3)
    assert translator.translate(LINES) != translator.translate(LINES, beam_size=1)


def test_only_models_with_attention_have_weights(tiny_runs: dict[str, Path]) -> None:
    attends = {decoder: load(run).engine.attends for decoder, run in tiny_runs.items()}
    assert attends == {"bahdanau": True, "luong": True, "none": False}


@pytest.mark.parametrize("beam_size", [1, 3])
def test_no_bigram_occurs_twice_if_the_config_forbids_it(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, beam_size: int
) -> None:
    lines = [*LINES, TOO_LONG["sentences"]]
    unconstrained = translator.translate(lines, beam_size)
    ruled = replace(translator.decoding, no_repeat_ngram=2)
    monkeypatch.setattr(translator.loaded, "decoding", ruled)
    translations = translator.translate(lines, beam_size)
    assert [translation.text for translation in translations] != [
        translation.text for translation in unconstrained
    ]
    for translation in translations:
        for part in " ".join(translation.tokens).split("</s>"):
            pairs = list(itertools.pairwise(part.split()))
            assert len(set(pairs)) == len(pairs)


# ---------------------------------------------------------------------------------------- prefixes


PREFIXES = ["Ba k", "zu ti ", "日本", "e\u0301x", "  mo\u2028ta▁k", "", "1 " * 60, "ve."]


@one_quick("beam_size", [1, 3])
def test_translations_begin_with_their_prefixes(translator: Translator, beam_size: int) -> None:
    lines = [*LINES[: len(PREFIXES) - 2], TOO_LONG["sentences"], TOO_LONG["no spaces, unseen"]]
    n_best = min(2, beam_size)
    translations = translator.translate(lines, beam_size, n_best, prefixes=PREFIXES)
    for line, prefix, translation in zip(lines, PREFIXES, translations, strict=True):
        check_shape(translator, line, translation)
        start = without_breaks(prefix)
        for text in (entry.text for entry in translation.n_best):
            assert text.startswith(start.strip())
            assert f"{text} ".startswith(start)
    assert translations[5] == translator.translate([lines[5]], beam_size, n_best)[0]
    for n, translation in enumerate(translations):  # in any batch
        assert [translation] == translator.translate(
            [lines[n]], beam_size, n_best, prefixes=[PREFIXES[n]]
        )


def without_breaks(prefix: str) -> str:
    return unicodedata.normalize("NFC", prefix).replace("\u2028", " ").replace("▁", " ").lstrip()


def test_a_prefix_of_a_long_line_applies_to_its_first_part(translator: Translator) -> None:
    sentences = LINES[:7]
    (translation,) = translator.translate([" ".join(sentences)], prefixes=["Zu "])
    parts = translator.translate(sentences, prefixes=["Zu ", *[""] * 6])
    assert translation.parts == len(sentences)
    assert translation.text.split() == [word for part in parts for word in part.text.split()]


def test_blank_lines_stay_blank_with_any_prefix(translator: Translator) -> None:
    translations = translator.translate(BLANK, prefixes=["ba"] * len(BLANK))
    assert translations == translator.translate(BLANK)


def test_prefixes_that_are_not_one_per_line_are_refused(translator: Translator) -> None:
    with pytest.raises(UserError, match=r"^2 prefixes for 3 lines; "):
        translator.translate(LINES[:3], prefixes=["ba", ""])
    with pytest.raises(UserError, match=r"^prefix 2: too long"):
        translator.translate(LINES[:2], prefixes=["ba", "x" * 3000])


# ----------------------------------------------------------------------------------- unknown words


@pytest.fixture(scope="module", params=["bahdanau", "luong", "ensemble"])
def of_words(request: pytest.FixtureRequest) -> Translator:
    """Return a translator with a small vocabulary of words; its weights are random and large."""
    src, tgt = toy_pairs(300, seed=1)
    config = VocabularyConfig(type="word", size=70, joint=False)
    vocabularies = train_vocabularies(config, src, tgt)
    models = []
    for seed, decoder in enumerate(DECODERS):
        sizes = {"decoder": decoder, "embedding_size": 12, "hidden_size": 20, "dropout": 0}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = build_model(ModelConfig.model_validate(sizes), 70, 70, joint=False).eval()
        with torch.no_grad():
            for weight in network.parameters():
                weight.mul_(4)
            network.projection.bias[UNK_ID] += 14
            network.projection.bias[EOS_ID] += 4
        models.append(network)
    model: Any = Ensemble(models)
    if request.param in DECODERS:
        model = models[DECODERS.index(request.param)]
    decoding = DecodingConfig(beam_size=3, replace_unknown=True, no_repeat_ngram=2)
    limit = LengthLimit(1.0, 4)
    cpu = torch.device("cpu")
    engine = TorchEngine(model, cpu)
    return Translator(LoadedModel(engine, vocabularies, limit, decoding, 9, cpu))


WORDY = [
    "xq ba\u200dka  ve\u0301 zu",
    "日本 ▁ti xq xq",
    *LINES[:9],
    " ".join(LINES[:4]),
    "<unk> a\rb",
]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_unknown_words_become_the_source_words_with_most_attention(
    of_words: Translator, beam_size: int
) -> None:
    translations = of_words.translate(WORDY, beam_size)
    assert max(translation.parts for translation in translations) > 1
    seen: set[str] = set()
    for line, translation in zip(WORDY, translations, strict=True):
        words = unicodedata.normalize("NFC", line).replace("▁", " ").split(" ")
        words = [word for word in words if word]
        columns: list[str | None] = []
        left = iter(words)
        for token in translation.src_tokens:
            columns.append(None if token == "</s>" else next(left))
        assert next(left, None) is None
        assert translation.attention is not None
        expected = []
        for token, row in zip(translation.tokens, translation.attention, strict=True):
            ranked = [(weight, -n) for n, weight in enumerate(row) if columns[n] is not None]
            if token == "<unk>":
                expected.append(columns[-max(ranked)[1]] or "")
            elif token != "</s>":
                expected.append(token.removeprefix("▁"))
        assert translation.text == " ".join(expected).replace("\r", " ")
        assert translation.n_best[0].text == translation.text
        seen.update(translation.tokens)
    assert "<unk>" in seen
    text_only = of_words.translate(WORDY, beam_size, text_only=True)
    assert [translation.text for translation in text_only] == [
        translation.text for translation in translations
    ]
    assert all(translation.attention is None for translation in text_only)
    assert len(seen) > 4


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("length", [1, 2])
def test_source_words_that_replace_unknown_ones_are_not_forbidden(
    of_words: Translator, beam_size: int, length: int
) -> None:
    def phrases(translation: Translation) -> set[str]:
        words = translation.text.split() if translation.parts == 1 else []
        return {" ".join(words[n : n + length]) for n in range(len(words) - length + 1)}

    unconstrained = of_words.translate(WORDY, beam_size)
    source_words = {word for line in WORDY for word in line.split() if word.isalpha()}
    forbidden = {
        phrase
        for translation in unconstrained
        for phrase in phrases(translation)
        if source_words & set(phrase.split()) and all(word.isalpha() for word in phrase.split())
    }
    assert forbidden
    settings = SearchSettings(forbidden=tuple(sorted(forbidden)))
    translations = of_words.translate(WORDY, beam_size, settings=settings)
    assert any(UNKNOWN in translation.text for translation in translations)
    for translation in translations:
        assert not phrases(translation) & forbidden


def test_a_source_in_place_of_a_blank_translation_is_not_forbidden(
    of_words: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    blank = [[Hypothesis([EOS_ID], -1.0, np.ones((1, 3)) / 3)]]
    monkeypatch.setattr("seq2seq.inference.part_search.search", lambda *_: blank)
    assert of_words.translate("xa xb", 1).text == "xa xb"
    for word, text in (("xb", UNKNOWN), ("xc", "xa xb")):
        settings = SearchSettings(forbidden=(word,))
        assert of_words.translate("xa xb", 1, settings=settings).text == text


def test_an_unknown_word_that_is_not_replaced_is_a_mark_between_spaces(
    of_words: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_replacement = replace(of_words.decoding, replace_unknown=False)
    with_words = of_words.translate(WORDY, 1)
    monkeypatch.setattr(of_words.loaded, "decoding", without_replacement)
    for translation, with_word in zip(of_words.translate(WORDY, 1), with_words, strict=True):
        words = [token.removeprefix("▁") for token in translation.tokens if token != "</s>"]
        assert translation.text == " ".join(words).replace("<unk>", UNKNOWN)
        (mine,), (theirs,) = translation.n_best, with_word.n_best
        assert " ".join(mine.part_texts) in ("", mine.text)  # of a line in parts alone
        assert replace(mine, text="", part_texts=()) == replace(theirs, text="", part_texts=())
        assert replace(translation, n_best=[]) == replace(with_word, n_best=[])


def test_every_n_best_entry_uses_its_own_attention(
    of_words: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = np.array([[0.1, 0.2, 0.0, 0.7], [0.5, 0.3, 0.2, 0.0], [0.0, 0.0, 1.0, 0.0]])
    hypotheses = [
        Hypothesis([UNK_ID, UNK_ID, EOS_ID], -1.0, attention),
        Hypothesis([UNK_ID, EOS_ID], -2.0, attention[1:]),
    ]
    monkeypatch.setattr("seq2seq.inference.part_search.search", lambda *_: [hypotheses])
    (translation,) = of_words.translate(["xa xb xc"], 2, 2)
    assert [(entry.text, entry.score) for entry in translation.n_best] == [
        ("xb xa", -1.0),
        ("xa", -2.0),
    ]
    settings = SearchSettings(forbidden=("xb",))
    (translation,) = of_words.translate(["xa xb xc"], 2, 2, settings=settings)
    assert [entry.text for entry in translation.n_best] == [f"{UNKNOWN} xa", "xa"]
    blind = [hypothesis._replace(attention_weights=None) for hypothesis in hypotheses]
    monkeypatch.setattr("seq2seq.inference.part_search.search", lambda *_: [blind])
    assert of_words.translate(["xa xb xc"], 2, 1)[0].text == f"{UNKNOWN} {UNKNOWN}"


def test_unknown_words_of_a_prefix_are_printed_as_given(of_words: Translator) -> None:
    known_word = of_words.vocabularies.tgt.tokens([9])[0].removeprefix("▁")
    for prefix in ("Xu", f"Xu {known_word}", f"{known_word} Xu Xa ", f"{known_word[:1]}"):
        for translation in of_words.translate(WORDY[:4], prefixes=[prefix] * 4):
            assert f"{translation.text} ".startswith(prefix)
    (unconstrained,), (forced,) = (
        of_words.translate(["xa xb"], 1),
        of_words.translate(["xa xb"], 1, prefixes=["Xu "]),
    )
    assert forced.tokens[0] == "<unk>"
    assert unconstrained.src_tokens == forced.src_tokens


def test_subwords_leave_nothing_to_replace(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    translations = translator.translate(LINES)
    asked = replace(translator.decoding, replace_unknown=True)
    monkeypatch.setattr(translator.loaded, "decoding", asked)
    assert translator.translate(LINES) == translations


# --------------------------------------------------------------------------- run folders, ensembles


@pytest.mark.thorough
def test_a_copied_run_translates_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_run: Path
) -> None:
    expected = load(tiny_run).translate(LINES, n_best=3)
    copy_of_run = tmp_path / "elsewhere" / "a copy"
    shutil.copytree(tiny_run, copy_of_run)
    monkeypatch.chdir(copy_of_run.parent)
    assert load(Path("a copy")).translate(LINES, n_best=3) == expected
    assert Translator.load("a copy", device="cpu").translate(LINES, n_best=3) == expected


def test_an_ensemble_of_one_model_twice_is_that_model(tiny_run: Path) -> None:
    single_translations = load(tiny_run).translate(LINES)
    for single, twice in zip(
        single_translations,
        Translator.load(tiny_run, tiny_run, device="cpu").translate(LINES),
        strict=True,
    ):
        assert twice.text == single.text
        assert twice.score == pytest.approx(single.score, rel=1e-4)


def test_an_ensemble_of_different_decoders_translates(tiny_runs: dict[str, Path]) -> None:
    ensemble = Translator.load(*tiny_runs.values(), device="cpu")
    assert ensemble.engine.attends
    translations = ensemble.translate(LINES, beam_size=2)
    for line, translation in zip(LINES, translations, strict=True):
        check_shape(ensemble, line, translation)
    for run in tiny_runs.values():
        single_translations = load(run).translate(LINES, beam_size=1)
        assert [translation.text for translation in translations] != [
            translation.text for translation in single_translations
        ]


def test_runs_of_different_vocabularies_are_refused_together(
    tmp_path: Path, tiny_runs: dict[str, Path], tiny_vocabularies: Vocabularies
) -> None:
    other_run = tmp_path / "other"
    config = tiny_config(other_run, "luong")
    swapped = train_vocabularies(config.vocabulary, *reversed(toy_pairs(300, seed=2)))
    assert len(swapped.src) == len(tiny_vocabularies.src)
    copy_with_vocabularies(tiny_runs["luong"], other_run, swapped)
    assert load(other_run).translate(["ba"])  # works alone
    with pytest.raises(UserError) as caught:
        Translator.load(tiny_runs["luong"], other_run, device="cpu")
    assert str(caught.value).startswith(f"{other_run}: ")
    assert "\n" not in str(caught.value)


def test_a_device_that_is_not_there_is_refused(tiny_runs: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=r"^device='cuda:99': "):
        Translator.load(tiny_runs["none"], device="cuda:99")


@pytest.mark.thorough
def test_starting_up_does_not_load_torchs_compiler(tiny_runs: dict[str, Path]) -> None:
    program = (
        "import sys; from seq2seq.inference.translator import Translator; "
        f"Translator.load({str(tiny_runs['luong'])!r}, device='cpu').translate(['ba'], 2); "
        "print([name for name in sys.modules if name in ('torch._dynamo', 'sympy')])"
    )
    command = [sys.executable, "-c", program]
    assert subprocess.run(command, capture_output=True, check=True).stdout.strip() == b"[]"


def test_a_tied_embedding_is_loaded_once(tiny_runs: dict[str, Path]) -> None:
    model = load_model(tiny_runs["luong"], torch.device("cpu")).model
    assert model.projection.weight is model.tgt_embedding.weight
    assert not model.projection.weight.is_meta


@pytest.mark.parametrize("loads", [True, False])
def test_garbage_collection_is_enabled_after_loading(
    tiny_runs: dict[str, Path], tmp_path: Path, loads: bool
) -> None:
    runs = [str(tiny_runs["luong"] if loads else tmp_path)]
    frozen = gc.get_freeze_count()
    with nullcontext() if loads else pytest.raises(UserError):
        model_arguments = arguments.ModelArguments(
            "cpu", int8=False, float16=False, decoding=[], scores=[]
        )
        arguments.load_translator(runs, model_arguments)
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen
    gc.unfreeze()


@pytest.mark.parametrize("beam_size", [1, 3])
def test_byte_fallback_prints_no_unknown_token(tiny_runs: dict[str, Path], beam_size: int) -> None:
    loaded = Translator.load(tiny_runs["luong"], device="cpu").loaded
    assert loaded.vocabularies.tgt.has_byte_fallback
    model = load_model(tiny_runs["luong"], torch.device("cpu")).model.eval()
    with torch.no_grad():
        model.projection.bias[UNK_ID] += 50
    translator = Translator(replace(loaded, engine=TorchEngine(model, torch.device("cpu"))))
    translations = translator.translate(LINES[:9], beam_size)
    assert not any(UNKNOWN in translation.text for translation in translations)
    assert any(translation.text for translation in translations)


def test_slices_cover_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_lines, "MAX_SQUARED_LENGTHS", 10)
    for sizes in ([], [10], [11, 1], [3, 11, 3], [4] * 5):
        rows = range(len(sizes))
        assert [n for part in source_lines.bounded_slices(sizes) for n in rows[part]] == [*rows]


def test_several_searches_count_every_line_once(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    counts = list[int]()
    lines, _ = toy_pairs(12, seed=3)
    expected = translator.translate(lines, beam_size=2)
    monkeypatch.setattr(source_lines, "MAX_SQUARED_LENGTHS", 300)
    translations = translator.translate(lines, beam_size=2, on_translated=counts.append)
    assert [translation.text for translation in translations] == [
        translation.text for translation in expected
    ]
    assert counts == [1] * len(lines)
