"""Models for translation as they are loaded from run folders and exported folders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seq2seq.config.search_options import Decoding
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.engines.engine import Engine
from seq2seq.runtime.errors import RunError
from seq2seq.text.source_profile import NO_PROFILE, SourceProfile

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ModelOptions:
    """Device and numbers with which a model is loaded; see `Translator.load`."""

    device: str = "auto"
    int8: bool = False
    float16: bool = False
    overrides: Iterable[str] = ()  # in the config's section `decoding`
    scores: Iterable[str | type] = ()  # outside of the package, that may be imported


DEFAULT_OPTIONS = ModelOptions()


@dataclass(eq=False)
class LoadedModel:
    """A trained model, or an ensemble, with its vocabularies and the settings of its config."""

    engine: Engine
    vocabularies: Vocabularies
    limit: LengthLimit
    decoding: Decoding
    max_length: int  # lines of more tokens are split
    device: "torch.device | str"  # "cpu" for ONNX Runtime
    source: SourceProfile = NO_PROFILE  # lines are compared with the training text
    name: str = "model"  # the run folders, for messages


def no_translation(loaded: LoadedModel, source: Sequence[int], fault: str) -> RunError:
    """Return the error of a model that gives a source no translation."""
    text = loaded.vocabularies.src.decode(source)[:60]
    return RunError(f"{loaded.name}: {fault}, for the text {text!r}; use another model")
