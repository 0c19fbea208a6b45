"""Validation: loss, perplexity and greedy BLEU; the best weights are kept."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from seq2seq.config.schema import Config
from seq2seq.data.batching import EpochOrder, LengthLimit, make_batch
from seq2seq.data.corpus import ParallelText
from seq2seq.data.source_profile import SourceProfile
from seq2seq.data.vocabulary import Vocabularies
from seq2seq.evaluation.metrics import bleu_score
from seq2seq.evaluation.segmentation import segmentation_of
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.inference.translator import Translator
from seq2seq.model.seq2seq import named_weights
from seq2seq.runtime.device import trim_memory
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.process_group import SINGLE_PROCESS, ProcessGroup
from seq2seq.training.loss import batch_loss
from seq2seq.training.reporting import Clock, Reporter, minutes
from seq2seq.training.session import TrainingSession


def validate(session: TrainingSession, reporter: Reporter, clock: Clock) -> None:
    """Measure and report loss, perplexity and greedy BLEU, of the averaged weights if any.

    Write the weights if they are the best so far (of equal BLEU those with the lower loss; never
    with a loss that is not finite), and as a snapshot if the config keeps any.
    """
    began, progress = time.monotonic(), session.progress
    progress.validated_step = progress.step
    trim_memory()
    with averaged_weights(session):
        loss = valid_loss(session)
        bleu = valid_bleu(session)
        best = math.isfinite(loss) and (bleu, -loss) > (progress.best_bleu, -progress.best_loss)
        if best:
            progress.best_bleu, progress.best_loss = bleu, loss
            progress.best_step, progress.validations_since_best = progress.step, 0
        else:
            progress.validations_since_best += 1
        session.writer.save_weights(session, bleu, best)
    step, perplexity = progress.step, math.exp(min(loss, 700.0))
    reporter.metrics(step, {"valid_loss": loss, "valid_perplexity": perplexity, "valid_bleu": bleu})
    reporter.timing(step, {"validation_seconds": time.monotonic() - began})
    reporter.log(
        f"step {step}, epoch {progress.epoch + 1}, {minutes(clock.seconds)}: "
        f"validation loss {loss:.3f}, perplexity {perplexity:.2f}, "
        f"BLEU {bleu:.1f}{' (best so far)' if best else ''}"
    )
    trim_memory()
    clock.leave_out(time.monotonic() - began)


def valid_loss(session: TrainingSession) -> float:
    """Return the mean negative log-likelihood of a validation target token, in nats."""
    model, pairs, group = session.model.eval(), session.data.valid_pairs, session.group
    total, tokens = 0.0, 0
    with torch.no_grad():
        order = EpochOrder(pairs, session.config.training.batch_tokens, 0, None)
        for rows in group.share(order):
            batch = make_batch([pairs.src[i] for i in rows], [pairs.tgt[i] for i in rows])
            total += batch_loss(model, batch.to(session.device), 0.0).nll.item()
            tokens += len(batch.tgt_out)
    all_total, all_tokens = group.sum([total, tokens])
    return all_total / all_tokens


def valid_bleu(session: TrainingSession) -> float:
    """Return the greedy BLEU of the validation set; keep the hypotheses in the session."""
    data, config, device = session.data, session.config, session.device
    model, group = session.inference, session.group
    bleu, session.hypotheses = greedy_bleu(
        model, data.vocabularies, data.limit, data.source, config, data.valid, device, group
    )
    return bleu


def greedy_bleu(
    model: InferenceModel,
    vocabularies: Vocabularies,
    limit: LengthLimit,
    source: SourceProfile,
    config: Config,
    text: ParallelText,
    device: torch.device,
    group: ProcessGroup = SINGLE_PROCESS,
) -> tuple[float, list[str]]:
    """Translate by greedy search, each rank its share; return cased BLEU and hypotheses.

    Hypotheses are blank if the model computes log-probabilities that are not finite.
    """
    longest = config.data.max_length
    translator = Translator(model, vocabularies, limit, config.decoding, longest, device, source)
    sources = group.share(text.src)
    try:
        translations = translator.translate(sources, beam_size=1, text_only=True)
        texts = [translation.text for translation in translations]
    except RunError:
        texts = [""] * len(sources)
    hypotheses = group.gather_shares(texts)
    tokenize = segmentation_of(config.data.tgt_lang, [text.tgt]).tokenize
    return bleu_score(hypotheses, text.tgt, tokenize), hypotheses


@contextmanager
def averaged_weights(session: TrainingSession) -> Iterator[None]:
    """Replace the model's weights by their averages, if any, inside the context."""
    if not session.averages:
        yield
        return
    weights = list(named_weights(session.model).values())
    kept = [weight.clone() for weight in weights]
    torch._foreach_copy_(weights, list(session.averages.values()))
    try:
        yield
    finally:
        torch._foreach_copy_(weights, kept)
