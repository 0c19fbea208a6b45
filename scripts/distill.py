"""Train teachers, let them translate their training text, train a student on all of it.

    python scripts/distill.py configs/students-multi30k.yaml \\
        configs/teachers-multi30k.yaml configs/teachers-multi30k-back.yaml

Sequence-level distillation (Kim & Rush 2016) from ensembles, and data diversification (Nguyen et
al. 2020) from those that translate back. Each TEACHERS lists variants as `seq2seq compare` reads
them; all of one list, with all its seeds, translate as one, and those of an only list each alone
besides. Teachers that translate into the student's source language, from its target language or
from a third, make sources; the other lists translate those too, as one. STUDENT is a config, or a
list of variants, whose data.train names the two files that are written here: the corpus, then every
translation with what it translates. The corpus is what the teachers learnt from; students as
teachers, of which the corpus was the beginning, teach that beginning. What was trained or
translated before is not done again.
"""

import argparse
import hashlib
import shlex
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from seq2seq.analysis.compare.variants import Plan, read_plan
from seq2seq.cli.main import main as seq2seq
from seq2seq.config.document import read_document
from seq2seq.config.schema import VARIANTS, Config, load_config
from seq2seq.data.corpus import ParallelText, read_pairs, usable
from seq2seq.data.lines import read_lines
from seq2seq.runs.run_folder import run_lives
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import atomic_write

BEAM = 3  # an ensemble needs no more on text that it has seen


class Student(NamedTuple):
    """What is to be trained in the end, and of a list the config of its first variant."""

    path: Path
    config: Config
    listed: bool


class Teachers(NamedTuple):
    """Models that translate as one."""

    path: Path
    plan: Plan
    back: bool  # into the student's source language, from its target language or a third
    text: (
        ParallelText  # what they learn from, the student's source language first if that is `back`
    )
    third: bool  # from neither of the student's languages

    @property
    def source(self) -> Path:
        """A file of the side that they read."""
        return self.plan.folder / "train.src"

    @property
    def output(self) -> Path:
        """What all of them make of it as one."""
        return self.plan.folder / "train.hyp"

    def runs(self) -> list[Path]:
        """The run folders of all of them."""
        variants = self.plan.trained()
        return [self.plan.run_config(v, seed).run_dir for seed in self.plan.seeds for v in variants]


class Task(NamedTuple):
    """A file that models translate."""

    runs: Sequence[Path]
    source: Path
    output: Path
    back: bool

    @property
    def record(self) -> Path:
        """What the output was made of, as `sha256sum -c` reads it."""
        return self.output.with_name(f"{self.output.name}.sha256")

    def made_of(self) -> list[str]:
        """The checksums of source and models, and their names."""
        files = [self.source, *(run / "best.safetensors" for run in self.runs)]
        return [f"{_sha256(file)}  {file}" for file in files]

    def is_done(self) -> bool:
        """Whether the output is there and was made of what is there."""
        there = self.output.exists() and self.record.exists()
        return there and read_lines(self.record) == self.made_of()

    def pairs(self, corpus: ParallelText) -> ParallelText:
        """What the student learns of it: a source that was made has the target of the corpus."""
        written = read_lines(self.output)
        if self.back:
            return ParallelText(written, corpus.tgt)
        return ParallelText(read_lines(self.source), written)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: Sequence[str]) -> int:
    """Returns 0, or what the first command that fails returns."""
    options = _options(arguments)
    device = ["--device", options.device]
    try:
        student = _student(options.student)
        lists = [_teachers(path, student) for path in options.teachers]
        corpus = _corpus(lists)
        src, tgt = _files_to_write(student, lists, corpus)
        for teachers in lists:
            code = _run("compare", teachers.path, *device)
            if code != 0:
                return code
            read = teachers.text.tgt if teachers.back else teachers.text.src
            _write(teachers.source, read[: len(corpus)])
        tasks = _tasks(lists)
        for task in tasks:
            if task.is_done():
                continue
            code = _translate(task, device)
            if code != 0:
                return code
            _write(task.record, task.made_of())
        text = _all_pairs(corpus, tasks)
        for path, lines in ((src, text.src), (tgt, text.tgt)):
            if path.exists() and read_lines(path) != list(lines):
                raise UserError(f"{path}: holds other text than is to be written; move it away")
            _write(path, lines)
    except UserError as error:
        print(f"distill.py: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"distill.py: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    if student.listed:
        return _run("compare", student.path, *device)
    going_on = ["--resume"] if run_lives(student.config.run_dir) else []
    return _run("train", student.path, *going_on, *device)


def _student(path: Path) -> Student:
    """Raises UserError where it is neither config nor list, or a list of different texts."""
    if VARIANTS not in read_document(path).tree:
        return Student(path, load_config(path)[0], listed=False)
    config, *others = (variant.config for variant in read_plan([path]).variants)
    if any(other.data != config.data for other in others):
        raise UserError(f"{path}: its variants learn from different text; list those of one text")
    return Student(path, config, listed=True)


def _teachers(path: Path, student: Student) -> Teachers:
    """Reads a list and its text; raises UserError where that is no text for the student."""
    plan = read_plan([path])
    data, wanted = plan.variants[0].config.data, student.config.data
    languages = wanted.src_lang, wanted.tgt_lang
    back = data.tgt_lang == wanted.src_lang
    if not back and (data.src_lang, data.tgt_lang) != languages:
        raise UserError(
            f"{path}: translates {data.src_lang} to {data.tgt_lang}, and {student.path} "
            f"{' to '.join(languages)}; teach it by models of that direction or into {languages[0]}"
        )
    text, _ = usable(read_pairs(data.train))
    text = ParallelText(text.tgt, text.src) if back else text
    return Teachers(path, plan, back, text, third=data.src_lang not in languages)


def _corpus(lists: Sequence[Teachers]) -> ParallelText:
    """The shortest of their texts; raises UserError where another does not begin with it.

    Those that translate from a third language share its sources.
    """
    of_both = [teachers for teachers in lists if not teachers.third]
    if not of_both:
        raise UserError(f"{lists[0].path}: no list of teachers has text of the student's languages")
    shortest = min(of_both, key=lambda teachers: len(teachers.text))
    corpus, count = shortest.text, len(shortest.text)
    for teachers in lists:
        text = teachers.text
        if text.src[:count] != corpus.src[:] or not (
            teachers.third or text.tgt[:count] == corpus.tgt[:]
        ):
            raise UserError(
                f"{teachers.path}: its training text does not begin with that of {shortest.path}; "
                "teachers share a corpus"
            )
    return corpus


def _files_to_write(
    student: Student, lists: Sequence[Teachers], corpus: ParallelText
) -> tuple[Path, Path]:
    """The student's training text; raises UserError where that is anything not written here."""
    files, key = student.config.data.train, f"{student.path}: data.train"
    copies = 1 + len(_tasks(lists))
    names = [teachers.plan.folder.name for teachers in lists]
    if len(set(names)) < len(names):
        raise UserError(
            f"folders of teachers are called {', '.join(names)}; give each another name"
        )
    if files.src is None or files.tgt is None:
        raise UserError(f"{key} must name two files to be written, src and tgt")
    for file, side in ((files.src, corpus.src), (files.tgt, corpus.tgt)):
        if file.suffix == ".gz":
            raise UserError(f"{key}: {file} is written as it is; leave .gz out")
        if file.exists():
            lines = read_lines(file)
            if len(lines) != copies * len(corpus) or lines[: len(corpus)] != list(side):
                raise UserError(f"{key}: {file} holds other text; name a new file")
    return files.src, files.tgt


def _tasks(lists: Sequence[Teachers]) -> list[Task]:
    """What is to be translated, each after what it reads."""
    tasks = []
    for teachers in lists:
        source, runs, back = teachers.source, teachers.runs(), teachers.back
        tasks.append(Task(runs, source, teachers.output, back))
        if len(runs) > 1 and sum(each.back == back for each in lists) == 1:
            alone = [source.with_name(f"train.{run.name}.hyp") for run in runs]
            tasks += [
                Task([run], source, file, back) for run, file in zip(runs, alone, strict=True)
            ]
    for made, teachers in product(lists, lists):
        if made.back and not teachers.back:
            output = teachers.output.with_name(f"of-{made.plan.folder.name}.hyp")
            tasks.append(Task(teachers.runs(), made.output, output, back=False))
    return tasks


def _translate(task: Task, device: Sequence[str]) -> int:
    """Returns the exit code."""
    models = [word for run in task.runs for word in ("-m", run)]
    files = ["-i", task.source, "-o", task.output]
    return _run("translate", *models, *files, "--beam", BEAM, *device)


def _all_pairs(corpus: ParallelText, tasks: Sequence[Task]) -> ParallelText:
    """What the student learns from."""
    texts = [corpus, *(task.pairs(corpus) for task in tasks)]
    return ParallelText(
        [line for text in texts for line in text.src],
        [line for text in texts for line in text.tgt],
    )


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, "".join(f"{line}\n" for line in lines).encode())


def _run(*words: object) -> int:
    """Show a command of ours, then run it; returns its exit code."""
    arguments = [str(word) for word in words]
    print(f"$ seq2seq {shlex.join(arguments)}", flush=True)
    code = seq2seq(arguments)
    if code > 128:
        print("distill.py: interrupted; the same command as before goes on", file=sys.stderr)
    return code


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="distill.py", description="teachers, their translations, a student"
    )
    parser.add_argument("student", type=Path, help="the config of the model to be had, or variants")
    parser.add_argument(
        "teachers", type=Path, nargs="+", help="variants to train, as compare reads them"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
