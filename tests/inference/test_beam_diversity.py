"""Diverse beam search against groups written out with lists."""

from pathlib import Path
from typing import Any

import pytest
from cases.batch_invariance import check_batch_invariance
from cases.oracle import CPU, MAY_FOLLOW, SOURCES, Oracle, ask, best_of, score_of
from cases.random_models import MAKERS, random_sources
from cases.searches import requests_of, row_search, search
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Ids
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import UserError

LINES, _ = toy_pairs(20, seed=8)
Scored = list[tuple[Ids, float]]


def listed_groups(
    model: Oracle, source: Ids, limit: int, width: int, groups: int, diversity: float
) -> Scored:
    """Run the groups in turn, each with its `width` best, until every group is finished."""
    living: list[Scored] = [[([], 0.0)] for _ in range(groups)]
    ended: list[Scored] = [[] for _ in range(groups)]
    for length in range(1, limit + 2):
        tokens_of_step: list[int] = []
        allowed = [*(MAY_FOLLOW if length <= limit else ()), *([EOS_ID] if length > 1 else [])]
        for group in range(groups):
            ranked = [
                ([*ids, i], ask(model, source, [*ids, i]).log_prob)
                for ids, _ in living[group]
                for i in allowed
            ]
            ranked.sort(
                key=lambda candidate: (
                    candidate[1] - diversity * tokens_of_step.count(candidate[0][-1])
                ),
                reverse=True,
            )
            ranked = ranked[: 2 * width]
            ended[group] += [
                (ids, total / length) for ids, total in ranked[:width] if ids[-1] == EOS_ID
            ]
            ended[group] = best_of(ended[group], width)
            unfinished = [candidate for candidate in ranked if candidate[0][-1] != EOS_ID][:width]
            tokens_of_step += [ids[-1] for ids, _ in unfinished]
            living[group] = best_of(unfinished, width)
        if all(
            len(pool) == width and (not alive or pool[-1][1] >= alive[0][1] / length)
            for pool, alive in zip(ended, living, strict=True)
        ):
            break
    return best_of([candidate for pool in ended for candidate in pool], width * groups)


@one_quick(("width", "groups"), [(1, 3), (2, 2), (3, 2), (2, 3)], quick=3)
@pytest.mark.parametrize("diversity", [0.0, 0.8, 5.0])
def test_diverse_beam_search_equals_a_search_written_with_lists(
    width: int, groups: int, diversity: float
) -> None:
    for seed in range(3):
        model: Any = Oracle(seed)
        options = SearchOptions(width * groups, groups=groups, diversity=diversity)
        limits = [2, 7, 6, 5, 1]
        lists = search(model, SOURCES, limits, options, CPU)
        for source, limit, hypotheses in zip(SOURCES, limits, lists, strict=True):
            expected = listed_groups(model, source, limit, width, groups, diversity)
            assert sorted(hypothesis.ids for hypothesis in hypotheses) == sorted(
                ids for ids, _ in expected
            )
            for hypothesis, (_, score) in zip(hypotheses, expected, strict=True):
                assert hypothesis.score == pytest.approx(score, rel=1e-5)
                answer = ask(model, source, hypothesis.ids)
                assert hypothesis.score == pytest.approx(
                    answer.log_prob / len(hypothesis.ids), rel=1e-4
                )
                assert sum(hypothesis.log_probs) == pytest.approx(answer.log_prob, rel=1e-4)


@pytest.mark.parametrize(("width", "groups"), [(1, 3), (2, 2)])
def test_a_hypothesis_of_any_group_is_scored_by_its_own_coverage(width: int, groups: int) -> None:
    for seed in range(3):
        model: Any = Oracle(seed)
        options = SearchOptions(width * groups, groups=groups, diversity=0.8, coverage_penalty=0.4)
        lists = search(model, SOURCES, [2, 7, 6, 5, 4], options, CPU)
        for source, hypotheses in zip(SOURCES, lists, strict=True):
            assert len(hypotheses) > 1
            for hypothesis in hypotheses:
                answer = ask(model, source, hypothesis.ids)
                expected = score_of(answer, len(hypothesis.ids), 1.0, 0.4)
                assert hypothesis.score == pytest.approx(expected, rel=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("batch", [1, 7])
def test_diverse_beam_search_is_batch_invariant(batch: int) -> None:
    model = MAKERS["luong"]()
    sources = random_sources(35, seed=5)
    options = SearchOptions(6, groups=3, diversity=0.7, coverage_penalty=0.2)
    search_rows = row_search(model, requests_of(sources, [8] * 35), options)
    check_batch_invariance(search_rows, 35, batch)


def test_n_best_lists_are_more_diverse(tiny_runs: dict[str, Path]) -> None:
    translator = Translator.load(tiny_runs["luong"], device="cpu")
    plain = translator.translate(LINES, 6, 6)
    settings = SearchSettings(groups=6, diversity=2.0)
    diverse = translator.translate(LINES, 6, 6, settings=settings)
    firsts = [
        sum(len({entry.tokens[0] for entry in translation.n_best}) for translation in translations)
        for translations in (plain, diverse)
    ]
    assert firsts[1] > firsts[0]


def test_groups_are_checked(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    with pytest.raises(UserError, match=r"groups=2: must divide the beam size \(5\)"):
        translator.translate(["ba"], 5, settings=SearchSettings(groups=2))
    with pytest.raises(UserError, match="groups=0: must be at least 1"):
        SearchSettings(groups=0)
    with pytest.raises(UserError, match=r"diversity=-1\.0: must be from 0"):
        SearchSettings(groups=2, diversity=-1.0)
    with pytest.raises(UserError, match="constraints cannot be used with groups"):
        translator.translate(["ba"], 4, constraints=[["mo"]], settings=SearchSettings(groups=2))
    call = ["translate", "-m", str(tiny_run), "-b", "4", "ba"]
    assert main([*call, "--diversity", "1"]) == 2
    assert "--diversity: needs --groups G" in capsys.readouterr().err
    assert main([*call, "--groups", "2", "--diversity", "1", "--n-best", "4"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
