"""The ONNX graphs of runs: read from their folders, traced where they are missing, exported."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from seq2seq import __version__
from seq2seq.data.vocabulary import vocabulary
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.engines.engine import GraphFiles
from seq2seq.engines.onnx.engine import topk_graph
from seq2seq.engines.onnx.network import quantized
from seq2seq.engines.onnx.untrusted_graphs import GraphError, check_graphs
from seq2seq.runs import engine_folder, layout, tensor_file
from seq2seq.runs.run_config import StoredRun, stored_run, with_joined_profile
from seq2seq.runtime.console import logger
from seq2seq.runtime.errors import UserError, argument, needs_train
from seq2seq.runtime.files import PART_SUFFIX, atomic_write, delete, made_folders, write_errors

T = TypeVar("T")


def check_runs(runs: Sequence[StoredRun]) -> None:
    """Raise UserError for runs that form no ensemble."""
    descriptions = [run.vocabulary_and_direction() for run in runs]
    engine_folder.check_fit([run.path.parent for run in runs], descriptions)


def from_graphs(run: StoredRun, make: Callable[[GraphFiles], T]) -> T | None:
    """Return what is made of a run's graphs; None if its model cannot be traced.

    They are traced if its folder has none, or others than those of a model: those are refused, by
    `check_graphs` or by a GraphError of `make`.
    """
    path = run.path.parent
    graphs = engine_folder.stored_graphs(path, run.checksum)
    with suppress(GraphError):
        if graphs is not None:
            check_graphs(*graphs, len(run.vocabularies.tgt), run.config.data.max_length)
            return make(graphs)
    with needs_train(f"{path}: has no {layout.ENGINE} folder of its weights, and making it"):
        from seq2seq.engines.onnx.trace import TraceError
    try:
        return make(rebuild_engine(path))
    except TraceError as error:
        logger.info(f"note: {path}: has no ONNX form ({error}); torch computes it")
        return None


def rebuild_engine(folder: Path) -> GraphFiles:
    """Trace the graphs of a run, and write them if possible; raises TraceError and UserError."""
    import torch

    from seq2seq.engines.onnx.trace import traced_graphs
    from seq2seq.runs.checkpoint import load_model

    run = load_model(folder, torch.device("cpu"))
    graphs = traced_graphs(run.model)
    with suppress(OSError):
        engine_folder.store_graphs(folder, run.checksum, graphs)
    return graphs


def store_engine(folder: Path) -> None:
    """Write the graphs of the best weights of a run, if possible, unless they are there."""
    from seq2seq.engines.onnx.trace import TraceError  # torch's exporter

    with suppress(TraceError, OSError, UserError):
        header, _ = tensor_file.read_header(folder / layout.BEST)
        if engine_folder.stored_graphs(folder, header["tensors"]) is None:
            rebuild_engine(folder)


def export_runs(folders: Sequence[Path], folder: Path, int8: bool = False) -> list[Path]:
    """Write a run, or an ensemble, as a folder that translates by itself; return its files.

    The description is written last: a folder without it is no exported model. Raises UserError if
    the folder is not empty, if the runs do not fit together, or if a model has no ONNX form.
    """
    _check_empty(folder)
    runs = [stored_run(path) for path in folders]
    check_runs(runs)
    vocabulary_size = len(runs[0].vocabularies.tgt)
    models = []
    files = {engine_folder.TOPK: topk_graph(vocabulary_size).content()}
    for number, run in enumerate(runs, 1):
        graphs = from_graphs(run, quantized if int8 else GraphFiles._make)
        if graphs is None:
            raise UserError(f"{run.path.parent}: has no ONNX form; use the run folder")
        try:
            check_graphs(*graphs, vocabulary_size, run.config.data.max_length)
        except GraphError as error:
            text = f"an export of it would be refused, as it {error}"
            raise UserError(f"{run.path.parent}: {text}; use the run folder") from None
        suffix = f"-{number}" if len(runs) > 1 else ""
        models.append({part: f"{part}{suffix}.onnx" for part in graphs._fields})
        files |= zip(models[-1].values(), graphs, strict=True)
    description = _description(with_joined_profile(runs))
    description |= {"models": models, "int8": int8, "sha256": engine_folder.checksums(files)}
    _write_export(folder, files, runs[0].vocabularies, description)
    return [folder / name for name in (layout.DESCRIPTION, *files, layout.VOCABULARY)]


_LEFT_OVER = re.compile(r"(?:(?:encoder|decoder)(?:-\d+)?|topk)\.onnx|vocabulary|export\.json")


def _left_over(folder: Path) -> list[Path]:
    """Return the files of a killed export: the first that it writes is among them, not the last."""
    paths = list(folder.iterdir())
    names = {path.name.removesuffix(PART_SUFFIX) for path in paths}
    is_ours = all(map(_LEFT_OVER.fullmatch, names)) and engine_folder.TOPK in names
    return paths if is_ours and not (folder / layout.DESCRIPTION).exists() else []


def _check_empty(folder: Path) -> None:
    is_other = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if is_other and not (folder.is_dir() and _left_over(folder)):
        remedy = f"give another with {argument('output')}"
        raise UserError(f"{folder}: exists and is not an empty folder; {remedy}")


def _write_export(
    folder: Path, files: dict[str, bytes], vocabularies: Vocabularies, description: object
) -> None:
    """Fill a folder; remove what was made and raise RunError if writing fails."""
    with made_folders([folder / layout.DESCRIPTION]), write_errors(folder):
        _check_empty(folder)  # loading the models took seconds
        for path in _left_over(folder):
            delete(path)
        try:
            for name, content in files.items():
                atomic_write(folder / name, content)
            vocabulary.save_vocabularies(vocabularies, folder / layout.VOCABULARY)
            text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
            atomic_write(folder / layout.DESCRIPTION, text.encode())
        except BaseException:
            for name in (*files, layout.VOCABULARY, layout.DESCRIPTION):
                delete(folder / name)
            raise


def _description(run: StoredRun) -> dict[str, object]:
    return {
        "format": engine_folder.FORMAT,
        "seq2seq": __version__,
        "src_lang": run.config.data.src_lang,
        "tgt_lang": run.config.data.tgt_lang,
        "pad_id": vocabulary.PAD_ID,
        "unk_id": vocabulary.UNK_ID,
        "bos_id": vocabulary.BOS_ID,
        "eos_id": vocabulary.EOS_ID,
        "limit": asdict(run.limit),
        "max_length": run.config.data.max_length,
        "decoding": asdict(run.config.decoding),
        "source": asdict(run.source),
        "vocabularies": vocabulary.checksums_of(run.vocabularies),
    }
