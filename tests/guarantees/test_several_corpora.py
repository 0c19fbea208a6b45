"""Several training corpora: sampled by weight, tagged, and resumed exactly."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from cases.stopped_trainings import train_until_killed
from cases.tiers import one_quick
from cases.toy_text import toy_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config.schema import Config, ParallelFiles, VocabularyConfig, load_config
from seq2seq.data.batching import EpochOrder
from seq2seq.data.corpus import read_pairs
from seq2seq.data.corpus_weights import Share, ends_of, shares, used_in_epoch
from seq2seq.data.training_data import cached_text, cached_vocabularies, encoded_text, open_cache
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies, check_tags
from seq2seq.inference.translator import Translator
from seq2seq.runs.layout import BEST, LAST, LOG, METRICS
from seq2seq.runs.tensor_file import read_header
from seq2seq.runtime.console import counted
from seq2seq.runtime.errors import UserError
from seq2seq.text.line_properties import leading_tags
from seq2seq.training.divergence import describe_batch
from seq2seq.training.loop import train
from seq2seq.training.preparation import prepare
from seq2seq.training.stopping import last_step_of

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

SHORT = ("training.max_epochs=3", "training.validate_every=4", "vocabulary.sampling=0.2")


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return path


def with_corpora(config: Path, *corpora: str) -> Path:
    """Write a config beside another, with a list of training corpora."""
    text = config.read_text(encoding="utf-8")
    lines = text.splitlines()
    row = next(n for n, line in enumerate(lines) if line.startswith("  train: "))
    lines[row : row + 1] = ["  train:", *(f"    - {{{corpus}}}" for corpus in corpora)]
    path = config.with_name(f"corpora-{len(list(config.parent.glob('corpora-*')))}.yaml")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def halves(folder: Path, size: int) -> tuple[str, str]:
    """Divide the training text after `size` pairs; return both parts as the YAML has them."""
    files = []
    for part, lines in (("a", slice(size)), ("b", slice(size, None))):
        for side in ("src", "tgt"):
            text = (folder / f"train.{side}").read_text(encoding="utf-8").splitlines()
            write(folder / f"{part}.{side}", text[lines])
        files.append(f"src: {folder}/{part}.src, tgt: {folder}/{part}.tgt")
    return files[0], files[1]


def configured(path: Path, run: str, *overrides: str) -> Config:
    place = f"run_dir={path.parent / 'runs' / run}"
    return load_config(path, [place, *SHORT, *overrides])


# ---------------------------------------------------------------------------------------- sampling


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    weights=st.lists(st.sampled_from([0.25, 0.3, 1.0, 2.0, 7.5]), min_size=4, max_size=4),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_pair_is_used_in_proportion_to_the_weight_of_its_corpus(
    sizes: list[int], weights: list[float], seed: int
) -> None:
    weights = weights[: len(sizes)]
    ends = np.cumsum(sizes).tolist()
    parts = shares(ends, weights)
    if len(set(weights)) == 1:
        assert parts == ()
        return
    rows = np.arange(ends[-1])
    is_used = np.array([used_in_epoch(rows, parts, seed, epoch) for epoch in range(23)])
    fractions = np.repeat(np.array(weights) / max(weights), sizes)
    for epochs in (1, 2, 7, 23):
        counts = is_used[:epochs].sum(axis=0)
        assert (np.abs(counts - epochs * fractions) < 1 + 1e-9).all()
    assert is_used[:, fractions == 1].all()


def test_every_epoch_uses_nearly_the_same_number_of_pairs() -> None:
    parts = shares([1000, 31_000], [5, 1])
    rows = np.arange(31_000)
    counts = [int(used_in_epoch(rows, parts, 9, epoch)[1000:].sum()) for epoch in range(12)]
    assert all(abs(count - 6000) < 20 for count in counts)
    first, second = (used_in_epoch(rows, parts, 9, epoch)[1000:] for epoch in (0, 1))
    assert not (first & second).any()  # no pair is repeated before all have been used
    other_seed = used_in_epoch(rows, parts, 10, 0)[1000:]
    assert (first != other_seed).any()


def test_sampling_does_not_depend_on_the_division_into_corpora() -> None:
    rows = np.arange(900)
    undivided = (Share(600, 0.3), Share(900, 1.0))
    divided = (Share(1, 0.3), Share(200, 0.3), Share(600, 0.3), Share(700, 1.0), Share(900, 1.0))
    for epoch in range(5):
        is_used = [used_in_epoch(rows, corpora, 3, epoch) for corpora in (undivided, divided)]
        assert (is_used[0] == is_used[1]).all()


@given(st.lists(st.integers(0, 30), min_size=1), st.sets(st.integers(0, 200)))
def test_the_pairs_kept_of_each_corpus_are_counted(sizes: list[int], kept_rows: set[int]) -> None:
    rows = np.array(sorted(row for row in kept_rows if row < sum(sizes)), np.int64)
    ends = ends_of(rows, sizes)
    bounds = np.cumsum([0, *sizes])
    for (first, last), start, end in zip(pairwise(bounds), [0, *ends], ends, strict=False):
        assert all(first <= row < last for row in rows[start:end])
    assert ends[-1] == len(rows)


# ----------------------------------------------------------------------------------- training text


def test_skipped_pairs_keep_the_corpora_apart(small_corpus: Path) -> None:
    """Both corpora have blank and over-long pairs; half of the second is used in an epoch."""
    folder = small_corpus.parent
    for part, count, seed in (("a", 30, 7), ("b", 41, 8)):
        src, tgt = toy_pairs(count, seed)
        src = [f"{part} {line}" for line in src]
        src[3], tgt[5], src[11] = " ", "", f"{part} ba " * 50
        write(folder / f"{part}.src", src)
        write(folder / f"{part}.tgt", tgt)
    path = with_corpora(
        small_corpus,
        f"src: {folder}/a.src, tgt: {folder}/a.tgt, weight: 4",
        f"src: {folder}/b.src, tgt: {folder}/b.tgt, weight: 2",
    )
    config = configured(path, "run", "training.batch_tokens=60")
    session, notes = prepare(config, torch.device("cpu"))
    pairs = session.data.train
    first = [text.startswith("a ") for text in pairs.src_texts]
    (first_share, second_share) = pairs.shares
    assert first == [True] * first_share.end + [False] * (second_share.end - first_share.end)
    assert (first_share.end, second_share.end - first_share.end) == (27, 38)
    assert "in training: 4 pairs with a blank side" in "\n".join(notes)
    assert f"training corpus 1, {folder}/a.src and {folder}/a.tgt: 28 pairs, all in each epoch" in (
        "\n".join(notes)
    )
    assert "39 pairs, about 20 in each epoch (weight 2)" in "\n".join(notes)
    times = np.zeros(len(pairs), int)
    sizes = []
    for epoch in range(6):
        order = EpochOrder(pairs, 60, config.seed, epoch)
        rows = np.concatenate(list(order))
        assert len(set(rows.tolist())) == len(rows)
        times[rows] += 1
        sizes.append(len(order))
    assert (times[: first_share.end] == 6).all()
    assert (times[first_share.end :] == 3).all()
    assert last_step_of(config, pairs) == sum(sizes[:3])
    again = EpochOrder(pairs, 60, config.seed, 2)
    assert [rows.tolist() for rows in again] == [
        rows.tolist() for rows in EpochOrder(pairs, 60, config.seed, 2)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("accumulate", [1, 3])
def test_skipped_steps_of_weighted_corpora_are_described_across_epochs(
    accumulate: int, small_corpus: Path
) -> None:
    files = halves(small_corpus.parent, 40)
    path = with_corpora(small_corpus, f"{files[0]}, weight: 4", f"{files[1]}, weight: 1.3")
    batches = ("training.batch_tokens=60", f"training.accumulate={accumulate}")
    session, _ = prepare(configured(path, "run", *batches), torch.device("cpu"))
    expected = []
    lengths = set()
    progress = session.progress
    for epoch in range(3):
        order = EpochOrder(session.data.train, 60, session.config.seed, epoch)
        lengths.add(len(order))
        for first in range(0, len(order), accumulate):
            rows = np.concatenate(order[first : first + accumulate])
            text = session.data.train.src_texts[int(rows[0])][:60]
            expected.append(f"{counted(len(rows), 'pair')}, the first: {text!r}")
            if first == accumulate:  # report at the second step of each epoch
                progress.epoch, progress.batch = epoch, min(2 * accumulate, len(order))
                progress.step = len(expected)
                descriptions = [
                    describe_batch(session, step) for step in range(1, len(expected) + 1)
                ]
                assert descriptions == expected
    assert len(lengths) > 1


@pytest.mark.thorough
@one_quick(("size", "weight"), [(37, ""), (1, ", weight: 0.5"), (60, ", weight: 3")])
def test_two_halves_of_equal_weights_train_as_the_undivided_corpus(
    small_corpus: Path, size: int, weight: str
) -> None:
    files = halves(small_corpus.parent, size)
    divided = with_corpora(small_corpus, *(f"{half}{weight}" for half in files))
    overrides = ("training.max_steps=7", "training.validate_every=3")
    complete = train(configured(small_corpus, "complete", *overrides), "cpu")
    parts = train(configured(divided, "parts", *overrides), "cpu")
    for name in (METRICS, "vocabulary/joint.model"):
        assert (complete / name).read_bytes() == (parts / name).read_bytes()
    log = (parts / LOG).read_text(encoding="utf-8")
    assert f"training corpus 1, {small_corpus.parent}/a.src and" in log
    assert "in each epoch" not in log


def test_the_cache_of_several_corpora_is_reused_unless_a_tag_differs(small_corpus: Path) -> None:
    files = halves(small_corpus.parent, 50)
    for tag in ("", ", tag: <b>"):
        config = configured(with_corpora(small_corpus, files[0], files[1] + tag), "run")
        for _ in range(2):
            with open_cache(config.data.train, config.run_dir) as cache:
                text, notes = cached_text(config.data.train, cache)
                vocabularies, _ = cached_vocabularies(text, config.vocabulary)
                _, more_notes = encoded_text(text, vocabularies, 40)
                assert not [note for note in (*notes, *more_notes) if "rebuilt" in note]
                assert list(text.text.src) == list(read_pairs(config.data.train).src)
                assert text.text.src[50].startswith("<b> ") == bool(tag)


# -------------------------------------------------------------------------------------------- tags


def test_a_tag_begins_every_source_line_but_blank_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("one\teins\n \tzwei\n<bt> three\t\n", encoding="utf-8")
    text = read_pairs(ParallelFiles(file=path, tag="<bt>"))
    assert (text.src, text.tgt) == (["<bt> one", " ", "<bt> <bt> three"], ["eins", "zwei", ""])


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize(
    ("kind", "sampling"), [("unigram", 0.3), ("bpe", 0.4), ("word", 0.0), ("char", 0.0)]
)
def test_a_tag_is_one_token_that_is_never_split(kind: str, sampling: float, joint: bool) -> None:
    src, tgt = toy_pairs(300, seed=1)
    size = 330 if kind in ("unigram", "bpe") else 2000
    settings_ = {"type": kind, "size": size, "joint": joint, "sampling": sampling}
    config = VocabularyConfig.model_validate(settings_)
    vocabularies = train_vocabularies(config, src, tgt, ["<bt>", "<2news>"])
    check_tags(vocabularies, ["<bt>", "<2news>"])
    for tag in ("<bt>", "<2news>"):
        (token,) = {ids[0] for ids in vocabularies.src.encode(f"{tag} {text}" for text in src)}
        assert vocabularies.src.tokens([token]) == [f"\u2581{tag}"]
        (plain,) = vocabularies.src.encode([src[0]])
        (tagged,) = vocabularies.src.encode([f"{tag} {src[0]}"])
        assert tagged == [token, *plain]
        assert vocabularies.src.decode(tagged) == f"{tag} {vocabularies.src.decode(plain)}"
        if sampling:
            texts = [f"{tag} {text} {tag}" for text in src]
            samples = vocabularies.src.sample(texts, seed=4)
            assert samples != vocabularies.src.encode(texts)
            assert all(sample[0] == sample[-1] == token for sample in samples)
            assert all(sample.count(token) == 2 for sample in samples)
    if not joint:
        assert "\u2581<bt>" not in vocabularies.tgt.tokens(range(len(vocabularies.tgt)))


def test_a_vocabulary_without_the_tag_is_refused(tiny_vocabularies: Vocabularies) -> None:
    with pytest.raises(UserError, match=r"^data: the tag <bt> is not one token of the vocabulary"):
        check_tags(tiny_vocabularies, ["<bt>"])


def test_a_run_with_a_tag_cannot_start_from_one_without(small_corpus: Path) -> None:
    train(configured(small_corpus, "old", "training.max_steps=1"), "cpu")
    files = halves(small_corpus.parent, 50)
    tagged = configured(with_corpora(small_corpus, files[0], f"{files[1]}, tag: <bt>"), "new")
    with pytest.raises(UserError, match="the tag <bt> is not one token"):
        train(tagged, "cpu", init_from=small_corpus.parent / "runs" / "old")
    assert not (small_corpus.parent / "runs" / "new").exists()


# ---------------------------------------------------------------------------------------- resuming


@pytest.mark.thorough
def test_a_killed_weighted_run_ends_as_an_uninterrupted_one(small_corpus: Path) -> None:
    folder = small_corpus.parent
    files = halves(folder, 45)
    path = with_corpora(small_corpus, f"{files[0]}, weight: 2.5, tag: <bt>", files[1])
    overrides = [*SHORT, "training.validate_every=3"]
    complete = train(configured(path, "complete", *overrides), "cpu")
    killed = folder / "runs" / "killed"
    steps = read_header(complete / LAST)[0]["progress"]["step"]
    for step in (steps // 2, steps - 2):
        train_until_killed(configured(path, "killed", *overrides), step)
        validated = read_header(killed / LAST)[0]["progress"]
        assert validated["step"] == 3 * ((step - 1) // 3)
    assert validated["epoch"] >= 1
    train(configured(path, "killed", *overrides), "cpu", resume=True)
    for name in (METRICS, BEST):
        assert (killed / name).read_bytes() == (complete / name).read_bytes()


@pytest.mark.thorough
def test_a_changed_weight_is_refused_on_resume(small_corpus: Path) -> None:
    files = halves(small_corpus.parent, 45)
    path = with_corpora(small_corpus, f"{files[0]}, weight: 2", files[1])
    train(configured(path, "run", "training.max_steps=2"), "cpu")
    changed = with_corpora(small_corpus, f"{files[0]}, weight: 3", files[1])
    with pytest.raises(UserError, match=r"data\.train\.1\.weight: 2(\.0)? -> 3"):
        train(configured(changed, "run", "training.max_steps=4"), "cpu", resume=True)


@pytest.mark.thorough
def test_every_part_of_a_line_that_is_split_has_its_tag(small_corpus: Path) -> None:
    files = halves(small_corpus.parent, 60)
    path = with_corpora(small_corpus, f"{files[0]}, tag: <bt>", files[1])
    run = train(configured(path, "run", "training.max_steps=1"), "cpu")
    translator = Translator.load(run, device="cpu")
    (text,) = toy_pairs(1, seed=9)[0]
    line = " ".join([text] * 40)
    for start in ("", "<bt> ", "<other> "):
        (translation,) = translator.translate([start + line], beam_size=1)
        assert translation.parts > 2
        tags = translation.src_tokens.count("\u2581<bt>")
        assert tags == (translation.parts if start == "<bt> " else 0)
    assert leading_tags("<bt> a", translator.vocabularies.src.symbols) == "<bt>"
    assert leading_tags("a <bt>", translator.vocabularies.src.symbols) is None
    assert leading_tags("", translator.vocabularies.src.symbols) is None
