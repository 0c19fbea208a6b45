"""scripts/distill.py: an ensemble's translations of its training text, for a student."""

from pathlib import Path

import pytest
import yaml

import distill
from seq2seq.data.lines import read_lines
from seq2seq.inference.translator import Translator

TEACHERS = """\
base: config.yaml
folder: out
seeds: [1, 2]
variants:
  none: {model.decoder: none, training.max_steps: 3, training.validate_every: 3}
  luong: {model.decoder: luong, training.max_steps: 3, training.validate_every: 3}
"""
BACK = """\
base: back.yaml
folder: out-back
seeds: [1]
variants:
  none: {model.decoder: none, training.max_steps: 3, training.validate_every: 3}
"""
STUDENTS = ("out-students/none-seed1", "out-students/none-seed2")
ORDER = ("teachers", "students", "teachers back", "students back")
RUNS = ("none-seed1", "luong-seed1", "none-seed2", "luong-seed2")


@pytest.fixture(autouse=True)
def working_directory(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has teachers and a student to be."""
    monkeypatch.setattr("seq2seq.training.reporting._tensorboard", lambda _: (None, ""))
    monkeypatch.setattr("seq2seq.analysis.compare.figure.write_figures", lambda *_: [])
    monkeypatch.setattr("seq2seq.evaluation.bootstrap.RESAMPLES", 9)
    monkeypatch.chdir(small_corpus.parent)
    Path("teachers.yaml").write_text(TEACHERS, encoding="utf-8")
    student()


def student(src: str | None = "new/both.src", tgt: str | None = "new/both.tgt") -> None:
    """A config that learns from these files."""
    tree = yaml.safe_load(Path("config.yaml").read_text(encoding="utf-8"))
    tree["data"]["train"] = {"src": src, "tgt": tgt} if src else {"file": "train.tsv"}
    tree["training"] = {"max_steps": 2, "batch_tokens": 200}
    del tree["data"]["max_length"]  # barely trained teachers write long lines
    tree["vocabulary"]["size"] = 500  # what barely trained teachers write has more characters
    tree |= {"name": "student", "run_dir": "student"}
    Path("student.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")


def teachers_of_the_other_direction() -> None:
    tree = yaml.safe_load(Path("config.yaml").read_text(encoding="utf-8"))
    data = tree["data"]
    data["src_lang"], data["tgt_lang"] = data["tgt_lang"], data["src_lang"]
    for part in ("train", "valid"):
        data[part] = {"src": data[part]["tgt"], "tgt": data[part]["src"]}
    data.pop("test", None)
    Path("back.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    Path("teachers-back.yaml").write_text(BACK, encoding="utf-8")


def teachers_from_a_third_language() -> None:
    teachers_of_the_other_direction()
    for part in ("train", "valid"):
        lines = read_lines(Path(f"{part}.src"))
        turned = "".join(f"{' '.join(reversed(line.split()))}\n" for line in lines)
        Path(f"{part}.third").write_text(turned, encoding="utf-8")
    tree = yaml.safe_load(Path("back.yaml").read_text(encoding="utf-8"))
    tree["data"]["src_lang"] = "third"
    for part in ("train", "valid"):
        tree["data"][part] = {"src": f"{part}.third", "tgt": f"{part}.src"}
    Path("third.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    third = BACK.replace("back.yaml", "third.yaml").replace("out-back", "out-third")
    Path("teachers-third.yaml").write_text(third, encoding="utf-8")


def run(*teachers: str) -> int:
    return distill.main(["student.yaml", *(teachers or ["teachers.yaml"]), "--device", "cpu"])


def refused(capsys: pytest.CaptureFixture[str], *teachers: str) -> str:
    assert run(*teachers) == 2
    assert not Path("out").exists()
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_student_learns_from_the_text_and_from_its_teachers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run() == 0
    src, tgt = (read_lines(Path(f"train.{side}")) for side in ("src", "tgt"))
    translations = []
    for names in (RUNS, *((name,) for name in RUNS)):
        teachers = Translator.load(*(Path("out") / name for name in names), device="cpu")
        translations += [each.text for each in teachers.translate(src, distill.BEAM)]
    assert read_lines(Path("new/both.src")) == 6 * src
    assert read_lines(Path("new/both.tgt")) == tgt + translations
    assert f"{6 * len(src)} training pairs" in capsys.readouterr().err
    again: list[list[str]] = []
    monkeypatch.setattr(distill, "seq2seq", lambda words: len(again.append(words) or ""))
    assert run() == 0
    assert [words[0] for words in again] == ["compare", "train"]  # which train nothing twice
    assert "--resume" in again[1]
    Path("out/luong-seed2/best.safetensors").write_bytes(b"another teacher")
    assert run() == 0
    assert [words[0] for words in again[2:]] == ["compare", "translate", "translate", "train"]
    assert [words.count("-m") for words in again[3:5]] == [4, 1]


def test_teachers_of_the_other_direction_make_sources_for_the_others() -> None:
    teachers_of_the_other_direction()
    one = TEACHERS.replace("[1, 2]", "[1]").replace("  luong", "  # luong")
    Path("teachers.yaml").write_text(one, encoding="utf-8")
    assert run("teachers.yaml", "teachers-back.yaml") == 0
    src, tgt = (read_lines(Path(f"train.{side}")) for side in ("src", "tgt"))
    there = Translator.load(Path("out/none-seed1"), device="cpu")
    back = Translator.load(Path("out-back/none-seed1"), device="cpu")
    sources = [each.text for each in back.translate(tgt, distill.BEAM)]
    assert read_lines(Path("new/both.src")) == src + src + sources + sources
    written = [[e.text for e in there.translate(text, distill.BEAM)] for text in (src, sources)]
    assert read_lines(Path("new/both.tgt")) == tgt + written[0] + tgt + written[1]


def test_a_third_language_makes_sources_too() -> None:
    """Translations of its lines are paired with the targets of the corpus, line by line."""
    teachers_from_a_third_language()
    one = TEACHERS.replace("[1, 2]", "[1]").replace("  luong", "  # luong")
    Path("teachers.yaml").write_text(one, encoding="utf-8")
    assert run("teachers.yaml", "teachers-back.yaml", "teachers-third.yaml") == 0
    src, tgt, third = (read_lines(Path(f"train.{side}")) for side in ("src", "tgt", "third"))
    maker = Translator.load(Path("out-third/none-seed1"), device="cpu")
    made = [each.text for each in maker.translate(third, distill.BEAM)]
    sources, back = read_lines(Path("new/both.src")), read_lines(Path("out-back/train.hyp"))
    assert sources == 2 * src + back + made + back + made
    teacher = Translator.load(Path("out/none-seed1"), device="cpu")
    again = [each.text for each in teacher.translate(made, distill.BEAM)]
    targets, count = read_lines(Path("new/both.tgt")), len(src)
    assert targets[:count] == targets[2 * count : 3 * count] == targets[3 * count : 4 * count]
    assert targets[3 * count : 4 * count] == tgt
    assert targets[5 * count :] == again


def test_a_third_language_needs_the_corpus(capsys: pytest.CaptureFixture[str]) -> None:
    teachers_from_a_third_language()
    assert run("teachers-third.yaml") == 2
    told = "teachers-third.yaml: no teachers are trained on text in both languages of the student"
    assert told in capsys.readouterr().err
    src = read_lines(Path("train.src"))
    src[0], src[1] = src[1], src[0]
    Path("moved.src").write_text("\n".join(src) + "\n", encoding="utf-8")
    config = Path("third.yaml").read_text(encoding="utf-8").replace("train.src", "moved.src")
    Path("third.yaml").write_text(config, encoding="utf-8")
    assert run("teachers.yaml", "teachers-third.yaml") == 2
    told = "teachers-third.yaml: its training text does not start with that of teachers.yaml"
    assert told in capsys.readouterr().err


def test_fewer_teachers_translate_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one = TEACHERS.replace("  luong", "  # luong")
    Path("teachers.yaml").write_text(one, encoding="utf-8")
    assert run() == 0
    again: list[list[str]] = []
    monkeypatch.setattr(distill, "seq2seq", lambda words: len(again.append(words) or ""))
    Path("teachers.yaml").write_text(one.replace("[1, 2]", "[1]"), encoding="utf-8")
    student("new/fewer.src", "new/fewer.tgt")
    assert run() == 0
    assert [words[0] for words in again] == ["compare", "translate", "train"]


def test_lists_of_teachers_need_folders_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    teachers_of_the_other_direction()
    back = BACK.replace("out-back", "elsewhere/out")
    Path("teachers-back.yaml").write_text(back, encoding="utf-8")
    told = refused(capsys, "teachers.yaml", "teachers-back.yaml")
    assert "two lists of teachers have a folder of the same name (out, out)" in told


def test_teachers_of_other_languages_or_text_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    teachers_of_the_other_direction()
    back = Path("back.yaml").read_text(encoding="utf-8")
    Path("back.yaml").write_text(back.replace("tgt_lang: ", "tgt_lang: x"), encoding="utf-8")
    told = refused(capsys, "teachers-back.yaml")
    assert "teachers-back.yaml: translates " in told
    assert "Use teachers of that direction, or into " in told
    Path("short.src").write_text("one line\n", encoding="utf-8")
    Path("short.tgt").write_text("eine Zeile\n", encoding="utf-8")
    back = back.replace("train.tgt", "short.tgt").replace("train.src", "short.src")
    Path("back.yaml").write_text(back, encoding="utf-8")
    told = refused(capsys, "teachers.yaml", "teachers-back.yaml")
    assert "teachers.yaml: its training text does not start with that of teachers-back.yaml" in told


def test_students_of_a_list_teach_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They translate the corpus, though they have learnt from more; of two lists none alone."""
    teachers_of_the_other_direction()
    one = TEACHERS.replace("  luong", "  # luong")
    Path("teachers.yaml").write_text(one, encoding="utf-8")
    students = BACK.replace("back.yaml", "student.yaml").replace("out-back", "out-students")
    Path("students.yaml").write_text(students.replace("[1]", "[1, 2]"), encoding="utf-8")
    lists = ["teachers.yaml", "teachers-back.yaml", "--device", "cpu"]
    assert distill.main(["students.yaml", *lists]) == 0
    src, tgt = (read_lines(Path(f"train.{side}")) for side in ("src", "tgt"))
    back = read_lines(Path("out-back/train.hyp"))
    assert read_lines(Path("new/both.src")) == 4 * src + 2 * back  # each of a single list alone
    again: list[list[str]] = []
    whole = distill.seq2seq
    monkeypatch.setattr(distill, "seq2seq", lambda words: again.append(words) or whole(words))
    Path("student.yaml").replace("first.yaml")
    student("new/second.src", "new/second.tgt")
    Path("student.yaml").replace("second.yaml")
    Path("first.yaml").replace("student.yaml")
    assert distill.main(["second.yaml", "teachers.yaml", "students.yaml", *lists[1:]]) == 0
    assert [words[0] for words in again] == [*["compare"] * 3, *["translate"] * 2, "train"]
    assert read_lines(Path("new/second.src")) == 3 * src + 3 * back
    translations = {
        name: [each.text for each in translator.translate(text, distill.BEAM)]
        for name, translator in (
            ("teachers", Translator.load("out/none-seed1", "out/none-seed2", device="cpu")),
            ("students", Translator.load(*STUDENTS, device="cpu")),
        )
        for name, text in ((name, src), (f"{name} back", back))
    }
    first, second, third, fourth = (translations[name] for name in ORDER)
    assert read_lines(Path("new/second.tgt")) == tgt + first + second + tgt + third + fourth


def test_a_list_of_students_learns_from_one_text(capsys: pytest.CaptureFixture[str]) -> None:
    varied = "base: student.yaml\nvariants:\n  a: {}\n  b: {data.train.src: new/other.src}\n"
    Path("students.yaml").write_text(varied, encoding="utf-8")
    assert distill.main(["students.yaml", "teachers.yaml"]) == 2
    assert "students.yaml: the variants differ in data.train" in capsys.readouterr().err


@pytest.mark.parametrize("failing", ["compare", "translate"])
def test_what_fails_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failing: str
) -> None:
    commands: list[str] = []

    def seq2seq(words: list[str]) -> int:
        commands.append(words[0])
        return 130 * (words[0] == failing)

    monkeypatch.setattr(distill, "seq2seq", seq2seq)
    assert run() == 130
    assert "Run the same command to continue" in capsys.readouterr().err
    assert commands[-1] == failing
    assert not Path("new").exists()


def test_text_of_others_is_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    student("train.src", "train.tgt")
    before = Path("train.src").read_bytes()
    assert "train.src contains another text. Name a new file" in refused(capsys)
    assert Path("train.src").read_bytes() == before


def test_the_student_must_name_two_plain_files(capsys: pytest.CaptureFixture[str]) -> None:
    student(None)
    assert "data.train: must name two files to write, src and tgt" in refused(capsys)
    student("new/a.src", "new/a.tgt.gz")
    assert "a.tgt.gz is written uncompressed. Remove .gz" in refused(capsys)


def test_teachers_without_text_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.src").unlink()
    told = refused(capsys)
    assert told.startswith("distill.py: error: ")
    assert "train.src: no such file" in told


def test_text_that_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distill, "seq2seq", lambda _: 0)
    for name in RUNS:
        Path("out", name).mkdir(parents=True)
        Path("out", name, "best.safetensors").touch()
    for name in ("", *(f"{name}." for name in RUNS)):
        Path(f"out/train.{name}hyp").write_text("x\n" * 120, encoding="utf-8")
    Path("new").write_text("no folder", encoding="utf-8")
    assert run() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("distill.py: error: new: ")
