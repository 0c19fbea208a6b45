"""Measure search with and without a lexical shortlist, for a config with random weights.

Only speed is measured, so training is not needed: the vocabulary and the lexical table are those of
the config's training text, and each translation has the length of its reference.

    python scripts/measure_shortlist.py configs/tatoeba-en-de.yaml vocabulary.size=32000
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from seq2seq.config.schema import load_config
from seq2seq.data.corpus import read_pairs
from seq2seq.data.lexical_table import train_lexical_table
from seq2seq.data.training_data import training_data
from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.engines.torch.engine import Model, TorchEngine
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.search.search import search
from seq2seq.inference.search.sentences import Request
from seq2seq.inference.shortlist import Shortlist
from seq2seq.inference.shortlist_search import ShortlistedModel, projection_of
from seq2seq.runs.checkpoint import new_model
from seq2seq.runtime.device import choose_device

ROUNDS = 3
WARM_UP = (40, 70)  # sentences, after which the sizes of tiles are known
ALONE = 25  # sentences searched one by one


def main() -> None:
    """Print tokens per CPU second, without and with lists in turn, and times of one sentence."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*", default=[])
    parser.add_argument("--lines", type=int, default=160, help="last lines of the validation text")
    options = parser.parse_args()
    config = load_config(options.config, options.overrides)
    choose_device("cpu")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with TemporaryDirectory() as folder, training_data(config.data.train, Path(folder)) as data:
        vocabularies = data.vocabularies(config.vocabulary)
        pairs = data.pairs(vocabularies, config.data.max_length)
        sizes = len(vocabularies.src), len(vocabularies.tgt)
        table = train_lexical_table(pairs.src, pairs.tgt, *sizes)
    valid = read_pairs(config.data.valid)
    sources = vocabularies.src.encode(valid.src[-options.lines :])
    limits = (len(each) for each in vocabularies.tgt.encode(valid.tgt[-options.lines :]))
    requests = [Request(*each) for each in zip(sources, limits, strict=True)]
    network = new_model(config, vocabularies).eval().requires_grad_(False)
    network.projection.bias[EOS_ID] = -100  # no translation ends before its limit
    own = Shortlist.of(table, vocabularies)
    models = network, ShortlistedModel(network, own, *projection_of(network))
    for beam in (1, 5):
        _measure(models, requests, beam)


def _measure(models: Sequence[Model], requests: Sequence[Request], beam: int) -> None:
    for count in WARM_UP:
        for model in models:
            _seconds(model, requests[:count], beam)
    tokens = sum(each.limit + 1 for each in requests)
    for _ in range(ROUNDS):
        before, after = (tokens / _seconds(model, requests, beam) for model in models)
        print(f"beam {beam}: {before:.0f} -> {after:.0f} tokens/s x {after / before:.2f}")
    alone: tuple[list[float], list[float]] = ([], [])
    for request in requests[:ALONE]:
        for model, found in zip(models, alone, strict=True):
            found.append(1000 * _seconds(model, [request], beam))
    halves = " -> ".join(f"{np.median(each):.1f}" for each in alone)
    print(f"beam {beam}: a sentence alone {halves} ms", flush=True)


def _seconds(model: Model, requests: Sequence[Request], beam: int) -> float:
    options = SearchOptions(beam, return_scores=False, return_attention=False)
    began = time.process_time()
    search(TorchEngine(model, torch.device("cpu")), requests, options)
    return time.process_time() - began


if __name__ == "__main__":
    main()
