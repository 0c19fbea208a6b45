"""Load exported models for translation without torch."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.source_profile import SourceProfile
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.inference.compatibility import check_ensemble
from seq2seq.inference.exported.folder import (
    Decoding,
    Description,
    overridden,
    read_description,
    read_graph,
    read_vocabularies,
)
from seq2seq.inference.exported.model import ExportedModel, Network
from seq2seq.runs.exported_files import TOPK
from seq2seq.runtime import argument_types
from seq2seq.runtime.errors import UserError

Loaded = tuple[ExportedModel, Vocabularies, LengthLimit, Decoding, int, str, SourceProfile, str]


def load_exports(
    folders: Sequence[Path], device: str, int8: bool, overrides: Iterable[str]
) -> Loaded:
    """Return the fields of `LoadedModel` for exported folders; see `LoadedModel.load`.

    Raises UserError for a device other than the CPU, for `int8` unless the folder has int8 weights,
    and for folders that are damaged or do not fit together.
    """
    if argument_types.device_name(device) not in ("auto", "cpu"):
        raise UserError(
            f"--device {device}: an exported model runs on the CPU; use the run folder, or "
            "--device cpu"
        )
    described = [read_description(folder) for folder in folders]
    first = described[0]
    for folder, each in zip(folders, described, strict=True):
        if int8 and not each.int8:
            raise UserError(
                f"--int8: {folder} has float32 weights; export the run again with --int8"
            )
        same = each.vocabularies == first.vocabularies
        check_ensemble(folder, folders[0], same, each.direction, first.direction)
    decoding = overridden(first, overrides)
    networks = [
        network
        for folder, each in zip(folders, described, strict=True)
        for network in _networks(folder, each)
    ]
    model = ExportedModel(networks, read_graph(folders[0], TOPK, first))
    vocabularies, name = read_vocabularies(folders[0], first), ", ".join(map(str, folders))
    return model, vocabularies, first.limit, decoding, first.max_length, "cpu", first.source, name


def _networks(folder: Path, description: Description) -> list[Network]:
    return [
        Network(*(read_graph(folder, name, description) for name in files))
        for files in description.models
    ]
