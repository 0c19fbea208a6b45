"""Splitting a corpus: no leakage, the requested sizes, and reproducible by seed."""

import tracemalloc
from collections import Counter

import pytest
from cases.toy_text import toy_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.runtime.errors import UserError
from seq2seq.tools.corpora.splitting import DROPPED, PARTS, default_size, divide

Pairs = list[tuple[str, str]]
texts = st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "h", " ", "A", "a ", "É", "e\u0301"])


def form(text: str) -> str:
    return " ".join(text.casefold().split()).replace("e\u0301", "é")


def components(pairs: Pairs) -> list[set[int]]:
    """Return connected components of pairs that share a text, by repeated search."""
    left = {n for n, pair in enumerate(pairs) if all(text.strip() for text in pair)}
    groups = []
    while left:
        group = {left.pop()}
        while True:
            forms = [{form(pairs[n][side]) for n in group} for side in (0, 1)]
            added_rows = {n for n in left if any(form(pairs[n][s]) in forms[s] for s in (0, 1))}
            if not added_rows:
                break
            group |= added_rows
            left -= added_rows
        groups.append(group)
    return groups


@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(texts, texts), max_size=14),
    valid=st.integers(0, 3),
    test=st.integers(0, 3),
    seed=st.integers(0, 9),
)
def test_components_stay_together(pairs: Pairs, valid: int, test: int, seed: int) -> None:
    groups = components(pairs)
    try:
        division = divide(pairs, {"valid": valid, "test": test}, seed, "a")
    except UserError:
        return  # the sizes are impossible; other tests cover those that are possible
    parts = division.parts.tolist()
    assert division.components == len(groups)
    for group in groups:
        assert len({parts[n] for n in group}) == 1
    assert [parts.count(1), parts.count(2)] == [valid, test]
    assert parts.count(0) > 0
    assert [n for n, part in enumerate(parts) if part == DROPPED] == [
        n for n, pair in enumerate(pairs) if not all(text.strip() for text in pair)
    ]


def corpus() -> Pairs:
    """Return pairs, many of which share a source or a target."""
    src, tgt = toy_pairs(900, seed=4)
    pairs = list(zip(src, tgt, strict=True))
    pairs += [(src[n], tgt[n + 7]) for n in range(0, 300, 3)]
    pairs += [(f"{src[n]} more", tgt[n].upper()) for n in range(0, 300, 5)]
    return pairs


def test_the_parts_have_their_sizes_and_share_no_text() -> None:
    pairs = corpus()
    division = divide(pairs, {"valid": 120, "test": 77}, 3, "a")
    assert [division.count(n) for n in range(3)] == [len(pairs) - 197, 120, 77]
    for side in (0, 1):
        forms_of_parts = [
            {
                form(pair[side])
                for pair, part in zip(pairs, division.parts, strict=True)
                if part == n
            }
            for n in range(len(PARTS))
        ]
        assert sum(map(len, forms_of_parts)) == len(
            forms_of_parts[0] | forms_of_parts[1] | forms_of_parts[2]
        )


def test_the_choice_is_random_and_depends_only_on_the_seed() -> None:
    pairs = corpus()
    sizes = {"valid": 100, "test": 100}
    parts_by_seed = [divide(pairs, sizes, seed, "a").parts.tolist() for seed in (1, 1, 2)]
    assert parts_by_seed[0] == parts_by_seed[1] != parts_by_seed[2]
    places = Counter(n for seed in range(40) for n in parts_of(pairs, seed))
    single = [n for n in range(310, 880) if n % 5]  # pairs that share no text
    mean = sum(places[n] for n in single) / len(single)
    assert 0.08 * 40 < mean < 0.14 * 40  # 100 of 1,060; slightly more for small components


def parts_of(pairs: Pairs, seed: int) -> list[int]:
    parts = divide(pairs, {"valid": 100, "test": 0}, seed, "a").parts.tolist()
    return [n for n, part in enumerate(parts) if part == 1]


@pytest.mark.parametrize(
    ("pairs", "sizes", "message"),
    [
        (
            [("a", "b"), ("a", "c"), ("d", "c")],
            (1, 0),
            "a: valid can have 0 of 1 pair, as many of the 3",
        ),
        (
            [("a", "b"), ("c", "d")],
            (1, 1),
            "a: 2 pairs with text leave none for train; lower --valid and --test",
        ),
        (
            [("a", "b"), ("c", "d"), ("c", "e"), ("f", "e")],
            (1, 1),
            "a: test can have 0 of 1 pair, as many of the 4",
        ),
        ([(" ", "b")], (0, 0), "a: none of the 1 pair has text on both sides."),
        ([], (0, 0), "a: none of the 0 pairs has text on both sides."),
    ],
)
def test_impossible_sizes_are_refused(pairs: Pairs, sizes: tuple[int, int], message: str) -> None:
    with pytest.raises(UserError) as caught:
        divide(pairs, dict(zip(PARTS[1:], sizes, strict=True)), 1, "a")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("other_form", ["Cafe\u0301 noir", "CAF\u00c9 noir", " caf\u00e9  noir"])
def test_texts_that_differ_in_form_alone_are_equal(other_form: str) -> None:
    """In normal form, case or spaces: one that is trained on would be tested."""
    pairs = [("caf\u00e9 noir", "a"), (other_form, "b"), ("th\u00e9", "c"), ("d", "d")]
    division = divide(pairs, {"valid": 2, "test": 0}, 1, "a")
    assert division.components == 3
    parts = division.parts.tolist()
    assert parts[0] == parts[1]


@pytest.mark.thorough
def test_memory_does_not_depend_on_the_length_of_texts() -> None:
    """The 20,000 pairs of 1,000 letters are 20 MB of text, five times the limit."""
    pairs = ((f"{n} {'a' * 500}", f"{'b' * 500} {n}") for n in range(20_000))
    tracemalloc.start()
    division = divide(pairs, {"valid": 1000, "test": 1000}, 1, "a")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert division.components == 20_000
    assert peak < 200 * 20_000


def test_sizes_that_leave_nothing_to_train_on_are_refused() -> None:
    pairs = [(f"a {n}", f"b {n}") for n in range(432)]
    with pytest.raises(UserError, match="432 pairs with text leave none for train; lower --valid"):
        divide(pairs, {"valid": 216, "test": 216}, 1, "a")
    divide(pairs, {"valid": 431, "test": 0}, 1, "a")


@pytest.mark.parametrize("size", [7, 50, 70])
def test_the_size_that_a_refusal_names_is_possible(size: int) -> None:
    pairs = [(f"a {n // 6}", f"b {n}") for n in range(72)]  # twelve components of six pairs
    with pytest.raises(UserError, match=r"valid can have \d+ of") as caught:
        divide(pairs, {"valid": size, "test": 0}, 1, "a")
    possible_size = int(str(caught.value).split("can have ")[1].split()[0])
    assert (
        divide(pairs, {"valid": possible_size, "test": 0}, 1, "a").count(1)
        == possible_size
        == size // 6 * 6
    )


def test_the_default_size_is_a_twentieth_up_to_a_thousand() -> None:
    assert [default_size(pairs) for pairs in (1, 39, 40, 5000, 20_000, 10**6)] == [
        *(1, 1, 2, 250, 1000, 1000)
    ]
    pairs = [(f"a {number}", f"b {number}") for number in range(5000)]
    division = divide(pairs, {"valid": None, "test": None}, 1, "a")
    assert [division.count(part) for part in range(3)] == [4500, 250, 250]
    groups = [(f"a {number // 30}", f"b {number}") for number in range(3000)]
    held_out = divide(groups, {"valid": None, "test": None}, 1, "a")
    assert [held_out.count(part) for part in (1, 2)] == [150, 150]


def test_sentences_that_translation_reads_as_one_are_connected() -> None:
    """Spaces of no width, full width, and the dot of a Turkish capital make no other sentence."""
    pairs = [
        pair
        for n in range(40)
        for pair in (
            (f"a{n}\u200bb", f"one {n}"),
            (f"a{n}b", f"two {n}"),
            (f"\uff43\uff44{n}", f"three {n}"),
            (f"cd{n}", f"four {n}"),
            (f"\u0130l{n}", f"five {n}"),
            (f"il{n}", f"six {n}"),
        )
    ]
    division = divide(pairs, {"valid": 60, "test": 60}, 1, "a")
    parts = division.parts.tolist()
    assert division.components == 120
    assert parts[0::2] == parts[1::2]
