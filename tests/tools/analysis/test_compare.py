"""`seq2seq compare`: runs are trained once, as by `train`, and scored as by `evaluate`."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from cases.commands import signalled
from cases.tiers import one_quick
from cases.toy_text import write_small_corpus

from seq2seq.__main__ import main
from seq2seq.evaluation.metrics import counts_by, score, score_of
from seq2seq.inference.translator import Translator
from seq2seq.runs import tensor_file
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.layout import LAST, METRICS
from seq2seq.runs.tensor_file import read_tensors
from seq2seq.tools.analysis.compare import charts
from seq2seq.training import loop as training
from seq2seq.training.session import TrainingSession
from seq2seq.training.step import StepResult, train_step

VARIANTS = """\
base: config.yaml
folder: out
seeds: [1, 2]
variants:
  none: {model.decoder: none}
  luong: {model.decoder: luong}
  greedy: {model.decoder: luong, decoding.beam_size: 1}
"""
SHORT = ("training.max_steps=4", "training.validate_every=2", "decoding.max_length=9")


FIGURES = charts.write_figures
IN_PROCESS = """
import json, sys
from seq2seq.__main__ import main
code = main([*json.loads(sys.argv[1]), "--seeds", "1", "--device", "cpu"])
print(code, "torch" in sys.modules)
"""


@pytest.fixture(autouse=True, scope="module")
def no_figures() -> Iterator[None]:
    """Disable figures and TensorBoard, which take longer than training and have their own tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seq2seq.tools.analysis.compare.charts.write_figures", lambda _: "")
        patch.setattr("seq2seq.evaluation.bootstrap.RESAMPLES", 40)
        yield


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a directory with a file that lists variants; their runs are written to `out`."""
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)


def write_inputs(folder: Path) -> None:
    """Write a corpus, its config and variants, by relative names: folders of runs can be copied."""
    config = write_small_corpus(folder)
    config.write_text(config.read_text("utf-8").replace(f"{folder.as_posix()}/", ""), "utf-8")
    list_variants(VARIANTS, folder)


def list_variants(text: str, folder: Path = Path()) -> None:
    (folder / "ladder.yaml").write_text(text, encoding="utf-8")


def compare(*arguments: str) -> int:
    return main(["compare", "ladder.yaml", *SHORT, "--device", "cpu", *arguments])


def texts(folder: Path, pattern: str) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.glob(pattern)}


def record_steps(patch: pytest.MonkeyPatch) -> list[str]:
    """Record the run of each training step."""
    names_of_steps: list[str] = []

    def step(run: TrainingSession, *arguments: object) -> StepResult:
        names_of_steps.append(run.config.name)
        return train_step(run, *arguments)  # type: ignore[arg-type]

    patch.setattr(training, "train_step", step)
    return names_of_steps


@pytest.fixture
def trained_steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return record_steps(monkeypatch)


class Finished(NamedTuple):
    """A comparison that tests must not change."""

    folder: Path
    code: int
    out: str
    err: str
    trained_steps: list[str]

    def copy_runs(self, seed: int | str) -> None:
        """Copy the trained runs of a seed, or of all with "?"."""
        for run in self.folder.glob(f"out/*-seed{seed}"):
            shutil.copytree(run, Path("out") / run.name)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Train all variants with both seeds, and score them."""
    folder = tmp_path_factory.mktemp("finished")
    printed = [BytesIO(), BytesIO()]
    out, err = (TextIOWrapper(buffer, "utf-8", write_through=True) for buffer in printed)
    write_inputs(folder)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        steps = record_steps(patch)
        code = compare("--json", "all.json")
    return Finished(folder, code, *(buffer.getvalue().decode() for buffer in printed), steps)


def test_a_comparison_reports_the_scores_of_its_runs(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished.folder)
    assert finished.code == 0
    runs = [f"{name}-seed{seed}" for seed in (1, 2) for name in ("none", "luong")]
    assert list(dict.fromkeys(finished.trained_steps)) == runs  # greedy shares that of luong
    assert len(finished.trained_steps) == 4 * len(runs)
    assert sorted(path.name for path in Path("out").glob("*-seed?")) == sorted(runs)
    tree = json.loads(Path("all.json").read_text(encoding="utf-8"))
    references = Path("valid.tgt").read_text(encoding="utf-8").splitlines()
    sources = Path("valid.src").read_text(encoding="utf-8").splitlines()
    for variant in tree["variants"]:
        beam = 1 if variant["name"] == "greedy" else 3
        folders = [run["folder"] for run in variant["runs"]]
        for run in (*variant["runs"], variant["ensemble"]):
            members = [run["folder"]] if "folder" in run else folders
            translator = Translator.load(*members, device="cpu")
            translated = [translation.text for translation in translator.translate(sources, beam)]
            assert Path(run["translations"]).read_text(encoding="utf-8").splitlines() == translated
            scores = score(translated, [references], bootstrap=0)
            assert run["bleu"]["score"] == scores["bleu"].score
            assert run["chrf"]["score"] == scores["chrf"].score
        scores_by_seed = [run["bleu"]["score"] for run in variant["runs"]]
        assert variant["bleu_mean"] == pytest.approx(sum(scores_by_seed) / 2)
        model = load_model(Path(folders[0]), torch.device("cpu")).model
        assert variant["parameters"] == sum(weight.numel() for weight in model.parameters())
        assert f"\n{variant['name']} " in finished.out
        assert [step for step, _ in variant["runs"][0]["curve"]] == [2, 4]
    means = {variant["name"]: variant["bleu_mean"] for variant in tree["variants"]}
    names = [(pair["variant"], pair["minus"]) for pair in tree["pairs"]]
    assert names == [("luong", "none"), ("greedy", "none"), ("greedy", "luong")]
    for pair in tree["pairs"]:
        difference = means[pair["variant"]] - means[pair["minus"]]
        assert pair["bleu"]["mean"] == pytest.approx(difference)
        assert pair["chrf"]["p_value"] is None  # of nine sentences
    (length,) = tree["lengths"]
    assert (length["sentences"], length["beyond_training"]) == (9, False)
    assert "greedy shares the training of luong" in finished.out
    assert finished.err.count("Run ") == 4


@pytest.mark.thorough
def test_the_alignment_error_rate_is_that_of_attention(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gold alignments may be those of the first lines alone."""
    finished.copy_runs(seed=1)
    gold = Path("gold.align")
    gold.write_text("0-0 1-1 2?1\n" * 5, encoding="utf-8")
    for side in ("src", "tgt"):
        lines = Path(f"valid.{side}").read_text(encoding="utf-8").splitlines(keepends=True)
        Path(f"five.{side}").write_text("".join(lines[:5]), encoding="utf-8")
    run = ["-m", "out/luong-seed1", "--device", "cpu"]
    texts = ["-i", "five.src", "-r", "five.tgt", "-o", "five.align", "--gold", "gold.align"]
    assert main(["attention", *run, *texts]) == 0
    printed = capsys.readouterr().out
    assert compare("--seeds", "1", "--gold", "gold.align", "--json", "all.json") == 0
    assert "of the first 5 sentences" in capsys.readouterr().out
    tree = json.loads(Path("all.json").read_text(encoding="utf-8"))
    rates = {variant["name"]: variant["alignment_error_rate"] for variant in tree["variants"]}
    assert rates["none"] is None  # has no attention
    assert printed == f"alignment error rate: {rates['luong']:.1f}%\n"
    gold.write_text("0-0\n" * 10, encoding="utf-8")
    assert compare("--seeds", "1", "--gold", "gold.align") == 2
    assert "gold.align: has 10 lines, more than the text, which has 9" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_finished_run_is_not_trained_again(finished: Finished, trained_steps: list[str]) -> None:
    finished.copy_runs(seed=1)
    texts_before = texts(Path("out"), "*-seed1/**/*.*")
    assert compare("--split", "test", "-b", "2") == 0
    assert set(trained_steps) == {"none-seed2", "luong-seed2"}
    assert texts(Path("out"), "*-seed1/**/*.*") == texts_before
    assert len(list(Path("out").glob("*.test.hyp"))) == 9
    del trained_steps[:]
    assert compare("training.max_steps=6", "--seeds", "1") == 0
    assert trained_steps == ["none-seed1"] * 2 + ["luong-seed1"] * 2  # trained further
    assert compare("--seeds", "1") == 2  # less training than the runs have


def test_a_comparison_of_trained_runs_imports_no_torch(finished: Finished) -> None:
    finished.copy_runs(seed=1)
    again = [sys.executable, "-c", IN_PROCESS, json.dumps(["compare", "ladder.yaml", *SHORT])]
    process = subprocess.run(again, capture_output=True, encoding="utf-8", check=False)
    assert (process.returncode, process.stdout.splitlines()[-1]) == (0, "0 False"), process.stderr
    assert process.stderr.count("is already trained") == 2
    assert len(texts(Path("out"), "*.hyp")) == 3
    assert texts(Path("out"), "*.hyp") == texts(finished.folder / "out", "*-seed1.*hyp")


@pytest.mark.thorough
def test_the_state_of_a_finished_run_is_read_once(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines of its metrics are checked against that state."""
    finished.copy_runs(seed=1)
    assert compare("--seeds", "1") == 0
    assert METRICS not in capsys.readouterr().err
    path = Path("out/luong-seed1", METRICS)
    first, *later_lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first[:9] + b"\n", *later_lines]))
    read: list[str] = []
    read_header = tensor_file.read_header

    def spy(path: Path) -> object:
        if path.name == LAST:
            read.append(path.parent.name)
        return read_header(path)

    monkeypatch.setattr(tensor_file, "read_header", spy)
    assert compare("--seeds", "1") == 0
    assert sorted(read) == ["luong-seed1", "none-seed1"]
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if METRICS in line]
    assert f"warning: {path}: not as it was saved at step 4 (2 of 3 lines are left)" in warning
    assert "its curve lacks what is damaged or lost" in warning
    path.unlink()
    assert compare("--seeds", "1") == 0
    assert f"warning: {path}: not as it was saved" in capsys.readouterr().err


@pytest.mark.thorough
def test_runs_of_other_text_or_longer_training_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    list_variants(VARIANTS.partition("  luong")[0])
    assert compare("--seeds", "1", "training.max_steps=null", "training.max_epochs=1") == 0
    metrics = Path("out/none-seed1/metrics.jsonl")
    metrics.write_bytes(metrics.read_bytes() + b"garbage\n")
    capsys.readouterr()
    assert compare("--seeds", "1", "training.max_steps=null", "training.max_epochs=1") == 0
    steps = max(json.loads(line)["step"] for line in metrics.read_text().splitlines()[:-1])
    more_steps = f"training.max_steps={steps + 1}"
    assert compare("--seeds", "1", more_steps, "training.max_epochs=null") == 0
    capsys.readouterr()
    assert compare("--seeds", "1", "training.max_steps=null", "training.max_epochs=1") == 2
    assert "already trained to 2, beyond training.max_epochs=1" in capsys.readouterr().err
    text = Path("train.tgt").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("train.tgt").write_text("".join(text[:-1]) + "ba\n", encoding="utf-8")
    assert compare("--seeds", "1", more_steps, "training.max_epochs=null") == 2
    assert "data.train: is not the text that out/none-seed1 was" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize(
    "step_number", [7, 8]
)  # counted over all runs: within the second run, and its last step
def test_the_same_command_resumes_after_ctrl_c(
    finished: Finished,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step_number: int,
) -> None:
    call = ("--seeds", "1")
    uninterrupted = finished.folder / "out"
    steps: list[int] = []

    def step(run: TrainingSession, *arguments: object) -> StepResult:
        steps.append(run.progress.step)
        if len(steps) == step_number:
            os.kill(os.getpid(), signal.SIGINT)
        return train_step(run, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "train_step", step)
    assert compare(*call) == 130
    out, err = capsys.readouterr()
    assert out == ""
    command = f"seq2seq compare ladder.yaml {' '.join(SHORT)} --device cpu {' '.join(call)}"
    assert err.splitlines()[-1] == f"Resume with: {command}"
    assert "--resume" not in err
    assert compare(*call) == 0
    assert steps == [1, 2, 3, 4, 1, 2, 3, 4]
    assert len(list(Path("out").glob("*-seed1"))) == 2
    for run in Path("out").glob("*-seed1"):
        expected = uninterrupted / run.name
        assert (run / METRICS).read_bytes() == (expected / METRICS).read_bytes()
        resumed = read_tensors(run / LAST)
        tensors = read_tensors(expected / LAST)
        assert resumed.keys() == tensors.keys()
        assert all(torch.equal(resumed[name], tensor) for name, tensor in tensors.items())


@pytest.mark.thorough
def test_ctrl_c_while_scoring_prints_the_command_that_resumes(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    finished.copy_runs(seed=1)
    monkeypatch.setattr("seq2seq.tools.analysis.compare.compare.score_all", interrupt)
    assert compare("--seeds", "1") == 130
    assert "Resume with: seq2seq compare ladder.yaml" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.skipif(torch.get_num_threads() > 1, reason="needs one thread, as children have")
def test_runs_trained_at_once_are_those_of_one_after_the_other(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare("--jobs", "2", "--seeds", "2", "-o", "jobs") == 0
    assert "luong-seed2: Training finished: training.max_steps=4" in capsys.readouterr().err
    runs = sorted(run.name for run in Path("jobs").glob("*-seed?"))
    assert runs == ["luong-seed2", "none-seed2"]
    for name in runs:
        expected = read_tensors(finished.folder / "out" / name / LAST)
        tensors = read_tensors(Path("jobs") / name / LAST)
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(expected[key], tensor) for key, tensor in tensors.items())


@pytest.mark.race
@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_same_command_completes_runs_that_were_trained_at_once(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A child saves its state and ends, whether its parent could stop it or was killed."""
    write_small_corpus(Path.cwd(), short=True)
    list_variants(VARIANTS.partition("  greedy")[0])
    words = ["compare", "ladder.yaml", "--device", "cpu", "--seeds", "1", "--jobs", "2"]
    words += ["training.max_steps=40", "training.max_epochs=null", "training.log_every=1"]
    words += ["training.validate_every=40", "decoding.max_length=5"]
    signalled(words, ("none-seed1: step 5", "luong-seed1: step 5"), number)
    code = main(words)
    errors = capsys.readouterr().err
    assert code == 0, errors
    for name in ("none-seed1", "luong-seed1"):
        metrics = (Path("out") / name / METRICS).read_text("utf-8").splitlines()
        steps = [json.loads(line)["step"] for line in metrics if "train_loss" in line]
        assert sorted(set(steps)) == list(range(1, 41))
        assert f"{name}: resumed at step" in errors or "is already trained" in errors


Change = Callable[[], object]


def rewrite(old: str, new: str, name: str = "ladder.yaml") -> Change:
    path = Path(name)
    return lambda: path.write_text(
        path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8"
    )


@one_quick(
    ("change", "arguments", "message"),
    [
        (
            rewrite("luong}", "luong, model.dropout: 0.5}"),
            [],
            "model.dropout.embedding: 0.25 -> 0.5",
        ),
        (rewrite("test: {", "#", "config.yaml"), ["--split", "test"], "has no data.test"),
        (Path("valid.tgt").unlink, [], "valid.tgt: no such file"),
        (lambda: None, ["--device", "cuda:99"], "cuda:99"),
        (lambda: None, ["data.max_length=1"], "data.max_length"),
        (lambda: None, ["--json", "ladder.yaml"], "is already read or written by this command"),
        (lambda: None, ["--seeds", "1,x"], "--seeds 1,x: must be integers"),
        (lambda: None, ["vocabulary.size=9000"], "vocabulary.size"),
    ],
)
def test_invalid_comparisons_are_refused_before_the_first_training(
    request: pytest.FixtureRequest,
    trained_steps: list[str],
    change: Change,
    arguments: list[str],
    message: str,
) -> None:
    if "0.5" in message:
        request.getfixturevalue("finished").copy_runs(seed=2)
    capsys = request.getfixturevalue("capsys")
    change()
    assert compare(*arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (out, trained_steps) == ("", [])
    assert not Path("out/none-seed1").exists()


def test_a_failure_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "out/none-seed1/last.safetensors")

    monkeypatch.setattr("seq2seq.runs.training_state.save_state", full)
    assert compare() == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("No space left on device")


def test_a_run_that_fails_is_reported_in_its_row(
    trained_steps: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    diverging = "  wild: {training.optimizer: sgd, training.learning_rate: 1.0e+9}\n"
    huge = "  huge: {model.hidden_size: 22}\n"
    text = VARIANTS.partition("  luong")[0]
    list_variants(text.replace("variants:\n", f"variants:\n{diverging}{huge}"))
    step = training.train_step

    def limited(run: TrainingSession, *arguments: object) -> StepResult:
        if run.config.model.hidden_size == 22:
            raise MemoryError
        return step(run, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "train_step", limited)
    report = ["--json", "all.json"]
    assert compare("--seeds", "1", *report) == 1
    out, err = capsys.readouterr()
    assert "warning: wild-seed1 failed: step " in err
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "failed: seed 1: step " in rows["wild"]
    assert "nats a token" in rows["wild"]
    assert "failed: seed 1: out of memory" in rows["huge"]
    assert "failed" not in rows["none"]
    tree = json.loads(Path("all.json").read_text(encoding="utf-8"))
    assert [variant["name"] for variant in tree["variants"]] == ["none"]
    assert list(tree["failed"]) == ["wild", "huge"]

    monkeypatch.setattr(training, "train_step", step)
    trained_steps.clear()
    assert compare("--seeds", "1") == 1
    assert {"huge-seed1"} <= set(trained_steps) <= {"huge-seed1", "wild-seed1"}


def test_a_comparison_of_failures_alone_names_each(capsys: pytest.CaptureFixture[str]) -> None:
    values = ("training.optimizer=sgd", "training.learning_rate=1e9", "--seeds", "1")
    assert compare(*values) == 1
    err = capsys.readouterr().err
    assert "none: failed: seed 1: step" in err
    assert "greedy: failed: seed 1: step" in err


def test_a_full_disk_is_reported_with_the_variant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = training.train_step

    def fill(run: TrainingSession, *arguments: object) -> StepResult:
        monkeypatch.setattr("os.fsync", full)
        return step(run, *arguments)  # type: ignore[arg-type]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training, "train_step", fill)
    assert compare("--seeds", "1") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("seq2seq: error: none-seed1: out/none-seed1/")
    assert error.endswith("training with the same command continues from it")


def test_torchrun_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("seq2seq.runtime.process_group._launched", lambda: (0, 2))
    monkeypatch.setattr("seq2seq.cli.main.reports_errors", lambda: True)
    assert compare() == 2
    assert "start it without torchrun" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------ figures


@pytest.mark.thorough
def test_figures_are_drawn_or_reported_as_missing(
    finished: Finished, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    finished.copy_runs(seed=1)
    monkeypatch.setattr(charts, "write_figures", FIGURES)
    assert compare("--seeds", "1") == 0
    starts = {".svg": b"<?xml", ".pdf": b"%PDF", ".png": b"\x89PNG"}
    for name in ("curves", "lengths"):
        for suffix, start in starts.items():
            path = Path("out") / f"{name}{suffix}"
            assert path.read_bytes().startswith(start)
            path.unlink()
    monkeypatch.setattr("seq2seq.runtime.figures.is_installed", lambda _: False)
    capsys.readouterr()
    assert compare("--seeds", "1") == 0
    out, err = capsys.readouterr()
    assert "luong" in out
    assert "pip install 'seq2seq-attention[plot]'" in err.splitlines()[-1]
    assert not [path for path in Path("out").iterdir() if path.suffix in starts]


@pytest.mark.thorough
def test_the_table_of_lengths_agrees_with_scores_of_its_sentences(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some test sentences are longer than any in training."""
    finished.copy_runs(seed="?")
    pairs = [
        Path(f"test.{side}").read_text(encoding="utf-8").splitlines() * 3 for side in ("src", "tgt")
    ]
    for side, lines in zip(("src", "tgt"), pairs, strict=True):
        long_lines = [f"{line} {line} {line}" for line in lines]
        text = "".join(f"{line}\n" for line in [*lines, *long_lines])
        Path(f"test.{side}").write_text(text, encoding="utf-8")
    assert compare("--split", "test", "--json", "-") == 0
    tree = json.loads(capsys.readouterr().out)
    words = [len(line.split()) for line in Path("test.src").read_text().splitlines()]
    assert tree["longest_source_in_training"] == 9
    assert {bucket["beyond_training"] for bucket in tree["lengths"]} == {False, True}
    references = Path("test.tgt").read_text(encoding="utf-8").splitlines()
    for part in tree["lengths"]:
        first, last = part["words"]
        rows = [row for row, word_count in enumerate(words) if first <= word_count <= last]
        assert part["sentences"] == len(rows)
        for variant in tree["variants"]:
            scores_of_seeds = []
            for run in variant["runs"]:
                lines = Path(run["translations"]).read_text(encoding="utf-8").splitlines()
                counts = counts_by("bleu", lines, references)
                scores_of_seeds.append(score_of("bleu", counts[rows]))
            assert part["bleu"][variant["name"]] == pytest.approx(
                sum(scores_of_seeds) / len(scores_of_seeds)
            )


@pytest.mark.thorough
def test_lengths_of_sources_without_spaces_are_in_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    list_variants(VARIANTS.partition("  luong")[0])
    for split in ("train", "valid", "test"):
        path = Path(f"{split}.src")
        text = path.read_text(encoding="utf-8").replace(" ", "")
        path.write_text(text.translate({n: 0x4E00 + n for n in range(97, 123)}), encoding="utf-8")
    assert compare("--seeds", "1", "--json", "all.json") == 0
    out = capsys.readouterr().out
    tree = json.loads(Path("all.json").read_text(encoding="utf-8"))
    train, valid = (
        [len(line) for line in Path(f"{split}.src").read_text(encoding="utf-8").splitlines()]
        for split in ("train", "valid")
    )
    assert tree["longest_source_in_training"] == max(train)
    (length,) = tree["lengths"]
    assert length["characters"] == [min(valid), max(valid)]
    assert "\nsource characters " in out
