"""Search speed of CTranslate2 with a Transformer of random weights, at a fixed output length.

    DIR/ct2/bin/python ctranslate2_speed.py MODEL SOURCES float32|int8 BEAM LENGTH THREADS

Runs in an environment of its own and prints a JSON object. SOURCES has the token ids of a sentence
in each line. MODEL is written if it does not exist: a Transformer-Tiny of 4 + 4 layers of 128, with
4 heads, feed-forward layers of 256 and a vocabulary of 8,000. Random weights are as fast as trained
ones, but do not end sentences, so that all have LENGTH tokens.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import ctranslate2  # type: ignore[import-not-found]
import numpy as np
from ctranslate2.specs import TransformerSpec  # type: ignore[import-not-found]
from numpy.typing import NDArray

LAYERS, SIZE, FEED_FORWARD, HEADS, VOCABULARY = 4, 128, 256, 4, 8000
BATCH = 100  # sentences; its fastest of 32, 100 and 300
ALONE = 300  # sentences translated one by one
SPECIAL = ["<unk>", "<s>", "</s>"]


def main(model: str, sources: str, precision: str, *numbers: str) -> None:
    """Translate all sources in batches and some one by one; print the figures."""
    beam, length, threads = map(int, numbers)
    if not any(Path(model).glob("*.bin")):
        write_model(Path(model))
    translator = ctranslate2.Translator(
        model, device="cpu", compute_type=precision, inter_threads=1, intra_threads=threads
    )
    lines = Path(sources).read_text(encoding="utf-8").splitlines()
    sentences = [[f"t{i}" for i in line.split()] + ["</s>"] for line in lines]

    def seconds(batch: list[list[str]]) -> float:
        started = time.perf_counter()
        translator.translate_batch(
            batch,
            beam_size=beam,
            max_batch_size=BATCH,
            min_decoding_length=length,
            max_decoding_length=length,
        )
        return time.perf_counter() - started

    seconds(sentences[:BATCH])  # warm up the kernels
    elapsed = seconds(sentences)
    alone = [1000 * seconds([sentence]) for sentence in sentences[:ALONE]]
    figures = {
        "tokens": length * len(sentences) / elapsed,
        "median_ms": statistics.median(alone),
        "p95_ms": statistics.quantiles(alone, n=20)[-1],
    }
    print(json.dumps(figures))


def write_model(folder: Path) -> None:
    """Write the Transformer with weights drawn from a normal distribution."""
    generator = np.random.default_rng(0)

    def fill_linear(layer: Any, outputs: int, inputs: int) -> None:
        layer.weight = _normal(generator, outputs, inputs)
        layer.bias = np.zeros(outputs, np.float32)

    def fill_norm(layer: Any) -> None:
        layer.gamma, layer.beta = np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32)

    spec = TransformerSpec.from_config((LAYERS, LAYERS), HEADS, pre_norm=True)
    for side in (spec.encoder, spec.decoder):
        embeddings = side.embeddings
        (embeddings[0] if isinstance(embeddings, list) else embeddings).weight = _normal(
            generator, VOCABULARY, SIZE
        )
        fill_norm(side.layer_norm)
        for layer in side.layer:
            fill_linear(layer.self_attention.linear[0], 3 * SIZE, SIZE)
            fill_linear(layer.self_attention.linear[1], SIZE, SIZE)
            fill_norm(layer.self_attention.layer_norm)
            if side is spec.decoder:
                fill_linear(layer.attention.linear[0], SIZE, SIZE)
                fill_linear(layer.attention.linear[1], 2 * SIZE, SIZE)
                fill_linear(layer.attention.linear[2], SIZE, SIZE)
                fill_norm(layer.attention.layer_norm)
            fill_linear(layer.ffn.linear_0, FEED_FORWARD, SIZE)
            fill_linear(layer.ffn.linear_1, SIZE, FEED_FORWARD)
            fill_norm(layer.ffn.layer_norm)
    fill_linear(spec.decoder.projection, VOCABULARY, SIZE)
    tokens = SPECIAL + [f"t{i}" for i in range(VOCABULARY - len(SPECIAL))]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _normal(generator: np.random.Generator, outputs: int, inputs: int) -> NDArray[np.float32]:
    values: NDArray[np.float32] = generator.standard_normal((outputs, inputs), np.float32)
    return values / np.float32(inputs**0.5)


if __name__ == "__main__":
    main(*sys.argv[1:])
