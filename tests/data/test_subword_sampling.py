"""Subword sampling: the papers' distributions, independent samples, batch-invariant."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest
from cases.tiers import one_quick
from cases.toy_text import toy_pairs
from sentencepiece import SentencePieceProcessor

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.batching import encode_pairs, sampled_pairs
from seq2seq.data.subword_sampling import uniform
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabularies, Vocabulary
from seq2seq.text.characters import SPACE

SRC, TGT = toy_pairs(300, seed=4)
DRAWS = 6000
Segmentation = tuple[str, ...]


def trained(kind: str, amount: float) -> Vocabularies:
    return train_vocabularies(VocabularyConfig(type=kind, size=400, sampling=amount), SRC, TGT)


def processor_of(vocabulary: Vocabulary) -> SentencePieceProcessor:
    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(vocabulary.model)
    return processor


def scores_of(vocabulary: Vocabulary) -> dict[str, float]:
    processor = processor_of(vocabulary)
    return {
        processor.id_to_piece(i): processor.get_score(i)
        for i in range(4, processor.get_piece_size())
        if not processor.is_byte(i)
    }


def bpe_probabilities(vocabulary: Vocabulary, word: str) -> dict[Segmentation, float]:
    """Return exact probabilities: algorithm 1 of Provilkov et al. (2020) over dropped merges."""
    scores = scores_of(vocabulary)
    dropout = vocabulary.sampling
    probabilities: Counter[Segmentation] = Counter()

    def follow(tokens: Segmentation, share: float) -> None:
        merges = [n for n, (a, b) in enumerate(pairwise(tokens)) if a + b in scores]
        for count in range(len(merges) + 1):
            for kept_merges in combinations(merges, count):
                part = share * (1 - dropout) ** count * dropout ** (len(merges) - count)
                if not kept_merges:
                    probabilities[tokens] += part
                    continue
                n = max(kept_merges, key=lambda n: (scores[tokens[n] + tokens[n + 1]], -n))
                follow((*tokens[:n], tokens[n] + tokens[n + 1], *tokens[n + 2 :]), part)

    follow(tuple(SPACE + word), 1.0)
    return probabilities


def bpe_draws(vocabulary: Vocabulary, word: str) -> Counter[Segmentation]:
    """Sample by the same algorithm step by step, as in the paper."""
    scores = scores_of(vocabulary)
    generator = random.Random(1)
    draws = Counter[Segmentation]()
    for _ in range(DRAWS):
        tokens = [*(SPACE + word)]
        while True:
            merges = [n for n, (a, b) in enumerate(pairwise(tokens)) if a + b in scores]
            merges = [n for n in merges if generator.random() >= vocabulary.sampling]
            if not merges:
                break
            n = max(merges, key=lambda n: (scores[tokens[n] + tokens[n + 1]], -n))
            tokens[n : n + 2] = [tokens[n] + tokens[n + 1]]
        draws[tuple(tokens)] += 1
    return draws


def unigram_probabilities(vocabulary: Vocabulary, word: str) -> dict[Segmentation, float]:
    """Return the exact P(x) to the power of `sampling` for every segmentation (Kudo, 2018)."""
    scores = scores_of(vocabulary)

    def segmentations(text: str) -> Iterator[Segmentation]:
        if not text:
            yield ()
        for end in range(1, len(text) + 1):
            if text[:end] in scores:
                yield from (
                    (text[:end], *later_tokens) for later_tokens in segmentations(text[end:])
                )

    weights = {
        segmentation: math.exp(vocabulary.sampling * sum(map(scores.__getitem__, segmentation)))
        for segmentation in segmentations(SPACE + word)
    }
    return {
        segmentation: weight / sum(weights.values()) for segmentation, weight in weights.items()
    }


def sampled(vocabulary: Vocabulary, word: str, seed: int = 3) -> Counter[Segmentation]:
    ids = vocabulary.sample([word] * DRAWS, seed)
    return Counter(tuple(vocabulary.tokens(sample)) for sample in ids)


def chi_square(counts: Counter[Segmentation], probabilities: dict[Segmentation, float]) -> float:
    """Return the goodness-of-fit statistic in standard deviations; rare events are one class."""
    assert counts.keys() <= probabilities.keys()
    common = {
        segmentation: share for segmentation, share in probabilities.items() if share * DRAWS >= 10
    }
    classes = [(counts[segmentation], share * DRAWS) for segmentation, share in common.items()]
    rare_share = 1 - sum(common.values())
    if rare_share * DRAWS >= 10:
        classes.append((DRAWS - sum(count for count, _ in classes), rare_share * DRAWS))
    freedom = len(classes) - 1
    statistic = sum((count - expected) ** 2 / expected for count, expected in classes)
    return (statistic - freedom) / math.sqrt(2 * max(1, freedom))


def words_of(min_length: int, max_length: int) -> list[str]:
    """Return the four longest words of the text that have `min_length` to `max_length` letters."""
    words = {word for line in SRC for word in line.split() if min_length <= len(word) <= max_length}
    return sorted(words, key=lambda word: (-len(word), word))[:4]


PROBABILITIES: dict[str, Callable[[Vocabulary, str], dict[Segmentation, float]]] = {
    "bpe": bpe_probabilities,
    "unigram": unigram_probabilities,
}


@pytest.mark.parametrize("amount", [0.1, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("kind", PROBABILITIES)
def test_segmentations_have_the_probabilities_of_the_paper(kind: str, amount: float) -> None:
    vocabulary = trained(kind, amount).src
    several = 0
    for word in words_of(2, 7):
        probabilities = PROBABILITIES[kind](vocabulary, word)
        assert sum(probabilities.values()) == pytest.approx(1)
        assert chi_square(sampled(vocabulary, word), probabilities) < 5
        several += len(probabilities) > 2
    assert several >= 2


def test_the_algorithm_of_the_paper_agrees_with_its_probabilities() -> None:
    vocabulary = trained("bpe", 0.3).src
    for word in words_of(4, 7):
        assert chi_square(bpe_draws(vocabulary, word), bpe_probabilities(vocabulary, word)) < 5


OFTEN = {"bpe": 0.5, "unigram": 0.05}  # amounts that vary most words


def test_a_long_text_without_spaces_is_sampled_too() -> None:
    for kind in PROBABILITIES:
        vocabulary = trained(kind, OFTEN[kind]).src
        text = "".join(SRC)[:900].replace(" ", "")
        first, second = vocabulary.sample([text, text], seed=1)
        assert first != second
        assert vocabulary.decode(first) == vocabulary.decode(second) == text


@one_quick("kind", PROBABILITIES)
def test_each_occurrence_is_sampled_independently(kind: str) -> None:
    vocabulary = trained(kind, OFTEN[kind]).src
    words = [word for line in SRC for word in line.split()]
    lines = vocabulary.sample([" ".join([word] * 40) for word in words], 0)
    varied = sum(ids != ids[: len(ids) // 40] * 40 for ids in lines)
    several = {word: len(PROBABILITIES[kind](vocabulary, word)) > 1 for word in {*words}}
    assert varied > 0.8 * sum(several[word] for word in words)
    assert varied > 0.5 * len(words)


def test_uniform_numbers_are_uniform_and_independent() -> None:
    numbers = uniform(7, range(500), [40] * 500).reshape(500, 40)
    assert 0 <= numbers.min() < numbers.max() < 1
    assert len(np.unique(numbers)) == numbers.size
    for side in numbers, numbers.T:  # per text, and per position
        counts = np.histogram(side[:20].ravel(), 10, (0, 1))[0] / side[:20].size
        assert np.abs(counts - 0.1).max() < 0.06
    assert np.abs(np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]) < 0.03
    assert np.abs(np.corrcoef(numbers[:, :-1].ravel(), numbers[:, 1:].ravel())[0, 1]) < 0.03
    other_numbers = uniform(8, range(500), [40] * 500)
    assert np.abs(np.corrcoef(numbers.ravel(), other_numbers)[0, 1]) < 0.03
    assert uniform(7, [3, 499], [40, 2]).tolist() == [*numbers[3], *numbers[499, :2]]
    assert uniform(2**70, [], []).tolist() == []


@pytest.mark.parametrize("kind", PROBABILITIES)
def test_samples_of_a_pair_do_not_depend_on_the_batch(kind: str) -> None:
    vocabularies = trained(kind, OFTEN[kind])
    pairs = encode_pairs(SRC, TGT, vocabularies, None)
    everything = sampled_pairs(pairs, np.arange(len(pairs)), vocabularies, 10**6, seed=9)
    for rows in ([5], [290, 5, 17], [17, 290]):
        some = sampled_pairs(pairs, np.array(rows), vocabularies, 10**6, seed=9)
        assert some == tuple([side[i] for i in rows] for side in everything)
    other_seed = sampled_pairs(pairs, np.arange(len(pairs)), vocabularies, 10**6, seed=10)
    for side in range(2):
        same = sum(
            sample == other_sample
            for sample, other_sample in zip(everything[side], other_seed[side], strict=True)
        )
        assert same < 0.3 * len(pairs)


def test_the_sides_of_a_pair_are_sampled_independently() -> None:
    """Unless they are to be segmented alike."""
    vocabularies = trained("bpe", OFTEN["bpe"])
    joint = Vocabularies(vocabularies.src, vocabularies.src)
    pairs = encode_pairs(SRC, SRC, joint, None)
    rows = np.arange(len(pairs))
    src, tgt = sampled_pairs(pairs, rows, joint, 10**6, seed=9)
    assert sum(
        src_sample != tgt_sample for src_sample, tgt_sample in zip(src, tgt, strict=True)
    ) > 0.5 * len(pairs)
    src, tgt = sampled_pairs(pairs, rows, joint, 10**6, seed=9, alike=True)
    assert src == tgt
