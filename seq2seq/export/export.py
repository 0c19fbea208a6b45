"""Write a run folder, or several as an ensemble, as a folder that ONNX Runtime translates with."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from seq2seq import __version__
from seq2seq.config.schema import DecodingConfig
from seq2seq.data.vocabulary.files import checksums_of, save_vocabularies
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from seq2seq.export.decoder import decoder_graph
from seq2seq.export.encoder import encoder_graph
from seq2seq.export.graph import INT, Graph
from seq2seq.inference.loaded_model import check_ensemble
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.engine_folder import FORMAT
from seq2seq.runs.exported_files import DESCRIPTION, TOPK, VOCABULARY
from seq2seq.runs.run_config import read_source_profile
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import atomic_write, write_errors

_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}


def export_runs(runs: Sequence[Path], folder: Path, int8: bool = False) -> list[Path]:
    """Write the graphs, the vocabularies and their description; return the files.

    The description is written last: a folder without it is no exported model. Raises UserError if
    the folder exists and is not empty, if the runs do not fit together, or if a model has no ONNX
    form.
    """
    _check_empty(folder)
    loaded = [load_model(run, torch.device("cpu")) for run in runs]
    _, vocabularies, limit, config = loaded[0]
    checksums, graphs, models = checksums_of(vocabularies), {TOPK: _topk_graph()}, []
    for number, (run, (model, own, _, other)) in enumerate(zip(runs, loaded, strict=True), 1):
        same = checksums_of(own) == checksums
        check_ensemble(run, runs[0], same, other.data.direction, config.data.direction)
        suffix = f"-{number}" if len(runs) > 1 else ""
        files = {each: f"{each}{suffix}.onnx" for each in ("encoder", "decoder")}
        graphs[files["encoder"]] = encoder_graph(model, int8)
        graphs[files["decoder"]] = decoder_graph(model, int8)
        models.append(files)
    with _filled(folder, [*graphs, VOCABULARY, DESCRIPTION]):
        written = {name: _write(folder / name, graph) for name, graph in graphs.items()}
        save_vocabularies(vocabularies, folder / VOCABULARY)
        description = {
            "format": FORMAT,
            "seq2seq": __version__,
            "src_lang": config.data.src_lang,
            "tgt_lang": config.data.tgt_lang,
            "models": models,
            "int8": int8,
            "pad_id": PAD_ID,
            "unk_id": UNK_ID,
            "bos_id": BOS_ID,
            "eos_id": EOS_ID,
            "limit": asdict(limit),
            "max_length": config.data.max_length,
            "decoding": config.decoding.model_dump(mode="json"),
            "decoding_schema": _schema(),
            "source": asdict(read_source_profile(runs[0])),
            "vocabularies": checksums,
            "sha256": written,
        }
        text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        atomic_write(folder / DESCRIPTION, text.encode())
    return [folder / DESCRIPTION, *(folder / name for name in written), folder / VOCABULARY]


def _check_empty(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder}: exists and is not an empty folder; give another with -o")


@contextmanager
def _filled(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Create a folder for files of these names; remove them and raise RunError if writing fails."""
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _check_empty(folder)  # loading the models took seconds
        try:
            yield
        except BaseException:
            for path in (folder / name for name in names):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            raise


def _write(path: Path, graph: Graph) -> str:
    """Write a graph; return its SHA-256."""
    content = graph.model().SerializeToString()
    atomic_write(path, content)
    return hashlib.sha256(content).hexdigest()


def _schema() -> dict[str, Any]:
    """Return the JSON Schema of each key of `decoding`, with the standard's names of bounds."""
    properties = DecodingConfig.model_json_schema()["properties"]
    return {key: _named(schema) for key, schema in properties.items()}


def _named(schema: dict[str, Any]) -> dict[str, Any]:
    named = {_BOUNDS.get(key, key): value for key, value in schema.items()}
    if "anyOf" in named:
        named["anyOf"] = [_named(each) for each in named["anyOf"]]
    return named


def _topk_graph() -> Graph:
    """Return the graph of the best continuations in beam search.

    It maps `log_probs` [B K, V], `scores` [B, K] and `count` [1] to `best` [B, count], the largest
    sums of a hypothesis's score and a token's log-probability, best first, and to `places` [B,
    count], which are `k * V + token`.
    """
    graph = Graph("topk")
    log_probs = graph.input("log_probs", ["rows", "vocabulary"])
    scores = graph.input("scores", ["batch", "beam"])
    count = graph.input("count", [1], INT)
    batch, beam = graph.size(scores, 0), graph.size(scores, 1)
    by_sentence = graph.reshape(log_probs, batch, beam, -1)
    totals = graph.op("Add", by_sentence, graph.unsqueeze(scores, 2))  # [B, K, V]
    best, places = graph.ops("TopK", graph.reshape(totals, batch, -1), count, results=2)
    graph.output(best, "best", ["batch", "count"])
    graph.output(places, "places", ["batch", "count"], INT)
    return graph
