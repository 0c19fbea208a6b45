"""Runs of the smallest sizes, with random weights."""

from pathlib import Path
from typing import Any

from seq2seq.config.schema import Config
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Vocabularies

DECODERS = ("bahdanau", "luong", "none")


def tiny_config(run_dir: Path, decoder: str) -> Config:
    """Return a config of the smallest sizes; its data files do not exist."""
    files = {"src": "text.src", "tgt": "text.tgt"}
    tree: dict[str, Any] = {
        "name": f"tiny-{decoder}",
        "run_dir": str(run_dir),
        "data": {
            "src_lang": "xx",
            "tgt_lang": "yy",
            "train": files,
            "valid": files,
            "max_length": 40,
        },
        "vocabulary": {"size": 380},
        "model": {"decoder": decoder, "embedding_size": 12, "hidden_size": 20, "dropout": 0.25},
        "training": {"max_epochs": 1, "precision": "float32"},
        "decoding": {"beam_size": 3},
    }
    return Config.model_validate(tree)


def create_tiny_run(config: Config, vocabularies: Vocabularies, seed: int) -> Path:
    """Write the run of a config with large random weights; EOS is likely."""
    import torch

    from seq2seq.data.length_limit import LengthLimit
    from seq2seq.model.seq2seq import named_weights
    from seq2seq.runs.checkpoint import create_run, new_model, save_weights, weights_header
    from seq2seq.runs.graphs import store_engine
    from seq2seq.runs.layout import BEST
    from seq2seq.runs.run_config import provenance_of

    run = Path(config.run_dir)
    create_run(run, config, vocabularies)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        weights = {
            name: 3 * weight
            for name, weight in named_weights(new_model(config, vocabularies)).items()
        }
    weights["projection.bias"][EOS_ID] = 3
    origin = provenance_of(config, vocabularies, model_keys_only=True)
    save_weights(run / BEST, weights, weights_header(LengthLimit(0.75, 3), 7, 1.25, origin))
    store_engine(run)
    return run


def copy_with_vocabularies(run: Path, target: Path, vocabularies: Vocabularies) -> None:
    """Copy a run with its weights, but with another vocabulary."""
    import torch

    from seq2seq.model.seq2seq import named_weights
    from seq2seq.runs.checkpoint import create_run, load_model, save_weights, weights_header
    from seq2seq.runs.layout import BEST
    from seq2seq.runs.run_config import provenance_of

    loaded = load_model(run, torch.device("cpu"))
    create_run(target, loaded.config, vocabularies)
    origin = provenance_of(loaded.config, vocabularies, model_keys_only=True)
    header = weights_header(loaded.limit, 7, 1.25, origin)
    save_weights(target / BEST, named_weights(loaded.model), header)
