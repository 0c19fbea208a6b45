"""Standard model of all tools, and its number of operations per token."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from seq2seq.config.schema import Config
from seq2seq.model.attention import AdditiveScore
from seq2seq.model.recurrent import RecurrentLayer
from seq2seq.model.seq2seq import Seq2Seq


class Case(NamedTuple):
    """One variant of the standard model."""

    decoder: str  # bahdanau, luong, none
    input_feeding: bool = False  # luong only
    tied: bool = False  # tied embeddings: output layer 256 instead of 512

    @property
    def name(self) -> str:
        """Name of the variant in reports."""
        feeding = ", input feeding" if self.input_feeding else ""
        score = {"bahdanau": "additive", "luong": "general", "none": "no attention"}[self.decoder]
        return f"{self.decoder}, {score}{feeding}{', tied' if self.tied else ''}"


CASES = [
    Case(decoder, feeding, tied)
    for tied in (False, True)
    for decoder, feeding in (
        ("bahdanau", False),
        ("luong", False),
        ("luong", True),
        ("none", False),
    )
]


def standard(case: Case, data: Path, run_dir: Path, precision: str, **training: Any) -> Config:
    """Config: joint BPE 8k, embeddings 256, encoder 2 x 256, decoder 512, attention 256."""
    model: dict[str, Any] = {
        "decoder": case.decoder,
        "embedding_size": 256,
        "hidden_size": 512,
        "dropout": 0.3,
        "tie_embeddings": case.tied,
    }
    if case.decoder == "bahdanau":
        model["attention_size"] = 256
    if case.decoder == "luong":
        model |= {"score": "general", "input_feeding": case.input_feeding}
    files = {
        split: {"src": data / f"{name}.en.gz", "tgt": data / f"{name}.de.gz"}
        for split, name in (("train", "train"), ("valid", "val"))
    }
    tree = {
        "name": "benchmark",
        "run_dir": run_dir,
        "data": {"src_lang": "en", "tgt_lang": "de", **files},
        "vocabulary": {"type": "bpe", "size": 8000},
        "model": model,
        "training": {"batch_tokens": 4096, "precision": precision, "max_epochs": 1, **training},
    }
    return Config.model_validate(tree)


class Work(NamedTuple):
    """Floating-point operations of matrix products, forward and backward."""

    src_token: float
    tgt_token: float
    pair_of_tokens: float  # attention, for each combination of source and target token


def work(model: Seq2Seq) -> Work:
    """Count operations: a weight [out, in] costs 2 x out x in forward, and twice that backward."""
    encoder = 6 * _weights(model.encoder)
    projection = 6 * model.projection.weight.numel()
    score = getattr(model.decoder, "score", None)
    decoder = 6 * sum(_weights(part) for name, part in model.named_children() if name == "decoder")
    if score is None:
        return Work(encoder, decoder + projection, 0)
    per_source = [part for name, part in score.named_children() if name != "query_projection"]
    keys = 6 * sum(_weights(part) for part in per_source)
    scored = score.energy.in_features if isinstance(score, AdditiveScore) else score.context_size
    return Work(encoder + keys, decoder - keys + projection, 6 * (scored + score.context_size))


def _weights(module: nn.Module) -> int:
    """Count the weights that multiply every token; `initial_hidden` multiplies none."""
    count = 0
    for name, part in module.named_modules():
        if isinstance(part, RecurrentLayer):
            count += sum(getattr(part, name).numel() for name in part.weight_names)
        elif isinstance(part, nn.Linear) and name != "initial_hidden" and part.out_features > 1:
            count += part.weight.numel()
    return count
