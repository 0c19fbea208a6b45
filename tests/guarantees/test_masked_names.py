"""Names in training and translation: no name is lost, however little the model has learned."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from cases.tiers import one_quick
from cases.toy_names import name_pairs, some_names, spelled

from seq2seq.__main__ import main
from seq2seq.config.schema import load_config
from seq2seq.engines.engine import Sampling
from seq2seq.inference.scoring import score_lines
from seq2seq.inference.search.forbidden import Forbidden
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.text.glossary import Glossary
from seq2seq.training.loop import train

NAMES = some_names(150, seed=1)
KNOWN = NAMES[:120]
UNKNOWN = NAMES[120:]
LINES = [
    *(f"{name} walks today." for name in UNKNOWN[:6]),
    *(f"The house of {name} sleeps" for name in UNKNOWN[6:12]),
    f"{UNKNOWN[12]} and {UNKNOWN[13]} see the tree.",
    f"{UNKNOWN[14]}'s house sleeps. {UNKNOWN[15]} walks today.",
    "See " + ", ".join(UNKNOWN[16:29]) + ".",
    f"{KNOWN[0]} and {UNKNOWN[29]} see the water.",
    *(
        f"{name} and {companion} see the water."
        for name, companion in zip(KNOWN, KNOWN[9:20], strict=False)
    ),
    " ".join(f"The house of {name} sleeps today and the water walks" for name in UNKNOWN[:9]),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run for 120 steps."""
    folder = tmp_path_factory.mktemp("names")
    for split, count in (("train", 900), ("valid", 20)):
        pairs = name_pairs(KNOWN, count, seed=len(split))
        text = "".join(f"{pair.src}\t{pair.tgt}\n" for pair in pairs)
        (folder / f"{split}.tsv").write_text(text, encoding="utf-8")
    listed = folder / "names.txt"
    listed.write_text("".join(f"{spelled(name)}\n" for name in UNKNOWN[::9]), encoding="utf-8")
    config = folder / "config.yaml"
    config.write_text(
        f"""\
name: names
run_dir: {folder.as_posix()}/run
data:
  src_lang: xx
  tgt_lang: mr
  train: {{file: {folder.as_posix()}/train.tsv}}
  valid: {{file: {folder.as_posix()}/valid.tsv}}
  max_length: 30
vocabulary: {{size: 310, names: {{placeholders: {listed.as_posix()}}}, sampling: 0.5}}
model: {{embedding_size: 24, hidden_size: 32, dropout: 0.1}}
training: {{max_steps: 120, batch_tokens: 400, learning_rate: 1e-2, validate_every: 60, keep: 2,
           precision: float32}}
decoding: {{beam_size: 3}}
""",
        encoding="utf-8",
    )
    train(load_config(config), device="cpu")
    return folder / "run"


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return Translator.load(run, device="cpu")


def names_of(line: str) -> list[str]:
    return [name for name in NAMES if name in line.replace(".", " ").replace(",", " ").split()]


def names_kept(line: str, text: str) -> list[bool]:
    words = [word.rstrip(",.").removesuffix("'s") for word in line.split()]
    return [spelled(name) in text or name in text for name in NAMES if name in words]


@one_quick("beam_size", [1, 3])
@one_quick("text_only", [False, True])
def test_no_name_is_lost(translator: Translator, beam_size: int, text_only: bool) -> None:
    translations = translator.translate(LINES, beam_size, text_only=text_only)
    for line, translation in zip(LINES, translations, strict=True):
        words = names_kept(line, translation.text)
        assert words
        assert all(words), (line, translation.text)
        assert not any("\ufdd0" <= character <= "\ufdd7" for character in translation.text)


@pytest.mark.thorough
def test_translations_do_not_depend_on_the_batch(translator: Translator) -> None:
    in_one_batch = [translation.text for translation in translator.translate(LINES)]
    assert [translator.translate([line])[0].text for line in LINES] == in_one_batch
    assert [translation.text for translation in translator.translate(LINES[::-1])][
        ::-1
    ] == in_one_batch


def test_tokens_show_names(translator: Translator) -> None:
    name = UNKNOWN[7]
    (translation,) = translator.translate([f"The house of {name} sleeps"], n_best=3)
    assert name in translation.src_tokens
    spelling = translator.vocabularies.names.spelling(name)  # type: ignore[union-attr]
    assert spelling in translation.tokens
    for entry in translation.n_best:
        assert spelling in entry.text
        assert spelling in entry.tokens
    assert translation.attention is not None
    assert len(translation.attention) == len(translation.tokens)
    assert len(translation.attention[0]) == len(translation.src_tokens)


def test_scores_of_translations_equal_those_of_search(translator: Translator) -> None:
    lines = [line for line in LINES[:14] if translator.translate([line])[0].parts == 1]
    translations = translator.translate(lines, beam_size=1)
    scored = score_lines(
        translator.loaded, lines, [translation.text for translation in translations]
    )
    equal = 0
    for translated, scored_line in zip(translations, scored, strict=True):
        if scored_line.tokens == translated.tokens:  # segmented as search did
            equal += 1
            assert scored_line.score == translated.score
    assert equal >= len(lines) // 2


def test_prefixes_with_names_are_kept(translator: Translator) -> None:
    name = UNKNOWN[3]
    names = translator.vocabularies.names
    assert names is not None
    for prefix in (f"{names.spelling(name)}ला ", "ठथ ", f"{names.spelling(name)}"):
        (translation,) = translator.translate([f"{name} walks today."], prefixes=[prefix])
        assert translation.text.startswith(prefix.rstrip())
        assert translation.text.count(names.spelling(name)) == 1


def test_a_glossary_spells_names(translator: Translator) -> None:
    """A name is spelled as given; a phrase that contains a name is required as it is."""
    name = UNKNOWN[5]
    for terms, line, expected in (
        ([(name, "ऋऋ")], f"The house of {name} sleeps", "ऋऋ"),
        ([(f"house of {name}", "ऋऋ ऌ")], f"The house of {name} sleeps", "ऋऋ ऌ"),
    ):
        settings = SearchSettings(glossary=Glossary(terms))
        (translation,) = translator.translate([line], settings=settings)
        assert translation.text.count(expected) == 1
        assert name not in translation.text
        assert spelled(name) not in translation.text


def test_constraints_and_names_are_both_kept(translator: Translator) -> None:
    name = UNKNOWN[5]
    names = translator.vocabularies.names
    assert names is not None
    for phrases in (["ठथ घठछ"], [names.spelling(name)], ["झडढ", "थघ थघ"]):
        (translation,) = translator.translate(
            [f"The house of {name} sleeps"], constraints=[phrases]
        )
        assert all(translation.text.count(phrase) >= 1 for phrase in phrases)
        assert translation.text.count(names.spelling(name)) == 1


@pytest.mark.thorough
def test_commands_agree(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Translate, its ensembles, evaluate, average and resume work on a run with names."""
    source = tmp_path / "in.txt"
    reference = tmp_path / "ref.txt"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    reference.write_text("ठथ\n" * len(LINES), encoding="utf-8")
    averaged = tmp_path / "averaged"

    def output(*options: str | Path) -> str:
        assert main(["translate", "-i", str(source), *map(str, options)]) == 0
        return capsys.readouterr().out

    assert main(["average", str(run), "-o", str(averaged)]) == 0
    capsys.readouterr()
    for runs in ((run,), (averaged,), (run, averaged)):
        models: Sequence[str | Path] = [part for run_path in runs for part in ("-m", run_path)]
        for line, text in zip(LINES, output(*models).splitlines(), strict=True):
            assert all(names_kept(line, text)), (line, text)
    objects = [json.loads(line) for line in output("-m", run, "--json").splitlines()]
    assert [fields["text"] for fields in objects] == output("-m", run).splitlines()
    hypotheses = tmp_path / "hyp.txt"
    options = ["-i", str(source), "-r", str(reference), "-o", str(hypotheses)]
    assert main(["evaluate", "-m", str(run), *options]) == 0
    capsys.readouterr()
    assert hypotheses.read_text(encoding="utf-8") == output("-m", run)


@pytest.mark.thorough
def test_a_synthetic_corpus_has_only_spellings(run: Path, tmp_path: Path) -> None:
    """A student model would otherwise learn to write a name after its placeholder."""
    source = tmp_path / "in.txt"
    pairs = tmp_path / "pairs.tsv"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    assert main(["translate", "-m", str(run), "-i", str(source), "-o", str(tmp_path / "out")]) == 0
    output_text = (tmp_path / "out").read_text(encoding="utf-8")
    unsure = [name for name in UNKNOWN if f" ({name})" in output_text]
    assert unsure
    call = ["-m", str(run), "-i", str(source), "-o", str(pairs), "--overwrite"]
    for command in ("distill", "back-translate"):
        assert main([command, *call]) == 0
        pairs_text = pairs.read_text(encoding="utf-8")
        assert [name for name in unsure if f"({name})" in pairs_text] == []
        texts = pairs_text.splitlines()
        for line, text in zip(LINES, texts, strict=True):
            assert all(spelled(name) in text or name in text for name in names_of(line))


@pytest.mark.thorough
def test_resumed_training_is_the_same(run: Path, tmp_path: Path) -> None:
    config = load_config(run / "config.yaml")
    names = []
    for name, steps in (("once", (40,)), ("twice", (20, 40))):
        for step in steps:
            training = config.training.model_copy(update={"max_steps": step})
            changed = config.model_copy(update={"run_dir": tmp_path / name, "training": training})
            train(changed, device="cpu", resume=step != steps[0])
        names.append((tmp_path / name / "vocabulary" / "names.json").read_bytes())
    assert names[0] == names[1] == (run / "vocabulary" / "names.json").read_bytes()
    lines = [
        (tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("once", "twice")
    ]
    assert lines[0][-1] == lines[1][-1]


@pytest.mark.parametrize("beam_size", [1, 3])
def test_forbidden_spellings_of_names_do_not_occur(translator: Translator, beam_size: int) -> None:
    """Names that are masked, names that the model learned as words, and names of a prefix."""
    names = translator.vocabularies.names
    assert names is not None
    forbidden_names = [*UNKNOWN[:8], *KNOWN[:8]]
    lines = [f"{name} walks today." for name in forbidden_names]
    unconstrained = translator.translate(lines, beam_size)
    words = [
        (
            spelling,
            name,
            *(word for word in translation.text.strip(".").split() if spelling in word),
        )
        for spelling, name, translation in zip(
            map(names.spelling, forbidden_names), forbidden_names, unconstrained, strict=True
        )
    ]  # also with the ending that the translation has
    automata = [Forbidden(translator.vocabularies.tgt, words_of_name) for words_of_name in words]
    settings = SearchSettings(
        forbidden=tuple(word for words_of_name in words for word in words_of_name)
    )
    count = sum(
        automaton.occurs_in(translation.text)
        for automaton, translation in zip(automata, unconstrained, strict=True)
    )
    assert count > len(lines) // 2
    translations = translator.translate(lines, beam_size, settings=settings)
    for automaton, translation in zip(automata, translations, strict=True):
        assert not automaton.occurs_in(translation.text)
    for line, (spelling, *_), automaton in zip(
        lines[6:10], words[6:10], automata[6:10], strict=True
    ):
        (with_prefix,) = translator.translate(
            [line], beam_size, prefixes=[f"{spelling} "], settings=settings
        )
        assert f"{with_prefix.text} ".startswith(f"{spelling} ")
        assert not automaton.occurs_in(with_prefix.text.removeprefix(spelling))
    prefixed = translator.translate(lines, beam_size, prefixes=["ठथ "] * 16, settings=settings)
    for automaton, translation in zip(automata, prefixed, strict=True):
        assert not automaton.occurs_in(translation.text)


@pytest.mark.thorough
def test_a_name_with_a_forbidden_ending_does_not_occur(translator: Translator) -> None:
    names = translator.vocabularies.names
    assert names is not None
    lines = [f"{name} walks today." for name in UNKNOWN]
    unconstrained = translator.translate(lines)
    words = [translation.text.strip(".").split() for translation in unconstrained]
    ended = [
        [word for word in words_of_line if spelling in word and word != spelling]
        for spelling, words_of_line in zip(map(names.spelling, UNKNOWN), words, strict=True)
    ]
    assert sum(map(bool, ended)) > 5
    settings = SearchSettings(
        forbidden=tuple(word for words_of_line in ended for word in words_of_line)
    )
    for words_of_line, translation in zip(
        ended, translator.translate(lines, settings=settings), strict=True
    ):
        assert not set(words_of_line) & set(translation.text.strip(".").split())


SETTINGS = {
    "constraints": SearchSettings(forbidden=("\u0918\u0930",)),
    "sampling": SearchSettings(sampling=Sampling(3, temperature=0.8), mbr="chrf"),
    "glossary": SearchSettings(
        glossary=Glossary([(UNKNOWN[0], "\u0905\u092c"), ("house", "\u0916")])
    ),
    "groups": SearchSettings(groups=2),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", SETTINGS)
def test_names_and_other_settings_do_not_depend_on_the_batch(
    translator: Translator, name: str
) -> None:
    settings = SETTINGS[name]
    phrases = [["\u0905\u092c"] if row % 2 else [] for row in range(len(LINES))]

    def translated(rows: Sequence[int]) -> list[tuple[str, float, list[str]]]:
        translations = translator.translate(
            [LINES[row] for row in rows],
            None if settings.sampling else 4,
            constraints=[phrases[row] for row in rows] if name == "constraints" else None,
            settings=settings,
        )
        return [
            (translation.text, translation.score, translation.tokens)
            for translation in translations
        ]

    in_one_batch = translated(range(len(LINES)))
    for row, (line, (text, _, _)) in enumerate(zip(LINES, in_one_batch, strict=True)):
        if name != "glossary":
            assert all(names_kept(line, text)), row
        if name == "constraints":
            assert all(phrase in text.split() for phrase in phrases[row])
    for size in (1, 7):
        order = random.Random(size).sample(range(len(LINES)), len(LINES))
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            assert translated(rows) == [in_one_batch[row] for row in rows]


def test_a_line_without_letters_is_copied_by_a_model_with_names(translator: Translator) -> None:
    assert not translator.source.wordless
    copy = translator.translate("- 12 -")
    assert (copy.text, copy.notes) == ("- 12 -", ["no letters, unlike the training text; copied"])
