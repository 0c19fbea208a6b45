"""Validation: loss, perplexity and greedy BLEU; the best weights are kept."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from seq2seq.data import batching, corpus, padding
from seq2seq.evaluation.metrics import score_by
from seq2seq.evaluation.segmentation import segmentation_of
from seq2seq.inference.loaded_model import LoadedModel
from seq2seq.inference.translator import Translator
from seq2seq.model.seq2seq import named_weights
from seq2seq.runs.tensor_file import non_finite
from seq2seq.runtime import console, device, errors, process_group
from seq2seq.text.joined_profile import HABITS
from seq2seq.text.source_profile import SourceProfile
from seq2seq.training.callbacks import samples_of
from seq2seq.training.clock import Clock
from seq2seq.training.divergence import loss_fault
from seq2seq.training.loss import batch_loss
from seq2seq.training.reporting import Reporter
from seq2seq.training.selection import ValidationScores, decay_on_plateau, record
from seq2seq.training.session import TrainingSession, call_on_device, pending_habits
from seq2seq.training.step import in_halves

MIN_LINES, MIN_BLEU = 10, 1.0  # of validation lines that show whether a habit is learned


def validate(session: TrainingSession, reporter: Reporter, clock: Clock) -> str | None:
    """Measure and report loss, perplexity and greedy BLEU, of the averaged weights if any.

    Write the weights if they are the best so far, and as a snapshot if the config keeps any. If
    loss or weights are not finite, write nothing, and return the reason.
    """
    began = time.monotonic()
    progress = session.progress
    settings = session.config.training
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
    pairs = session.data.valid_pairs
    group = session.run.group
    session.model.eval()
    losses = [torch.zeros((), device=session.device)]
    tokens = 0
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
    data = session.data
    language = session.config.data.tgt_lang
    translator = session_translator(session, data.source)
    bleu, session.hypotheses = greedy_bleu(translator, data.valid, language, session.run.group)
    return bleu


def session_translator(session: TrainingSession, source: SourceProfile) -> Translator:
    """Return a translator by the weights in training that reads lines by a source profile."""
    data = session.data
    config = session.config
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
    data = session.data
    language = session.config.data.tgt_lang
    with_habit = replace(data.source, **{habit: getattr(data.joined, habit)})
    usual_translator, changed_translator = (
        session_translator(session, source) for source in (data.source, with_habit)
    )
    forms = zip(
        usual_translator.source_forms(data.valid.src),
        changed_translator.source_forms(data.valid.src),
        strict=True,
    )
    rows = [row for row, (form, other_form) in enumerate(forms) if form != other_form]
    if len(rows) < MIN_LINES:
        return None
    src = data.valid.src
    tgt = data.valid.tgt
    text = corpus.ParallelText([src[row] for row in rows], [tgt[row] for row in rows])
    without, with_it = (
        greedy_bleu(translator, text, language, session.run.group)[0]
        for translator in (usual_translator, changed_translator)
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
