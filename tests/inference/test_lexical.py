"""Lexical constraints against brute force on a tiny vocabulary, their automaton, and text."""

import itertools
import json
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cases.batch_invariance import check_batch_invariance
from cases.oracle import CPU, MAY_FOLLOW, SOURCES, Oracle, all_hypotheses, ask, check_ranking
from cases.prefix_automata import forced
from cases.random_models import MAKERS, random_sources
from cases.searches import requests_of, row_search, search
from cases.tiers import one_quick
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main
from seq2seq.data.vocabulary.vocabulary import EOS_ID, UNK_ID, Ids, Vocabularies
from seq2seq.inference.requirements import Requirements
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.search.lexical import MAX_TOKENS, NO_LEXICAL, Lexical, lexical_of, merge
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import UserError
from seq2seq.text.glossary import Glossary
from seq2seq.text.names.names import Masked

LINES, _ = toy_pairs(24, seed=8)


def phrases_of(*phrases: Ids, letters: bool = False, continuing: Sequence[int] = ()) -> Lexical:
    return lexical_of([(phrase, letters) for phrase in phrases], frozenset(continuing))


def occurrences(ids: Ids, phrase: Ids) -> int:
    """Count occurrences that do not overlap, from left to right."""
    count = place = 0
    while place + len(phrase) <= len(ids):
        if ids[place : place + len(phrase)] == phrase:
            count, place = count + 1, place + len(phrase)
        else:
            place += 1
    return count


def fulfils(ids: Ids, phrases: Sequence[Ids]) -> bool:
    return all(occurrences(ids, phrase) >= list(phrases).count(phrase) for phrase in phrases)


@pytest.mark.parametrize(
    "phrases",
    [
        [[4]],
        [[4, 5]],
        [[4, 4]],
        [[4, 4, 5]],
        [[4, 5], [5, 6]],
        [[5], [5]],
        [[4, 5], [4, 5]],
        [[6, 5, 6], [4]],
        [[UNK_ID]],
    ],
)
def test_the_automaton_counts_occurrences(phrases: list[Ids]) -> None:
    lexical = phrases_of(*phrases)
    for length in range(6):
        for ids in itertools.product(MAY_FOLLOW, repeat=length):
            progress = lexical.start()
            for token in ids:
                earlier_progress = progress
                progress = lexical.after(progress, token)
                if lexical.met(progress) > lexical.met(earlier_progress):
                    assert token in lexical.advancing(earlier_progress)
            assert (lexical.met(progress) == lexical.total) == fulfils([*ids], phrases)
            assert bool(lexical.missing(progress)) != fulfils([*ids], phrases)
    assert lexical.total == sum(map(len, phrases))


def test_a_phrase_that_repeats_itself_is_found_after_any_part_of_it() -> None:
    for phrase in itertools.product((4, 5), repeat=8):
        lexical = phrases_of([*phrase])
        for length in range(len(phrase)):
            progress = lexical.start()
            for token in (*phrase[:length], *phrase):
                progress = lexical.after(progress, token)
            assert lexical.met(progress) == lexical.total, (phrase, length)


@one_quick(
    ("phrases", "length_penalty"),
    zip(
        [[[4]], [[4, 5]], [[4, 4]], [[6], [5]], [[5], [5]], [[6, 5, 6]], [[UNK_ID, 4]]],
        itertools.cycle([0.0, 1.0]),
        strict=False,
    ),
)
def test_an_exhaustive_beam_finds_every_hypothesis_that_fulfils_the_constraints(
    phrases: list[Ids], length_penalty: float
) -> None:
    model: Any = Oracle(3)
    possible = [ids for ids in all_hypotheses(3) if fulfils(ids, phrases)]
    options = SearchOptions(120, length_penalty)
    lexical = [phrases_of(*phrases)] * len(SOURCES)
    lists = search(model, SOURCES, [3] * 5, options, CPU, lexical=lexical)
    for source, hypotheses in zip(SOURCES, lists, strict=True):
        check_ranking(model, source, hypotheses, possible, length_penalty, 0.0)


@pytest.mark.thorough
@one_quick("phrases", [[[4, 5]], [[4], [4, 6]], [[4, 6], [4]], [[5], [5, 6]]])
def test_a_word_that_completes_a_phrase_does_not_continue(phrases: list[Ids]) -> None:
    """Token 6 continues words: it may not follow the occurrence that meets a phrase."""
    model: Any = Oracle(3)
    possible = [
        ids for ids in all_hypotheses(3) if all(ends_word(ids, phrase, 6) for phrase in phrases)
    ]
    assert possible
    lexical = [phrases_of(*phrases, letters=True, continuing=[6])] * len(SOURCES)
    lists = search(model, SOURCES, [3] * 5, SearchOptions(120), CPU, lexical=lexical)
    for source, hypotheses in zip(SOURCES, lists, strict=True):
        check_ranking(model, source, hypotheses, possible, 1.0, 0.0)


def ends_word(ids: Ids, phrase: Ids, continuing: int) -> bool:
    """Return whether a phrase occurs, and its first occurrence ends where a word ends."""
    size = len(phrase)
    places = (n for n in range(len(ids) - size + 1) if ids[n : n + size] == phrase)
    place = next(places, None)
    return place is not None and ids[place + size : place + size + 1] != [continuing]


@one_quick("size", [1, 2, 3, 5, 12])
def test_any_beam_size_fulfils_any_phrases(size: int) -> None:
    """Even phrases that fill the length limit or exceed it."""
    generator = random.Random(size)
    for maker in ("luong", "none"):
        model = MAKERS[maker]()
        sources = random_sources(24, seed=3)
        phrases_of_sources = [
            [
                [generator.randrange(4, 43) for _ in range(generator.randint(1, 4))]
                for _ in range(n % 4)
            ]
            for n in range(24)
        ]
        limits = [1 + n % 9 for n in range(24)]
        lexical = [
            phrases_of(*phrases) if phrases else NO_LEXICAL for phrases in phrases_of_sources
        ]
        options = SearchOptions(size, no_repeat_ngram=1, forbidden_ids=(0, 2, 5, 6, 7))
        lists = search(model, sources, limits, options, CPU, lexical=lexical)
        plain = search(model, sources, limits, options, CPU)
        for phrases, limit, hypotheses, unconstrained in zip(
            phrases_of_sources, limits, lists, plain, strict=True
        ):
            assert hypotheses
            for hypothesis in hypotheses:
                assert fulfils(hypothesis.ids, phrases)
                room = sum(map(len, phrases))
                assert hypothesis.ids[-1] == EOS_ID
                assert 1 < len(hypothesis.ids) <= max(limit, room) + 1
            if not phrases:
                assert [hypothesis[:2] for hypothesis in hypotheses] == [
                    hypothesis[:2] for hypothesis in unconstrained
                ]


def test_scores_and_attention_equal_those_of_the_hypothesis() -> None:
    model: Any = Oracle(5)
    lexical = [phrases_of([6, 4], [5])] * 5
    lists = search(model, SOURCES, [8] * 5, SearchOptions(4, 0.7), CPU, lexical=lexical)
    for source, hypotheses in zip(SOURCES, lists, strict=True):
        for hypothesis in hypotheses:
            answer = ask(model, source, hypothesis.ids)
            assert hypothesis.score == pytest.approx(
                answer.log_prob / len(hypothesis.ids) ** 0.7, rel=1e-4
            )
            assert hypothesis.attention_weights is not None
            assert answer.attention_weights is not None
            assert hypothesis.attention_weights.shape == answer.attention_weights.shape


def test_a_prefix_comes_first() -> None:
    model: Any = Oracle(2)
    lexical = [phrases_of([6, 4], [5])] * 5
    prefixes = [forced([4, 4, 6])] * 5
    lists = search(model, SOURCES, [2] * 5, SearchOptions(3), CPU, prefixes, lexical=lexical)
    for hypotheses in lists:
        for hypothesis in hypotheses:
            assert hypothesis.ids[:3] == [4, 4, 6]
            assert fulfils(hypothesis.ids, [[6, 4], [5]])


@pytest.mark.thorough
@pytest.mark.parametrize(("size", "batch"), [(1, 7), (4, 1)])
def test_constrained_search_is_batch_invariant(size: int, batch: int) -> None:
    model = MAKERS["bahdanau"]()
    sources = random_sources(35, seed=5)
    lexical = [phrases_of([4 + n % 30, 5 + n % 7], [9]) if n % 3 else NO_LEXICAL for n in range(35)]
    requests = requests_of(sources, [8] * 35, lexical=lexical)
    check_batch_invariance(row_search(model, requests, SearchOptions(size)), 35, batch)


# -------------------------------------------------------------------------------------------- text


def words_in(text: str, phrase: str) -> int:
    return f" {text.rstrip('.!')} ".count(f" {phrase} ")


@pytest.mark.parametrize("beam_size", [1, 3])
def test_translations_contain_the_phrases_as_words(tiny_run: Path, beam_size: int) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    constraints = [["mo ka"] if n % 2 else [] for n in range(len(LINES))]
    translations = translator.translate(LINES, beam_size, constraints=constraints)
    plain = translator.translate(LINES, beam_size)
    for phrases, translation, unconstrained in zip(constraints, translations, plain, strict=True):
        if phrases:
            (position,) = [
                i for i in range(len(translation.text)) if translation.text[i:].startswith("mo ka")
            ][:1]
            next_character = translation.text[position + 5 : position + 6]
            assert not next_character.isalnum()
            assert position == 0 or translation.text[position - 1] == " "
        else:
            assert translation == unconstrained


def test_long_lines_and_n_best_lists_contain_the_phrases(tiny_run: Path) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    line = " ".join(LINES[:9])
    (translation,) = translator.translate([line], 4, 3, constraints=[["mo ka"]])
    assert translation.parts > 1
    assert all("mo ka" in entry.text for entry in translation.n_best)
    blank, _ = translator.translate(["", "ba"], constraints=[["mo"], []])
    assert blank.text == ""
    assert "blank lines stay blank, without their constraints" in blank.notes


def test_a_glossary_applies_where_the_source_has_the_phrase(tiny_run: Path) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    first = LINES[0].split()[0]
    settings = SearchSettings(glossary=Glossary([(first, "zuzu"), ("never seen", "kaka")]))
    for line, translation in zip(
        LINES, translator.translate(LINES, settings=settings), strict=True
    ):
        count = line.rstrip(".").split().count(first)
        assert translation.text.count("zuzu") >= count
    assert translator.translate(LINES[1:2], settings=settings)[0].text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a small dog and a dog.", ["Hündchen", "Hund"]),
        ("dogs, Dog, dog-like", ["Hund"]),
        ("small  dog", ["Hündchen"]),
        ("a dog dog", ["Hund", "Hund"]),
        ("", []),
        ("a $x$ y", ["Preis"]),
        ("我有狗。", ["Hund"]),
    ],
)
def test_a_glossary_finds_words(text: str, expected: list[str]) -> None:
    glossary = Glossary(
        [("dog", "Hund"), ("small dog", "Hündchen"), ("$x$", "Preis"), ("狗", "Hund")]
    )
    assert glossary.targets(text) == expected
    assert Glossary([]).targets(text) == []


def test_a_glossary_finds_what_a_regular_expression_finds() -> None:
    """Leftmost, then longest, as complete words; random text of few characters overlaps often."""
    draw = random.Random(4)
    alphabet = "ab_ .狗९"

    def text(size: int) -> str:
        return " ".join("".join(draw.choices(alphabet, k=size)).split())

    for _ in range(200):
        phrases = sorted({text(draw.randint(1, 5)) for _ in range(9)} - {""}, key=len)[::-1]
        patterns = [
            rf"(?<!\w){re.escape(term)}" if term[0] in "ab९" else re.escape(term)
            for term in phrases
        ]
        patterns = [
            rf"{pattern}(?!\w)" if phrase[-1] in "ab९" else pattern
            for pattern, phrase in zip(patterns, phrases, strict=True)
        ]
        line = text(60)
        expected = [match[0].upper() for match in re.finditer("|".join(patterns), line)]
        assert Glossary([(term, term.upper()) for term in phrases]).targets(line) == expected


def test_a_glossary_finds_no_start_of_a_word_that_continues_in_a_mark() -> None:
    """A vowel sign belongs to its word, although no regular expression counts it as a letter."""
    glossary = Glossary([("\u0930\u093e\u092e", "Ram")])  # "राम"
    assert glossary.targets("\u0930\u093e\u092e \u0906\u0932\u093e.") == ["Ram"]
    assert glossary.targets("\u0930\u093e\u092e\u093e\u0928\u0947") == []  # "रामाने"


def test_the_time_of_a_glossary_depends_on_the_text_and_not_on_the_number_of_terms() -> None:
    def seconds(terms: int) -> float:
        glossary = Glossary([(f"a{number:05}", "x") for number in range(terms)])
        start = time.thread_time()
        assert len(glossary.targets("a00000 a0000 b " * 500)) == 500
        return time.thread_time() - start

    assert seconds(20_000) < 50 * min(
        seconds(2) for _ in range(5)
    )  # 10,000 with a search for each term


def test_the_glossary_terms_of_a_line_are_required_as_far_as_there_is_room(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The constraints of the line come first, and no line ends the command."""
    text = tmp_path / "text"
    phrases = tmp_path / "phrases"
    terms = tmp_path / "terms"
    text.write_text("ba\nke do\n", encoding="utf-8")
    vocabulary = Translator.load(tiny_run, device="cpu").vocabularies.tgt
    size = len(vocabulary.encode(["zu"])[0])
    long = " ".join(["zu"] * (MAX_TOKENS // (2 * size)))
    phrases.write_text(f"\nmo\t{long}\n", encoding="utf-8")
    terms.write_text(f"ke\tlili\ndo\t{long}\n", encoding="utf-8")
    call = ["translate", "-m", str(tiny_run), "-i", str(text), "--device", "cpu", "-b", "2"]
    options = ["--constraints", str(phrases), "--glossary", str(terms)]
    assert main([*call, *options]) == 0
    out, err = capsys.readouterr()
    assert (
        "glossary terms of more than 200 tokens in a line; only the first ones were required: "
        "1 line (2)\n"
    ) in err
    words = out.splitlines()[1].split()
    assert {"mo", "lili"} <= set(words)
    assert words.count("zu") >= MAX_TOKENS // (2 * size)
    terms.write_text("ke\tlili\n", encoding="utf-8")
    assert main([*call, *options]) == 0
    assert "only the first ones" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dog\tHund\nno tab\n", "terms.tsv:2: must be a source phrase, a tab and a target phrase"),
        ("dog\t \n", "terms.tsv:1: must be a source phrase"),
        ("\ndog\tHund\n\ndog\tKatze\n", "terms.tsv:4: 'dog' has two translations, 'Hund' and"),
    ],
)
def test_a_malformed_glossary_is_refused(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(content, encoding="utf-8")
    assert main(["translate", "-m", str(tiny_run), "--glossary", str(path), "ba"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_the_command_accepts_constraints_and_a_glossary(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text"
    phrases = tmp_path / "phrases"
    terms = tmp_path / "terms"
    text.write_text("ba do\n\nke\n", encoding="utf-8")
    phrases.write_text("mo\tka zu\nmo\n\n", encoding="utf-8")
    terms.write_text("ke\tlili\n", encoding="utf-8")
    call = ["translate", "-m", str(tiny_run), "-i", str(text), "--device", "cpu", "--json"]
    options = ["--constraints", str(phrases), "--glossary", str(terms)]
    assert main([*call, *options]) == 0
    out, err = capsys.readouterr()
    texts = [json.loads(line)["text"] for line in out.splitlines()]
    assert "mo" in texts[0]
    assert "ka zu" in texts[0]
    assert texts[1] == ""
    assert "lili" in texts[2]
    assert "blank lines stay blank, without their constraints: 1 line (2)" in err
    phrases.write_text("mo\n", encoding="utf-8")
    assert main([*call, *options]) == 2
    assert "line n must have the constraints of input line n" in capsys.readouterr().err
    assert main([*call[:3], "--stream", *options]) == 2
    assert "--constraints cannot be used with --stream" in capsys.readouterr().err


def test_wrong_constraints_are_refused(tiny_run: Path) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    with pytest.raises(UserError, match=r"1 constraints for 2 lines"):
        translator.translate(["ba", "do"], constraints=[["mo"]])
    with pytest.raises(TypeError, match=r"constraints\[1\]: must be a list of str"):
        translator.translate(["ba", "do"], constraints=[[], "mo"])
    with pytest.raises(UserError, match=r"constraints of line 1: the phrases have [\d,]+ tokens"):
        translator.translate(["ba"], constraints=[["mo ka zu"] * 200])


def test_a_phrase_that_is_required_and_forbidden_is_refused(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any translation, with the line of its file; a longer word does not count."""
    text = tmp_path / "text"
    phrases = tmp_path / "phrases"
    terms = tmp_path / "terms"
    forbidden = tmp_path / "forbidden"
    output = tmp_path / "out"
    text.write_text("ba\n" * 3000, encoding="utf-8")
    phrases.write_text("ka\n" * 2999 + "mo\tlili  zu\n", encoding="utf-8")
    terms.write_text("ke\tzu\n", encoding="utf-8")
    forbidden.write_text("zu\n", encoding="utf-8")
    call = ["translate", "-m", str(tiny_run), "-i", str(text), "-o", str(output), "--forbidden"]
    for option, place in (("--constraints", f"{phrases}:3000: "), ("--glossary", f"{terms}: 'ke'")):
        file = phrases if option == "--constraints" else terms
        assert main([*call, str(forbidden), option, str(file), "--device", "cpu"]) == 2
        err = capsys.readouterr().err
        assert place in err
        assert "is required and contains a forbidden word" in err
        assert err.count("\n") == 1
        assert not output.exists()
    translator = Translator.load(tiny_run, device="cpu")
    settings = SearchSettings(forbidden=("zu",))
    with pytest.raises(UserError, match="constraints of line 2: 'lili zu' is required and"):
        translator.translate(["ba", "do"], constraints=[[], ["lili zu"]], settings=settings)
    translation = translator.translate("ba", constraints=["zumo"], settings=settings)
    assert "zumo" in translation.text.split()


def test_words_that_a_vocabulary_lacks_are_refused(tiny_vocabularies: Vocabularies) -> None:
    requirements = Requirements(tiny_vocabularies)
    masked = Masked("", {})
    ((phrase, *_),) = requirements.lexical(["  mo   ka "], masked, "here").phrases
    assert "".join(tiny_vocabularies.tgt.tokens(phrase)) == "▁mo▁ka"
    assert requirements.lexical(["", " "], masked, "here") == NO_LEXICAL


def test_terms_of_exactly_the_most_tokens_are_required(tiny_vocabularies: Vocabularies) -> None:
    """Terms that exceed it are left out, from the first one that does not fit."""
    requirements = Requirements(tiny_vocabularies)
    masked = Masked("", {})

    def tokens_of(phrases: int, terms: int) -> int:
        required = requirements.lexical(["."] * phrases, masked, "here", ["."] * terms)
        return required.total

    token_count = tokens_of(1, 0)
    max_terms = MAX_TOKENS // token_count
    assert max_terms * token_count == MAX_TOKENS
    for phrases in (0, 1, max_terms - 1):
        assert tokens_of(phrases, max_terms - phrases) == MAX_TOKENS
        assert tokens_of(phrases, max_terms - phrases + 1) == MAX_TOKENS
        assert tokens_of(phrases, max_terms - phrases - 1) == MAX_TOKENS - token_count


def test_both_constraints_need_the_most_occurrences_of_each_phrase() -> None:
    left = lexical_of([([7, 8], True), ([7, 8], True), ([9], False)], frozenset([8]))
    right = lexical_of([([7, 8], True), ([5], True)], frozenset([8, 9]))
    merged = merge(left, right)
    assert {phrase.tokens: phrase.times for phrase in merged.phrases} == {
        (7, 8): 2,
        (9,): 1,
        (5,): 1,
    }
    assert [phrase.ends_in_letter for phrase in merged.phrases] == [True, False, True]
    assert merged.continuing == frozenset([8, 9])
    assert merge(left, NO_LEXICAL) == left
    assert merge(NO_LEXICAL, right) == right


def test_both_constraints_keep_within_the_tokens_of_a_line() -> None:
    long = lexical_of([(list(range(5, 5 + MAX_TOKENS - 1)), True)])
    short = lexical_of([([1, 2], True), ([3], True)])
    assert merge(long, short).phrases == (*long.phrases, short.phrases[1])
