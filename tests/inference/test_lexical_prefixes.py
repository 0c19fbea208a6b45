"""Prefixes as tokens: a sequence is accepted if and only if its text begins with the prefix."""

import random
import unicodedata
from typing import Literal

import pytest
from cases.prefix_automata import begins
from cases.toy_text import toy_pairs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import EOS_ID, UNK_ID, Vocabulary
from seq2seq.inference.search.lexical import MAX_CHARACTERS, Prefix, PrefixMaker, check_prefixes
from seq2seq.runtime.errors import UserError

Kind = Literal["unigram", "bpe", "word", "char"]
SIZES: dict[Kind, int] = {"unigram": 380, "bpe": 390, "word": 75, "char": 300}
SRC, TGT = toy_pairs(200, seed=4)
AWKWARD = [
    "日本語 の",
    "é e\u0301",
    "👩\u200d🚀",
    "क\u094d\u200dष",
    "a\u00a0b",
    "<s> <0x41>",
    "xq",
    "½",
]


@pytest.fixture(scope="module")
def makers() -> dict[Kind, tuple[Vocabulary, PrefixMaker]]:
    makers_by_kind: dict[Kind, tuple[Vocabulary, PrefixMaker]] = {}
    for kind, size in SIZES.items():
        config = VocabularyConfig(type=kind, size=size)
        vocabulary = train_vocabularies(config, SRC, [*TGT, "日本語 日本", "ta 日ta"]).tgt
        makers_by_kind[kind] = vocabulary, PrefixMaker(vocabulary)
    return makers_by_kind


def walk(prefix: Prefix, choose: random.Random) -> list[int]:
    """Return the ids of a random path through the states."""
    state = 0
    ids = []
    while state < len(prefix.states):
        ids.append(choose.choice(prefix.states[state].tokens.tolist()))
        next_state = prefix.after(state, ids[-1])
        assert next_state > state
        state = next_state
    return ids


def accepts(prefix: Prefix, ids: list[int]) -> bool:
    return begins(prefix, [*ids, EOS_ID])


def normal(text: str) -> str:
    text = unicodedata.normalize("NFC", text).replace("▁", " ")
    return " ".join(part for part in text.strip().split(" ") if part)


@pytest.mark.parametrize("kind", SIZES)
@settings(deadline=None, max_examples=150)
@given(
    text=st.text("bakeou .!\u00e9日本ॐ▁", max_size=14)
    | st.sampled_from([line[:cut] for line in TGT[:9] for cut in range(3, 25, 4)])
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp")), max_size=9),
    seed=st.integers(0, 9999),
)
@example(text="ta 日", seed=1)
@example(text=" \u00a0 ", seed=1)
def test_accepted_tokens_begin_with_the_text(
    makers: dict[Kind, tuple[Vocabulary, PrefixMaker]], kind: Kind, text: str, seed: int
) -> None:
    """For any tokens that follow, including bytes that are not valid UTF-8."""
    vocabulary, maker = makers[kind]
    choose = random.Random(seed)
    prefix = maker.prefix(text)
    ids = walk(prefix, choose)
    if not ids or ids[-1] != EOS_ID:
        ids += [choose.randrange(4, len(vocabulary)) for _ in range(choose.randrange(4))]
    decoded = vocabulary.decode(ids, prefix.words).strip()
    prefix_text = normal(text)
    assert decoded.startswith(prefix_text)
    if prefix_text and unicodedata.normalize("NFC", text)[-1].isspace():
        assert decoded == prefix_text or decoded[len(prefix_text)] == " "


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("line", [*TGT[:6], *AWKWARD, "ta日本 xx yy zz"])
def test_a_line_is_accepted_by_all_of_its_prefixes(
    makers: dict[Kind, tuple[Vocabulary, PrefixMaker]], kind: Kind, line: str
) -> None:
    vocabulary, maker = makers[kind]
    (ids,) = vocabulary.encode([line])
    text = normal(line)
    for cut in range(len(text) + 1):
        if text[:cut].endswith("\u00a0"):
            continue  # any whitespace at the end of a prefix requires a space
        prefix = maker.prefix(text[:cut])
        if UNK_ID not in ids or text[:cut].endswith(" ") or cut == len(text):
            assert accepts(prefix, ids)
    assert UNK_ID in ids or not accepts(maker.prefix(f"{text}x"), ids)
    assert maker.prefix("").states == maker.prefix(" \u3000").states == []


def test_the_last_word_may_continue_unless_a_space_ends_it(
    makers: dict[Kind, tuple[Vocabulary, PrefixMaker]],
) -> None:
    vocabulary, maker = makers["word"]
    tokens = vocabulary.tokens(range(len(vocabulary)))
    word = next(token[1:] for token in tokens if token.startswith("▁") and len(token) > 4)
    continuations = {i for i, token in enumerate(tokens) if token.startswith(f"▁{word[:2]}")}
    assert set(maker.prefix(word[:2]).states[-1].tokens.tolist()) == continuations
    assert maker.prefix(f"{word} ").states[-1].tokens.tolist() == [tokens.index(f"▁{word}")]
    assert maker.prefix("xq").words == ["xq"]
    assert maker.prefix(f"xq {word} xr ").words == ["xq", "xr"]
    vocabulary, maker = makers["unigram"]
    (state,) = maker.prefix("ba ").states[-1:]
    allowed = vocabulary.tokens(state.tokens.tolist())
    assert "</s>" in allowed
    assert all(token.startswith("▁") for token in allowed if token != "</s>")


def test_a_prefix_too_long_is_refused_by_its_number() -> None:
    check_prefixes(["a" * MAX_CHARACTERS])
    with pytest.raises(
        UserError, match=r"^prefix 2: too long \(2,001 characters\); use at most 2,000$"
    ):
        check_prefixes(["a", "b" * 2001])
