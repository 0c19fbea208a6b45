"""Configs of the trainings of a distillation, made from the user's: teachers, reversed, student."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from seq2seq.config.corpora import Corpus, DataConfig, NamesConfig, ParallelFiles
from seq2seq.config.schema import Config
from seq2seq.config.training import TrainingConfig
from seq2seq.runtime.errors import UserError

# A student sees this many times the pairs of the plain training: more of them are distinct.
STUDENT_LENGTH = 1.5
Files = TypeVar("Files", ParallelFiles, Corpus)


def check_supported(config: Config, where: str = "") -> None:
    """Raise UserError for a key whose effect on translated text is not defined."""
    data = config.data
    texts = {f"train.{number}": text for number, text in enumerate(data.train, start=1)}
    for name, text in {**texts, "valid": data.valid}.items():
        if text.tag is not None:
            key = f"{where}data.{name}.tag"
            reason = "distill-train knows no tag for the texts that it translates"
            raise UserError(f"{key}: {text.tag}: {reason}. Remove it, or train without that text")
    if config.training.losses.guided_alignment:
        key = f"{where}training.losses.guided_alignment"
        raise UserError(f"{key}: translated texts have no alignments. Set it to 0")


def seeded(config: Config, run_dir: Path, seed_offset: int = 0) -> Config:
    """Return the config of a training with another run folder, and with a later seed."""
    return config.model_copy(update={"run_dir": run_dir, "seed": config.seed + seed_offset})


def limited(config: Config, max_minutes: float | None) -> Config:
    """Return the config of a training that also ends after a number of minutes, if given."""
    if max_minutes is None:
        return config
    minutes = min(max_minutes, config.training.max_minutes or max_minutes)
    training = config.training.model_copy(update={"max_minutes": minutes})
    return config.model_copy(update={"training": training})


def reversed_config(config: Config, run_dir: Path) -> Config:
    """Return the config of a model of the opposite direction.

    It has no placeholders for names, as those are spelled in the script of the target language.
    """
    data = config.data
    vocabulary = config.vocabulary
    swapped = DataConfig(
        src_lang=data.tgt_lang,
        tgt_lang=data.src_lang,
        train=tuple(map(_swapped, data.train)),
        valid=_swapped(data.valid),
        max_length=data.max_length,
    )
    names: NamesConfig | None = None if vocabulary.masks_names else vocabulary.names
    changes = {"names": names, "model": vocabulary.model[::-1]}
    return config.model_copy(
        update={
            "data": swapped,
            "run_dir": run_dir,
            "vocabulary": vocabulary.model_copy(update=changes),
        }
    )


def _swapped(files: Files) -> Files:
    """Return a parallel text with its sides exchanged."""
    if files.file is None:
        return files.model_copy(update={"src": files.tgt, "tgt": files.src})
    return files.model_copy(update={"columns": (files.columns or ["1", "2"])[::-1]})


def student_config(config: Config, corpora: Sequence[Corpus], epoch_size: float) -> Config:
    """Return the config of a training on further corpora, whose epochs are so many times longer."""
    train = (*config.data.train, *corpora)
    updates: dict[str, object] = {
        "data": config.data.model_copy(update={"train": train}),
        "training": _for_student(config.training, epoch_size),
    }
    return config.model_copy(update=updates)


def _for_student(training: TrainingConfig, epoch_size: float) -> TrainingConfig:
    """Return the settings of a training of STUDENT_LENGTH times as many pairs."""
    limits: dict[str, object] = {}
    if (epochs := training.max_epochs) is not None:
        limits["max_epochs"] = max(1, int(STUDENT_LENGTH * epochs / epoch_size + 0.5))
    if (steps := training.max_steps) is not None:
        limits["max_steps"] = round(STUDENT_LENGTH * steps)
    if (minutes := training.max_minutes) is not None:
        limits["max_minutes"] = STUDENT_LENGTH * minutes
    return training.model_copy(update=limits)


def fits_vocabulary(first: Config, second: Config) -> bool:
    """Return whether two trainings on one text have one vocabulary, as an ensemble needs."""
    parts = [config.vocabulary.model_copy(update={"sampling": 0.0}) for config in (first, second)]
    return parts[0] == parts[1]
