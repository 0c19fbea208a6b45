"""The page on the steps and passes of a line, from the lists of the package."""

import inspect

from documentation.markdown import escape
from seq2seq.inference.part_search import HEAD_SCORINGS
from seq2seq.inference.passes import PASSES, Pass
from seq2seq.text.steps import STEPS, TextStep

_INTRODUCTION = """# Steps and passes

A line is changed before search and its translation after it, by *steps*; it is searched by
*passes*. Both lists are those of the package: `STEPS` in `seq2seq/text/steps.py`, `PASSES` in
`seq2seq/inference/passes.py`.
"""
_STEPS = """## Steps

A line passes the steps in this order, and its translation is undone in the opposite one.

| step | before search | in the translation | notes |
| --- | --- | --- | --- |
"""
_PASSES = """## Passes

A part of a line is searched by these passes, in order; most parts need only the first. A scoring
computes the score and the attention of one given translation.

| pass | | searches at most | scorings at most |
| --- | --- | --- | --- |
"""
_HEADS = "Score the best translation for the attention weights of each head, if these are wanted."


def translating_page() -> str:
    """Return the page in Markdown: a table of the steps and one of the passes."""
    searches = sum(kind.most_searches for kind in PASSES)
    scorings = sum(kind.most_scorings for kind in PASSES) + HEAD_SCORINGS
    rows = [*map(_pass_row, PASSES), f"| WeighHeads | {_HEADS} | 0 | {HEAD_SCORINGS} |"]
    total = f"| **together** | | **{searches}** | **{scorings}** |"
    steps = _STEPS + "\n".join(map(_step_row, STEPS))
    passes = _PASSES + "\n".join([*rows, total])
    return "\n".join([_INTRODUCTION, steps, "", passes, ""])


def _step_row(step: type[TextStep]) -> str:
    """Return name, change, what is taken back and notes of a step."""
    undone = _sentence(step.undo) if step.undo is not TextStep.undo else ""
    notes = "<br>".join(f"*{escape(note)}*" for note in step.notes)
    return f"| {step.__name__} | {_sentence(step)} | {undone} | {notes} |"


def _pass_row(kind: type[Pass]) -> str:
    return f"| {kind.__name__} | {_sentence(kind)} | {kind.most_searches} | {kind.most_scorings} |"


def _sentence(value: object) -> str:
    """Return the first paragraph of a docstring."""
    return escape(" ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split()))
