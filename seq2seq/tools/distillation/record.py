"""Record of a distillation: its request, its outline, and the steps that have run.

A step has finished if the record says so, and if the files that it read and wrote are those of
then: a text that was changed, or a model that was trained again, repeats what came of it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seq2seq.config import fields
from seq2seq.config.schema import Config, leaves
from seq2seq.runtime.errors import UserError, argument
from seq2seq.runtime.files import atomic_write, json_text, read_bounded, write_errors
from seq2seq.text.text_files import checksum_of_file
from seq2seq.tools.distillation.plan import Outline
from seq2seq.tools.distillation.steps import Step, Workplace

FILE = "distillation.json"
FORMAT = 1
_MAX_BYTES = 1 << 24
_OPTIONS = ("hours", "generations", "monolingual")  # of the request, besides keys of configs
_PATHS = (".src", ".tgt", ".file", ".alignment", ".list", "vocabulary.model")  # ends of keys


class Record:
    """Content of FILE in a run folder."""

    def __init__(self, path: Path, tree: dict[str, Any]) -> None:
        self.path = path
        self.tree = tree
        self._checksums: dict[tuple[Path, int, int], str] = {}

    @classmethod
    def read(cls, folder: Path) -> "Record | None":
        """Read the record of a run folder, if it has one; raises UserError if it is damaged."""
        path = folder / FILE
        if not path.exists():
            return None
        try:
            tree = json.loads(read_bounded(path, _MAX_BYTES))
            if tree["format"] != FORMAT:
                raise ValueError(f"format {tree['format']}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            text = f"is not a record of distill-train ({error})"
            remedy = f"Pass {argument('overwrite', True)} to begin again"
            raise UserError(f"{path}: {text}. {remedy}") from None
        return cls(path, tree)

    @classmethod
    def begin(
        cls,
        folder: Path,
        request: Mapping[str, object],
        outline: Outline,
        expected: Mapping[str, float],
    ) -> "Record":
        """Return a new record, which is not yet written; steps are `expected` to take seconds."""
        tree = {
            "format": FORMAT,
            "request": dict(request),
            "outline": outline._asdict(),
            "expected": dict(expected),
            "steps": {},
            "scores": {},
            "result": None,
        }
        return cls(folder / FILE, tree)

    @property
    def outline(self) -> Outline:
        """Return how much is made."""
        return Outline(**self.tree["outline"])

    @property
    def expected(self) -> dict[str, float]:
        """Return the seconds that each step was expected to take."""
        return dict(self.tree["expected"])

    def speed(self) -> float:
        """Return how many times the expected seconds the finished trainings took; 1 before any."""
        steps = self.tree["steps"].items()
        trained = [
            name for name, entry in steps if entry["finished"] and entry["command"][1] == "train"
        ]
        expected = sum(self.expected[name] for name in trained)
        seconds_taken = sum(map(self.seconds, trained))
        return seconds_taken / expected if expected and seconds_taken else 1.0

    @property
    def result(self) -> str | None:
        """Return the name of the model that is the result; None before the end."""
        result: str | None = self.tree["result"]
        return result

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """Return the scores of all models and ensembles on the validation text."""
        scores: dict[str, dict[str, float]] = self.tree["scores"]
        return scores

    @property
    def stopped_early(self) -> bool:
        """Return whether no student was trained as the teachers are too weak."""
        return bool(self.tree.get("stopped_early", False))

    def finish(
        self, result: str, scores: Mapping[str, Mapping[str, float]], stopped_early: bool
    ) -> None:
        """Record the result and the scores that chose it."""
        self.tree["stopped_early"] = stopped_early
        self.tree["scores"] = scores
        self.tree["result"] = result
        self.write()

    def write(self) -> None:
        """Write the file; raises RunError."""
        with write_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(self.path, f"{json_text(self.tree, 1)}\n".encode())

    def take_over(self, written: "Record | None") -> None:
        """Take over the file as it is now: another process may have written it meanwhile.

        Raises UserError for another request or outline.
        """
        if written is None:
            return
        written.check_request(self.tree["request"])
        if written.outline != self.outline:
            text = "was begun by another process just now, with another plan. Start again"
            raise UserError(f"{self.path}: {text}")
        self.tree = written.tree

    def check_request(self, request: Mapping[str, object]) -> None:
        """Raise UserError for another request than the record's, naming its keys."""
        recorded_request = self.tree["request"]
        changes = list[str]()
        for key in {**recorded_request, **request}:
            old_value = recorded_request.get(key)
            value = request.get(key)
            if value != old_value:
                values = f"{fields.show(old_value)} -> {fields.show(value)}"
                changes.append(f"  {_spelled(key)}: {values}")
        if changes:
            text = "was begun with another config or other options. These differ:"
            again = f"or begin again with {argument('overwrite', True)}"
            remedy = f"Restore them, set another run_dir, {again}"
            raise UserError(f"{self.path}: {text}", *changes, remedy)

    def has_finished(self, step: Step, place: Workplace) -> bool:
        """Return whether a step has finished, and its files are those of then."""
        entry = self.entry(step.name)
        if not entry.get("finished") or entry["inputs"] != self.checksums(step.inputs(place)):
            return False
        return bool(entry["outputs"] == self.checksums(step.outputs(place)))

    def was_begun(self, step: Step, place: Workplace) -> bool:
        """Return whether a step was begun with the same inputs, and has not finished."""
        entry = self.entry(step.name)
        if not entry or entry["finished"]:
            return False
        return bool(entry["inputs"] == self.checksums(step.inputs(place)))

    def begin_step(self, step: Step, place: Workplace) -> None:
        """Record that a step begins; one that was begun before keeps the time that it took."""
        seconds = self.seconds(step.name) if self.was_begun(step, place) else 0.0
        inputs = self.checksums(step.inputs(place))
        command = ["seq2seq", *step.words(place)]
        entry = {"command": command, "inputs": inputs, "seconds": seconds, "finished": False}
        self.tree["steps"][step.name] = entry
        self.write()

    def add_time(self, name: str, seconds: float) -> None:
        """Record the time of a step, or of a part of it."""
        self.entry(name)["seconds"] += seconds
        self.write()

    def finish_step(self, step: Step, place: Workplace) -> None:
        """Record that a step has finished."""
        outputs = self.checksums(step.outputs(place))
        self.entry(step.name).update(outputs=outputs, finished=True)
        self.write()

    def entry(self, name: str) -> dict[str, Any]:
        """Return what is recorded of a step."""
        entry: dict[str, Any] = self.tree["steps"].get(name, {})
        return entry

    def seconds(self, name: str) -> float:
        """Return how long a step has run so far."""
        return float(self.entry(name).get("seconds", 0.0))

    def checksums(self, paths: Sequence[Path]) -> list[str | None]:
        """Return the checksums of files, None for one that does not exist."""
        return [self._checksum(path) for path in paths]

    def _checksum(self, path: Path) -> str | None:
        if not path.exists():
            return None
        state = path.stat()
        key = path, state.st_mtime_ns, state.st_size
        if key not in self._checksums:
            self._checksums[key] = checksum_of_file(path)
        return self._checksums[key]


def _spelled(key: str) -> str:
    """Return a key of a request as the user gives it: an option of the command, or of a config."""
    name, space, addition = key.partition(" ")
    return f"{argument(name)}{space}{addition}" if name in _OPTIONS else key


def request_keys(
    config: Config, teachers: Sequence[Config], options: Mapping[str, object]
) -> dict[str, object]:
    """Return what decides a distillation, by key: options, configs, and texts by their content."""
    configs = {"": config} | {f"teacher {n}: ": teacher for n, teacher in enumerate(teachers, 1)}
    keys = dict[str, object](options)
    for prefix, part in configs.items():
        values = leaves(part.model_dump(mode="json", exclude={"run_dir"}))
        for key, value in values.items():
            if not key.endswith(_PATHS) and not key.startswith("data.test"):
                keys[prefix + key] = value
    for name, texts in {"train": config.data.train, "valid": (config.data.valid,)}.items():
        paths = [path for text in texts for path in text.paths.values()]
        keys[f"data.{name} (checksums)"] = [checksum_of_file(path)[:12] for path in paths]
    return keys
