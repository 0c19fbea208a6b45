"""Cross-validation of spellings of names on a toy language pair, and lists of names."""

import gettext
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cases.toy_names import name_pairs, some_names, spelled

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import faker_names
import measure_names
import pycountry_names

PAIRS = name_pairs(some_names(120, seed=1), 600, seed=2)


def test_names_left_out_are_spelled_by_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, pairs, names = (tmp_path / name for name in ("text.tsv", "pairs.tsv", "names.txt"))
    text.write_text("".join(f"{pair.src}\t{pair.tgt}\n" for pair in PAIRS), encoding="utf-8")
    unknown = some_names(150, seed=1)[120:]
    pairs.write_text("".join(f"{name}\t{spelled(name)}|x\n" for name in unknown), "utf-8")
    names.write_text("".join(f"{spelled(name)}\n" for name in unknown[:10]), "utf-8")
    options = [str(text), "--folds", "2", "--pairs", str(pairs), "--names", str(names)]
    monkeypatch.setattr("sys.argv", ["measure_names.py", *options])
    measure_names.main()
    mined, left_out, listed, others_line = capsys.readouterr().out.splitlines()
    assert "names mined from 600 pairs" in mined
    assert left_out.startswith("left out: ")
    assert "listed: 10 of 10 right" in listed
    assert "not listed: " in others_line
    assert " of 20 right" in others_line


def test_lines_with_a_name_that_is_left_out_are_too() -> None:
    text = measure_names.Text(["Anna ran", "He met Anna", "He ran"], ["a", "b", "c"])
    words = [{"Anna"}, {"Anna", "He"}, {"He"}]
    assert measure_names.without(text, words, {"Anna": []}) == (["He ran"], ["c"])


def test_tables_of_names_become_words_of_a_script() -> None:
    tables = SimpleNamespace(
        first_names_male=("कमल", "(राम)"),
        last_names={"नाईक": 0.5},
        first_name_pairs=(("晃", "アキラ", "Akira"),),
        formats=("x",),
    )
    names = set(faker_names.names_of(tables))
    assert names == {"कमल", "नाईक", "晃", "アキラ", "Akira"}
    assert {name for name in names if faker_names.is_of(name, "KATAKANA")} == {"アキラ"}


class Catalogue(gettext.NullTranslations):
    """Translations of some names; others remain."""

    def gettext(self, message: str) -> str:
        """Return the translation of a name."""
        return {"Goa": "गोवा", "Agra": "आग्रा", "A\tB": "क"}.get(message, message)


def test_names_that_a_catalogue_translates_become_pairs() -> None:
    entries = [
        {"name": "Goa", "common_name": "Agra", "alpha_2": "Goa", "parent_code": None},
        {"name": "Kerala"},
        {"name": "A\tB"},
    ]
    pairs = list(pycountry_names.translated(entries, Catalogue()))
    assert pairs == [("Goa", "गोवा"), ("Agra", "आग्रा")]
