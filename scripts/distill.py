"""Train teachers, translate their training text, and train a student on all of it.

    python scripts/distill.py configs/students-multi30k.yaml \\
        configs/teachers-multi30k.yaml configs/teachers-multi30k-back.yaml

Sequence-level distillation (Kim & Rush 2016) from ensembles, and data diversification (Nguyen et
al. 2020) with backward models. Each TEACHERS file lists variants for `seq2seq compare`; all runs of
a file form one ensemble, and if a direction has a single file, each run also translates alone.
Teachers that translate into the student's source language, from its target language or a third
one, generate sources, which the forward ensembles translate, too. STUDENT is a config, or a list of
variants, whose data.train names two files to write: the corpus, then every translation with its
counterpart. The corpus is the text that all teachers share: the shortest of their training texts,
with which the others start. Finished trainings and translations are not repeated.
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
from seq2seq.runs.run_folder import holds_run
from seq2seq.runtime.console import logger, say
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.files import atomic_write

BEAM = 3  # enough for an ensemble on its own training text


class Student(NamedTuple):
    """The model to train; for a list, with the config of its first variant."""

    path: Path
    config: Config
    listed: bool


class Teachers(NamedTuple):
    """An ensemble of models."""

    path: Path
    plan: Plan
    back: bool  # into the student's source language, from its target language or a third one
    text: ParallelText  # training text; swapped if `back`: the student's source language first
    third: bool  # translates from a language that the student does not use

    @property
    def source(self) -> Path:
        """File with the source side of the corpus."""
        return self.plan.folder / "train.src"

    @property
    def output(self) -> Path:
        """File with the translations of the ensemble."""
        return self.plan.folder / "train.hyp"

    def runs(self) -> list[Path]:
        """Return all run folders."""
        return [config.run_dir for config in self.plan.run_configs()]


class TranslationTask(NamedTuple):
    """A file to translate by some runs."""

    runs: Sequence[Path]
    source: Path
    output: Path
    back: bool

    @property
    def record(self) -> Path:
        """File with the checksums of source and models, in the format of `sha256sum -c`."""
        return self.output.with_name(f"{self.output.name}.sha256")

    def inputs(self) -> list[str]:
        """Return the checksums and names of source and models."""
        files = [self.source, *(run / "best.safetensors" for run in self.runs)]
        return [f"{_sha256(file)}  {file}" for file in files]

    def is_done(self) -> bool:
        """Return whether the output exists and belongs to the present source and models."""
        exists = self.output.exists() and self.record.exists()
        return exists and read_lines(self.record) == self.inputs()

    def pairs(self, corpus: ParallelText) -> ParallelText:
        """Return the training pairs; a generated source is paired with the target of the corpus."""
        generated = read_lines(self.output)
        if self.back:
            return ParallelText(generated, corpus.tgt)
        return ParallelText(read_lines(self.source), generated)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: Sequence[str]) -> int:
    """Run all steps; return 0 or the exit code of the first command that fails."""
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
        translations = _translations(lists)
        for task in translations:
            if task.is_done():
                continue
            code = _translate(task, device)
            if code != 0:
                return code
            _write(task.record, task.inputs())
        text = _all_pairs(corpus, translations)
        for path, lines in ((src, text.src), (tgt, text.tgt)):
            if path.exists() and read_lines(path) != list(lines):
                raise UserError(f"{path}: contains another text. Move the file, or name a new one.")
            _write(path, lines)
    except UserError as error:
        logger.error(f"distill.py: error: {error}")
        return 2
    except OSError as error:
        logger.error(f"distill.py: error: {error.filename}: {error.strerror}")
        return 1
    if student.listed:
        return _run("compare", student.path, *device)
    resume = ["--resume"] if holds_run(student.config.run_dir) else []
    return _run("train", student.path, *resume, *device)


def _student(path: Path) -> Student:
    """Read the config or list; raise UserError if its variants are trained on different texts."""
    if VARIANTS not in read_document(path).tree:
        return Student(path, load_config(path)[0], listed=False)
    config, *others = (variant.config for variant in read_plan([path]).variants)
    if any(other.data.train != config.data.train for other in others):
        raise UserError(f"{path}: the variants differ in data.train. List variants of one text.")
    return Student(path, config, listed=True)


def _teachers(path: Path, student: Student) -> Teachers:
    """Read a list and its text; raise UserError if the languages do not fit the student."""
    plan = read_plan([path])
    data, wanted = plan.variants[0].config.data, student.config.data
    languages = wanted.src_lang, wanted.tgt_lang
    back = data.tgt_lang == wanted.src_lang
    if not back and (data.src_lang, data.tgt_lang) != languages:
        raise UserError(
            f"{path}: translates {data.src_lang} to {data.tgt_lang}, but {student.path} "
            f"{' to '.join(languages)}. Use teachers of that direction, or into {languages[0]}."
        )
    text, _ = usable(read_pairs(data.train))
    text = ParallelText(text.tgt, text.src) if back else text
    return Teachers(path, plan, back, text, third=data.src_lang not in languages)


def _corpus(lists: Sequence[Teachers]) -> ParallelText:
    """Return the shortest text; raise UserError if another does not start with it.

    Texts of teachers that translate from a third language share its sources only.
    """
    of_both = [teachers for teachers in lists if not teachers.third]
    if not of_both:
        raise UserError(
            f"{lists[0].path}: no teachers are trained on text in both languages of the student. "
            "Add some."
        )
    shortest = min(of_both, key=lambda teachers: len(teachers.text))
    corpus, count = shortest.text, len(shortest.text)
    for teachers in lists:
        text = teachers.text
        if text.src[:count] != corpus.src[:] or not (
            teachers.third or text.tgt[:count] == corpus.tgt[:]
        ):
            raise UserError(
                f"{teachers.path}: its training text does not start with that of {shortest.path}. "
                "Train all teachers on one corpus."
            )
    return corpus


def _files_to_write(
    student: Student, lists: Sequence[Teachers], corpus: ParallelText
) -> tuple[Path, Path]:
    """Return the student's training files; raise UserError if they contain another text."""
    (files, *others), key = student.config.data.train, f"{student.path}: data.train"
    copies = 1 + len(_translations(lists))
    names = [teachers.plan.folder.name for teachers in lists]
    if len(set(names)) < len(names):
        raise UserError(
            f"folder: two lists of teachers have a folder of the same name ({', '.join(names)}). "
            "Rename one."
        )
    if files.src is None or files.tgt is None or others:
        raise UserError(f"{key}: must name two files to write, src and tgt")
    for file, side in ((files.src, corpus.src), (files.tgt, corpus.tgt)):
        if file.suffix == ".gz":
            raise UserError(f"{key}: {file} is written uncompressed. Remove .gz.")
        if file.exists():
            lines = read_lines(file)
            if len(lines) != copies * len(corpus) or lines[: len(corpus)] != list(side):
                raise UserError(f"{key}: {file} contains another text. Name a new file.")
    return files.src, files.tgt


def _translations(lists: Sequence[Teachers]) -> list[TranslationTask]:
    """Return the translations to generate, each after those that it reads."""
    steps = []
    for teachers in lists:
        source, runs, back = teachers.source, teachers.runs(), teachers.back
        steps.append(TranslationTask(runs, source, teachers.output, back))
        if len(runs) > 1 and sum(each.back == back for each in lists) == 1:
            alone = [source.with_name(f"train.{run.name}.hyp") for run in runs]
            steps += [
                TranslationTask([run], source, file, back)
                for run, file in zip(runs, alone, strict=True)
            ]
    for made, teachers in product(lists, lists):
        if made.back and not teachers.back:
            output = teachers.output.with_name(f"of-{made.plan.folder.name}.hyp")
            steps.append(TranslationTask(teachers.runs(), made.output, output, back=False))
    return steps


def _translate(translation: TranslationTask, device: Sequence[str]) -> int:
    """Run `seq2seq translate`; return its exit code."""
    models = [word for run in translation.runs for word in ("-m", run)]
    files = ["-i", translation.source, "-o", translation.output]
    return _run("translate", *models, *files, "--beam", BEAM, *device)


def _all_pairs(corpus: ParallelText, translations: Sequence[TranslationTask]) -> ParallelText:
    """Return the student's training text."""
    texts = [corpus, *(each.pairs(corpus) for each in translations)]
    return ParallelText(
        [line for text in texts for line in text.src],
        [line for text in texts for line in text.tgt],
    )


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, "".join(f"{line}\n" for line in lines).encode())


def _run(*words: object) -> int:
    """Print a command and run it; return its exit code."""
    arguments = [str(word) for word in words]
    say(f"$ seq2seq {shlex.join(arguments)}")
    code = seq2seq(arguments)
    if code > 128:
        logger.error("distill.py: interrupted. Run the same command to continue.")
    return code


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="distill.py",
        description="Train teachers, and a student on their translations.",
        allow_abbrev=False,
    )
    parser.add_argument("student", type=Path, help="config of the student, or a list of variants")
    parser.add_argument("teachers", type=Path, nargs="+", help="lists of variants for compare")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
