"""Search over shortlists against search over all tokens with the others ruled out."""

import pickle
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import copy_with_vocabularies, tiny_config, toy_pairs
from invariance import check_batch_invariance
from searching import requests_of
from test_batch_invariance import model_of
from tiers import one_quick
from torch import Tensor

from seq2seq.cli.main import main
from seq2seq.data.lexical_table import LexicalTable, train_lexical_table
from seq2seq.data.vocabulary.training import train_vocabularies
from seq2seq.data.vocabulary.vocabulary import EOS_ID, UNK_ID, Ids, Vocabularies
from seq2seq.engines.engine import Sampling
from seq2seq.engines.torch.engine import TorchEngine
from seq2seq.engines.torch.ensemble import Ensemble
from seq2seq.inference import shortlist as shortlists
from seq2seq.inference.search.interface import Hypothesis, SearchOptions
from seq2seq.inference.search.lexical import NO_LEXICAL, lexical_of
from seq2seq.inference.search.prefixes import NO_PREFIX, Prefix, PrefixState
from seq2seq.inference.search.search import search
from seq2seq.inference.search.sentences import padded_width
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.shortlist import Shortlist
from seq2seq.inference.shortlist_search import ShortlistedModel, ShortlistSearch
from seq2seq.inference.translator import Translator
from seq2seq.model.seq2seq import Seq2Seq
from seq2seq.runs.layout import SHORTLIST
from seq2seq.runs.shortlist_file import save_shortlist
from seq2seq.runtime.console import size_in_bytes
from seq2seq.runtime.errors import DamagedFile, UserError

CPU = torch.device("cpu")
SIZE = 700  # vocabulary size of `model_of`
FIXED = 6  # special tokens and two others

MODELS: dict[str, Callable[[], list[Seq2Seq]]] = {
    "bahdanau": lambda: [model_of("bahdanau")],
    "luong": lambda: [model_of("luong")],
    "none": lambda: [model_of("none")],
    "copying": lambda: [model_of("luong", copy=True)],
    "ensemble": lambda: [model_of("bahdanau"), model_of("luong", copy=True)],
}
OPTIONS = {
    "greedy": SearchOptions(1),
    "no repeated bigrams": SearchOptions(1, no_repeat_ngram=2),
    "repetition penalty": SearchOptions(1, repetition_penalty=1.4),
    "beam": SearchOptions(4, 0.8, 0.2, min_length=3),
    "groups": SearchOptions(4, groups=2, diversity=0.7),
    "kept tokens": SearchOptions(3, kept_ids=range(4, FIXED)),
    "samples": SearchOptions(1, sampling=Sampling(3, top_k=20, top_p=0.95)),
}


@pytest.fixture(autouse=True)
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortlists, "MIN_TOKENS", 30)
    monkeypatch.setattr(shortlists, "TOKENS_PER_POSITION", 1)


def random_table(seed: int) -> LexicalTable:
    """Return rows of up to 12 tokens; some are empty."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, 13, SIZE)
    tokens = [generator.choice(SIZE, size, replace=False) for size in sizes]
    probs = [np.sort(generator.random(size))[::-1] for size in sizes]
    ends = np.cumsum(sizes)
    return LexicalTable(
        ends, np.concatenate(tokens).astype(np.int32), np.concatenate(probs).astype(np.float32)
    )


def random_sources(count: int, seed: int) -> list[Ids]:
    generator = random.Random(seed)
    return [
        generator.choices(range(4, SIZE), k=generator.choice([0, 1, 2, 5, 9, 14, 20, 33]))
        for _ in range(count)
    ]


def shortlist_of(seed: int = 1) -> Shortlist:
    return Shortlist(random_table(seed), np.arange(SIZE), FIXED, SIZE)


def search_of(models: Sequence[Seq2Seq], own: Shortlist) -> ShortlistSearch:
    projections = [each.projection for each in models]
    return ShortlistSearch(
        own,
        [
            ShortlistedModel(model, own, each.weight.detach(), each.bias.detach())
            for model, each in zip(models, projections, strict=True)
        ],
    )


def full_model(models: Sequence[Seq2Seq]) -> TorchEngine:
    return TorchEngine(models[0] if len(models) == 1 else Ensemble(models), CPU)


def found_by(
    searched: ShortlistSearch,
    models: Sequence[Seq2Seq],
    sources: Sequence[Ids],
    limits: Sequence[int],
    options: SearchOptions,
) -> list[list[Hypothesis]]:
    return searched.search(full_model(models), requests_of(sources, limits), options)


class Masked:
    """Model over all tokens that masks those outside the list of one source."""

    def __init__(self, model: Seq2Seq, listed: Sequence[int]) -> None:
        self.model, self.unlisted = model, torch.ones(SIZE, dtype=torch.bool)
        self.unlisted[list(listed)] = False

    def encode(self, src: Tensor, src_lengths: Tensor) -> Any:
        return self.model.encode(src, src_lengths)

    def start(self, encoded: Any) -> Any:
        return self.model.start(encoded)

    def step(self, ids: Tensor, state: Any, memory: Any) -> Any:
        return self.model.step(ids, state, memory)

    def project(self, outputs: Any) -> Tensor:
        """Mask the logits of the generated tokens; copied ones are listed."""
        bias = self.model.projection.bias
        before = bias.detach().clone()
        try:
            bias.data.masked_fill_(self.unlisted, -torch.inf)
            return self.model.project(outputs)
        finally:
            bias.data.copy_(before)

    def project_approximately(self, outputs: Any) -> None:  # noqa: ARG002
        return


def listed_by_definition(own: Shortlist, source: Ids, width: int) -> list[int]:
    scores = dict.fromkeys(range(SIZE), 0.0)
    for token in {*source, EOS_ID}:
        row = zip(*(part.tolist() for part in own.table.row(token)), strict=True)
        for target, prob in row:
            scores[target] += prob
    always = {*range(FIXED), *source, EOS_ID}
    others = sorted(
        (token for token in scores if scores[token] > 0 and token not in always),
        key=lambda token: (-scores[token], token),
    )
    return sorted([*always, *others[: own.length(width) - len(always)]])


def test_a_list_has_the_most_probable_tokens() -> None:
    own, lengths = shortlist_of(), set()
    for source in random_sources(60, seed=2):
        width = padded_width(source)
        listed = own.tokens(source, width).tolist()
        assert listed == listed_by_definition(own, source, width)
        assert len(listed) <= own.length(width)
        lengths.add(len(listed) == own.length(width))
    assert lengths == {False, True}  # with and without empty columns


def test_a_small_vocabulary_is_listed_completely() -> None:
    own = Shortlist(random_table(1), np.arange(SIZE), FIXED, SIZE)
    assert own.length(SIZE) == SIZE
    assert own.tokens([9, 8], SIZE).tolist() == list(range(SIZE))


@one_quick("kind", list(MODELS))
@one_quick("how", list(OPTIONS))
def test_search_equals_search_over_all_tokens_with_the_others_masked(
    kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, own, options = MODELS[kind](), shortlist_of(), OPTIONS[how]
    for each in models:
        each.double()  # so that rounding decides nothing
    sources = random_sources(12, seed=3)
    limits = [3 + n % 7 for n in range(12)]
    found = found_by(search_of(models, own), models, sources, limits, options)
    monkeypatch.setattr(TorchEngine, "slots", lambda *_: 2)
    for source, limit, hypotheses in zip(sources, limits, found, strict=True):
        listed = own.tokens(source, padded_width(source)).tolist()
        masked = full_model([Masked(each, listed) for each in models])  # type: ignore[misc]
        (expected,) = search(masked, requests_of([source], [limit]), options)
        assert [each.ids for each in hypotheses] == [each.ids for each in expected]
        for one, other in zip(hypotheses, expected, strict=True):
            assert set(one.ids) <= set(listed)
            assert one.score == pytest.approx(other.score, rel=1e-4)
            assert one.log_probs == pytest.approx(other.log_probs, rel=1e-4, abs=1e-5)
            if other.attention_weights is None:
                assert one.attention_weights is None
            else:
                np.testing.assert_allclose(
                    one.attention_weights, other.attention_weights, rtol=1e-4, atol=1e-5
                )


@pytest.mark.thorough
@one_quick("how", ["greedy", "beam", "samples"])
@one_quick("kind", ["luong", "copying", "ensemble"])
def test_results_equal_those_of_a_sentence_alone(kind: str, how: str) -> None:
    models = MODELS[kind]()
    searched = search_of(models, shortlist_of())
    sources = random_sources(75, seed=4)

    def of_rows(rows: Sequence[int]) -> list[list[Hypothesis]]:
        own = [sources[row] for row in rows]
        return found_by(searched, models, own, [6] * len(own), OPTIONS[how])

    for batch, count in ((1, 6), (7, 30), (64, 75)):
        check_batch_invariance(of_rows, count, batch)


def test_lists_change_results() -> None:
    models, sources = MODELS["luong"](), random_sources(30, seed=5)
    found = found_by(search_of(models, shortlist_of()), models, sources, [9] * 30, SearchOptions(1))
    requests = requests_of(sources, [9] * 30)
    expected = search(full_model(models), requests, SearchOptions(1))
    differ = [one[0].ids != other[0].ids for one, other in zip(found, expected, strict=True)]
    assert sum(differ) > 10


def test_required_tokens_are_searched_among_all() -> None:
    """A prefix or phrase may need tokens that are not listed; other lines keep their lists."""
    models, own = MODELS["luong"](), shortlist_of()
    sources, searched = random_sources(9, seed=6), search_of(models, own)
    others = [t for t in range(9, SIZE) if t not in own.tokens(sources[0], 48)]
    prefix = Prefix([PrefixState(np.array(others[:1]), {})], [])
    phrase = lexical_of([(others[1:3], False)])
    prefixes = [prefix, *[NO_PREFIX] * 8]
    lexical = [NO_LEXICAL, phrase, *[NO_LEXICAL] * 7]
    options, called = SearchOptions(2), list[int]()
    requests = requests_of(sources, [9] * 9, prefixes, lexical)
    found = searched.search(full_model(models), requests, options, called.append)
    full = search(full_model(models), requests, options)
    alone = found_by(searched, models, sources, [9] * 9, options)
    assert sorted(called) == list(range(9))
    for row, hypotheses in enumerate(found):
        expected = full[row] if row < 2 else alone[row]
        assert [each.ids for each in hypotheses] == [each.ids for each in expected]
    assert found[0][0].ids[0] == others[0]
    assert set(others[1:3]) <= set(found[1][0].ids)


# ------------------------------------------------------------------------------- from a run folder


@pytest.fixture
def run(tiny_runs: dict[str, Path], tiny_vocabularies: Vocabularies, tmp_path: Path) -> Path:
    """Create a run with a shortlist of the toy language."""
    folder = Path(shutil.copytree(tiny_runs["luong"], tmp_path / "run"))
    src, tgt = toy_pairs(300, seed=1)
    ids = tiny_vocabularies.src.encode(src), tiny_vocabularies.tgt.encode(tgt)
    sizes = len(tiny_vocabularies.src), len(tiny_vocabularies.tgt)
    save_shortlist(folder, train_lexical_table(*ids, *sizes), tiny_vocabularies, "0" * 64, 300)
    return folder


LINES = [*toy_pairs(20, seed=5)[0], "", "Unseen \N{SNOWMAN}!"]


def test_a_translator_takes_the_shortlist_of_its_run(run: Path) -> None:
    plain = Translator.load(run, device="cpu")
    short = Translator.load(run, device="cpu", shortlist=True)
    assert short.shortlisted is not None
    src, tgt = short.vocabularies.src, short.vocabularies.tgt
    found = short.translate(LINES, n_best=2)
    assert [each.text for each in found] != [each.text for each in plain.translate(LINES)]
    for line, ids in zip(LINES, src.encode(LINES), strict=True):
        listed = short.shortlisted.shortlist.tokens(ids, padded_width(ids))
        allowed = set(tgt.tokens(listed.tolist()))
        for each in short.translate([line], n_best=2)[0].n_best if line else ():
            assert set(each.tokens) <= allowed | {"</s>"}
    constrained = [["ba"]] * len(LINES)
    both = [each.translate(LINES, constraints=constrained) for each in (short, plain)]
    assert [each.text for each in both[0]] == [each.text for each in both[1]]
    copied = pickle.loads(pickle.dumps(short))
    assert [each.text for each in copied.translate(LINES)] == [each.text for each in found]
    settings = SearchSettings(forbidden=("ba",))
    both = [each.translate(LINES, settings=settings) for each in (short, plain)]
    assert [each.text for each in both[0]] == [each.text for each in both[1]]
    scores = [each.score(LINES[:5], LINES[5:10]) for each in (short, plain)]
    assert [each.score for each in scores[0]] == pytest.approx(
        [each.score for each in scores[1]], rel=1e-5
    )


def test_an_ensemble_takes_the_shortlist_of_its_first_run(
    run: Path, tiny_runs: dict[str, Path]
) -> None:
    runs = [run, tiny_runs["bahdanau"]]
    short = Translator.load(*runs, device="cpu", shortlist=True)
    assert short.translate(LINES[0]).text
    with pytest.raises(UserError, match=SHORTLIST):
        Translator.load(*reversed(runs), device="cpu", shortlist=True)


def test_tokens_spelled_alike_are_listed() -> None:
    config = tiny_config(Path("run"), "none").vocabulary.model_copy(
        update={"joint": False, "size": 340}
    )
    vocabularies = train_vocabularies(config, *toy_pairs(300, seed=1))
    src, tgt = vocabularies.src, vocabularies.tgt
    table = LexicalTable(np.zeros(len(src), np.int64), np.zeros(0, np.int32), np.zeros(0))
    own = Shortlist.of(table, vocabularies)
    source = src.encode(["\N{SNOWMAN} ba"])[0]
    listed = set(tgt.tokens(own.tokens(source, 16).tolist()))
    same = set(src.tokens(source)) & set(tgt.tokens(range(len(tgt))))
    assert any(each.startswith("<0x") for each in same)
    assert same <= listed
    assert UNK_ID in own.tokens(source, 16)


# --------------------------------------------------------------------------------------- refusals


def refusal(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["translate", *arguments, "--device", "cpu", "--shortlist", "ba"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_a_run_without_a_shortlist_names_the_command(
    tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tiny_runs["luong"]
    error = refusal("-m", str(run), capsys=capsys)
    assert f"--shortlist: {run} has no {SHORTLIST}; `seq2seq shortlist -m {run}` writes it" in error
    with pytest.raises(UserError, match=r"^shortlist=True: "):
        Translator.load(run, device="cpu", shortlist=True)


def test_a_shortlist_of_another_vocabulary_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tiny_config(Path("run"), "none").vocabulary
    others = train_vocabularies(config, *toy_pairs(300, seed=9))
    assert len(others.tgt) == 380
    copy_with_vocabularies(run, tmp_path / "other", others)
    shutil.copy(run / SHORTLIST, tmp_path / "other")
    error = refusal("-m", str(tmp_path / "other"), capsys=capsys)
    assert f"{SHORTLIST}: made for another vocabulary; `seq2seq shortlist" in error


@pytest.mark.parametrize("place", [5, 300, -1, -5000])
def test_a_damaged_shortlist_is_refused(
    run: Path, place: int, capsys: pytest.CaptureFixture[str]
) -> None:
    content = bytearray((run / SHORTLIST).read_bytes())
    content[place] ^= 1
    (run / SHORTLIST).write_bytes(content)
    error = refusal("-m", str(run), capsys=capsys)
    assert f"{run / SHORTLIST}: " in error
    assert f"; `seq2seq shortlist -m {run}` writes it again" in error


@pytest.mark.parametrize("change", ["longer", "descending", "token", "prob", "type", "missing"])
def test_a_table_that_does_not_fit_is_refused(
    run: Path, tiny_vocabularies: Vocabularies, change: str
) -> None:
    size = len(tiny_vocabularies.src)
    ends, tokens = np.full(size, 2), np.array([5, 6], np.int32)
    probs = np.array([0.5, 0.25], np.float32)
    if change == "longer":
        ends[-1] = 3
    elif change == "descending":
        ends[3] = 1
    elif change == "token":
        tokens[1] = size
    elif change == "prob":
        probs[1] = np.nan
    elif change == "type":
        tokens = tokens.astype(np.int64)  # type: ignore[assignment]
    else:
        ends = ends[:-1]
    save_shortlist(run, LexicalTable(ends, tokens, probs), tiny_vocabularies, "0" * 64, 1)
    with pytest.raises(DamagedFile, match="not a shortlist of these vocabularies; `seq2seq"):
        Translator.load(run, device="cpu", shortlist=True)


def test_a_shortlist_is_for_the_cpu(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2seq.runtime.device.choose_device", lambda _: torch.device("cuda"))
    with pytest.raises(UserError, match=r"runs on the CPU only, not on cuda; add device='cpu'"):
        Translator.load(run, shortlist=True)


def test_an_exported_model_has_none(
    tmp_path: Path, tiny_runs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnx")
    exported = str(tmp_path / "exported")
    assert main(["export", "-m", str(tiny_runs["luong"]), "-o", exported]) == 0
    error = refusal("-m", exported, capsys=capsys)
    assert f"--shortlist: {exported} is an exported model, which has none; use the run" in error


# ------------------------------------------------------------------------------------- the command


@pytest.mark.thorough
def test_the_command_writes_what_translate_reads(
    small_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(small_corpus.parent / "run")
    assert main(["shortlist", "-m", run]) == 2
    assert "no such run folder" in capsys.readouterr().err
    train = ["train", str(small_corpus), "--device", "cpu"]
    assert main(train) == 0
    capsys.readouterr()
    assert main(["shortlist", "-m", run]) == 0
    out, err = capsys.readouterr()
    size = size_in_bytes((Path(run) / SHORTLIST).stat().st_size)
    assert out.startswith(f"{Path(run) / SHORTLIST}  {size}, ")
    assert err.splitlines()[-1] == f"Translate:  seq2seq translate -m {run} --shortlist -i FILE"
    evaluate = ["evaluate", "-m", run, "--device", "cpu", "--shortlist"]
    assert main(evaluate) == 0
    assert main(["evaluate", "--hyp", "a", "-r", "b", "--shortlist"]) == 2
    assert "-b, --int8, --float16, --shortlist and --device need -m RUN" in capsys.readouterr().err
    assert main([*train, "--overwrite"]) == 0
    assert not (Path(run) / SHORTLIST).exists()  # it belonged to the old run
