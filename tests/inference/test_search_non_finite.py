"""Models whose forward pass overflows: every search ends, with one message and the sentence."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from cases.oracle import CPU, SOURCES, Oracle
from cases.searches import search
from torch import Tensor

from seq2seq.__main__ import main
from seq2seq.data.vocabulary.vocabulary import EOS_ID
from seq2seq.inference.search.interface import NonFiniteError, SearchOptions
from seq2seq.inference.translator import Translator
from seq2seq.runs.layout import BEST
from seq2seq.runs.tensor_file import read_file, save_tensors
from seq2seq.runtime.errors import RunError


class NonFiniteOracle(Oracle):
    """Oracle with a given value in place of some logits of one source."""

    def __init__(self, value: float, columns: slice, after: int = 1) -> None:
        super().__init__(3)
        self.value, self.columns, self.after, self.steps = value, columns, after, 0

    def step(self, ids: Tensor, state: Any, memory: Any) -> Any:
        step = super().step(ids, state, memory)
        self.steps += 1
        outputs = step.outputs.clone()
        if self.steps > self.after:
            beams = len(ids) // len(memory.pad_mask)
            is_affected = ((~memory.pad_mask).sum(1) == 6).repeat_interleave(beams)  # SOURCES[2]
            outputs[is_affected.nonzero(), torch.arange(7)[self.columns]] = self.value
        return step._replace(outputs=outputs)


EVERYTHING = slice(None)
EOS = slice(EOS_ID, EOS_ID + 1)


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("return_scores", [True, False])
@pytest.mark.parametrize(
    ("value", "columns"),
    [
        (math.nan, EVERYTHING),
        (math.nan, slice(5, 6)),
        (math.inf, EVERYTHING),
        (math.inf, slice(5, 6)),
        (-math.inf, EVERYTHING),
    ],
)
def test_search_ends_and_names_the_sentence(
    value: float, columns: slice, size: int, return_scores: bool
) -> None:
    model: Any = NonFiniteOracle(value, columns)
    options = SearchOptions(size, return_scores=return_scores)
    with pytest.raises(NonFiniteError) as error:
        search(model, SOURCES, [9] * 5, options, CPU)
    assert error.value.sentence == 2
    assert not math.isfinite(error.value.value)
    assert model.steps == 2


@pytest.mark.parametrize("size", [1, 3])
def test_a_model_that_can_never_end_is_stopped_at_its_limit(size: int) -> None:
    model: Any = NonFiniteOracle(-math.inf, EOS, after=0)
    with pytest.raises(NonFiniteError):
        search(model, SOURCES, [4] * 5, SearchOptions(size), CPU)
    assert model.steps == 5


def test_search_ends_although_length_norms_overflow() -> None:
    """12 ** 60 is infinite in float32, and so is the quotient of two infinite numbers."""
    model: Any = Oracle(1)
    model.table[:, EOS_ID] = -50
    lists = search(model, SOURCES, [20] * 5, SearchOptions(2, 60.0), CPU)
    assert [[len(hypothesis.ids) for hypothesis in hypotheses] for hypotheses in lists] == [
        [21, 21]
    ] * 5


def test_an_unbounded_coverage_penalty_leaves_a_hypothesis() -> None:
    model: Any = Oracle(1)
    lists = search(model, SOURCES, [6] * 5, SearchOptions(3, coverage_penalty=1e39), CPU)
    assert all(len(hypotheses) == 3 for hypotheses in lists)
    assert all(math.isfinite(hypothesis.score) for hypotheses in lists for hypothesis in hypotheses)


def enlarged(run: Path, folder: Path) -> Path:
    """Copy a run, with every weight as large as float32 can represent."""
    shutil.copytree(run, folder)
    header, tensors = read_file(folder / BEST)
    largest = torch.finfo(torch.float32).max
    large = {name: tensor / tensor.abs().max() * largest for name, tensor in tensors.items()}
    assert all(tensor.isfinite().all() for tensor in large.values())
    save_tensors(folder / BEST, large, header)
    return folder


@pytest.mark.parametrize("beam", ["1", "4"])
@pytest.mark.parametrize("device_options", [[], ["--int8"]])
def test_the_command_fails_with_one_line(
    tiny_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    beam: str,
    device_options: list[str],
) -> None:
    run = enlarged(tiny_run, tmp_path / "run")
    text = tmp_path / "text"
    output = tmp_path / "out"
    text.write_text("\nba do ke\n", encoding="utf-8")
    options = ["-m", str(run), "-i", str(text), "-o", str(output), "--device", "cpu"]
    assert main(["translate", *options, "-b", beam, *device_options]) == 1
    _, err = capsys.readouterr()
    note, line = err.splitlines()  # the blank line
    assert note == f"{output}.incomplete: the translations of the first 1 line"
    assert f"{run}: " in line
    assert "not a finite number, for the text 'ba do ke'" in line
    assert not output.exists()


def test_python_raises_a_run_error(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    translator = Translator.load(enlarged(tiny_runs["luong"], tmp_path / "run"))
    for options in ({"beam_size": 1}, {"beam_size": 1, "text_only": True}, {}):
        with pytest.raises(RunError, match="use another model"):
            translator.translate(["ba do ke"], **options)
    assert [translation.text for translation in translator.translate(["", " "])] == ["", ""]
