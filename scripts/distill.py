"""Train teachers, let all of them translate their training text, train a student on that too.

    python scripts/distill.py configs/teachers-multi30k.yaml configs/multi30k-en-de-distilled.yaml

Sequence-level distillation (Kim & Rush 2016) from an ensemble. TEACHERS lists variants as `seq2seq
compare` reads them; all of them, with all seeds, translate as one. STUDENT is a config whose
data.train names the two files that are written here: the teachers' training pairs, then the same
sources with the translations. What was done before is not done again.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from seq2seq.cli import main as seq2seq
from seq2seq.comparing.variants import Plan, read_plan
from seq2seq.config import Config, load_config
from seq2seq.corpus import ParallelText, read_lines, read_pairs, usable
from seq2seq.errors import UserError
from seq2seq.run_folder import run_lives
from seq2seq.whole_file import write_whole

BEAM = 3  # an ensemble needs no more on text that it has seen


def main(arguments: Sequence[str]) -> int:
    """Returns 0, or what the first command that fails returns."""
    options = _options(arguments)
    device = ["--device", options.device]
    try:
        plan = read_plan([options.teachers])
        given = plan.variants[0].config.data.train
        text, _ = usable(read_pairs(given.src, given.tgt, given.tsv))
        student, _ = load_config(options.student)
        src, tgt = _files_to_write(student, options.student, text)
        translations = plan.folder / "train.hyp"
        code = _run("compare", options.teachers, *device)
        if code == 0 and not (translations.exists() and len(read_lines(translations)) == len(text)):
            code = _translate(plan, text, translations, device)
        if code != 0:
            return code
        _write(src, [*text.src, *text.src])
        _write(tgt, [*text.tgt, *read_lines(translations)])
    except UserError as error:
        print(f"distill.py: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"distill.py: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    going_on = ["--resume"] if run_lives(student.run_dir) else []
    return _run("train", options.student, *going_on, *device)


def _files_to_write(student: Config, path: Path, text: ParallelText) -> tuple[Path, Path]:
    """The student's training text; raises UserError where that is anything not written here."""
    files, key = student.data.train, f"{path}: data.train"
    if files.src is None or files.tgt is None:
        raise UserError(f"{key} must name two files to be written, src and tgt")
    for file, side in ((files.src, text.src), (files.tgt, text.tgt)):
        if file.suffix == ".gz":
            raise UserError(f"{key}: {file} is written as it is; leave .gz out")
        if file.exists():
            lines = read_lines(file)
            if len(lines) != 2 * len(text) or lines[: len(text)] != list(side):
                raise UserError(f"{key}: {file} holds other text; name a new file")
    return files.src, files.tgt


def _translate(plan: Plan, text: ParallelText, output: Path, device: Sequence[str]) -> int:
    """Let all teachers translate the sources as one; returns the exit code."""
    source = plan.folder / "train.src"
    _write(source, text.src)
    runs = [plan.run_config(each, seed).run_dir for seed in plan.seeds for each in plan.trained()]
    models = [word for run in runs for word in ("-m", run)]
    return _run("translate", *models, "-i", source, "-o", output, "--beam", BEAM, *device)


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(f"{line}\n" for line in lines).encode())


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
    parser.add_argument("teachers", type=Path, help="variants to train, as compare reads them")
    parser.add_argument("student", type=Path, help="the config of the model to be had")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
