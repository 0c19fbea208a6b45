"""Sampling and minimum Bayes risk: frequencies, seeds, batch invariance, brute force."""

import itertools
import json
import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cases.batch_invariance import check_batch_invariance
from cases.oracle import CPU, Oracle, ask
from cases.random_models import MAKERS, random_sources
from cases.searches import requests_of, row_search, search
from cases.tiers import one_quick
from cases.toy_text import toy_pairs
from sacrebleu.metrics import BLEU, CHRF

from seq2seq.__main__ import main
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, PAD_ID, Ids
from seq2seq.engines.engine import Sampling
from seq2seq.engines.torch.engine import draw, truncated
from seq2seq.inference.nbest import expected_utilities
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import UserError

LINES, _ = toy_pairs(20, seed=8)
SOURCE = [4, 5, 6]


def distribution(model: Oracle, sampling: Sampling, limit: int) -> dict[tuple[int, ...], float]:
    """Return the probability of each hypothesis, written out with lists."""
    probabilities: dict[tuple[int, ...], float] = {}

    def extend(ids: Ids, probability: float) -> None:
        if ids and ids[-1] == EOS_ID:
            probabilities[tuple(ids)] = probability
            return
        allowed = [EOS_ID] if len(ids) == limit else [1, 4, 5, 6, *([EOS_ID] if ids else [])]
        prefix_log_prob = ask(model, SOURCE, ids).log_prob if ids else 0.0
        log_probs = {i: ask(model, SOURCE, [*ids, i]).log_prob - prefix_log_prob for i in allowed}
        weights = {
            i: torch.tensor(v / sampling.temperature).exp().item() for i, v in log_probs.items()
        }
        ranked = sorted(weights, key=lambda i: -weights[i])[: sampling.top_k or None]
        total = sum(weights[i] for i in ranked)
        nucleus = []
        for i in ranked:
            if sum(weights[j] for j in nucleus) < sampling.top_p * total:
                nucleus.append(i)
        for i in nucleus:
            extend([*ids, i], probability * weights[i] / sum(weights[j] for j in nucleus))

    extend([], 1.0)
    return probabilities


@pytest.mark.parametrize("temperature", [1e-3, 1e-300, 5e-324])
def test_a_temperature_near_zero_is_greedy(temperature: float) -> None:
    log_probs = torch.tensor([[-5.0, -1.0, -2.0, -torch.inf]])
    counts = truncated(log_probs, Sampling(1, temperature=temperature))
    assert counts.tolist() == [[0, 1, 0, 0]]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(4000),
        Sampling(4000, temperature=0.5, seed=2),
        Sampling(4000, top_k=2, seed=3),
        Sampling(4000, top_p=0.7, seed=4),
        Sampling(4000, temperature=2.0, top_k=3, top_p=0.8, seed=5),
    ],
)
def test_samples_occur_as_often_as_their_probability(sampling: Sampling) -> None:
    model: Any = Oracle(3)
    options = SearchOptions(1, sampling=sampling, return_attention=False)
    (samples,) = search(model, [SOURCE], [2], options, CPU)
    expected = distribution(model, sampling, 2)
    counts = Counter(tuple(sample.ids) for sample in samples)
    assert sum(expected.values()) == pytest.approx(1)
    assert set(counts) <= set(expected)
    for ids, probability in expected.items():
        deviation = (probability * (1 - probability) / 4000) ** 0.5
        assert abs(counts[ids] / 4000 - probability) < 5 * deviation + 1e-9
    for sample in samples[:20]:
        answer = ask(model, SOURCE, sample.ids)
        assert sample.score == pytest.approx(answer.log_prob / len(sample.ids), rel=1e-4)


def test_impossible_tokens_are_never_drawn() -> None:
    probs = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).double()
    for number, token in ((0.0, 1), (0.4999, 1), (0.5, 3), (1 - 2**-53, 3)):
        assert draw(probs, torch.tensor([number]).double()).tolist() == [token]
    values = torch.tensor([[1.0, 1.0, -torch.inf, 0.0]]).log_softmax(-1)
    assert truncated(values, Sampling(top_k=1)).tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert truncated(values, Sampling(top_p=1e-9)).tolist() == [[1.0, 0.0, 0.0, 0.0]]


@one_quick("batch", [1, 7], quick=1)
def test_sampling_is_batch_invariant(batch: int) -> None:
    model = MAKERS["luong"]()
    sources = random_sources(35, seed=5)
    options = SearchOptions(1, sampling=Sampling(2, 1.5, 20, 0.9))
    search_rows = row_search(model, requests_of(sources, [12] * 35), options)
    lists = check_batch_invariance(search_rows, 35, batch)
    other_seed = replace(options, sampling=Sampling(2, 1.5, 20, 0.9, seed=2))
    assert [
        hypotheses[0].ids for hypotheses in search(model, sources, [12] * 35, other_seed, CPU)
    ] != [hypotheses[0].ids for hypotheses in lists]


@pytest.mark.parametrize("metric", ["chrf", "bleu"])
def test_expected_utility_equals_its_definition(metric: Any) -> None:
    texts = ["the red car is old", "the red car was old", "a red car is old", "the red car is old"]
    weights = [0.5, 1.0, 0.25, 2.0]
    scorer: Any = CHRF() if metric == "chrf" else BLEU(effective_order=True)
    expected = [
        sum(
            w * scorer.sentence_score(candidate_text, [two]).score
            for two, w in zip(texts, weights, strict=True)
        )
        / sum(weights)
        for candidate_text in texts
    ]
    assert expected_utilities(texts, weights, metric) == pytest.approx(expected)


@one_quick("sampling", [None, Sampling(12, 0.7)], quick=1)
def test_the_translation_has_the_highest_expected_utility(
    tiny_run: Path, sampling: Sampling | None
) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    beam = None if sampling else 6
    plain = SearchSettings(sampling=sampling)
    settings = SearchSettings(sampling=sampling, mbr="chrf")
    size = 12 if sampling else 6
    translations = translator.translate(LINES[:8], beam, size, settings=plain)
    best = translator.translate(LINES[:8], beam, settings=settings)
    assert best == translator.translate(LINES[:8], beam, text_only=False, settings=settings)
    for translation, best_translation in zip(translations, best, strict=True):
        texts = [entry.text for entry in translation.n_best]
        assert best_translation.text in texts
        if sampling:
            utilities = expected_utilities(texts, [1.0] * len(texts), "chrf")
            assert utilities[texts.index(best_translation.text)] == max(utilities)


def test_the_command_samples(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    call = ["translate", "-m", str(tiny_run), "-i", str(text), "--device", "cpu", "--sample", "3"]
    options = ["--temperature", "1.3", "--top-k", "30", "--top-p", "0.95", "--seed", "7"]
    assert main([*call, *options, "--n-best", "3", "--json"]) == 0
    translations = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    settings = SearchSettings(sampling=Sampling(3, 1.3, 30, 0.95, 7))
    expected = Translator.load(tiny_run, device="cpu").translate(LINES, n_best=3, settings=settings)
    assert [[entry["text"] for entry in translation["n_best"]] for translation in translations] == [
        [entry.text for entry in translation.n_best] for translation in expected
    ]
    assert main([*call, *options, "--batch-size", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        translation["text"] for translation in translations
    ]
    assert main([*call, "--mbr", "bleu"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(LINES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top-k", "3"], "--top-k: needs --sample N"),
        (["--sample", "2", "-b", "3"], "-b cannot be used with --sample"),
        (["--sample", "2", "--n-best", "3"], "--n-best 3: more than the samples (2)"),
        (["--sample", "2", "--temperature", "0"], "--temperature 0.0: must be a positive number"),
        (["--sample", "2", "--top-p", "1.5"], "--top-p 1.5: must be above 0 and at most 1"),
        (["--mbr", "ter"], "--mbr"),
        (["--mbr", "chrf", "-b", "1"], "--mbr chrf: there is only one translation to choose from"),
        (["--mbr", "bleu", "--sample", "1"], "--mbr bleu: there is only one translation"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(
    tiny_run: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["translate", "-m", str(tiny_run), *options, "ba"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_constraints_and_sampling_exclude_each_other(tiny_run: Path) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    with pytest.raises(UserError, match="constraints cannot be used with"):
        translator.translate(
            ["ba"], constraints=[["mo"]], settings=SearchSettings(sampling=Sampling())
        )
    assert PAD_ID != BOS_ID
    assert list(itertools.islice(translator.stream([]), 1)) == []


def test_samples_spell_characters(tiny_run: Path) -> None:
    """Tokens of bytes are not drawn: they would seldom spell characters."""
    translator = Translator.load(tiny_run, device="cpu")
    settings = SearchSettings(sampling=Sampling(40, seed=2))
    for translation in translator.translate(LINES, n_best=40, settings=settings):
        for entry in translation.n_best:
            assert "\ufffd" not in entry.text
            assert not any(unicodedata.category(c) == "Cc" for c in entry.text)
