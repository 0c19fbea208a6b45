"""Space before punctuation marks is read as the training text writes it."""

import pytest
from cases.growth import LINEAR, growth
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.learned_profile import describe_source
from seq2seq.text.mark_spacing import MarkSpacing
from seq2seq.text.sentences import NUMBER
from seq2seq.text.source_profile import SourceProfile

ENGLISH = "How are you? I am fine, thanks! Well: yes; no."
FRENCH = "Comment \u00e7a va ? Bien, merci ! Bon : oui ; non."
TOKENS = "how are you ? i am fine , thanks ! well : yes ; no ."


def spacing_of(text: str) -> MarkSpacing:
    return MarkSpacing.of([text] * 3, 2, ())


@pytest.mark.parametrize("text", [ENGLISH, FRENCH, TOKENS])
def test_a_text_is_written_as_it_is(text: str) -> None:
    assert spacing_of(text).written(text, ()) == text


@pytest.mark.parametrize(
    ("training", "line", "written"),
    [
        (ENGLISH, "Tom left ? Yes , he did !", "Tom left? Yes, he did!"),
        (ENGLISH, "What ?! (Really ?) 'Who ?'", "What?! (Really ?) 'Who?'"),
        (ENGLISH, "Wait ... It is 3 .5 :) .NET", "Wait ... It is 3 .5 :) .NET"),
        (ENGLISH, "hi :/ ok :'( 2 : 1", "hi :/ ok :'( 2 : 1"),
        (FRENCH, 'Tom (?) \u00ab?\u00bb "?"', 'Tom (?) \u00ab?\u00bb "?"'),
        ("ja ; nein &quot; ; doch", "ja; nein &quot; ja", "ja ; nein &quot; ja"),
        (FRENCH, "Tom est l\u00e0? Oui, merci!", "Tom est l\u00e0 ? Oui, merci !"),
        (FRENCH, "Quoi?! (Vraiment?) http://a.b/?c", "Quoi ?! (Vraiment ?) http://a.b/?c"),
        (FRENCH, "Il est 10:30 .", "Il est 10:30."),
        (TOKENS, "Tom left, didn't he? No.", "Tom left , didn't he ? No ."),
        (TOKENS, "my ph.d. student left. bye", "my ph.d. student left . bye"),
        (TOKENS, "see ted.com. and a ph.d.", "see ted.com . and a ph.d ."),
        (TOKENS, "Mr. Smith of the U.S. has 3.5.", "Mr. Smith of the U.S. has 3.5 ."),
        ("no marks at all", "Tom left ?", "Tom left ?"),
        ("both? and ?", "Tom left ? Yes?", "Tom left ? Yes?"),
    ],
)
def test_marks_are_joined_or_apart(training: str, line: str, written: str) -> None:
    assert spacing_of(training).written(line, ()) == written


def test_a_text_has_the_space_that_it_has_most_often() -> None:
    lines = ["\u00c7a va\u202f?"] * 5 + ["\u00c7a va ?"] * 4
    spacing = MarkSpacing.of(lines, 2, ())
    assert spacing == MarkSpacing(["\u202f?"], "")
    assert spacing.written("Oui?", ()) == "Oui\u202f?"
    assert spacing.written("Oui ?", ()) == "Oui ?"


def test_the_full_stop_of_an_ordinal_stays() -> None:
    spacing = spacing_of(TOKENS)
    assert spacing.written("am 15. August.", {NUMBER}) == "am 15. August ."
    assert spacing.written("prof. Rao.", {"prof"}) == "prof. Rao ."


@given(
    st.text(st.sampled_from([*'ab.?!,;: )"\u202f\u3002'])),
    st.sampled_from([ENGLISH, FRENCH, TOKENS]),
)
def test_only_spaces_change(line: str, training: str) -> None:
    spacing = spacing_of(training)
    written = spacing.written(line, ())
    assert "".join(written.split()) == "".join(line.split())
    assert spacing.written(written, ()) == written


def test_full_width_marks_have_the_space_of_usual_ones() -> None:
    text = [f"Est-ce que {word} va ?" for word in ("Tom", "Marie", "Luc")] * 40
    profile = describe_source(text, text)
    assert profile.ordinary("Tom va\uff1f") == "Tom va ?"


def test_a_record_without_marks_changes_none() -> None:
    assert SourceProfile(characters="abc ?").ordinary("a ? b?") == "a ? b?"


WORDS = frozenset(("how", "yes", "net"))


@pytest.mark.parametrize(
    ("training", "line", "written"),
    [
        (ENGLISH, "Hello ,how are you", "Hello, how are you"),
        (ENGLISH, "Hello,how are you", "Hello, how are you"),
        (ENGLISH, "Tom ,Ann,and I ,don't know", "Tom, Ann, and I, don't know"),
        (ENGLISH, "Is it so ?Yes", "Is it so? Yes"),
        (ENGLISH, "I am here .How are you", "I am here. How are you"),
        (ENGLISH, "I am here !Yes", "I am here! Yes"),
        (ENGLISH, ".net, the .net file, a .NET file", ".net, the .net file, a .NET file"),
        (ENGLISH, "the !Kung people, a .Xyz file", "the !Kung people, a .Xyz file"),
        (ENGLISH, "hi :D :smile: ;p a/b?c=d 1,000 5,a", "hi :D :smile: ;p a/b?c=d 1,000 5,a"),
        (FRENCH, "Oui ?Non ,merci", "Oui ? Non, merci"),
        (TOKENS, "hello ,how are you", "hello , how are you"),
        (TOKENS, "hello,how are you", "hello , how are you"),
        (
            "\u0935\u0939\u0940\u0964 \u092f\u0939, \u0939\u093e\u0901\u0964",
            "\u0935\u0939\u0940 \u0964\u0939\u093e\u0901 ,\u092f\u0939",
            "\u0935\u0939\u0940\u0964 \u0939\u093e\u0901, \u092f\u0939",
        ),
        (
            "\u0647\u0648\u060c \u0646\u0639\u0645.",
            "\u0647\u0648 \u060c\u0646\u0639\u0645",
            "\u0647\u0648\u060c \u0646\u0639\u0645",
        ),
        (ENGLISH, "a/b,c d_e,f x=1,y a@b,c", "a/b,c d_e,f x=1,y a@b,c"),
        (ENGLISH, "\u597d,\u6211 \u597d ,\u6211", "\u597d,\u6211 \u597d ,\u6211"),
        ("no commas at all", "Hello ,how", "Hello ,how"),
    ],
)
def test_a_space_on_the_wrong_side_is_moved(training: str, line: str, written: str) -> None:
    assert spacing_of(training).written(line, (), WORDS) == written
    assert spacing_of(training).written(written, (), WORDS) == written


def test_a_comma_before_a_quotation_mark_has_no_space() -> None:
    line = 'he said , " it is so . "'
    assert spacing_of(ENGLISH).written(line, ()) == 'he said, " it is so. "'


@pytest.mark.parametrize("unit", ["a ,b", "a,b", " ?a", "a ?b "])
def test_the_time_grows_with_the_length_of_a_line(unit: str) -> None:
    spacing = spacing_of(ENGLISH)
    texts = {size: unit * (size // len(unit)) for size in (6_000, 12_000)}
    assert growth(lambda size: spacing.written(texts[size], (), WORDS), 6_000) < LINEAR
