"""N-best lists: different texts, best first, with the tokens and log-probabilities of each."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases.oracle import CPU, SOURCES, Oracle, ask
from cases.random_models import MAKERS, random_sources
from cases.searches import search
from cases.tiers import one_quick
from cases.toy_text import toy_pairs
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.__main__ import main
from seq2seq.inference import passes
from seq2seq.inference.nbest import Candidate, below, extend, merged
from seq2seq.inference.search.interface import Hypothesis, Request, SearchOptions
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator

LINES, _ = toy_pairs(24, seed=8)


def candidate(text: str, score: float) -> Candidate:
    return Candidate(text, Hypothesis([4, 3], score, None))


def test_the_best_hypothesis_of_each_text_is_kept() -> None:
    entries = merged(
        [candidate("a", -1), candidate("b", -2), candidate("a", -3), candidate("c", -4)]
    )
    assert [(entry.text, entry.hypothesis.score) for entry in entries] == [
        ("a", -1),
        ("b", -2),
        ("c", -4),
    ]


def test_a_wider_beam_extends_the_list_below_its_first_entry() -> None:
    candidates = [candidate("a", -2.0), candidate("b", -3.0)]
    better = candidate("z", -1.0)
    below = candidate("b", -2.5)
    extend(candidates, [better, candidate("a", -2.0), below, candidate("c", -2.75)])
    assert [(entry.text, entry.hypothesis.score) for entry in candidates] == [
        ("a", -2.0),
        ("b", -2.5),
        ("c", -2.75),
    ]


CANDIDATES = st.lists(
    st.builds(candidate, st.sampled_from("abcdef"), st.integers(-5, -1)), min_size=1, max_size=8
)


@given(beams=st.lists(CANDIDATES, min_size=2, max_size=4))
def test_a_list_stays_merged_and_below_its_first_entry_as_it_is_extended(
    beams: list[list[Candidate]],
) -> None:
    """So a pass that has extended it need neither merge it again nor look for its best entry."""
    first = max(beams[0], key=lambda entry: entry.hypothesis.score)
    candidates = merged([first, *below(first, beams[0])])
    for wider in beams[1:]:
        extend(candidates, wider)
        scores = [entry.hypothesis.score for entry in candidates]
        assert candidates[0] is first
        assert merged(candidates) == [first, *below(first, candidates)] == candidates
        assert scores[1:] == sorted(scores[1:], reverse=True)


@pytest.mark.parametrize(("beam_size", "sizes"), [(5, [10, 20, 40]), (200, [400]), (300, [])])
def test_widening_is_bounded(
    tiny_runs: dict[str, Path], beam_size: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that finds a single text is repeated with wider beams."""
    translator = Translator.load(tiny_runs["luong"], device="cpu")
    beam_sizes = []

    def search(_: Any, requests: Sequence[Request], options: SearchOptions, *__: Any) -> Any:
        beam_sizes.append(options.beam_size)
        return [[Hypothesis([5, 3], -1.0, None, (-0.5, -0.5))] for _ in requests]

    monkeypatch.setattr("seq2seq.inference.part_search.search", search)
    translation = translator.translate("ba", beam_size, n_best=2)
    assert beam_sizes == [beam_size, *sizes]
    assert len({entry.text for entry in translation.n_best}) == 1


def test_five_entries_are_five_different_texts(
    tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte fallback gives these models many segmentations of one text."""
    translator = Translator.load(tiny_run, device="cpu")
    translations = translator.translate(LINES, beam_size=5, n_best=5)
    monkeypatch.setattr(passes, "MAX_BEAM", 1)
    narrow = translator.translate(LINES, beam_size=5, n_best=5)
    assert (
        any(len({entry.text for entry in translation.n_best}) < 5 for translation in narrow)
        or narrow == translations
    )
    for translation, narrow_translation in zip(translations, narrow, strict=True):
        assert Counter(entry.text for entry in translation.n_best).most_common(1)[0][1] == 1
        scores = [entry.score for entry in translation.n_best]
        assert scores == sorted(scores, reverse=True)
        assert translation.n_best[0] == narrow_translation.n_best[0]
        for entry in translation.n_best:
            assert entry.tokens[-1] == "</s>"
            assert len(entry.tokens) == len(entry.log_probs)
            assert (entry.attention is not None) == translator.engine.attends
            if entry.attention is not None:
                assert entry.attention.shape == (len(entry.tokens), len(translation.src_tokens))
            assert entry.score == pytest.approx(sum(entry.log_probs) / len(entry.tokens), rel=1e-4)
        assert (translation.tokens, translation.log_probs) == (
            translation.n_best[0].tokens,
            translation.n_best[0].log_probs,
        )


@one_quick("batch", [1, 7])
def test_n_best_lists_are_batch_invariant(tiny_run: Path, batch: int) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    in_one_batch = translator.translate(LINES, beam_size=4, n_best=4)
    parts = [
        translation
        for start in range(0, len(LINES), batch)
        for translation in translator.translate(LINES[start : start + batch], beam_size=4, n_best=4)
    ]
    assert parts == in_one_batch


@pytest.mark.parametrize("size", [1, 4])
def test_log_probs_equal_those_of_the_model(size: int) -> None:
    model: Any = Oracle(5)
    options = SearchOptions(size, 0.7)
    for source, hypotheses in zip(
        SOURCES, search(model, SOURCES, [4, 5, 6, 7, 8], options, CPU), strict=True
    ):
        for hypothesis in hypotheses:
            for length, value in enumerate(hypothesis.log_probs, start=1):
                shorter_log_prob = (
                    ask(model, source, hypothesis.ids[: length - 1]).log_prob if length > 1 else 0.0
                )
                log_prob = ask(model, source, hypothesis.ids[:length]).log_prob
                assert value == pytest.approx(log_prob - shorter_log_prob, rel=1e-3, abs=1e-4)
            assert len(hypothesis.log_probs) == len(hypothesis.ids)
    quick = replace(options, return_scores=False)
    for hypotheses in search(model, SOURCES, [4] * 5, quick, CPU):
        assert all(hypothesis.log_probs == () for hypothesis in hypotheses)


def test_log_probs_survive_the_shrinking_of_tiles() -> None:
    model = MAKERS["luong"]()
    sources = random_sources(90, seed=7)
    limits = [1 + n % 13 for n in range(90)]
    for hypotheses in search(model, sources, limits, SearchOptions(4, 1.0), CPU):
        for hypothesis in hypotheses:
            total = sum(hypothesis.log_probs)
            assert hypothesis.score == pytest.approx(total / len(hypothesis.ids), rel=1e-4)


def test_json_has_the_tokens_of_every_entry(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text"
    text.write_text("ba do ||| ke\n", encoding="utf-8")
    call = ["translate", "-m", str(tiny_runs["luong"]), "-i", str(text), "--json"]
    assert main([*call, "--n-best", "3"]) == 0
    translation = json.loads(capsys.readouterr().out)
    assert len({entry["text"] for entry in translation["n_best"]}) == 3
    for entry in translation["n_best"]:
        assert list(entry) == ["text", "score", "tokens", "log_probs"]
        assert len(entry["tokens"]) == len(entry["log_probs"])
    assert translation["n_best"][0]["tokens"] == translation["tgt_tokens"]


# ------------------------------------------------------------------ long lines take linear memory


def test_a_long_line_has_blocks_and_a_matrix_on_demand(tiny_runs: dict[str, Path]) -> None:
    translator = Translator.load(tiny_runs["luong"], device="cpu")
    (translation,) = translator.translate([" ".join(LINES[:9])])
    blocks = translation.attention_blocks
    assert translation.parts > 1
    assert blocks is not None
    assert len(blocks.blocks) == translation.parts
    weights = translation.attention
    assert weights is not None
    assert weights.shape == (len(translation.tokens), len(translation.src_tokens))
    assert len(translation.tokens) == len(translation.log_probs)
    assert weights.sum(axis=1) == pytest.approx(1, abs=1e-4)
    row = column = 0
    for block in blocks.blocks:
        rows = slice(row, row + len(block))
        columns = slice(column, column + block.shape[1])
        assert (weights[rows, columns] == block).all()
        assert not weights[rows, : columns.start].any()
        assert not weights[rows, columns.stop :].any()
        row = rows.stop
        column = columns.stop
    assert Translation().attention is None


def test_json_of_a_long_line_has_a_matrix_per_part(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text"
    text.write_text(" ".join(LINES[:9]) + "\n", encoding="utf-8")
    assert main(["translate", "-m", str(tiny_runs["luong"]), "-i", str(text), "--json"]) == 0
    translation = json.loads(capsys.readouterr().out)
    blocks = translation["attention_blocks"]
    assert translation["attention_weights"] is None
    assert sum(map(len, blocks)) == len(translation["tgt_tokens"])
    assert sum(len(block[0]) for block in blocks) == len(translation["src_tokens"])


MEASURE = """
import resource, sys
from seq2seq.__main__ import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def peak_and_size(*arguments: object, output: Path) -> tuple[int, int]:
    """Return the peak memory of a command in KiB, and the bytes it wrote."""
    call = [sys.executable, "-c", MEASURE, *map(str, arguments), "-o", str(output)]
    process = subprocess.run(call, capture_output=True, text=True, check=True)
    return int(process.stderr.splitlines()[-1]), output.stat().st_size


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["translate", "attention"])
@pytest.mark.parametrize("shape", ["one line", "many lines"])
def test_peak_memory_grows_at_most_linearly(
    tiny_runs: dict[str, Path], tmp_path: Path, command: str, shape: str
) -> None:
    options = ["--json"] if command == "translate" else []
    measured = []
    for factor in (1, 2, 4):
        text = tmp_path / f"text{factor}"
        words = " ".join(LINES[0].split()[:3] * 24 * factor)
        lines = [words] if shape == "one line" else [" ".join(LINES[:6])] * 60 * factor
        text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        output = tmp_path / ("out.html" if command == "attention" else "out.json")
        call = (command, "-m", tiny_runs["bahdanau"], "-i", text, "-b", 1, *options)
        measured.append(peak_and_size(*call, output=output))
    (_, small), _, (_, large) = measured
    first, second, third = (peak for peak, _ in measured)
    assert large < 4.6 * small  # bytes grow with the text
    assert third - second < 2.6 * max(second - first, 8 << 10)
    assert third - first < 60 << 10
