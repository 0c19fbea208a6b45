"""`data.embeddings`: the rows that are set, once before the first step."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import toy_pairs, train_until

from seq2seq.cli.main import main
from seq2seq.config.schema import Config, load_config, with_paths
from seq2seq.runs.layout import LOG, METRICS
from seq2seq.runtime.errors import UserError
from seq2seq.training.loop import train
from seq2seq.training.preparation import prepare

CPU = torch.device("cpu")
SHORT = (
    "training.max_steps=3",
    "training.log_every=1",
    "training.average=0.9",
    "vocabulary.type=word",
    "vocabulary.joint=false",
    "decoding.max_length=9",
)


def configured(corpus: Path, *overrides: str, run: str = "run") -> Config:
    return load_config(corpus, [*SHORT, f"run_dir={corpus.parent / run}", *overrides])


def write_vectors(path: Path, words: list[str], size: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    vectors = {word: generator.normal(size=size).astype(np.float32) for word in words}
    rows = [f"{word} {' '.join(map(str, vector))}\n" for word, vector in vectors.items()]
    path.write_text(f"{len(rows)} {size}\n{''.join(rows)}", encoding="utf-8")
    return vectors


@pytest.fixture
def vectors(small_corpus: Path) -> tuple[Path, dict[str, np.ndarray]]:
    size = configured(small_corpus).model.embedding_size
    words = sorted({word for line in toy_pairs(120, seed=1)[0] for word in line.split()})
    path = small_corpus.parent / "x.vec"
    return path, write_vectors(path, [*words[::2], "unseen"], size)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "apart"])
@pytest.mark.parametrize("side", ["src", "tgt"])
def test_words_in_the_file_have_its_vectors_and_others_random_ones(
    small_corpus: Path, vectors: tuple[Path, dict[str, np.ndarray]], side: str, tied: bool
) -> None:
    path, given = vectors
    if side == "tgt":
        for split in ("train", "valid", "test"):
            src, tgt = (small_corpus.parent / f"{split}.{each}" for each in ("src", "tgt"))
            src.rename(small_corpus.parent / "swap")
            tgt.rename(src)
            (small_corpus.parent / "swap").rename(tgt)
    keys = (f"model.tie_embeddings={str(tied).lower()}",)
    plain, _ = prepare(configured(small_corpus, *keys, run="plain"), CPU)
    config = configured(small_corpus, *keys, f"data.embeddings.{side}={path}")
    session, notes = prepare(config, CPU)
    vocabulary = getattr(session.data.vocabularies, side)
    weights = [
        {"src": each.model.encoder.embedding, "tgt": each.model.tgt_embedding}[side].weight.detach()
        for each in (session, plain)
    ]
    found, mean_square = [], 0.0
    for word, ident in vocabulary.word_ids().items():
        if word in given:
            found.append(ident)
            mean_square += float((given[word].astype(np.float64) ** 2).sum())
    assert 3 < len(found) < len(vocabulary) - 4
    scale = (mean_square / len(found)) ** -0.5
    for word, ident in vocabulary.word_ids().items():
        expected = torch.from_numpy(given[word]) * scale if word in given else weights[1][ident]
        torch.testing.assert_close(weights[0][ident], expected, rtol=1e-5, atol=1e-6)
    (note,) = (each for each in notes if "vectors of" in each)
    total = len(vocabulary.word_ids())
    assert note.startswith(f"{path}: vectors of {len(found)} of {total} words")
    name = {"src": "encoder.embedding.weight", "tgt": "tgt_embedding.weight"}[side]
    assert torch.equal(session.averages[name], weights[0])
    if side == "tgt":
        assert torch.equal(session.model.projection.weight, weights[0]) == tied
    others = {key: each for key, each in session.model.state_dict().items() if key != name}
    for key, each in others.items():
        shared = tied and side == "tgt" and key == "projection.weight"
        assert shared or torch.equal(each, plain.model.state_dict()[key])


@pytest.mark.thorough
def test_a_run_is_resumed_without_the_file(
    small_corpus: Path,
    vectors: tuple[Path, dict[str, np.ndarray]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, key = vectors[0], f"data.embeddings.src={vectors[0]}"
    complete = train(configured(small_corpus, key, run="complete"), "cpu")
    assert "vectors of" in (complete / LOG).read_text(encoding="utf-8")
    config = configured(small_corpus, key)
    train_until(config, 2, monkeypatch)
    path.unlink()
    moved = configured(small_corpus, f"data.embeddings.src={path}.moved")
    resumed = train(moved, "cpu", resume=True)
    assert (resumed / METRICS).read_bytes() == (complete / METRICS).read_bytes()
    plain = train(configured(small_corpus, run="plain"), "cpu")
    assert (plain / METRICS).read_bytes() != (complete / METRICS).read_bytes()


def test_a_warm_start_does_not_read_the_embeddings(
    small_corpus: Path, vectors: tuple[Path, dict[str, np.ndarray]]
) -> None:
    run = train(configured(small_corpus, run="first"), "cpu")
    config = configured(small_corpus, f"data.embeddings.src={vectors[0]}.absent")
    _, notes = prepare(config, CPU, init_from=run)
    assert "data.embeddings is not read: init_from gives all weights" in notes


@pytest.mark.parametrize("override", ["vocabulary.type=unigram", "vocabulary.joint=true"])
def test_other_vocabularies_are_refused(small_corpus: Path, override: str) -> None:
    message = r"vocabulary.*: data\.embeddings needs type: word and joint: false"
    with pytest.raises(UserError, match=message):
        configured(small_corpus, "data.embeddings.src=x.vec", override)


def test_embeddings_of_neither_side_are_refused(small_corpus: Path) -> None:
    with pytest.raises(UserError, match=r"data\.embeddings.*: set src, tgt or both"):
        configured(small_corpus, "data.embeddings.src=null")


def test_a_wrong_size_ends_with_one_line_before_anything_is_written(
    small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_vectors(small_corpus.parent / "x.vec", ["ba"], 7)
    vectors = f"data.embeddings.tgt={small_corpus.parent / 'x.vec'}"
    run = small_corpus.parent / "run"
    for command in ("train", "check"):
        given = [command, str(small_corpus), *SHORT, f"run_dir={run}", vectors]
        assert main([*given, "--device", "cpu"]) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert "has 7 numbers after the word, but model.embedding_size is " in line
        assert not (run / METRICS).exists()


def test_paths_follow_a_moved_run(small_corpus: Path) -> None:
    config = configured(small_corpus, "data.embeddings.src=a/x.vec")
    moved = with_paths(config, lambda path: Path("/b") / path.name)
    assert moved.data.embeddings is not None
    assert moved.data.embeddings.paths == {"src": Path("/b/x.vec")}
    assert Path("a/x.vec") in config.data.paths()
