"""A trained or exported model in memory, with all that turns text into its ids and back."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from seq2seq.data.source_profile import NO_PROFILE, LengthLimit, SourceProfile
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.engines.engine import Engine
from seq2seq.runs.engine_folder import Decoding

if TYPE_CHECKING:
    import torch

    from seq2seq.config.schema import DecodingConfig

AnyLoaded = TypeVar("AnyLoaded", bound="LoadedModel")


@dataclass(frozen=True)
class ModelOptions:
    """Device and numbers with which a model is loaded; see `Translator.load`."""

    device: str = "auto"
    int8: bool = False
    float16: bool = False
    overrides: Iterable[str] = ()  # in the config's section `decoding`


DEFAULT_OPTIONS = ModelOptions()


@dataclass(eq=False)
class LoadedModel:
    """A trained model, or an ensemble, with its vocabularies and the settings of its config.

    On a CPU the engine is that of ONNX Runtime, for which torch is not imported.
    """

    engine: Engine
    vocabularies: Vocabularies
    limit: LengthLimit
    decoding: "DecodingConfig | Decoding"
    max_length: int  # lines of more tokens are split
    device: "torch.device | str"  # "cpu" for ONNX Runtime
    source: SourceProfile = NO_PROFILE  # lines are compared with the training text
    name: str = "model"  # the run folders, for messages

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.device})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle or copy the translator with its weights, without what it has cached."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
