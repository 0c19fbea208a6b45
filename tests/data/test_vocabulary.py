"""Vocabulary: encoding and decoding, sampling, saving, and rejected settings."""

import hashlib
import itertools
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from cases.environment import project_environment
from cases.toy_text import VOWELS, toy_pairs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    UNKNOWN,
    Vocabularies,
    Vocabulary,
    load_vocabularies,
    save_vocabularies,
    words_of,
)
from seq2seq.runtime.errors import UserError
from seq2seq.text.sample import sample_rows

Kind = Literal["unigram", "bpe", "word", "char"]
KINDS: tuple[Kind, ...] = ("unigram", "bpe", "word", "char")
OPEN_KINDS: tuple[Kind, ...] = (
    "unigram",
    "bpe",
    "char",
)  # types that encode unknown characters as bytes
SIZES = {"unigram": 380, "bpe": 390, "word": 75, "char": 300}
SRC, TGT = toy_pairs(200, seed=4)


def train(
    kind: Kind, size: int | None = None, joint: bool = True, sampling: float = 0.0
) -> Vocabularies:
    config = VocabularyConfig(type=kind, size=size or SIZES[kind], joint=joint, sampling=sampling)
    return train_vocabularies(config, SRC, TGT)


@pytest.fixture(scope="module")
def trained() -> dict[str, Vocabulary]:
    return {kind: train(kind).src for kind in KINDS}


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def sampler(request: pytest.FixtureRequest) -> Vocabulary:
    return train(request.param, sampling=0.3).src


def normalized(text: str) -> str:
    """Return NFC text without redundant spaces, which is all that a vocabulary may change."""
    return " ".join(word for word in unicodedata.normalize("NFC", text).split(" ") if word)


def one_line(caught: pytest.ExceptionInfo[UserError]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    assert "INTERNAL" not in message
    return message


# --------------------------------------------------------------------------------------- round trip


UNUSUAL = [
    "",
    " ",
    "e\u0301te\u0301 \u1e0b\u0323",  # NFC composes these
    "क\u094d\u200dष न\u094d\u200cन",  # joiners that Marathi needs
    "👩\u200d🚀 🏳️\u200d🌈 🇮🇳",
    "日本語 العربية עברית ΑΩ",
    "a\tb\u00a0c\u3000d\u2009e\u200bf",
    "½ ﬁ ² Å K",  # compatibility folding would change these
    "\x00 \x07 \r \v \f \x1c \x85 \u2028 \u2029 \ufeff \ufffd",
    "<s> </s> <pad> <unk> <0x41> ⁇",
    "\u0301\u0302\u0303",
    "  ba   ka  ",
]


@pytest.mark.parametrize("kind", OPEN_KINDS)
@pytest.mark.parametrize("text", UNUSUAL, ids=ascii)
def test_unusual_text_survives_a_round_trip(
    trained: dict[str, Vocabulary], kind: Kind, text: str
) -> None:
    vocabulary = trained[kind]
    (ids,) = vocabulary.encode([text])
    assert vocabulary.decode(ids) == normalized(text)
    assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID}.intersection(ids)


@settings(deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="▁"), max_size=30))
@example("\U0010ffff\u0344")
def test_any_text_survives_a_round_trip(trained: dict[str, Vocabulary], text: str) -> None:
    for kind in OPEN_KINDS:
        (ids,) = trained[kind].encode([text])
        assert trained[kind].decode(ids) == normalized(text)
        assert not {PAD_ID, UNK_ID, BOS_ID, EOS_ID}.intersection(ids)


@pytest.mark.parametrize("kind", OPEN_KINDS)
@pytest.mark.parametrize("text", ["▁", "▁▁", "▁ba▁▁ka", "ba▁", " ▁ ba"])
def test_the_space_symbol_of_sentencepiece_becomes_a_space(
    trained: dict[str, Vocabulary], kind: Kind, text: str
) -> None:
    (ids,) = trained[kind].encode([text])
    assert trained[kind].decode(ids).split() == text.replace("▁", " ").split()


@pytest.mark.parametrize("kind", OPEN_KINDS)
def test_bytes_of_the_space_symbol_are_decoded_as_a_space(
    trained: dict[str, Vocabulary], kind: Kind
) -> None:
    """A model may generate any bytes, one by one."""
    vocabulary = trained[kind]
    ids = {token: i for i, token in enumerate(vocabulary.tokens(range(len(vocabulary))))}
    byte_ids = [ids[f"<0x{byte:02X}>"] for byte in "a▁b".encode()]
    assert vocabulary.decode(byte_ids) == "a b"


@pytest.mark.parametrize("kind", KINDS)
def test_training_text_survives_a_round_trip(trained: dict[str, Vocabulary], kind: Kind) -> None:
    vocabulary = train("word", 3000).src if kind == "word" else trained[kind]
    assert [vocabulary.decode(ids) for ids in vocabulary.encode(SRC + TGT)] == SRC + TGT


@pytest.mark.parametrize("kind", KINDS)
def test_composed_and_decomposed_letters_have_the_same_ids(
    trained: dict[str, Vocabulary], kind: Kind
) -> None:
    decomposed = "ba e\u0301 ka"
    composed = "ba \u00e9 ka"
    assert trained[kind].encode([decomposed]) == trained[kind].encode([composed])


def test_an_unseen_word_is_unknown_to_a_word_vocabulary(trained: dict[str, Vocabulary]) -> None:
    words = trained["word"]
    known_word = words.tokens([UNK_ID + 5])[0].removeprefix("▁")
    (ids,) = words.encode([f"{known_word} zyxwv {known_word}"])
    assert [i == UNK_ID for i in ids] == [False, True, False]
    assert words.decode(ids) == f"{known_word} {UNKNOWN} {known_word}"


@settings(deadline=None)
@given(text=st.text("ab 日▁\u0301\u00a0" + VOWELS, max_size=30) | st.sampled_from(SRC + UNUSUAL))
def test_each_word_has_its_own_id_and_position(trained: dict[str, Vocabulary], text: str) -> None:
    """SentencePiece splits into the same words, but merges consecutive unknown words."""
    words = words_of(text)
    vocabulary = trained["word"]
    (ids,) = vocabulary.encode([text])
    assert len(ids) == len(words)
    assert vocabulary.decode(ids, [w for w, i in zip(words, ids, strict=True) if i == UNK_ID]) == (
        " ".join(words)
    )
    unknown = [i for i, _ in itertools.groupby(ids) if i == UNK_ID]
    merged = vocabulary._processor.encode(unicodedata.normalize("NFC", text))
    assert "▁" in text or merged == [  # SentencePiece takes its mark of a space for a word
        i for key, run in itertools.groupby(ids) for i in ([key] if key == UNK_ID else run)
    ]
    assert vocabulary.decode(ids).split(" ").count(UNKNOWN) >= len(unknown)


def test_unknown_tokens_are_decoded_as_the_given_words(trained: dict[str, Vocabulary]) -> None:
    words = trained["word"]
    known_word = words.tokens([UNK_ID + 5])[0].removeprefix("▁")
    ids = [UNK_ID, UNK_ID, UNK_ID + 5, UNK_ID, EOS_ID]
    assert words.decode(ids, ["x", "y z"]) == f"x y z {known_word} {UNKNOWN}"
    assert words.decode(ids, ["x", "y", "z", "more"]) == f"x y {known_word} z"


@pytest.mark.parametrize("kind", KINDS)
def test_ids_do_not_depend_on_the_other_texts(trained: dict[str, Vocabulary], kind: Kind) -> None:
    vocabulary = trained[kind]
    ids_in_batch = vocabulary.encode(UNUSUAL + SRC[:40])
    assert ids_in_batch == [vocabulary.encode([text])[0] for text in UNUSUAL + SRC[:40]]
    assert vocabulary.encode([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_have_fixed_ids_and_are_not_decoded(
    trained: dict[str, Vocabulary], kind: Kind
) -> None:
    vocabulary = trained[kind]
    assert (PAD_ID, UNK_ID, BOS_ID, EOS_ID) == (0, 1, 2, 3)
    assert vocabulary.tokens([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]
    (ids,) = vocabulary.encode(SRC[:1])
    assert max(ids) < len(vocabulary)
    framed = [BOS_ID, *ids[:2], PAD_ID, *ids[2:], EOS_ID, PAD_ID, PAD_ID]
    assert vocabulary.decode(framed) == vocabulary.decode(ids)
    assert vocabulary.decode([BOS_ID, EOS_ID, PAD_ID]) == ""
    assert vocabulary.decode([]) == ""


def test_tokens_concatenate_to_the_text(trained: dict[str, Vocabulary]) -> None:
    vocabulary = trained["unigram"]
    (ids,) = vocabulary.encode(SRC[:1])
    assert len(vocabulary.tokens(ids)) == len(ids)
    assert "".join(vocabulary.tokens(ids)).replace("▁", " ") == f" {SRC[0]}"


# --------------------------------------------------------------------------------- subword sampling


def test_sampled_ids_decode_to_the_same_text(sampler: Vocabulary) -> None:
    texts = [*UNUSUAL, *SRC]
    usual_ids = sampler.encode(texts)
    for seed in (0, 1, 2**63 + 5):
        samples = sampler.sample(texts, seed)
        assert [sampler.decode(ids) for ids in samples] == [normalized(text) for text in texts]
        assert samples != usual_ids
        assert {type(i) for ids in samples for i in ids} == {int}


def test_samples_of_different_seeds_differ(sampler: Vocabulary) -> None:
    draws = [sampler.sample(SRC, seed) for seed in range(8)]
    assert all(left != right for n, left in enumerate(draws) for right in draws[:n])


def test_stronger_sampling_gives_longer_segmentations() -> None:
    """BPE-dropout skips more merges, so that more tokens are needed."""
    counts = [
        sum(map(len, train("bpe", sampling=share).src.sample(SRC, 1))) for share in (0.1, 0.6)
    ]
    assert counts[0] < counts[1]


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**32, 2**64 + 7])
def test_a_sample_depends_only_on_texts_and_seed(sampler: Vocabulary, seed: int) -> None:
    first = sampler.sample(SRC[:25], seed)
    sampler.sample(TGT[:3], seed + 1)  # other calls in between
    train("bpe", sampling=0.5).src.sample(SRC[:2], 99)
    assert sampler.sample(SRC[:25], seed) == first
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(sampler.sample, SRC[:25], seed).result() == first
    assert Vocabulary(sampler.model, sampler.sampling).sample(SRC[:25], seed) == first


def test_words_evicted_from_the_cache_are_sampled_as_before(
    sampler: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = sampler.sample(SRC, 5)
    monkeypatch.setattr("seq2seq.data.subword_sampling.MAX_NEW_WORDS", 7)
    with_small_cache = Vocabulary(sampler.model, sampler.sampling)
    assert with_small_cache.sample(SRC, 5) == expected
    assert len(with_small_cache._sampler._cached) <= 7
    assert len(with_small_cache._sampler._previous) <= 7


def test_a_part_of_a_large_text_trains_a_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2seq.data.vocabulary.training.MAX_TRAINING_PAIRS", 70)
    config = VocabularyConfig(size=330)
    vocabularies = train_vocabularies(config, SRC, TGT)
    src, tgt = ([side[row] for row in sample_rows(len(SRC), 70)] for side in (SRC, TGT))
    assert vocabularies.src.model == train_vocabularies(config, src, tgt).src.model


def test_concurrent_samples_do_not_affect_each_other(sampler: Vocabulary) -> None:
    one_by_one = [sampler.sample(SRC, seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(5):
            concurrent = list(pool.map(lambda seed: sampler.sample(SRC, seed), range(6)))
            assert concurrent == one_by_one


PROCESS = """
import hashlib, sys
from pathlib import Path
from cases.toy_text import VOWELS, toy_pairs
from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.vocabulary.training import train_vocabularies
src, tgt = toy_pairs(200, seed=4)
config = VocabularyConfig(type=sys.argv[1], size=int(sys.argv[2]), sampling=0.3)
vocabulary = train_vocabularies(config, src, tgt).src
for content in vocabulary.model, repr(vocabulary.sample(src, 11)).encode():
    print(hashlib.sha256(content).hexdigest())
"""


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_another_process_trains_and_samples_identically(kind: Kind) -> None:
    settled = project_environment(Path(__file__).parents[1])
    command = [sys.executable, "-c", PROCESS, kind, str(SIZES[kind])]
    process = subprocess.run(command, env=settled, capture_output=True, check=True, text=True)
    vocabulary = train(kind, sampling=0.3).src
    model = vocabulary.model
    samples = repr(vocabulary.sample(SRC, 11)).encode()
    assert process.stdout.split() == [
        hashlib.sha256(content).hexdigest() for content in (model, samples)
    ]


# ------------------------------------------------------------------------------ training and saving


@pytest.mark.parametrize("kind", KINDS)
def test_training_twice_gives_the_same_bytes(trained: dict[str, Vocabulary], kind: Kind) -> None:
    assert train(kind).src.model == trained[kind].model


def test_joint_is_one_object_and_separate_are_two() -> None:
    joint = train("unigram")
    separate = train("unigram", size=340, joint=False)
    assert joint.joint
    assert joint.src is joint.tgt
    assert not separate.joint
    assert separate.src.model != separate.tgt.model


def test_separate_vocabularies_learn_from_their_own_side() -> None:
    config = VocabularyConfig(type="char", size=300, joint=False)
    src, tgt, _ = train_vocabularies(config, ["aλ bλ aβ"] * 5, ["aж bж aц"] * 5)
    assert len(src.encode(["λ"])[0]) == len(tgt.encode(["ж"])[0]) == 2  # ▁ and the letter
    assert len(src.encode(["ж"])[0]) == len(tgt.encode(["λ"])[0]) == 3  # ▁ and two bytes


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_vocabulary_equals_the_saved_one(tmp_path: Path, kind: Kind, joint: bool) -> None:
    sampling = 0.3 if kind in ("unigram", "bpe") else 0.0
    trained_pair = train(kind, size=335 if kind != "word" else None, joint=joint, sampling=sampling)
    folder = tmp_path / "run" / "vocabulary"
    save_vocabularies(trained_pair, folder)
    names = ["joint.model"] if joint else ["src.model", "tgt.model"]
    assert sorted(path.name for path in folder.iterdir()) == names
    loaded = load_vocabularies(folder, sampling)
    assert loaded.joint == joint
    assert trained_pair.names is loaded.names is None
    for saved_side, loaded_side, texts in zip(
        trained_pair[:2], loaded[:2], (SRC, TGT), strict=True
    ):
        assert loaded_side.model == saved_side.model
        assert len(loaded_side) == len(saved_side)
        assert loaded_side.encode(texts) == saved_side.encode(texts)
        if sampling:
            assert loaded_side.sample(texts, 3) == saved_side.sample(texts, 3)


# ---------------------------------------------------------------------- rejected settings and files


@contextmanager
def refused_size(size: int) -> Iterator[list[int]]:
    """Expect a UserError about vocabulary.size; yield a list that receives the suggested size."""
    numbers: list[int] = []
    with pytest.raises(UserError) as caught:
        yield numbers
    message = one_line(caught)
    assert message.startswith(f"vocabulary.size: {size} ")
    numbers += [int(number) for number in re.findall(r"at (?:most|least) (\d+)", message)]
    assert len(numbers) == 1, message


@pytest.mark.parametrize(("kind", "size"), [("unigram", 30000), ("bpe", 30000)])
def test_a_size_that_is_too_large_is_refused_with_the_maximum(kind: Kind, size: int) -> None:
    with refused_size(size) as numbers:
        train(kind, size)
    (largest,) = numbers
    assert len(train(kind, largest).src) == largest
    with refused_size(largest + 1):
        train(kind, largest + 1)


@pytest.mark.parametrize("kind", OPEN_KINDS)
def test_a_size_that_is_too_small_is_refused_with_the_minimum(kind: Kind) -> None:
    with refused_size(16) as numbers:
        train(kind, 16)
    (smallest,) = numbers
    assert len(train(kind, smallest).src) == smallest
    with refused_size(smallest - 1):
        train(kind, smallest - 1)


SHORT = ["ba ke", "ke ba", "ba"] * 30


@pytest.mark.parametrize(
    ("src", "tgt", "sides"),
    [(SHORT, TGT, "the source text allows"), (SRC, SHORT, "the target text allows")],
)
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_side_with_an_invalid_size_is_named(
    kind: Kind, src: list[str], tgt: list[str], sides: str
) -> None:
    with pytest.raises(UserError) as caught:
        train_vocabularies(VocabularyConfig(type=kind, size=330, joint=False), src, tgt)
    text = re.escape(f"vocabulary.size: 330 is more than {sides}")
    assert re.fullmatch(rf"{text}; set at most \d+", one_line(caught))


@pytest.mark.parametrize("kind", ["word", "char"])
def test_words_and_characters_may_be_fewer_than_the_size(kind: Kind) -> None:
    assert 20 < len(train(kind, 30000).src) < 1000


@pytest.mark.parametrize("name", ["joint", "src", "tgt"])
@pytest.mark.parametrize("damage", ["empty", "cut", "text", "zeros", "longer", "token"])
def test_a_damaged_model_is_refused(
    tmp_path: Path, trained: dict[str, Vocabulary], name: str, damage: str
) -> None:
    joint = Vocabularies(trained["unigram"], trained["unigram"])
    save_vocabularies(
        joint if name == "joint" else Vocabularies(trained["unigram"], trained["bpe"]), tmp_path
    )
    path = tmp_path / f"{name}.model"
    intact = path.read_bytes()
    contents = {
        "empty": b"",
        "cut": intact[:-7],
        "text": b"no model at all\n",
        "zeros": bytes(len(intact)),
        "longer": intact + b"more",
        "token": intact.replace(b"<unk>", b"<\x80nk>", 1),  # not UTF-8
    }
    path.write_bytes(contents[damage])
    with pytest.raises(UserError) as caught:
        load_vocabularies(tmp_path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("present", [None, "src", "tgt"])
def test_a_missing_model_is_refused(
    tmp_path: Path, trained: dict[str, Vocabulary], present: str | None
) -> None:
    if present is not None:
        (tmp_path / f"{present}.model").write_bytes(trained["bpe"].model)
    with pytest.raises(UserError) as caught:
        load_vocabularies(tmp_path)
    missing_side = "tgt" if present == "src" else "src"
    assert one_line(caught).startswith(f"{tmp_path / missing_side}.model: ")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_space_symbol_of_sentencepiece_is_sampled_as_a_space(kind: str) -> None:
    vocabulary = train(kind, sampling=0.3).src
    plain = SRC[0].replace(" ", "  ")
    marked = SRC[0].replace(" ", " \N{LOWER ONE EIGHTH BLOCK} ")
    assert vocabulary.sample([marked], 3) == vocabulary.sample([plain], 3)
    assert vocabulary.sample(["\N{LOWER ONE EIGHTH BLOCK}"], 3) == [[]]


def most_varied(sampler: Vocabulary) -> str:
    """Return the word with the most distinct sampled segmentations."""
    words = sorted({word for text in SRC for word in text.strip(".").split()})
    draws = [{tuple(sampler.sample([word], seed)[0]) for seed in range(20)} for word in words]
    return max(zip(map(len, draws), words, strict=True))[1]


def test_a_word_of_a_pair_has_one_segmentation(sampler: Vocabulary) -> None:
    word = most_varied(sampler)
    src = [f"{word} {SRC[n]}" for n in range(40)]
    tgt = [f"{TGT[n]} {word}" for n in range(40)]
    src_samples, tgt_samples = sampler.sample_pairs(src, tgt, 5)
    assert [sampler.decode(ids) for ids in src_samples] == src
    assert [sampler.decode(ids) for ids in tgt_samples] == tgt
    segmentations = set()
    for ids, tgt_ids in zip(src_samples, tgt_samples, strict=True):
        length = next(n for n in range(1, len(ids)) if sampler.decode(ids[:n]) == word)
        assert tgt_ids[-length:] == ids[:length]
        segmentations.add(tuple(ids[:length]))
    assert len(segmentations) > 1
    sampled_separately = sampler.sample(src, 5), sampler.sample(tgt, 6)
    assert (src_samples, tgt_samples) != sampled_separately
    assert sampler.sample_pairs(src, tgt, 5) == (src_samples, tgt_samples)


def test_words_of_a_pair_match_despite_punctuation() -> None:
    """Tokens of a unigram model never mix letters and punctuation."""
    unigram = train("unigram", sampling=0.3).src
    word = most_varied(unigram)
    for seed in range(20):
        (src,), (tgt,) = unigram.sample_pairs([f"{word}."], [word], seed)
        assert src[: len(tgt)] == tgt


def test_pairs_without_a_common_word_are_sampled_independently(sampler: Vocabulary) -> None:
    src = [text.replace(".", "") for text in SRC[:30] if len({*text.split()}) == len(text.split())]
    tgt = ["zzz " * n for n in range(2)] * len(src)
    assert sampler.sample_pairs(src, tgt[: len(src)], 5)[0] == sampler.sample(src, 5)
