"""Sentence ends in nine scripts with their own marks: Unicode and the text decide, not lists."""

import random
from typing import NamedTuple

import pytest
from cases.tiers import one_quick

from seq2seq.data.public_corpora import unpack_demo_corpora
from seq2seq.text.characters import is_lower
from seq2seq.text.learned_profile import describe_source
from seq2seq.text.learned_sentences import endings_of, find_marks
from seq2seq.text.sentences import SentenceHabits, split_sentences


class Script(NamedTuple):
    """A way to write English: letters in the place of a to z, final marks, spaces."""

    letters: str
    statement: str = "."
    question: str = "?"
    has_spaces: bool = True
    has_capitals: bool = False

    def word(self, word: str) -> str:
        return "".join(
            self.letters[(ord(letter) - ord("a")) % len(self.letters)] for letter in word
        )

    def sentence(self, draw: random.Random) -> str:
        words = [self.word(draw.choice(WORDS)) for _ in range(draw.randint(2, 7))]
        if self.has_capitals:
            words[0] = words[0][0].upper() + words[0][1:]
        mark = draw.choice((self.statement, self.question))
        return (" " if self.has_spaces else "").join(words) + mark

    def transliterated(self, text: str) -> str:
        """Write an English text in the script, with its marks, and digits as they are."""
        letters = [
            self._letter(character) if character.isascii() and character.isalpha() else character
            for character in text
            if character != " " or self.has_spaces
        ]
        marks = {ord("."): self.statement, ord("?"): self.question}
        return "".join(letters).translate(marks)

    def _letter(self, letter: str) -> str:
        form = self.word(letter.lower())
        return form.upper() if self.has_capitals and letter.isupper() else form


def letters(first: int, count: int) -> str:
    return "".join(map(chr, range(first, first + count)))


WORDS = ("the", "cat", "sat", "here", "while", "dogs", "were", "running", "under", "old", "trees")
SCRIPTS = {
    "Latin": Script(letters(0x61, 26), has_capitals=True),
    "Cyrillic": Script(letters(0x430, 26), has_capitals=True),
    "Greek": Script(letters(0x3B1, 17), ".", ";", has_capitals=True),
    "Armenian": Script(letters(0x561, 26), "\u0589", "?", has_capitals=True),
    "Georgian": Script(letters(0x10D0, 26)),
    "Hebrew": Script(letters(0x5D0, 26)),
    "Arabic": Script(letters(0x628, 18), ".", "\u061f"),
    "Urdu": Script(letters(0x628, 18), "\u06d4", "\u061f"),
    "Devanagari": Script(letters(0x915, 26), "\u0964"),
    "Khmer": Script(letters(0x1780, 26), "\u17d4", has_spaces=False),
    "full-width": Script(letters(0xFF41, 26), "\uff0e", "\uff1f", has_capitals=True),
    "Chinese": Script(letters(0x4E00, 26), "\u3002", "\uff1f", has_spaces=False),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_sentences_of_a_line_are_counted(name: str) -> None:
    script = SCRIPTS[name]
    draw = random.Random(name)
    text = [script.sentence(draw) for _ in range(400)]
    marks = find_marks(text, endings_of(text))
    assert marks == (";" if name == "Greek" else "")
    right = 0
    for _ in range(200):
        sentences = [script.sentence(draw) for _ in range(draw.randint(2, 3))]
        between = " " if script.has_spaces else draw.choice(["", " "])
        right += split_sentences(between.join(sentences), SentenceHabits((), False, marks)) == [
            *sentences
        ]
    assert right >= 198


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("data")
    unpack_demo_corpora(folder)
    return (folder / "demo/train.en").read_text(encoding="utf-8").splitlines()


@one_quick("name", SCRIPTS, quick=9)
def test_the_sentences_of_the_demo_are_counted_in_every_script(
    name: str, english: list[str]
) -> None:
    """As a model of the text cuts its lines, which have one sentence."""
    script = SCRIPTS[name]
    draw = random.Random(name)
    text = [script.transliterated(line) for line in english]
    profile = describe_source(text[:2000], text[:2000])
    assert profile.sentences == 1
    right = 0
    for _ in range(300):
        sentences = draw.sample(text, draw.randint(2, 3))
        between = " " if script.has_spaces else draw.choice(["", " "])
        right += profile.parts(between.join(sentences)) == sentences
    assert right >= 297


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_line_of_two_sentences_is_cut_where_lines_have_one(name: str) -> None:
    script = SCRIPTS[name]
    draw = random.Random(name)
    text = [script.sentence(draw) for _ in range(400)]
    profile = describe_source(text, text)
    assert profile.sentences == 1
    line = " ".join(text[:2])
    assert profile.parts(line) == text[:2]
    assert profile.begins_in_capitals == script.has_capitals
    assert profile.with_capital(text[0]) == text[0]


@pytest.mark.parametrize("mark", ["\u0964", "\u061f", "\u0589", "\u104b", "\u203d"])
def test_no_space_has_to_follow_a_mark_that_no_word_contains(mark: str) -> None:
    assert split_sentences(f"ab cd{mark}ef gh{mark}") == [f"ab cd{mark}", f"ef gh{mark}"]


@pytest.mark.parametrize("text", ["See www.Example.org today.", "Node.js runs.", "The U.S.A. won."])
def test_a_full_stop_within_a_word_ends_no_sentence(text: str) -> None:
    assert split_sentences(text) == [text]


@pytest.mark.parametrize("between", ["\U0001f600", "\U0001f600 ", "[3]", "\u200f ", "\u2014 "])
@pytest.mark.parametrize("name", [*SCRIPTS, "Thai"])
def test_a_symbol_may_follow_a_final_mark_at_once(name: str, between: str) -> None:
    """Or a dash, the number of a note, or what is invisible; it belongs to the sentence before."""
    thai = Script(letters(0xE01, 40), has_spaces=False)
    first, second = (SCRIPTS.get(name, thai).sentence(random.Random(seed)) for seed in (1, 2))
    habits = SentenceHabits(further_marks=";" if name == "Greek" else "")
    parts = split_sentences(f"{first}{between}{second}", habits)
    assert parts == [f"{first}{between}".rstrip(), second]


PAUSES = {"Burmese": (0x1000, "\u104b", "\u104a"), "Javanese": (0xA984, "\ua9c9", "\ua9c8")}


@pytest.mark.parametrize("name", PAUSES)
def test_a_comma_that_unicode_calls_a_final_mark_ends_no_sentence(name: str) -> None:
    """As the text shows: its lines have it often, and hardly ever end in it."""
    first, statement, comma = PAUSES[name]
    script = Script(letters(first, 26), statement, statement, has_spaces=False)
    draw = random.Random(name)
    text = [script.sentence(draw) for _ in range(300)]
    words = [script.word("while") + comma + line if n % 3 else line for n, line in enumerate(text)]
    profile = describe_source(words, words)
    assert profile.pause_marks == comma
    assert profile.sentences == 1
    for line in (words[0] + words[1], words[1] + words[2]):
        assert "".join(profile.parts(line)) == line
        assert len(profile.parts(line)) == 2
    both = [f"{line[:-1]}{comma if n % 2 else statement}" for n, line in enumerate(text)]
    assert describe_source(both, both).pause_marks == ""
    assert describe_source([f"{line} 5" for line in words], words).pause_marks == ""


def test_sentences_are_cut_before_a_capital_of_any_cased_script() -> None:
    for first, second in (
        ("abc de.", "Fgh ij."),
        ("\u0430\u0431 \u0432\u0433.", "\u0414\u0435 \u0436."),
    ):
        assert split_sentences(first + second) == [first, second]


def test_georgian_letters_are_not_of_lower_case() -> None:
    assert [is_lower(letter) for letter in "a\u00df\u0131\u0436\u03b1\u0561"] == [True] * 6
    assert [is_lower(letter) for letter in "A\u10d0\u0915\u05d0\u0416"] == [False] * 5


def test_a_turkish_sentence_begins_in_the_capital_of_its_language() -> None:
    lines = (
        "\u0130ki kedi var.",
        "Ne g\u00fczel bir g\u00fcn.",
        "I\u015f\u0131k yand\u0131.",
        "\u0130yi ak\u015famlar.",
    )
    turkish = [*lines] * 40
    profile = describe_source(turkish, turkish)
    assert profile.with_capital("iyi ak\u015famlar.") == "\u0130yi ak\u015famlar."
    assert profile.with_capital("\u0131\u015f\u0131k yand\u0131.") == "I\u015f\u0131k yand\u0131."
    assert profile.with_capital("ne g\u00fczel.") == "Ne g\u00fczel."
    english = ["It is late.", "No one came.", "In the end, it rained."] * 40
    assert describe_source(english, english).with_capital("it is.") == "It is."


PAIRS = [(f"{a} {b}.", f"{b} {a}.") for a in ("One", "Two") for b in map(str, range(60))]


def test_a_translation_of_fewer_or_more_sentences_is_noted() -> None:
    """Lower case and a missing space hide no end, and abbreviations of both sides are none."""
    src, tgt = zip(*PAIRS, strict=True)
    profile = describe_source([*src, *["See ca. two."] * 4], [*tgt, *["Voir env. deux."] * 4])
    assert profile.equal_sentences
    note = "sentences of the source and of the translation are not equally many: "
    assert profile.notes_on_sentences("One is. Two is.", "Un est.") == [f"{note}2, 1"]
    assert profile.notes_on_sentences("One is. two is.", "Un est deux.") == [f"{note}2, 1"]
    assert profile.notes_on_sentences("One is.", "Un est. Un est!") == [f"{note}1, 2"]
    for line, translation in (
        ("One is. Two is.", "Un est. Deux est."),
        ("See ca. two.", "Voir env. deux."),
        ("One", "Un"),
    ):
        assert profile.notes_on_sentences(line, translation) == []


def test_nothing_is_noted_where_translations_have_other_sentences() -> None:
    src, tgt = zip(*PAIRS, strict=True)
    profile = describe_source(src, [f"Nous voyons! Ah. {line}" for line in tgt])
    assert not profile.equal_sentences
    assert profile.notes_on_sentences("One is. Two is.", "Un est.") == []
