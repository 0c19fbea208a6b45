"""The searches and scorings of a part: those that each pass requests, and at most what it says."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cases.toy_text import toy_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.engines.engine import Engine, Sampling
from seq2seq.inference import part_search, passes, scoring
from seq2seq.inference.line_preparation import Preparation
from seq2seq.inference.nbest import Candidate
from seq2seq.inference.passes import PASSES, Pass, PassContext
from seq2seq.inference.requirements import Requirements
from seq2seq.inference.search.interface import Hypothesis, Request, SearchOptions
from seq2seq.inference.searched_part import RequestedSearch, SearchedPart
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.text.glossary import Glossary
from seq2seq.text.line import Part
from seq2seq.text.names.names import Masked

NAMES = Path(__file__).parents[1] / "cases/written_at_56a3ce7b/names"
LINES, _ = toy_pairs(12, seed=8)
SearchFunction = Callable[..., list[list[Hypothesis]]]


class Counts:
    """Searches and scorings by the pass that requested them, and all that the engine did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.searches, self.scorings, self.engine = Counter[str](), Counter[str](), Counter[str]()
        self.find_nothing: Callable[[Request, SearchOptions], bool] = lambda *_: False
        for kind in PASSES:
            monkeypatch.setattr(kind, "request", self._counting(kind))
        self._search: SearchFunction = part_search.search
        monkeypatch.setattr(part_search, "search", self._counted_search)
        decode = scoring.forced_decodings

        def counted_decodings(engine: Engine, pairs: Sequence[Any], **options: bool) -> Any:
            self.engine["scorings"] += len(pairs)
            self.scorings["WeighHeads"] += len(pairs)
            return decode(engine, pairs, **options)

        monkeypatch.setattr(scoring, "forced_decodings", counted_decodings)

    def _counting(self, kind: type[Pass]) -> Callable[[Pass, SearchedPart], RequestedSearch | None]:
        request = kind.request

        def counted(one_pass: Pass, part: SearchedPart) -> RequestedSearch | None:
            search = request(one_pass, part)
            if search is not None:
                counter = self.searches if search.request.fixed is None else self.scorings
                counter[kind.__name__] += 1
            return search

        return counted

    def _counted_search(
        self, engine: Engine, requests: Sequence[Request], options: SearchOptions, *arguments: Any
    ) -> list[list[Hypothesis]]:
        for request in requests:
            self.engine["searches" if request.fixed is None else "scorings"] += 1
        lists = self._search(engine, requests, options, *arguments)
        return [
            [] if self.find_nothing(request, options) else hypotheses
            for request, hypotheses in zip(requests, lists, strict=True)
        ]

    def check(self, parts: int = 1) -> None:
        """Check that nothing was searched but by passes, and no part more than they say."""
        assert self.searches.total() == self.engine["searches"]
        assert self.scorings.total() == self.engine["scorings"]
        for kind in PASSES:
            assert self.searches[kind.__name__] <= kind.most_searches * parts
            assert self.scorings[kind.__name__] <= kind.most_scorings * parts
        assert self.scorings["WeighHeads"] <= part_search.HEAD_SCORINGS * parts


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(monkeypatch)


def test_a_plain_line_is_searched_once(tiny_runs: dict[str, Path], counts: Counts) -> None:
    Translator.load(tiny_runs["luong"], device="cpu").translate(LINES[0], 3)
    assert counts.searches == {"FirstSearch": 1}
    assert not counts.scorings


def test_the_terms_of_an_n_best_list_are_placed_in_plain_translations(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    placed_terms = 0
    for line in LINES:
        with monkeypatch.context() as patch:
            counts = Counts(patch)
            translator = Translator.load(tiny_runs["luong"], device="cpu")
            terms = SearchSettings(glossary=Glossary({line.split()[0]: "zu"}))
            translator.translate(line, 3, 3, settings=terms)
            counts.check()
            if counts.scorings:
                assert counts.scorings["PlaceFurtherTerms"] >= 2
                assert not counts.searches["RequireTerms"]
                assert not counts.searches["Widen"]
                placed_terms += 1
    assert placed_terms > 3


def test_terms_are_placed_by_a_scoring_or_required(
    tiny_runs: dict[str, Path], counts: Counts
) -> None:
    translator = Translator.load(tiny_runs["luong"], device="cpu")
    terms = SearchSettings(glossary=Glossary(dict.fromkeys(LINES[0].rstrip(".").split(), "zu")))
    translator.translate(LINES[0], 3, settings=terms)
    if counts.scorings:
        assert counts.searches == {"FirstSearch": 1}
        assert counts.scorings == {"PlaceTerms": 1}
    else:
        assert counts.searches == {"FirstSearch": 1, "RequireTerms": 1}
    counts.check()


def test_the_weights_of_heads_take_one_scoring(tiny_runs: dict[str, Path], counts: Counts) -> None:
    translator = Translator.load(tiny_runs["luong"], device="cpu")
    translator.translate(LINES, 3, settings=SearchSettings(head_attention=True))
    assert counts.scorings == {"WeighHeads": len(LINES)}
    counts.check(len(LINES))


def test_every_rule_gives_way_in_a_search_of_its_own(counts: Counts) -> None:
    overrides = ["decoding.no_repeat_ngram=3", "decoding.min_length=2"]
    model = Translator.load(NAMES, device="cpu", overrides=overrides)
    counts.find_nothing = lambda request, options: bool(options.kept_ids and request.fixed is None)
    line = "Rahul saw a tree and Kavita."
    glossary = Glossary({"tree": "\u0926\u0942\u0927"})
    settings = SearchSettings(glossary=glossary)
    translation = model.translate(line, 3, constraints=["\u0909\u0902\u091a"], settings=settings)
    assert counts.searches["GiveWay"] == passes.GiveWay.most_searches
    assert counts.searches["RequireTerms"] == 1
    assert any(note.endswith("required phrases, names") for note in translation.notes)
    counts.check()


def test_a_list_without_enough_texts_is_searched_with_wider_beams(
    tiny_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counts(monkeypatch)
    counts._search = lambda _, requests, *__: [
        [Hypothesis([5, 3], -1.0, None, (-0.5, -0.5))] for _ in requests
    ]
    Translator.load(tiny_runs["luong"], device="cpu").translate(LINES[0], 2, 2)
    assert counts.searches == {"FirstSearch": 1, "Widen": passes.Widen.most_searches}
    counts.check()


def test_a_lost_name_is_searched_for_once(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Translator.load(NAMES, device="cpu")
    names = model.vocabularies.names
    assert names is not None
    monkeypatch.setattr(type(names), "_is_rare", lambda *_: False)  # all remain words
    monkeypatch.setattr(type(names), "loses", lambda *_: True)
    model.translate(f"{next(iter(names.pairs))} saw a tree.", 3)
    assert counts.searches == {"FirstSearch": 1, "Repair": 1}
    counts.check()


def searched_part(model: Translator, text: str) -> SearchedPart:
    """Return a part whose names remain words."""
    (ids,) = model.vocabularies.src.encode([text])
    part = Part(Masked(text, {}))
    return SearchedPart(RequestedSearch(part, Request(ids, 20), SearchOptions(3)))


def context_of(model: Translator, n_best: int = 1, forbidden: tuple[str, ...] = ()) -> PassContext:
    requirements = Requirements(model.vocabularies, forbidden)
    preparation = Preparation(model.loaded, requirements, SearchSettings())
    return PassContext(model.loaded, preparation, n_best)


def candidate(text: str, score: float) -> Candidate:
    return Candidate(text, Hypothesis([5, 3], score, None))


RAHUL = "\u0930\u093e\u0939\u0941\u0932"  # as the model of names spells Rahul
TREE = "\u091d\u093e\u0921"


def test_the_best_translation_decides_whether_a_name_is_lost() -> None:
    model = Translator.load(NAMES, device="cpu")
    repair = passes.Repair(context_of(model))
    part = searched_part(model, "Rahul saw a tree.")
    with_name = candidate(f"{RAHUL} {TREE}", -1.0)
    without_name = candidate(TREE, -2.0)
    part.candidates = [with_name, without_name]
    assert repair.request(part) is None
    part.candidates = [without_name, with_name]
    search = repair.request(part)
    assert search is not None
    assert [*search.part.masked.names.values()] == ["Rahul"]


@pytest.mark.parametrize(("forbidden", "is_taken"), [((), True), ((TREE,), False)])
def test_a_forbidden_repair_is_not_taken(forbidden: tuple[str, ...], is_taken: bool) -> None:
    model = Translator.load(NAMES, device="cpu")
    repair = passes.Repair(context_of(model, forbidden=forbidden))
    part = searched_part(model, "Rahul saw a tree.")
    first = candidate("\u0926\u0942\u0927", -1.0)
    with_name = candidate(f"{RAHUL} {TREE}", -2.0)
    part.candidates = [first]
    search = repair.request(part)
    assert search is not None
    repair.merge(part, search, [with_name])
    assert part.candidates == [with_name if is_taken else first]
    assert part.search is (search if is_taken else part.original)


def test_a_list_below_placed_terms_is_in_order_and_has_other_texts(
    tiny_runs: dict[str, Path],
) -> None:
    """Their translation is the first, although others without the rule may score higher."""
    model = Translator.load(tiny_runs["luong"], device="cpu")
    context = context_of(model, n_best=4)
    part = searched_part(model, LINES[0])
    part.candidates = [candidate("plain", -1.0)]
    request = part.search.request._replace(fixed=[5, 3])
    scoring_of_terms = replace(part.search, request=request)
    passes.PlaceTerms(context).merge(part, scoring_of_terms, [candidate("placed", -2.0)])
    scored_texts = [("last", -3.0), ("better", -1.0), ("below", -2.5), ("placed", -2.75)]
    for text, score in scored_texts:
        further = passes.PlaceFurtherTerms(context)
        further.merge(part, scoring_of_terms, [candidate(text, score)])
    assert passes.Repair(context).request(part) is None
    assert passes.Widen(context).request(part) is None
    assert [text for text, _ in part.candidates] == ["placed", "below", "last"]


@pytest.mark.thorough
@settings(max_examples=60)
@given(data=st.data())
def test_no_part_is_searched_more_often_than_the_list_says(
    tiny_runs: dict[str, Path], data: st.DataObject
) -> None:
    run = data.draw(st.sampled_from([*map(str, tiny_runs.values()), str(NAMES)]))
    line = data.draw(st.sampled_from([*LINES, "Rahul saw a tall tree."]))
    words = line.rstrip(".").split()
    term = data.draw(st.sampled_from(words))
    sampling = data.draw(st.sampled_from([None, None, Sampling(3)]))
    options = SearchSettings(
        glossary=None if sampling else data.draw(st.sampled_from([None, Glossary({term: "zu"})])),
        forbidden=data.draw(st.sampled_from([(), ("zo",), ("ba", "ki")])),
        sampling=sampling,
        mbr=data.draw(st.sampled_from([None, "chrf"])),
        head_attention=data.draw(st.booleans()),
    )
    with pytest.MonkeyPatch.context() as patch:
        counts = Counts(patch)
        translation = Translator.load(run, device="cpu").translate(
            line, None if sampling else 3, data.draw(st.sampled_from([1, 3])), settings=options
        )
        counts.check(max(1, translation.parts))
