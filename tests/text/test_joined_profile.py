"""The record of several training texts."""

from dataclasses import fields, replace

from cases.toy_text import toy_pairs
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.data.length_limit import LengthLimit
from seq2seq.text.joined_profile import HABITS, joined, new_habits, without_new_habits
from seq2seq.text.known_words import record_of
from seq2seq.text.learned_profile import describe_source
from seq2seq.text.source_profile import NO_PROFILE, SourceProfile

TARGET = ["aa", "bb", "cc", "dd"]
words = st.lists(st.sampled_from(["ab", "Ab", "xx", "0", "?"]), unique=True, max_size=4)
kinds = {int: st.integers(1, 4), bool: st.booleans(), str: st.sampled_from(["", "ab", "bc.", "ç"])}


@st.composite
def profiles(draw: st.DrawFn) -> SourceProfile:
    values = {
        field.name: draw(kinds.get(type(field.default), words)) for field in fields(SourceProfile)
    }
    for name in ("abbreviations", "scripts"):
        values[name] = sorted(values[name])
    for name in ("characters", "tgt_characters"):
        values[name] = "".join(sorted(set(values[name])))
    values["known_words"] = draw(st.sampled_from(["", *map(record_of, (["ab"], ["ab", "cd"]))]))
    values["tagged"] = values["tagged"] and bool(values["tags"])
    return SourceProfile(**values)


@given(profiles(), profiles())
def test_a_record_of_two_texts_does_not_depend_on_how_often_they_are_joined(
    first: SourceProfile, second: SourceProfile
) -> None:
    record_of_both = joined([first, second])
    assert joined([first, first]) == first
    assert joined([first, NO_PROFILE]) == joined([NO_PROFILE, first]) == first
    assert joined([record_of_both, second]) == joined([first, record_of_both]) == record_of_both
    assert {*record_of_both.characters} >= (
        {*first.characters} if record_of_both.characters else set()
    )
    assert record_of_both.sentences == max(first.sentences, second.sentences)


@given(profiles(), profiles())
def test_habits_of_a_new_text_are_pending(base: SourceProfile, text: SourceProfile) -> None:
    record = joined([base, text])
    in_use = without_new_habits(record, base)
    assert new_habits(in_use, base) == []
    for name in new_habits(record, base):
        in_use = replace(in_use, **{name: getattr(record, name)})
    assert in_use == record
    assert joined([without_new_habits(record, base), text]) == record  # as a resumed run does


def test_contradictory_words_and_forms_are_of_neither_kind() -> None:
    first = replace(NO_PROFILE, sentences=1, copied_forms=["Xx", "0000"], tgt_words=TARGET)
    second = replace(NO_PROFILE, sentences=1, translated_forms=["Xx", "x"], src_words=TARGET[:1])
    record = joined([first, second])
    assert record.copied.copied_in("one Zorblatt 1991 b@c") == ["1991", "b@c"]
    assert first.copied.copied_in("one Zorblatt 1991") == ["Zorblatt", "1991"]
    assert first.notes("aa bb cc dd") == ["seems to be in the target language"]
    assert record.notes("aa bb cc dd") == first.notes("aa bb cc dd")
    assert record.notes("aa bb cc") == []


def test_two_halves_of_a_text_are_recorded_as_the_text() -> None:
    src, tgt = toy_pairs(800, seed=4)
    halves = [describe_source(src[rows], tgt[rows]) for rows in (slice(400), slice(400, None))]
    record = joined(halves)
    text = describe_source(src, tgt)
    assert {name: getattr(record, name) for name in HABITS} == {
        name: getattr(text, name) for name in HABITS
    }
    assert (record.characters, record.scripts) == (text.characters, text.scripts)


def test_a_joined_limit_is_nowhere_lower() -> None:
    first = LengthLimit(0.5, 20)
    second = LengthLimit(2.0, 5)
    joined_limit = first.joined(second)
    assert all(joined_limit(n) >= max(first(n), second(n)) for n in range(1, 60))
