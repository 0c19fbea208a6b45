"""A trained or exported model in memory, with all that turns text into its ids and back."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.source_profile import NO_PROFILE, SourceProfile
from seq2seq.data.vocabulary.vocabulary import Ids, Vocabularies
from seq2seq.inference.exported.folder import is_export, read_description
from seq2seq.inference.exported.loading import load_exports
from seq2seq.inference.exported.model import ExportedModel
from seq2seq.inference.exported.search import search_exported
from seq2seq.inference.search.interface import DecodingSettings, Hypothesis, SearchOptions
from seq2seq.inference.search.lexical import Lexical
from seq2seq.inference.search.prefixes import Prefix
from seq2seq.runs.exported_files import DESCRIPTION
from seq2seq.runtime import argument_types
from seq2seq.runtime.callers import in_callers_terms
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.extras import needs_train
from seq2seq.runtime.suggestions import suggest_file

if TYPE_CHECKING:
    import torch

    from seq2seq.inference.search.interface import Model
    from seq2seq.inference.shortlist_search import ShortlistSearch


@dataclass(eq=False)
class LoadedModel:
    """A trained model, or an ensemble, with its vocabularies and the settings of its config.

    The model is one of run folders, which torch computes, or of exported folders; torch is imported
    for the former alone.
    """

    model: "Model | ExportedModel"
    vocabularies: Vocabularies
    limit: LengthLimit
    decoding: DecodingSettings
    max_length: int  # lines of more tokens are split
    device: "torch.device | str"  # "cpu" for an exported model
    source: SourceProfile = NO_PROFILE  # lines are compared with the training text
    name: str = "model"  # the run folders, for messages
    shortlisted: "ShortlistSearch | None" = None  # in place of search over all tokens

    @classmethod
    @in_callers_terms
    def load(
        cls,
        *runs: Path | str,
        device: str = "auto",
        int8: bool = False,
        overrides: Iterable[str] = (),
        shortlist: bool = False,
    ) -> Self:
        """Load a run folder, or several as an ensemble; `int8` quantizes weights for speed.

        With `shortlist`, search chooses among the tokens that suit a source, by the table that
        `seq2seq shortlist` wrote into the run folder. Folders that `seq2seq export` wrote are
        loaded without torch. Overrides of the config's `decoding` section are such as
        "decoding.length_penalty=0.6". An ensemble uses the `decoding` section, the length limits
        and the shortlist of its first run. Raises UserError if the runs do not fit together, the
        device lacks fast, exact int8 products, or there is no shortlist.
        """
        if not runs:
            raise TypeError("runs: name at least one run folder, Translator.load('runs/my-run')")
        paths = [argument_types.path(run, "runs") for run in runs]
        exported = [path for path in paths if is_export(path)]
        if exported and len(exported) < len(paths):
            raise UserError(
                f"{exported[0]}: is an exported model, which forms ensembles with other exported "
                "models only; give the run folders of all"
            )
        if exported and shortlist:
            raise UserError(
                f"--shortlist: {exported[0]} is an exported model, which has none; use the run "
                "folder, or remove the option"
            )
        if exported:
            return cls(*load_exports(paths, device, int8, overrides))
        with _needs_train(paths[0]):
            from seq2seq.inference.run_loading import load_runs
        return cls(*load_runs(paths, device, int8, overrides, shortlist))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the translator with its weights; raises TypeError for int8 weights."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        if isinstance(self.model, ExportedModel):
            return _restored, (type(self), None, fields)
        return _restored, (type(self), _DeviceName(str(self.device)), fields)

    @property
    def trained(self) -> "tuple[Model, torch.device]":
        """Return the model of run folders and its device; raises UserError for an exported one."""
        if isinstance(self.model, ExportedModel) or isinstance(self.device, str):
            raise UserError(
                f"{self.name}: is an exported model, which translates only; use the run folder"
            )
        return self.model, self.device

    @property
    def attends(self) -> bool:
        """Return True if translations have attention weights."""
        if isinstance(self.model, ExportedModel):
            return self.model.attends
        from seq2seq.inference.run_loading import trial_step

        return trial_step(*self.trained).attention_weights is not None

    @property
    def has_heads(self) -> bool:
        """Return True if translations have attention weights of several heads."""
        if isinstance(self.model, ExportedModel):
            return False
        from seq2seq.inference.run_loading import trial_step

        return trial_step(*self.trained).head_weights is not None

    def search(
        self,
        sources: Sequence[Ids],
        limits: Sequence[int],
        options: SearchOptions,
        prefixes: Sequence[Prefix],
        lexical: Sequence[Lexical],
        on_found: Callable[[int], None] | None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses for each source, best first; see `search` of `search.batched`."""
        if isinstance(self.model, ExportedModel):
            return search_exported(
                self.model, sources, limits, prefixes, lexical, options, on_found
            )
        from seq2seq.inference.search.batched import search

        model, device = self.trained
        if self.shortlisted is not None:
            return self.shortlisted.search(
                model, sources, limits, options, device, prefixes, on_found, lexical
            )
        return search(model, sources, limits, options, device, prefixes, on_found, lexical)


def languages_of(folder: Path) -> tuple[str, str]:
    """Return the codes of the source and target language of a run folder or an exported model."""
    if is_export(folder):
        return read_description(folder).languages
    with _needs_train(folder):
        from seq2seq.runs.checkpoint import read_config
    data = read_config(folder).data
    return data.src_lang, data.tgt_lang


@contextmanager
def _needs_train(folder: Path) -> Iterator[None]:
    """Convert a failed import for a folder that is no exported model into a UserError."""
    try:
        with needs_train(f"{folder}: has no {DESCRIPTION}, and a run folder"):
            yield
    except UserError:
        if folder.is_dir():
            raise
        raise UserError(f"{folder}: no such folder{suggest_file(folder)}") from None


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
