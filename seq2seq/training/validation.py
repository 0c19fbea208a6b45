"""Validation: loss, perplexity and greedy BLEU; the best weights are kept."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from seq2seq.data.batching import EpochOrder
from seq2seq.data.corpus import ParallelText
from seq2seq.data.padding import Batch, make_batch
from seq2seq.evaluation.metrics import bleu_score, chrf_score
from seq2seq.evaluation.segmentation import segmentation_of
from seq2seq.inference.translator import Translator
from seq2seq.model.seq2seq import named_weights
from seq2seq.runs.tensor_file import non_finite
from seq2seq.runtime.device import trim_memory
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.process_group import SINGLE_PROCESS, ProcessGroup
from seq2seq.training.callbacks import samples_of
from seq2seq.training.clock import Clock, minutes
from seq2seq.training.divergence import loss_fault
from seq2seq.training.loss import batch_loss
from seq2seq.training.reporting import Reporter
from seq2seq.training.selection import ValidationScores, decay_on_plateau, record
from seq2seq.training.session import TrainingSession, call_on_device


def validate(session: TrainingSession, reporter: Reporter, clock: Clock) -> str | None:
    """Measure and report loss, perplexity and greedy BLEU, of the averaged weights if any.

    Write the weights if they are the best so far, and as a snapshot if the config keeps any. If
    loss or weights are not finite, write nothing, and return the reason.
    """
    began, progress, settings = time.monotonic(), session.progress, session.config.training
    progress.validated_step = progress.step
    trim_memory()
    with averaged_weights(session):
        scores = ValidationScores(valid_loss(session), valid_bleu(session))
        if settings.metric.name == "chrf":
            chrf = chrf_score(session.hypotheses, session.data.valid.tgt)
            scores = scores._replace(chrf=chrf)
        # Weights with a fault can never be the best.
        fault = loss_fault("validation", scores.loss) or non_finite(named_weights(session.model))
        best = fault is None and record(progress, settings, scores)
        if fault is None:
            session.writer.save_weights(session, scores.bleu, best)
    reporter.metrics(progress.step, scores.figures())
    reporter.timing(progress.step, {"validation_seconds": time.monotonic() - began})
    reporter.log(
        f"step {progress.step}, epoch {progress.epoch + 1}, {minutes(clock.seconds)}: "
        f"validation {scores}{' (best so far)' if best else ''}"
    )
    if fault is None:
        reporter.samples(progress.step, samples_of(session.data.valid, session.hypotheses))
    if (decayed := decay_on_plateau(progress, settings)) is not None:
        reporter.log(decayed)
    trim_memory()
    clock.leave_out(time.monotonic() - began)
    return fault


def valid_loss(session: TrainingSession) -> float:
    """Return the mean negative log-likelihood of a validation target token, in nats."""
    pairs, group = session.data.valid_pairs, session.group
    session.model.eval()
    losses, tokens = [torch.zeros((), device=session.device)], 0
    with torch.no_grad():
        order = EpochOrder(pairs, session.config.training.batch_tokens, 0, None)
        for rows in group.share(order):
            batch = make_batch([pairs.src[i] for i in rows], [pairs.tgt[i] for i in rows])
            tokens += batch.tokens
            batch = batch.rounded() if session.is_static else batch
            losses.append(call_on_device(session, _summed_loss, batch).clone())
    total: float = sum(torch.stack(losses).tolist())
    all_total, all_tokens = group.sum([total, tokens])
    return all_total / all_tokens


def _summed_loss(session: TrainingSession, batch: Batch) -> Tensor:
    """Return the negative log-likelihood [] of a batch, in nats."""
    return batch_loss(session.model, batch).nll


def valid_bleu(session: TrainingSession) -> float:
    """Return the greedy BLEU of the validation set; keep the hypotheses in the session."""
    data, config = session.data, session.config
    translator = Translator(
        session.engine,
        data.vocabularies,
        data.limit,
        config.decoding,
        config.data.max_length,
        session.device,
        data.source,
    )
    language, group = config.data.tgt_lang, session.group
    bleu, session.hypotheses = greedy_bleu(translator, data.valid, language, group)
    return bleu


def greedy_bleu(
    translator: Translator,
    text: ParallelText,
    tgt_lang: str,
    group: ProcessGroup = SINGLE_PROCESS,
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
    except RunError:
        texts = [""] * len(sources)
    hypotheses = group.gather_shares(texts)
    tokenize = segmentation_of(tgt_lang, [text.tgt]).tokenize
    return bleu_score(hypotheses, text.tgt, tokenize), hypotheses


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
