"""The sections `training` and `decoding` of a config."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from seq2seq.config import fields
from seq2seq.config.fields import Count, CountOrZero, Fraction, NotNegative, Positive, key


class OptimizerConfig(fields.Shorthand):
    """Optimizer and its weight decay."""

    name: Literal["adam", "adamw", "sgd"] = key("adam", "adamw decouples weight decay from Adam")
    weight_decay: NotNegative = key(0.0, "coefficient of weight decay; 0: off")


class DecayConfig(fields.Shorthand):
    """Learning rate after warm-up."""

    TAKES_SECOND: ClassVar[tuple[str, ...]] = ("plateau",)

    name: Literal["constant", "inverse_sqrt", "linear", "cosine", "plateau"] = key(
        "constant", "linear, cosine: to 0 at max_epochs or max_steps, else max_minutes"
    )
    factor: Fraction = key(0.5, "on the learning rate at each plateau")


class MetricConfig(fields.Shorthand):
    """Validation metric of the best weights, and the improvement that counts."""

    name: Literal["bleu", "chrf", "loss"] = key("bleu", "metric of the validation text")
    min_improvement: NotNegative = key(0.0, "smallest improvement that counts for patience")


class ScheduledSamplingConfig(fields.Shorthand):
    """Decay of the probability of true decoder inputs (Bengio et al., 2015)."""

    schedule: Literal["linear", "exponential", "inverse_sigmoid"] = Field(description="its form")
    steps: Count = Field(description="its constant k, in steps")


class LossesConfig(fields.Section):
    """Weights of the losses beside cross-entropy; 0: off."""

    consistency: NotNegative = key(0.0, "R-Drop (Liang et al., 2021), which doubles the cost")
    coverage: NotNegative = key(0.0, "coverage loss of See et al. (2017); needs score: coverage")
    guided_alignment: NotNegative = key(0.0, "of attention against data.train.alignment")


class TrainingConfig(fields.Section):
    """Length of training, optimisation and regularisation; a step is one optimizer update."""

    max_epochs: Count | None = key(None, "maximum epochs (passes over the training text)")
    max_steps: Count | None = key(None, "maximum steps")
    max_minutes: Positive | None = key(None, "maximum wall time, validation included")
    optimizer: OptimizerConfig = key(
        "adam",
        "adam, sgd, or adamw with decoupled weight decay; with its coefficient: {adamw: 0.01}",
    )
    learning_rate: Positive = key(1e-3, "peak learning rate")
    warmup_steps: CountOrZero = key(0, "steps of linear warm-up of the learning rate")
    decay: DecayConfig = key(
        "constant",
        "learning rate after warm-up; linear, cosine: to 0 at max_epochs or max_steps, else "
        "max_minutes; plateau: halved after patience validations, or times {plateau: 0.7}",
    )
    clip_norm: Positive = key(1.0, "maximum norm of the gradient")
    label_smoothing: Fraction = key(0.1, "probability mass spread over the vocabulary")
    losses: LossesConfig = key(LossesConfig(), "weights of further losses")
    batch_tokens: Count = key(1500, "target tokens per batch, padding included")
    accumulate: Count = key(1, "batches per step; rarely needed: where memory is short")
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
    metric: MetricConfig = key(
        "bleu",
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
    scheduled_sampling: ScheduledSamplingConfig | None = key(
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
        decay = info.data.get("decay")
        if patience is None and decay is not None and decay.name == "plateau":
            raise ValueError("decay plateau needs patience, the validations without improvement")
        return patience
