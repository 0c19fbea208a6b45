"""Commands of a distillation that write their files at once, in place of real ones."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from seq2seq.config.schema import load_config
from seq2seq.runs.layout import BEST, CONFIG


class EndedWork(NamedTuple):
    """A command that has ended."""

    code: int

    def poll(self) -> int:
        """Return the exit code."""
        return self.code

    def stop(self, number: int) -> None:
        """Do nothing: it has ended."""


class FakeCommands:
    """Starts commands that write what real ones would; each is noted by the name of its step."""

    def __init__(self, scores: Mapping[str, float] | None = None, failing: str = "") -> None:
        """Let `evaluate` report a BLEU by the name of the model or ensemble, and a step fail."""
        self.scores, self.failing = scores or {}, failing
        self.names: list[str] = []
        self.commands: dict[str, list[str]] = {}

    def __call__(self, name: str, words: Sequence[str], _jobs: int) -> EndedWork:
        """Run a command."""
        self.names.append(name)
        self.commands[name] = list(words)
        if name == self.failing:
            return EndedWork(1)
        if words[0] == "train":
            config = load_config(words[1])
            run = config.run_dir
            run.mkdir(exist_ok=True)
            (run / CONFIG).write_bytes(Path(words[1]).read_bytes())
            texts = [
                path.read_bytes() for corpus in config.data.train for path in corpus.paths.values()
            ]
            (run / BEST).write_bytes(b"".join([name.encode(), *texts]))
        elif words[0] == "evaluate":
            bleu = self.scores.get(name.removeprefix("score-"), 20.0)
            report = {"bleu": {"score": bleu}, "chrf": {"score": 2 * bleu}, "ter": None}
            Path(words[words.index("--json") + 1]).write_text(json.dumps(report), encoding="utf-8")
        else:
            weights = [words[n + 1] for n, word in enumerate(words) if word == "-m"]
            content = b"".join((Path(run) / BEST).read_bytes()[:9] for run in weights)
            for path in words[words.index("-o") + 1 :][:2]:
                Path(path).write_bytes(name.encode() + content + b"\n")
        return EndedWork(0)
