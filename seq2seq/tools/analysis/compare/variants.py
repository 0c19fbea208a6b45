"""Read the variants of `seq2seq compare`: a YAML list of changes to a config, or configs."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError

from seq2seq.config.document import Document, read_document
from seq2seq.config.errors import ConfigError, Places, describe_all, summary
from seq2seq.config.fields import FilePath, Section, show, show_flow
from seq2seq.config.schema import VARIANTS, Config, DecodingConfig, read_config_file
from seq2seq.runtime.errors import UserError, argument

SEEDS = (1, 2, 3)  # default
FOLDER = Path("runs/compare")
CURVES, LENGTHS = "curves", "lengths"  # figures
FIGURE_SUFFIXES = (".svg", ".pdf", ".png")
TABLES = {"latex": ".tex", "markdown": ".md", "csv": ".csv"}  # forms, with the suffixes of files
TABLE_NAMES = ("variants", "differences", "lengths")
_NAME = re.compile(r"[\w+][\w.+-]*")
_NAMING = "becomes a file name: use letters, digits, + . - and _ only, not starting with . or -"
_EXAMPLE = "for example `wide: {model.hidden_size: 700, model.dropout: 0.4}`"
_RESERVED = {  # keys that compare sets for each run
    "name": "each run is named VARIANT-seedN",
    "run_dir": "each run folder is FOLDER/VARIANT-seedN; set folder, or pass another",
    "seed": "set seeds, such as 1,2,3, for all variants",
}


class Variant(NamedTuple):
    """One of the compared systems; its runs share its config except for the reserved keys."""

    name: str
    config: Config


class Plan(NamedTuple):
    """All runs of a comparison, with notes for the user."""

    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    folder: Path
    notes: tuple[str, ...]

    def run_config(self, variant: Variant, seed: int) -> Config:
        """Return the config of the run with which a variant translates."""
        name = f"{self.trained_as(variant).name}-seed{seed}"
        keys = {"name": name, "run_dir": self.folder / name, "seed": seed}
        return variant.config.model_copy(update=keys)

    def trained_as(self, variant: Variant) -> Variant:
        """Return the first variant that equals this one except in decoding; they share its runs."""
        part = _training_part(variant.config)
        return next(first for first in self.variants if _training_part(first.config) == part)

    def trained(self) -> tuple[Variant, ...]:
        """Return the variants that are trained, without those that share runs."""
        return tuple(variant for variant in self.variants if self.trained_as(variant) is variant)

    def run_configs(self) -> list[Config]:
        """Return the configs of all runs to train, all variants with one seed before the next."""
        return [self.run_config(variant, seed) for seed in self.seeds for variant in self.trained()]

    def output_path(self, name: str, split: str) -> Path:
        """Return the file of the translations by `name`, a run or an ensemble."""
        return self.folder / f"{name}.{split}.hyp"

    def table_path(self, name: str, split: str, suffix: str) -> Path:
        """Return the file of a table of TABLE_NAMES."""
        return self.folder / f"{name}.{split}{suffix}"

    def figure_path(self, name: str, suffix: str) -> Path:
        """Return the file of a figure."""
        return self.folder / f"{name}{suffix}"

    def output_paths(self, split: str, table: str | None = None) -> list[Path]:
        """Return all files that the comparison writes beside its runs, with tables of a form."""
        suffixes = [*(f"seed{seed}" for seed in self.seeds), "ensemble"]
        names = (f"{variant.name}-{suffix}" for variant in self.variants for suffix in suffixes)
        texts = [self.output_path(name, split) for name in names]
        figures = [
            self.figure_path(name, suffix)
            for name in (CURVES, LENGTHS)
            for suffix in FIGURE_SUFFIXES
        ]
        if table is None:
            return [*texts, *figures]
        tables = [self.table_path(name, split, TABLES[table]) for name in TABLE_NAMES]
        return [*texts, *figures, *tables]


def parse_seeds(value: object) -> tuple[int, ...]:
    """Parse seeds from a list or from text such as `1,2,3`; raise ValueError."""
    texts = value.split(",") if isinstance(value, str) else value
    words = [str(text).strip() for text in texts] if isinstance(texts, Sequence) else []
    if not words or not all(re.fullmatch("[0-9]{1,18}", word) for word in words):
        raise ValueError("must be integers, such as 1, 2, 3")
    seeds = tuple(map(int, words))
    if len(set(seeds)) < len(seeds):
        raise ValueError("must be distinct")
    return seeds


class _VariantList(Section):
    """A YAML file that lists variants."""

    base: FilePath  # config to change, relative to this file
    folder: FilePath = FOLDER  # parent of the run folders, relative to the working directory
    seeds: Annotated[tuple[int, ...], BeforeValidator(parse_seeds)] = SEEDS
    variants: Annotated[dict[str, object], Field(min_length=1)]  # dotted keys by name


def read_plan(
    paths: Sequence[Path],
    overrides: Sequence[str] = (),
    seeds: str | None = None,
    folder: Path | None = None,
) -> Plan:
    """Read a list of variants, or configs named by their key `name`; overrides apply to all.

    Raises ConfigError with all issues, and UserError if the variants cannot be compared.
    """
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in _RESERVED:
            raise UserError(f"{override}: {_RESERVED[key]}")
    try:
        seed_list = None if seeds is None else parse_seeds(seeds)
    except ValueError as error:
        raise UserError(f"{argument('seeds', seeds)}: {error}") from None
    documents = {path: read_document(path) for path in paths}
    lists = [path for path, document in documents.items() if VARIANTS in document.tree]
    if lists and len(paths) > 1:
        raise UserError(f"{lists[0]}: lists variants itself. Pass no other file.")
    if lists:
        plan = _read_list(paths[0], documents[paths[0]], overrides)
    else:
        plan = _read_variants([(None, path, lambda: overrides, "") for path in paths])
    plan = plan._replace(seeds=seed_list or plan.seeds, folder=folder or plan.folder)
    return plan._replace(notes=(*plan.notes, *_check(plan)))


def _read_variants(
    entries: Iterable[tuple[str | None, Path, Callable[[], Sequence[str]], str]],
) -> Plan:
    """Read variants: the name (None: that of the config), config and overrides of each.

    The last part of an entry precedes its errors. Raises ConfigError with those of all.
    """
    variants = list[Variant]()
    notes = list[str]()
    errors = list[str]()
    for name, path, overrides, place in entries:
        try:
            config, ignored = read_config_file(path, overrides())
        except ConfigError as error:
            errors += [place + text for text in error.lines]
            continue
        if name is None and not _NAME.fullmatch(config.name):
            errors.append(f"{path}: name: {show(config.name)}: {_NAMING}")
        variants.append(Variant(name or config.name, config))
        notes += [f"{variants[-1].name}: {note}" for note in ignored]
    if errors:
        raise ConfigError(*errors)
    return Plan(tuple(variants), SEEDS, FOLDER, tuple(notes))


def _read_list(path: Path, document: Document, overrides: Sequence[str]) -> Plan:
    """Read the variants that a file lists: the errors of the list, or else of its variants."""
    issues = document.issues
    try:
        listed = _VariantList.model_validate(document.tree)
    except ValidationError as error:
        if not document.incomplete:
            issues += describe_all(error, _VariantList, Places(document.lines))
    if issues:
        raise ConfigError(*summary(path, issues))
    base = path.parent / listed.base
    read_config_file(base)  # the errors that it has alone are of no variant
    entries = []
    for name, settings in listed.variants.items():
        place = f"{path}:{document.lines[VARIANTS, name]}: {VARIANTS}.{name}: "
        entries.append((name, base, partial(_overrides, name, settings, overrides), place))
    return _read_variants(entries)._replace(seeds=listed.seeds, folder=listed.folder)


def _overrides(name: str, settings: object, extra_overrides: Sequence[str]) -> list[str]:
    """Return the keys of a variant as overrides, then further ones; raises ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(_NAMING)
    if not isinstance(settings, Mapping | None):
        raise ConfigError(f"must be a section of keys, {_EXAMPLE}; got {show(settings)}")
    overrides = []
    for key, value in (settings or {}).items():
        if key in _RESERVED:
            raise ConfigError(f"{key}: {_RESERVED[key]}")
        if isinstance(value, list) or (isinstance(value, dict) and "." not in key):
            raise ConfigError(f"{key}: must be a single value, {_EXAMPLE}")
        text = show_flow(value) if isinstance(value, dict) else value
        overrides.append(f"{key}={'null' if text is None else text}")
    return [*overrides, *extra_overrides]


def _check(plan: Plan) -> Iterator[str]:
    """Yield notes on other training text; raises UserError if variants cannot be compared."""
    first = plan.variants[0]
    for earlier, variant in combinations(plan.variants, 2):
        if variant.name.casefold() == earlier.name.casefold():
            raise UserError(f"{variant.name}: two variants have this name. Rename one.")
        if _without_names(variant.config) == _without_names(earlier.config):
            reason = f"{variant.name}: equals {earlier.name} in every key."
            raise UserError(f"{reason} Change or remove one.")
    for variant in plan.variants[1:]:
        if variant.config.data.direction != first.config.data.direction:
            raise UserError(
                f"{variant.name}: translates {variant.config.data.direction}, but {first.name} "
                f"{first.config.data.direction}. Compare models of one direction."
            )
        for split in ("valid", "test"):
            if getattr(variant.config.data, split) != getattr(first.config.data, split):
                reason = f"{variant.name}: data.{split} differs from that of {first.name}; scores"
                raise UserError(f"{reason} on different text are not comparable. Use the same text")
        if variant.config.data.train != first.config.data.train:
            yield f"{variant.name}: trained on other files than {first.name} (data.train)"


def _without_names(config: Config) -> Config:
    """Return a config without the reserved keys."""
    return config.model_copy(update={"name": "", "run_dir": Path(), "seed": 0})


def _training_part(config: Config) -> Config:
    """Return the part of a config that affects training."""
    return _without_names(config).model_copy(update={"decoding": DecodingConfig()})
