"""Entities are read as characters, and written as the training text writes them."""

import pytest
from cases.growth import LINEAR, growth
from hypothesis import example, given
from hypothesis import strategies as st

from seq2seq.text.entities import Entities, character_of, without_entities
from seq2seq.text.learned_profile import describe_source
from seq2seq.text.line import line_of
from seq2seq.text.long_lines import Tokenizer
from seq2seq.text.source_profile import SourceProfile
from seq2seq.text.steps import StepContext, apply, steps_of

TOKENS = [
    f"he said , &quot; it {verb} so . &quot; then {name} &apos;s car &amp; cat left ."
    for verb in ("is", "was")
    for name in ("tom", "ann", "it")
] * 40
PLAIN = [
    f'He said, "It {verb} so." Then {name} left.'
    for verb in ("is", "was")
    for name in ("Tom", "Ann")
] * 40


class Characters(Tokenizer):
    """A tokenizer of characters."""

    def encode(self, texts: list[str]) -> list[list[int]]:  # type: ignore[override]
        return [list(map(ord, text)) for text in texts]


def parts_of(profile: SourceProfile, text: str) -> list[str]:
    line = line_of(text)
    apply(steps_of(StepContext(profile, Characters())), line)  # type: ignore[abstract]
    return [part.masked.text for part in line.parts]


PROFILES = [describe_source(lines, lines) for lines in (TOKENS, PLAIN)]


def usual(profile: SourceProfile, line: str) -> str:
    """Return a line as the text writes it, its entities read once, as the steps read them."""
    return profile.ordinary(profile.without_entities(line))


def test_the_entities_of_a_text_are_recorded() -> None:
    assert describe_source(TOKENS, TOKENS).entities == ["&amp;", "&apos;", "&quot;"]
    assert describe_source(PLAIN, PLAIN).entities == []
    assert Entities.of(["&quot;", '"', '"'], 0).usual == [], "more often a character"


def test_lines_of_a_text_with_entities_stay_as_they_are() -> None:
    profile = describe_source(TOKENS, TOKENS)
    assert [usual(profile, line) for line in TOKENS] == TOKENS
    assert parts_of(profile, TOKENS[0]) == [TOKENS[0]]


@pytest.mark.parametrize("quote", ["&quot;", '"', "&#34;", "&#x22;", "\u201d", "&rdquo;"])
def test_a_quotation_mark_ends_the_sentence_that_it_closes(quote: str) -> None:
    profile = describe_source(TOKENS, TOKENS)
    assert parts_of(profile, f"then tom left . {quote}") == ["then tom left . &quot;"]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("He said, &quot;It is so.&quot;", 'He said, "It is so."'),
        ("Tom&#39;s car", "Tom's car"),
        ("Ann&nbsp;left.", "Ann left."),
        ("&ldquo;It is so.&rdquo;", '"It is so."'),
        ("It is &lt;b&gt; &amp; so.", "It is &lt;b&gt; &amp; so."),  # says that it is no markup
        ("It is so &bogus; &#10; &#0; &;", "It is so &bogus; &#10; &#0; &;"),
    ],
)
def test_entities_that_a_text_lacks_are_characters(line: str, read: str) -> None:
    text = [*PLAIN, *["It is Tom's car."] * 9]
    assert usual(describe_source(text, text), line) == read


CAPITALS = ["It is &amp; so.", "He left."] * 60


@pytest.mark.parametrize(
    ("training", "line", "read"),
    [
        (TOKENS, "it is &amp;quot; so .", "it is &quot; so ."),
        (TOKENS, "&amp;amp; so .", "&amp; so ."),
        (CAPITALS, "it is &amp;quot; so.", "It is &quot; so."),
        (CAPITALS, "&amp;quot; so.", "&quot; So."),
        (CAPITALS, "&amp;lt; so.", "&lt; So."),
        (CAPITALS, "&lt; so.", "&lt; So."),
    ],
)
def test_an_entity_is_read_once_in_a_line(training: list[str], line: str, read: str) -> None:
    assert parts_of(describe_source(training, training), line) == [read]


def test_an_entity_is_read_once_in_a_training_text() -> None:
    text = ["It is &amp;quot; so.", "It is &amp; so."] * 60
    profile = describe_source(text, text)
    assert profile.entities == ["&amp;"]
    assert set("&quot;") <= set(profile.characters)
    assert '"' not in profile.characters


def test_an_entity_begins_in_no_capital() -> None:
    text = [line[0].upper() + line[1:] for line in TOKENS]
    profile = describe_source(text, text)
    assert profile.with_capital("&quot; he left") == "&quot; He left"
    accented = [*CAPITALS, *["&Eacute;t&eacute; &eacute;t&eacute;."] * 60]
    profile = describe_source(accented, accented)
    assert profile.with_capital("&eacute;t&eacute;.") == "&Eacute;t&eacute;."


def test_a_line_in_capitals_may_have_entities() -> None:
    text = [line[0].upper() + line[1:] for line in TOKENS]
    profile = describe_source(text, text)
    line = "&quot; HE LEFT . &quot;"
    assert profile.notes(line) == ["all in capitals, which the training text hardly has"]
    assert parts_of(profile, line) == ["&quot; He left . &quot;"]


PIECES = ["&", ";", "&quot;", '"', "a", " ", "#", "3", "4", "lt", "amp"]


@example("&quot;  &&quot;")
@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_what_is_read_is_read_again_as_it_is(text: str) -> None:
    for profile in PROFILES:
        written = usual(profile, text)
        assert usual(profile, written) == written


def test_characters_of_entities() -> None:
    assert [character_of(text) for text in ("&eacute;", "&#233;", "&#xE9;")] == ["\u00e9"] * 3
    assert [character_of(text) for text in ("&no;", "&#10;", "&#8232;", "&#0;")] == [""] * 4
    assert without_entities("a &lt; &quot;b&quot; &c;") == 'a < "b" &c;'


@pytest.mark.parametrize("unit", ["&quot; ", "&#&#", "&amp;a", '. " '])
def test_the_time_of_reading_entities_grows_with_the_length_of_a_line(unit: str) -> None:
    profile = describe_source(TOKENS, TOKENS)
    texts = {size: unit * (size // len(unit)) for size in (6_000, 12_000)}
    assert growth(lambda size: usual(profile, texts[size]), 6_000) < LINEAR
    assert growth(lambda size: profile.parts(texts[size]), 6_000) < LINEAR
