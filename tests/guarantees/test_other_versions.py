"""Records in runs and exports of other versions: what they lack, and what they have more."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2seq.__main__ import main
from seq2seq.config.search_options import Decoding
from seq2seq.data.length_limit import LengthLimit
from seq2seq.inference.translator import Translator
from seq2seq.runs import tensor_file, training_state
from seq2seq.runs.checkpoint import load_model
from seq2seq.runs.layout import BEST
from seq2seq.runtime.errors import DamagedFile, UserError
from seq2seq.text.source_profile import SourceProfile

FOLDER = Path(__file__).parents[1] / "cases/written_at_56a3ce7b"
TRANSLATIONS: dict[str, dict[str, str]] = json.loads(
    (FOLDER / "translations.json").read_text("utf-8")
)
Change = Callable[[dict[str, Any]], object]


def changed_export(folder: Path, change: Change) -> Path:
    """Return a copy of an export whose description is changed."""
    export = shutil.copytree(FOLDER / "copying-export", folder / "export")
    description = json.loads((export / "export.json").read_text("utf-8"))
    change(description)
    (export / "export.json").write_text(json.dumps(description), "utf-8")
    return export


def changed_run(folder: Path, change: Change) -> Path:
    """Return a copy of a run whose weights have another header, with its checksum."""
    run = shutil.copytree(FOLDER / "names", folder / "run")
    header, tensors = tensor_file.read_file(run / BEST)
    change(header)
    tensor_file.save_tensors(run / BEST, tensors, header)
    return run


def assert_translates(folder: Path, name: str) -> Translator:
    """Check that a copy of a run or an export translates as the original."""
    expected = TRANSLATIONS[name]
    translator = Translator.load(folder, device="cpu")
    translations = translator.translate(list(expected), 4)
    assert [translation.text for translation in translations] == list(expected.values())
    return translator


# ------------------------------------------------------------------------------- keys of `decoding`


@pytest.mark.parametrize("key", ["beam_size", "repetition_penalty"])
def test_a_key_that_an_older_export_lacks_has_its_default(key: str, tmp_path: Path) -> None:
    export = changed_export(tmp_path, lambda description: description["decoding"].pop(key))
    translator = assert_translates(export, "copying-export")
    assert getattr(translator.decoding, key) == getattr(Decoding(), key)


def test_an_export_of_before_any_key_existed_translates(tmp_path: Path) -> None:
    export = changed_export(tmp_path, lambda description: description["decoding"].clear())
    assert assert_translates(export, "copying-export").decoding == Decoding()


@pytest.mark.parametrize(
    ("key", "named_keys"),
    [
        ("no_doubled_token", "decoding.no_doubled_token"),  # of a newer version
        ("beam_sise", "decoding.beam_sise"),
        ("\x1b[31m\u202e", r"decoding.\x1b[31m\u202e"),
        ("x" * 99, f"decoding.{'x' * 48}..."),
    ],
)
def test_an_unknown_key_of_an_export_is_refused_by_its_name(
    key: str, named_keys: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = changed_export(tmp_path, lambda description: description["decoding"].update({key: 1}))
    remedy = "install a newer version or export again with this one"
    text = f"{export / 'export.json'}: has {named_keys}, which this version does not know; {remedy}"
    assert main(["translate", "-m", str(export), "A tree."]) == 2
    assert capsys.readouterr().err == f"seq2seq: error: {text}\n"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("beam_size", 0),
        ("beam_size", 1_001),  # whose memory a stranger would take
        ("length_penalty", 11),
        ("length_penalty", "1"),
        ("repetition_penalty", 0.5),
        ("replace_unknown", 1),
        ("max_length", 0),
        ("min_length", 10_001),
    ],
)
def test_a_value_that_no_config_may_have_is_refused(key: str, value: Any, tmp_path: Path) -> None:
    export = changed_export(
        tmp_path, lambda description: description["decoding"].update({key: value})
    )
    with pytest.raises(UserError, match=f"export.json: is damaged .*{key}.*; export the run again"):
        Translator.load(export)
    with pytest.raises(UserError, match=f"not a value of decoding.{key}"):
        Translator.load(
            FOLDER / "copying-export", overrides=[f"decoding.{key}={json.dumps(value)}"]
        )


@pytest.mark.parametrize("section", [[], None, "beam_size", 5])
def test_a_section_that_is_no_map_is_damaged(section: Any, tmp_path: Path) -> None:
    export = changed_export(tmp_path, lambda description: description.update(decoding=section))
    with pytest.raises(UserError, match=r"export.json: is damaged .*; export the run again"):
        Translator.load(export)


def test_the_format_of_another_version_is_named(tmp_path: Path) -> None:
    export = changed_export(tmp_path, lambda description: description.update(format=4))
    with pytest.raises(UserError, match=r"export.json: has format 4, and this version .* reads 3;"):
        Translator.load(export)


# ------------------------------------------------------------------------------ records of the text


def add_fields(header: dict[str, Any]) -> None:
    """Add a field that this version does not have to each record of the text."""
    header["source"]["vowels"] = ["a"]
    header["limit"]["deviation"] = 0.5


def lose_field(header: dict[str, Any]) -> None:
    """Remove a field of the profile, which has its default."""
    assert header["source"].pop("tagged") is SourceProfile().tagged


@pytest.mark.parametrize("change", [add_fields, lose_field])
def test_an_export_with_other_fields_of_its_text_translates(change: Change, tmp_path: Path) -> None:
    assert_translates(changed_export(tmp_path, change), "copying-export")


@pytest.mark.parametrize("change", [add_fields, lose_field])
def test_a_run_with_other_fields_of_its_text_translates(change: Change, tmp_path: Path) -> None:
    run = changed_run(tmp_path, change)
    assert_translates(run, "names")
    original = load_model(FOLDER / "names", torch.device("cpu"))
    loaded = load_model(run, torch.device("cpu"))
    assert (loaded.source, loaded.limit) == (original.source, original.limit)


def test_a_training_state_with_other_fields_of_its_text_is_read() -> None:
    header = {"source": {"sentences": 2, "vowels": []}}
    limit = LengthLimit(1.5, 10)
    state = training_state.TrainingState(
        Path("last.safetensors"), header, {}, training_state.Progress(), limit
    )
    assert training_state.recorded_source(state) == SourceProfile(sentences=2)


@pytest.mark.parametrize(
    "limit",
    [None, [], "text", {"ratio": 1.5}, {"ratio": 1.5, "extra": "x"}, {"ratio": 1.5, "extra": True}],
)
def test_a_record_of_other_types_is_damaged(limit: Any, tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match="the header is damaged"):
        tensor_file.read_record(LengthLimit, {"limit": limit}, "limit", tmp_path)
