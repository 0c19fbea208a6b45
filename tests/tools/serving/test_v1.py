"""The complete API: objects of the command line, all settings, errors."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from cases.server import ENCODINGS, Served, serve
from cases.toy_text import toy_pairs

from seq2seq import Translator
from seq2seq.__main__ import main
from seq2seq.engines.engine import Sampling
from seq2seq.inference.settings import SearchSettings
from seq2seq.text.glossary import Glossary
from seq2seq.tools.serving import v1
from seq2seq.tools.serving.limits import Limits
from seq2seq.tools.serving.service import LanguagePairs

LINES = [*toy_pairs(9, seed=6)[0], "", "日本語 <b>&", "lazy " * 60]
PATH = "/v1/translate"


def test_answers_are_the_objects_of_the_command_line(
    served: Served, tiny_runs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Byte for byte, with attention weights, n-best lists, blank lines and lines in parts."""
    source = tmp_path / "text"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    run = str(tiny_runs["bahdanau"])
    for options, fields in (
        ([], {}),
        (["--n-best", "3"], {"n_best": 3}),
        (["-b", "1"], {"beam_size": 1}),
        (["--prefix", "ba"], {"prefix": "ba"}),
        (["--sample", "4", "--seed", "7"], {"sampling": {"samples": 4, "seed": 7}}),
        (["--groups", "3", "--diversity", "0.2"], {"groups": 3, "diversity": 0.2}),
        (["--mbr", "chrf"], {"mbr": "chrf"}),
    ):
        assert main(["translate", "-m", run, "-i", str(source), "--json", *options]) == 0
        printed = capfd.readouterr().out.split("\n")[:-1]
        body = served.call(PATH, {"text": LINES, "source": "xx", "target": "yy", **fields}).body
        assert ", ".join(printed).encode() in body
        assert len(json.loads(body)["translations"]) == len(printed) == len(LINES)


def test_a_line_gives_one_translation_and_notes(served: Served) -> None:
    answer = served.call(PATH, {"text": LINES[-1]}).json
    assert (answer["source"], answer["target"]) == ("xx", "yy")
    assert len(answer["translations"]) == 1
    assert answer["translations"][0]["attention_blocks"]
    assert any("translated in parts" in note for note in answer["notes"][0])


def test_attention_is_optional(served: Served) -> None:
    with_attention, without_attention = (
        served.call(PATH, {"text": LINES, "attention": is_wanted}).json["translations"]
        for is_wanted in (True, False)
    )
    assert with_attention[0]["attention_weights"] is not None
    for translation in without_attention:
        assert translation["attention_weights"] is None
        assert "attention_blocks" not in translation or translation["attention_blocks"] == []
    assert [translation["text"] for translation in with_attention] == [
        translation["text"] for translation in without_attention
    ]


def test_requirements_hold_line_by_line(served: Served, tiny_runs: dict[str, Path]) -> None:
    translator = Translator.load(tiny_runs["bahdanau"])
    texts = LINES[:3]
    prefixes = ["ba", "", "zu ge"]
    phrases = [["lo"], [], ["mi", "ta"]]
    expected = translator.translate(texts, prefixes=prefixes, constraints=phrases)
    fields = {"text": texts, "prefix": prefixes, "constraints": phrases}
    translations = served.call(PATH, fields).json["translations"]
    assert [translation["text"] for translation in translations] == [
        translation.text for translation in expected
    ]
    word = texts[0].split()[0]
    settings = SearchSettings(glossary=Glossary([(word, "zuzu")]), forbidden=("ba",))
    expected = translator.translate(texts, settings=settings)
    fields = {"text": texts, "glossary": [[word, "zuzu"]], "forbidden": ["ba"]}
    translations = served.call(PATH, fields).json["translations"]
    assert [translation["text"] for translation in translations] == [
        translation.text for translation in expected
    ]
    assert "zuzu" in translations[0]["text"]


def test_samples_equal_those_of_the_translator(served: Served, tiny_runs: dict[str, Path]) -> None:
    translator = Translator.load(tiny_runs["bahdanau"])
    settings = SearchSettings(sampling=Sampling(3, 0.7, 5, 0.9, 11))
    expected = translator.translate(LINES, n_best=3, settings=settings)
    sampling = {"samples": 3, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "seed": 11}
    answer = served.call(PATH, {"text": LINES, "n_best": 3, "sampling": sampling}).json
    for answered_line, translation in zip(answer["translations"], expected, strict=True):
        assert [entry["text"] for entry in answered_line["n_best"]] == [
            entry.text for entry in translation.n_best
        ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "text: Field required"),
        ({"text": 5}, "text: must be a string or a list of strings"),
        ({"text": ["a", 4]}, "text: must be a string or a list of strings"),
        ({"text": "a", "prefix": 4}, "prefix: must be a string or a list of strings"),
        ({"text": "a", "str": 4}, "str: unknown field; /openapi.json lists those of a request"),
        (
            {"text": "a", "forbidden": ["b", "a" * 9_000]},
            "forbidden phrase 2: too long (9,000 characters); use at most 200",
        ),
        ({"text": "a", "forbidden": [4]}, "forbidden.0: Input should be a valid string"),
        ({"text": "a\nb"}, "text: contains a line break; give a list with one line each"),
        ({"text": "a", "beam": 3}, "beam: unknown field; /openapi.json lists those of a request"),
        ({"text": "a", "n_best": 4}, "n_best=4: larger than the beam (3); increase beam_size"),
        ({"text": "a", "beam_size": 101}, "beam_size: Input should be less than or equal to 100"),
        ({"text": ["a", "b"], "prefix": ["c"]}, "prefix: 1 for 2 lines; give one per line"),
        ({"text": "a", "constraints": []}, "constraints: 0 for 1 lines; give one per line"),
        (
            {"text": "a", "sampling": {"temperature": 0}},
            "temperature=0.0: must be a positive number",
        ),
        (
            {"text": "a", "sampling": {}, "beam_size": 2},
            "beam_size cannot be used with sampling; remove one of them",
        ),
        (
            {"text": "a", "sampling": {}, "groups": 2},
            "groups cannot be used with sampling; remove one of them",
        ),
        (
            {"text": "a", "glossary": [["a", "b"]], "groups": 3},
            "groups cannot be used with glossary; remove one of them",
        ),
        (
            {"text": "a", "glossary": [["a", "b"]], "sampling": {}},
            "glossary cannot be used with sampling; remove one of them",
        ),
        (
            {"text": "a", "constraints": [["b"]], "sampling": {}},
            "constraints cannot be used with sampling; remove one of them",
        ),
        (
            {"text": "a", "constraints": [["b"]], "groups": 3},
            "constraints cannot be used with groups; remove one of them",
        ),
        (
            {"text": "a", "glossary": [["a", "b"], ["a", "c"]]},
            "glossary term 2: 'a' has two translations, 'b' and 'c'; keep one",
        ),
        ({"text": "a", "source": "yy"}, "no model translates from yy"),
        ({"text": "a", "mbr": "ter"}, "mbr: Input should be 'chrf' or 'bleu'"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_an_error_is_explained(fields: dict[str, Any], message: str, served: Served) -> None:
    reply = served.call(PATH, fields)
    assert reply.status == 400
    assert message in reply.error
    assert "--" not in reply.error


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"constraints": [["ba " * 201]]}, "constraints of line 300: the phrases have "),
        ({"constraints": [["mo"]], "forbidden": ["mo"]}, "constraints of line 300: 'mo' is "),
        ({"glossary": [["ke", "ba " * 201]]}, "constraints of line 300: the phrases have "),
        ({"prefix": ["a" * 2001]}, "prefix 300: too long (2,001 characters)"),
    ],
)
def test_an_error_has_the_number_of_the_line_in_the_request(
    fields: dict[str, Any], message: str, tiny_pairs: LanguagePairs
) -> None:
    """Before any is translated: a batch has at most 256 lines."""
    empty = {"constraints": [[]] * 299, "prefix": [""] * 299}
    fields = {name: [*empty.get(name, []), *value] for name, value in fields.items()}
    with serve(tiny_pairs, Limits(characters=100_000)) as served:
        reply = served.call(PATH, {"text": [*["ba"] * 299, "ke"], **fields})
        assert reply.status == 400
        assert reply.error.startswith(message)
        assert served.lines("translated") == 0


@pytest.mark.parametrize("name", ["Glossary", "translation_as_json"])
def test_other_requests_are_answered_while_one_is_prepared_or_formatted(
    name: str, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = threading.Event()
    answered = threading.Event()
    replies = []
    function = getattr(v1, name)
    glossary = [["ke" * 50 + str(n), "mo"] for n in range(20)]  # small requests wait for nothing

    def held(*arguments: Any) -> Any:
        started.set()
        replies.append(answered.wait(600))
        return function(*arguments)

    monkeypatch.setattr(v1, name, held)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(served.call, PATH, {"text": "ba", "glossary": glossary})
        assert started.wait(600)
        assert served.call("/health").status == 200
        answered.set()
        assert reply.result().status == 200
    assert replies == [True]


@pytest.mark.parametrize("code", ENCODINGS)
def test_a_body_in_another_encoding_is_refused(code: str, served: Served) -> None:
    """Also half a surrogate pair in the bytes of UTF-8."""
    body = '{"text": "a\ud800"}'.encode(code, "surrogatepass")
    reply = served.call(PATH, body)
    assert reply.status == 400
    assert reply.error.startswith("the body is not valid JSON in UTF-8: ")


def test_the_description_lists_the_fields_of_real_answers(served: Served) -> None:
    description = served.call("/openapi.json").json
    schemas = description["components"]["schemas"]
    answer = served.call(PATH, {"text": [LINES[0], LINES[-1]], "n_best": 2}).json
    assert answer.keys() == schemas["Translations"]["properties"].keys()
    fields = set().union(*answer["translations"])
    assert fields == schemas["LineTranslation"]["properties"].keys()
    assert (
        answer["translations"][0]["n_best"][0].keys()
        == schemas["HypothesisEntry"]["properties"].keys()
    )


def test_the_description_explains_every_field(served: Served) -> None:
    schemas = served.call("/openapi.json").json["components"]["schemas"]
    own_schemas = {
        name: described for name, described in schemas.items() if "Validation" not in name
    }  # FastAPI's
    assert {
        "TranslatedText",
        "Language",
        "LineTranslation",
        "HypothesisEntry",
    } <= own_schemas.keys()
    fields = {
        f"{name}.{field}": value.get("description")
        for name, schema in own_schemas.items()
        for field, value in schema.get("properties", {}).items()
    }
    assert [field for field, text in fields.items() if not text] == []
