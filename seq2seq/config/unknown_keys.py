"""Hints for unknown keys: the names of other tools, other sections, and similar spelling."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import get_args

from pydantic import BaseModel

KeyPath = tuple[str, ...]
RENAMED = {  # keys of earlier versions
    "training.max_length": "data.max_length",
    "model.num_layers": "model.layers",
    "model.encoder_layers": "model.layers: {encoder: N, decoder: M}",
    "model.decoder_layers": "model.layers: {encoder: N, decoder: M}",
    "model.bidirectional": "model.encoder: bidirectional, forward or reversed",
    "model.reverse_source": "model.encoder: reversed",
    "model.window_width": "model.window: {local_p: WIDTH}",
    "model.attention_heads": "model.score: {scaled_dot: HEADS}",
    "model.residual": "model.layers: {encoder: N, decoder: M, residual: true}",
    "training.accumulate": "training.batch_tokens: {tokens: N, accumulate: M}",
    "training.deterministic": "the environment variable SEQ2SEQ_DETERMINISTIC=1",
    "model.layer_norm": "model.cell: layer_norm_lstm",
    "training.weight_decay": "training.optimizer: {adamw: WEIGHT_DECAY}",
    "training.decay_factor": "training.decay: {plateau: FACTOR}",
    "training.min_improvement": "training.metric: {bleu: MIN_IMPROVEMENT}",
    "training.consistency": "training.losses: {consistency: WEIGHT}",
    "training.coverage_loss": "training.losses: {coverage: WEIGHT}",
    "training.guided_alignment": "training.losses: {guided_alignment: WEIGHT}",
    "training.invented_names": "vocabulary.names: {invented: RATE}",
    "training.scheduled_sampling_steps": "training.scheduled_sampling: {linear: STEPS}",
}
_OF_A_TEXT = {"src", "tgt", "file", "columns", "tag", "weight", "tsv"}
_GENERIC = ("name", "names", "size", "type", *sorted(_OF_A_TEXT))  # do not identify a section
# Minimum ratios of matching characters: of a key of the same section, of another section, of each
# word of a key, and of keys with another number of words (maxsteps, warm_up_steps).
_SIMILAR, _SIMILAR_ELSEWHERE, _SIMILAR_WORD, _SAME_WORDS = 0.75, 0.85, 0.65, 0.9
_LONGEST = 60  # characters of a name that spelling is compared for


def describe_unknown(
    path: KeyPath, value: object, schema: type[BaseModel], with_hint: bool = True
) -> str:
    """Return the continuation of an error that starts with the key: its new name, or a hint."""
    if renamed := RENAMED.get(".".join(path)):
        return f" is now {renamed}"
    return f": unknown key{_hint(path, value, schema) if with_hint else ''}"


def _hint(path: KeyPath, value: object, schema: type[BaseModel]) -> str:
    """Return a hint to the key that is probably meant, or nothing.

    Meaning precedes spelling: other tools' names are mapped to the key of that meaning. Similar
    names of the same section follow, then nearly equal ones of other sections.
    """
    from seq2seq.config import foreign_keys  # a large table, which a valid config does not need

    known = dict(key_descriptions(schema))
    if "." in path[-1]:
        path = (*path[:-1], *path[-1].split("."))
        if ".".join(path) in known:
            return f"; write {path[-1]} below the section {'.'.join(path[:-1])}"
    above, name = "".join(f"{each}." for each in path[:-1]), _plain(path[-1])
    if isinstance(value, Mapping) and not above and not value.keys() <= _OF_A_TEXT:
        section = foreign_keys.SECTIONS.get(name)
        if section in known:
            return f"; did you mean the section '{section}'?"
    if above + name in known:
        return _suggest([above + name], above)
    if above.startswith("data.") and name in foreign_keys.SPLIT_KEYS:
        return _suggest([above + foreign_keys.SPLIT_KEYS[name]], above)
    for entry in (above + name, name):
        if entry in foreign_keys.ADVICE:
            return f"; {foreign_keys.ADVICE[entry]}"
        key = foreign_keys.KEYS.get(entry, "")
        if key in known and (
            name not in foreign_keys.AMBIGUOUS or above in ("", f"{key.split('.')[0]}.")
        ):
            return f"; did you mean '{key}' ({known[key]})?"
    return _suggest(_in_other_sections(name, known) or _similar(above, name, known), above)


def _suggest(keys: Iterable[str], above: str) -> str:
    names = [f"'{key.removeprefix(above)}'" for key in keys]
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _plain(name: str) -> str:
    """Return a name in lower case, with underscores: batch-size and batchSize as batch_size."""
    return re.sub("[- ]", "_", re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("-"))).lower()


def _in_other_sections(name: str, known: Iterable[str]) -> list[str]:
    """Return the keys of this name in any section."""
    return [key for key in known if key.rpartition(".")[2] == name and name not in _GENERIC]


def _similar(above: str, name: str, known: Iterable[str]) -> list[str]:
    """Return the most similar key of the section, or else a nearly equal one of another."""
    if len(name) > _LONGEST:
        return []
    parts = [key.rpartition(".") for key in known]
    here = [key for section, dot, key in parts if section + dot == above]
    if (best := max(here, key=partial(_likeness, name))) and _likeness(name, best) >= _SIMILAR:
        return [above + best]
    elsewhere = sorted({key for _, _, key in parts} - set(_GENERIC))
    best = max(elsewhere, key=partial(_likeness, name))
    return _in_other_sections(best, known) if _likeness(name, best) >= _SIMILAR_ELSEWHERE else []


def _likeness(name: str, key: str) -> float:
    """Return the ratio of matching characters; 0 if a word is another one, or there are more."""
    ours, given = key.split("_"), name.split("_")
    joined = _ratio("".join(given), "".join(ours))
    if len(ours) != len(given):
        return joined if joined >= _SAME_WORDS else 0.0
    ratios = (_ratio(*words) for words in zip(given, ours, strict=True))
    return joined if min(ratios) >= _SIMILAR_WORD else 0.0


def _ratio(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first, second, autojunk=False).ratio()


def suggest_override(option: str, schema: type[BaseModel]) -> str:
    """Return a hint for an option that is a key of the config or of another tool, or nothing."""
    from seq2seq.config import foreign_keys

    name = _plain(option.partition("=")[0])
    known = dict(key_descriptions(schema))
    keys = [name] if name in known else _in_other_sections(name, known)
    if not keys and foreign_keys.KEYS.get(name) in known:
        keys = [foreign_keys.KEYS[name]]
    keys = [key for key in keys if section_at(schema, key) is None]
    if not keys and name in foreign_keys.ADVICE:
        return f"; {foreign_keys.ADVICE[name]}"
    names = " or ".join(f"{key}=VALUE" for key in keys)
    return f"; keys of the config are set without dashes: {names}" if names else ""


def key_descriptions(schema: type[BaseModel], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield each key and section of a schema by its dotted name, with its description."""
    for name, info in schema.model_fields.items():
        yield f"{above}{name}", info.description or ""
        if section := section_class(info.annotation):
            yield from key_descriptions(section, f"{above}{name}.")


def section_at(schema: type[BaseModel], key: str) -> type[BaseModel] | None:
    """Return the class of the section of this dotted name, or None for a key with a value."""
    section: type[BaseModel] | None = schema
    for name in key.split("."):
        assert section is not None, "a value has no keys"
        section = section_class(section.model_fields[name].annotation)
    return section


def section_class(annotation: object) -> type[BaseModel] | None:
    """Return the section class in a field's type (also in `Section | None`), if there is one."""
    for option in (annotation, *get_args(annotation)):
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None
