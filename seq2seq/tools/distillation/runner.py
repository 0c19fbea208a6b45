"""Run the steps of a plan that have not finished, up to a number of them at once."""

import signal
import time
from collections.abc import Sequence

from seq2seq.data.corpus import iter_pairs
from seq2seq.data.tables import pair_writer
from seq2seq.runs import checkpoint, run_folder
from seq2seq.runtime.console import duration, logger
from seq2seq.runtime.errors import RunError
from seq2seq.runtime.files import write_errors
from seq2seq.tools.distillation.costs import total_seconds
from seq2seq.tools.distillation.plan import DistillationRequest, corpus_sides
from seq2seq.tools.distillation.record import Record
from seq2seq.tools.distillation.steps import CorpusTranslation, Step, Training, Workplace
from seq2seq.tools.jobs.processes import JobPool, Start
from seq2seq.training.loop import Interrupted
from seq2seq.training.stopping import stop_signals


class Runner:
    """Runs steps, and records each as it begins and ends."""

    def __init__(self, place: Workplace, record: Record, start: Start, jobs: int) -> None:
        self._place = place
        self._record = record
        self._jobs = jobs
        self._pool = JobPool(start, jobs)
        self._running: dict[str, Step] = {}  # steps of the pool, by name

    def run(self, steps: Sequence[Step], later_steps: Sequence[Step] = ()) -> None:
        """Run steps in their order, each once all that it needs has finished.

        `later_steps` are further steps, for the time of the end. Raises RunError if one fails, and
        Interrupted on Ctrl-C or SIGTERM; what was begun is resumed by the next call.
        """
        waiting = list(steps)
        with stop_signals() as stops:
            try:
                while waiting or self._running:
                    self._start_ready(waiting, later_steps)
                    self._pool.wait(stops)
                    if stops:
                        self._stop(stops[0])
                        raise Interrupted(stops[0])
                    self._collect()
            finally:
                self._stop(signal.SIGTERM)

    def _start_ready(self, waiting: list[Step], later_steps: Sequence[Step]) -> None:
        """Start steps, the first first, as far as jobs are free and what they need has finished."""
        for step in list(waiting):
            unfinished = {*self._running, *(other.name for other in waiting)}
            if not unfinished.isdisjoint(step.needs):
                continue
            if self._has_finished(step):
                waiting.remove(step)
            elif self._pool.has_room:
                waiting.remove(step)
                self._begin(step)
                self._announce(step, waiting, later_steps)

    def _has_finished(self, step: Step) -> bool:
        """Return whether a step has finished; also if it was killed before that was recorded."""
        place = self._place
        record = self._record
        if record.has_finished(step, place):
            return True
        if not isinstance(step, CorpusTranslation) or not record.was_begun(step, place):
            return False
        # Its files appear together once all is translated, and `_begin` removed older ones.
        outputs = step.outputs(place)
        journal = outputs[0].with_name(f"{outputs[0].name}.journal")
        if journal.exists() or not all(path.exists() for path in outputs):
            return False
        record.finish_step(step, place)
        return True

    def _begin(self, step: Step) -> None:
        """Start a step: resume it if it was begun with the same files, else from the beginning."""
        place = self._place
        record = self._record
        if not record.was_begun(step, place):
            _remove_results(step, place)
        if isinstance(step, Training):
            checkpoint.write_config(place.config(step.name), step.config)
        record.begin_step(step, place)
        self._pool.begin(step.name, step.words(place))
        self._running[step.name] = step

    def _announce(self, step: Step, waiting: Sequence[Step], later_steps: Sequence[Step]) -> None:
        """Log what has begun, and when all is expected to end."""
        record = self._record
        expected = record.expected
        speed = record.speed()
        running = list(self._running.values())
        seconds_left = {
            other.name: max(0.0, speed * expected[other.name] - record.seconds(other.name))
            for other in (*running, *waiting, *later_steps)
        }
        seconds = total_seconds(([*running, *waiting], later_steps), seconds_left, self._jobs)
        about = (
            f"about {duration(seconds_left[step.name])}; all steps end at about {clock(seconds)}"
        )
        logger.info(f"{step.name}: {step.label}: {about}")

    def _collect(self) -> None:
        """Record the steps that have ended; raises RunError if one failed."""
        for name, code, seconds in self._pool.collect():
            step = self._running.pop(name)
            self._record.add_time(name, seconds)
            if code:
                text = f"failed (exit code {code}), for the reason above"
                raise RunError(f"{name}: {text}. Once it is removed, the same command resumes")
            self._record.finish_step(step, self._place)

    def _stop(self, number: int) -> None:
        """Stop what runs by a signal, and record its time."""
        self._running.clear()
        for name, _, seconds in self._pool.stop(number):
            self._record.add_time(name, seconds)


def clock(seconds: float) -> str:
    """Return the time of the day in so many seconds, after the weekday if it is another."""
    then = time.localtime(time.time() + seconds)
    is_today = time.localtime()[:3] == then[:3]
    return time.strftime("%H:%M" if is_today else "%A %H:%M", then)


def _remove_results(step: Step, place: Workplace) -> None:
    """Remove what a step wrote that read other files."""
    if isinstance(step, Training):
        run_folder.clear(place.run(step.name))
    for path in step.outputs(place):
        with write_errors(path):
            path.unlink(missing_ok=True)


def extract_tables(request: DistillationRequest, place: Workplace) -> None:
    """Write the sides of corpora that are tables as files of lines, for commands that read these.

    Files that are there are of this request, whose texts are checked.
    """
    for corpus, src, tgt in corpus_sides(request, place):
        if corpus.file is None or (src.exists() and tgt.exists()):
            continue
        with pair_writer([src, tgt]) as write:
            for pair in iter_pairs(corpus):
                write(*pair)
