"""Alignments in Pharaoh format, read in parallel with their text, and the tokens of words."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.alignment_targets import alignment_targets, word_numbers
from seq2seq.data.pharaoh import aligned_pairs
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies, words_of
from seq2seq.runtime.errors import UserError

PAIRS = [("the small cat", "le petit chat"), ("", ""), ("a b", "c"), ("one", "un deux")]
LINES = ["0-0 1-1 2-2", "", "0-0 1-0", "0-1\t0-0"]


def read(path: Path, lines: list[str], has_tag: bool = False) -> list[list[int]]:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    found = list(aligned_pairs(iter(PAIRS), path, "the text", has_tag))
    assert [pair for pair, _ in found] == PAIRS
    return [links for _, links in found]


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
        (LINES[:3], "a: has 3 lines but the text has 4 pairs; line n must be the alignment of pa"),
        ([*LINES, ""], "a: has 5 lines but the text has 4 pairs"),
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
        own = [each for each, n in zip(ids, numbers, strict=True) if n == number]
        decoded = vocabulary.decode(own, [word])
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
    src, tgt = vocabularies.encode_pairs(*map(list, zip(*pairs, strict=True)))
    words, targets = alignment_targets(src, tgt, links, vocabularies)
    assert words.shape == (3, 1 + max(map(len, src)))
    assert targets.shape == (3, 1 + max(map(len, tgt)), 6)
    for row, (pair, own) in enumerate(zip(pairs, links, strict=True)):
        numbers = word_numbers(src[row], vocabularies.src).tolist()
        assert words[row].tolist() == numbers + [6] * (words.shape[1] - len(numbers))
        expected = torch.zeros(targets.shape[1:])
        for step, shares in enumerate(in_loops(pair[1], own, vocabularies)):
            for source, share in shares.items():
                expected[step, source] = share
        assert torch.equal(targets[row], expected)


@settings(max_examples=30)
@given(links=st.lists(st.integers(0, 8), max_size=12).filter(lambda each: len(each) % 2 == 0))
def test_links_outside_the_sentence_are_ignored(
    links: list[int], tiny_vocabularies: Vocabularies
) -> None:
    """The cache may contain any links; a row is always a distribution or zero."""
    src, tgt = tiny_vocabularies.encode_pairs(["ba da", "ba"], ["da", "da ba ga"])
    _, targets = alignment_targets(src, tgt, [links, links], tiny_vocabularies)
    sums = np.unique(targets.sum(2).numpy().round(5))
    assert set(sums.tolist()) <= {0.0, 1.0}
