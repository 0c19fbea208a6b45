"""Guided alignment: loss against loops, effect on attention, files, resume and cache."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cases.models import CASES, Case, close, make_copying_model, make_model, random_tensor
from cases.tiers import one_quick

from seq2seq.__main__ import main
from seq2seq.config.schema import Config, load_config
from seq2seq.data.padding import Batch, make_batch
from seq2seq.inference.scoring import attend
from seq2seq.inference.translator import Translator
from seq2seq.model.decoder import stack_steps
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.layout import LAST, METRICS
from seq2seq.runtime.errors import UserError
from seq2seq.text.text_files import read_lines
from seq2seq.tools.analysis.attention.alignment import align, alignment_error_rate, read_gold
from seq2seq.training.loop import train
from seq2seq.training.loss import alignment_losses, batch_loss
from seq2seq.training.mixture_loss import LossWeights
from seq2seq.training.step import _split

pytestmark = pytest.mark.usefixtures("no_engine", "short_sentences")

SOURCES = [[4, 5, 4, 6], [7, 8], [9, 9, 9]]
TARGETS = [[5, 4, 10], [9, 4, 5, 7], [9]]
WORDS = torch.tensor([[0, 0, 1, 2, 3], [0, 1, 3, 3, 3], [0, 1, 2, 3, 3]])  # [B, S], W = 3
SHARES = {  # (sentence, step): shares of the words
    (0, 0): [1, 0, 0],
    (0, 2): [0.5, 0, 0.5],
    (1, 1): [0, 1, 0],
    (1, 3): [0.5, 0.5, 0],
    (2, 0): [1 / 3, 1 / 3, 1 / 3],
}


def guided_batch() -> Batch:
    alignment = torch.zeros(3, 5, 3, dtype=torch.float64)
    for (sentence, step), shares in SHARES.items():
        alignment[sentence, step] = torch.tensor(shares, dtype=torch.float64)
    return make_batch(SOURCES, TARGETS, WORDS, alignment)


def in_loops(weights: torch.Tensor) -> torch.Tensor:
    """Return the summed loss of attention weights [B, T, S]."""
    total = torch.zeros((), dtype=weights.dtype)
    for (sentence, step), shares in SHARES.items():
        for word, share in enumerate(shares):
            tokens = [
                n for n, word_number in enumerate(WORDS[sentence].tolist()) if word_number == word
            ]
            on_word = sum(weights[sentence, step, token] for token in tokens)
            if share and on_word > 0:
                total = total - share * torch.log(torch.as_tensor(on_word))
    return total


def test_the_loss_is_the_cross_entropy_of_the_attention_on_words() -> None:
    weights = random_tensor(3, 5, 5, seed=1).softmax(-1)
    batch = guided_batch()
    assert batch.alignment is not None
    losses = alignment_losses(weights, batch.alignment, WORDS)
    assert losses.shape == (3, 5)
    close(losses.sum(), in_loops(weights))
    even = torch.full((3, 5, 5), 0.2, dtype=torch.float64)
    close(
        alignment_losses(even, batch.alignment, WORDS)[0, 0],  # two of the five tokens
        torch.tensor(-math.log(0.4), dtype=torch.float64),
    )
    gradients = torch.autograd.gradcheck(
        lambda scores: alignment_losses(scores.softmax(-1), batch.alignment, WORDS),
        random_tensor(3, 5, 5, seed=2),
    )
    assert gradients


def test_no_attention_on_a_word_has_zero_loss_and_gradient() -> None:
    weights = torch.zeros(3, 5, 5, dtype=torch.float64).requires_grad_()
    batch = guided_batch()
    assert batch.alignment is not None
    losses = alignment_losses(weights, batch.alignment, WORDS)
    losses.sum().backward()
    assert not losses.any()
    assert weights.grad is not None
    assert not weights.grad.any()


def attention_of(model: Seq2Seq, batch: Batch) -> torch.Tensor:
    """Return the attention weights of all steps, computed step by step."""
    memory, state = model.start(model.encode(batch.src, batch.src_lengths))
    steps = stack_steps(model.decoder, model.embed(batch.tgt_in), state, memory)
    weights = steps.attention_weights
    assert weights is not None
    return weights


GUIDED = [case for case in CASES if case.kind != "plain"]


@one_quick("case", GUIDED, ids=str, quick=range(0, len(GUIDED), 3))
@pytest.mark.parametrize("passes", [1, 2])
def test_the_loss_of_a_batch_is_the_sum_over_its_tokens(case: Case, passes: int) -> None:
    """Loss and gradients equal those of stacked steps, in every decoder and loss path."""
    model = make_model(case)
    batch = guided_batch()
    consistency = 0.0 if passes == 1 else 2.0  # both passes are equal without dropout
    loss, nll = batch_loss(model, batch, LossWeights(0.1, consistency, 0.0, 0.7))
    without = batch_loss(model, batch, LossWeights(0.1, consistency))
    expected = without.objective + 0.7 * in_loops(attention_of(model, batch))
    close(loss, expected)
    close(nll, without.nll)
    leaves = [*model.parameters()]
    gradients = [
        torch.autograd.grad(tested_loss, leaves, allow_unused=True)
        for tested_loss in (loss, expected)
    ]
    for left, right in zip(*gradients, strict=True):
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            close(left, right, 1e-8)


@pytest.mark.parametrize("case", [GUIDED[0], GUIDED[10]], ids=str)
def test_the_alignment_loss_adds_to_the_loss_with_copying(case: Case) -> None:
    model = make_copying_model(case)
    batch = guided_batch()
    loss = batch_loss(model, batch, LossWeights(0.1, 0.0, 0.0, 0.7)).objective
    expected = 0.7 * in_loops(attention_of(model, batch))
    close(loss - batch_loss(model, batch, LossWeights(0.1)).objective, expected)


def test_micro_batches_have_the_loss_of_the_batch() -> None:
    model = make_model(GUIDED[0])
    batch = guided_batch()
    parts = list(_split(batch, 5))
    assert len(parts) == 3
    losses = [batch_loss(model, part, LossWeights(0.1, guided=0.7)).objective for part in parts]
    close(
        torch.stack(losses).sum(), batch_loss(model, batch, LossWeights(0.1, guided=0.7)).objective
    )


# ----------------------------------------------------------------------------- training from files


def write_alignment(folder: Path, name: str = "train.align", split: str = "train") -> Path:
    """Write alignments of the toy language, whose translations have reversed word order."""
    lines = []
    for text in read_lines(folder / f"{split}.src"):
        count = len(text.split())
        lines.append(" ".join(f"{count - 1 - t}-{t}" for t in range(count)))
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def configured(config: Path, *overrides: str) -> Config:
    return load_config(config, overrides)


GUIDE = ("training.losses.guided_alignment=0.5",)
STRONG = "training.losses.guided_alignment=2"
SHORT = ("training.max_steps=8", "training.validate_every=4", "training.log_every=2")


def error_rate(run: Path, folder: Path) -> float:
    """Return the alignment error rate of a run on the validation text."""
    gold = read_gold(write_alignment(folder, "gold", "valid"))
    src, tgt = (read_lines(folder / f"valid.{side}") for side in ("src", "tgt"))
    translations = attend(Translator.load(run, device="cpu").loaded, src, tgt)
    links = [
        align(attention)
        for translation, line in zip(translations, src, strict=True)
        for attention in translation.attention_maps(line)
    ]
    return alignment_error_rate(links, gold)


@pytest.mark.thorough
def test_attention_learns_the_alignment(small_corpus: Path) -> None:
    """After few steps, guided attention aligns unseen text better than unguided attention."""
    folder = small_corpus.parent
    path = write_alignment(folder)
    sizes = "model.hidden_size=64", "model.embedding_size=32", "model.attention_size=null"
    length = "training.max_epochs=null", "training.max_steps=70", "training.validate_every=70"
    overrides = (*sizes, *length, "training.learning_rate=1e-2", "training.batch_tokens=300")
    guide = (f"data.train.alignment={path}", STRONG)
    rates = []
    for name, keys in (
        ("own", ()),
        ("bahdanau", guide),
        ("luong", ("model.decoder=luong", *guide)),
    ):
        values = (*overrides, *keys, f"run_dir={folder / name}")
        rates.append(error_rate(train(configured(small_corpus, *values), "cpu"), folder))
    assert max(rates[1:]) < rates[0] - 0.2


@pytest.mark.thorough
def test_a_resumed_run_equals_an_uninterrupted_one(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seq2seq.training import loop

    path = write_alignment(small_corpus.parent)
    values = (*SHORT, *GUIDE, f"data.train.alignment={path}", "vocabulary.sampling=0.2")
    complete = train(
        configured(small_corpus, *values, f"run_dir={small_corpus.parent / 'complete'}"), "cpu"
    )
    step = loop.train_step
    count = 0

    def interrupted(*arguments: object) -> object:
        nonlocal count
        count += 1
        if count == 6:
            raise KeyboardInterrupt
        return step(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(configured(small_corpus, *values), "cpu")
    resumed = train(configured(small_corpus, *values), "cpu", resume=True)
    assert (resumed / METRICS).read_bytes() == (complete / METRICS).read_bytes()
    weights = [(run / LAST).read_bytes()[-2000:] for run in (resumed, complete)]
    assert weights[0] == weights[1]


@pytest.mark.thorough
def test_a_changed_alignment_is_another_text_for_cache_and_resume(
    small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = small_corpus.parent
    path = write_alignment(folder)
    values = (*SHORT, *GUIDE, f"data.train.alignment={path}")
    train(configured(small_corpus, *values, f"run_dir={folder / 'first'}"), "cpu")
    train(configured(small_corpus, *values, f"run_dir={folder / 'again'}"), "cpu")
    first, again = ((folder / name / METRICS).read_bytes() for name in ("first", "again"))
    assert first == again
    assert "rebuilt" not in capsys.readouterr().err
    moved = path.rename(folder / "moved.align")
    elsewhere = (*SHORT, *GUIDE, f"data.train.alignment={moved}")
    train(configured(small_corpus, *elsewhere, f"run_dir={folder / 'first'}"), "cpu", resume=True)
    path = moved.rename(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("".join(f"{line.split()[0]}\n" for line in lines), encoding="utf-8")
    with pytest.raises(UserError, match=r"data\.train: is not the text that .*first was trained"):
        train(configured(small_corpus, *values, f"run_dir={folder / 'first'}"), "cpu", resume=True)
    train(configured(small_corpus, *values, f"run_dir={folder / 'other'}"), "cpu")
    assert (folder / "other" / METRICS).read_bytes() != first


@pytest.mark.thorough
def test_a_damaged_entry_of_the_cache_is_rebuilt(small_corpus: Path) -> None:
    folder = small_corpus.parent
    values = (*SHORT, *GUIDE, f"data.train.alignment={write_alignment(folder)}")
    train(configured(small_corpus, *values, f"run_dir={folder / 'first'}"), "cpu")
    (links,) = folder.glob(".token-cache/*/text/links.ids")
    links.write_bytes(links.read_bytes()[:-4] + b"\7\0\0\0")
    train(configured(small_corpus, *values, f"run_dir={folder / 'again'}"), "cpu")
    first, again = ((folder / name / METRICS).read_bytes() for name in ("first", "again"))
    assert first == again


@pytest.mark.thorough
def test_each_corpus_has_its_own_alignment_or_none(small_corpus: Path) -> None:
    """Two halves with alignments train as the complete text; without the second one, not."""
    folder = small_corpus.parent
    path = write_alignment(folder)
    for part, rows in (("a", slice(50)), ("b", slice(50, None))):
        for name in ("train.src", "train.tgt", path.name):
            text = (folder / name).read_text(encoding="utf-8").splitlines(keepends=True)
            (folder / name.replace("train", part)).write_text("".join(text[rows]), encoding="utf-8")
    files = f"{{src: {folder}/@.src, tgt: {folder}/@.tgt, alignment: {folder}/@.align}}"
    text = small_corpus.read_text(encoding="utf-8")
    (line,) = (log_line for log_line in text.splitlines() if log_line.startswith("  train: "))
    aligned_files = [files.replace("@", part) for part in "ab"]
    half = [aligned_files[0], aligned_files[1].replace(f", alignment: {folder}/b.align", "")]
    prints = []
    for name, corpora in (
        ("undivided", [files.replace("@", "train")]),
        ("both", aligned_files),
        ("half", half),
    ):
        config = folder / f"{name}.yaml"
        listed = corpora[0] if len(corpora) == 1 else f"[{', '.join(corpora)}]"
        config.write_text(text.replace(line, f"  train: {listed}"), encoding="utf-8")
        run = train(configured(config, *SHORT, *GUIDE, f"run_dir={folder / name}"), "cpu")
        prints.append((run / METRICS).read_bytes())
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.thorough
def test_an_alignment_without_a_weight_is_noted_and_changes_nothing(
    small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = small_corpus.parent
    alignment = f"data.train.alignment={write_alignment(folder)}"
    runs = [
        train(configured(small_corpus, *SHORT, *alignment_key, f"run_dir={folder / name}"), "cpu")
        for name, alignment_key in (("without", ()), ("with", (alignment,)))
    ]
    assert (runs[0] / METRICS).read_bytes() == (runs[1] / METRICS).read_bytes()
    note = "data.train.alignment has no effect: training.losses.guided_alignment is 0"
    assert capsys.readouterr().err.count(note) == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("data.train.alignment=null",), "guided_alignment needs a file of alignments, data.trai"),
        (("model.decoder=none",), "guided_alignment needs attention; set decoder to one of "),
        (
            ("vocabulary.names=placeholders",),
            "guided_alignment needs vocabulary.names: null, which keep",
        ),
        (("data.train.alignment=nowhere",), "nowhere: no such file"),
        (("training.losses.guided_alignment=-1",), "training.losses.guided_alignment"),
    ],
)
def test_a_config_that_cannot_use_an_alignment_is_refused(
    small_corpus: Path, overrides: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    alignment = f"data.train.alignment={write_alignment(small_corpus.parent)}"
    assert main(["train", str(small_corpus), *SHORT, alignment, *GUIDE, *overrides]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (small_corpus.parent / "run").exists()


@one_quick(
    ("change", "message"),
    [
        (lambda lines: [*lines[:41], "0-0 zero-one", *lines[42:]], ":42: 'zero-one' is no link"),
        (lambda lines: lines[:-1], " lines but the text ("),
        (lambda lines: [*lines, ""], " lines but "),
        (lambda lines: ["(0-0)", *lines[1:]], ":1: '(0-0)' is no link such as 0-0"),
        (lambda lines: ["0-99", *lines[1:]], ":1: 0-99: the target has "),
    ],
)
def test_train_and_check_refuse_an_alignment_that_does_not_fit_alike(
    small_corpus: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[list[str]], list[str]],
    message: str,
) -> None:
    path = write_alignment(small_corpus.parent)
    lines = change(path.read_text(encoding="utf-8").splitlines())
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    values = (*SHORT, *GUIDE, f"data.train.alignment={path}")
    errors = []
    for command in ("train", "check"):
        assert main([command, str(small_corpus), *values]) == 2
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1]
    assert f"{path}" in errors[1]
    assert message in errors[1]


def test_check_refuses_a_cache_that_train_cannot_use(
    small_corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(small_corpus))  # a file
    errors = []
    for command in ("train", "check"):
        assert main([command, str(small_corpus), *SHORT]) == 2
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1]
    assert "SEQ2SEQ_CACHE" in errors[1]


def test_the_alignment_of_a_run_is_in_its_config(small_corpus: Path) -> None:
    path = write_alignment(small_corpus.parent)
    run = train(configured(small_corpus, *SHORT, *GUIDE, f"data.train.alignment={path}"), "cpu")
    (corpus,) = load_config(run / "config.yaml").data.train
    assert corpus.alignment == path
    steps = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    assert all(math.isfinite(metrics["objective"]) for metrics in steps if "objective" in metrics)
