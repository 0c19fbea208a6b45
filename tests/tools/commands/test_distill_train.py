"""`seq2seq distill-train`: from one config to the best model of its text."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cases.commands import signalled
from cases.environment import project_environment
from cases.fake_commands import FakeCommands
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main
from seq2seq.config.schema import load_config
from seq2seq.runs.layout import BEST
from seq2seq.tools.distillation import best_model, costs, distillation
from seq2seq.tools.distillation.costs import Epoch
from seq2seq.tools.distillation.plan import DistillationRequest, Outline

RESULT = "distillation.json"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> FakeCommands:
    """Let steps write their files at once, and an epoch take a minute."""
    started = FakeCommands({"plain": 24, "teacher-2": 24.5, "teachers": 25.5, "student": 26.7})

    def measured(*_: object) -> dict[str, Epoch]:
        return dict.fromkeys(("plain", "reversed", "student", "teacher-1"), Epoch(60, 10))

    monkeypatch.setattr(costs, "measure", measured)
    monkeypatch.setattr(distillation, "starter", lambda _: started)
    return started


def run_of(config: Path) -> Path:
    return config.parent / "run"


def distil(config: Path, *words: str) -> int:
    return main(["distill-train", str(config), "--device", "cpu", *words])


def recorded(config: Path) -> dict[str, object]:
    tree: dict[str, object] = json.loads((run_of(config) / RESULT).read_text("utf-8"))
    return tree


def test_the_student_becomes_the_run_if_it_is_the_best(
    small_corpus: Path, commands: FakeCommands, capsys: pytest.CaptureFixture[str]
) -> None:
    assert distil(small_corpus) == 0
    out, err = capsys.readouterr()
    run = run_of(small_corpus)
    student = run / "distillation" / "student"
    assert (run / BEST).read_bytes() == (student / BEST).read_bytes()
    config = load_config(run / "config.yaml")
    assert (config.name, config.run_dir) == ("small", run)
    assert len(config.data.train) == 6
    assert "student*    26.7   53.4\n" in out
    gains = "BLEU 26.7, +2.7 against plain, +2.2 against teacher-2, +1.2 against teachers"
    assert f"{run}: has student: {gains}\n" in err
    tree = recorded(small_corpus)
    assert tree["result"] == "student"
    scores = {"plain": 24, "teacher-2": 24.5, "teachers": 25.5, "student": 26.7}
    assert {name: entry["bleu"] for name, entry in tree["scores"].items()} == scores  # type: ignore[attr-defined]
    assert tree["steps"]["plain"]["command"][:2] == ["seq2seq", "train"]  # type: ignore[index]
    assert commands.names[-1] == "score-student"


def test_the_better_teacher_becomes_the_run_if_the_student_is_worse(
    small_corpus: Path, commands: FakeCommands, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.scores = {"plain": 24, "teacher-2": 24.5, "teachers": 25.5, "student": 23}
    assert distil(small_corpus) == 0
    assert recorded(small_corpus)["result"] == "teacher-2"
    assert "+1.5 against student" in (err := capsys.readouterr().err)
    assert "the ensemble is better, and slower: seq2seq translate -m " in err
    assert load_config(run_of(small_corpus) / "config.yaml").seed == 2


def test_weak_teachers_end_it_before_the_students(
    small_corpus: Path, commands: FakeCommands, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with 3,000 pairs, where a student of teachers with 10.5 had 8.1."""
    commands.scores = {"plain": 9.3, "teacher-2": 8.9, "teachers": 10.5, "student": 99}
    assert distil(small_corpus) == 0
    assert commands.names[-1] == "score-teachers"
    assert recorded(small_corpus)["result"] == "plain"
    assert "no student was trained: with less than 15 BLEU" in capsys.readouterr().err
    assert distil(small_corpus) == 0  # is finished
    assert len(commands.names) == 5


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    small_corpus: Path, commands: FakeCommands, capsys: pytest.CaptureFixture[str]
) -> None:
    paths_before = sorted(small_corpus.parent.iterdir())
    assert distil(small_corpus, "--dry-run") == 0
    assert sorted(small_corpus.parent.iterdir()) == paths_before
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["step", "command", "time"]
    assert len(lines) == 15
    assert lines[-1].startswith("all              13 steps")
    assert ", until about " in lines[-1]
    assert not commands.names


@pytest.mark.usefixtures("commands")
def test_hours_leave_out_what_does_not_fit(
    small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two epochs of a minute: a plain training is two minutes, a full plan more than nine."""
    assert distil(small_corpus, "--dry-run", "--hours", "0.05") == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["step", "plain", "score-plain", "all"]
    assert "note: --hours leaves no time for students, further teachers\n" in err


def test_a_failed_step_ends_with_its_name_and_the_same_command_resumes(
    small_corpus: Path, commands: FakeCommands, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.failing = "reversed"
    assert distil(small_corpus) == 1
    assert "reversed: failed (exit code 1), for the reason above" in capsys.readouterr().err
    assert not (run_of(small_corpus) / BEST).exists()
    commands.failing = ""
    commands.names.clear()
    assert distil(small_corpus) == 0
    assert commands.names[:2] == ["reversed", "back"]


@one_quick(
    ("words", "key"),
    [
        (["training.max_epochs=3"], "training.max_epochs: 2 -> 3"),
        (["model.dropout=0.1"], "model.dropout.embedding: 0.25 -> 0.1"),
        (["--generations", "2"], "--generations: 1 -> 2"),
        (["--hours", "9"], "--hours: null -> 9.0"),
        (["--teacher", "CONFIG"], "teacher 1: seed: null -> 1"),
    ],
)
def test_a_changed_request_is_refused_by_its_key(
    small_corpus: Path,
    commands: FakeCommands,
    words: list[str],
    key: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands.failing = "back"
    assert distil(small_corpus) == 1
    capsys.readouterr()
    words = [word.replace("CONFIG", str(small_corpus)) for word in words]
    assert distil(small_corpus, *words) == 2
    assert f"  {key}\n" in capsys.readouterr().err
    commands.failing = ""
    assert distil(small_corpus, *words, "--overwrite") == 0
    assert commands.names.count("reversed" if "--teacher" in words else "plain") == 2


@pytest.mark.thorough
def test_a_changed_text_is_refused(
    small_corpus: Path, commands: FakeCommands, capsys: pytest.CaptureFixture[str]
) -> None:
    commands.failing = "back"
    assert distil(small_corpus) == 1
    text = small_corpus.parent / "train.src"
    text.write_text(text.read_text("utf-8").replace("a", "e"), encoding="utf-8")
    assert distil(small_corpus) == 2
    assert "data.train (checksums): " in capsys.readouterr().err


@one_quick(
    ("words", "message"),
    [
        (["data.train.tag=<x>"], "data.train.1.tag: <x>: distill-train knows no tag"),
        (["--jobs", "2", "--threads", "2"], "each of --jobs 2 has one thread"),
        (["--jobs", "99"], "--jobs 99: at most 16"),
        (["--monolingual", "absent.yy"], "absent.yy"),
        (["--monolingual", "TEXT"], "is a text of the config, whose targets are"),
        (["data.train.src=absent"], "absent"),
    ],
)
def test_what_cannot_be_distilled_is_refused_before_anything_starts(
    small_corpus: Path,
    commands: FakeCommands,
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = str(small_corpus.parent / "train.tgt")
    assert distil(small_corpus, *(word.replace("TEXT", text) for word in words)) == 2
    assert message in (err := capsys.readouterr().err)
    assert err.count("\n") == 1
    assert not commands.names
    assert not run_of(small_corpus).exists()


@pytest.mark.usefixtures("commands")
def test_the_run_of_another_training_is_not_replaced(
    small_corpus: Path, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(tiny_runs["luong"], run_of(small_corpus))
    assert distil(small_corpus) == 2
    assert "already holds a run" in (err := capsys.readouterr().err)
    assert "--resume" not in err, "no option of this command"


def test_tables_are_extracted_for_the_commands_that_translate(
    small_corpus: Path, commands: FakeCommands
) -> None:
    here = small_corpus.parent
    sides = [(here / f"train.{side}").read_text("utf-8").splitlines() for side in ("src", "tgt")]
    rows = "".join(f"{src}\t{tgt}\n" for src, tgt in zip(*sides, strict=True))
    (here / "train.tsv").write_text(rows, encoding="utf-8")
    assert distil(small_corpus, f"data.train={{file: {here / 'train.tsv'}}}") == 0
    place = run_of(small_corpus) / "distillation"
    assert (place / "corpus.tgt").read_text("utf-8").splitlines() == sides[1]
    words = commands.commands["back"]
    assert words[words.index("-i") + 1] == str(place / "corpus.tgt")


def test_tidy_keeps_the_result_and_its_record(small_corpus: Path, commands: FakeCommands) -> None:
    assert distil(small_corpus, "--tidy") == 0
    run = run_of(small_corpus)
    assert sorted(path.name for path in run.iterdir()) == [BEST, "config.yaml", RESULT]
    commands.names.clear()
    assert distil(small_corpus) == 0
    assert not commands.names


def test_given_teachers_make_a_student_the_result(
    small_corpus: Path, commands: FakeCommands
) -> None:
    commands.scores = {"teacher-1": 12, "student": 11}
    assert distil(small_corpus, "--teacher", str(small_corpus)) == 0
    assert recorded(small_corpus)["result"] == "student"


@pytest.mark.usefixtures("commands")
def test_torchrun_is_refused(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seq2seq.runtime.process_group._launched", lambda: (0, 2))
    monkeypatch.setattr("seq2seq.cli.main.reports_errors", lambda: True)
    assert distil(small_corpus) == 2
    assert "start it without torchrun" in capsys.readouterr().err


STRONG = """\
import sys
from seq2seq.tools.distillation import best_model
from seq2seq.tools.distillation.plan import DistillationRequest, Outline
from seq2seq.__main__ import main
best_model.LEAST_BLEU = 0
DistillationRequest.most = Outline(teachers=1)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.race
@pytest.mark.thorough
def test_a_killed_call_is_completed_by_the_same_command(
    small_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real commands, killed by SIGKILL in the second training; all commands take the result.

    There is one teacher: further ones are further processes of the same commands.
    """
    words = ["distill-train", str(small_corpus), "--device", "cpu", "--jobs", "2"]
    words.append("training.log_every=1")
    run = run_of(small_corpus)
    with subprocess.Popen(
        [sys.executable, "-c", STRONG, *words], env=project_environment(), stderr=subprocess.DEVNULL
    ) as process:
        waited = time.monotonic() + 600
        while not (run / "distillation" / "reversed.yaml").exists():
            assert process.poll() is None, "it ended too soon"
            assert time.monotonic() < waited
            time.sleep(0.05)
        process.kill()
    tree = json.loads((run / RESULT).read_text("utf-8"))
    assert tree["steps"]["plain"]["finished"]
    assert tree["result"] is None
    weights = (run / "distillation" / "plain" / BEST).read_bytes()
    written = (run / "distillation" / "plain" / BEST).stat().st_mtime_ns
    monkeypatch.setattr(best_model, "LEAST_BLEU", 0)
    monkeypatch.setattr(DistillationRequest, "most", Outline(teachers=1))
    assert main(words) == 0
    assert (run / "distillation" / "plain" / BEST).read_bytes() == weights
    assert (run / "distillation" / "plain" / BEST).stat().st_mtime_ns == written
    tree = json.loads((run / RESULT).read_text("utf-8"))
    assert {"plain", "student"} == tree["scores"].keys()
    assert all(entry["finished"] for entry in tree["steps"].values())
    text = tmp_path / "new.xx"
    text.write_text("".join(f"{line}\n" for line in toy_pairs(3, seed=9)[0]), encoding="utf-8")
    model = ["-m", str(run)]
    assert main(["translate", *model, "-i", str(text), "-o", str(tmp_path / "new.yy")]) == 0
    assert main(["evaluate", *model]) == 0
    assert main(["export", *model, "--int8", "-o", str(tmp_path / "exported")]) == 0
    assert main(["report", str(run)]) == 0
    resumed = ["train", str(run / "config.yaml"), "--resume"]
    assert main(resumed) == 0  # a run like any other


@pytest.mark.race
@pytest.mark.thorough
def test_children_end_with_a_killed_parent(small_corpus: Path) -> None:
    """A training of a killed call saves its state and ends, although no signal reached it."""
    words = ["distill-train", str(small_corpus), "--device", "cpu"]
    words += ["training.max_epochs=100000", "training.log_every=1"]
    messages = signalled(words, ("step 3",), signal.SIGKILL)
    assert "saved." in messages
    assert (run_of(small_corpus) / "distillation" / "plain" / "last.safetensors").exists()
