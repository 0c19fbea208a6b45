"""Alignments in Pharaoh format, read in parallel with their text, and the tokens of words."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases.sentencepiece_models import trained
from cases.toy_text import toy_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.guided_alignment import alignment_targets, text_words, word_numbers
from seq2seq.data.pharaoh import aligned_pairs
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies, words_of
from seq2seq.runtime.errors import UserError
from seq2seq.text.characters import SPACE

PAIRS = [("the small cat", "le petit chat"), ("", ""), ("a b", "c"), ("one", "un deux")]
LINES = ["0-0 1-1 2-2", "", "0-0 1-0", "0-1\t0-0"]


def read(path: Path, lines: list[str], has_tag: bool = False) -> list[list[int]]:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    pairs_and_links = list(aligned_pairs(iter(PAIRS), path, "the text", has_tag))
    assert [pair for pair, _ in pairs_and_links] == PAIRS
    return [links for _, links in pairs_and_links]


def test_links_are_read_in_parallel_with_the_pairs(tmp_path: Path) -> None:
    links = read(tmp_path / "a", LINES)
    assert links == [[0, 0, 1, 1, 2, 2], [], [0, 0, 1, 0], [0, 1, 0, 0]]


def test_a_tag_is_not_counted_in_the_alignment_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("0-0 1-1\n0-0\n", encoding="utf-8")
    tagged = iter([("<bt> the cat", "le chat"), ("<bt> a", "un")])
    assert [links for _, links in aligned_pairs(tagged, path, "the text", True)] == [
        [1, 0, 2, 1],
        [1, 0],
    ]
    path.write_text("2-0\n0-0\n", encoding="utf-8")
    with pytest.raises(UserError, match="a:1: 2-0: the source has 2 words, counted from 0"):
        list(aligned_pairs(iter([("<bt> the cat", "le chat")]), path, "the text", True))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0-0 x", *LINES[1:]], "a:1: 'x' is no link such as 0-0, as Pharaoh has them"),
        (["0-0 1?1", *LINES[1:]], "a:1: '1\\?1' is no link such as 0-0"),
        (["0-0 -1-1", *LINES[1:]], "a:1: '-1-1' is no link"),
        (["0-0 1- 2-2", *LINES[1:]], "a:1: '1-' is no link"),
        ([*LINES[:3], "1-0"], "a:4: 1-0: the source has 1 word, counted from 0. Align the words"),
        ([*LINES[:2], "0-1", "0-0"], "a:3: 0-1: the target has 1 word, counted from 0"),
        ([LINES[0], "0-0", *LINES[2:]], "a:2: 0-0: the source has 0 words"),
        (LINES[:3], "a has 3 lines but the text has 4: line n must be the alignment of pair n"),
        ([*LINES, ""], "a has 5 lines but the text has 4: "),
    ],
)
def test_a_mismatched_file_is_refused_with_its_line(
    tmp_path: Path, lines: list[str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a", lines)


@pytest.fixture(scope="module", params=["bpe", "unigram", "char", "word"])
def vocabularies(request: pytest.FixtureRequest) -> Vocabularies:
    src = ["the small cat is black", "a cat likes the dogs", "dogs and cats and dogs"] * 5
    tgt = ["le petit chat est noir", "un chat aime les chiens", "chiens et chats et chiens"] * 5
    size = {"word": 40, "char": 300, "bpe": 290}.get(request.param, 279)
    tree = {"type": request.param, "size": size, "joint": False}
    return train_vocabularies(VocabularyConfig.model_validate(tree), src, tgt)


@pytest.mark.parametrize("text", ["the small cat", " the  Zürich cat", "ध्वनि a", "cat", "x", ""])
def test_tokens_map_to_their_words(vocabularies: Vocabularies, text: str) -> None:
    """The tokens mapped to word n decode to word n, even for unseen words."""
    vocabulary = vocabularies.src
    (ids,) = vocabulary.encode([text])
    numbers = word_numbers(ids, vocabulary)
    words = words_of(text)
    assert sorted(set(numbers.tolist())) == list(range(len(words)))
    for number, word in enumerate(words):
        ids_of_word = [token_id for token_id, n in zip(ids, numbers, strict=True) if n == number]
        decoded = vocabulary.decode(ids_of_word, [word])
        assert decoded == word


def in_loops(tgt: str, links: list[int], vocabularies: Vocabularies) -> list[dict[int, float]]:
    """Return, for each target token of a pair, the share of each linked source word."""
    rows = []
    for number, word in enumerate(words_of(tgt)):
        sources = {s for s, t in zip(links[::2], links[1::2], strict=True) if t == number}
        (ids,) = vocabularies.tgt.encode([word])
        rows += [{source: 1 / len(sources) for source in sources} for _ in ids]
    return rows


def test_targets_equal_those_of_loops_over_words(vocabularies: Vocabularies) -> None:
    pairs = [("the small cat is", "le petit chat"), ("dogs", "les chiens"), ("a b c d e f", "x y")]
    links = [[0, 0, 1, 1, 2, 2, 3, 2, 2, 1], [], [5, 1, 0, 1]]
    texts = [src for src, _ in pairs], [tgt for _, tgt in pairs]
    src, tgt = vocabularies.encode_pairs(*texts)
    words, targets = alignment_targets(src, tgt, links, vocabularies, texts)
    assert words.shape == (3, 1 + max(map(len, src)))
    assert targets.shape == (3, 1 + max(map(len, tgt)), 6)
    for row, (pair, links_of_pair) in enumerate(zip(pairs, links, strict=True)):
        numbers = word_numbers(src[row], vocabularies.src).tolist()
        assert words[row].tolist() == numbers + [6] * (words.shape[1] - len(numbers))
        expected = torch.zeros(targets.shape[1:])
        for step, shares in enumerate(in_loops(pair[1], links_of_pair, vocabularies)):
            for source, share in shares.items():
                expected[step, source] = share
        assert torch.equal(targets[row], expected)


@settings(max_examples=30)
@given(links=st.lists(st.integers(0, 8), max_size=12).filter(lambda numbers: len(numbers) % 2 == 0))
def test_links_outside_the_sentence_are_ignored(
    links: list[int], tiny_vocabularies: Vocabularies
) -> None:
    """The cache may contain any links; a row is always a distribution or zero."""
    texts = ["ba da", "ba"], ["da", "da ba ga"]
    src, tgt = tiny_vocabularies.encode_pairs(*texts)
    _, targets = alignment_targets(src, tgt, [links, links], tiny_vocabularies, texts)
    sums = np.unique(targets.sum(2).numpy().round(5))
    assert set(sums.tolist()) <= {0.0, 1.0}


# ------------------------------------------------- tokens whose spaces are not those of the text

MODELS: dict[
    str, tuple[dict[str, Any], dict[str, Any]]
] = {  # settings of SentencePiece and of the config
    "normalized": ({}, {}),
    "sampled": ({}, {"sampling": 0.1}),
    "all spaces": ({"remove_extra_whitespaces": False}, {}),
    "case-folded words": ({"model_type": "word", "normalization_rule_name": "nfkc_cf"}, {}),
    "symbols": ({"user_defined_symbols": ["<num>"]}, {}),
    "own": ({}, {"size": 340}),
    "own words": ({}, {"type": "word", "size": 60, "symbols": ["<num>"]}),
}
STRANGE = [
    *("mubu\u00a0boba ru", "mubu\u3000boba ru", "mubu\tboba ru", "\u200b mubu ru"),
    *("ru \u200b", "mubu  boba  ru ", " mubu", "mubu<num> boba <num>", "mubu\u2581 ru \u2581"),
    *("\u00b4mubu a\u00b4 ru", "\u2581\u2581mubu\u2581boba", "\ufb01 \u3000 \u00bd ru", "日 本"),
]


def loaded(path: Path, name: str) -> Vocabularies:
    settings, keys = MODELS[name]
    if not name.startswith("own"):
        trained(path, **settings)
        keys = {**keys, "model": [path]}
    return train_vocabularies(VocabularyConfig.model_validate(keys), *toy_pairs(300, seed=1))


@pytest.mark.parametrize("name", MODELS)
def test_tokens_map_to_the_words_of_the_text_whatever_a_model_normalizes(
    tmp_path: Path, name: str
) -> None:
    """The tokens of word n spell what those of the word alone spell."""
    vocabulary = loaded(tmp_path / "a.model", name).src

    def spelled(ids: Sequence[int]) -> str:
        return "".join(vocabulary.tokens(ids)).replace(SPACE, "")

    seen = 0
    for text in STRANGE:
        segmentations = [
            vocabulary.encode([text]),
            vocabulary.sample([text], 3) if name == "sampled" else [],
        ]
        for ids in chain(*segmentations):
            numbers = text_words(ids, text, vocabulary)
            seen += numbers is not None
            for number, word in enumerate(words_of(text) if numbers is not None else ()):
                ids_of_word = [
                    token_id for token_id, n in zip(ids, numbers, strict=True) if n == number
                ]
                assert spelled(ids_of_word) == spelled(vocabulary.encode([word])[0])
    assert seen >= len(STRANGE) / 3


def test_links_are_not_used_where_a_model_joins_words(tmp_path: Path) -> None:
    """A rule that removes the space before a hyphen makes two words one."""
    rules = tmp_path / "rules.tsv"
    rules.write_text("20 2D\t2D\n", encoding="utf-8")
    trained(tmp_path / "a.model", normalization_rule_tsv=str(rules))
    config = VocabularyConfig.model_validate({"model": [tmp_path / "a.model"]})
    vocabularies = train_vocabularies(config, [], [])
    texts = ["mubu -boba ru", "mubu ru"], ["mubu boba ru", "ru"]
    src, tgt = vocabularies.encode_pairs(*texts)
    _, targets = alignment_targets(src, tgt, [[2, 2], [1, 0]], vocabularies, texts)
    assert not targets[0].any()
    assert targets[1, : len(tgt[1])].argmax(1).tolist() == [1] * len(tgt[1])
