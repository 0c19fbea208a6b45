"""Load run folders for translation by torch."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from seq2seq.data.vocabulary.files import checksums_of
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference import weights
from seq2seq.inference.inference_model import InferenceModel
from seq2seq.inference.loaded_model import AnyLoaded, check_ensemble
from seq2seq.inference.shortlist import Shortlist
from seq2seq.inference.shortlist_search import ShortlistedModel, ShortlistSearch
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.run_config import overridden_decoding, read_source_profile
from seq2seq.runs.shortlist_file import read_shortlist
from seq2seq.runtime import argument_types
from seq2seq.runtime.device import choose_device
from seq2seq.runtime.errors import UserError


def load_runs(
    kind: type[AnyLoaded],
    paths: Sequence[Path],
    device: str,
    int8: bool,
    overrides: Iterable[str],
    shortlist: bool,
) -> AnyLoaded:
    """Return run folders as a model of this kind; see `Translator.load`."""
    chosen = choose_device(argument_types.device_name(device))
    if int8:
        weights.check_int8(chosen)
    if shortlist and chosen.type != "cpu":
        raise UserError(f"--shortlist: runs on the CPU only, not on {chosen}; add --device cpu")
    loaded = [load_model(path, chosen) for path in paths]
    projections = [each[0].projection for each in loaded]  # before weights are replaced
    weights_of = [(each.weight.detach(), each.bias.detach()) for each in projections]
    models = [for_inference(each[0], chosen, int8) for each in loaded]
    _, vocabularies, limit, config = loaded[0]
    decoding = overridden_decoding(paths[0], config, overrides)
    for run, (_, other_vocabularies, _, other) in zip(paths, loaded, strict=True):
        same = checksums_of(other_vocabularies) == checksums_of(vocabularies)
        check_ensemble(run, paths[0], same, other.data.direction, config.data.direction)
    shortlisted = None
    if shortlist:
        own = Shortlist.of(read_shortlist(paths[0], vocabularies), vocabularies)
        shortlisted = ShortlistSearch(
            own,
            [
                ShortlistedModel(each, own, *weight)
                for each, weight in zip(models, weights_of, strict=True)
            ],
        )
    return kind(
        model=models[0] if len(models) == 1 else Ensemble(models),
        vocabularies=vocabularies,
        limit=limit,
        decoding=decoding,
        max_length=config.data.max_length,
        device=chosen,
        source=read_source_profile(paths[0]),
        name=", ".join(map(str, paths)),
        shortlisted=shortlisted,
    )


def for_inference(model: Seq2Seq, device: torch.device, int8: bool) -> InferenceModel:
    """Wrap a model whose weights are final, in its fastest form on this device."""
    inference = InferenceModel(model)
    if int8:
        inference.replace_weights(weights.Int8Weight)
    elif device.type == "cpu":
        if weights.prepacking_is_exact():
            inference.replace_weights(weights.PackedWeight)
        else:
            inference.replace_weights(weights.by_columns, with_projection=False)
    inference.precompute_input_gates()
    return inference
