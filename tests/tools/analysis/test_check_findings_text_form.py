"""Form of a text: segmented, tokenised, marked, quoted and non-language text is reported."""

import re
from collections.abc import Callable

import pytest

from seq2seq.data.public_corpora import _members
from seq2seq.data.tables import is_header
from seq2seq.tools.analysis.check.findings import form_findings, not_language

LINES = [
    "The woman, who is tall, saw Tom.",
    "Where is 3.5 km?",
    'He said: "No."',
    "It's 5 < 6, e.g. [sic].",
    "a_b@c.de is my address.",
    "Je viens ! Et toi ?",
] * 10


def findings_on(lines: list[str], table: bool = False) -> dict[str, str]:
    return {
        finding.check: finding.text for finding in form_findings("f.en", lines, ("xx", "yy"), table)
    }


def test_the_demo_corpora_and_plain_text_have_no_findings() -> None:
    assert findings_on(LINES) == {}
    for name, content in _members():
        lines = content.decode().splitlines()
        assert list(form_findings(str(name), lines, ("en", "fr", "mr"), False)) == [], name


@pytest.mark.parametrize(
    ("line", "check", "words"),
    [
        ("the un@@ known word", "segmented", "subword-nmt"),
        ("ending un@@", "segmented", "subword-nmt"),
        ("\u2581the \u2581un known", "segmented", "SentencePiece"),
        ("un\uffed known", "segmented", "OpenNMT"),
        ("un ##known", "segmented", "WordPiece"),
        ("un known</w>", "segmented", "</w>"),
        ("pcb @-@ belastung", "segmented", "Moses"),
        ("<s> a line </s>", "markers", "<s>"),
        ("an <unk> line", "markers", "<unk>"),
        ("<START> a line <end>", "markers", "<START>"),
        ("[CLS] a line", "markers", "[CLS]"),
        ("startseq a line endseq", "markers", "startseq"),
        ("a line <|endoftext|>", "markers", "<|endoftext|>"),
        ("<2en_XX> a line", "markers", "<2en_XX>"),
    ],
)
def test_segmentation_and_markers_are_reported_with_their_line(
    line: str, check: str, words: str
) -> None:
    text = findings_on([*LINES, line])
    assert list(text) == [check]
    assert words in text[check]
    assert (
        f"line {len(LINES) + 1}. " in text[check]
        or f"line {len(LINES) + 1}:" in text[check]
        or (f"line {len(LINES) + 1}," in text[check])
    )


@pytest.mark.parametrize(
    ("line", "tokenised"),
    [
        ("he is here .", True),
        ("yes , he is", True),
        ("彼 は 行 く 。", True),
        ("he is here.", False),
        ("yes, he is", False),
        ("彼は行く。", False),
        ("Où est-il ?", False),
    ],
)
def test_tokenised_text_is_detected_by_its_punctuation(line: str, tokenised: bool) -> None:
    assert ("tokenised" in findings_on([line, *["no mark"] * 2] * 30)) is tokenised


@pytest.mark.parametrize(
    ("line", "header"),
    [
        *((name, True) for name in ("source", "English", "tgt_text", "xx", "Sentence ID")),
        *((name, False) for name in ("Source.", "A text", "Hello", "", "123")),
    ],
)
def test_a_header_consists_of_column_names(line: str, header: bool) -> None:
    assert is_header(line, ("xx", "yy")) is header
    assert ("header" in findings_on([line, *LINES])) is header
    if header:
        assert "f.en, line 1" in findings_on([line, *LINES])["header"]


NOT_LANGUAGE: dict[str, Callable[[int], str]] = {
    "numbers": lambda n: str(n),
    "scores": lambda n: f"-0.{n * 7919:05d}",
    "dates": lambda n: f"2024-01-{n % 28:02d} 10:00",
    "URLs": lambda n: f"https://example.org/{n}?q=a",
    "paths": lambda n: f"news/article-{n}.html",
    "hashes": lambda n: f"{(n + 1) * 0x9E3779B1:016x}",
    "ids": lambda n: f"s{n:06d}",
    "mail": lambda n: f"user{n}@example.org",
}


@pytest.mark.parametrize("kind", NOT_LANGUAGE)
def test_columns_that_are_not_language_are_detected(kind: str) -> None:
    column = [NOT_LANGUAGE[kind](n) for n in range(400)]
    reason = not_language(column)
    assert reason is not None
    number, share, example = re.fullmatch(
        r"line (\d+): (\d+)% of the lines are .+, such as '(.+?)(?:\.\.\.)?'", reason
    ).groups()
    assert int(share) > 50
    assert column[int(number) - 1].strip().startswith(example)
    text = findings_on(column, table=True)["language"]
    assert f"f.en, {reason}" in text
