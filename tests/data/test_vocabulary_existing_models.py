"""Existing SentencePiece models: identical segmentation, our special tokens, clear errors."""

from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from cases.sentencepiece_models import trained
from cases.toy_text import toy_pairs

from seq2seq.config.schema import VocabularyConfig
from seq2seq.data.vocabulary.training import (
    MAX_AUTO_SIZE,
    auto_size,
    train_vocabularies,
    vocabulary_notes,
)
from seq2seq.data.vocabulary.vocabulary import NAME_IDS, Vocabularies, read_model
from seq2seq.runtime.errors import UserError
from seq2seq.text.line_properties import leading_tags
from seq2seq.text.names.words import PLACEHOLDERS

SRC, TGT = toy_pairs(300, seed=1)
Processor = sentencepiece.SentencePieceProcessor


def read(path: Path, **keys: Any) -> Vocabularies:
    config = VocabularyConfig.model_validate({"model": [path], **keys})
    return train_vocabularies(config, SRC, TGT)


SETTINGS: dict[str, dict[str, Any]] = {
    "unigram": {},
    "bpe": {"model_type": "bpe"},
    "char": {"model_type": "char"},
    "mT5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "BERT": {
        **{"pad_id": 3, "pad_piece": "[PAD]", "unk_piece": "[UNK]", "unk_id": 2},
        **{"bos_id": 0, "bos_piece": "[CLS]", "eos_id": 1, "eos_piece": "[SEP]"},
    },
    "symbols": {"user_defined_symbols": ["<num>"], "control_symbols": ["<2fr>", "<mask>"]},
    "bytes": {"byte_fallback": True, "vocab_size": 380},
    "across spaces": {"model_type": "bpe", "split_by_whitespace": False},
    "case-folded": {"normalization_rule_name": "nfkc_cf"},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_segmentation_equals_that_of_the_model(tmp_path: Path, settings: dict[str, Any]) -> None:
    model = trained(tmp_path / "a.model", **settings)
    vocabulary = read(tmp_path / "a.model").src
    assert vocabulary.tokens(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
    for text in SRC:
        (ids,) = vocabulary.encode([text])
        assert vocabulary.tokens(ids) == model.encode(text, out_type=str)
        assert vocabulary.decode(ids) == model.decode(model.encode(text))
    (ids,) = vocabulary.encode(["日 bu"])  # encoded as bytes, not unknown
    assert vocabulary.decode(ids) == "日 bu"
    scores = {model.id_to_piece(i): model.get_score(i) for i in range(len(model))}
    tokens = read_model(vocabulary.model).pieces
    assert {t.piece: t.score for t in tokens if t.piece in scores and t.type == 1} == {
        text: score
        for text, score in scores.items()
        if text not in ("<unk>", "<s>", "</s>", "<pad>", "[UNK]", "[CLS]", "[SEP]", "[PAD]")
        and not text.startswith(("<0x", "<num>", "<2fr>", "<mask>"))
    }
    assert Processor(model_proto=vocabulary.model).eos_id() == 3


def test_a_model_of_words_has_unknown_words(tmp_path: Path) -> None:
    model = trained(tmp_path / "a.model", model_type="word")
    vocabulary = read(tmp_path / "a.model").src
    known_word = model.id_to_piece(5).removeprefix("\u2581")
    (ids,) = vocabulary.encode([f"{known_word} zzz qqq {known_word}"])
    assert ids[1:3] == [1, 1]
    assert vocabulary.tokens(ids[::3]) == [f"\u2581{known_word}"] * 2
    assert vocabulary.decode(ids, ["x", "y"]) == f"{known_word} x y {known_word}"


def test_a_model_of_this_project_keeps_its_ids(tmp_path: Path) -> None:
    config = VocabularyConfig(size=340)
    ours = train_vocabularies(config, SRC, TGT).src
    (tmp_path / "joint.model").write_bytes(ours.model)
    again = read(tmp_path / "joint.model", symbols=["<2fr>"]).src
    assert again.tokens(range(340)) == ours.tokens(range(340))
    assert again.tokens(range(340, len(again))) == ["\u2581<2fr>", "<2fr>"]
    assert again.encode(SRC) == ours.encode(SRC)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "case-folded", "symbols"])
def test_an_existing_model_can_sample(tmp_path: Path, kind: str) -> None:
    trained(tmp_path / "a.model", **SETTINGS[kind])
    rate = 0.05 if kind != "bpe" else 0.3
    vocabulary = read(tmp_path / "a.model", sampling=rate, symbols=["<num>", "<2fr>"]).src
    texts = [f"<2fr> Bu\ufb01{text} <num>" for text in SRC[:100]]
    plain = vocabulary.encode(texts)
    samples = vocabulary.sample(texts, seed=1)
    assert plain != samples
    assert [*map(vocabulary.decode, plain)] == [*map(vocabulary.decode, samples)]
    assert all(vocabulary.tokens(ids)[0] == "\u2581<2fr>" for ids in samples)


def test_symbols_of_the_config_and_of_the_model_are_single_tokens(tmp_path: Path) -> None:
    trained(tmp_path / "a.model", **SETTINGS["symbols"])
    vocabulary = read(tmp_path / "a.model", symbols=["<2fr>", "@x@"]).src
    assert set(vocabulary.symbols) == {"<num>", "<2fr>", "@x@"}
    (ids,) = vocabulary.encode(["<2fr> bu@x@<num>"])
    tokens = vocabulary.tokens(ids)
    assert (tokens[0], tokens[-2:]) == ("\u2581<2fr>", ["@x@", "<num>"])
    assert vocabulary.decode(ids) == "<2fr> bu@x@<num>"


def test_tags_and_names_get_tokens(tmp_path: Path) -> None:
    trained(tmp_path / "a.model")
    config = VocabularyConfig.model_validate({"model": [tmp_path / "a.model"]})
    vocabulary = train_vocabularies(config, SRC, TGT, ["<bt>"]).src
    assert leading_tags("<bt> bu", vocabulary.symbols) == "<bt>"
    from seq2seq.data.vocabulary.training import existing_vocabularies

    with_names = existing_vocabularies(
        VocabularyConfig.model_validate({**config.model_dump(), "names": "placeholders"})
    ).src
    assert with_names.tokens(NAME_IDS) == [*PLACEHOLDERS]


def test_two_models_belong_to_source_and_target(tmp_path: Path) -> None:
    trained(tmp_path / "a.model", SRC)
    trained(tmp_path / "b.model", TGT, model_type="bpe")
    pair = [tmp_path / "a.model", tmp_path / "b.model"]
    src, tgt, _ = read(pair[0], model=pair, joint=False)
    assert src.tokens(range(len(src))) != tgt.tokens(range(len(tgt)))
    assert "!" in tgt.tokens(range(len(tgt)))
    vocabularies = read(pair[0], joint=False)
    assert vocabularies.src is not vocabularies.tgt
    assert vocabularies.src.model == vocabularies.tgt.model == src.model


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"add_dummy_prefix": False}, "does not put a space before the first word"),
        ({"treat_whitespace_as_suffix": True}, "does not put a space before the first word"),
    ],
)
def test_unsuitable_models_are_refused(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    trained(tmp_path / "a.model", **settings)
    with pytest.raises(UserError, match=rf"^vocabulary\.model: .*a\.model {reason}") as caught:
        read(tmp_path / "a.model")
    assert "\n" not in str(caught.value)


def test_files_that_are_not_models_are_refused(tmp_path: Path) -> None:
    for name, content in (("a.model", b""), ("b.model", b"text"), ("c.model", b"\x0a\xff\xff")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=rf"{name} is not a SentencePiece model$"):
            read(tmp_path / name)
    with pytest.raises(UserError, match=r"missing\.model cannot be read \(No such file"):
        read(tmp_path / "missing.model")
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory"):
        read(tmp_path)
    trained(tmp_path / "good.model")
    content = (tmp_path / "good.model").read_bytes()
    for length in range(1, len(content), 97):
        (tmp_path / "cut.model").write_bytes(content[:length])
        try:
            read(tmp_path / "cut.model")
        except UserError as error:
            assert "cut.model is not a SentencePiece model" in str(error)  # noqa: PT017


# ------------------------------------------------------------------------------------- size: auto


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("pairs", [20, 300])
def test_auto_chooses_a_size_that_the_text_allows(kind: str, joint: bool, pairs: int) -> None:
    settings = {"type": kind, "size": "auto", "joint": joint}
    config = VocabularyConfig.model_validate(settings)
    src, tgt, _ = train_vocabularies(config, SRC[:pairs], TGT[:pairs])
    again = train_vocabularies(config, SRC[:pairs], TGT[:pairs])
    assert src.model == again.src.model
    letters = len(set("".join(SRC[:pairs])))
    for vocabulary in (src, tgt):
        assert 260 + letters <= len(vocabulary) <= auto_size(pairs, 30)
    sizes = f"{len(src):,}" if joint else f"{len(src):,} and {len(tgt):,}"
    notes = vocabulary_notes(config, Vocabularies(src, tgt))
    assert notes == [f"vocabulary.size: auto chose {sizes} tokens"]


def test_an_automatic_word_vocabulary_has_the_words_that_occur_twice() -> None:
    config = VocabularyConfig.model_validate({"type": "word", "size": "auto"})
    words = [f"w{n}" for n in range(200)]
    texts = [" ".join(words), " ".join(words[:150])]
    vocabulary = train_vocabularies(config, texts[:1], texts[1:]).src
    assert {*vocabulary.tokens(range(4, len(vocabulary)))} == {f"\u2581{w}" for w in words[:150]}


def test_the_automatic_size_grows_with_the_text() -> None:
    assert auto_size(40_000, 90) == 4000
    sizes = [auto_size(10**n, 90) for n in range(1, 9)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (440, MAX_AUTO_SIZE)
    assert auto_size(40_000, 3000) == 6260
