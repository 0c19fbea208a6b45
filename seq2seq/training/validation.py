"""Validation: loss, perplexity and greedy BLEU; the best weights are kept.

A metric selects them, and decides on patience and decay on a plateau. Close to zero BLEU and chrF
are noise: below a floor the validation loss decides.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from seq2seq.config.schema import TrainingConfig
from seq2seq.data import batching, corpus, padding
from seq2seq.evaluation.metrics import score_by
from seq2seq.evaluation.segmentation import segmentation_of
from seq2seq.inference.loaded_model import LoadedModel
from seq2seq.inference.translator import Translator
from seq2seq.model.seq2seq import named_weights
from seq2seq.runs.run_folder import Counters
from seq2seq.runs.tensor_file import non_finite
from seq2seq.runtime import console, device, errors, process_group
from seq2seq.text.joined_profile import HABITS
from seq2seq.text.source_profile import SourceProfile
from seq2seq.training.callbacks import samples_of
from seq2seq.training.clock import Clock
from seq2seq.training.divergence import loss_fault
from seq2seq.training.loss import batch_loss
from seq2seq.training.reporting import Reporter
from seq2seq.training.session import TrainingSession, call_on_device, pending_habits
from seq2seq.training.step import in_halves

MIN_LINES, MIN_BLEU = 10, 1.0  # of validation lines that show whether a habit is learned
FLOORS = {"bleu": 2.0, "chrf": 20.0}  # percentage points
MIN_DECAY = 0.01  # share of the peak below which a plateau ends training


def validate(session: TrainingSession, reporter: Reporter, clock: Clock) -> str | None:
    """Measure and report loss, perplexity and greedy BLEU, of the averaged weights if any.

    Write the weights if they are the best so far, and as a snapshot if the config keeps any. If
    loss or weights are not finite, write nothing, and return the reason.
    """
    began, progress, settings = time.monotonic(), session.progress, session.config.training
    progress.validated_step = progress.step
    device.trim_memory()
    with averaged_weights(session):
        for note in adopt_habits(session):
            reporter.log(f"step {progress.step}: {note}")
        scores = ValidationScores(valid_loss(session), valid_bleu(session))
        if settings.metric.name == "chrf":
            chrf = score_by("chrf", session.hypotheses, session.data.valid.tgt)
            scores = scores._replace(chrf=chrf)
        # Weights with a fault can never be the best.
        fault = loss_fault("validation", scores.loss) or non_finite(named_weights(session.model))
        best = fault is None and record(progress, settings, scores)
        if fault is None:
            session.save_weights(scores.bleu, best)
    reporter.metrics(progress.step, scores.figures())
    reporter.timing(progress.step, {"validation_seconds": time.monotonic() - began})
    time_trained = "{}:{:02d}".format(*divmod(int(clock.seconds), 60))
    text = f"step {progress.step}, epoch {progress.epoch + 1}, {time_trained}: validation {scores}"
    reporter.log(f"{text} (best so far)" if best else text)
    if fault is None:
        reporter.samples(progress.step, samples_of(session.data.valid, session.hypotheses))
    if (decayed := decay_on_plateau(progress, settings)) is not None:
        reporter.log(decayed)
    device.trim_memory()
    clock.leave_out(time.monotonic() - began)
    return fault


def valid_loss(session: TrainingSession) -> float:
    """Return the mean negative log-likelihood of a validation target token, in nats."""
    pairs, group = session.data.valid_pairs, session.run.group
    session.model.eval()
    losses, tokens = [torch.zeros((), device=session.device)], 0
    with torch.no_grad():
        order = batching.EpochOrder(pairs, session.config.training.batch_tokens, 0, None)
        for rows in group.share(order):
            batch = padding.make_batch([pairs.src[i] for i in rows], [pairs.tgt[i] for i in rows])
            tokens += batch.tokens
            batch = batch.rounded() if session.is_static else batch
            losses.append(in_halves(session, [batch], partial(_summed_loss, session))[0])
    total: float = sum(torch.stack(losses).tolist())
    all_total, all_tokens = group.sum([total, tokens])
    return all_total / all_tokens


def _summed_loss(session: TrainingSession, parts: Sequence[padding.Batch]) -> Tensor:
    """Return the negative log-likelihood [] of the parts of a batch, in nats."""
    losses = [call_on_device(session, _loss, part).clone() for part in parts]
    return torch.stack(losses).sum()


def _loss(session: TrainingSession, batch: padding.Batch) -> Tensor:
    return batch_loss(session.model, batch).nll


def valid_bleu(session: TrainingSession) -> float:
    """Return the greedy BLEU of the validation set; keep the hypotheses in the session."""
    data, language = session.data, session.config.data.tgt_lang
    translator = session_translator(session, data.source)
    bleu, session.hypotheses = greedy_bleu(translator, data.valid, language, session.run.group)
    return bleu


def session_translator(session: TrainingSession, source: SourceProfile) -> Translator:
    """Return a translator by the weights in training that reads lines by a source profile."""
    data, config = session.data, session.config
    settings = config.decoding, config.data.max_length, session.device, source
    loaded = LoadedModel(session.engine, data.vocabularies, data.limit, *settings)
    return Translator(loaded)


def adopt_habits(session: TrainingSession) -> list[str]:
    """Adopt habits of the text that weights of another run have learned now; return notes.

    A habit is tested on the validation lines that it changes before search, at least MIN_LINES of
    them: it is adopted where their BLEU is no worse with it.
    """
    pending = pending_habits(session.data)
    notes = [_adopt_if_no_worse(session, name) for name in pending]
    return [note for note in notes if note is not None]


def _adopt_if_no_worse(session: TrainingSession, habit: str) -> str | None:
    """Adopt a pending habit if validation is no worse with it, and return a note on that."""
    data, language = session.data, session.config.data.tgt_lang
    with_habit = replace(data.source, **{habit: getattr(data.joined, habit)})
    usual, changed = (session_translator(session, source) for source in (data.source, with_habit))
    forms = zip(
        usual.source_forms(data.valid.src), changed.source_forms(data.valid.src), strict=True
    )
    rows = [row for row, (form, other_form) in enumerate(forms) if form != other_form]
    if len(rows) < MIN_LINES:
        return None
    src, tgt = data.valid.src, data.valid.tgt
    text = corpus.ParallelText([src[row] for row in rows], [tgt[row] for row in rows])
    without, with_it = (
        greedy_bleu(translator, text, language, session.run.group)[0]
        for translator in (usual, changed)
    )
    if with_it < max(without, MIN_BLEU):
        return None
    session.data = data._replace(source=with_habit)
    figures = f"BLEU {without:.1f} without, {with_it:.1f} with it"
    lines = console.counted(len(rows), "validation line")
    return f"as in the training text, {HABITS[habit]} ({lines}: {figures})"


def greedy_bleu(
    translator: Translator,
    text: corpus.ParallelText,
    tgt_lang: str,
    group: process_group.ProcessGroup = process_group.SINGLE_PROCESS,
    on_translated: Callable[[int], object] | None = None,
) -> tuple[float, list[str]]:
    """Translate by greedy search, each rank its share; return cased BLEU and hypotheses.

    Hypotheses are blank if the model computes log-probabilities that are not finite.
    """
    sources = group.share(text.src)
    try:
        translations = translator.translate(
            sources, beam_size=1, text_only=True, on_translated=on_translated
        )
        texts = [translation.text for translation in translations]
    except errors.RunError:
        texts = [""] * len(sources)
    hypotheses = group.gather_shares(texts)
    segmentation = segmentation_of(tgt_lang, [text.tgt])
    return score_by("bleu", hypotheses, text.tgt, segmentation), hypotheses


@contextmanager
def averaged_weights(session: TrainingSession) -> Iterator[None]:
    """Replace the model's weights by their averages, if any, inside the context."""
    if not session.averages:
        yield
        return
    weights = list(named_weights(session.model).values())
    in_training = [weight.clone() for weight in weights]
    torch._foreach_copy_(weights, list(session.averages.values()))
    try:
        yield
    finally:
        torch._foreach_copy_(weights, in_training)


class ValidationScores(NamedTuple):
    """Loss (nats a token), BLEU and, if it is the config's metric, chrF of a validation."""

    loss: float
    bleu: float
    chrf: float | None = None

    def figures(self) -> dict[str, float]:
        """Return the figures by their names in metrics.jsonl."""
        perplexity = math.exp(self.loss) if self.loss < 700 else math.inf
        figures = {"valid_loss": self.loss, "valid_perplexity": perplexity, "valid_bleu": self.bleu}
        return figures if self.chrf is None else {**figures, "valid_chrf": self.chrf}

    def __str__(self) -> str:
        loss, perplexity, bleu, *chrf = self.figures().values()
        text = f"loss {console.fixed(loss, 3)}, perplexity {console.fixed(perplexity, 2)}"
        text = f"{text}, BLEU {bleu:.1f}"
        return f"{text}, chrF {chrf[0]:.1f}" if chrf else text


def record(progress: Counters, settings: TrainingConfig, scores: ValidationScores) -> bool:
    """Record the validation of the current step, with finite scores; return whether it is the best.

    The better of two validations has the higher score; below the floor, and at equal scores, the
    lower loss. Any better one is the best, but patience counts it as an improvement only if it
    exceeds the last improvement by `min_improvement`; below the floor any lower loss counts.
    """
    values = {"chrf": scores.chrf, "bleu": scores.bleu, "loss": 0.0}  # the loss alone decides
    score, loss = values[settings.metric.name], scores.loss
    assert score is not None, "validation measures the metric of the config"
    best = _rank(settings, score, loss) > _rank(settings, progress.best_score, progress.best_loss)
    if best := best or progress.best_score < 0:
        progress.best_score, progress.best_loss = score, loss
        progress.best_step = progress.step
    if _improves(progress, settings, score, loss):
        progress.improved_score, progress.improved_loss = score, loss
        progress.validations_since_improvement = 0
    else:
        progress.validations_since_improvement += 1
    return best


def _improves(progress: Counters, settings: TrainingConfig, score: float, loss: float) -> bool:
    """Return whether the scores improve on those of the last improvement."""
    before, loss_before = progress.improved_score, progress.improved_loss
    if before < 0:  # the first validation
        return True
    if settings.metric.name == "loss":
        return loss < loss_before and loss_before - loss >= settings.metric.min_improvement
    if before < FLOORS[settings.metric.name] and loss < loss_before:
        return True
    better = _rank(settings, score, loss) > _rank(settings, before, loss_before)
    return better and score - before >= settings.metric.min_improvement


def _rank(settings: TrainingConfig, score: float, loss: float) -> tuple[float, float]:
    return max(score, FLOORS.get(settings.metric.name, 0.0)), -loss


def best_note(progress: Counters, settings: TrainingConfig) -> str:
    """Describe the best validation for the log."""
    if settings.metric.name == "loss":
        return f"Best validation loss {progress.best_loss:.3f}"
    name = "BLEU" if settings.metric.name == "bleu" else "chrF"
    return f"Best validation {name} {progress.best_score:.1f} (greedy)"


def decay_on_plateau(progress: Counters, settings: TrainingConfig) -> str | None:
    """Decay the rate after `patience` validations without improvement; return a note if so.

    Below MIN_DECAY of the peak the rate is not decayed again: patience then ends training.
    """
    decay, waited = settings.decay, progress.validations_since_improvement
    is_plateau = decay.name == "plateau" and waited == settings.patience
    if not is_plateau or decay.factor ** (progress.decays + 1) < MIN_DECAY:
        return None
    progress.decays += 1
    progress.validations_since_improvement = 0
    text = f"step {progress.step}: no improvement in {settings.patience} validations"
    return f"{text}; the learning rate is now {decay.factor**progress.decays:.3g} of its peak"
