"""Selection of the best weights by a metric, which also decides on patience and decay on a plateau.

Close to zero BLEU and chrF are noise: below a floor the validation loss decides.
"""

import math
from typing import NamedTuple

from seq2seq.config.schema import TrainingConfig
from seq2seq.runs.run_folder import Counters
from seq2seq.runtime import console

FLOORS = {"bleu": 2.0, "chrf": 20.0}  # percentage points
MIN_DECAY = 0.01  # share of the peak below which a plateau ends training


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
    score = values[settings.metric.name]
    loss = scores.loss
    assert score is not None, "validation measures the metric of the config"
    best = _rank(settings, score, loss) > _rank(settings, progress.best_score, progress.best_loss)
    if best := best or progress.best_score < 0:
        progress.best_score = score
        progress.best_loss = loss
        progress.best_step = progress.step
    if _improves(progress, settings, score, loss):
        progress.improved_score = score
        progress.improved_loss = loss
        progress.validations_since_improvement = 0
    else:
        progress.validations_since_improvement += 1
    return best


def _improves(progress: Counters, settings: TrainingConfig, score: float, loss: float) -> bool:
    """Return whether the scores improve on those of the last improvement."""
    score_before = progress.improved_score
    loss_before = progress.improved_loss
    if score_before < 0:  # the first validation
        return True
    if settings.metric.name == "loss":
        return loss < loss_before and loss_before - loss >= settings.metric.min_improvement
    if score_before < FLOORS[settings.metric.name] and loss < loss_before:
        return True
    better = _rank(settings, score, loss) > _rank(settings, score_before, loss_before)
    return better and score - score_before >= settings.metric.min_improvement


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
    decay = settings.decay
    waited = progress.validations_since_improvement
    is_plateau = decay.name == "plateau" and waited == settings.patience
    if not is_plateau or decay.factor ** (progress.decays + 1) < MIN_DECAY:
        return None
    progress.decays += 1
    progress.validations_since_improvement = 0
    text = f"step {progress.step}: no improvement in {settings.patience} validations"
    return f"{text}; the learning rate is now {decay.factor**progress.decays:.3g} of its peak"
