"""A trained or exported model in memory, with all that turns text into its ids and back."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from seq2seq.data.source_profile import NO_PROFILE, LengthLimit, SourceProfile
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.engines.engine import Engine
from seq2seq.inference.search.interface import DecodingSettings, Hypothesis, SearchOptions
from seq2seq.inference.search.search import search
from seq2seq.inference.search.sentences import Request
from seq2seq.runtime.errors import UserError

if TYPE_CHECKING:
    import torch

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
    decoding: DecodingSettings
    max_length: int  # lines of more tokens are split
    device: "torch.device | str"  # "cpu" for ONNX Runtime
    source: SourceProfile = NO_PROFILE  # lines are compared with the training text
    name: str = "model"  # the run folders, for messages

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.device})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the translator with its weights."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.device == "cpu":
            return _restored, (type(self), None, fields)
        return _restored, (type(self), _DeviceName(str(self.device)), fields)

    @property
    def attends(self) -> bool:
        """Return True if translations have attention weights."""
        return self.engine.attends

    @property
    def has_heads(self) -> bool:
        """Return True if translations have attention weights of several heads."""
        return self.engine.has_heads

    def search(
        self,
        requests: Sequence[Request],
        options: SearchOptions,
        on_found: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses for each request, best first; see `search.search.search`."""
        return search(self.engine, requests, options, on_found)


def check_ensemble(
    run: Path, first: Path, same_vocabulary: bool, direction: str, first_direction: str
) -> None:
    """Raise UserError if a run has another vocabulary or direction than the first."""
    if not same_vocabulary:
        raise UserError(
            f"{run}: has another vocabulary than {first}; combine runs that share one in an "
            "ensemble"
        )
    if direction != first_direction:
        raise UserError(
            f"{run}: translates {direction} but {first} {first_direction}; combine runs of one "
            "direction in an ensemble"
        )


class _DeviceName:
    """Name of a device that is set up when the name is unpickled, before the weights are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        """Set up the device as `Translator.load` does."""
        return _set_up, (self.name,)


def _set_up(name: str) -> _DeviceName:
    from seq2seq.runtime.device import choose_device

    choose_device(name)
    return _DeviceName(name)


def _restored(
    kind: type[LoadedModel], _device: _DeviceName | None, fields: dict[str, Any]
) -> LoadedModel:
    return kind(**fields)
