"""A trained model in memory, with all that turns text into its ids and back."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch

from seq2seq.config.schema import DecodingConfig
from seq2seq.data.batching import LengthLimit, pad_sources
from seq2seq.data.source_profile import NO_PROFILE, SourceProfile
from seq2seq.data.vocabulary.files import checksums_of
from seq2seq.data.vocabulary.vocabulary import BOS_ID, Vocabularies
from seq2seq.inference import weights
from seq2seq.inference.ensemble import Ensemble
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.inference.interface import Model
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.checkpoint import load_model, overridden_decoding, read_source_profile
from seq2seq.runtime import argument_types
from seq2seq.runtime.callers import in_callers_terms
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import UserError


@dataclass(eq=False)
class LoadedModel:
    """A trained model, or an ensemble, with its vocabularies and the settings of its config."""

    model: Model
    vocabularies: Vocabularies
    limit: LengthLimit
    decoding: DecodingConfig
    max_length: int  # lines of more tokens are split
    device: torch.device
    source: SourceProfile = NO_PROFILE  # lines are compared with the training text
    name: str = "model"  # the run folders, for messages

    @classmethod
    @in_callers_terms
    def load(
        cls,
        *runs: Path | str,
        device: str = "auto",
        int8: bool = False,
        overrides: Iterable[str] = (),
    ) -> Self:
        """Load a run folder, or several as an ensemble; `int8` quantizes weights for speed.

        Overrides of the config's `decoding` section are such as "decoding.length_penalty=0.6". An
        ensemble uses the `decoding` section and the length limits of its first run. Raises
        UserError if the runs do not fit together or the device lacks fast, exact int8 products.
        """
        if not runs:
            raise TypeError("runs: name at least one run folder, Translator.load('runs/my-run')")
        paths = [argument_types.path(run, "runs") for run in runs]
        chosen = choose_device(argument_types.device_name(device))
        if int8:
            weights.check_int8(chosen)
        loaded = [load_model(path, chosen) for path in paths]
        models = [_for_inference(each[0], chosen, int8, len(runs) == 1) for each in loaded]
        _, vocabularies, limit, config = loaded[0]
        decoding = overridden_decoding(paths[0], config, overrides)
        for run, (_, other_vocabularies, _, other) in zip(runs, loaded, strict=True):
            if checksums_of(other_vocabularies) != checksums_of(vocabularies):
                raise UserError(
                    f"{run}: has another vocabulary than {runs[0]}; "
                    "combine runs that share one in an ensemble"
                )
            if other.data.direction != config.data.direction:
                raise UserError(
                    f"{run}: translates {other.data.direction} but {runs[0]} "
                    f"{config.data.direction}; combine runs of one direction in an ensemble"
                )
        model: Model = models[0] if len(models) == 1 else Ensemble(models)
        source, name = read_source_profile(paths[0]), ", ".join(map(str, paths))
        longest = config.data.max_length
        return cls(model, vocabularies, limit, decoding, longest, chosen, source, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the translator with its weights; raises TypeError for int8 weights."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return _restored, (type(self), _DeviceName(str(self.device)), fields)

    @property
    @torch.inference_mode()
    def attends(self) -> bool:
        """Return True if translations have attention weights."""
        src, lengths = pad_sources([[]])
        memory, state = self.model.start(
            self.model.encode(src.to(self.device), lengths.to(self.device))
        )
        bos = torch.tensor([BOS_ID], device=self.device)
        return self.model.step(bos, state, memory).attention_weights is not None


class _DeviceName:
    """Name of a device that is set up when the name is unpickled, before the weights are."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        """Set up the device as `Translator.load` does."""
        return _set_up, (self.name,)


def _set_up(name: str) -> _DeviceName:
    choose_device(name)
    return _DeviceName(name)


def _restored(kind: type[LoadedModel], _device: _DeviceName, fields: dict[str, Any]) -> LoadedModel:
    return kind(**fields)


def _for_inference(
    model: Seq2Seq, device: torch.device, int8: bool, is_single: bool
) -> InferenceModel:
    """Wrap a model whose weights are final, in its fastest form on this device."""
    inference = InferenceModel(model)
    if int8:
        inference.replace_weights(weights.Int8Weight)
    elif device.type == "cpu":
        if is_single and weights.int8_shortlist_pays_off():
            inference.enable_int8_shortlist()
        if weights.prepacking_is_exact():
            inference.replace_weights(weights.PackedWeight)
    inference.precompute_input_gates()
    return inference
