"""Plan of a distillation: its steps, their order, and the configs of its trainings."""

from pathlib import Path

import pytest
from cases.tiers import one_quick
from cases.tiny_runs import tiny_config

from seq2seq.__main__ import GROUPS
from seq2seq.cli.parser import parse
from seq2seq.config.schema import Config
from seq2seq.runtime.errors import UserError
from seq2seq.tools.distillation import configs
from seq2seq.tools.distillation.plan import DistillationRequest, Outline, StepPlan, plan_of
from seq2seq.tools.distillation.steps import CorpusTranslation, ModelScoring, Training, Workplace

PLACE = Workplace(Path("run/distillation"), "cpu", int8=True)


def config_of(**sections: dict[str, object]) -> Config:
    tree = tiny_config(Path("run"), "luong").model_dump()
    for name, section in sections.items():
        tree[name] = {**tree[name], **section}
    return Config.model_validate(tree)


def plan(request: DistillationRequest, **outline: int) -> StepPlan:
    return plan_of(request, request.most._replace(**outline), PLACE)


def texts_of(step: Training) -> list[str]:
    """Return the names of the texts that a training reads, without that of the user."""
    return [corpus.src.stem for corpus in step.config.data.train[1:] if corpus.src]


def test_teachers_are_scored_before_anything_depends_on_them() -> None:
    planned = plan(DistillationRequest(config_of()))
    names = [step.name for step in planned.teachers]
    assert names == ["plain", "teacher-2", "score-plain", "score-teacher-2", "score-teachers"]
    trainings = planned.trainings()
    assert [trainings[name].config.seed for name in ("plain", "teacher-2")] == [1, 2]
    assert [step.name for step in planned.students] == [
        "reversed",
        "back",
        "teachers",
        "back-teachers",
        "plain-alone",
        "teacher-2-alone",
        "student",
        "score-student",
    ]


@one_quick(
    ("generations", "teachers", "monolingual"),
    [(2, 2, True), (1, 2, False), (1, 1, False), (0, 1, False), (2, 1, True)],
)
@pytest.mark.parametrize("has_reversed", [True, False])
def test_each_step_needs_earlier_steps_alone_and_is_a_command(
    generations: int, teachers: int, monolingual: bool, has_reversed: bool
) -> None:
    request = DistillationRequest(config_of(), monolingual=Path("more.yy") if monolingual else None)
    outline = Outline(teachers, has_reversed, generations)
    earlier_names = set[str]()
    written = set[Path]()
    for step in plan_of(request, outline, PLACE).steps:
        assert earlier_names.issuperset(step.needs)
        assert step.name not in earlier_names
        here = {path for path in step.inputs(PLACE) if PLACE.folder in path.parents}
        assert here <= written  # so that a change of a file repeats what it decides
        earlier_names.add(step.name)
        written.update(step.outputs(PLACE))
        parse(step.words(PLACE), GROUPS)
    assert f"score-{'student' if generations else 'plain'}" in earlier_names


def test_a_student_reads_the_texts_of_all_translations() -> None:
    student = plan(DistillationRequest(config_of())).trainings()["student"]
    single_texts = ["plain-alone", "teacher-2-alone"]
    assert texts_of(student) == ["back", "teachers", "back-teachers", *single_texts]
    assert student.epoch_size == 6
    assert student.config.data.train[0] == config_of().data.train[0]
    assert student.config.seed == 1
    assert student.config.name == config_of().name


def test_students_of_students_read_translations_by_ensembles_alone() -> None:
    trainings = plan(DistillationRequest(config_of(), generations=2)).trainings()
    ensembles = ["back", "teachers", "back-teachers"]
    assert texts_of(trainings["student"]) == [*ensembles, "students", "back-students"]
    assert [trainings[f"student-{n}"].config.seed for n in (1, 2)] == [1, 2]
    assert len(texts_of(trainings["student-1"])) == 5


def test_without_a_reversed_model_there_are_no_new_sources() -> None:
    planned = plan(DistillationRequest(config_of(), monolingual=Path("more.yy")), has_reversed=0)
    assert not [step for step in planned.steps if "back" in step.name or step.name == "reversed"]
    assert texts_of(planned.trainings()["student"]) == [
        "teachers",
        "plain-alone",
        "teacher-2-alone",
    ]


def test_one_teacher_translates_each_text_once() -> None:
    planned = plan(DistillationRequest(config_of()), teachers=1)
    assert texts_of(planned.trainings()["student"]) == ["back", "teachers", "back-teachers"]


def test_each_corpus_is_translated_and_keeps_its_weight() -> None:
    corpora = [{"src": "a.xx", "tgt": "a.yy", "weight": 0.5}, {"file": "b.tsv"}]
    request = DistillationRequest(config_of(data={"train": corpora}), sizes=(0.25, 0.75))
    planned = plan(request, teachers=1)
    student = planned.trainings()["student"]
    weights = {
        corpus.src and corpus.src.stem: corpus.weight for corpus in student.config.data.train
    }
    assert weights["teachers-1"] == weights["back-1"] == weights["back-teachers-1"] == 0.5
    assert weights["teachers-2"] == weights["back-2"] == weights["back-teachers-2"] == 1
    used = 0.25 * 0.5 + 0.75  # of all pairs in an epoch of the text alone
    assert planned.trainings()["plain"].epoch_size == used
    assert planned.trainings()["reversed"].epoch_size == used
    assert student.epoch_size == 4 * used
    texts = {step.name: step.text for step in planned.steps if isinstance(step, CorpusTranslation)}
    assert texts["teachers-1"] == Path("a.xx")
    assert texts["back-2"] == PLACE.sides("corpus-2")[1]  # a side of the table


def test_monolingual_text_is_back_translated_and_translated() -> None:
    request = DistillationRequest(config_of(), monolingual=Path("more.yy"), monolingual_size=3)
    planned = plan(request, teachers=1)
    texts = {step.name: step.text for step in planned.steps if isinstance(step, CorpusTranslation)}
    assert texts["back-monolingual"] == Path("more.yy")
    assert texts["back-teachers-monolingual"] == PLACE.sides("back-monolingual")[0]
    assert planned.trainings()["student"].epoch_size == 1 + 3 + 2 * 3


def test_the_epochs_of_a_student_follow_the_weights() -> None:
    """Monolingual text has weight 1: beside it, all of a corpus of weight 0.1 is no longer used."""
    corpora = [{"src": "a.xx", "tgt": "a.yy", "weight": 0.1}]
    config = config_of(data={"train": corpora}, training={"max_epochs": 70})
    request = DistillationRequest(config, monolingual=Path("more.yy"), monolingual_size=1)
    student = plan(request, teachers=1).trainings()["student"]
    assert student.epoch_size == pytest.approx(4 * 0.1 + 2)
    assert student.config.training.max_epochs == 44  # 1.5 * 70 / 2.4


def test_teachers_of_other_configs_replace_the_plain_training() -> None:
    large = config_of(model={"hidden_size": 30})
    planned = plan(DistillationRequest(config_of(), (large, large.model_copy(update={"seed": 5}))))
    trainings = planned.trainings()
    assert [*trainings] == ["teacher-1", "teacher-2", "reversed", "student"]
    assert trainings["teacher-2"].config.model.hidden_size == 30
    assert trainings["teacher-2"].config.seed == 5
    assert trainings["student"].config.model.hidden_size == 20
    (ensemble,) = (step for step in planned.teachers if step.name == "score-teachers")
    assert isinstance(ensemble, ModelScoring)
    assert ensemble.models == ("teacher-1", "teacher-2")


@pytest.mark.parametrize(
    ("limits", "epoch_size", "expected"),
    [
        ({"max_epochs": 12}, 6, {"max_epochs": 3}),
        ({"max_epochs": 10}, 6, {"max_epochs": 3}),
        ({"max_epochs": 2}, 6, {"max_epochs": 1}),
        ({"max_epochs": None, "max_steps": 100}, 6, {"max_steps": 150}),
        ({"max_epochs": None, "max_minutes": 10}, 4, {"max_minutes": 15}),
    ],
)
def test_a_student_sees_half_as_many_pairs_again(
    limits: dict[str, object], epoch_size: float, expected: dict[str, float]
) -> None:
    student = configs.student_config(config_of(training=limits), [], epoch_size)
    names = ("max_epochs", "max_steps", "max_minutes")
    values_of_student = {name: getattr(student.training, name) for name in names}
    assert {
        name: value for name, value in values_of_student.items() if value is not None
    } == expected


def test_a_reversed_config_exchanges_the_sides_of_all_texts() -> None:
    corpora = [{"src": "a.xx", "tgt": "a.yy"}, {"file": "b.tsv"}]
    data = {"train": corpora, "valid": {"file": "c.csv"}, "test": {"src": "d.xx", "tgt": "d.yy"}}
    vocabulary = {"names": "placeholders", "joint": False, "model": ["x.model", "y.model"]}
    config = configs.reversed_config(config_of(data=data, vocabulary=vocabulary), Path("reversed"))
    read = Config.model_validate(config.model_dump())  # is valid, and has no default left
    assert read == config
    assert (read.data.src_lang, read.data.tgt_lang) == ("yy", "xx")
    first, second = read.data.train
    assert (first.src, first.tgt) == (Path("a.yy"), Path("a.xx"))
    assert second.columns == ["2", "1"]
    assert read.data.valid.columns == ["yy", "xx"]
    assert read.data.test is None
    assert read.vocabulary.names is None
    assert read.vocabulary.model == (Path("y.model"), Path("x.model"))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"data": {"train": [{"file": "a.tsv"}, {"file": "b.tsv", "tag": "<bt>"}]}},
            "data.train.2.tag: <bt>: distill-train knows no tag",
        ),
        ({"data": {"valid": {"file": "a.tsv", "tag": "<x>"}}}, "data.valid.tag: <x>"),
        (
            {
                "data": {"train": {"file": "a.tsv", "alignment": "a.links"}},
                "training": {"losses": {"guided_alignment": 0.5}},
            },
            "training.losses.guided_alignment: translated texts have no alignments",
        ),
    ],
)
def test_what_translated_text_cannot_have_is_refused_by_key(
    sections: dict[str, dict[str, object]], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        configs.check_supported(config_of(**sections))
