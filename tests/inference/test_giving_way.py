"""Rules that together leave a line no translation: some give way, and a note names them."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cases.oracle import CPU, Oracle
from cases.searches import search

from seq2seq.data.vocabulary.vocabulary import UNK_ID
from seq2seq.engines.engine import Engine, Sampling
from seq2seq.inference import part_search
from seq2seq.inference.giving_way import weaker
from seq2seq.inference.search.interface import Hypothesis, Request, SearchOptions
from seq2seq.inference.search.lexical import Prefix, PrefixState, lexical_of
from seq2seq.inference.searched_part import RequestedSearch
from seq2seq.inference.settings import SearchSettings
from seq2seq.inference.translator import Translator
from seq2seq.runtime.errors import RunError
from seq2seq.text.glossary import Glossary, Term
from seq2seq.text.line import Part
from seq2seq.text.names.names import Masked

RUN = Path(__file__).parents[1] / "cases/written_at_56a3ce7b/names"
KEPT = range(4, 6)
STRATEGIES: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4},
    "groups": {"beam_size": 4, "groups": 2, "diversity": 0.5},
    "samples": {"beam_size": 1, "sampling": Sampling(2)},
}


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("spare", [0, 1, 2])
def test_kept_tokens_and_a_phrase_fit_into_the_smallest_room(size: int, spare: int) -> None:
    phrase = (6, UNK_ID)
    sources = [[4, 5, 6], [4, 4, 5], [6, 4]]
    for seed in range(8):
        model: Any = Oracle(seed)
        limits = [len(set(source) & set(KEPT)) + len(phrase) + spare for source in sources]
        options = SearchOptions(size, kept_ids=KEPT)
        lexical = [lexical_of([(phrase, False)])] * len(sources)
        lists = search(model, sources, limits, options, CPU, lexical=lexical)
        for source, hypotheses in zip(sources, lists, strict=True):
            assert hypotheses
            for ids, *_ in hypotheses:
                assert [ids.count(token) for token in KEPT] == [
                    int(token in source) for token in KEPT
                ]
                assert phrase in pairwise(ids)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rules_without_a_next_token_leave_no_hypothesis(strategy: str) -> None:
    """The prefix is a token that no hypothesis may contain; other sentences are not affected."""
    prefix = Prefix([PrefixState([4], {4: 1})], [])  # type: ignore[arg-type]
    sources = [[5, 6], [4, 6], [6]]  # 4 is kept where the source has it
    model: Any = Oracle(2)
    options = SearchOptions(**STRATEGIES[strategy], kept_ids=KEPT)
    lists = search(model, sources, [5] * 3, options, CPU, [prefix] * 3)
    assert [bool(hypotheses) for hypotheses in lists] == [False, True, False]
    (single_list,) = search(model, sources[1:2], [5], options, CPU, [prefix])
    assert [h.ids for h in single_list] == [h.ids for h in lists[1]]


NOTE = "no translation obeys all rules of its search; left out: "


def test_one_rule_after_the_other_gives_way() -> None:
    phrase = lexical_of([([8], True)])
    term = lexical_of([([8], True), ([9], True)])
    part = Part(Masked("text", {}), terms=[Term(0, 4, "term")])
    options = SearchOptions(2, no_repeat_ngram=3, min_length=2, kept_ids=KEPT)
    search = RequestedSearch(part, Request([7], 9, lexical=term), options, phrase)
    names = list[str]()
    searches = list[RequestedSearch]()
    while (step := weaker(search)) is not None:
        name, search = step
        names.append(name)
        searches.append(search)
        assert len(names) < 10, "a rule that has given way applies again"
    assert names == [
        "",
        "decoding.no_repeat_ngram",
        "decoding.min_length",
        "the glossary",
        "required phrases",
        "names",
    ]
    assert {search.options.beam_size for search in searches} == {8}
    searches = searches[1:]
    assert [search.options.no_repeat_ngram for search in searches] == [0, 0, 0, 0, 0]
    assert [search.options.min_length for search in searches] == [2, 0, 0, 0, 0]
    assert [search.requires_terms for search in searches] == [True, True, False, False, False]
    assert [search.request.lexical.total for search in searches] == [2, 2, 1, 0, 0]
    assert [len(search.options.kept_ids) for search in searches] == [2, 2, 2, 2, 0]
    assert weaker(RequestedSearch(part, Request([7], 9), SearchOptions(8))) is None


@pytest.mark.parametrize(
    ("names", "is_obeyed"),
    [
        (["decoding.no_repeat_ngram"], lambda _, options: options.no_repeat_ngram == 0),
        (
            ["decoding.no_repeat_ngram", "decoding.min_length", "required phrases"],
            lambda request, _: not request.lexical.phrases,
        ),
    ],
)
def test_a_line_without_a_translation_is_searched_with_weaker_rules(
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    is_obeyed: Callable[[Request, SearchOptions], bool],
) -> None:
    def search_in_vain(
        engine: Engine, requests: Sequence[Request], options: SearchOptions, *arguments: Any
    ) -> list[list[Hypothesis]]:
        lists = part_search_search(engine, requests, options, *arguments)
        return [
            hypotheses if len(request.source) != length or is_obeyed(request, options) else []
            for request, hypotheses in zip(requests, lists, strict=True)
        ]

    overrides = ["decoding.no_repeat_ngram=3", "decoding.min_length=2"]
    model = Translator.load(RUN, device="cpu", overrides=overrides)
    line = "This is a tall tree."
    other_line = "My brother told a story."
    length = len(model.translate(line).src_tokens) - 1
    expected = model.translate(other_line).text
    part_search_search: Callable[..., list[list[Hypothesis]]] = part_search.search
    monkeypatch.setattr(part_search, "search", search_in_vain)
    weak, unchanged = model.translate([line, other_line], constraints=[["\u0909\u0902\u091a"], []])
    assert weak.text
    assert [note for note in weak.notes if note.startswith(NOTE)] == [NOTE + ", ".join(names)]
    assert unchanged.text == expected
    assert not any(note.startswith(NOTE) for note in unchanged.notes)


def test_a_line_of_many_names_and_a_term_does_not_end_the_others() -> None:
    names = ["Kavita", "Ganesh", "Asha", "Meena", "Rahul", "Anil"]
    line = f"{', '.join(names)} and the tree."
    model = Translator.load(RUN, device="cpu", overrides=["decoding.max_length=8"])
    settings = SearchSettings(glossary=Glossary({"tree": "\u0926\u0942\u0927 \u0926\u0942\u0927"}))
    for beam_size in (1, 3, 5):
        translations = model.translate([line, "This is a tall tree."], beam_size, settings=settings)
        assert "\u0926\u0942\u0927 \u0926\u0942\u0927" in translations[0].text
        assert all(translation.text for translation in translations)


def test_where_nothing_remains_to_leave_out_the_model_is_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(part_search, "search", lambda _, requests, *__: [[] for _ in requests])
    with pytest.raises(RunError, match="no token may follow, for the text 'This is a tall"):
        Translator.load(RUN, device="cpu").translate("This is a tall tree.")
