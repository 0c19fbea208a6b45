"""`seq2seq average`: the mean is correct, the result translates, the inputs are unchanged."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from cases.tiny_runs import copy_with_vocabularies
from cases.toy_text import write_small_corpus

from seq2seq.__main__ import main
from seq2seq.config.schema import load_config
from seq2seq.data.vocabulary.vocabulary import Vocabularies, Vocabulary
from seq2seq.inference.translator import Translator
from seq2seq.model.seq2seq import named_weights
from seq2seq.runs import checkpoint
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.layout import BEST, CONFIG, snapshots
from seq2seq.runs.run_config import read_config, stored_run
from seq2seq.runs.tensor_file import read_header, read_tensors, save_tensors
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.tools.averaging import average, select_checkpoints
from seq2seq.training.loop import train

CPU = torch.device("cpu")
STEPS = [4, 6, 8]  # steps of the snapshots that the run keeps


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run that keeps three snapshots, which tests must not change."""
    corpus = write_small_corpus(tmp_path_factory.mktemp("run"))
    settings = ("max_steps=8", "validate_every=2", "keep=3", "learning_rate=0.01")
    overrides = ["decoding.max_length=6", *(f"training.{setting}" for setting in settings)]
    return train(load_config(corpus, overrides), "cpu")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def other_run(run: Path, target: Path, change: Callable[[str], str]) -> Path:
    """Copy a run and change its config."""
    shutil.copytree(run, target)
    config = (target / CONFIG).read_text(encoding="utf-8")
    (target / CONFIG).write_text(change(config), encoding="utf-8")
    return target


@pytest.mark.thorough
def test_training_keeps_the_requested_snapshots(run: Path) -> None:
    assert [path.name for path in snapshots(run)] == [f"step-{step}.safetensors" for step in STEPS]
    best = read_header(run / BEST)[0]
    for path in snapshots(run):
        header = read_header(path)[0]
        assert {key: header[key] for key in ("config", "vocabulary", "limit")} == {
            key: best[key] for key in ("config", "vocabulary", "limit")
        }
        if header["step"] == best["step"]:
            assert path.read_bytes() == (run / BEST).read_bytes()


@pytest.mark.parametrize("last", [None, 2])
def test_a_single_run_gives_the_mean_of_its_snapshots(
    run: Path, tmp_path: Path, last: int | None
) -> None:
    contents_before = contents(run)
    printed = []
    new = tmp_path / "below" / "new"
    average([run], new, "cpu", last, report=printed.append)
    assert contents(run) == contents_before
    averaged_paths = snapshots(run)[-(last or 3) :]
    expected = [read_tensors(path) for path in averaged_paths]
    average_weights = read_tensors(new / BEST)
    assert average_weights.keys() == expected[0].keys()
    for name, tensor in average_weights.items():
        mean = torch.stack([tensors[name].double() for tensors in expected]).mean(0)
        torch.testing.assert_close(tensor.double(), mean, rtol=1e-6, atol=1e-9)
    header = read_header(new / BEST)[0]
    assert [entry["path"] for entry in header["averaged"]] == [str(path) for path in averaged_paths]
    assert [entry["step"] for entry in header["averaged"]] == STEPS[-(last or 3) :]
    source = load_model(run, CPU, averaged_paths[0].name).source
    assert source.sentences == 1
    assert stored_run(new).source == source
    assert header["step"] == 8
    for path, line in zip(averaged_paths, printed, strict=False):  # measured again, as in training
        assert line.startswith(f"{path}, step {read_header(path)[0]['step']}: ")
        assert line.endswith(f"BLEU {read_header(path)[0]['bleu']:.2f}")
    assert printed[-1].startswith(f"{new}, the average of {len(averaged_paths)}: validation BLEU ")
    assert f"{header['bleu']:.2f}" in printed[-1]


def test_the_new_run_translates_and_can_be_moved(run: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    average([run], new, "cpu", report=lambda _: None)
    assert {path.name for path in new.iterdir()} == {CONFIG, BEST, "vocabulary"}
    assert read_config(new) == read_config(run).model_copy(update={"run_dir": new})
    moved = Path(shutil.move(new, tmp_path / "moved"))
    texts = Translator.load(moved, device="cpu").translate(["ba ka."], 1)
    model = load_model(run, CPU).model
    mean = named_weights(load_model(moved, CPU).model)
    assert any(not torch.equal(mean[name], weight) for name, weight in named_weights(model).items())
    assert len(texts) == 1


def test_several_runs_are_averaged_by_their_best_weights(run: Path, tmp_path: Path) -> None:
    second_run = other_run(run, tmp_path / "other", lambda text: text.replace("seed: 1", "seed: 5"))
    shutil.copy(run / "step-4.safetensors", second_run / BEST)
    new = tmp_path / "new"
    notes = average([run, second_run], new, "cpu", report=lambda _: None)
    for name, tensor in read_tensors(new / BEST).items():
        pair = [
            read_tensors(averaged_run / BEST)[name].double() for averaged_run in (run, second_run)
        ]
        torch.testing.assert_close(tensor.double(), sum(pair) / 2, rtol=1e-6, atol=1e-9)
    assert "warning: the runs have different seeds (1, 5)" in "\n".join(notes)


def test_an_average_without_improvement_is_noted(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bleu_scores = iter([40.0, 41.0, 40.5])
    monkeypatch.setattr(
        "seq2seq.training.validation.greedy_bleu", lambda *_, **__: (next(bleu_scores), [])
    )
    paths = [run / f"step-{step}.safetensors" for step in STEPS[:2]]
    notes = average(paths, tmp_path / "new", "cpu", report=lambda _: None)
    expected = f"note: the average is no better than {paths[1]} (validation BLEU 41.00)"
    assert notes[-1] == expected


def test_snapshots_may_be_removed_by_training_while_averaging(run: Path, tmp_path: Path) -> None:
    """Each snapshot is read once, so that the scored weights are those averaged."""
    training = other_run(run, tmp_path / "training", str)

    def report(_: str) -> None:
        for path in snapshots(training):
            path.unlink()

    average([training], tmp_path / "new", "cpu", report=report)
    assert snapshots(training) == []
    assert Translator.load(tmp_path / "new", device="cpu")


def test_averaging_does_not_need_the_validation_data(run: Path, tmp_path: Path) -> None:
    gone = other_run(run, tmp_path / "gone", lambda text: text.replace("valid.src", "gone.src"))
    printed: list[str] = []
    (note,) = average([gone], tmp_path / "new", "cpu", report=printed.append)
    assert note.startswith("note: no validation BLEU was measured: ")
    assert "gone.src" in note
    assert printed[-1] == f"{tmp_path / 'new'}, the average of 3"
    assert read_header(tmp_path / "new" / BEST)[0]["bleu"] is None
    assert Translator.load(tmp_path / "new", device="cpu")


def test_validation_data_from_elsewhere_are_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A config of a stranger may name any text; those of the current folder are expected."""
    (work := tmp_path / "work").mkdir()
    monkeypatch.chdir(work)
    named = average([run], tmp_path / "new", "cpu", report=lambda _: None)
    valid = load_config(run / "config.yaml").data.valid
    texts = valid.src, valid.tgt
    expected = [f"note: reads {path}, which the config of {run} names" for path in texts]
    assert named[:2] == expected
    monkeypatch.chdir(run.parent)
    notes = average([run], tmp_path / "other", "cpu", report=lambda _: None)
    assert not [note for note in notes if note.startswith("note: reads ")]


def refused(*arguments: object) -> str:
    with pytest.raises(UserError) as caught:
        average(*arguments, report=lambda _: None)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_is_replaced_only_on_request(run: Path, tmp_path: Path) -> None:
    new = other_run(run, tmp_path / "new", str)
    (new / "mine").write_text("precious")
    contents_before = contents(new)
    assert "overwrite=True" in refused([run], new, "cpu")
    assert contents(new) == contents_before
    average([run], new, "cpu", None, True, lambda _: None)
    assert (new / "mine").read_text() == "precious"
    assert snapshots(new) == []
    assert not (new / "last.safetensors").exists()
    assert "is one of the runs" in refused([run], run, "cpu", None, True)
    pair = [run / BEST, run / "step-4.safetensors"]
    assert "is one of the runs" in refused(pair, run / "." / "vocabulary" / "..", "cpu")
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").touch()
    assert "contains files other than a run's" in refused([run], full, "cpu", None, True)
    assert "is a file" in refused([run], full / "mine", "cpu")


def test_a_run_written_concurrently_is_not_replaced(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is checked again once it is locked."""
    new = tmp_path / "new"

    @contextmanager
    def late(folder: Path) -> Iterator[None]:
        shutil.copytree(run, folder)
        yield

    monkeypatch.setattr("seq2seq.tools.averaging.exclusive_lock", late)
    with pytest.raises(UserError, match="already contains a run; replace it with overwrite=True"):
        average([run], new, "cpu", report=lambda _: None)
    assert contents(new) == {new / path.relative_to(run): c for path, c in contents(run).items()}


def test_a_full_disk_leaves_no_folder_and_names_no_training_state(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    new = tmp_path / "new"
    monkeypatch.setattr("os.fsync", full)
    assert main(["average", str(run), "-o", str(new), "--device", "cpu"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.endswith(
        "cannot be written (No space left on device). Fix the problem and start again"
    )
    assert not new.exists()


@pytest.mark.thorough
def test_a_folder_of_failed_averaging_can_be_reused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"

    def full(*_: object) -> None:
        raise RunError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_weights", full)
        with pytest.raises(RunError):
            average([run], new, "cpu", report=lambda _: None)
    assert not new.exists()
    average([run], new, "cpu", report=lambda _: None)
    assert Translator.load(new, device="cpu")


def test_invalid_inputs_are_refused(run: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert ": 3 of 4;" in refused([run], new, "cpu", 4)
    assert "last=2" in refused([run, run], new, "cpu", 2)
    assert "has the same weights as" in refused([run, run / BEST], new, "cpu")
    assert "at least 2 checkpoints" in refused([run / BEST], new, "cpu")
    again = other_run(run, tmp_path / "again", str)
    assert f"has the same weights as {run / BEST}" in refused([run, again], new, "cpu")
    assert "step-N.safetensors" in refused([run / "last.safetensors", run], new, "cpu")
    assert "no such run folder" in refused([tmp_path / "nowhere"], new, "cpu")
    assert "no such run folder" in refused([run, tmp_path / "nowhere"], new, "cpu")
    bare = other_run(run, tmp_path / "bare", str)
    for path in snapshots(bare)[1:]:
        path.unlink()
    assert ": 1 of 2;" in refused([bare], new, "cpu")
    assert not new.exists()


def test_another_model_or_vocabulary_is_refused(run: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    second_run = tmp_path / "other"
    shutil.copytree(run, second_run)
    loaded = load_model(run, CPU)
    vocabularies = loaded.vocabularies
    config = loaded.config
    changed = Vocabulary(vocabularies.src.model + b"\x7a\x00")
    copy_with_vocabularies(run, second_run, Vocabularies(changed, changed))
    message = refused([run, second_run], new, "cpu")
    assert message.startswith(f"{second_run / BEST}: has another vocabulary than {run / BEST}")
    windowed = other_run(run, tmp_path / "windowed", lambda text: with_window(text))
    header, _ = read_header(windowed / BEST)
    del header["config"]["model.window"]
    header["config"] |= {"model.window.kind": "local_m", "model.window.width": 10}
    save_tensors(windowed / BEST, read_tensors(windowed / BEST), header)
    assert Translator.load(windowed, device="cpu")
    message = refused([run, windowed], new, "cpu")
    assert message.startswith(
        f"{windowed / BEST}: has another model than {run / BEST}: model.window"
    )
    assert config.model.window is None
    assert not new.exists()


def with_window(text: str) -> str:
    """Change the config to another model that these weights fit, too."""
    return text.replace("window: null", "window: local_m")


def test_damage_is_detected(run: Path, tmp_path: Path) -> None:
    damaged = other_run(run, tmp_path / "damaged", str)
    path = damaged / "step-6.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    assert refused([damaged], tmp_path / "new", "cpu").startswith(f"{path}: damaged")


def test_checkpoints_are_selected_by_run_or_file(run: Path) -> None:
    assert select_checkpoints([run]) == snapshots(run)
    assert select_checkpoints([run / BEST, run / "step-4.safetensors"]) == [
        run / BEST,
        run / "step-4.safetensors",
    ]


def test_the_command_reports_its_result(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    call = ["average", str(run), "-o", str(new), "--last", "2", "--device", "cpu"]
    assert main(call) == 0
    out, err = capsys.readouterr()
    names = [f"{run / 'step-6.safetensors'}, step 6", f"{run / 'step-8.safetensors'}, step 8"]
    names.append(f"{new}, the average of 2")
    assert [line.rpartition(": validation BLEU ")[0] for line in out.splitlines()] == names
    assert err.splitlines()[-1] == f"Translate:  seq2seq translate -m {new} -i FILE"
    assert main(call) == 2
    assert main([*call, "--overwrite"]) == 0
