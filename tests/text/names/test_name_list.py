"""A list of names in the target's script: its lines, its errors, and what a run keeps of it."""

import json
import shutil
from pathlib import Path

import pytest
from cases.toy_names import name_pairs, some_names, spelled

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.vocabulary.training import train_vocabularies, vocabulary_notes
from seq2seq.data.vocabulary.vocabulary import checksums_of, load_vocabularies, save_vocabularies
from seq2seq.runtime.errors import UserError
from seq2seq.text.names.name_list import read_names
from seq2seq.text.names.names import Names, learn_names
from seq2seq.text.names.speller import Speller

PAIRS = name_pairs(some_names(120, seed=1), 900, seed=2)
SRC = [pair.src for pair in PAIRS]
TGT = [pair.tgt for pair in PAIRS]


def listed(path: Path, content: bytes) -> list[str]:
    path.write_bytes(content)
    return list(read_names(path))


def config_with(path: Path, size: int = 310) -> VocabularyConfig:
    return VocabularyConfig.model_validate({"size": size, "names": {"placeholders": str(path)}})


def test_marks_line_ends_blank_and_repeated_lines_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    content = "\ufeffअमित\r\n\r\n  राहुल \r\nअमित\r\nगीता-मीरा कमल\r\nनीता".encode()
    assert listed(path, content) == ["अमित", "राहुल", "गीता", "मीरा", "कमल", "नीता"]
    assert listed(path, "Zo\u0065\u0301".encode()) == ["Zo\u00e9"]  # NFC, as other text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("अमित\nRohan\tरोहन\n".encode(), r"names\.txt:2: 'Rohan\\tरोहन' is not a name"),
        ("अमित, राहुल\n".encode(), r"names\.txt:1: 'अमित, राहुल' is not a name"),
        ("अमित\n12\n".encode(), r"names\.txt:2: '12' is not a name"),
        (b"\n---\n", r"names\.txt:2: '---' is not a name"),
        (b"\n \n", r"names\.txt: has no names"),
        (b"", r"names\.txt: the file is empty"),
        (b"Jos\xe9\n", r"names\.txt:1: .*UTF-8"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        listed(tmp_path / "names.txt", content)
    assert "\n" not in str(caught.value)


def test_a_missing_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.txt"):
        train_vocabularies(config_with(tmp_path / "absent.txt"), SRC, TGT)


def test_names_of_another_script_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    for name in ("Rohan", "Роман", "રોહન", "कaमल"):
        path.write_text(f"कमल\n{name}\n", encoding="utf-8")
        with pytest.raises(UserError, match=rf"names\.txt:2: {name} is not in the script of the"):
            train_vocabularies(config_with(path), SRC, TGT)


def test_a_listed_name_is_spelled_as_listed() -> None:
    """Prefer the listed one of two spellings that differ in the length of a vowel."""
    pairs = [(name.lower(), spelled(name)) for name in some_names(120, seed=1)]
    words = [spelling for _, spelling in pairs]
    unlisted = {name: Speller(pairs, words).spell(name) for name in ("kanila", "girona")}
    for name, (long, short) in {
        "kanila": ("कानीला", "कानिला"),
        "girona": ("गीरोना", "गिरोना"),
    }.items():
        assert unlisted[name] == (short, unlisted[name][1])  # type: ignore[index]
        listed_spelling = Speller(pairs, words, [long]).spell(name)
        assert listed_spelling is not None
        assert listed_spelling[0] == long


def test_the_run_keeps_the_list(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    folder = tmp_path / "vocabulary"
    path.write_text("कानीला\nगीरोना\n", encoding="utf-8")
    config = config_with(path)
    trained = train_vocabularies(config, SRC, TGT)
    save_vocabularies(trained, folder)
    path.unlink()
    names = load_vocabularies(folder, checksums=checksums_of(trained)).names
    assert names is not None
    assert names.content["listed"] == ["कानीला", "गीरोना"]
    assert trained.names is not None
    assert names.spelling("Kanila") == trained.names.spelling("Kanila")
    assert vocabulary_notes(config, trained) == [
        f"vocabulary.names: 2 names of {path} help to spell others"
    ]
    shutil.rmtree(folder)


def test_names_without_a_list_are_stored_as_before() -> None:
    names = learn_names(SRC, TGT)
    content = json.loads(names.stored)
    assert "listed" not in content
    assert Names(content).spelling("Kanila") == names.spelling("Kanila")


def test_the_log_says_that_a_list_has_no_use_between_alike_languages(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("Kanila\n", encoding="utf-8")
    german = [f"Das {' '.join(pair.names)} xq." for pair in PAIRS]
    config = config_with(path, 300)
    (note,) = vocabulary_notes(config, train_vocabularies(config, SRC, german))
    assert "have no use" in note
