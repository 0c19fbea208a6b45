"""Write a run folder, or several as an ensemble, as a folder that translates by itself."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2seq import __version__
from seq2seq.config.schema import DecodingConfig
from seq2seq.data.vocabulary.vocabulary import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    checksums_of,
    save_vocabularies,
)
from seq2seq.engines.onnx.files import quantized
from seq2seq.engines.onnx.topk import topk_graph
from seq2seq.inference.run_loading import StoredRun, check_fit, graphs_of, stored_run
from seq2seq.runs.engine_folder import DESCRIPTION, FORMAT, TOPK, VOCABULARY
from seq2seq.runs.run_config import read_source_profile
from seq2seq.runtime.errors import UserError, argument
from seq2seq.runtime.files import atomic_write, write_errors

_BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}


def export_runs(folders: Sequence[Path], folder: Path, int8: bool = False) -> list[Path]:
    """Write the graphs, the vocabularies and their description; return the files.

    The description is written last: a folder without it is no exported model. Raises UserError if
    the folder exists and is not empty, if the runs do not fit together, or if a model has no ONNX
    form.
    """
    _check_empty(folder)
    runs = [stored_run(path) for path in folders]
    check_fit(folders, [run[:2] for run in runs])
    models, files = [], {TOPK: topk_graph().content()}
    for number, (path, run) in enumerate(zip(folders, runs, strict=True), 1):
        graphs = graphs_of(path, run)
        if graphs is None:
            raise UserError(f"{path}: has no ONNX form; use the run folder")
        suffix = f"-{number}" if len(runs) > 1 else ""
        names = {part: f"{part}{suffix}.onnx" for part in graphs._fields}
        contents = (quantized(graphs) if int8 else graphs)._asdict()
        files |= {name: contents[part] for part, name in names.items()}
        models.append(names)
    with _filled(folder, [*files, VOCABULARY, DESCRIPTION]):
        for name, content in files.items():
            atomic_write(folder / name, content)
        save_vocabularies(runs[0].vocabularies, folder / VOCABULARY)
        description = _description(folders[0], runs[0]) | {
            "models": models,
            "int8": int8,
            "sha256": {
                name: hashlib.sha256(content).hexdigest() for name, content in files.items()
            },
        }
        text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
        atomic_write(folder / DESCRIPTION, text.encode())
    return [folder / DESCRIPTION, *(folder / name for name in files), folder / VOCABULARY]


def _description(path: Path, run: StoredRun) -> dict[str, Any]:
    """Describe a run for programs that translate with its graphs."""
    return {
        "format": FORMAT,
        "seq2seq": __version__,
        "src_lang": run.config.data.src_lang,
        "tgt_lang": run.config.data.tgt_lang,
        "pad_id": PAD_ID,
        "unk_id": UNK_ID,
        "bos_id": BOS_ID,
        "eos_id": EOS_ID,
        "limit": asdict(run.limit),
        "max_length": run.config.data.max_length,
        "decoding": run.config.decoding.model_dump(mode="json"),
        "decoding_schema": _schema(),
        "source": asdict(read_source_profile(path)),
        "vocabularies": checksums_of(run.vocabularies),
    }


def _check_empty(folder: Path) -> None:
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(
            f"{folder}: exists and is not an empty folder; give another with {argument('output')}"
        )


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


def _schema() -> dict[str, Any]:
    """Return the JSON Schema of each key of `decoding`, with the standard's names of bounds."""
    properties = DecodingConfig.model_json_schema()["properties"]
    return {key: _named(schema) for key, schema in properties.items()}


def _named(schema: dict[str, Any]) -> dict[str, Any]:
    named = {_BOUNDS.get(key, key): value for key, value in schema.items()}
    if "anyOf" in named:
        named["anyOf"] = [_named(option) for option in named["anyOf"]]
    return named
