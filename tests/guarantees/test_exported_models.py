"""Exported models against the runs they were exported from: search, settings, error messages."""

import copy
import errno
import functools
import json
import math
import os
import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases.random_lines import fuzz_lines
from cases.tiers import one_quick, quick_values
from cases.tiny_runs import DECODERS, tiny_config
from cases.toy_names import name_pairs, some_names
from cases.toy_text import toy_pairs, toy_words

from seq2seq.config.corpora import NamesConfig
from seq2seq.config.schema import Config
from seq2seq.data.length_limit import LengthLimit
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import EOS_ID, Vocabularies
from seq2seq.inference.loaded_model import ModelOptions
from seq2seq.inference.loaders import by_torch
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translation import Translation
from seq2seq.inference.translator import Translator
from seq2seq.model.seq2seq import named_weights
from seq2seq.model.trusted_scores import VARIABLE
from seq2seq.runs import graphs as export_module
from seq2seq.runs.checkpoint import create_run, new_model, save_weights, weights_header
from seq2seq.runs.graphs import export_runs
from seq2seq.runs.layout import BEST
from seq2seq.runs.run_config import SOURCE, provenance_of
from seq2seq.runtime.errors import RunError, UserError
from seq2seq.text.glossary import Glossary
from seq2seq.text.source_profile import NO_PROFILE, SourceProfile

TIE = 1e-4  # largest difference of scores, in nats, and of attention weights
FUZZ_LINES = [line.decode(errors="replace") for line in fuzz_lines(30, seed=5)]
LINES = [*toy_pairs(20, seed=3)[0], *FUZZ_LINES]
PREFIXES = [word if number % 3 else "" for number, word in enumerate(toy_words(len(LINES)))]
OVERRIDES = [
    "decoding.length_penalty=0.6",
    "decoding.coverage_penalty=0.4",
    "decoding.no_repeat_ngram=1",
    "decoding.no_repeat_ngram=2",
    "decoding.repetition_penalty=1.5",
    "decoding.min_length=6",
    "decoding.max_length=3",
]


def make_run(
    folder: Path,
    vocabularies: Vocabularies,
    seed: int = 0,
    source: SourceProfile = NO_PROFILE,
    scale: float = 2,
    factors: Mapping[str, float] | None = None,
    **sections: Any,
) -> Path:
    """Create a run with large random weights, whose translations depend on their source and end.

    Larger weights amplify the rounding of different kernels from step to step, up to another
    translation; so do deep models. Some are multiplied by further factors, but remain finite.
    """
    decoder = sections.get("model", {}).get("decoder", "luong")
    tree = tiny_config(folder, decoder).model_dump(mode="json", exclude_unset=True)
    for section, keys in sections.items():
        tree[section] |= keys
    config = Config.model_validate(tree)
    create_run(folder, config, vocabularies)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        weights = {
            name: scale * weight
            for name, weight in named_weights(new_model(config, vocabularies)).items()
        }
    weights["projection.bias"][EOS_ID] = 3
    for name, factor in (factors or {}).items():
        weights[name] = (weights[name] * factor).clamp(-3e38, 3e38)
    origin = provenance_of(config, vocabularies, model_keys_only=True)
    description = {SOURCE: asdict(source)}
    header = weights_header(LengthLimit(0.75, 3), 7, 1.25, origin | description)
    save_weights(folder / BEST, weights, header)
    return folder


@pytest.fixture(scope="module")
def moderate_runs(
    tmp_path_factory: pytest.TempPathFactory, tiny_vocabularies: Vocabularies
) -> dict[str, Path]:
    """Create a run for each decoder whose weights are less large than those of `tiny_runs`."""
    return {
        decoder: make_run(
            tmp_path_factory.mktemp(decoder) / "run",
            tiny_vocabularies,
            seed,
            scale=1.5,
            model={"decoder": decoder},
        )
        for seed, decoder in enumerate(DECODERS)
    }


@pytest.fixture(params=quick_values(DECODERS, 1))
def moderate_run(moderate_runs: dict[str, Path], request: pytest.FixtureRequest) -> Path:
    """Return each of the moderate runs in turn."""
    return moderate_runs[request.param]


def run_and_export(
    *runs: Path, int8: bool = False, overrides: Sequence[str] = ()
) -> list[Translator]:
    """Return the translator of runs by torch, and that of their export."""
    folder = runs[0].parent / f"{runs[0].name}-export-{len(runs)}{int8}"
    if not folder.exists():
        export_runs(runs, folder, int8)
    run = Translator(by_torch.load_runs(runs, ModelOptions("cpu", overrides=overrides)))
    return [run, Translator.load(folder, overrides=overrides)]


def shortened(note: str) -> str:
    """Return a note without the words that got hardly any attention, as weights differ slightly."""
    return note.partition(":")[0]


def check_same(
    translations: Sequence[Translation], expected: Sequence[Translation], tolerance: float = TIE
) -> None:
    """Assert equal texts, except one line of 50, and equal scores and attention weights.

    A tie leads to other hypotheses, whose scores need not be near.
    """
    different = 0
    for ours, theirs in zip(translations, expected, strict=True):
        assert ours.src_tokens == theirs.src_tokens
        assert len(ours.n_best) == len(theirs.n_best)
        if [entry.tokens for entry in ours.n_best] != [entry.tokens for entry in theirs.n_best]:
            different += 1
            continue
        assert list(map(shortened, ours.notes)) == list(map(shortened, theirs.notes))
        for our_entry, their_entry in zip(ours.n_best, theirs.n_best, strict=True):
            assert our_entry.text == their_entry.text
            assert_close(our_entry.score, their_entry.score, tolerance)
            assert_close(our_entry.log_probs, their_entry.log_probs, tolerance)
            assert (our_entry.attention is None) == (their_entry.attention is None)
            if our_entry.attention is not None:
                assert_close(our_entry.attention, their_entry.attention, tolerance)
    assert different <= math.ceil(len(expected) / 50)


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(actual, expected, rtol=tolerance / 10, atol=tolerance)


@one_quick(("beam_size", "n_best"), [(1, 1), (3, 1), (4, 4)])
def test_an_export_translates_like_its_run(moderate_run: Path, beam_size: int, n_best: int) -> None:
    run, exported = run_and_export(moderate_run)
    expected = run.translate(LINES, beam_size, n_best)
    check_same(exported.translate(LINES, beam_size, n_best), expected)
    assert (
        len({translation.text for translation in expected}) > len(LINES) // 3
    )  # they depend on their sources


@pytest.mark.parametrize(
    ("key", "int8"),
    [
        ("max_length=4", False),
        ("max_length=4", True),
        ("max_length=1", False),
        ("min_length=5", True),
        ("no_repeat_ngram=2", False),
        ("length_penalty=2", True),
    ],
)
def test_greedy_search_for_texts_alone_finds_the_same(tiny_run: Path, key: str, int8: bool) -> None:
    _, exported = run_and_export(tiny_run, int8=int8, overrides=[f"decoding.{key}"])
    expected = exported.translate(LINES, 1)
    translations = exported.translate(LINES, 1, text_only=True)
    assert [translation.text for translation in translations] == [
        translation.text for translation in expected
    ]
    assert [translation.tokens for translation in translations] == [
        translation.tokens for translation in expected
    ]
    single_texts = [exported.translate(line, 1, text_only=True).text for line in LINES[:20]]
    assert single_texts == [translation.text for translation in expected[:20]]


@one_quick("beam_size", [1, 3])
def test_prefixes_and_forbidden_words(moderate_run: Path, beam_size: int) -> None:
    run, exported = run_and_export(moderate_run)
    words = sorted(
        {word for translation in run.translate(LINES[:40]) for word in translation.text.split()}
    )
    settings = SearchSettings(forbidden=tuple(words[:10]))
    expected, by_export = (
        translator.translate(LINES, beam_size, prefixes=PREFIXES, settings=settings)
        for translator in (run, exported)
    )
    check_same(by_export, expected)
    unconstrained = run.translate(LINES, beam_size)
    assert (
        sum(a.text != b.text for a, b in zip(expected, unconstrained, strict=True))
        > len(LINES) // 2
    )


@one_quick(("beam_size", "n_best"), [(1, 1), (3, 2)])
def test_phrases_and_a_glossary(moderate_run: Path, beam_size: int, n_best: int) -> None:
    run, exported = run_and_export(moderate_run)
    words = toy_words(len(LINES))
    constraints = [
        [[], [word], [f"{word} {LINES[0].split()[0]}", word, word]][number % 3]
        for number, word in enumerate(words)
    ]
    settings = SearchSettings(glossary=Glossary([(word, f"{word}zu") for word in words[:9]]))
    expected, by_export = (
        translator.translate(
            LINES, beam_size, n_best, prefixes=PREFIXES, constraints=constraints, settings=settings
        )
        for translator in (run, exported)
    )
    check_same(by_export, expected)
    unconstrained = run.translate(LINES, beam_size)
    assert (
        sum(a.text != b.text for a, b in zip(expected, unconstrained, strict=True))
        > len(LINES) // 2
    )


@one_quick("override", OVERRIDES)
@one_quick("beam_size", [1, 3])
def test_settings_of_the_config(
    moderate_runs: dict[str, Path], override: str, beam_size: int
) -> None:
    run, exported = run_and_export(moderate_runs["bahdanau"], overrides=[override])
    check_same(exported.translate(LINES, beam_size), run.translate(LINES, beam_size))


LUONG = {"decoder": "luong"}
DEEP = {"encoder": 2, "decoder": 3, "residual": True}
MODELS: dict[str, dict[str, Any]] = {
    "dot": LUONG | {"input_feeding": False, "score": "dot", "layers": 2},
    "local-p": LUONG | {"window": {"local_p": 2}},
    "local-m": LUONG | {"window": {"local_m": 2}, "encoder": "reversed"},
    "coverage": {"score": "coverage", "attention_size": 14},
    "gnmt": {"decoder": "gnmt", "layers": DEEP, "score": "normed_additive"},
    "heads": LUONG | {"score": {"scaled_dot": 4}, "attention_size": 16},
    "many-heads": LUONG | {"score": {"scaled_dot": 8}, "attention_size": 16},
    "location": LUONG | {"score": "location", "tie_embeddings": False},
    "gru": LUONG | {"cell": "gru", "layers": DEEP},
    "bahdanau-2015": {"cell": "gru", "maxout": True},
    "layer-norm": {"cell": "layer_norm_lstm", "layers": DEEP},
    "plain": {"decoder": "none", "encoder": "forward", "layers": 2},
    "copy": {"copy": True},
    "copy-odd": {"copy": True, "embedding_size": 31, "hidden_size": 66},
    "copy-heads": LUONG | {"copy": True, "score": {"scaled_dot": 4}, "attention_size": 16},
    "copy-window": LUONG | {"copy": True, "window": {"local_p": 2}},
    "copy-gnmt": {"decoder": "gnmt", "copy": True, "cell": "gru", "layers": 2},
}


@pytest.fixture(scope="module")
def run_of(
    tmp_path_factory: pytest.TempPathFactory, tiny_vocabularies: Vocabularies
) -> Callable[[str], Path]:
    """Create the run of each kind of model once, so that it is exported once."""

    @functools.cache
    def created(kind: str) -> Path:
        model = {"decoder": "bahdanau"} | MODELS[kind]
        # Gains would be scaled, too; and a deep GRU amplifies more than an LSTM.
        scale = {"layer_norm_lstm": 0.7, "gru": 1.5}.get(str(model.get("cell")), 2)
        folder = tmp_path_factory.mktemp(kind) / "run"
        return make_run(folder, tiny_vocabularies, scale=scale, model=model)

    return created


@one_quick("kind", MODELS)
def test_models_of_every_kind_are_exported(
    kind: str, run_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their translations do not depend on how many rows are encoded at once, either."""
    run, exported = run_and_export(run_of(kind))
    expected = run.translate(LINES)
    translations = exported.translate(LINES)
    check_same(translations, expected)
    assert len({translation.text for translation in expected}) > len(LINES) // 3
    for rows in (1, 5, 1000):
        monkeypatch.setattr("seq2seq.engines.onnx.network.ENCODED_ROWS", rows)
        for other_batch, translation_in_batch in zip(
            exported.translate(LINES[::2]), translations[::2], strict=True
        ):
            assert other_batch.text == translation_in_batch.text
            assert other_batch.log_probs == translation_in_batch.log_probs
            assert other_batch.attention is None or np.array_equal(
                other_batch.attention, translation_in_batch.attention
            )


@pytest.mark.thorough
@pytest.mark.parametrize("model", [{"decoder": "bahdanau"}, {"decoder": "luong"}], ids=str)
def test_a_copying_model_requires_the_words_that_it_copies(
    model: dict[str, Any], tiny_vocabularies: Vocabularies, tmp_path: Path
) -> None:
    """Words of digits are copied, as the profile of the training text says."""
    source = SourceProfile(translated=["ba"], copied_forms=["0"])
    runs = [
        make_run(tmp_path / f"run{seed}", tiny_vocabularies, seed, source, model=sections)
        for seed, sections in enumerate([model | {"copy": True}, model])
    ]
    lines = [f"{line[:-1]} {number * 37}." for number, line in enumerate(LINES[:30])]
    lines += LINES[30:]
    for members in (runs[:1], runs):
        run, exported = run_and_export(*members)
        for beam_size in (1, 3):
            expected = run.translate(lines, beam_size)
            check_same(exported.translate(lines, beam_size), expected, 10 * TIE)
            kept_words = sum(str(number * 37) in expected[number].text for number in range(30))
            assert kept_words == 30


def test_a_vocabulary_of_words_replaces_unknown_words(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, "luong").vocabulary.model_copy(
        update={"type": "word", "size": 60}
    )
    vocabularies = train_vocabularies(config, *toy_pairs(300, seed=1))
    sections = {"vocabulary": {"type": "word", "size": 60}, "decoding": {"replace_unknown": True}}
    run, exported = run_and_export(make_run(tmp_path / "run", vocabularies, **sections))
    several = [*LINES, *toy_pairs(50, seed=4)[0]]  # some of them have unknown words
    expected = run.translate(several)
    check_same(exported.translate(several), expected)
    lines = [
        line
        for line, translation in zip(several, expected, strict=True)
        if "<unk>" in translation.tokens
    ]
    assert len(lines) > 3
    prefixed = (model.translate(lines, 1, prefixes=lines) for model in (exported, run))
    check_same(*prefixed, 2 * TIE)  # log-probabilities of -20


def test_symbols_are_kept(tmp_path: Path) -> None:
    """User-defined symbols are single tokens, which a translation takes over from its source."""
    symbols = {"symbols": ("<num>", "<2yy>")}
    config = tiny_config(tmp_path, "luong").vocabulary.model_copy(update=symbols)
    vocabularies = train_vocabularies(config, *toy_pairs(300, seed=1))
    run, exported = run_and_export(make_run(tmp_path / "run", vocabularies, vocabulary=symbols))
    lines = [f"<2yy> {line[:-1]} <num>." for line in LINES[:60]]
    expected = run.translate(lines)
    check_same(exported.translate(lines), expected)
    assert all("\u2581<num>" in translation.src_tokens for translation in expected)


USERS_SCORE = """
from seq2seq.model.attention import DotScore
class Negative(DotScore):
    def __init__(self, query_size, output_size, attention_size):
        super().__init__(query_size, output_size)
    def forward(self, query, keys):
        return {scores}
    def weights(self):
        return None
"""


def run_with_score(
    scores: str, vocabularies: Vocabularies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Create a run whose score is a class of the user with this expression."""
    name = f"users_score_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(USERS_SCORE.format(scores=scores), encoding="utf-8")
    monkeypatch.setenv(VARIABLE, f"{name}:Negative")
    monkeypatch.syspath_prepend(str(tmp_path))
    model = {"decoder": "luong", "score": f"{name}:Negative"}
    return make_run(tmp_path / "run", vocabularies, model=model)


@pytest.mark.parametrize("int8", [False, True])
def test_a_score_of_the_user_is_exported(
    int8: bool, tiny_vocabularies: Vocabularies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it derives from a built-in score, whose graph would differ."""
    scores = "-super().forward(query, keys)"
    run = run_with_score(scores, tiny_vocabularies, tmp_path, monkeypatch)
    loaded, exported = run_and_export(run, int8=int8)
    expected = loaded.translate(LINES)
    if not int8:
        check_same(exported.translate(LINES), expected)
    texts = [scored.text for scored in expected]
    scores = [[scored.score for scored in it.score(LINES, texts)] for it in (loaded, exported)]
    assert np.median(np.abs(np.subtract(*scores))) < (0.15 if int8 else 1e-4)


@pytest.mark.parametrize(
    "scores",
    [
        "torch.tensor(query.detach().numpy()) @ keys.transpose(1, 2)",
        "super().forward(query, keys) * len(query)",
        "super().forward(query, keys) + (query @ keys.mT).sort(stable=True).values.cumprod(1)",
    ],
    ids=["numpy", "size", "operators"],
)
def test_a_score_that_cannot_be_traced_is_computed_by_torch(
    scores: str,
    tiny_vocabularies: Vocabularies,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = run_with_score(
        scores.replace("torch", "__import__('torch')"), tiny_vocabularies, tmp_path, monkeypatch
    )
    expected = Translator(by_torch.load_runs([run], ModelOptions("cpu"))).translate(LINES[:9])
    with caplog.at_level("INFO", "seq2seq"):
        translator = Translator.load(run, device="cpu")
    assert f"note: {run}: has no ONNX form (" in caplog.text
    assert capfd.readouterr().out == ""
    assert caplog.text.count("\n") == 1
    assert [translation.text for translation in translator.translate(LINES[:9])] == [
        translation.text for translation in expected
    ]
    with pytest.raises(UserError, match="has no ONNX form; use the run folder"):
        export_runs([run], tmp_path / "export")
    assert not (tmp_path / "export").exists()


@one_quick("beam_size", [1, 3])
def test_names_are_kept(tmp_path: Path, beam_size: int) -> None:
    names = some_names(60, seed=1)
    pairs = name_pairs(names, 400, seed=2)
    config = tiny_config(tmp_path, "luong").vocabulary.model_copy(
        update={"size": 310, "names": NamesConfig(kind="placeholders")}
    )
    src = [pair.src for pair in pairs]
    tgt = [pair.tgt for pair in pairs]
    vocabularies = train_vocabularies(config, src, tgt)
    assert vocabularies.names is not None
    vocabulary = {"size": 310, "names": "placeholders"}
    run, exported = run_and_export(make_run(tmp_path / "run", vocabularies, vocabulary=vocabulary))
    lines = [*src[:60], *LINES[:40]]
    expected = run.translate(lines, beam_size)
    check_same(exported.translate(lines, beam_size), expected)


@pytest.mark.thorough
def test_an_ensemble_is_one_folder_or_several(
    tiny_vocabularies: Vocabularies, tmp_path: Path
) -> None:
    models = [{"decoder": "bahdanau", "attention_size": 14}, {"decoder": "none"}]
    runs = [
        make_run(tmp_path / f"run{seed}", tiny_vocabularies, seed, model=model)
        for seed, model in enumerate(models)
    ]
    run, exported = run_and_export(*runs)
    for member in runs:
        run_and_export(member)
    folders = [tmp_path / f"{member.name}-export-1False" for member in runs]
    several = Translator.load(*folders)
    for beam_size in (1, 3):
        expected = run.translate(LINES, beam_size)
        translations = exported.translate(LINES, beam_size)
        check_same(translations, expected)
        texts = [translation.text for translation in translations]
        assert [ours.text for ours in several.translate(LINES, beam_size)] == texts


@one_quick(("kind", "int8"), [(kind, number % 2 == 1) for number, kind in enumerate(MODELS)])
def test_translations_do_not_depend_on_the_other_lines(
    kind: str, int8: bool, run_of: Callable[[str], Path]
) -> None:
    _, exported = run_and_export(run_of(kind), int8=int8)
    for beam_size in (1, 3):
        in_one_batch = exported.translate(LINES, beam_size, beam_size)
        for start in range(0, len(LINES), 17):
            single = exported.translate(LINES[start], beam_size, beam_size)
            for entry, entry_in_batch in zip(
                single.n_best, in_one_batch[start].n_best, strict=True
            ):
                assert entry.text == entry_in_batch.text
                assert entry.score == entry_in_batch.score
                assert entry.log_probs == entry_in_batch.log_probs
                assert np.array_equal(entry.attention, entry_in_batch.attention)


def test_int8_scores_are_close(tiny_vocabularies: Vocabularies, tmp_path: Path) -> None:
    """The scores of the same translations hardly change, even with random, large weights."""
    path = make_run(tmp_path / "run", tiny_vocabularies, model={"hidden_size": 64})
    run, exported = run_and_export(path, int8=True)
    texts = [scored.text for scored in run.translate(LINES[:40], 1)]
    scores = [[scored.score for scored in it.score(LINES[:40], texts)] for it in (run, exported)]
    assert np.median(np.abs(np.subtract(*scores))) < 0.15
    sizes = [(tmp_path / f"run-export-1{int8}" / "decoder.onnx").stat().st_size for int8 in (True,)]
    run_and_export(path)
    assert sizes[0] < 0.5 * (tmp_path / "run-export-1False" / "decoder.onnx").stat().st_size


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "copy"])
def test_an_export_is_copied(tiny_runs: dict[str, Path], how: str) -> None:
    _, exported = run_and_export(tiny_runs["luong"])
    if how == "pickle":
        copy_of_export = pickle.loads(pickle.dumps(exported))
    else:
        copy_of_export = getattr(copy, how)(exported)
    assert [translation.text for translation in copy_of_export.translate(LINES[:9])] == [
        translation.text for translation in exported.translate(LINES[:9])
    ]


def test_a_forked_process_translates(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    _, exported = run_and_export(tiny_runs["luong"])
    expected = [translation.text for translation in exported.translate(LINES[:9])]
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(600)  # ends a process that waits for threads of its parent
        try:
            texts = [translation.text for translation in exported.translate(LINES[:9])]
            os.write(writing, b"same" if texts == expected else b"other")
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    assert os.read(reading, 99) == b"same"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("decoding.beam_size=0", r"beam_size=0: not a value of decoding.beam_size"),
        ("decoding.length_penalty=x", "not a value of decoding.length_penalty"),
        ("decoding.length_penalty=NaN", "not a value of decoding.length_penalty"),
        ("decoding.no_repeat_ngram=1.5", "not a value of decoding.no_repeat_ngram"),
        ("decoding.max_length=true", "not a value of decoding.max_length"),
        ("decoding.beam=3", "takes other values of these keys: decoding.beam_size, "),
        ("model.dropout=0", "takes other values of these keys: decoding.beam_size, "),
        ("decoding.replace_unknown=1", "not a value of decoding.replace_unknown"),
    ],
)
def test_wrong_overrides_are_refused(
    tiny_runs: dict[str, Path], override: str, message: str
) -> None:
    folder = run_and_export(tiny_runs["luong"])[1].name
    with pytest.raises(UserError, match=message):
        Translator.load(folder, overrides=[override])


def test_overrides_are_the_same_as_for_a_run(tiny_runs: dict[str, Path]) -> None:
    """Compare every key of the section."""
    overrides = ["decoding.beam_size=2", "decoding.max_length=null", "decoding.length_penalty=1"]
    run, exported = run_and_export(tiny_runs["luong"], overrides=overrides)
    assert asdict(run.decoding) == asdict(exported.decoding)
    overrides = ["decoding.min_length=9", "decoding.max_length=3"]
    with pytest.raises(UserError, match="min_length is larger than max_length"):
        Translator.load(exported.name, overrides=overrides)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        ("encoder.onnx", _cut, r"encoder.onnx: is damaged, its checksum differs"),
        ("decoder.onnx", Path.unlink, r"decoder.onnx: no such file; export the run again"),
        ("export.json", _cut, "keeps"),
        ("export.json", lambda path: path.write_text("{}"), r"export.json: is damaged \(.*format"),
        ("export.json", lambda path: path.write_text("[]"), r"export.json: is damaged \("),
        ("vocabulary/joint.model", _cut, r"joint.model: its checksum differs"),
    ],
    ids=["graph", "missing", "newline", "empty", "list", "vocabulary"],
)
def test_a_damaged_export_is_reported_in_one_line(
    tiny_runs: dict[str, Path],
    tmp_path: Path,
    name: str,
    spoil: Callable[[Path], object],
    message: str,
) -> None:
    folder = tmp_path / "export"
    export_runs([tiny_runs["luong"]], folder)
    spoil(folder / name)
    if message == "keeps":  # the last byte is a line feed
        assert Translator.load(folder).translate("ba").text
        return
    with pytest.raises(UserError, match=message) as raised:
        Translator.load(folder)
    assert len(raised.value.lines) == 1
    assert "\n" not in str(raised.value)


def test_a_later_format_is_refused(tiny_runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "export"
    export_runs([tiny_runs["luong"]], folder)
    description = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    (folder / "export.json").write_text(json.dumps(description | {"format": 9}), encoding="utf-8")
    with pytest.raises(UserError, match=r"has format 9, and this version of seq2seq reads 3"):
        Translator.load(folder)


def test_a_failed_export_names_its_folder_and_leaves_none(
    tiny_runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "full"
    monkeypatch.setattr(export_module.vocabulary, "save_vocabularies", no_space)
    with pytest.raises(RunError) as caught:
        export_runs([tiny_runs["luong"]], folder)
    assert str(caught.value) == f"{folder}: cannot be written (No space left on device)"
    assert not folder.exists()
    monkeypatch.undo()
    export_runs([tiny_runs["luong"]], folder)


def test_a_failed_export_leaves_files_of_others_alone(
    tiny_runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shared"

    def written_meanwhile(*_: object) -> None:
        (folder / "notes.txt").touch()
        no_space()

    monkeypatch.setattr(export_module.vocabulary, "save_vocabularies", written_meanwhile)
    with pytest.raises(RunError, match="No space left on device"):
        export_runs([tiny_runs["luong"]], folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    real = export_module.from_graphs

    def from_graphs(*arguments: Any) -> Any:
        (folder / "notes.txt").touch()
        return real(*arguments)

    monkeypatch.setattr(export_module, "from_graphs", from_graphs)
    with pytest.raises(UserError, match="exists and is not an empty folder"):
        export_runs([tiny_runs["luong"]], folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_invalid_combinations_are_refused(
    tiny_runs: dict[str, Path], tiny_vocabularies: Vocabularies, tmp_path: Path
) -> None:
    run, exported = run_and_export(tiny_runs["luong"])
    folder = Path(exported.name)
    with pytest.raises(UserError, match="forms ensembles with other exported models only"):
        Translator.load(folder, tiny_runs["luong"])
    with pytest.raises(UserError, match="device='cuda': an exported model runs on the CPU"):
        Translator.load(folder, device="cuda")
    with pytest.raises(UserError, match="exists and is not an empty folder"):
        export_runs([tiny_runs["luong"]], folder)
    other_languages = make_run(tmp_path / "turned", tiny_vocabularies, data={"src_lang": "zz"})
    run_and_export(other_languages)
    with pytest.raises(UserError, match="combine runs of one direction"):
        Translator.load(folder, tmp_path / "turned-export-1False")
    with pytest.raises(UserError, match="combine runs of one direction"):
        export_runs([tiny_runs["luong"], other_languages], tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert run.engine.attends
    assert exported.engine.attends


def test_overflowing_weights_are_reported(tiny_vocabularies: Vocabularies, tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", tiny_vocabularies)
    _, exported = run_and_export(path)
    for beam_size in (1, 3):
        network = exported.engine.networks[0]  # type: ignore[attr-defined]
        step = network.step

        def non_finite(*arguments: Any, step: Any = step) -> Any:
            result = step(*arguments)
            result.values[:], result.undefined[:] = np.nan, True
            return result

        network.step = non_finite  # type: ignore[method-assign]
        for text_only in (False, True):
            with pytest.raises(RunError, match="has the log-probability nan, not a finite number"):
                exported.translate(LINES[:5], beam_size, text_only=text_only)


def test_a_sentence_that_may_not_end_is_reported(tiny_run: Path) -> None:
    """At its limit a sentence can only end; the log-probability of that is made infinite."""
    _, exported = run_and_export(tiny_run, overrides=["decoding.max_length=3"])
    network = exported.engine.networks[0]  # type: ignore[attr-defined]
    step = network.step

    def endless(*arguments: Any) -> Any:
        result = step(*arguments)
        result.values[:, EOS_ID] = -np.inf
        return result

    network.step = endless  # type: ignore[method-assign]
    for text_only in (False, True):
        with pytest.raises(RunError, match="has the log-probability -inf, not a finite number"):
            exported.translate(LINES[:5], 1, text_only=text_only)


OVERFLOWS: dict[str, tuple[dict[str, Any], str]] = {
    "general": (LUONG | {"score": "general"}, "decoder.score.key_projection.weight"),
    "concat": (LUONG | {"score": "concat"}, "decoder.score.energy.weight"),
    "bahdanau": ({}, "decoder.score.energy.weight"),
    "maxout": ({"maxout": True}, "decoder.score.energy.weight"),
    "copy": ({"copy": True}, "decoder.score.energy.weight"),
    "gnmt": ({"decoder": "gnmt", "layers": DEEP}, "decoder.score.energy.weight"),
}


@one_quick("int8", [False, True], quick=1)
@pytest.mark.parametrize(("model", "weight"), OVERFLOWS.values(), ids=OVERFLOWS)
def test_an_overflow_is_reported(
    model: dict[str, Any], weight: str, tiny_vocabularies: Vocabularies, tmp_path: Path, int8: bool
) -> None:
    """The softmax of infinite scores is undefined.

    Each weight is the largest or the smallest: their sums are infinite in any order.
    """
    model_keys = {"decoder": "bahdanau", "hidden_size": 96} | model
    path = make_run(
        tmp_path / "run", tiny_vocabularies, factors={weight: math.inf}, model=model_keys
    )
    for translator in run_and_export(path, int8=int8):
        for beam_size in (1, 3):
            with pytest.raises(RunError, match="log-probability nan, not a finite number"):
                translator.translate(LINES[:5], beam_size)
