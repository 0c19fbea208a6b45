"""Marks typed for the final mark of a script, which keyboards lack."""

import re
from dataclasses import replace

import pytest
from cases.growth import LINEAR, growth

from seq2seq.text.joined_profile import joined
from seq2seq.text.learned_profile import describe_source
from seq2seq.text.source_profile import SourceProfile
from seq2seq.text.typed_marks import with_own_marks
from seq2seq.text.writing import Writing

# A word of each script, and the final mark of its statements.
WORDS = {
    "Armenian": ("\u057f\u0578\u0582\u0576", "\u0589"),
    "Amharic": ("\u1264\u1275", "\u1362"),
    "Hindi": ("\u0918\u0930", "\u0964"),
    "Burmese": ("\u1021\u102d\u1019\u103a", "\u104b"),
    "Urdu": ("\u06af\u06be\u0631", "\u06d4"),
    "Tibetan": ("\u0f41\u0f44\u0f0b\u0f54", "\u0f0d"),
    "English": ("house", "."),
}


ENGLISH = ["a house is here."] * 160


def profile_of(name: str, also: str = "") -> SourceProfile:
    word, mark = WORDS[name]
    lines = [f"{word} {word} {word}{also}{mark}", f"{word} {word}{mark}"] * 80
    return describe_source(lines, ENGLISH)


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("Armenian", ":"),
        ("Amharic", "::"),
        ("Hindi", "|"),
        ("Hindi", "||"),
        ("Burmese", "||"),
        ("Urdu", "|"),
        ("Armenian", "|"),
        ("Tibetan", "|"),
        ("Tibetan", "\u0f0e"),
    ],
)
def test_the_mark_that_ends_a_line_is_read_as_that_of_the_script(name: str, typed: str) -> None:
    word, own = WORDS[name]
    profile = profile_of(name)
    for text in (
        *("{0}{1}", "{0} {0}{1} {0} {0}{1}", "{0}{1} ", '"{0}{1}"'),
        *("{0}{1} \U0001f600", "{0}{1}\U0001f600", "{0} 19{1} {0} 20{1}"),
    ):
        line = text.format(word, typed)
        assert profile.with_own_marks(line) == text.format(word, own)
    spaced = profile.with_own_marks(f"{word} {typed} {word} {typed}")
    assert spaced == f"{word} {own} {word} {own}"


URDU = ("{0}-", "{0}- {0} {0}-", '"{0}-"', "{0}-5 {0}-{0} {0}-")


@pytest.mark.parametrize("text", URDU)
def test_a_hyphen_is_read_as_the_mark_that_looks_like_it(text: str) -> None:
    """Also where the text has it within its lines; other hyphens stay."""
    word, own = WORDS["Urdu"]
    for also in ("", f" {word}-{word} - {word}"):
        profile = profile_of("Urdu", also)
        read = re.sub(r'-(?=$|[ "])', own, text).format(word)
        assert profile.with_own_marks(text.format(word)) == read
    assert profile_of("Hindi").with_own_marks(text.format(word)) == text.format(word)


def test_a_mark_of_numbers_is_read_as_the_one_that_looks_like_it() -> None:
    word, own = WORDS["Armenian"]
    profile = profile_of("Armenian", " 10:30")
    assert profile.with_own_marks(f"{word}: 10:30 {word}:") == f"{word}{own} 10:30 {word}{own}"
    ending = [f"{word} 10:30{own}", f"{word}:"] * 80
    assert describe_source(ending, ENGLISH).with_own_marks(f"{word}:") == f"{word}:"
    assert replace(profile, line_ends="").with_own_marks(f"{word}:") == f"{word}:"


TYPED = [("Armenian", ":"), ("Amharic", "::"), ("Hindi", "|"), ("Hindi", "||"), ("Urdu", "-")]


@pytest.mark.parametrize(("name", "typed"), TYPED)
@pytest.mark.parametrize("end", ["{1}", "!", "?", ""])
def test_a_mark_is_read_also_where_the_line_ends_in_another(
    name: str, typed: str, end: str
) -> None:
    word, own = WORDS[name]
    text = f"{word}{{0}} {word} {word}{end.format('', own)}"
    assert profile_of(name).with_own_marks(text.format(typed)) == text.format(own)


@pytest.mark.parametrize(("name", "typed"), [*TYPED, ("Urdu", "|")])
def test_a_mark_is_read_also_where_no_space_follows(name: str, typed: str) -> None:
    """But a hyphen, which joins words."""
    word, own = WORDS[name]
    read = typed if typed == "-" else own
    for end in (own, "?"):
        line = f"{word}{{0}}{word} {word}{end}"
        assert profile_of(name).with_own_marks(line.format(typed)) == line.format(read)
    line = f"{word}{{}}{word} {word}{{}}"
    assert profile_of(name).with_own_marks(line.format(typed, typed)) == line.format(read, own)


@pytest.mark.parametrize(
    "inner", [": {0}", " | {0}", " - {0}", " + {0}", ", {0}", "-{0}", " *{0}", " |{0}", ":{0}"]
)
def test_a_mark_within_a_sentence_stays(inner: str) -> None:
    for name in ("Hindi", "Urdu"):
        word, own = WORDS[name]
        text = word + inner.format(word) + own
        assert profile_of(name).with_own_marks(text) == text


# Marks that Hindi and Amharic texts have in the place of the mark of their script.
OWN = [("Hindi", "|"), ("Hindi", "||"), ("Amharic", "::"), ("Armenian", ":"), ("Urdu", "-")]


@pytest.mark.parametrize(("name", "mark"), OWN)
def test_a_training_text_may_have_a_typed_mark(name: str, mark: str) -> None:
    word = WORDS[name][0].title()
    own = WORDS[name][1]
    lines = [f"{word} {word} {word}{mark}", f"{word} {word}{mark}"] * 80
    profile = describe_source(lines, ENGLISH)
    assert profile.marks == profile.src_marks == mark
    assert profile.final_marks == [mark, "."]
    assert profile.parts(f"{word} {word}{mark} {word}{mark}") == [
        f"{word} {word}{mark}",
        f"{word}{mark}",
    ]
    assert profile.affixes(word + mark) == ("", word + mark, "")
    assert profile.with_final_mark(word) == word + mark
    assert profile.with_final_mark(word + mark) == word + mark
    for written in (own, "."):
        assert profile.ordinary(word + written) == word + mark
    backwards = describe_source(ENGLISH, lines)
    assert backwards.without_final_mark(word + mark) == word
    assert backwards.final_marks == [".", mark]
    assert joined([profile, backwards]).marks == mark


@pytest.mark.parametrize("end", [" | x |", " + x", " = x", " C++", " x |"])
def test_a_symbol_of_many_uses_is_no_final_mark(end: str) -> None:
    lines = [f"a house | b{end}", f"a = b{end}", "a + b"] * 60
    assert describe_source(lines, lines).marks == ""


def test_lines_are_cut_at_a_typed_mark() -> None:
    word, own = WORDS["Hindi"]
    profile = profile_of("Hindi")
    line = profile.with_own_marks(f"{word} | {word} {word} |")
    assert profile.parts(line) == [f"{word} {own}", f"{word} {word} {own}"]


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize(
    "end", [" C++", " :)", "(", " -", "%", ",", " 10:30", " |x|", "\u2026", " <3", " ^_^", "'", ""]
)
def test_other_ends_of_lines_stay(name: str, end: str) -> None:
    line = WORDS[name][0] + end
    assert profile_of(name).with_own_marks(line) == line


def test_a_mark_that_the_text_has_stays() -> None:
    word, _ = WORDS["Hindi"]
    assert profile_of("Hindi", " | ").with_own_marks(f"{word} |") == f"{word} |"
    assert profile_of("English").with_own_marks("house :") == "house :"
    assert SourceProfile().with_own_marks(f"{word} |") == f"{word} |"


def test_a_mark_of_the_text_alone_ends_its_statements() -> None:
    """Tibetan has one that is none to Unicode; what is typed twice is read once."""
    word, own = WORDS["Tibetan"]
    profile = profile_of("Tibetan")
    assert profile.marks == own
    assert profile.ordinary(f"{word}.") == word + own
    for double in (own * 2, f"{own} {own}", f"{own}  {own}"):
        assert profile.affixes(word + double) == ("", word + own, "")
        parts = profile.parts(f"{word}{double}{word} {word}{double}")
        assert parts == [word + double, f"{word} {word}{double}"]


@pytest.mark.parametrize("unit", ["\u0918| ", "|", "\u0918 | ", '"', "\u0918", "\u060c", "\u00b1"])
def test_the_time_grows_with_the_length_of_a_line(unit: str) -> None:
    writing = Writing("\u0918\u0964 ", "\u0964")
    texts = {size: unit * (size // len(unit)) + "\u0918|" for size in (40_000, 80_000)}
    assert growth(lambda size: with_own_marks(texts[size], writing), 40_000) < LINEAR
