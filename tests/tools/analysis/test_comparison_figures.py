"""Figures of `seq2seq compare`: titles, labels and files, drawn without any training."""

import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from seq2seq.tools.analysis.compare import results
from seq2seq.tools.analysis.scored_text import WORDS, Bucket


def comparison(
    folder: Path, names: list[str], buckets: int, beyond: int = 0, sharing: int = 1
) -> SimpleNamespace:
    """Return results of variants, the first ones sharing a training, with two seeds each."""
    variants = [SimpleNamespace(name=name) for name in names]
    cut = [
        Bucket(5 * n + 1, 5 * n + 5, list(range(1234)), n >= buckets - beyond)
        for n in range(buckets)
    ]
    scored = []
    for index, variant in enumerate(variants):
        curves = [[(step, 30.0 + index / 9) for step in (100, 200)] for _ in range(2)]
        bleu = [30 + index / 9 - n / 2 for n in range(buckets)]
        runs = [SimpleNamespace(curve=curve) for curve in curves]
        deviations = [1.5] * buckets
        scored.append(
            SimpleNamespace(
                variant=variant, runs=runs, by_length=bleu, by_length_deviation=deviations
            )
        )
    plan = SimpleNamespace(
        seeds=(1, 2),
        variants=variants,
        trained_as=lambda each: variants[0] if each in variants[:sharing] else each,
        folder=folder,
    )
    task = SimpleNamespace(split="valid", longest=5 * (buckets - beyond), unit=WORDS)
    return SimpleNamespace(plan=plan, task=task, buckets=cut, variants=scored)


NAMES = ["none", "bahdanau", "luong"]


@pytest.mark.thorough
def test_equal_results_have_equal_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = comparison(tmp_path, NAMES, 4, 1)
    contents = []
    for _ in range(2):
        results.write_figures(result)
        contents.append([(tmp_path / f"{name}.svg").read_bytes() for name in ("curves", "lengths")])
    assert contents[0] == contents[1]
    for content in contents[0]:
        assert b"Date" not in content
        assert all(f">{name}</text>".encode() in content for name in NAMES)


def test_names_may_be_in_other_scripts(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = comparison(tmp_path, ["注意力", "plain"], 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert results.write_figures(result).startswith("Figures: ")
    assert ">注意力</text>" in (tmp_path / "lengths.svg").read_text(encoding="utf-8")
