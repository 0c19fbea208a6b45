"""Exported folders, computed by ONNX Runtime without torch and pydantic."""

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from pathlib import Path

from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.vocabulary.vocabulary import load_vocabularies
from seq2seq.engines.engine import GraphFiles
from seq2seq.engines.onnx.engine import OnnxEngine
from seq2seq.engines.onnx.network import Network, load_network
from seq2seq.engines.onnx.untrusted_graphs import GraphError, check_graphs
from seq2seq.inference.loaded_model import LoadedModel, ModelOptions
from seq2seq.runs import engine_folder, layout
from seq2seq.runs.engine_folder import Description, read_description
from seq2seq.runtime.errors import UserError
from seq2seq.text.joined_profile import joined


def load_exported(folders: Sequence[Path], options: ModelOptions) -> LoadedModel:
    """Load exported folders; raises UserError if they do not fit together."""
    if options.device not in ("auto", "cpu"):
        text = "an exported model runs on the CPU; use the run folder, or cpu"
        raise UserError(text, argument="device", value=options.device)
    descriptions = [read_description(folder) for folder in folders]
    first = descriptions[0]
    vocabularies_and_directions = [
        (model.vocabularies, " to ".join(model.languages)) for model in descriptions
    ]
    engine_folder.check_fit(folders, vocabularies_and_directions)
    vocabularies = load_vocabularies(folders[0] / layout.VOCABULARY, checksums=first.vocabularies)
    networks: list[Network] = []
    for folder, description in zip(folders, descriptions, strict=True):
        networks += _networks(folder, description, len(vocabularies.tgt), options.int8)
    return LoadedModel(
        engine=OnnxEngine(networks),
        vocabularies=vocabularies,
        limit=reduce(LengthLimit.joined, (model.limit for model in descriptions)),
        decoding=engine_folder.overridden(first.decoding, options.overrides),
        max_length=first.max_length,
        device="cpu",
        source=joined(model.source for model in descriptions),
    )


def _networks(folder: Path, description: Description, size: int, int8: bool) -> Iterator[Network]:
    sums = description.sha256
    read = partial(engine_folder.read_graph, folder)
    for names in description.models:
        files = (names[part] for part in GraphFiles._fields)
        graphs = GraphFiles(*(read(name, sums.get(name)) for name in files))
        try:
            check_graphs(*graphs, size, description.max_length)
            yield load_network(graphs, int8 and not description.int8)
        except GraphError as error:
            text = f"{' and '.join(names.values())} cannot be used: {error}"
            raise UserError(f"{folder}: {text}; export the run again") from None
