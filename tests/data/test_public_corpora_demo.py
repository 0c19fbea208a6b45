import re
import string
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from seq2seq.data.public_corpora import unpack_demo_corpora
from seq2seq.runtime.errors import RunError

ROOT = Path(__file__).resolve().parents[2]
PUNCTUATION = str.maketrans("", "", string.punctuation)
SIZES = {
    "demo": {"train": 9200, "valid": 300, "test": 500},
    "demo-en-mr": {"train": 3400, "valid": 200, "test": 400},
    "demo-lengths": {"train": 9200, "valid": 300, "test": 700},
}

Pairs = list[tuple[str, str]]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Pairs]]:
    folder = tmp_path_factory.mktemp("data")
    unpack_demo_corpora(folder)
    return {
        name: {
            split: list(
                zip(
                    *(
                        (folder / name / f"{split}.{lang}").read_text("utf-8").splitlines()
                        for lang in ("en", "mr" if name.endswith("mr") else "fr")
                    ),
                    strict=True,
                )
            )
            for split in ("train", "valid", "test")
        }
        for name in SIZES
    }


def all_pairs(splits: dict[str, Pairs]) -> Pairs:
    return [pair for pairs in splits.values() for pair in pairs]


@pytest.mark.parametrize("name", SIZES)
def test_splits_have_their_documented_sizes(
    corpora: dict[str, dict[str, Pairs]], name: str
) -> None:
    assert {split: len(pairs) for split, pairs in corpora[name].items()} == SIZES[name]


@pytest.mark.thorough
@pytest.mark.parametrize("name", SIZES)
def test_no_sentence_occurs_twice_on_either_side(
    corpora: dict[str, dict[str, Pairs]], name: str
) -> None:
    for side in zip(*all_pairs(corpora[name]), strict=True):
        assert len({text.lower().translate(PUNCTUATION) for text in side}) == len(side)


@pytest.mark.parametrize("name", SIZES)
def test_lines_are_clean_text(corpora: dict[str, dict[str, Pairs]], name: str) -> None:
    for pair in all_pairs(corpora[name]):
        for text in pair:
            assert 3 <= len(text.split()) <= (70 if name == "demo-lengths" else 30), text
            assert text == " ".join(text.split()), text
            assert text == unicodedata.normalize("NFC", text), text
            assert not re.search(" [.,]", text), text
            assert text[0] == text[0].upper(), text
        assert pair[0].endswith(".") == pair[1].endswith("."), pair
        assert pair[0].count(",") == pair[1].count(","), pair


def test_the_documented_examples_are_not_in_the_corpora(
    corpora: dict[str, dict[str, Pairs]],
) -> None:
    for en, _ in all_pairs(corpora["demo"]):
        assert "agreement on the European Economic Area was signed in August 1992" not in en
    for en, mr in all_pairs(corpora["demo-en-mr"]):
        assert "rahul is a good boy" not in en.lower()
        assert "राहुल चांगला मुलगा" not in mr
    train = [en for en, _ in corpora["demo-en-mr"]["train"]]
    assert sum("is a good boy" in en for en in train) >= 10
    assert sum(bool(re.search(r"Rahul is a good \w+", en)) for en in train) >= 5
    assert sum(bool(re.search(r"Rahul is an? \w+ boy", en)) for en in train) >= 5
    assert sum(en.startswith("Rahul") for en in train) >= 100


def test_european_economic_area_is_frequent_and_reordered(
    corpora: dict[str, dict[str, Pairs]],
) -> None:
    """The reordering shown in the attention plot occurs in many training contexts."""
    train = corpora["demo"]["train"]
    area = [(en, fr) for en, fr in train if "European Economic Area" in en]
    assert len(area) > 700
    assert all("zone économique européenne" in fr for _, fr in area)
    assert len({en.split(" the European Economic Area")[0] for en, _ in area}) > 200


def test_half_of_marathi_ends_in_a_full_stop(corpora: dict[str, dict[str, Pairs]]) -> None:
    stops = [en.endswith(".") for en, _ in corpora["demo-en-mr"]["train"]]
    assert 0.45 < sum(stops) / len(stops) < 0.55


def test_training_sentences_are_short_and_test_lengths_uniform(
    corpora: dict[str, dict[str, Pairs]],
) -> None:
    counts = {
        split: Counter((len(src.split()) - 1) // 5 for src, _ in pairs)
        for split, pairs in corpora["demo-lengths"].items()
    }
    assert counts["train"].keys() == counts["valid"].keys() == {0, 1, 2}
    assert counts["test"] == dict.fromkeys(range(7), 100)
    train = corpora["demo-lengths"]["train"]
    joined_clauses = [src for src, _ in train if re.search(",? (?:and|but) ", src)]
    assert len(joined_clauses) > 1000  # long test sentences join clauses as training sentences do


def test_unpacking_reports_the_number_of_pairs(tmp_path: Path) -> None:
    lines = unpack_demo_corpora(tmp_path / "data")
    assert f"{tmp_path / 'data' / 'demo'}: 9,200 train, 300 valid, 500 test pairs" in lines
    assert len(lines) == 3
    for path in (tmp_path / "data").rglob("*.*"):
        content = path.read_bytes()
        assert b"\r" not in content
        assert content.endswith(b"\n")


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(RunError, match="cannot be written") as caught:
        unpack_demo_corpora(tmp_path / "data")
    assert "\n" not in str(caught.value)
