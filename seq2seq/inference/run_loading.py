"""Load run folders for translation by torch."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from seq2seq.data.vocabulary.files import checksums_of
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.engines.torch.graphs import engine_for
from seq2seq.inference.loaded_model import AnyLoaded, check_ensemble
from seq2seq.inference.shortlist import Shortlist
from seq2seq.inference.shortlist_search import ShortlistedModel, ShortlistSearch, projection_of
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.run_config import overridden_decoding, read_source_profile
from seq2seq.runs.shortlist_file import read_shortlist
from seq2seq.runtime import argument_types
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import UserError, argument


def load_runs(
    kind: type[AnyLoaded],
    paths: Sequence[Path],
    device: str,
    int8: bool,
    overrides: Iterable[str],
    shortlist: bool,
    float16: bool = False,
) -> AnyLoaded:
    """Return run folders as a model of this kind; see `Translator.load`."""
    chosen = choose_device(argument_types.device_name(device))
    if int8 and chosen.type != "cpu":
        raise UserError(_cpu_only(chosen), argument="int8", value=True)
    if int8:
        reason = f"with {argument('shortlist', True)}" if shortlist else "as it has no ONNX form"
        raise UserError(
            f"torch computes {paths[0]} {reason}; remove one of the options",
            argument="int8",
            value=True,
        )
    if float16 and chosen.type != "cuda":
        raise UserError(
            f"needs a CUDA GPU, not {chosen}; remove it", argument="float16", value=True
        )
    if shortlist and chosen.type != "cpu":
        raise UserError(_cpu_only(chosen), argument="shortlist", value=True)
    loaded = [load_model(path, chosen) for path in paths]
    models = [each[0].eval() for each in loaded]
    if float16:
        models = [model.half() for model in models]
    _, vocabularies, limit, config = loaded[0]
    decoding = overridden_decoding(paths[0], config, overrides)
    for run, (_, other_vocabularies, _, other) in zip(paths, loaded, strict=True):
        same = checksums_of(other_vocabularies) == checksums_of(vocabularies)
        check_ensemble(run, paths[0], same, other.data.direction, config.data.direction)
    shortlisted = None
    if shortlist:
        own = Shortlist.of(read_shortlist(paths[0], vocabularies), vocabularies)
        listed = (ShortlistedModel(model, own, *projection_of(model)) for model in models)
        shortlisted = ShortlistSearch(own, list(listed))
    return kind(
        engine=engine_for(models[0] if len(models) == 1 else Ensemble(models), chosen),
        vocabularies=vocabularies,
        limit=limit,
        decoding=decoding,
        max_length=config.data.max_length,
        device=chosen,
        source=read_source_profile(paths[0]),
        name=", ".join(map(str, paths)),
        shortlisted=shortlisted,
    )


def _cpu_only(device: torch.device) -> str:
    return f"runs on the CPU only, not on {device}; add {argument('device', 'cpu')}"
