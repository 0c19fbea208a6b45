"""Training of the runs of a comparison: one after the other, or several at once as processes."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from seq2seq.config.schema import Config
from seq2seq.runs.run_folder import SavedProgress
from seq2seq.runtime import errors
from seq2seq.runtime.console import logger
from seq2seq.runtime.files import write_errors
from seq2seq.runtime.locks import FolderLock
from seq2seq.tools.analysis.compare.cell import words_of_cell
from seq2seq.tools.analysis.compare.single_run import UNSUITABLE, train_run
from seq2seq.tools.jobs.processes import Ended, JobPool, Start, starter
from seq2seq.training.stopping import is_finished, stop_signals

CELL = "seq2seq.tools.analysis.compare.cell"
_KILLED = -signal.SIGKILL
_ENDS = "Once the reason is removed, the same command resumes"


class RemainingRuns(NamedTuple):
    """Runs to train, with their numbers among all, and how."""

    configs: list[tuple[int, Config]]
    total: int
    device: str
    jobs: int


def is_trained(config: Config, state: SavedProgress | None) -> bool:
    """Return whether the training of a run has finished."""
    return state is not None and is_finished(config, state.counters)


def train_all(
    configs: Sequence[Config],
    states: Mapping[Path, SavedProgress],
    device: str,
    jobs: int = 1,
    start: Start | None = None,
) -> dict[Path, str]:
    """Train the runs that are not finished, and return why runs failed, by folder.

    Several `jobs` are processes, which `start` starts. Raises RunError for a failure that does not
    lie in a config, and Interrupted as `train` does.
    """
    numbered = enumerate(configs, start=1)
    missing_runs = list[tuple[int, Config]]()
    for number, config in numbered:
        if is_trained(config, states.get(config.run_dir)):
            logger.info(f"Run {number} of {len(configs)}: {config.run_dir} is already trained")
        else:
            missing_runs.append((number, config))
    if not missing_runs:
        return {}
    runs = RemainingRuns(missing_runs, len(configs), device, jobs)
    with _locked(configs[0].run_dir.parent) as lock:
        if jobs > 1:
            return _train_at_once(runs, start or starter(lock.descriptor, CELL))
        failures = dict[Path, str]()
        for number, config in missing_runs:
            logger.info(f"Run {number} of {len(configs)}: {config.run_dir}")
            if (reason := train_run(config, device)) is not None:
                _note_failure(failures, config, reason)
    return failures


@contextmanager
def _locked(folder: Path) -> Iterator[FolderLock]:
    """Lock the folder of runs: children of a killed call hold it until they have ended."""
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(folder, wait=True)
    try:
        yield lock
    finally:
        lock.close()


def _note_failure(failures: dict[Path, str], config: Config, reason: str) -> None:
    failures[config.run_dir] = reason
    logger.info(f"warning: {config.name} failed: {reason}")


def _train_at_once(runs: RemainingRuns, start: Start) -> dict[Path, str]:
    """Train runs as processes, in their order, each with one thread."""
    from seq2seq.training.loop import Interrupted

    by_name = {config.name: config for _, config in runs.configs}
    failures = dict[Path, str]()
    waiting = list(runs.configs)
    pool = JobPool(start, runs.jobs)
    with TemporaryDirectory(prefix="seq2seq-compare-") as name, stop_signals() as stops:
        folder = Path(name)  # of configs and reasons, which no other call reads
        try:
            while waiting or pool.names:
                while waiting and pool.has_room:
                    number, config = waiting.pop(0)
                    logger.info(f"Run {number} of {runs.total}: {config.run_dir}")
                    pool.begin(config.name, _words(folder, config, runs.device))
                pool.wait(stops)
                if stops:
                    pool.stop(stops[0])
                    raise Interrupted(stops[0])
                for ended in pool.collect():
                    if (reason := _failure(folder, ended)) is not None:
                        _note_failure(failures, by_name[ended.name], reason)
        finally:
            pool.stop(signal.SIGTERM)
    return failures


def _words(folder: Path, config: Config, device: str) -> list[str]:
    """Return the command that trains a run; a score outside of the package was trusted before."""
    from seq2seq.runs import checkpoint  # imports torch, which trained runs do not need

    path = folder / f"{config.name}.yaml"
    checkpoint.write_config(path, config)
    score = config.model.score
    is_external = score is not None and score.is_external
    trusted = [score.name] if score is not None and is_external else []
    return words_of_cell(path, _reason_file(folder, config.name), device, trusted)


def _reason_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.failed"


def _failure(folder: Path, ended: Ended) -> str | None:
    """Return why a run failed by its config, None if it is trained; raise RunError otherwise."""
    if ended.code == 0:
        return None
    if ended.code == UNSUITABLE:
        return _reason_file(folder, ended.name).read_text(encoding="utf-8")
    text = f"failed (exit code {ended.code}), for the reason above"
    if ended.code == _KILLED:
        text = f"was killed; if memory was short, choose fewer {errors.argument('jobs')}"
    raise errors.RunError(f"{ended.name}: {text}. {_ENDS}")
