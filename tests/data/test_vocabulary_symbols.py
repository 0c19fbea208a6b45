"""User-defined symbols: single tokens that segmentation, splitting and augmentation keep intact."""

import re
from pathlib import Path

import pytest
from cases.toy_names import name_pairs, some_names
from cases.toy_text import toy_pairs, toy_words
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seq2seq.config.schema import ParallelFiles, VocabularyConfig
from seq2seq.data.training_data import cached_text, cached_vocabularies, encoded_text, open_cache
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import Vocabulary, checksums_of
from seq2seq.text.copied_words import NameInventor
from seq2seq.text.learned_profile import MIN_LINES, describe_source
from seq2seq.text.line_properties import leading_tags
from seq2seq.text.long_lines import split_line
from seq2seq.text.names.names import Names, learn_names
from seq2seq.text.source_profile import NO_PROFILE

SYMBOLS = ("<2fr>", "<2frr>", "<num>", "@x@", ">>de<<", "num")
KINDS = ("unigram", "bpe", "char", "word")
SYMBOL = re.compile("<2frr>|<2fr>|<num>|@x@|>>de<<|num")


def toy_text() -> tuple[list[str], list[str]]:
    words = "bad cab dab ban fad deaf face cafe bead fade bed cane dance"
    lines = [f"<2fr> {words[n:]} <num>." for n in range(40)]
    return [*lines, *(f"<2frr> ({line}" for line in lines)], [f"{line} @x@" for line in lines * 2]


@pytest.fixture(scope="module")
def vocabularies() -> dict[str, Vocabulary]:
    """Return a joint vocabulary of each type."""
    vocabularies_by_kind = {}
    for kind in KINDS:
        size = {"unigram": 290, "bpe": 300}.get(kind, 600)
        sampling = 0.6 if kind in ("unigram", "bpe") else 0.0
        config = VocabularyConfig(type=kind, size=size, sampling=sampling, symbols=SYMBOLS)  # type: ignore[arg-type]
        vocabularies_by_kind[kind] = train_vocabularies(config, *toy_text()).src
    return vocabularies_by_kind


texts = st.lists(
    st.sampled_from([*SYMBOLS, " ", "b", "ad", "<", ">", "2", "fr", "é", ".", "nu", "m"]),
    max_size=12,
).map("".join)


def overlap(text: str) -> bool:
    """Return whether a symbol ends inside of the next one, so that only one of them can be kept."""
    spans = [match.span() for match in SYMBOL.finditer(text)]
    starts = [n for n in range(len(text)) if SYMBOL.match(text, n)]
    return any(
        first < n < end < SYMBOL.match(text, n).end()  # type: ignore[union-attr]
        for first, end in spans
        for n in starts
    )


def symbols_in(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
    tokens = (token.removeprefix("\u2581") for token in vocabulary.tokens(ids))
    return [token for token in tokens if token in SYMBOLS]


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=150)
@given(text=texts, seed=st.integers(0, 1000))
def test_each_symbol_is_one_token_that_decoding_restores(
    vocabularies: dict[str, Vocabulary], kind: str, text: str, seed: int
) -> None:
    assume(kind != "unigram" or not overlap(text))
    vocabulary = vocabularies[kind]
    expected = SYMBOL.findall(text)
    assert vocabulary.symbols == SYMBOLS
    ids = vocabulary.encode([text])
    samples = vocabulary.sample([text], seed) if kind in ("unigram", "bpe") else []
    for (segmentation,) in filter(None, (ids, samples)):
        assert symbols_in(vocabulary, segmentation) == expected
        decoded = vocabulary.decode(segmentation)
        if kind == "word":
            assert SYMBOL.findall(decoded) == expected
        else:
            assert decoded == " ".join(text.split(" ")).strip() or "  " in text
            assert decoded.replace(" ", "") == text.replace(" ", "")


def test_of_overlapping_symbols_one_is_kept(vocabularies: dict[str, Vocabulary]) -> None:
    """The first one, or in a unigram vocabulary those that make up most of the text."""
    for text, best in (("<num>>de<<", ["num", ">>de<<"]), ("@x@x@", ["@x@"])):
        for kind in KINDS:
            (ids,) = vocabularies[kind].encode([text])
            expected = best if kind == "unigram" else SYMBOL.findall(text)
            assert symbols_in(vocabularies[kind], ids) == expected


@pytest.mark.parametrize(("kind", "rate"), [("unigram", 0.05), ("bpe", 0.4)])
def test_the_text_around_a_symbol_is_sampled(kind: str, rate: float) -> None:
    """Text before, between and after symbols is sampled independently."""
    config = VocabularyConfig(type=kind, size=350, sampling=rate, symbols=SYMBOLS)  # type: ignore[arg-type]
    vocabulary = train_vocabularies(config, *toy_pairs(300, seed=1)).src

    def segmentations(word: str) -> int:
        return len({tuple(vocabulary.sample([word], seed)[0]) for seed in range(20)})

    word = max(toy_words(90), key=segmentations)
    samples = [vocabulary.sample([f"{word}<num>{word}@x@{word}"], seed)[0] for seed in range(60)]
    parts = [re.split(r"\|?(?:<num>|@x@)\|?", "|".join(vocabulary.tokens(ids))) for ids in samples]
    places = list(zip(*parts, strict=True))
    assert len(set(places[0])) > 1
    if kind == "bpe":  # this unigram vocabulary has complete words after a space, else characters
        assert all(len(set(place)) > 2 for place in places)
        assert sum(second != third for _, second, third in parts) > 10


def test_without_symbols_no_text_is_a_symbol() -> None:
    config = VocabularyConfig(size=285)
    plain = train_vocabularies(config, *toy_text()).src
    assert plain.symbols == ()
    assert len(plain.encode(["<num>"])[0]) > 1
    assert leading_tags("<2fr> bad", plain.symbols) is None
    assert plain.cuts("<num>") == [1, 2, 3, 4, 5]


# ----------------------------------------------------------------------------- splitting long lines


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", [1, 2, 3, 7])
def test_a_long_word_is_not_split_inside_a_symbol(
    vocabularies: dict[str, Vocabulary], kind: str, room: int
) -> None:
    vocabulary = vocabularies[kind]
    word = "<num>@x@>>de<<bad<2frr>" * 9
    parts, left_out = split_line(f"{word} bad", vocabulary, room)
    assert "".join(parts).replace(" ", "") == f"{word}bad" or left_out
    for part in parts:
        assert SYMBOL.findall(part) == symbols_in(vocabulary, vocabulary.encode([part])[0])
        if kind != "word":
            assert len(vocabulary.encode([part])[0]) <= max(room, 2)  # a space and a symbol
    if not left_out:
        assert SYMBOL.findall("|".join(parts)) == SYMBOL.findall(word)


def test_tags_are_symbols_that_occur_only_at_the_start_of_lines(
    vocabularies: dict[str, Vocabulary],
) -> None:
    vocabulary = vocabularies["unigram"]
    lines = ["<2fr> @x@ bad <num>", "<2fr> >>de<< cab", "<num> bed", "fade"] * MIN_LINES
    profile = describe_source(lines, lines, vocabulary.symbols)
    assert (profile.knows_tags, profile.tags) == (True, ["<2fr>", "@x@", ">>de<<"])
    assert profile.tag_of("<2fr> @x@ cab <2fr>", vocabulary.symbols) == "<2fr> @x@"
    for line in ("<num> bed", "cab <2fr>", "<2frr> cab", "<2fr>cab", ""):
        assert profile.tag_of(line, vocabulary.symbols) is None
    beds = ["<num> bed", "bed <num>"] * MIN_LINES
    placeholders = describe_source(beds, beds, vocabulary.symbols)
    assert placeholders.tags == []
    assert placeholders.tag_of("<num> bed", vocabulary.symbols) is None
    # A run of an earlier version had only tags.
    assert NO_PROFILE.tag_of("<2fr> cab", vocabulary.symbols) == "<2fr>"


# ---------------------------------------------------------------------------------- names and cache


def test_names_within_symbols_are_not_masked() -> None:
    names = some_names(150, seed=1)
    pairs = name_pairs(names, 600, seed=2)
    symbols = [f"<{name}>" for name in [names[0], *some_names(150, seed=9)]]
    src = [f"{symbols[0]} {pair.src}" for pair in pairs]
    tgt = [f"{pair.tgt} {symbols[0]}" for pair in pairs]
    learned_names = Names.from_bytes(learn_names(src, tgt, symbols).stored)
    for src_line, tgt_line in zip(src, tgt, strict=True):
        assert all(symbols[0] in side for side in learned_names.mask_pair(src_line, tgt_line))
    assert sum(learned_names.mask_pair(*pair) != pair for pair in zip(src, tgt, strict=True)) > 200
    lines = [f"The house of {symbol} walks." for symbol in symbols]
    assert [learned_names.mask(line)[0].text for line in lines] == lines
    without = learn_names(src, tgt)
    assert [without.mask(line)[0].text for line in lines] != lines
    assert b"symbols" not in without.stored


def test_numbers_within_symbols_are_not_replaced_by_invented_ones() -> None:
    src = ["Put <n1> n1 and <2fr> here, Tom and Mary."] * 30
    tgt = ["Tom und Mary, <n1> n1 und <2fr> hier."] * 30
    invented = NameInventor(src, tgt, 0.99, ["<n1>", "<2fr>"]).invent(src, tgt, seed=1)
    assert all("<n1>" in side and "<2fr>" in side for sides in invented for side in sides)
    assert sum(" n1 " in side for side in invented[0]) < 15
    plain = NameInventor(src, tgt, 0.99).invent(src, tgt, seed=1)
    assert any("<2fr>" not in side for side in plain[0])


def test_a_vocabulary_with_other_symbols_is_another_cache_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    src, tgt = toy_text()
    path.write_text("".join(f"{s}\t{t}\n" for s, t in zip(src, tgt, strict=True)), "utf-8")
    checksums_and_ids = []
    for symbols in ((), ("<num>",), ("<num>", "@x@"), ("<num>",)):
        files = ParallelFiles(file=path)
        with open_cache(files, tmp_path / "runs" / "a") as cache:
            config = VocabularyConfig(size=285, symbols=symbols)
            text, _ = cached_text(files, cache)
            vocabularies, _ = cached_vocabularies(text, config)
            assert vocabularies.src.symbols == symbols
            pairs = encoded_text(text, vocabularies, 100)[0].pairs
            checksums_and_ids.append((checksums_of(vocabularies)["joint"], [*pairs.src[0]]))
    assert checksums_and_ids[1] == checksums_and_ids[3]
    assert (
        len({checksum for checksum, _ in checksums_and_ids})
        == len({str(ids) for _, ids in checksums_and_ids})
        == 3
    )
