"""Scores against the `sacrebleu` program itself, run on the same files."""

import json
import logging
import os
import random
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from seq2seq.cli.evaluate import as_json, as_table
from seq2seq.evaluation.bootstrap import MIN_SENTENCES, seed_name
from seq2seq.evaluation.metrics import (
    check_line_counts,
    compare,
    not_nfc_note,
    score,
    score_by,
    tokenized_note,
)
from seq2seq.evaluation.segmentation import Segmentation, check_tokenizer
from seq2seq.runtime.errors import UserError

WORDS = ["The", "Cat", "sat", "on", "Mats", ",", "a", "Dog", "(", "isn't", "far", ")", "yet", "."]
LINES = 37
RESAMPLES = 40
ALL_CASED = ("--ter-case-sensitive",)
ALL_LOWERCASE = ("-lc", "--chrf-lowercase")
PROGRAM_NAMES = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}


def sentences(seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 11))) for _ in range(LINES)]


def corrupted(lines: list[str], seed: int, rate: float) -> list[str]:
    """Replace and fold words at random; every ninth line is blank."""
    rng = random.Random(seed)
    worse = []
    for number, line in enumerate(lines):
        words = [rng.choice(WORDS).lower() if rng.random() < rate else w for w in line.split()]
        worse.append("" if number % 9 == 4 else " ".join(words))
    return worse


REFERENCE = sentences(1)
REFERENCE_2 = corrupted(REFERENCE, 2, 0.2)
BASELINE = corrupted(REFERENCE, 3, 0.4)
SYSTEM = corrupted(REFERENCE, 4, 0.36)


def run_program(
    folder: Path, hypotheses: list[list[str]], references: list[list[str]], *options: str
) -> str:
    """Return the output of `sacrebleu`, with ten decimals per number."""
    paths: dict[str, list[str]] = {"hyp": [], "ref": []}
    for kind, texts in (("hyp", hypotheses), ("ref", references)):
        for number, lines in enumerate(texts):
            path = folder / f"{kind}{number}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
            paths[kind].append(str(path))
    command = [sys.executable, "-m", "sacrebleu", *paths["ref"], "-i", *paths["hyp"]]
    command += ["-m", "bleu", "chrf", "ter", "-w", "10", "--no-color", *options]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SACREBLEU")}
    process = subprocess.run(command, capture_output=True, check=True, env=environment)
    return process.stdout.decode("utf-8")


@pytest.fixture(autouse=True)
def _default_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)


def test_a_seed_that_sacrebleu_cannot_parse_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in ("12345", "none", "None"):
        monkeypatch.setenv("SACREBLEU_SEED", seed)
        seed_name()
        compare(SYSTEM, SYSTEM, [REFERENCE], bootstrap=2)
    for seed in ("abc", "-1", "1.5", ""):
        monkeypatch.setenv("SACREBLEU_SEED", seed)
        with pytest.raises(UserError, match="SACREBLEU_SEED="):
            seed_name()


@pytest.mark.parametrize(
    ("references", "lowercase", "tokenize", "options"),
    [
        ([REFERENCE], False, "13a", ALL_CASED),
        ([REFERENCE, REFERENCE_2], True, "13a", ALL_LOWERCASE),
        ([REFERENCE], False, "char", (*ALL_CASED, "-tok", "char")),
    ],
)
def test_scores_intervals_and_signatures_equal_those_of_the_program(
    tmp_path: Path,
    references: list[list[str]],
    lowercase: bool,
    tokenize: str,
    options: tuple[str, ...],
) -> None:
    confidence = ("--confidence", "--confidence-n", str(RESAMPLES))
    printed = run_program(tmp_path, [SYSTEM], references, *confidence, *options)
    by_name = {metric["name"]: metric for metric in json.loads(printed)}
    ours = as_json(score(SYSTEM, references, lowercase, Segmentation(tokenize), RESAMPLES))
    assert list(ours) == ["bleu", "chrf", "ter"]
    for key, name in PROGRAM_NAMES.items():
        theirs = by_name[name]
        low, high = ours[key]["ci"]
        assert ours[key]["score"] == pytest.approx(theirs["score"], abs=1e-9)
        # The program's half-width is from the second lowest to the second highest of 40 resamples.
        assert 0.6 < (high - low) / 2 / theirs["confidence_var"] <= 1.2
        assert abs((low + high) / 2 - theirs["confidence_mean"]) < theirs["confidence_var"] / 2
        assert ours[key]["signature"] == theirs["signature"]


def test_resamples_default_to_those_of_the_program(tmp_path: Path) -> None:
    few_lines = [lines[:MIN_SENTENCES] for lines in (SYSTEM, REFERENCE)]
    printed = run_program(tmp_path, few_lines[:1], few_lines[1:], "--confidence", *ALL_CASED)
    signatures = {metric["name"]: metric["signature"] for metric in json.loads(printed)}
    assert score(few_lines[0], few_lines[1:])["bleu"].signature == signatures["BLEU"]
    assert "bs:1000|seed:12345" in score(few_lines[0], few_lines[1:])["bleu"].signature


def test_paired_scores_and_signatures_equal_those_of_the_program(tmp_path: Path) -> None:
    # As text, since sacrebleu 2.6 cannot write the numbers of a paired test as JSON.
    options = ("--format", "text", "--paired-bs", "--paired-bs-n", str(RESAMPLES), *ALL_CASED)
    printed = run_program(tmp_path, [BASELINE, SYSTEM], [REFERENCE, REFERENCE_2], *options)
    rows = re.findall(r"([\d.]+) \(([\d.]+) ± ([\d.]+)\)", printed)
    test = compare(BASELINE, SYSTEM, [REFERENCE, REFERENCE_2], bootstrap=RESAMPLES)
    sides = [[test[metric].baseline, test[metric].system] for metric in PROGRAM_NAMES]
    cells = [side for system in zip(*sides, strict=True) for side in system]
    for cell, row in zip(cells, rows, strict=True):
        numbers = [cell.score, cell.mean]  # sacrebleu sums in single precision
        assert numbers == pytest.approx([float(text) for text in row[:2]], rel=1e-5)
    for metric in PROGRAM_NAMES:
        assert test[metric].signature in printed
        assert f"nrefs:2|bs:{RESAMPLES}|seed:12345" in test[metric].signature


def test_paired_test_finds_no_difference_between_equals() -> None:
    test = compare(SYSTEM, SYSTEM, [REFERENCE], bootstrap=RESAMPLES)
    assert all(pair.baseline == pair.system and pair.p_value == 1 for pair in test.values())


def test_lowercase_applies_to_every_metric() -> None:
    shouted = [line.upper() for line in REFERENCE]
    cased = score(shouted, [REFERENCE], bootstrap=0)
    folded = score(shouted, [REFERENCE], lowercase=True, bootstrap=0)
    assert cased["bleu"].score < 50 < folded["bleu"].score == pytest.approx(100)
    assert cased["chrf"].score < 50 < folded["chrf"].score == pytest.approx(100)
    assert cased["ter"].score > 50 > folded["ter"].score == 0
    assert all("case:mixed" in s.signature and s.ci is None for s in cased.values())
    assert all("case:lc" in s.signature for s in folded.values())


def test_validation_score_is_the_bleu_of_score() -> None:
    expected = score(SYSTEM, [REFERENCE], bootstrap=0)["bleu"].score
    assert score_by("bleu", SYSTEM, REFERENCE) == expected


def test_blank_lines_are_scored_on_both_sides() -> None:
    blank = [""] * LINES
    assert score(blank, [REFERENCE], bootstrap=3)["bleu"].score == 0
    assert score(blank, [blank], bootstrap=3)["ter"].score == 0
    assert score(SYSTEM, [blank], bootstrap=3)["ter"].score == 100


def test_line_counts_are_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"hyp\.txt has 3 lines but ref\.txt has 2"):
        check_line_counts([("hyp.txt", ["a", "", "b"]), ("ref.txt", ["a", "b"])])
    with pytest.raises(UserError, match=r"ref\.txt is empty"):
        check_line_counts([("hyp.txt", ["a"]), ("ref.txt", [])])
    with pytest.raises(UserError, match="hypotheses has 1 lines but reference 2 has 2"):
        score(["a"], [["a"], ["a", "b"]])
    with pytest.raises(UserError, match="baseline has 2 lines but system has 1"):
        compare(["a", "b"], ["a"], [["a", "b"]])
    with pytest.raises(UserError, match="no reference"):
        score(["a"], [])


def test_unknown_tokenizer_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'moses'.*13a.*intl"):
        score(SYSTEM, [REFERENCE], segmentation=Segmentation("moses"))


@pytest.mark.parametrize(
    "failure", [OSError("no network"), RuntimeError("\nNot there.\n\n  pip install it\n")]
)
def test_a_tokenizer_that_cannot_load_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail() -> None:
        raise failure

    monkeypatch.setattr("sacrebleu.metrics.bleu._get_tokenizer", lambda _: fail)
    with pytest.raises(UserError, match="'ja-mecab'") as caught:
        check_tokenizer("ja-mecab")
    assert "\n" not in str(caught.value)
    assert " ".join(str(failure).split()) in str(caught.value)


def test_tokenized_hypotheses_give_a_note_and_no_log_line(caplog: pytest.LogCaptureFixture) -> None:
    tokenized = ["It rains ."] * 100 + ["It pours."]
    with caplog.at_level(logging.INFO):
        score(tokenized, [tokenized], bootstrap=0)
        compare(tokenized, tokenized, [tokenized], bootstrap=2)
    assert not caplog.records
    note = tokenized_note(tokenized)
    assert note is not None
    assert "100 of 101" in note
    assert "\n" not in note
    assert tokenized_note(tokenized[1:]) is None


DECOMPOSED = "\u0958\u093f\u0924\u093e\u092c \u0939\u0948."  # NFC decomposes the first


def test_references_that_are_not_nfc_give_a_note_and_are_unchanged() -> None:
    references = [DECOMPOSED, *REFERENCE[1:]]
    note = not_nfc_note("test.mr", references)
    assert note is not None
    assert note.startswith(f"test.mr: 1 of {len(REFERENCE)} lines are not in Unicode's NFC")
    assert "uconv -x nfc" in note
    normal = [unicodedata.normalize("NFC", line) for line in references]
    assert not_nfc_note("test.mr", normal) is None
    hypotheses = [normal[0], *SYSTEM[1:]]
    assert score_by("bleu", hypotheses, references) < score_by("bleu", hypotheses, normal)


def test_the_table_shows_all_fields_of_the_scores() -> None:
    scores = score(SYSTEM, [REFERENCE], bootstrap=RESAMPLES)
    single, signatures = as_table(scores).split("\n\n")
    assert [line.split() for line in signatures.splitlines()] == [
        [name, value.signature]
        for name, value in zip(PROGRAM_NAMES.values(), scores.values(), strict=True)
    ]
    for line, name, value in zip(
        single.splitlines()[1:], PROGRAM_NAMES.values(), scores.values(), strict=True
    ):
        assert value.ci is not None
        low, high = (f"{bound:.1f}" for bound in value.ci)
        assert line.split() == [name, f"{value.score:.1f}", low, "to", high]
    assert "-" in as_table(score(SYSTEM, [REFERENCE], bootstrap=0)).splitlines()[1].split()
    json.dumps(as_json(scores))


def test_a_system_with_almost_no_match_has_an_interval() -> None:
    """Some resamples then have no match at all."""
    hypotheses = ["a b c d e"] + ["x"] * 30
    references = ["a b c d e"] + ["y"] * 30
    low, high = score(hypotheses, [references])["bleu"].ci or (1.0, 0.0)
    assert low <= high
    assert compare(hypotheses, hypotheses, [references])["bleu"].p_value == 1
