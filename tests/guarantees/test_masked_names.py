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
KNOWN, UNKNOWN = NAMES[:120], NAMES[120:]
LINES = [
    *(f"{name} walks today." for name in UNKNOWN[:6]),
    *(f"The house of {name} sleeps" for name in UNKNOWN[6:12]),
    f"{UNKNOWN[12]} and {UNKNOWN[13]} see the tree.",
    f"{UNKNOWN[14]}'s house sleeps. {UNKNOWN[15]} walks today.",
    "See " + ", ".join(UNKNOWN[16:29]) + ".",
    f"{KNOWN[0]} and {UNKNOWN[29]} see the water.",
    *(
        f"{name} and {other} see the water."
        for name, other in zip(KNOWN, KNOWN[9:20], strict=False)
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


def kept(line: str, text: str) -> list[bool]:
    words = [word.rstrip(",.").removesuffix("'s") for word in line.split()]
    return [spelled(name) in text or name in text for name in NAMES if name in words]


@one_quick("beam_size", [1, 3])
@one_quick("text_only", [False, True])
def test_no_name_is_lost(translator: Translator, beam_size: int, text_only: bool) -> None:
    found = translator.translate(LINES, beam_size, text_only=text_only)
    for line, translation in zip(LINES, found, strict=True):
        words = kept(line, translation.text)
        assert words
        assert all(words), (line, translation.text)
        assert not any("\ufdd0" <= character <= "\ufdd7" for character in translation.text)


@pytest.mark.thorough
def test_translations_do_not_depend_on_the_batch(translator: Translator) -> None:
    together = [each.text for each in translator.translate(LINES)]
    assert [translator.translate([line])[0].text for line in LINES] == together
    assert [each.text for each in translator.translate(LINES[::-1])][::-1] == together


def test_tokens_show_names(translator: Translator) -> None:
    name = UNKNOWN[7]
    (found,) = translator.translate([f"The house of {name} sleeps"], n_best=3)
    assert name in found.src_tokens
    spelling = translator.vocabularies.names.spelling(name)  # type: ignore[union-attr]
    assert spelling in found.tokens
    for entry in found.n_best:
        assert spelling in entry.text
        assert spelling in entry.tokens
    assert found.attention is not None
    assert len(found.attention) == len(found.tokens)
    assert len(found.attention[0]) == len(found.src_tokens)


def test_scores_of_translations_equal_those_of_search(translator: Translator) -> None:
    lines = [line for line in LINES[:14] if translator.translate([line])[0].parts == 1]
    found = translator.translate(lines, beam_size=1)
    scored = score_lines(translator.loaded, lines, [each.text for each in found])
    equal = 0
    for one, other in zip(found, scored, strict=True):
        if other.tokens == one.tokens:  # segmented as search did
            equal += 1
            assert other.score == one.score
    assert equal >= len(lines) // 2


def test_prefixes_with_names_are_kept(translator: Translator) -> None:
    name = UNKNOWN[3]
    names = translator.vocabularies.names
    assert names is not None
    for prefix in (f"{names.spelling(name)}ला ", "ठथ ", f"{names.spelling(name)}"):
        (found,) = translator.translate([f"{name} walks today."], prefixes=[prefix])
        assert found.text.startswith(prefix.rstrip())
        assert found.text.count(names.spelling(name)) == 1


def test_a_glossary_spells_names(translator: Translator) -> None:
    """A name is spelled as given; a phrase that contains a name is required as it is."""
    name = UNKNOWN[5]
    for terms, line, wanted in (
        ([(name, "ऋऋ")], f"The house of {name} sleeps", "ऋऋ"),
        ([(f"house of {name}", "ऋऋ ऌ")], f"The house of {name} sleeps", "ऋऋ ऌ"),
    ):
        settings = SearchSettings(glossary=Glossary(terms))
        (found,) = translator.translate([line], settings=settings)
        assert found.text.count(wanted) == 1
        assert name not in found.text
        assert spelled(name) not in found.text


def test_constraints_and_names_are_both_kept(translator: Translator) -> None:
    name = UNKNOWN[5]
    names = translator.vocabularies.names
    assert names is not None
    for phrases in (["ठथ घठछ"], [names.spelling(name)], ["झडढ", "थघ थघ"]):
        (found,) = translator.translate([f"The house of {name} sleeps"], constraints=[phrases])
        assert all(found.text.count(phrase) >= 1 for phrase in phrases)
        assert found.text.count(names.spelling(name)) == 1


@pytest.mark.thorough
def test_commands_agree(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Translate, its ensembles, evaluate, average and resume work on a run with names."""
    source, reference = tmp_path / "in.txt", tmp_path / "ref.txt"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    reference.write_text("ठथ\n" * len(LINES), encoding="utf-8")
    averaged = tmp_path / "averaged"

    def output(*options: str | Path) -> str:
        assert main(["translate", "-i", str(source), *map(str, options)]) == 0
        return capsys.readouterr().out

    assert main(["average", str(run), "-o", str(averaged)]) == 0
    capsys.readouterr()
    for runs in ((run,), (averaged,), (run, averaged)):
        models: Sequence[str | Path] = [part for each in runs for part in ("-m", each)]
        for line, text in zip(LINES, output(*models).splitlines(), strict=True):
            assert all(kept(line, text)), (line, text)
    objects = [json.loads(line) for line in output("-m", run, "--json").splitlines()]
    assert [each["text"] for each in objects] == output("-m", run).splitlines()
    hypotheses = tmp_path / "hyp.txt"
    options = ["-i", str(source), "-r", str(reference), "-o", str(hypotheses)]
    assert main(["evaluate", "-m", str(run), *options]) == 0
    capsys.readouterr()
    assert hypotheses.read_text(encoding="utf-8") == output("-m", run)


@pytest.mark.thorough
def test_a_synthetic_corpus_has_only_spellings(run: Path, tmp_path: Path) -> None:
    """A student model would otherwise learn to write a name after its placeholder."""
    source, pairs = tmp_path / "in.txt", tmp_path / "pairs.tsv"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    assert main(["translate", "-m", str(run), "-i", str(source), "-o", str(tmp_path / "out")]) == 0
    shown = (tmp_path / "out").read_text(encoding="utf-8")
    unsure = [name for name in UNKNOWN if f" ({name})" in shown]
    assert unsure
    call = ["-m", str(run), "-i", str(source), "-o", str(pairs), "--overwrite"]
    for command in ("distill", "back-translate"):
        assert main([command, *call]) == 0
        found = pairs.read_text(encoding="utf-8")
        assert [name for name in unsure if f"({name})" in found] == []
        texts = found.splitlines()
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
    chosen = [*UNKNOWN[:8], *KNOWN[:8]]
    lines = [f"{name} walks today." for name in chosen]
    free = translator.translate(lines, beam_size)
    words = [
        (spelling, name, *(word for word in found.text.strip(".").split() if spelling in word))
        for spelling, name, found in zip(map(names.spelling, chosen), chosen, free, strict=True)
    ]  # also with the ending that the translation has
    automata = [Forbidden(translator.vocabularies.tgt, each) for each in words]
    settings = SearchSettings(forbidden=tuple(word for each in words for word in each))
    count = sum(one.occurs_in(each.text) for one, each in zip(automata, free, strict=True))
    assert count > len(lines) // 2
    found = translator.translate(lines, beam_size, settings=settings)
    for one, each in zip(automata, found, strict=True):
        assert not one.occurs_in(each.text)
    for line, (spelling, *_), one in zip(lines[6:10], words[6:10], automata[6:10], strict=True):
        (kept,) = translator.translate(
            [line], beam_size, prefixes=[f"{spelling} "], settings=settings
        )
        assert f"{kept.text} ".startswith(f"{spelling} ")
        assert not one.occurs_in(kept.text.removeprefix(spelling))
    begun = translator.translate(lines, beam_size, prefixes=["ठथ "] * 16, settings=settings)
    for one, each in zip(automata, begun, strict=True):
        assert not one.occurs_in(each.text)


@pytest.mark.thorough
def test_a_name_with_a_forbidden_ending_does_not_occur(translator: Translator) -> None:
    names = translator.vocabularies.names
    assert names is not None
    lines = [f"{name} walks today." for name in UNKNOWN]
    free = translator.translate(lines)
    words = [found.text.strip(".").split() for found in free]
    ended = [
        [word for word in each if spelling in word and word != spelling]
        for spelling, each in zip(map(names.spelling, UNKNOWN), words, strict=True)
    ]
    assert sum(map(bool, ended)) > 5
    settings = SearchSettings(forbidden=tuple(word for each in ended for word in each))
    for each, found in zip(ended, translator.translate(lines, settings=settings), strict=True):
        assert not set(each) & set(found.text.strip(".").split())


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
        found = translator.translate(
            [LINES[row] for row in rows],
            None if settings.sampling else 4,
            constraints=[phrases[row] for row in rows] if name == "constraints" else None,
            settings=settings,
        )
        return [(each.text, each.score, each.tokens) for each in found]

    together = translated(range(len(LINES)))
    for row, (line, (text, _, _)) in enumerate(zip(LINES, together, strict=True)):
        if name != "glossary":
            assert all(kept(line, text)), row
        if name == "constraints":
            assert all(phrase in text.split() for phrase in phrases[row])
    for size in (1, 7):
        order = random.Random(size).sample(range(len(LINES)), len(LINES))
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            assert translated(rows) == [together[row] for row in rows]


def test_a_line_without_letters_is_copied_by_a_model_with_names(translator: Translator) -> None:
    assert not translator.source.wordless
    copy = translator.translate("- 12 -")
    assert (copy.text, copy.notes) == ("- 12 -", ["no letters, unlike the training text; copied"])
