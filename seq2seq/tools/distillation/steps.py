"""Steps of a distillation: commands of `seq2seq`, with the files that they read and write.

All files lie in the folder `distillation` of the run folder:

NAME.yaml, NAME/         config and run of a training
NAME.src, NAME.tgt       pairs that a translation writes
NAME.json                scores on the validation text
"""

from pathlib import Path
from typing import NamedTuple

from seq2seq.config.schema import Config
from seq2seq.runs.layout import BEST

FOLDER = "distillation"
BEAM_SIZE = 3  # of translations to train on
TRANSLATE, BACK_TRANSLATE = "distill", "back-translate"  # commands


class Workplace(NamedTuple):
    """Folder of the files of a distillation, and how its commands load models."""

    folder: Path
    device: str = "auto"
    int8: bool = False  # in translations to train on
    scores: tuple[str, ...] = ()  # attention scores outside of the package that are trusted

    def config(self, name: str) -> Path:
        """Return the config of a training."""
        return self.folder / f"{name}.yaml"

    def run(self, name: str) -> Path:
        """Return the run folder of a training."""
        return self.folder / name

    def best(self, names: tuple[str, ...]) -> tuple[Path, ...]:
        """Return the best weights of trainings."""
        return tuple(self.run(name) / BEST for name in names)

    def sides(self, name: str) -> tuple[Path, Path]:
        """Return the files of a text, source and target."""
        return self.folder / f"{name}.src", self.folder / f"{name}.tgt"

    def report(self, name: str) -> Path:
        """Return the file of the scores of a step."""
        return self.folder / f"{name}.json"

    def loading(self) -> list[str]:
        """Return the options of commands that train or load a model."""
        scores = [word for name in self.scores for word in ("--score", name)]
        return ["--device", self.device, *scores]

    def models(self, names: tuple[str, ...]) -> list[str]:
        """Return the options that name runs."""
        return [word for name in names for word in ("-m", str(self.run(name)))]


class Training(NamedTuple):
    """Training of a model: `seq2seq train`."""

    name: str
    config: Config
    epoch_size: float = 1.0  # pairs of an epoch, in multiples of all pairs of the user
    needs: tuple[str, ...] = ()  # steps whose texts it reads

    @property
    def label(self) -> str:
        """Describe the step for the user."""
        return f"train, seed {self.config.seed}, {self.config.data.direction}"

    def words(self, place: Workplace) -> list[str]:
        """Return the command; `--resume` also starts a run."""
        return ["train", str(place.config(self.name)), "--resume", *place.loading()]

    def inputs(self, _place: Workplace) -> tuple[Path, ...]:
        """Return the files that are read."""
        files = (*self.config.data.train, self.config.data.valid)
        return tuple(path for text in files for path in text.paths.values())

    def outputs(self, place: Workplace) -> tuple[Path, ...]:
        """Return the files by which the result is recognised."""
        return place.best((self.name,))


class CorpusTranslation(NamedTuple):
    """Translation of a text into pairs to train on: `seq2seq distill` or `back-translate`."""

    name: str
    command: str
    models: tuple[str, ...]  # trainings; several are an ensemble
    text: Path
    size: float = 1.0  # lines, in multiples of the pairs of the user's text
    weight: float = 1.0  # of the pairs in training
    source: str | None = None  # step that writes the text; None: the user's

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the steps whose runs and texts are read."""
        return self.models if self.source is None else (*self.models, self.source)

    @property
    def label(self) -> str:
        """Describe the step for the user."""
        return f"{self.command} {self.text.name} by {' and '.join(self.models)}"

    def words(self, place: Workplace) -> list[str]:
        """Return the command; with `--overwrite` it still resumes a translation of its own."""
        outputs = ["-o", *map(str, place.sides(self.name))]
        options = ["-b", str(BEAM_SIZE), "--overwrite", *place.loading()]
        if place.int8:
            options.append("--int8")
        texts = ["-i", str(self.text), *outputs]
        return [self.command, *place.models(self.models), *texts, *options]

    def inputs(self, place: Workplace) -> tuple[Path, ...]:
        """Return the files that are read."""
        return self.text, *place.best(self.models)

    def outputs(self, place: Workplace) -> tuple[Path, ...]:
        """Return the files that are written."""
        return place.sides(self.name)


class ModelScoring(NamedTuple):
    """Scores of a model or an ensemble on the validation text: `seq2seq evaluate`."""

    name: str
    models: tuple[str, ...]
    valid: tuple[Path, ...] = ()  # files of the validation text

    @property
    def label(self) -> str:
        """Describe the step for the user."""
        return f"evaluate {' and '.join(self.models)}"

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the steps whose runs are loaded."""
        return self.models

    def words(self, place: Workplace) -> list[str]:
        """Return the command."""
        report = ["--split", "valid", "--json", str(place.report(self.name))]
        return ["evaluate", *place.models(self.models), *report, *place.loading()]

    def inputs(self, place: Workplace) -> tuple[Path, ...]:
        """Return the files that are read."""
        return *place.best(self.models), *self.valid

    def outputs(self, place: Workplace) -> tuple[Path, ...]:
        """Return the file that is written."""
        return (place.report(self.name),)


Step = Training | CorpusTranslation | ModelScoring
