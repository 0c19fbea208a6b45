"""Properties of a training text's source side, and input lines that are unlike it."""

import re
from collections.abc import Collection, Iterable
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from itertools import takewhile

from seq2seq.text.affixes import (
    Affixes,
    begins_with_ordinal,
    is_quotation,
    split_affixes,
    split_brackets,
)
from seq2seq.text.boundaries import footnotes
from seq2seq.text.characters import AFTER_MARKS, MARKS, is_lower
from seq2seq.text.copied_words import CopyHabits, numbers_of
from seq2seq.text.entities import Entities, entities_blanked, letters_read, without_entities
from seq2seq.text.final_marks import lacks_mark, without_mark
from seq2seq.text.known_words import KnownWords, check_record, words_of
from seq2seq.text.line_properties import (
    WORDS,
    has_letters,
    in_capitals,
    in_lower_case,
    in_title_case,
    leading_tags,
    scripts_of,
    untagged,
)
from seq2seq.text.mark_spacing import MarkSpacing
from seq2seq.text.names.words import is_placeholder
from seq2seq.text.quote_spacing import QuoteSpacing, has_open_quotation
from seq2seq.text.quotes_and_dashes import QuotesAndDashes
from seq2seq.text.sentences import SentenceHabits, are_words, count_sentences, split_sentences
from seq2seq.text.typed_marks import with_own_marks
from seq2seq.text.writing import Writing, kind_of_mark

MIN_WORDS, SURPLUS = 3, 3  # target words, and their multiple of source words, in a misplaced line
_LETTERS = re.compile(r"[^\W\d_]+")
_ADDRESS = re.compile(r"\w(?:@|://|\.\w\w)")  # also of a file
_MARKUP = re.compile(r"<[^<>]*>")
_NUMBERS = "numbers that the source and the translation do not share"
_SENTENCES = "sentences of the source and of the translation are not equally many"
_UNLIMITED = 1 << 31


@dataclass(frozen=True)
class SourceProfile:
    """Properties of the source lines of a training text; without any, no line is unusual.

    The default of a field is that of a text of which it is unknown, which changes no line: a flag
    that a text has something is True, one that all its lines have it is False.

    All but RARE of the lines have at most `sentences` sentences. `scripts` are those of the words
    (empty: unknown), as the first words of Unicode's names of letters.
    """

    sentences: int = _UNLIMITED
    abbreviations: list[str] = field(default_factory=list)  # without their full stop
    capitals: bool = True  # has lines in capitals
    scripts: list[str] = field(default_factory=list)
    knows_tags: bool = False  # runs of older versions recorded none
    tags: list[str] = field(default_factory=list)  # symbols that only begin lines
    translated: list[str] = field(default_factory=list)  # as in `CopyHabits`, if a model copies
    copied_forms: list[str] = field(default_factory=list)
    translated_forms: list[str] = field(default_factory=list)
    final_marks: list[str] = field(default_factory=list)  # as `usual_marks` returns them
    marks: str = ""  # that end sentences, besides those of Unicode; twice if typed twice, as `||`
    characters: str = ""  # in the lines; unusual ones only if they are frequent
    src_marks: str = ""  # with which lines end, the most frequent one first, likewise
    opening_marks: str = ""  # as in `QuotesAndDashes`
    inner_marks: str = ""
    closing_marks: str = ""
    apart_marks: list[str] = field(default_factory=list)  # as in `MarkSpacing`
    joined_marks: str = ""
    inner_spaces: bool = True  # has spaces between letters of scripts without spaces
    tgt_characters: str = ""  # as `characters`, of the translations
    tgt_marks: str = ""
    wordless: bool = True  # has lines without letters
    heads: bool = True  # has labels and symbols before sentences, as in `split_affixes`
    tails: bool = True  # has symbols and numbers after final marks
    begins_in_capitals: bool = False  # nearly all lines with cased letters do
    initials: str = ""  # capitals with which lines begin, the most frequent ones first
    knows_case: bool = False  # likewise `capitalised`
    capitalised: list[str] = field(default_factory=list)  # words, as `written_words` returns them
    titles: bool = True  # has lines all of whose longer words begin in capitals
    lower: bool = True  # has lines in lower case
    tagged: bool = False  # nearly all lines begin with one of the tags
    numbers: bool = False  # in digits, are those of the translations
    src_words: list[str] = field(default_factory=list)  # frequent on this side, rare on the other
    tgt_words: list[str] = field(default_factory=list)
    tgt_abbreviations: list[str] = field(default_factory=list)
    equal_sentences: bool = False  # nearly all translations have as many as their sources
    known_words: str = ""  # as `known_words.record_of` returns them; "" if they are not known
    frequent_words: list[str] = field(default_factory=list)  # of both cases, in lower case
    entities: list[str] = field(default_factory=list)  # as in `Entities`
    ordinal_words: list[str] = field(default_factory=list)  # that follow `3.`, as months do
    apart_quotes: list[str] = field(default_factory=list)  # as in `QuoteSpacing`
    joined_quotes: str = ""
    brackets: bool = True  # has lines in brackets
    line_ends: str = ""  # characters of all kinds but letters and digits with which lines end
    tgt_initials: str = ""  # as `initials`, of the translations
    pause_marks: str = ""  # of Unicode's final marks, those within lines, as `find_pauses` says

    def __post_init__(self) -> None:
        """Raise ValueError for values of other types, as a file of a stranger may have them."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            expected_type = list if entry.default is MISSING else type(entry.default)
            is_text = not isinstance(value, list) or all(isinstance(text, str) for text in value)
            if type(value) is not expected_type or not is_text:
                raise ValueError(f"the source profile: {entry.name}")
        if self.sentences < 1 or (self.tagged and not self.tags):
            raise ValueError("the source profile")
        check_record(self.known_words)

    def parts(self, line: str) -> list[str]:
        """Return a line in parts of at most as many sentences as is usual."""
        if self.sentences >= len(line):  # which has no more sentences than characters
            return [line]
        return split_sentences(line, self.sentence_habits, self.sentences)

    @cached_property
    def sentence_habits(self) -> SentenceHabits:
        """Return how the text writes the ends of sentences."""
        return SentenceHabits(
            frozenset(self.abbreviations),
            before_lower=self.sentences == 1 and self.begins_in_capitals,
            further_marks=self.marks,
            words=self._known if self.known_words else None,
            joins_stops="." in self.joined_marks,
            ordinal_words=frozenset(self.ordinal_words),
            pause_marks=self.pause_marks,
        )

    def copies(self, line: str) -> bool:
        """Return whether a line is its own translation: it has no words, unlike the text."""
        return not self.wordless and not has_letters(_MARKUP.sub("", line))

    def affixes(self, text: str) -> Affixes:
        """Return what is set aside before and after a sentence, as the text hardly has it."""
        if not self.brackets and (bracketed := split_brackets(text)).head:
            return bracketed
        if self.heads and self.tails:
            return Affixes("", text, "")
        head, body, tail = split_affixes(text, self.abbreviations, self.marks)
        if self.ordinal_words and begins_with_ordinal(text, self.ordinal_words):
            body = head + body
            head = ""
        if is_quotation(tail) and (self._has_marks_apart or has_open_quotation(body)):
            body += tail
            tail = ""
        body, tail = self._without_unknown_mark(*self._with_one_mark(body, tail))
        if self.heads:
            return Affixes("", head + body, tail)
        return Affixes(head, body + tail, "") if self.tails else Affixes(head, body, tail)

    def _without_unknown_mark(self, body: str, tail: str) -> tuple[str, str]:
        """Move a final mark to the tail if the text has none for its kind of sentence."""
        end = body.rstrip(AFTER_MARKS)
        mark = end[-1:]
        is_mark = has_letters(end) and mark in MARKS
        if not is_mark or self._writing.knows(mark) or self._writing.mark_like(mark):
            return body, tail
        return end[:-1], body[len(end) - 1 :] + tail

    def _with_one_mark(self, body: str, tail: str) -> tuple[str, str]:
        """Read final marks in a row as one, unless translations have them all."""
        first = body[-1:]
        marks = takewhile(lambda mark: mark.isspace() or self._is_final_mark(mark), tail)
        more_marks = "".join(marks).rstrip()
        if (
            not more_marks
            or not self.tgt_characters
            or all(map(self._tgt_writing.knows, more_marks))
        ):
            return body, tail
        is_question = "question" in map(kind_of_mark, more_marks)
        if is_question and kind_of_mark(first) in ("exclamation", "statement"):
            question = next(mark for mark in more_marks if kind_of_mark(mark) == "question")
            body = body[:-1] + question
        return body, tail[len(more_marks) :]

    def _is_final_mark(self, character: str) -> bool:
        return kind_of_mark(character) != "" or character in self.marks

    def label_in_target(self, label: str) -> str:
        """Return a label with the characters of translations, which have the same entities."""
        if self.tgt_characters:
            label = self._tgt_writing.with_digits(label)
            label = "".join(map(self._tgt_writing.label_character, label))
        return self.with_entities(label)

    def tail_in_target(self, tail: str) -> str:
        """Return what is set aside after a sentence, likewise."""
        if self.tgt_characters:
            tail = self._tgt_writing.with_digits(tail)
            tail = "".join(map(self._tgt_writing.affix_character, tail))
        return self.with_entities(tail)

    def ordinary(self, line: str) -> str:
        """Replace characters that the text hardly has by those of the same kind that it has.

        White space becomes a space, a compatibility character its NFKC form, or the other way
        round, unless it is the number of a footnote after a mark; a digit, a quotation mark, a dash
        and a final mark become those of the text, with the space beside them; an uncased letter
        loses marks; what is invisible is removed. Entities are read before, by
        `without_entities`, and are written again where the text has them.
        """
        if not self.characters:
            return line
        line = self._quotes_and_dashes.written(line)
        line = self._with_known_characters(line)
        habits = self.sentence_habits
        line = self._mark_spacing.written(line, habits.abbreviations, habits.words)
        line = self._quote_spacing.written(line, self._mark_spacing)
        return self.with_entities(line)

    def without_entities(self, line: str) -> str:
        """Return a line with characters in the place of entities, but for escaped markup."""
        return self._entities.read(line) if self.characters else line

    def with_own_marks(self, line: str) -> str:
        """Return a line with the final mark of its script for one typed for it, as `|` for a danda.

        That mark is one with which no line of the text ends.
        """
        return with_own_marks(line, self._writing, self.line_ends) if self.characters else line

    def with_entities(self, line: str) -> str:
        """Return a line of characters with the entities that the text has."""
        return self._entities.written(line)

    def _with_known_characters(self, line: str) -> str:
        if line.isascii():
            return self._writing.written(line)
        texts = footnotes().split(line)  # every second one is a footnote's number
        for place in range(0, len(texts), 2):
            texts[place] = self._writing.written(texts[place])
        return "".join(texts)

    def lacking(self, text: str) -> str:
        """Return the characters that the text hardly has, but for placeholders of names."""
        characters = set(self.without_entities(text))
        if self._writing.knows_all(characters):  # as those of most lines
            return ""
        unknown = [c for c in sorted(characters) if not self._writing.knows(c)]
        return "".join(c for c in unknown if not is_placeholder(c))

    def with_capital(self, text: str) -> str:
        """Return a text that begins in a capital, if nearly all lines of the training text do."""
        characters = letters_read(text)
        blanked = entities_blanked(characters)
        start = next((place for place, c in enumerate(blanked) if c.isalnum()), 0)
        word = characters[start:].partition(" ")[0]
        is_small = word.islower() and not _ADDRESS.search(word)
        return self.with_entities(self._with_capital_at(characters, start)) if is_small else text

    def _with_capital_at(self, text: str, start: int) -> str:
        """Return a text with a capital in a place, if its letter is lower case, as lines begin."""
        if not self.begins_in_capitals or not is_lower(text[start : start + 1]):
            return text
        return text[:start] + self._capital_of(text[start]) + text[start + 1 :]

    def _capital_of(self, letter: str) -> str:
        """Return the capital with which the training text begins lines; Turkish has i with a dot.

        `str.title` knows no languages.
        """
        return _capital_among(self.initials, letter) or letter.title()

    def without_capitals(self, text: str) -> str:
        """Return a text in capitals as the training text writes its words."""
        text = _LETTERS.sub(lambda word: self._written(word[0]), letters_read(text))
        blanked = entities_blanked(text)
        start = next((place for place, c in enumerate(blanked) if c.isalpha()), len(text))
        return self.with_entities(self._with_capital_at(text, start))

    def _written(self, word: str) -> str:
        """Return a word in capitals as the text writes it, Turkish I without a dot."""
        if _capitals_key(word) in self._capitalised:
            return self._capitalised[_capitals_key(word)]
        if _has_dotted_capital(self.initials, self.characters):
            word = word.replace("\u0130", "i").replace("I", "\u0131")
        return word.lower()

    @cached_property
    def _capitalised(self) -> dict[str, str]:
        """Return words that have capitals by their form in capitals."""
        return {_capitals_key(word): word for word in self.capitalised}

    def translation_in_capitals(self, text: str) -> str:
        """Return a translation in capitals, Turkish i with its dot if translations have that."""
        if self.tgt_initials and _has_dotted_capital(self.tgt_initials, self.tgt_characters):
            text = text.replace("i", "\u0130")
        return text.upper()

    def notes_on_numbers(self, text: str, translation: str) -> list[str]:
        """Return a note on numbers of a line that its translation lacks, or the other way round."""
        apart = sorted(numbers_of(text) ^ numbers_of(translation)) if self.numbers else []
        return [f"{_NUMBERS}: {', '.join(apart)}"] if apart else []

    def notes_on_sentences(self, line: str, translation: str) -> list[str]:
        """Return a note on a line whose translation has fewer or more sentences."""
        if not self.equal_sentences:
            return []
        count, translated = (
            count_sentences(without_entities(text), habits)
            for text, habits in zip((line, translation), self._counted, strict=True)
        )
        return [] if count == translated else [f"{_SENTENCES}: {count}, {translated}"]

    @cached_property
    def _counted(self) -> tuple[SentenceHabits, SentenceHabits]:
        """Return how sentences of both sides are counted, in lower case as well."""
        return (
            self.sentence_habits._replace(before_lower=True, words=None),
            SentenceHabits(
                frozenset(self.tgt_abbreviations), before_lower=True, further_marks=self.tgt_marks
            ),
        )

    def unknown_words(self, texts: Iterable[str]) -> list[str]:
        """Return the words of a line that the text never has, if they are half of its content.

        Content words are all but the most frequent ones of the text.
        """
        if not self.known_words:
            return []
        read_texts = list(map(self.without_entities, texts))
        if all(are_words(text, self._known) for text in read_texts):  # as of most lines
            return []
        words = {word.casefold(): word for text in read_texts for word in words_of(text)}
        content = words.keys() - self._frequent
        unknown = [written for word, written in words.items() if word not in self._known]
        return unknown if 2 * len(unknown) >= len(content) else []

    @cached_property
    def _frequent(self) -> frozenset[str]:
        return frozenset(self.frequent_words)

    @cached_property
    def _known(self) -> KnownWords:
        return KnownWords(self.known_words)

    @cached_property
    def _writing(self) -> Writing:
        return Writing(self.characters, self.src_marks, self.inner_spaces)

    @cached_property
    def _has_marks_apart(self) -> bool:
        return are_apart(self.src_marks, self.apart_marks)

    @cached_property
    def _entities(self) -> Entities:
        return Entities(self.entities)

    @cached_property
    def _quotes_and_dashes(self) -> QuotesAndDashes:
        return QuotesAndDashes(self.opening_marks, self.inner_marks, self.closing_marks)

    @cached_property
    def _mark_spacing(self) -> MarkSpacing:
        return MarkSpacing(self.apart_marks, self.joined_marks)

    @cached_property
    def _quote_spacing(self) -> QuoteSpacing:
        return QuoteSpacing(self.apart_quotes, self.joined_quotes)

    @cached_property
    def _tgt_writing(self) -> Writing:
        return Writing(self.tgt_characters, self.tgt_marks)

    def tag_of(self, line: str, symbols: Collection[str]) -> str | None:
        """Return the tags, of the vocabulary's symbols, that begin a line and so all its parts."""
        if self.knows_tags:
            return leading_tags(line, self.tags)
        return leading_tags(line, symbols) if line.startswith("<") else None

    def with_final_mark(self, line: str, tag: str | None = None) -> str:
        """Add the usual final mark to a line that has none, if those of the training text have."""
        text = self.without_entities(line.removeprefix(tag or ""))
        if self.final_marks and lacks_mark(text, self.marks):
            return line.rstrip() + self.final_marks[0]
        return line

    def without_final_mark(self, text: str) -> str:
        """Remove from a translation the final mark that translates the usual one."""
        return without_mark(text, self.final_marks)

    def ends_in_mark(self, text: str) -> bool:
        """Return whether `without_final_mark` changes a text."""
        return self.without_final_mark(text) != text

    @cached_property
    def copied(self) -> CopyHabits:
        """Return which words of a line a translation copies; none unless the model copies."""
        words = self.translated, self.copied_forms, self.translated_forms
        return CopyHabits(*map(frozenset, words))

    def notes(self, line: str) -> list[str]:
        """Return how a line differs from the training text, for a note to the user."""
        notes = []
        text = without_entities(untagged(line, self.tags))
        if not self.capitals and in_capitals(text):
            notes.append("all in capitals, which the training text hardly has")
        elif not self.titles and in_title_case(text):
            notes.append("words in title case, which the training text hardly has")
        elif not (self.lower or self.begins_in_capitals) and in_lower_case(text):
            notes.append("all in lower case, which the training text hardly has")
        if self.tagged and untagged(line, self.tags) == line:
            notes.append(f"no tag such as {self.tags[0]}, unlike lines of the training text")
        if self.scripts and not line.isascii():
            unknown = sorted(set(scripts_of(line)) - set(self.scripts))
            names = [name if name == "CJK" else name.title() for name in unknown]
            notes += [f"{name} letters, which the training text hardly has" for name in names]
        return [*notes, "seems to be in the target language"] if self._is_target(line) else notes

    def _is_target(self, line: str) -> bool:
        """Return whether a line has words of the target side, and hardly any of the source's."""
        src, tgt = self.words_by_side(line)
        return tgt >= MIN_WORDS and tgt > SURPLUS * src

    def words_by_side(self, line: str) -> tuple[int, int]:
        """Return how many words of a line are those of the source side alone, and of the target."""
        words = WORDS.findall(line.casefold()) if self.tgt_words else []
        src, tgt = self._words_of_sides
        return sum(word in src for word in words), sum(word in tgt for word in words)

    @cached_property
    def _words_of_sides(self) -> tuple[frozenset[str], frozenset[str]]:
        src = frozenset(self.src_words)
        tgt = frozenset(self.tgt_words)
        return src - tgt, tgt - src  # a record of several texts may have words of both


NO_PROFILE = SourceProfile()


def _capital_among(initials: str, letter: str) -> str:
    """Return the most frequent capital of a letter among those that begin lines, or ""."""
    return next((capital for capital in initials if capital.lower()[0] == letter), "")


def _has_dotted_capital(initials: str, characters: str) -> bool:
    """Return whether the capital of i has a dot, as in Turkish: mostly, if that is known."""
    return "\u0130" in characters and _capital_among(initials, "i") != "I"


def _capitals_key(word: str) -> str:
    """Return one form of a word in capitals: sharp s has two."""
    return word.upper().casefold()


def are_apart(final_marks: str, apart_marks: Iterable[str]) -> bool:
    """Return whether the usual final mark has a space before it, as in a text of tokens."""
    return final_marks[:1] in {mark[-1:] for mark in apart_marks}
