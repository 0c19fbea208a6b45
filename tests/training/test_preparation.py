"""Before the first step: skipped pairs, refusals, and folders of runs."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from cases.tiers import one_quick
from cases.trainings import (
    always,
    assert_same_run,
    configured,
    log_of,
    state_of,
    stop_after,
    trained,
    validations,
)
from safetensors import safe_open
from torch import Tensor

from seq2seq.__main__ import main
from seq2seq.config.schema import Config, load_config
from seq2seq.data.corpus import read_pairs
from seq2seq.evaluation.metrics import score_by
from seq2seq.inference.translator import Translator
from seq2seq.runs import tensor_file
from seq2seq.runs.layout import BEST, LAST, PREVIOUS
from seq2seq.runs.run_folder import check_folder
from seq2seq.runs.training_state import OpenFolder, read_state
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.process_group import ProcessGroup
from seq2seq.training import stopping, validation
from seq2seq.training.loop import train
from seq2seq.training.preparation import join_run, prepare
from seq2seq.training.reporting import Reporter

pytestmark = pytest.mark.usefixtures("no_engine", "no_tensorboard", "short_sentences")


CPU = torch.device("cpu")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def edit_lines(path: Path, edits: dict[int, str]) -> None:
    lines = path.read_text(encoding="utf-8").split("\n")
    for index, line in edits.items():
        lines[index] = line
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")


def test_blank_and_over_long_pairs_are_skipped_and_counted(small_corpus: Path) -> None:
    folder = small_corpus.parent
    edit_lines(folder / "train.src", {3: "", 50: " \t ", 70: "bu " * 90})
    edit_lines(folder / "train.tgt", {3: "", 20: "", 90: "do " * 81, 91: "ku " * 99})
    edit_lines(folder / "valid.tgt", {2: "\u3000"})
    run = trained(small_corpus, "training.max_steps=1", "data.max_length=80")
    log = log_of(run)
    assert "114 training pairs, 4 validation pairs" in log
    assert "skipped in training: 3 pairs with a blank side" in log
    assert "skipped in training: 3 pairs with more than 80 tokens on a side" in log
    assert "in validation: 1 pair with a blank side, which the loss leaves out and BLEU" in log


def test_validation_scores_the_lines_that_evaluate_scores(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_corpus.parent
    edit_lines(folder / "valid.src", {0: " \t", 3: ""})
    edit_lines(folder / "valid.tgt", {2: "\u3000", 3: ""})
    scored = []
    monkeypatch.setattr(validation, "score_by", lambda *texts: scored.append(texts) or 1.5)
    run = trained(small_corpus, "training.max_steps=2")
    (_, hypotheses, references, _), *_ = scored
    files = ("-i", str(folder / "valid.src"), "-r", str(folder / "valid.tgt"))
    output = folder / "out"
    assert main(["evaluate", "-m", str(run), *files, "-b", "1", "-o", str(output)]) == 0
    assert output.read_text(encoding="utf-8").split("\n")[:-1] == hypotheses
    assert (folder / "valid.tgt").read_text(encoding="utf-8").split("\n")[:-1] == references
    assert len(references) == 5


def test_a_log_without_skipped_pairs_does_not_mention_them(small_corpus: Path) -> None:
    log = log_of(trained(small_corpus, "training.max_steps=1", "data.max_length=80"))
    assert "skipped in" not in log
    assert "same text" not in log


@pytest.mark.thorough
def test_the_same_text_on_both_sides_is_reported(small_corpus: Path) -> None:
    folder = small_corpus.parent
    shutil.copy(folder / "train.src", folder / "train.tgt")
    log = log_of(trained(small_corpus, "training.max_steps=1"))
    assert "source and target are identical in 120 of 120 pairs of " in log


def refusal(config: Config, *, resume: bool = False, overwrite: bool = False) -> str:
    with pytest.raises(UserError) as caught:
        train(config, "cpu", resume=resume, overwrite=overwrite)
    return str(caught.value)


@pytest.mark.thorough
def test_validation_targets_that_are_not_nfc_are_reported(small_corpus: Path) -> None:
    edit_lines(small_corpus.parent / "valid.tgt", {4: "ba e\u0301 ka!"})
    run = trained(small_corpus, "training.max_steps=1")
    assert "valid.tgt" in log_of(run)
    assert "1 of 5 lines are not in Unicode's NFC" in log_of(run)


def test_a_folder_with_a_run_is_left_alone(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.max_steps=2")
    contents_before = contents(run)
    message = refusal(configured(small_corpus))
    assert str(run) in message
    assert "resume=True" in message
    assert "overwrite=True" in message
    assert contents(run) == contents_before


def test_overwrite_replaces_the_run_and_nothing_beside_it(small_corpus: Path) -> None:
    run = trained(small_corpus, "vocabulary.joint=false", "training.max_steps=6")
    (run / "notes.txt").write_text("mine", encoding="utf-8")
    fresh = trained(small_corpus, "training.max_steps=3", run="fresh")
    train(configured(small_corpus, "training.max_steps=3"), "cpu", overwrite=True)
    assert (run / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert sorted(contents(run)) == sorted([*contents(fresh), "notes.txt"])
    assert_same_run(run, fresh)
    assert log_of(run).count("Training finished: ") == 1


@one_quick("limit", ["max_steps=6", "max_epochs=1"], quick=1)
def test_the_end_is_logged_after_the_last_validation(small_corpus: Path, limit: str) -> None:
    run = trained(small_corpus, "training.max_steps=null", f"training.{limit}")
    lines = log_of(run).splitlines()
    last = max(n for n, line in enumerate(lines) if "validation loss" in line)
    (end,) = (n for n, line in enumerate(lines) if f"Training finished: training.{limit} " in line)
    assert last < end


@one_quick("name", ["vocabulary/glossary.txt", "tensorboard/other", "train.log"])
def test_files_that_no_run_wrote_are_not_removed(small_corpus: Path, name: str) -> None:
    run = small_corpus.parent / "run"
    (run / name).parent.mkdir(parents=True)
    (run / name).write_text("mine", encoding="utf-8")
    first_part = name.partition("/")[0]
    message = refusal(configured(small_corpus))
    assert message.startswith(f"run_dir: {run} holds {first_part}, which no run wrote. ")
    assert contents(run) == {name: b"mine"}
    (run / name).rename(small_corpus.parent / "elsewhere")
    shutil.rmtree(run)
    trained(small_corpus, "training.max_steps=1")


@one_quick("file", ["train.tgt", "valid.src"])
def test_a_run_resumes_only_with_the_text_it_was_trained_on(small_corpus: Path, file: str) -> None:
    run = trained(small_corpus, "training.max_steps=2")
    contents_before = contents(run)
    text = (small_corpus.parent / file).read_text(encoding="utf-8")
    edit_lines(small_corpus.parent / file, {3: "ba ka"})
    config = configured(small_corpus, "training.max_steps=3")
    message = refusal(config, resume=True)
    assert message.startswith(f"data.{file[:5]}: is not the text that {run} was trained on. ")
    assert contents(run) == contents_before
    (small_corpus.parent / file).write_text(text, encoding="utf-8")
    train(config, "cpu", resume=True)
    assert log_of(run).count("resumed at step 2") == 1


def test_with_equal_bleu_the_weights_with_the_lower_loss_are_kept(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 2.0, 2.5, 2.0, 1.0])
    monkeypatch.setattr(validation, "valid_bleu", always(0.0))
    monkeypatch.setattr("seq2seq.training.validation.valid_loss", lambda _: next(losses))
    often = ("training.max_steps=9", "training.validate_every=1", "training.patience=2")
    run = trained(small_corpus, *often, "training.max_epochs=null")
    assert [line["valid_loss"] for line in validations(run)] == [3, 2, 2.5, 2]
    assert state_of(run / BEST)[0]["step"] == 2


@pytest.mark.thorough
def test_chrf_and_loss_select_weights_too(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.metric=chrf")
    line = validations(run)[-1]
    config = configured(small_corpus)
    translations = Translator.load(run, device="cpu").translate(
        read_pairs(config.data.valid).src, beam_size=1
    )
    best = state_of(run / LAST)[0]["progress"]
    hypotheses = [translation.text for translation in translations]
    chrf = score_by("chrf", hypotheses, read_pairs(config.data.valid).tgt)
    assert best["best_score"] == pytest.approx(chrf)
    assert f"chrF {line['valid_chrf']:.1f}" in log_of(run)
    assert f"Best validation chrF {chrf:.1f} (greedy) at step {best['best_step']}" in log_of(run)
    by_loss = trained(small_corpus, "training.metric=loss", run="other")
    losses = {line["step"]: line["valid_loss"] for line in validations(by_loss)}
    assert state_of(by_loss / BEST)[0]["step"] == min(losses, key=losses.__getitem__)
    assert "valid_chrf" not in validations(by_loss)[0]


@pytest.mark.thorough
def test_overwrite_accepts_an_empty_folder(small_corpus: Path) -> None:
    (small_corpus.parent / "run").mkdir()
    train(configured(small_corpus, "training.max_steps=1"), "cpu", overwrite=True)
    trained(small_corpus, "training.max_steps=1", run="new")


def test_resume_shows_what_changed_in_the_config(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.max_steps=2")
    contents_before = contents(run)
    changed = ("model.dropout=0.2", "seed=4", "training.max_steps=9", "training.log_every=1")
    message = refusal(configured(small_corpus, *changed), resume=True)
    assert "model.dropout.hidden: 0.25 -> 0.2" in message
    assert "seed: 1 -> 4" in message
    assert "max_steps" not in message  # may change
    assert message.endswith(
        "\nRestore them, or train again (overwrite=True, or another run_dir), or start another run "
        "(another run_dir) from its best weights: "
        f"init_from={run}"
    )
    assert contents(run) == contents_before


LEFT_BY_A_KILL = ("lock", ".token-cache/", "config.yaml.part", "vocabulary.part")


@pytest.mark.thorough
@one_quick("files", [None, [], [*LEFT_BY_A_KILL]], ids=["absent", "empty", "killed"])
def test_resume_starts_a_run_in_an_absent_or_empty_folder(
    small_corpus: Path, files: Sequence[str] | None
) -> None:
    """One command for preemptible machines: it starts the run, then resumes it."""
    settings = ("training.max_steps=6", "training.validate_every=2")
    complete = trained(small_corpus, *settings, run="complete")
    config = configured(small_corpus, *settings)
    if files is not None:
        config.run_dir.mkdir()
    for name in files or ():
        if name.endswith("/"):
            (config.run_dir / name).mkdir()
        else:
            (config.run_dir / name).touch()
    for number in (2, 3):
        stop_after(number, config, resume=True)
    train(config, "cpu", resume=True)
    assert_same_run(config.run_dir, complete)
    log = log_of(config.run_dir)
    assert log.count(f"{config.run_dir} had no saved state to resume: started the run") == 1
    assert log.count("resumed at step") == 2


def test_resume_starts_no_run_among_other_files(small_corpus: Path) -> None:
    config = configured(small_corpus)
    config.run_dir.mkdir()
    (config.run_dir / "notes.txt").write_text("mine")
    assert "not a run folder, it has no config.yaml of a run, and it is not empty" in refusal(
        config, resume=True
    )
    assert contents(config.run_dir) == {"notes.txt": b"mine"}


@pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
def test_a_finished_decay_is_not_extended(small_corpus: Path, decay: str) -> None:
    limits = [f"training.decay={decay}", "training.max_epochs=2"]
    config = load_config(small_corpus, limits)
    note = stopping.finished_note(config, "training.max_epochs=2 reached")
    assert ("init_from=" in note) == (decay != "constant")
    assert ("increase training.max_epochs" in note) == (decay == "constant")


def test_resume_needs_a_state(small_corpus: Path) -> None:
    config = configured(small_corpus)
    trained(small_corpus, "training.max_steps=1")
    for name in (LAST, PREVIOUS):
        (config.run_dir / name).unlink()
    assert f"it has {BEST}, but no {LAST}" in refusal(
        configured(small_corpus, "training.max_steps=1"), resume=True
    )


def test_resume_and_overwrite_exclude_each_other(small_corpus: Path) -> None:
    assert "give one of them" in refusal(configured(small_corpus), resume=True, overwrite=True)


def test_a_run_folder_that_is_a_file_is_refused(small_corpus: Path) -> None:
    (small_corpus.parent / "run").write_text("a file", encoding="utf-8")
    assert "is a file" in refusal(configured(small_corpus))


def shorten(path: Path) -> None:
    path.write_text("one line\n", encoding="utf-8")


def blank_out(path: Path) -> None:
    path.write_text("\n" * 120, encoding="utf-8")


INVALID_DATA: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "missing": ("train.src", Path.unlink, "train.src: no such file"),
    "missing test text": ("test.tgt", Path.unlink, "test.tgt: no such file"),
    "empty": (
        "valid.src",
        lambda path: path.write_bytes(b"") and None,
        "valid.src: the file is empty",
    ),
    "unequal": ("train.tgt", shorten, "train.tgt has 1"),
    "unequal test text": ("test.src", shorten, "test.src has 1 line"),
    "not UTF-8": (
        "valid.tgt",
        lambda path: path.write_bytes(b"a\nb\xff\n") and None,
        "valid.tgt:2:",
    ),
    "blank": ("train.tgt", blank_out, "none of the 120 pairs has text"),
}


@one_quick(
    ("name", "damage", "reason"), INVALID_DATA.values(), ids=INVALID_DATA.keys(), quick={0, 3}
)
def test_refused_data_leave_no_trace(
    small_corpus: Path, name: str, damage: Callable[[Path], None], reason: str
) -> None:
    run = trained(small_corpus, "training.max_steps=1", run="older")
    contents_before = contents(run)
    damage(small_corpus.parent / name)
    config = configured(small_corpus, run="new")
    assert reason in refusal(config)
    assert not config.run_dir.exists()
    assert reason in refusal(configured(small_corpus, run="older"), overwrite=True)
    assert contents(run) == contents_before


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("vocabulary.size=20", "vocabulary.size: 20 is too small"),
        ("vocabulary.size=9000", "vocabulary.size: 9000 is more than"),
        ("data.max_length=1", "every training pair is longer than 1 tokens"),
    ],
)
def test_a_config_that_does_not_fit_the_data_leaves_no_trace(
    small_corpus: Path, override: str, reason: str
) -> None:
    config = configured(small_corpus, override)
    assert reason in refusal(config)
    assert not config.run_dir.exists()


def test_a_missing_device_is_refused_before_any_work(small_corpus: Path) -> None:
    config = configured(small_corpus)
    with pytest.raises(UserError, match=r"^device='tpu': "):
        train(config, "tpu")
    assert not config.run_dir.exists()


def test_an_existing_folder_need_not_be_creatable(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate a read-only volume, or the root folder."""
    run = small_corpus.parent / "run"
    allowed = os.access
    monkeypatch.setattr(
        os, "access", lambda path, how: Path(path) != run.parent and allowed(path, how)
    )
    config = configured(small_corpus)
    with pytest.raises(UserError, match="cannot be created in"):
        check_folder(config, resume=False, overwrite=False)
    run.mkdir()
    check_folder(config, resume=False, overwrite=False)
    root = configured(small_corpus, "run_dir=/")
    check_folder(root, resume=False, overwrite=False)


def test_resuming_reads_and_verifies_the_state_once(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(small_corpus, "training.max_steps=4")
    opened: list[str] = []
    verified: list[set[str]] = []
    open_file = safe_open
    digest = tensor_file._digest

    def noted_open(path: Path, **options: Any) -> Any:
        opened.append(Path(path).name)
        return open_file(path, **options)

    def noted_digest(tensors: dict[str, Tensor]) -> str:
        verified.append(set(tensors))
        return digest(tensors)

    monkeypatch.setattr("safetensors.safe_open", noted_open)
    monkeypatch.setattr(tensor_file, "_digest", noted_digest)
    monkeypatch.setattr("seq2seq.runs.training_state.save_state", lambda *_: None)  # digests too
    resumed = ["train", str(small_corpus), "decoding.max_length=5", "training.max_steps=4"]
    assert main([*resumed, f"run_dir={run}", "--resume", "--device=cpu"]) == 0
    assert opened.count(LAST) == 1
    assert PREVIOUS not in opened
    assert sum(any(name.startswith("weights.") for name in names) for names in verified) == 1
    opened.clear()
    join_run(configured(small_corpus, "training.max_steps=4"), CPU, ProcessGroup(1, 2))
    assert opened.count(LAST) == 1


def test_a_rank_that_is_not_the_main_process_writes_nothing(
    small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configured(small_corpus, "training.max_steps=2", "training.keep=1")
    run = train(config, "cpu")
    contents_before = contents(run)
    capsys.readouterr()
    session = join_run(config, CPU, ProcessGroup(1, 2))
    session.save_state()
    session.save_weights(99.0, best=True)
    with Reporter() as reporter:
        reporter.log("a line")
        reporter.metrics(3, {"train_loss": 1.0})
        reporter.timing(3, {"seconds": 1.0})
        reporter.log_step(3, "loss 1")
        reporter.advance(3)
        reporter.sync()
        reporter.roll_back(1)
        assert reporter.read_metrics() == []
    assert contents(run) == contents_before
    assert capsys.readouterr().err == ""


@pytest.mark.thorough
def test_restoring_releases_the_tensors_of_the_state(small_corpus: Path) -> None:
    run = trained(small_corpus, "training.max_steps=2")
    state = read_state(run)
    assert state is not None
    assert state.tensors
    session, _ = prepare(
        configured(small_corpus, "training.max_steps=2"), CPU, OpenFolder(None, state)
    )
    assert not state.tensors
    assert session.progress.step == 2


def test_the_folder_is_checked_only_once_it_is_locked(
    small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate another process that trains in the folder while this one starts."""
    finished = trained(small_corpus, "training.max_steps=1", run="finished")
    config = configured(small_corpus)

    @contextmanager
    def late(folder: Path) -> Iterator[None]:
        shutil.copytree(finished, folder)
        yield

    monkeypatch.setattr("seq2seq.runs.training_state.exclusive_lock", late)
    assert f"{config.run_dir}: already holds a run" in refusal(config)
    assert contents(config.run_dir) == contents(finished)


@one_quick("state_format", [1, 99])
def test_the_state_of_another_format_is_refused_in_one_line(
    small_corpus: Path, capsys: pytest.CaptureFixture[str], state_format: int
) -> None:
    run = trained(small_corpus, "training.max_steps=2")
    header, tensors = tensor_file.read_file(run / LAST)
    changed_header = {
        key: value for key, value in header.items() if key not in ("version", "format", "tensors")
    }
    changed_header["state_format"] = state_format
    tensor_file.save_tensors(run / LAST, tensors, changed_header)
    contents_before = contents(run)
    capsys.readouterr()
    call = ["train", str(small_corpus), "decoding.max_length=5", "training.max_steps=3"]
    assert main([*call, f"run_dir={run}", "--resume", "--device=cpu"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"seq2seq: error: {run / LAST}: a training state of format {state_format}; this version of "
    )
    assert f"--overwrite, or start another run from its best weights with --init-from {run}" in line
    assert "damaged" not in line
    assert contents(run) == contents_before
    again = configured(small_corpus, "training.max_steps=1", run="again")
    train(again, "cpu", init_from=run)  # its weights remain valid
    assert "initialised from" in log_of(again.run_dir)


@pytest.mark.thorough
@one_quick(
    ("override", "warned"),
    [
        (
            "training.decay=inverse_sqrt",
            "training.decay: inverse_sqrt with training.warmup_steps 0",
        ),
        ("training.warmup_steps=50", "training.warmup_steps: 50 is more than the 2 steps"),
        ("training.decay=linear", None),
    ],
)
def test_an_unsuitable_schedule_gives_one_warning(
    small_corpus: Path, override: str, warned: str | None
) -> None:
    keys = ("training.warmup_steps=0", "training.decay=constant", override)
    run = trained(small_corpus, "training.max_steps=2", *keys)
    warnings = [line for line in log_of(run).splitlines() if "warning: training." in line]
    assert len(warnings) == (1 if warned else 0)
    assert all(f"warning: {warned}" in line for line in warnings)
    again = "training.max_steps=60" if "linear" not in override else "training.max_steps=2"
    train(configured(small_corpus, again, *keys), "cpu", resume=True)
    assert log_of(run).count(f"warning: {warned}") == len(warnings)
