"""Load run folders for translation by ONNX Runtime, without torch where their graphs are stored."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from seq2seq.config.schema import DecodingConfig
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.vocabulary.files import checksums_of
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.engines.onnx.checks import GraphError, check_graphs
from seq2seq.engines.onnx.engine import OnnxEngine
from seq2seq.engines.onnx.files import GraphFiles, load_network
from seq2seq.engines.onnx.network import Network
from seq2seq.inference.loaded_model import AnyLoaded, check_ensemble
from seq2seq.runs import tensor_file
from seq2seq.runs.engine_folder import stored_graphs
from seq2seq.runs.exported_files import ENGINE
from seq2seq.runs.layout import BEST, CONFIG, VOCABULARY, with_recovery_hint
from seq2seq.runs.provenance import check_model_keys, recorded_vocabularies
from seq2seq.runs.run_config import (
    check_exists,
    overridden_decoding,
    read_config,
    read_source_profile,
)
from seq2seq.runtime.console import logger
from seq2seq.runtime.extras import needs_train


class StoredRun(NamedTuple):
    """A run folder, but for its weights."""

    decoding: DecodingConfig
    vocabularies: Vocabularies
    limit: LengthLimit
    max_length: int
    languages: tuple[str, str]  # codes of source and target
    checksum: str  # SHA-256 of the weights

    @property
    def direction(self) -> str:
        """Return the languages as messages name them, such as "en to de"."""
        return " to ".join(self.languages)


def stored_run(folder: Path) -> StoredRun:
    """Read a run folder without its weights; raises UserError as `load_model` does."""
    config, path = read_config(folder), folder / BEST
    check_exists(path)
    with with_recovery_hint(path):
        header, _ = tensor_file.read_header(path)
        limit = tensor_file.read_dataclass(LengthLimit, header, "limit", path)
        check_model_keys(path, header, config, folder / CONFIG)
        vocabularies = recorded_vocabularies(path, header, folder / VOCABULARY)
    data, checksum = config.data, str(header["tensors"])
    languages = data.src_lang, data.tgt_lang
    return StoredRun(config.decoding, vocabularies, limit, data.max_length, languages, checksum)


def networks_of(
    paths: Sequence[Path], runs: Sequence[StoredRun], int8: bool
) -> list[Network] | None:
    """Return the networks of run folders; None if a model has a part that cannot be traced."""
    networks = []
    for path, run in zip(paths, runs, strict=True):
        graphs = graphs_of(path, run)
        if graphs is None:
            return None
        networks.append(load_network(graphs, len(run.vocabularies.tgt), int8))
    return networks


def graphs_of(path: Path, run: StoredRun) -> GraphFiles | None:
    """Return the graphs of a run, traced from its weights if its folder has no valid ones.

    None, with a note, if the model has a part that cannot be traced.
    """
    graphs = stored_graphs(path, run.checksum)
    with suppress(GraphError):
        if graphs is not None:
            check_graphs(*graphs, len(run.vocabularies.tgt))
            return graphs
    return _rebuilt(path)


def _rebuilt(path: Path) -> GraphFiles | None:
    """Make the graphs of a run from its weights; None, with a note, if that is not possible."""
    with needs_train(f"{path}: has no {ENGINE} folder of its weights, and making it"):
        from seq2seq.engines.onnx.trace import TraceError
        from seq2seq.runs import engine_files
    try:
        return engine_files.rebuild(path)
    except TraceError as error:
        logger.info(f"note: {path}: has no ONNX form ({error}); torch computes it")
        return None


def load_stored(
    kind: type[AnyLoaded],
    paths: Sequence[Path],
    runs: Sequence[StoredRun],
    networks: Sequence[Network],
    overrides: Iterable[str],
) -> AnyLoaded:
    """Return run folders as a model of this kind."""
    first = runs[0]
    decoding = overridden_decoding(paths[0], read_config(paths[0]), overrides)
    return kind(
        engine=OnnxEngine(networks),
        vocabularies=first.vocabularies,
        limit=first.limit,
        decoding=decoding,
        max_length=first.max_length,
        device="cpu",
        source=read_source_profile(paths[0]),
        name=", ".join(map(str, paths)),
    )


def check_fit(paths: Sequence[Path], runs: Sequence[StoredRun]) -> None:
    """Raise UserError for runs that form no ensemble."""
    for path, run in zip(paths, runs, strict=True):
        same = checksums_of(run.vocabularies) == checksums_of(runs[0].vocabularies)
        check_ensemble(path, paths[0], same, run.direction, runs[0].direction)
