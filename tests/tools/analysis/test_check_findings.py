"""Statistics of a corpus and the resulting findings: each planted fault is found, no others."""

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from cases.tiny_runs import tiny_config
from cases.toy_text import toy_pairs

from seq2seq.config.schema import VocabularyConfig
from seq2seq.config.training import DecayConfig
from seq2seq.data.corpus import ParallelText
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies
from seq2seq.tools.analysis.check.data_statistics import (
    NOT_NFC,
    PATTERNS,
    TABLE,
    UNUSUAL_KINDS,
    TextStatistics,
    overlap,
    text_statistics,
    unusual_characters,
)
from seq2seq.tools.analysis.check.findings import (
    UNESCAPE,
    Finding,
    Split,
    data_findings,
    list_lines,
    overlap_findings,
)
from seq2seq.tools.analysis.check.forecast import (
    Forecast,
    cost_findings,
    duration,
    size,
    training_seconds,
    training_steps,
)


def toy_text(count: int = 400, seed: int = 1) -> ParallelText:
    return ParallelText(*toy_pairs(count, seed))


def planted(line: int, src: str | None = None, tgt: str | None = None) -> ParallelText:
    """Return a correct text with one line (counted from 1) replaced."""
    text = toy_text()
    if src is not None:
        text.src[line - 1] = src
    if tgt is not None:
        text.tgt[line - 1] = tgt
    return text


@cache
def toy_vocabularies() -> Vocabularies:
    text = toy_text()
    return train_vocabularies(VocabularyConfig(size=340), text.src, text.tgt)


def statistics(text: ParallelText) -> TextStatistics:
    return text_statistics(text, toy_vocabularies(), max_length=40)


def split_of(text: ParallelText, vocabularies: Vocabularies, name: str = "train") -> Split:
    return Split(name, f"{name}.src", f"{name}.tgt", text_statistics(text, vocabularies, 40))


def warnings(findings: Sequence[Finding]) -> dict[str, str]:
    return {finding.check: finding.text for finding in findings if finding.warning}


def warned(text: ParallelText, vocabularies: Vocabularies, name: str = "train") -> dict[str, str]:
    """Return the warnings about one text, except that about its size."""
    texts_by_check = warnings(list(data_findings([split_of(text, vocabularies, name)], 40)))
    texts_by_check.pop("size", None)
    return texts_by_check


# --------------------------------------------------------------------------------------- statistics


def test_a_correct_text_has_nothing_to_report() -> None:
    facts = statistics(toy_text())
    assert facts.lines == 400
    for name in ("blank", "duplicates", "identical", "length_outliers"):
        assert getattr(facts, name) == [], name
    assert facts.src.unusual_characters == facts.tgt.unusual_characters == {}
    assert facts.length_ratio == 1.0  # the toy translation preserves the position of every letter


def test_blank_repeated_and_identical_lines_are_distinguished() -> None:
    src = ["a b", "", "a b", "a b", "c", "d ", " \t", "a b"]
    tgt = ["x y", "z", "x y", "other", "c", "d", " ", "other"]
    facts = statistics(ParallelText(src, tgt))
    assert facts.blank == [2, 7]
    assert facts.duplicates == [3, 8]
    assert facts.identical == [5, 6]


def test_a_text_of_only_blank_lines_is_not_an_error() -> None:
    facts = statistics(ParallelText(["", " "], ["x", ""]))
    assert facts.blank == [1, 2]
    assert facts.length_ratio is None


@pytest.mark.parametrize(("src", "tgt"), [("no", "no " * 90), ("no " * 90, "no")])
def test_a_line_that_is_far_too_long_is_found_on_either_side(src: str, tgt: str) -> None:
    assert statistics(planted(78, src, tgt)).length_outliers == [78]


def test_the_usual_length_ratio_is_that_of_the_text() -> None:
    text = toy_text()
    wordy = ParallelText(text.src, [line * 5 for line in text.tgt])
    assert statistics(wordy).length_outliers == []
    wordy.tgt[6] = text.tgt[6][:3]
    assert statistics(wordy).length_outliers == [7]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("control", "a\x07b"),
        ("control", "a\x85b"),
        ("control", "a\u2028b"),
        ("control", "a\rb"),
        ("tab", "a\tb"),
        ("replacement", "a\ufffdb"),
        ("private use", "a\ue000b"),
        ("private use", "a\U0010fffdb"),
        ("byte order mark", "a\ufeffb"),
        ("zero width", "a\u200bb"),
        ("zero width", "a\u00adb"),
        ("zero width", "a\u202eb"),
        ("space", "the\u00a0car"),
        ("space", "the\u2009car is\u3000old"),
        ("compatibility", "the o\ufb03ce"),
        ("compatibility", "the c\uff41r"),
        ("HTML", "Tom &amp; Ann"),
        ("HTML", "&#39;"),
        (NOT_NFC, "e\u0301"),
        (NOT_NFC, "\u0958"),
    ],
)
def test_each_unusual_character_is_found_with_its_line(kind: str, text: str) -> None:
    lines_by_kind = unusual_characters(["plain", text, "plain"])
    assert lines_by_kind[kind] == [2]
    assert kind in UNUSUAL_KINDS


@pytest.mark.parametrize(
    "text",
    [
        "Qui est l\u00e0\u00a0?",  # French punctuation
        "12\u202f000 euros",
        "\u7537\u306e\u5b50\u3000\u72ac",  # Japanese
        "\uff34\u30b7\u30e3\u30c4",
        "\uff35\uff33\uff22\u30e1\u30e2\u30ea",
    ],
)
def test_characters_that_languages_use_are_not_unusual(text: str) -> None:
    assert unusual_characters([text]) == {}


SENTENCES = {
    "Arabic": "كان الطفل يلعب في الحديقة مع كلبه الصغير.",
    "Bengali": "ছেলেটি তার কুকুরের সাথে বাগানে খেলছিল।",
    "Chinese": "男孩和他的小狗在花园里玩耍。",
    "Czech": "Malý chlapec si hrál na zahradě se svým psem.",
    "French": "Le garçon a joué dans le jardin jusqu'à l'été.",
    "Georgian": "ბიჭი ბაღში თავის პატარა ძაღლთან თამაშობდა.",
    "German": "Der Junge spielte im Garten über Bäume und Füße.",
    "Greek": "Ένα αγόρι έπαιζε στον κήπο με τον μικρό του σκύλο.",
    "Hebrew": "הילד שיחק בגינה עם הכלב הקטן שלו.",
    "Hindi": "लड़का अपने छोटे कुत्ते के साथ बगीचे में खेल रहा था।",
    "Hungarian": "A kisfiú a kertben játszott a kutyájával, és örült.",
    "Japanese": "男の子は庭で小さな犬と遊んでいました。",
    "Korean": "소년은 정원에서 작은 개와 놀고 있었다.",
    "Marathi": "मुलगा बागेत त्याच्या लहान कुत्र्याबरोबर खेळत होता.",
    "Polish": "Chłopiec bawił się w ogrodzie ze swoim małym psem.",
    "Portuguese": "O menino não brincava no jardim com o cão da avó.",
    "Russian": "Мальчик играл в саду, где росли яблони.",
    "Spanish": "El niño jugó en el jardín con su perro pequeño.",
    "Tamil": "சிறுவன் தோட்டத்தில் தன் சிறிய நாயுடன் விளையாடினான்.",
    "Thai": "เด็กชายกำลังเล่นอยู่ในสวนกับสุนัขตัวเล็กของเขา",
    "Turkish": "Küçük çocuk bahçede köpeğiyle oynuyordu.",
    "Ukrainian": "Хлопчик грався в саду зі своїм маленьким собакою.",
    "Vietnamese": "Cậu bé chơi trong vườn với chú chó nhỏ của mình.",
}


def windows_1252(data: bytes) -> str:
    """Decode as browsers do: bytes undefined in Windows-1252 become control characters."""
    units = (bytes([byte]) for byte in data)
    return "".join(
        unit.decode("cp1252", errors="ignore") or unit.decode("latin-1") for unit in units
    )


@pytest.mark.parametrize("language", SENTENCES)
def test_mojibake_of_each_language_is_found(language: str) -> None:
    text = SENTENCES[language]
    lines = [text, text.encode().decode("latin-1"), text, windows_1252(text.encode())]
    lines_by_kind = unusual_characters(lines)
    assert lines_by_kind["mojibake"] == [2, 4]
    assert {number for numbers in lines_by_kind.values() for number in numbers} == {2, 4}


def test_characters_that_scripts_need_are_not_unusual() -> None:
    lines = [
        "सर्\u200dव",
        "\u0645\u06cc\u200c\u062e",
        "été: où ?",
        "5\u00a0% \u202f!",
        "\U0001f600 ½ R&D; &c.",
    ]
    assert unusual_characters(lines) == {}


def test_overlap_of_two_texts_is_found_by_source_and_by_pair() -> None:
    train = ParallelText(["a", "b", "", "c"], ["x", "y", "z", ""])
    valid = ParallelText([" b ", "a", "q", "", "a"], ["y", "other", "x", "z", "x"])
    assert overlap(valid, train) == ([1, 2, 5], [1, 5])


def test_tokens_and_unknown_tokens_are_counted() -> None:
    text = toy_text()
    words = train_vocabularies(VocabularyConfig(type="word", size=60), text.src, text.tgt)
    unseen = ParallelText(["qqq www", text.src[0]], ["qqq", text.tgt[0]])
    statistics = text_statistics(unseen, words, max_length=2)
    ids = words.src.encode(unseen.src)
    unknown = sum(i == 1 for line in ids for i in line)
    assert unknown >= 2
    assert statistics.src.unknown == unknown / sum(map(len, ids))
    assert statistics.too_long == [2]


def test_characters_encoded_as_bytes_are_not_unknown(tiny_vocabularies: Vocabularies) -> None:
    statistics = text_statistics(ParallelText(["बब"], ["ba"]), tiny_vocabularies, 40)
    assert statistics.src.unknown == 0
    assert statistics.src.bytes > 0.8
    assert statistics.tgt.bytes == 0


# ----------------------------------------------------------------------------------------- findings


def test_a_correct_text_gives_findings_but_no_warning(tiny_vocabularies: Vocabularies) -> None:
    splits = [split_of(toy_text(1200), tiny_vocabularies)]
    findings = list(data_findings(splits, 40))
    assert warnings(findings) == {}
    assert len(findings) == 8


@pytest.mark.parametrize(
    ("text", "check", "parts"),
    [
        (planted(12, tgt=" "), "blank", ["train: 1 pair ", "line 12", "skipped", "delete"]),
        (planted(12, src="ba\ufffd."), "unusual characters", ["train.src", "U+FFFD", "line 12"]),
        (planted(9, tgt="ba\tda!"), "unusual characters", ["train.tgt", "line 9", "tsv"]),
    ],
)
def test_a_fault_is_reported_with_its_place_and_remedy(
    tiny_vocabularies: Vocabularies, text: ParallelText, check: str, parts: list[str]
) -> None:
    warnings_by_check = warned(text, tiny_vocabularies)
    assert list(warnings_by_check) == [check]
    for part in parts:
        assert part in warnings_by_check[check]


def test_markers_in_the_training_text_are_not_reported_as_missing() -> None:
    src, tgt = toy_pairs(300, seed=1)
    marked = ParallelText([f"<s> {line} </s>" for line in src], tgt)
    vocabularies = train_vocabularies(VocabularyConfig(size=360), marked.src, marked.tgt)
    text = warned(marked, vocabularies)["unknown"]
    assert "of the tokens are bytes" in text
    assert "lacks" not in text


def test_the_remedy_for_html_entities_keeps_lines_and_columns(tmp_path: Path) -> None:
    text = (
        "a &amp; b&#10;c&#9;d &quot;e&quot;&nbsp;f &#x2028;g &#1; h &unknown; &lt;&gt;\r\n\n\tx\n"
    )
    (tmp_path / "FILE").write_bytes(text.encode())
    subprocess.run(["bash", "-c", UNESCAPE], cwd=tmp_path, check=True)
    assert (tmp_path / "NEW").read_bytes().decode() == (
        'a & b c d "e" f  g   h &unknown; <>\r\n\n\tx\n'
    )


def test_no_remedy_deletes_line_separators() -> None:
    for kind, row in TABLE["characters"].items():
        remedy = row["remedy"]
        if any(
            PATTERNS[kind].search(separator) for separator in "\r\v\f\x85\u2028" if kind in PATTERNS
        ):
            assert "space" in remedy
            assert "Delete" not in remedy


def test_many_faults_of_one_kind_are_one_warning(tiny_vocabularies: Vocabularies) -> None:
    src, tgt = toy_pairs(400, seed=1)
    assert "60 pairs" in warned(ParallelText(src, [*src[:60], *tgt[60:]]), tiny_vocabularies).pop(
        "identical"
    )
    assert "30 pairs" in warned(
        ParallelText([*src, *src[:30]], [*tgt, *tgt[:30]]), tiny_vocabularies
    ).pop("duplicates")


def test_only_validation_and_test_targets_must_be_in_nfc(tiny_vocabularies: Vocabularies) -> None:
    text = planted(3, tgt="e\u0301 ba!")
    for name in ("train", "train 1"):
        assert "unusual characters" not in warned(text, tiny_vocabularies, name)
    assert "NFC" in warned(text, tiny_vocabularies, "valid")["unusual characters"]
    source = planted(3, src="e\u0301 ba!")
    assert "unusual characters" not in warned(source, tiny_vocabularies, "valid")


def test_an_unknown_script_and_unknown_words_give_warnings(tiny_vocabularies: Vocabularies) -> None:
    unseen = ParallelText(["बब बब बब"] * 3 + toy_text(9).src, ["ba"] * 12)
    text = warned(unseen, tiny_vocabularies)["unknown"]
    assert "bytes, which spell characters that are not in the vocabulary." in text
    src, tgt = toy_pairs(300, seed=1)
    words = train_vocabularies(VocabularyConfig(type="word", size=30), src, tgt)
    assert "vocabulary.size" in warned(ParallelText(src, tgt), words)["unknown"]


def test_one_percent_of_overlong_pairs_gives_a_warning(tiny_vocabularies: Vocabularies) -> None:
    src, tgt = toy_pairs(400, seed=1)
    long = " ".join(["bada"] * 80)
    for count, expected in ((3, False), (5, True)):
        text = ParallelText([*src[count:], *[long] * count], [*tgt[count:], *[long] * count])
        assert ("too long" in warned(text, tiny_vocabularies)) is expected


def test_the_finding_on_overlap_depends_on_its_extent(tiny_vocabularies: Vocabularies) -> None:
    text = toy_text(200, seed=2)
    train = toy_text(200, seed=1)
    split = split_of(text, tiny_vocabularies, "valid")
    train_split = split_of(train, tiny_vocabularies)
    (fine,) = overlap_findings(split, train_split, overlap(text, train))
    assert not fine.warning
    (complete_overlap,) = overlap_findings(split, train_split, overlap(train, train))
    assert complete_overlap.warning
    assert "200 of 200 pairs occur in train" in complete_overlap.text
    other_targets = ParallelText(train.src, text.tgt)
    (sources,) = overlap_findings(split, train_split, overlap(other_targets, train))
    assert sources.warning
    assert "with other targets" in sources.text


def test_a_list_of_lines_shows_the_first_few() -> None:
    assert list_lines([7]) == "line 7"
    assert list_lines([7, 9]) == "lines 7, 9"
    assert list_lines(range(1, 10)) == "lines 1, 2, 3, 4, 5, ..."


# --------------------------------------------------------------------------------------------- cost

COST = Forecast("cpu", 1000, 16_000, 2**30, 2**34, 400, 8000, 40, 2000.0, 60.0)


def findings_of(cost: Forecast, **training: object) -> dict[str, str]:
    config = tiny_config(Path("run"), "none").training
    settings = config.model_copy(update={"max_epochs": 20, **training})
    return warnings(list(cost_findings(settings, cost)))


def test_moderate_costs_give_no_warning() -> None:
    assert findings_of(COST) == {}
    assert findings_of(COST, max_minutes=25) == {}


def test_a_time_limit_that_is_too_short_is_reported_with_its_share() -> None:
    text = findings_of(COST, max_minutes=5, decay=DecayConfig(name="linear"))["time"]
    assert "25% of its 8,000 steps" in text
    assert "linear decay" in text
    assert "decay" not in findings_of(COST, max_minutes=5)["time"]
    assert "Raise it, or lower training.max_epochs so" in text
    by_steps = findings_of(COST, max_minutes=5, max_steps=8000)["time"]
    assert by_steps.endswith("Raise it, or lower training.max_steps.")


def test_few_steps_and_much_memory_give_warnings() -> None:
    short = COST._replace(total_steps=40)
    assert "about 40 steps" in findings_of(short)["steps"]
    by_epochs = findings_of(short, max_epochs=3, max_steps=900)["steps"]
    assert by_epochs.endswith(
        "than 500: raise training.max_epochs (now 3), or lower training.batch_tokens."
    )
    by_steps = findings_of(short, max_epochs=9, max_steps=40, max_minutes=99)["steps"]
    assert by_steps.endswith("than 500: raise training.max_steps (now 40).")
    for total in (None, 9000):
        by_clock = findings_of(COST._replace(total_steps=total), max_epochs=None, max_minutes=1)
        assert "than 500: raise training.max_minutes (now 1), or lower" in by_clock["steps"]
    assert "batch_tokens" in findings_of(COST._replace(peak_bytes=2**34))["memory"]
    assert findings_of(COST._replace(peak_bytes=None)) == {}


def test_the_length_of_training_is_the_first_limit_reached() -> None:
    settings = tiny_config(Path("run"), "none").training
    assert training_seconds(settings, COST) == 20 * 60
    by_clock = settings.model_copy(update={"max_minutes": 3.0})
    assert training_seconds(by_clock, COST) == 180
    assert training_steps(by_clock, COST) == 1200
    open_ended = COST._replace(total_steps=None)
    assert training_seconds(settings, open_ended) is None
    assert training_steps(settings, open_ended) is None


def test_sizes_and_durations_are_formatted() -> None:
    assert [size(n) for n in (5 * 2**20, 3 * 2**29)] == ["5 MiB", "1.5 GiB"]
    assert [duration(n) for n in (4.25, 90, 7500)] == ["4.2 s", "2 min", "2 h 05 min"]
