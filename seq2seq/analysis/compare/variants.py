"""What `seq2seq compare` trains: variants of one config that a YAML lists, or several configs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, ValidationError

from seq2seq.config.document import Document, read_document
from seq2seq.config.errors import ConfigError, ConfigIssue, describe, show, summary
from seq2seq.config.fields import FilePath, Section
from seq2seq.config.schema import VARIANTS, Config, DecodingConfig, load_config
from seq2seq.runtime.errors import UserError

SEEDS = (1, 2, 3)  # where nobody says which
FOLDER = Path("runs/compare")
_NAME = re.compile(r"[\w+][\w.+-]*")
_EXAMPLE = "write as in `wide: {model.hidden_size: 700, model.dropout: 0.4}`"
_OWN = {
    "name": "each run is called VARIANT-seedN",
    "run_dir": "each run lies in FOLDER/VARIANT-seedN; set folder, or give -o FOLDER",
    "seed": "set seeds, or give --seeds 1,2,3",
}


class Variant(NamedTuple):
    """One of what is compared; its config is that of all its runs but for what `_OWN` names."""

    name: str
    config: Config


class Plan(NamedTuple):
    """All runs of a comparison; `notes` are for the user."""

    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    folder: Path
    notes: tuple[str, ...]

    def run_config(self, variant: Variant, seed: int) -> Config:
        """The config of an ordinary run: what this variant translates with."""
        name = f"{self.trained_as(variant).name}-seed{seed}"
        own = {"name": name, "run_dir": self.folder / name, "seed": seed}
        return variant.config.model_copy(update=own)

    def trained_as(self, variant: Variant) -> Variant:
        """The first variant that differs from this one in decoding at most: they share its runs."""
        same = _training_part(variant.config)
        return next(each for each in self.variants if _training_part(each.config) == same)

    def trained(self) -> tuple[Variant, ...]:
        """The variants that have runs of their own."""
        return tuple(each for each in self.variants if self.trained_as(each) is each)


def parsed_seeds(given: object) -> tuple[int, ...]:
    """Seeds from a list, or from text such as `1,2,3`; raises ValueError."""
    texts = given.split(",") if isinstance(given, str) else given
    words = [str(each).strip() for each in texts] if isinstance(texts, Sequence) else []
    if not words or not all(re.fullmatch("[0-9]{1,18}", word) for word in words):
        raise ValueError("must be whole numbers, such as 1, 2, 3")
    seeds = tuple(map(int, words))
    if len(set(seeds)) < len(seeds):
        raise ValueError("must all be different")
    return seeds


class _Listed(Section):
    """The YAML file that lists variants."""

    base: FilePath  # the config that they vary; relative to this file
    folder: FilePath = FOLDER  # where the runs lie; relative to the working directory
    seeds: Annotated[tuple[int, ...], BeforeValidator(parsed_seeds)] = SEEDS
    variants: dict[str, object]  # by name: the keys it sets, dotted, and their values


def read_plan(
    paths: Sequence[Path],
    overrides: Sequence[str] = (),
    seeds: str | None = None,
    folder: Path | None = None,
) -> Plan:
    """Read one YAML that lists variants, or configs that are variants; overrides are for all.

    A config's variant is called by its key `name`. Raises ConfigError with every mistake at once,
    and UserError where the variants cannot be compared.
    """
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in _OWN:
            raise UserError(f"{override}: {_OWN[key]}")
    try:
        given = None if seeds is None else parsed_seeds(seeds)
    except ValueError as error:
        raise UserError(f"--seeds {seeds}: {error}") from None
    documents = [read_document(path) for path in paths]
    listing = [path for path, each in zip(paths, documents, strict=True) if VARIANTS in each.tree]
    if listing and len(paths) > 1:
        raise UserError(f"{listing[0]}: lists variants of its own; give it alone")
    plan = _listed(paths[0], documents[0], overrides) if listing else _configs(paths, overrides)
    plan = plan._replace(seeds=given or plan.seeds, folder=folder or plan.folder)
    return plan._replace(notes=(*plan.notes, *_check(plan)))


def _configs(paths: Sequence[Path], overrides: Sequence[str]) -> Plan:
    """Each config a variant."""
    variants, notes, refusals = [], [], []
    for path in paths:
        try:
            config, found = load_config(path, overrides)
        except ConfigError as error:
            refusals.append(str(error))
            continue
        if not _NAME.fullmatch(config.name):
            refusals.append(f"{path}: name: {show(config.name)}: {_naming()}")
        variants.append(Variant(config.name, config))
        notes += [f"{config.name}: {note}" for note in found]
    if refusals:
        raise ConfigError("\n".join(refusals))
    return Plan(tuple(variants), SEEDS, FOLDER, tuple(notes))


def _listed(path: Path, document: Document, overrides: Sequence[str]) -> Plan:
    """The variants that a file lists."""
    mistakes, listed = document.issues, None
    try:
        listed = _Listed.model_validate(document.tree)
    except ValidationError as error:
        for details in error.errors(include_url=False) if not document.incomplete else ():
            mistakes.append(describe(details, _Listed, document.lines, set()))
    base, refusal, found = document.tree.get("base"), None, _Found([], [], [])
    if isinstance(base, str) and base:
        try:
            load_config(path.parent / base)
        except ConfigError as error:
            if error.issues:
                refusal = str(error)
            else:
                mistakes.append(ConfigIssue(document.lines["base",], f"base: {error}"))
        else:
            found = _varied(path.parent / base, document, overrides)
    mistakes += dict.fromkeys(found.mistakes)  # one of the command line is every variant's
    if mistakes or refusal:
        told = summary(path, mistakes) if mistakes else None
        raise ConfigError("\n".join(filter(None, (told, refusal))))
    assert listed is not None, "what it lacks is among the mistakes"
    return Plan(tuple(found.variants), listed.seeds, listed.folder, tuple(found.notes))


class _Found(NamedTuple):
    variants: list[Variant]
    mistakes: list[ConfigIssue]
    notes: list[str]


def _varied(base: Path, document: Document, overrides: Sequence[str]) -> _Found:
    """The base config under the keys of each variant, and what is wrong with them."""
    found, listed = _Found([], [], []), document.tree[VARIANTS]
    if listed == {}:
        line = document.lines[VARIANTS,]
        found.mistakes.append(ConfigIssue(line, f"{VARIANTS}: lists none; {_EXAMPLE}"))
    for name, settings in listed.items() if isinstance(listed, dict) else ():
        wrong = list(_misset(name, settings, document))
        found.mistakes.extend(wrong)
        if wrong:
            continue
        keys = (settings or {}).items()
        chosen = [f"{key}={'null' if value is None else value}" for key, value in keys]
        try:
            config, notes = load_config(base, [*chosen, *overrides])
        except ConfigError as error:
            for mistake in error.issues:
                found.mistakes.append(_of_variant(mistake, name, base, document, overrides))
        else:
            found.variants.append(Variant(name, config))
            found.notes.extend(f"{name}: {note}" for note in notes)
    return found


def _misset(name: str, settings: object, document: Document) -> Iterator[ConfigIssue]:
    """What is wrong with a variant before its keys are looked at one by one."""
    place, line = f"{VARIANTS}.{name}", document.lines[VARIANTS, name]
    if not _NAME.fullmatch(name):
        yield ConfigIssue(line, f"{place}: {_naming()}")
    if settings is not None and not isinstance(settings, Mapping):
        yield ConfigIssue(
            line, f"{place}: must be a section of keys; {_EXAMPLE}; got {show(settings)}"
        )
        return
    for key, value in (settings or {}).items():
        line = document.lines[VARIANTS, name, key]
        if key in _OWN:
            yield ConfigIssue(line, f"{place}.{key}: {_OWN[key]}")
        elif isinstance(value, dict | list):
            yield ConfigIssue(line, f"{place}.{key}: must be a single value; {_EXAMPLE}")


def _of_variant(
    mistake: ConfigIssue, name: str, base: Path, document: Document, overrides: Sequence[str]
) -> ConfigIssue:
    """A mistake of the base under the keys of a variant, told where the variant is listed."""
    line = document.lines[VARIANTS, name]
    if not mistake.command_line:
        where = f"{base}, line {mistake.line}" if mistake.line else f"{base}"
        return ConfigIssue(line, f"{VARIANTS}.{name}: with it, {where}: {mistake.text}")
    key = mistake.text.partition(" (command line)")[0].partition("=")[0].strip()
    if key in {each.partition("=")[0].strip() for each in overrides}:
        return mistake
    text = mistake.text.replace(" (command line)", "", 1)
    line = document.lines.get((VARIANTS, name, key), line)
    return ConfigIssue(line, f"{VARIANTS}.{name}.{text}")


def _check(plan: Plan) -> Iterator[str]:
    """Refuse variants that cannot be told apart or are scored on other text; note other training.

    Raises UserError.
    """
    first, *others = plan.variants
    for earlier, variant in combinations(plan.variants, 2):
        if variant.name.casefold() == earlier.name.casefold():
            raise UserError(f"two variants are called {variant.name}; give each a name of its own")
        if _nameless(variant.config) == _nameless(earlier.config):
            raise UserError(
                f"{variant.name}: is the same as {earlier.name} in every key; change one or drop it"
            )
    for variant in others:
        if variant.config.data.direction != first.config.data.direction:
            raise UserError(
                f"{variant.name}: translates {variant.config.data.direction}, {first.name} "
                f"{first.config.data.direction}; compare models of one direction"
            )
        for split in ("train", "valid", "test"):
            own, shared = (getattr(each.config.data, split) for each in (variant, first))
            if own == shared:
                continue
            if split != "train":
                raise UserError(
                    f"{variant.name}: data.{split} is not that of {first.name}, "
                    "and scores of different text do not compare; give both the same files"
                )
            yield f"{variant.name}: learns from other files than {first.name} (data.train)"


def _nameless(config: Config) -> Config:
    """What a comparison takes from a config."""
    return config.model_copy(update={"name": "", "run_dir": Path(), "seed": 0})


def _training_part(config: Config) -> Config:
    """What of it matters to training; the greedy search of validation goes with the run's."""
    return _nameless(config).model_copy(update={"decoding": DecodingConfig()})


def _naming() -> str:
    return "names files: letters, digits, + . - and _ alone, and no . or - at the beginning"
