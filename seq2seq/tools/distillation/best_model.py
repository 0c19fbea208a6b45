"""Choice of the result by scores on the validation text, and whether a student will pay."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from seq2seq.config.schema import Config
from seq2seq.runs import checkpoint, layout, run_folder
from seq2seq.runtime.locks import LOCK
from seq2seq.tools.distillation.plan import PLAIN, STUDENT, STUDENTS, TEACHERS

# BLEU of the teachers on the validation text from which on students are trained. Of teachers with
# 10.5 (3,000 pairs) a student had 8.1, where the plain training had 9.3; with 25.5 (20,000 pairs)
# it gained two points. Between them nothing has been measured.
LEAST_BLEU = 15.0

Scores = Mapping[str, Mapping[str, float]]  # by model or ensemble, then by metric


def read_scores(path: Path) -> dict[str, float]:
    """Return the scores of a report of `seq2seq evaluate`, by metric."""
    tree = json.loads(path.read_text("utf-8"))
    return {name: float(entry["score"]) for name, entry in tree.items() if entry is not None}


def teachers_of(scores: Scores) -> str:
    """Return the name by which the teachers are scored: their ensemble, or the only one."""
    if TEACHERS in scores:
        return TEACHERS
    return next(name for name in scores if name == PLAIN or name.startswith("teacher"))


def pays(scores: Scores) -> bool:
    """Return whether teachers are good enough for a student to learn from them."""
    return scores[teachers_of(scores)]["bleu"] >= LEAST_BLEU


def best_of(scores: Scores, metric: str, own: bool = True) -> str:
    """Return the model with the best score, no ensemble; ties go to the one trained first.

    If the teachers are not `own`, but have configs of their own, only a student can be the result.
    """
    models = [name for name in scores if name not in (TEACHERS, STUDENTS)]
    if not own:
        models = [name for name in models if name.startswith(STUDENT)] or models
    return max(models, key=lambda name: scores[name][metric])


def publish(source: Path, config: Config, folder: Path) -> None:
    """Copy a run to another folder, in place of any run there; raises RunError.

    The config is written last: until then the folder is no complete run.
    """
    run_folder.clear(folder)
    with layout.writing(folder, folder):
        for name in layout.existing(source, layout.RESERVED):
            if name in (layout.CONFIG, LOCK):
                continue
            path = source / name
            if path.is_dir():
                shutil.copytree(path, folder / name)
            else:
                shutil.copy2(path, folder / name)
    checkpoint.update_config(folder, config.model_copy(update={"run_dir": folder}))
