"""The `training` section of a config: length, optimisation and regularisation."""

from typing import Annotated, Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
)

from seq2seq.config.compound import Named
from seq2seq.config.compound_keys import (
    BATCH_TOKENS,
    DECAY,
    LOSSES,
    METRIC,
    OPTIMIZER,
    SCHEDULE,
    BatchTokens,
    LossWeights,
)
from seq2seq.config.fields import (
    Count,
    CountOrZero,
    Fraction,
    Positive,
    Section,
    key,
)


class TrainingConfig(Section):
    """Length of training, optimisation and regularisation; a step is one optimizer update."""

    max_epochs: Count | None = key(None, "maximum epochs (passes over the training text)")
    max_steps: Count | None = key(None, "maximum steps")
    max_minutes: Positive | None = key(None, "maximum wall time, validation included")
    optimizer: Annotated[Named, OPTIMIZER] = key(
        Named("adam", 0.0),
        "adam, sgd, or adamw with decoupled weight decay; with its coefficient: {adamw: 0.01}",
    )
    learning_rate: Positive = key(1e-3, "peak learning rate")
    warmup_steps: CountOrZero = key(0, "steps of linear warm-up of the learning rate")
    decay: Annotated[Named, DECAY] = key(
        Named("constant"),
        "learning rate after warm-up; linear, cosine: to 0 at max_epochs or max_steps, else "
        "max_minutes; plateau: halved after patience validations, or times {plateau: 0.7}",
    )
    clip_norm: Positive = key(1.0, "maximum norm of the gradient")
    label_smoothing: Fraction = key(0.1, "probability mass spread over the vocabulary")
    losses: Annotated[LossWeights, LOSSES] = key(
        LossWeights(0.0, 0.0, 0.0),
        "weights of further losses: consistency (R-Drop, doubles the cost), coverage (See et al., "
        "2017; needs score: coverage), guided_alignment (of attention against "
        "data.train.alignment)",
    )
    batch_tokens: Annotated[BatchTokens, BATCH_TOKENS] = key(
        BatchTokens(1500),
        "target tokens per batch, padding included; with the batches per step: {tokens: 1500, "
        "accumulate: 4}",
    )
    batch_workers: CountOrZero | None = key(
        None,
        "processes that make batches ahead; null: up to 4 with a GPU, else none; the batches are "
        "the same",
    )
    average: Fraction = key(0.0, "decay per step of a moving average of the weights; 0: off")
    validate_every: Count | None = key(None, "steps between validations; null: one per epoch")
    save_every: Positive | None = key(
        None, "minutes between saved states, besides those at validations; null: none"
    )
    keep: CountOrZero = key(0, "checkpoints of the latest validations to keep")
    metric: Annotated[Named, METRIC] = key(
        Named("bleu", 0.0),
        "validation metric of the best weights, patience and plateau: bleu, chrf or loss; with the "
        "smallest improvement that counts: {bleu: 0.2}",
    )
    patience: Count | None = key(
        None, "validations without improvement until training stops, or decays on a plateau"
    )
    precision: Literal["float32", "bf16", "fp16", "auto"] = key(
        "auto",
        "bf16, fp16: mixed, with float32 weights; auto: bf16 where it is faster, else float32",
    )
    log_every: Annotated[Count, Field(le=10_000)] = key(50, "steps between log lines")
    scheduled_sampling: Annotated[Named, SCHEDULE] | None = key(
        None,
        "decay of the probability of true decoder inputs, with its constant k in steps, such as "
        "{linear: 5000}, exponential or inverse_sigmoid; null: teacher forcing",
    )

    @field_validator("max_minutes")
    @classmethod
    def _check_end(cls, value: object, info: ValidationInfo) -> object:
        limits = [info.data.get(name, "invalid") for name in ("max_epochs", "max_steps")]
        if limits == [None, None] and value is None:
            raise ValueError("set at least one of max_epochs, max_steps and max_minutes")
        return value

    @field_validator("patience")
    @classmethod
    def _check_plateau(cls, patience: int | None, info: ValidationInfo) -> int | None:
        if patience is None and info.data.get("decay") == "plateau":
            raise ValueError("decay plateau needs patience, the validations without improvement")
        return patience

    @property
    def accumulate(self) -> int:
        """Return the number of batches per step."""
        return self.batch_tokens.accumulate

    @property
    def weight_decay(self) -> float:
        """Return the coefficient of weight decay."""
        return float(self.optimizer.parameter)

    @property
    def decay_factor(self) -> float:
        """Return the factor on the learning rate at each plateau; 1 without."""
        return float(self.decay.parameter) if self.decay == "plateau" else 1.0

    @property
    def min_improvement(self) -> float:
        """Return the smallest improvement of the metric that counts for patience."""
        return float(self.metric.parameter)
