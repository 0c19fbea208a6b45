"""Minimum length, repetition penalty, forbidden words, and overrides of decoding keys."""

import json
import random
import re
import tracemalloc
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from cases.oracle import CPU, SOURCES, Oracle, all_hypotheses, ask
from cases.random_models import MAKERS, random_sources
from cases.searches import search
from cases.toy_text import toy_pairs

from seq2seq.__main__ import main
from seq2seq.data.vocabulary.vocabulary import BOS_ID, EOS_ID, Ids, Vocabularies
from seq2seq.inference.scoring import score_lines
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.search.interface import SearchOptions
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import UserError
from seq2seq.text.names.words import PLACEHOLDERS

LINES, OTHERS = toy_pairs(24, seed=8)


@pytest.mark.parametrize("shortest", [1, 2, 3])
def test_a_minimum_length_leaves_all_longer_hypotheses(shortest: int) -> None:
    model: Any = Oracle(3)
    possible = [ids for ids in all_hypotheses(3) if len(ids) > shortest]
    options = SearchOptions(200, min_length=shortest)
    for source, hypotheses in zip(SOURCES, search(model, SOURCES, [3] * 5, options, CPU)):  # noqa: B905
        scores = {tuple(ids): ask(model, source, ids).log_prob / len(ids) for ids in possible}
        ranked = sorted(scores, key=lambda ids: -scores[ids])
        assert [tuple(hypothesis.ids) for hypothesis in hypotheses] == ranked


@pytest.mark.parametrize("size", [1, 3])
def test_a_minimum_length_raises_the_limit(size: int) -> None:
    lists = search(
        MAKERS["luong"](),
        random_sources(30, seed=2),
        [2] * 30,
        SearchOptions(size, min_length=5),
        CPU,
    )
    assert {len(hypothesis.ids) for hypotheses in lists for hypothesis in hypotheses} == {6}


def penalized(model: Oracle, source: Ids, ids: Ids, factor: float) -> float:
    """Return the log-probability of a hypothesis, with that of repeated tokens times the factor."""
    total = shorter_log_prob = 0.0
    for length in range(1, len(ids) + 1):
        log_prob = ask(model, source, ids[:length]).log_prob
        total += (log_prob - shorter_log_prob) * (
            factor if ids[length - 1] in ids[: length - 1] else 1
        )
        shorter_log_prob = log_prob
    return total


@pytest.mark.parametrize("factor", [1.3, 4.0])
def test_the_repetition_penalty_equals_its_definition(factor: float) -> None:
    model: Any = Oracle(3)
    possible = [*all_hypotheses(3)]
    options = SearchOptions(len(possible), repetition_penalty=factor)
    lists = search(model, SOURCES, [3] * 5, options, CPU)
    for source, hypotheses in zip(SOURCES, lists, strict=True):
        scores = {tuple(ids): penalized(model, source, ids, factor) / len(ids) for ids in possible}
        assert [tuple(hypothesis.ids) for hypothesis in hypotheses] == sorted(
            scores, key=lambda ids: -scores[ids]
        )
        for hypothesis in hypotheses:
            assert hypothesis.score == pytest.approx(scores[tuple(hypothesis.ids)], rel=1e-4)


@pytest.mark.parametrize("scores", [True, False])
def test_greedy_search_penalizes_repetition_too(scores: bool) -> None:
    model: Any = Oracle(7)
    options = SearchOptions(1, repetition_penalty=3.0, return_scores=scores)
    lists = search(model, SOURCES, [6] * 5, options, CPU)
    for source, ((hypothesis,)) in zip(SOURCES, lists, strict=True):
        chain: Ids = []
        while not chain or (chain[-1] != EOS_ID and len(chain) <= 6):
            allowed = [1, 4, 5, 6, *([EOS_ID] if chain else [])] if len(chain) < 6 else [EOS_ID]
            chain.append(max(allowed, key=lambda i: penalized(model, source, [*chain, i], 3.0)))
        assert hypothesis.ids == chain


# -------------------------------------------------------------------------------- forbidden words


def words_of(text: str) -> list[str]:
    """Return the words between ASCII characters other than letters and digits."""
    return re.split(r"[\x00-/:-@\[-`{-\x7f]+", text)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_forbidden_words_do_not_occur(tiny_run: Path, beam_size: int) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    unconstrained = [translation.text for translation in translator.translate(LINES, beam_size)]
    frequent = sorted({word for text in unconstrained for word in words_of(text) if word.isalpha()})
    assert len(frequent) > 3
    words = tuple(frequent[::2])
    translations = translator.translate(LINES, beam_size, settings=SearchSettings(forbidden=words))
    assert any(set(words_of(text)) & set(words) for text in unconstrained)
    for translation in translations:
        assert not set(words_of(translation.text)) & set(words)
    again = translator.translate(LINES[3:5], beam_size, settings=SearchSettings(forbidden=words))
    assert again == translations[3:5]


@pytest.mark.parametrize(
    ("text", "contains"),
    [
        ("mo", True),
        ("ba mo", True),
        ("ba mo da", True),
        ("mo.", True),
        ("momo", False),
        ("amo", False),
        ("mo ", True),
        ("ka zu", True),
        ("ka", False),
        ("ka  zu", False),
        ("ka zus", False),
        ("ka zu!", True),
        ("moé", False),
        ("(mo", True),
        ("ba-mo", True),
        ("ba-mos", False),
        ("\u201cmo", True),
        ("l\u2019mo", True),
        ("mo\u201d", True),
        ("mo\u201dba", True),
        ("\u00abmo\u00bb", True),
        ("ba\u2014mo", True),
        ("ba\u00a0mo", True),
        ("ba\u2028mo", True),
        ("ba\u65e5mo", False),
        ("ka\u00a0zu", True),
        ("ka\u2581zu", True),
        ("\u00e9mo", False),
        ("mo\u0301", False),
    ],
)
def test_the_automaton_finds_words_in_any_segmentation(
    tiny_vocabularies: Vocabularies, text: str, contains: bool
) -> None:
    forbidden = Forbidden(tiny_vocabularies.tgt, ["mo", "ka  zu", " "])
    tokens = tiny_vocabularies.tgt.tokens(range(len(tiny_vocabularies.tgt)))
    ids = {token: i for i, token in enumerate(tokens)}
    surface = "▁" + text.replace(" ", "▁")
    (usual_ids,) = tiny_vocabularies.tgt.encode([text])
    by_bytes = [
        ids[token]
        for character in surface
        for token in (
            [character] if character == "▁" else [f"<0x{b:02X}>" for b in character.encode()]
        )
    ]
    usual_ids = [*usual_ids, ids["▁"]] if text.endswith(" ") else usual_ids
    for segmentation in (usual_ids, by_bytes):
        state = forbidden.start
        is_forbidden = False
        for token in segmentation:
            is_forbidden = (
                is_forbidden or token in forbidden.forbidden_tokens(state, False).tolist()
            )
            state = forbidden.after(state, token)
        is_forbidden = is_forbidden or EOS_ID in forbidden.forbidden_tokens(state, False).tolist()
        if text == "ka  zu" and segmentation is usual_ids:
            continue  # the vocabulary joins spaces
        assert is_forbidden == contains


TOKENS = (
    *("<pad>", "<unk>", "<s>", "</s>", "▁", "▁a", "a", "b", "ab", "▁b", "(", "▁(", "ba▁", "a▁b"),
    *("aa", "▁aab", ".", "b.", "3", "-a", "é", "▁é", "狗", "狗狗", "a狗", "<0x61>", "<0x2E>"),
    *("“", "▁“", "a”", "”b", "<0xE2>", "<0x80>", "<0x9C>", "<0x9D>", "<0xC3>", "<0xA9>", "<0xCC>"),
)
BYTES = [i for i, token in enumerate(TOKENS) if re.fullmatch("<0x[89A-F].>", token)]


class FewTokens:
    """A vocabulary of tokens that overlap often, or of words."""

    def __init__(self, tokens: Sequence[str] = TOKENS, has_byte_fallback: bool = True) -> None:
        self._tokens, self.has_byte_fallback = tokens, has_byte_fallback

    def __len__(self) -> int:
        return len(self._tokens)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self._tokens[i] for i in ids]


def decoded(ids: Sequence[int]) -> tuple[str, bytes]:
    """Return the text of tokens, and the bytes of an incomplete character at its end."""
    data = b"".join(
        bytes([int(TOKENS[i][3:5], 16)]) if TOKENS[i][:3] == "<0x" else TOKENS[i].encode()
        for i in ids
    )
    size = next((n for n in (3, 2, 1) if data[-n:] in starts(r".")), 0)
    text = data[: len(data) - size].decode(errors="replace")
    return re.sub(r"[\s▁]", " ", text), data[len(data) - size :]


@cache
def starts(pattern: str) -> set[bytes]:
    """Return the incomplete encodings of all characters that match."""
    characters = map(chr, [*range(0xD800), *range(0xE000, 0x110000)])
    encoded_characters = (
        character.encode() for character in characters if re.match(pattern, character, re.DOTALL)
    )
    return {character[:n] for character in encoded_characters for n in range(1, len(character))}


OF_WORD = r"\w\u0300-\u036f"


def complete(text: str, phrases: Sequence[str], is_last: bool) -> set[tuple[str, int]]:
    """The occurrences of phrases in a text, with their ends, whatever text may follow."""
    phrases_and_ends = set()
    for phrase in filter(None, (" ".join(phrase_text.split()) for phrase_text in phrases)):
        begins = "" if phrase[0] in "狗“”\ufffd" else rf"(?:^|(?<=[^{OF_WORD}]))"
        letter = phrase[-1].isalnum() and phrase[-1] != "狗"
        bound = rf"(?=[^{OF_WORD}]{'|$' * is_last})" if letter else ""
        pattern = re.compile(begins + re.escape(phrase) + bound)
        places = range(len(text))
        phrases_and_ends |= {
            (phrase, match.end()) for n in places if (match := pattern.match(text, n))
        }
    return phrases_and_ends


def sure(ids: Sequence[int], phrases: Sequence[str], is_last: bool) -> set[tuple[str, int]]:
    """The occurrences in the text of tokens that no continuation by a letter undoes."""
    text, incomplete_bytes = decoded(ids)
    if incomplete_bytes and (is_last or incomplete_bytes not in starts(f"[{OF_WORD}]")):
        text += "\ufffd" if is_last else "%"
    return complete(text, phrases, is_last)


@pytest.mark.thorough
def test_a_token_is_forbidden_if_it_completes_a_phrase() -> None:
    """Against regular expressions over the text before and after each token, of any segmentation.

    End-of-sentence is a token that ends a word, and so are bytes that no letter has.
    """
    draw = random.Random(3)
    vocabulary: Any = FewTokens()
    count = 0
    for _ in range(60):
        alphabet = {" ", *draw.choices("abé狗(.-3“”\ufffd", k=2)}  # so that phrases overlap
        tokens = [i for i in range(4, len(TOKENS)) if alphabet.issuperset(decoded([i])[0])]
        tokens = [i for i in tokens if i not in BYTES]
        phrases = ["".join(draw.choices(sorted(alphabet), k=draw.randint(1, 5))) for _ in range(4)]
        forbidden = Forbidden(vocabulary, phrases)
        state = forbidden.start
        ids = list[int]()
        for _ in range(12):
            complete_phrases = complete(decoded(ids)[0], phrases, is_last=False)
            for is_last in (False, True):
                expected = {
                    i
                    for i in range(4, len(TOKENS))
                    if sure([*ids, i], phrases, is_last) - complete_phrases
                }
                if sure(ids, phrases, is_last=True) - complete_phrases:
                    expected.add(EOS_ID)
                forbidden_ids = forbidden.forbidden_tokens(state, is_last).tolist()
                assert set(forbidden_ids) == expected, (phrases, decoded(ids))
                count += len(forbidden_ids)
            text = decoded(ids)[0]
            assert forbidden.occurs_in(text) == bool(complete(text, phrases, is_last=True))
            ids.append(draw.choice(BYTES if draw.random() < 0.4 else tokens))
            state = forbidden.after(state, ids[-1])
    assert count > 500


def test_a_byte_may_complete_a_character_after_which_text_is_forbidden() -> None:
    vocabulary: Any = FewTokens()
    forbidden = Forbidden(vocabulary, ["\ufffd\ufffd"])
    first = TOKENS.index("<0xE2>")
    next_byte = TOKENS.index("<0x80>")
    malformed = forbidden.after(forbidden.start, next_byte)
    assert next_byte in forbidden.forbidden_tokens(malformed, False)
    incomplete = forbidden.after(forbidden.start, first)
    assert next_byte not in forbidden.forbidden_tokens(incomplete, False)


def test_the_tokens_of_a_vocabulary_of_words_are_complete_words() -> None:
    tokens = ["<pad>", "<unk>", "<s>", "</s>", "▁ka", "▁zu", "▁mo,", "▁ba", "▁bat"]
    vocabulary: Any = FewTokens(tokens, has_byte_fallback=False)
    forbidden = Forbidden(vocabulary, ["ka zu", "ba", "mo"])
    always = {tokens.index("▁ba"), tokens.index("▁mo,")}
    for prefix, forbidden_tokens in (
        ("", ()),
        ("▁ka", ["▁zu"]),
        ("▁ka <unk>", ()),
        ("▁ka ▁bat", ()),
        ("▁ba", ()),  # in a prefix
        ("▁ba ▁ka", ["▁zu"]),
    ):
        state = forbidden.start
        for token in prefix.split():
            state = forbidden.after(state, tokens.index(token))
        expected = always.union(map(tokens.index, forbidden_tokens))
        for is_last in (False, True):
            assert set(forbidden.forbidden_tokens(state, is_last).tolist()) == expected


def test_a_name_is_a_word_that_a_space_separates_from_letters_before() -> None:
    name = PLACEHOLDERS[0]
    tokens = ["<pad>", "<unk>", "<s>", "</s>", name, f"▁{name}", "▁ka", "zu", "▁zu"]
    vocabulary: Any = FewTokens(tokens)
    forbidden = Forbidden(vocabulary, ["ka", "zu"])
    after_word = forbidden.after(forbidden.start, tokens.index("▁ka"))
    after_name = forbidden.after(forbidden.start, tokens.index(f"▁{name}"))
    ends = {EOS_ID, *(tokens.index(token) for token in (name, f"▁{name}", "▁ka", "▁zu"))}
    assert set(forbidden.forbidden_tokens(after_word, False).tolist()) == ends
    assert forbidden.forbidden_tokens(after_name, False).tolist() == []
    last = {tokens.index("▁ka"), tokens.index("▁zu")}
    assert set(forbidden.forbidden_tokens(after_name, True).tolist()) == last


def test_a_long_forbidden_phrase_is_refused(tiny_run: Path) -> None:
    translator = Translator.load(tiny_run, device="cpu")
    settings = SearchSettings(forbidden=("mo", "a" * 201))
    with pytest.raises(UserError) as caught:
        translator.translate("ba", settings=settings)
    message = "forbidden phrase 2: too long (201 characters); use at most 200"
    assert str(caught.value) == message
    settings = SearchSettings(forbidden=("mo", f" {'a' * 200} "))
    assert translator.translate("ba", settings=settings).text


def test_forbidden_phrases_take_memory_in_proportion_to_their_text(
    tiny_vocabularies: Vocabularies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq.inference.search.forbidden.MAX_CHARACTERS", 200_000)

    def peak(characters: int) -> int:
        tracemalloc.start()
        Forbidden(tiny_vocabularies.tgt, ["ab" * (characters // 2)])
        bytes_at_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return bytes_at_peak

    peak(2)  # caches of Python and of the vocabulary
    least = peak(2)
    assert peak(200_000) - least < 20 * (peak(20_000) - least)


def test_a_forbidden_word_at_the_limit_does_not_end_search() -> None:
    """The oracle has no text, so any automaton will do: token 4 may not be last."""

    class NeverLast:
        start = 0

        def after(self, _state: int, token: int) -> int:
            return int(token == 4)

        def forbidden_tokens(self, state: int, is_last: bool) -> torch.Tensor:
            return torch.tensor([4] * is_last + [EOS_ID] * state, dtype=torch.long)

    forbidden: Any = NeverLast()
    for size in (1, 3):
        model: Any = Oracle(2)
        options = SearchOptions(size, forbidden_words=forbidden)
        for hypotheses in search(model, SOURCES, [1, 2, 3, 4, 5], options, CPU):
            assert hypotheses
            assert all(hypothesis.ids[-2] != 4 for hypothesis in hypotheses)


# --------------------------------------------------------------------------------- the command line


def test_decoding_keys_are_overridden_by_every_command(
    tiny_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_runs["luong"]
    src = tmp_path / "src"
    ref = tmp_path / "ref"
    src.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    ref.write_text("".join(f"{line}\n" for line in OTHERS), encoding="utf-8")
    key = "decoding.max_length=3"
    translator = Translator.load(run, device="cpu", overrides=[key, "decoding.length_penalty=0"])
    assert translator.decoding.max_length == 3
    texts = [
        translation.text for translation in Translator.load(run, overrides=[key]).translate(LINES)
    ]
    assert main(["translate", "-m", str(run), "-i", str(src), key]) == 0
    assert capsys.readouterr().out.splitlines() == texts
    assert main(["translate", key, "-m", str(run), LINES[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == texts[0]
    hyp = tmp_path / "hyp"
    call = ["evaluate", "-m", str(run), "-i", str(src), "-r", str(ref), "-o", str(hyp), key]
    assert main(call) == 0
    assert hyp.read_text(encoding="utf-8").splitlines() == texts
    capsys.readouterr()
    call = ["score", "-m", str(run), "-i", str(src), "-r", str(ref)]
    assert main([*call, "decoding.length_penalty=0"]) == 0
    scores = [scored_line.score for scored_line in score_lines(translator.loaded, LINES, OTHERS)]
    assert capsys.readouterr().out.splitlines() == [f"{score:.6f}" for score in scores]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("decoding.beam_sise=3", "did you mean 'beam_size'"),
        ("decoding.beam_size=0", "beam_size"),
        ("decoding.min_length=9", "larger than max_length (5)"),
        ("decoding.repetition_penalty=0.5", "repetition_penalty"),
        ("training.seed=3", "unrecognized arguments: training.seed=3"),
    ],
)
def test_wrong_overrides_are_refused_in_one_line(
    tiny_runs: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    override: str,
    message: str,
) -> None:
    (tmp_path / "text").write_text("ba\n", encoding="utf-8")
    text = str(tmp_path / "text")
    call = ["score", "-m", str(tiny_runs["luong"]), "-i", text, "-r", text]
    assert main([*call, "decoding.max_length=5", override]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_python_refuses_other_keys(tiny_runs: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=r"decoding\.\* keys only"):
        Translator.load(tiny_runs["luong"], overrides=["model.dropout=0"])
    with pytest.raises(TypeError, match="overrides: must be a list"):
        Translator.load(tiny_runs["luong"], overrides="decoding.beam_size=1")


def test_each_call_forbids_its_own_words(tiny_runs: dict[str, Path]) -> None:
    """The automaton of a call is kept for the next one if its words are the same."""
    requirements = Translator.load(tiny_runs["luong"])._requirements
    for word in ("mo", "ka", "mo"):
        forbidden = requirements((word,)).forbidden
        assert forbidden is not None
        assert forbidden.occurs_in(word)
        assert not any(
            forbidden.occurs_in(other_word) for other_word in {"mo", "ka", "zu"} - {word}
        )
        assert requirements((word,)).forbidden is forbidden


def test_a_long_forbidden_phrase_is_named_by_its_line(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words"
    words.write_text("mo\n\n" + "a" * 201 + "\n", encoding="utf-8")
    assert main(["translate", "-m", str(tiny_run), "--forbidden", str(words), *LINES]) == 2
    message = f"{words}:3: too long (201 characters); use at most 200"
    assert capsys.readouterr().err == f"seq2seq: error: {message}\n"


def test_the_command_accepts_forbidden_words(
    tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tmp_path / "words"
    words.write_text("mo\n\nka zu\n", encoding="utf-8")
    assert main(["translate", "-m", str(tiny_run), "--forbidden", str(words), *LINES]) == 0
    texts = capsys.readouterr().out.splitlines()
    translator = Translator.load(tiny_run)
    settings = SearchSettings(forbidden=("mo", "", "ka zu"))
    assert texts == [
        translation.text for translation in translator.translate(LINES, settings=settings)
    ]
    assert BOS_ID not in translator.vocabularies.tgt.encode(texts)[0]
