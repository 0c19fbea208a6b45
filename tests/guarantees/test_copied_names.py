"""Training with copying on a corpus with names: invented names and constrained search."""

from dataclasses import replace
from pathlib import Path

import pytest
from cases.toy_text import write_small_corpus
from cases.trainings import BASE, fingerprint, trained

from seq2seq.engines.engine import Sampling
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.text.source_profile import SourceProfile

SHORT = (*BASE, "training.validate_every=4")
COPYING = (*SHORT, "model.copy=true", "vocabulary.sampling=0.3")


@pytest.fixture
def named_corpus(small_corpus: Path) -> Path:
    """The small corpus with a name at the start of each training line."""
    for side in ("src", "tgt"):
        (path,) = small_corpus.parent.glob(f"train*.{side}")
        lines = path.read_text(encoding="utf-8").splitlines()
        with_names = [f"{('Tomek', 'Maria')[n % 2]} {line}" for n, line in enumerate(lines)]
        path.write_text("\n".join(with_names) + "\n", encoding="utf-8")
    return small_corpus


@pytest.mark.thorough
@pytest.mark.usefixtures("no_engine", "short_sentences")
def test_invented_names_change_training_and_are_reproducible(named_corpus: Path) -> None:
    invented = (*COPYING, "vocabulary.names.invented=0.9")
    prints = [
        fingerprint(trained(named_corpus, *keys, run=f"run{n}"))
        for n, keys in enumerate((COPYING, invented, invented))
    ]
    assert prints[0] != prints[1]
    assert prints[1] == prints[2]


@pytest.mark.thorough
@pytest.mark.usefixtures("no_engine", "short_sentences")
def test_names_are_invented_without_sampled_segmentations(named_corpus: Path) -> None:
    plain = fingerprint(trained(named_corpus, *SHORT, run="plain"))
    keys = (*SHORT, "vocabulary.names.invented=0.9")
    assert fingerprint(trained(named_corpus, *keys, run="invented")) != plain


@pytest.mark.thorough
def test_a_run_with_copying_translates(named_corpus: Path) -> None:
    run = trained(named_corpus, *COPYING)
    translations = Translator.load(run, device="cpu").translate(["Tomek ba", "Maria."], 3)
    assert all(
        translation.text and translation.attention is not None for translation in translations
    )


LINES = ["Jorvik ba", "Ka Ob's 47", "ba a@b.c", "Maria ba Tjo"]
WORDS = [["Jorvik"], ["Ob", "47"], ["a@b.c"], ["Maria", "Tjo"]]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """A barely trained model with the source profile of a text with names."""
    config = write_small_corpus(tmp_path_factory.mktemp("copied"))
    for side in ("src", "tgt"):
        (path,) = config.parent.glob(f"train*.{side}")
        lines = path.read_text(encoding="utf-8").splitlines()
        names = [f"{a}{b}ix" for a in ("Ob", "As", "Ver", "Get") for b in ("el", "ter", "op")]
        with_names = [f"{name} {line}" for name, line in zip(names, lines, strict=False)]
        with_names += [f"Maria {line}" for line in lines[len(names) :]]
        path.write_text("\n".join(with_names) + "\n", encoding="utf-8")
    return Translator.load(trained(config, *COPYING), device="cpu")


def texts(translation: Translation) -> list[tuple[str, float]]:
    return [(entry.text, entry.score) for entry in translation.n_best]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_words_to_copy_are_in_the_translation(translator: Translator, beam_size: int) -> None:
    translations = translator.translate([*LINES, "ba ka", ""], beam_size)
    for translation, words in zip(translations, WORDS, strict=False):
        assert all(word in translation.text for word in words)
    single_translations = [translator.translate([line], beam_size)[0] for line in LINES[:2]]
    assert [texts(translation) for translation in single_translations] == [
        texts(translation) for translation in translations[:2]
    ]


def test_words_are_lost_without_the_source_profile(translator: Translator) -> None:
    plain = Translator(replace(translator.loaded, source=SourceProfile()))
    texts = [translation.text for translation in plain.translate(LINES, 3)]
    assert not all(word in text for text, words in zip(texts, WORDS, strict=True) for word in words)


def test_words_are_added_to_user_constraints_unless_forbidden(translator: Translator) -> None:
    settings = SearchSettings(forbidden=("Tjo",))
    constraints: list[list[str]] = [["zu zu"], [], [], ["Maria"]]
    translations = translator.translate(LINES, 3, constraints=constraints, settings=settings)
    assert "zu zu" in translations[0].text
    assert "Jorvik" in translations[0].text
    assert "Maria" in translations[3].text
    assert "Tjo" not in translations[3].text


def test_samples_are_not_constrained(translator: Translator) -> None:
    settings = SearchSettings(sampling=Sampling())
    source = replace(translator.source, translated=[], copied_forms=[], translated_forms=[])
    plain = Translator(replace(translator.loaded, source=source))
    assert [translation.text for translation in translator.translate(LINES, settings=settings)] == [
        translation.text for translation in plain.translate(LINES, settings=settings)
    ]
