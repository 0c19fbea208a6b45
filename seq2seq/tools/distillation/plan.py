"""Plan of a distillation: the steps, in an order in which each has what it needs.

A plan is data alone: making it reads and writes no file.

1. Teachers are trained, and their ensemble is scored on the validation text.
2. A reversed model translates the targets of the training text into new sources.
3. The ensemble of the teachers translates the sources and the new sources; each teacher alone
   translates the sources.
4. A student is trained on the pairs of the user and on all of these.

For a second generation two such students are trained; their ensemble translates the sources and
the new sources, and another student is trained, on translations by ensembles alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from seq2seq.config.corpora import Corpus
from seq2seq.config.schema import Config
from seq2seq.tools.distillation import configs
from seq2seq.tools.distillation.steps import (
    BACK_TRANSLATE,
    TRANSLATE,
    CorpusTranslation,
    ModelScoring,
    Step,
    Training,
    Workplace,
)

PLAIN = "plain"
REVERSED = "reversed"
STUDENT = "student"
TEACHERS, STUDENTS = "teachers", "students"  # ensembles, and their translations
SCORE = "score-"  # before the name of a model or an ensemble


class DistillationRequest(NamedTuple):
    """Configs and texts to distil, as a user gives them."""

    config: Config
    teachers: tuple[Config, ...] = ()  # given by configs of their own; else seeds of the config
    monolingual: Path | None = None  # further text of the target language
    sizes: tuple[float, ...] = (1.0,)  # shares of the corpora in the pairs of the training text
    monolingual_size: float = 0.0  # lines, in multiples of all pairs
    generations: int = 1

    @property
    def most(self) -> "Outline":
        """Return the outline of all that is asked for."""
        return Outline(len(self.teachers) or 2, True, self.generations)

    def epoch_size(self, config: Config) -> float:
        """Return the pairs of an epoch of a training on the user's text, in multiples of all."""
        weights = [corpus.weight for corpus in config.data.train]
        return epoch_size(self.sizes, weights)


class Outline(NamedTuple):
    """Extent of a distillation: teachers, reversed model and generations."""

    teachers: int = 2
    has_reversed: bool = True
    generations: int = 1  # 0: a plain training alone
    max_minutes: float | None = None  # of a plain training that fits no other way


class StepPlan(NamedTuple):
    """Steps of a distillation; after the first part `best_model.pays` decides about the second."""

    teachers: tuple[Step, ...]
    students: tuple[Step, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return all steps."""
        return *self.teachers, *self.students

    def trainings(self) -> dict[str, Training]:
        """Return the trainings by name."""
        return {step.name: step for step in self.steps if isinstance(step, Training)}


class _Text(NamedTuple):
    """Lines of both sides of a corpus of the user, or of monolingual text."""

    suffix: str  # of the names of steps that translate it
    src: Path | None
    tgt: Path
    weight: float
    size: float


def epoch_size(sizes: Sequence[float], weights: Sequence[float]) -> float:
    """Return the size of an epoch: of each corpus a part in proportion to its weight is used."""
    parts = [size * weight for size, weight in zip(sizes, weights, strict=True)]
    return sum(parts) / max(weights)


def plan_of(request: DistillationRequest, outline: Outline, place: Workplace) -> StepPlan:
    """Return the steps of a distillation in a folder."""
    valid = tuple(request.config.data.valid.paths.values())
    trainings = tuple(_teachers(request, outline, place))
    teacher_names = tuple(step.name for step in trainings)
    teachers: tuple[Step, ...] = (*trainings, *_scorings(teacher_names, TEACHERS, valid))
    if not outline.generations:
        return StepPlan(teachers, ())
    steps = list[Step]()
    if outline.has_reversed:
        config = configs.reversed_config(request.config, place.run(REVERSED))
        steps.append(Training(REVERSED, config, request.epoch_size(config)))
    texts = _texts(request, outline, place)
    reversed_texts = texts if outline.has_reversed else []
    back_translations = list(_back_translations(reversed_texts))
    by_teachers = [
        *_translations(texts, teacher_names, TEACHERS),
        *_of_new_sources(reversed_texts, teacher_names, TEACHERS, place),
    ]
    by_one_teacher = [
        step
        for name in teacher_names
        for step in _translations(texts, (name,), f"{name}-alone")
        if len(teacher_names) > 1
    ]
    translations = [*back_translations, *by_teachers, *by_one_teacher]
    steps += translations
    if outline.generations > 1:
        students = f"{STUDENT}-1", f"{STUDENT}-2"
        for seed_offset, name in enumerate(students):  # two seeds make an ensemble
            steps.append(_student(name, request, translations, place, seed_offset))
        steps += _scorings(students, STUDENTS, valid)
        by_students = [
            *_translations(texts, students, STUDENTS),
            *_of_new_sources(reversed_texts, students, STUDENTS, place),
        ]
        translations = [*back_translations, *by_teachers, *by_students]
        steps += by_students
    steps.append(_student(STUDENT, request, translations, place))
    steps += _scorings((STUDENT,), "", valid)
    return StepPlan(teachers, tuple(steps))


def corpus_sides(
    request: DistillationRequest, place: Workplace
) -> Iterator[tuple[Corpus, Path, Path]]:
    """Yield each corpus with the files of its lines, which are extracted if it is a table."""
    corpora = request.config.data.train
    for number, corpus in enumerate(corpora, start=1):
        if corpus.src is not None and corpus.tgt is not None:
            yield corpus, corpus.src, corpus.tgt
        else:
            yield corpus, *place.sides(f"corpus{_suffix(number, len(corpora))}")


def _suffix(number: int, count: int) -> str:
    return "" if count == 1 else f"-{number}"


def _teachers(
    request: DistillationRequest, outline: Outline, place: Workplace
) -> Iterator[Training]:
    """Yield the trainings of teachers: given ones, or the plain training and further seeds."""
    teachers = request.teachers[: outline.teachers] if outline.generations else ()
    for number, config in enumerate(teachers, start=1):
        name = f"teacher-{number}"
        seeded = configs.seeded(config, place.run(name))
        yield Training(name, seeded, request.epoch_size(config))
    for seed_offset in range(0 if teachers else outline.teachers):
        name = f"teacher-{seed_offset + 1}" if seed_offset else PLAIN
        seeded = configs.seeded(request.config, place.run(name), seed_offset)
        config = configs.limited(seeded, outline.max_minutes)
        yield Training(name, config, request.epoch_size(config))


def _scorings(
    names: tuple[str, ...], ensemble: str, valid: tuple[Path, ...]
) -> Iterator[ModelScoring]:
    """Yield the scorings of models, and of several as an ensemble."""
    for name in names:
        yield ModelScoring(f"{SCORE}{name}", (name,), valid)
    if len(names) > 1:
        yield ModelScoring(f"{SCORE}{ensemble}", names, valid)


def _texts(request: DistillationRequest, outline: Outline, place: Workplace) -> list[_Text]:
    """Return the texts to translate; monolingual text needs a reversed model."""
    texts = list[_Text]()
    sides = list(corpus_sides(request, place))
    for number, (corpus, src, tgt) in enumerate(sides, start=1):
        suffix = _suffix(number, len(sides))
        size = request.sizes[number - 1]
        texts.append(_Text(suffix, src, tgt, corpus.weight, size))
    if request.monolingual is not None and outline.has_reversed:
        size = request.monolingual_size
        texts.append(_Text("-monolingual", None, request.monolingual, 1.0, size))
    return texts


def _back_translations(texts: Iterable[_Text]) -> Iterator[CorpusTranslation]:
    """Yield translations of target lines into new sources, by the reversed model."""
    models = (REVERSED,)
    for text in texts:
        name = _back_translation(text)
        yield CorpusTranslation(name, BACK_TRANSLATE, models, text.tgt, text.size, text.weight)


def _back_translation(text: _Text) -> str:
    """Return the name of the step that translates the targets of a text into new sources."""
    return f"back{text.suffix}"


def _translations(
    texts: Iterable[_Text], models: tuple[str, ...], name: str
) -> Iterator[CorpusTranslation]:
    """Yield translations of the source lines of the user."""
    for text in texts:
        if text.src is not None:
            step = f"{name}{text.suffix}"
            yield CorpusTranslation(step, TRANSLATE, models, text.src, text.size, text.weight)


def _of_new_sources(
    texts: Iterable[_Text], models: tuple[str, ...], name: str, place: Workplace
) -> Iterator[CorpusTranslation]:
    """Yield translations of the new sources of texts."""
    for text in texts:
        source = _back_translation(text)
        src, _ = place.sides(source)
        step = f"back-{name}{text.suffix}"
        yield CorpusTranslation(step, TRANSLATE, models, src, text.size, text.weight, source)


def _student(
    name: str,
    request: DistillationRequest,
    translations: Sequence[CorpusTranslation],
    place: Workplace,
    seed_offset: int = 0,
) -> Training:
    """Return the training of a student on the pairs of the user and on translations."""
    sizes = [*request.sizes, *(step.size for step in translations)]
    corpora = []
    for step in translations:
        src, tgt = place.sides(step.name)
        corpora.append(Corpus(src=src, tgt=tgt, weight=step.weight))
    config = configs.seeded(request.config, place.run(name), seed_offset)
    weights = [corpus.weight for corpus in (*config.data.train, *corpora)]
    size = epoch_size(sizes, weights)
    config = configs.student_config(config, corpora, size / request.epoch_size(config))
    return Training(name, config, size, tuple(step.name for step in translations))
