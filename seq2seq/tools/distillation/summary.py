"""Summary of a distilled run for its report: its steps, and the scores of all models."""

from collections.abc import Sequence
from pathlib import Path

from seq2seq.runtime.console import duration
from seq2seq.tools.distillation.record import Record

Rows = list[Sequence[str]]  # of a table, the first one its head


def summary_of(folder: Path) -> list[Rows]:
    """Return tables of the steps and of the scores of a run, none if it was not distilled.

    Raises UserError for a damaged record.
    """
    record = Record.read(folder)
    if record is None:
        return []
    steps: Rows = [("step", "command", "time")]
    for name, entry in record.tree["steps"].items():
        time = duration(record.seconds(name)) if entry["finished"] else "not finished"
        steps.append((name, " ".join(entry["command"][:2]), time))
    if not record.scores:
        return [steps]
    scores: Rows = [("validation text", "BLEU", "chrF2")]
    for name, values in record.scores.items():
        label = f"{name} (this run)" if name == record.result else name
        scores.append((label, f"{values['bleu']:.1f}", f"{values['chrf']:.1f}"))
    return [steps, scores]
