"""How good the model is now: loss, perplexity and greedy BLEU of the validation set."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from seq2seq.config.schema import Config
from seq2seq.data.batching import epoch_order, make_batch
from seq2seq.data.vocabulary import Vocabularies
from seq2seq.evaluation.metrics import bleu_score, tokenizer_of
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.inference.translator import Translator
from seq2seq.runs.checkpoint import LengthLimit, own_weights, save_best
from seq2seq.runs.provenance import provenance_of
from seq2seq.runs.snapshots import save_snapshot
from seq2seq.runtime.device import trim_memory
from seq2seq.runtime.process_group import ProcessGroup
from seq2seq.training.loss import batch_loss
from seq2seq.training.reporting import Clock, Reporter
from seq2seq.training.session import Run


def validate(run: Run, reporter: Reporter, clock: Clock) -> None:
    """Validation loss, perplexity and greedy BLEU, of the averages if any.

    Keeps the weights if they are the best (of equal BLEU those of less loss), and as a snapshot
    where the config asks for it.
    """
    began, progress = time.monotonic(), run.progress
    progress.validated_step = progress.step
    trim_memory()
    with averaged(run):
        loss = valid_loss(run)
        bleu = valid_bleu(run)
        better = (bleu, -loss) > (progress.best_bleu, -progress.best_loss)
        if better:
            progress.best_bleu, progress.best_loss = bleu, loss
            progress.best_step, progress.validations_since_best = progress.step, 0
        else:
            progress.validations_since_best += 1
        if run.group.is_main:
            _keep_weights(run, bleu, better)
    perplexity = math.exp(min(loss, 700.0))
    reporter.metrics(
        progress.step, {"valid_loss": loss, "valid_perplexity": perplexity, "valid_bleu": bleu}
    )
    reporter.timing(progress.step, {"validation_seconds": time.monotonic() - began})
    reporter.say(
        f"update {progress.step}, epoch {progress.epoch + 1}, {clock.now()}: "
        f"validation loss {loss:.3f}, perplexity {perplexity:.2f}, "
        f"BLEU {bleu:.1f}{' (best so far)' if better else ''}"
    )
    trim_memory()
    clock.leave_out(time.monotonic() - began)


def _keep_weights(run: Run, bleu: float, better: bool) -> None:
    folder, keep, step = run.config.run_dir, run.config.training.keep, run.progress.step
    weights = own_weights(run.model)
    provenance = provenance_of(run.config, run.vocabularies, model_keys_only=True)
    if better:
        save_best(folder, weights, run.limit, run.progress, provenance)
    if keep:
        save_snapshot(folder, weights, run.limit, step, bleu, provenance, keep)


def valid_loss(run: Run) -> float:
    """Mean negative log-likelihood of a validation target token, nats."""
    model, pairs = run.model.eval(), run.valid_pairs
    total, tokens = 0.0, 0
    with torch.no_grad():
        order = epoch_order(pairs, run.config.training.batch_tokens, 0, None)
        for rows in run.group.share(order):
            batch = make_batch([pairs.src[i] for i in rows], [pairs.tgt[i] for i in rows])
            total += batch_loss(model, batch.to(run.device), 0.0).item()
            tokens += len(batch.tgt_out)
    all_total, all_tokens = run.group.sum([total, tokens])
    return all_total / all_tokens


def valid_bleu(run: Run) -> float:
    """Return the greedy BLEU of the validation set and keep the translations."""
    bleu, run.hypotheses = greedy_bleu(
        run.inference,
        run.vocabularies,
        run.limit,
        run.config,
        run.valid.src,
        run.valid.tgt,
        run.device,
        run.group,
    )
    return bleu


def greedy_bleu(
    model: InferenceModel,
    vocabularies: Vocabularies,
    limit: LengthLimit,
    config: Config,
    sources: Sequence[str],
    references: Sequence[str],
    device: torch.device,
    group: ProcessGroup | None = None,
) -> tuple[float, list[str]]:
    """Translate by greedy search, shared by a group; return the cased BLEU and the translations."""
    group = group or ProcessGroup()
    longest = config.data.max_length
    translator = Translator(model, vocabularies, limit, config.decoding, longest, device)
    own = group.share(sources)
    translations = translator.translate(own, beam_size=1, text_only=True)
    hypotheses = group.gather_shares([translation.text for translation in translations])
    return bleu_score(hypotheses, references, tokenizer_of(config.data.tgt_lang)), hypotheses


@contextmanager
def averaged(run: Run) -> Iterator[None]:
    """Put the averages in the place of the weights for a while."""
    if not run.averages:
        yield
        return
    weights = list(own_weights(run.model).values())
    kept = [weight.clone() for weight in weights]
    torch._foreach_copy_(weights, list(run.averages.values()))
    try:
        yield
    finally:
        torch._foreach_copy_(weights, kept)
