"""Runs of the steps of a distillation, interrupted and resumed."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from cases.fake_commands import EndedWork, FakeCommands

from seq2seq.config.schema import load_config
from seq2seq.runs.layout import BEST, LAST
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.tools.distillation.plan import DistillationRequest, StepPlan, plan_of
from seq2seq.tools.distillation.record import FILE, Record
from seq2seq.tools.distillation.runner import Runner
from seq2seq.tools.distillation.steps import FOLDER, Workplace
from seq2seq.tools.jobs.processes import Start, Work
from seq2seq.training.loop import Interrupted


class Distilled:
    """A plan in a folder, whose steps can be run again and again."""

    def __init__(self, config: Path) -> None:
        request = DistillationRequest(load_config(config))
        self.folder = request.config.run_dir
        self.place = Workplace(self.folder / FOLDER, "cpu")
        self.plan: StepPlan = plan_of(request, request.most, self.place)
        self.place.folder.mkdir(parents=True)
        expected = dict.fromkeys((step.name for step in self.plan.steps), 60.0)
        Record.begin(self.folder, {}, request.most, expected).write()

    @property
    def record(self) -> Record:
        """Return the record on the disk."""
        record = Record.read(self.folder)
        assert record is not None
        return record

    @property
    def names(self) -> list[str]:
        """Return the names of all steps."""
        return [step.name for step in self.plan.steps]

    def run(self, start: Start, jobs: int = 1) -> None:
        """Run what has not finished."""
        Runner(self.place, self.record, start, jobs).run(self.plan.steps)


@pytest.fixture
def distilled(small_corpus: Path) -> Distilled:
    return Distilled(small_corpus)


def test_finished_steps_are_not_repeated(distilled: Distilled) -> None:
    first = FakeCommands()
    second = FakeCommands()
    distilled.run(first)
    assert first.names == distilled.names
    distilled.run(second)
    assert second.names == []


def test_the_call_after_a_failure_begins_with_the_step_that_failed(distilled: Distilled) -> None:
    first = FakeCommands(failing="back-teachers")
    second = FakeCommands()
    with pytest.raises(RunError, match=r"^back-teachers: failed \(exit code 1\)"):
        distilled.run(first)
    distilled.run(second)
    place = distilled.names.index("back-teachers")
    assert first.names == distilled.names[: place + 1]
    assert second.names == distilled.names[place:]


def test_a_training_that_was_begun_keeps_its_state(distilled: Distilled) -> None:
    run = distilled.place.run("plain")
    commands = FakeCommands()

    def killed(name: str, words: Sequence[str], jobs: int) -> EndedWork:
        commands(name, words, jobs)
        (run / BEST).unlink()
        (run / LAST).write_bytes(b"state")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distilled.run(killed)
    again = FakeCommands()
    distilled.run(again)
    assert (run / LAST).read_bytes() == b"state"
    assert "--resume" in again.commands["plain"]


def test_a_translation_killed_before_it_was_recorded_is_not_repeated(distilled: Distilled) -> None:
    commands = FakeCommands()

    def killed(name: str, words: Sequence[str], jobs: int) -> EndedWork:
        work = commands(name, words, jobs)
        if name == "teachers":
            raise KeyboardInterrupt
        return work

    with pytest.raises(KeyboardInterrupt):
        distilled.run(killed)
    again = FakeCommands()
    distilled.run(again)
    assert again.names[0] == "back-teachers"
    assert distilled.record.entry("teachers")["finished"]


def test_a_translation_with_a_journal_is_resumed(distilled: Distilled) -> None:
    distilled.run(FakeCommands())
    record = distilled.record
    record.entry("teachers")["finished"] = False
    record.write()
    (distilled.place.folder / "teachers.src.journal").touch()
    again = FakeCommands()
    distilled.run(again)
    assert again.names == ["teachers"]
    assert "--overwrite" in again.commands["teachers"]  # which resumes a journal of its own


def test_a_changed_file_repeats_what_was_made_of_it(distilled: Distilled) -> None:
    """A file that exists is no proof: what a step read and wrote is compared."""
    distilled.run(FakeCommands())
    (distilled.place.run("reversed") / BEST).write_bytes(b"trained again")
    student = distilled.place.run("student")
    (student / LAST).write_bytes(b"state of other texts")
    again = FakeCommands()
    distilled.run(again)
    assert again.names == ["reversed"]  # its result is as before
    assert (student / LAST).exists()
    back = distilled.place.folder / "back.src"
    content = back.read_bytes()
    back.write_bytes(b"edited by hand\n")
    again = FakeCommands()
    distilled.run(again)
    assert again.names == ["back"]
    assert back.read_bytes() == content
    (distilled.folder.parent / "train.src").write_bytes(b"other text\n")
    again = FakeCommands()
    distilled.run(again)
    assert {"plain", "teacher-2", "teachers", "student"} <= set(again.names)
    assert not (student / LAST).exists()  # trained from the beginning


def test_no_more_steps_run_at_once_than_jobs(distilled: Distilled) -> None:
    commands = FakeCommands()
    running = list[str]()
    running_counts = list[int]()

    class Slow:
        """Command that ends when it is polled for the second time."""

        def __init__(self, name: str) -> None:
            self.name, self.polls = name, 0

        def poll(self) -> int | None:
            self.polls += 1
            if self.polls < 3:
                return None
            if self.name in running:
                running.remove(self.name)
            return 0

        def stop(self, number: int) -> None:
            raise AssertionError(f"signal {number} to {self.name}")

    def start(name: str, words: Sequence[str], jobs: int) -> Work:
        assert jobs == 2
        needs = next(step.needs for step in distilled.plan.steps if step.name == name)
        assert not set(needs) & set(running)
        commands(name, words, jobs)
        running.append(name)
        running_counts.append(len(running))
        return Slow(name)

    distilled.run(start, jobs=2)
    assert sorted(commands.names) == sorted(distilled.names)
    assert commands.names[:2] == ["plain", "teacher-2"]
    assert running_counts[1] == max(running_counts) == 2


def test_a_signal_stops_the_command_once_and_is_reported(distilled: Distilled) -> None:
    stopped: list[int] = []

    class Endless:
        """Command that runs until it is stopped; this process gets SIGTERM while it runs."""

        def poll(self) -> int | None:
            if not stopped:
                os.kill(os.getpid(), signal.SIGTERM)
                return None
            return 143

        def stop(self, number: int) -> None:
            stopped.append(number)

    with pytest.raises(Interrupted) as caught:
        distilled.run(lambda *_: Endless())
    assert caught.value.signal_number == signal.SIGTERM
    assert stopped == [signal.SIGTERM]
    entry = distilled.record.entry("plain")
    assert not entry["finished"]
    assert entry["seconds"] > 0


def test_another_request_is_refused_by_its_keys(distilled: Distilled) -> None:
    record = distilled.record
    record.tree["request"] = {"training.max_epochs": 2, "--hours": 3.0, "seed": 1}
    with pytest.raises(UserError) as caught:
        record.check_request({"training.max_epochs": 3, "--hours": None, "seed": 1})
    assert caught.value.lines[1:3] == ["  training.max_epochs: 2 -> 3", "  --hours: 3.0 -> null"]
    record.check_request(record.tree["request"])


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"format": 99}'])
def test_a_damaged_record_is_refused_with_a_remedy(distilled: Distilled, content: bytes) -> None:
    (distilled.folder / FILE).write_bytes(content)
    with pytest.raises(UserError, match=r"is not a record of distill-train .* begin again$"):
        Record.read(distilled.folder)


def test_a_record_written_meanwhile_is_followed(distilled: Distilled) -> None:
    """As after waiting for the lock of another call."""
    stale = distilled.record
    distilled.run(FakeCommands())
    stale.take_over(distilled.record)
    assert all(stale.has_finished(step, distilled.place) for step in distilled.plan.steps)
    other_record = distilled.record
    other_record.tree["outline"]["teachers"] = 1
    with pytest.raises(UserError, match="another process just now"):
        stale.take_over(other_record)
