"""The API of LibreTranslate: its client, its formats, its errors."""

import html
import json
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest

pytest.importorskip("fastapi")

from cases.server import ENCODINGS, Served
from cases.toy_text import toy_pairs
from libretranslatepy import LibreTranslateAPI

from seq2seq import Translator
from seq2seq.inference.nbest import NBestEntry
from seq2seq.inference.translation import Translation
from seq2seq.text.documents import SourceDocument
from seq2seq.tools.serving.service import translated_documents

LINES = toy_pairs(12, seed=5)[0]


@pytest.fixture(scope="module")
def expected(tiny_runs: dict[str, Path]) -> dict[str, str]:
    """Return the translations of the translator without a server."""
    translations = Translator.load(tiny_runs["bahdanau"]).translate([*LINES, ""])
    return dict(zip([*LINES, ""], (translation.text for translation in translations), strict=True))


def test_the_client_of_libretranslate_works(served: Served, expected: dict[str, str]) -> None:
    client = LibreTranslateAPI(served.address)
    for line in LINES:
        assert client.translate(line, "xx", "yy") == expected[line]
    assert client.languages() == [
        {"code": "xx", "name": "xx", "targets": ["yy"]},
        {"code": "yy", "name": "yy", "targets": []},
    ]


def test_a_string_gives_a_string_and_a_list_a_list(
    served: Served, expected: dict[str, str]
) -> None:
    fields = {"source": "xx", "target": "yy", "format": "text", "secret": "ignored"}
    assert served.call("/translate", {"q": LINES[0], **fields}).json == {
        "translatedText": expected[LINES[0]]
    }
    assert served.call("/translate", {"q": LINES, **fields}).json == {
        "translatedText": [expected[line] for line in LINES]
    }
    assert served.call("/translate", {"q": [], **fields}).json == {"translatedText": []}


def test_each_line_of_a_text_is_translated(served: Served, expected: dict[str, str]) -> None:
    text = f"{LINES[0]}\r\n\n{LINES[1]}\n"
    answer = served.call("/translate", {"q": [text, LINES[2]], "target": "yy"}).json
    first = f"{expected[LINES[0]]}\n\n{expected[LINES[1]]}\n"
    assert answer == {"translatedText": [first, expected[LINES[2]]]}


def test_a_surrogate_pair_is_a_character(served: Served) -> None:
    answer = served.call("/translate", rb'{"q": "ba \ud83d\ude00", "target": "yy"}')
    assert (
        answer.json == served.call("/translate", {"q": "ba \N{GRINNING FACE}", "target": "yy"}).json
    )


def test_a_form_is_read_like_json(served: Served, expected: dict[str, str]) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    body = urlencode([("q", LINES[0]), ("q", LINES[1]), ("target", "yy")]).encode()
    answer = served.call("/translate", body, kind).json
    assert answer == {"translatedText": [expected[LINES[0]], expected[LINES[1]]]}


def test_a_form_may_have_parts_or_a_list_in_json(served: Served, expected: dict[str, str]) -> None:
    parts = [("q", LINES[0]), ("source", "auto"), ("target", "yy"), ("q", LINES[1])]
    body = "".join(
        f'--limit\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in parts
    )
    kind = {"Content-Type": "multipart/form-data; boundary=limit"}
    translations = [expected[LINES[0]], expected[LINES[1]]]
    answer = served.call("/translate", f"{body}--limit--\r\n".encode(), kind).json
    assert answer == {
        "translatedText": translations,
        "detectedLanguage": [{"confidence": 33, "language": "xx"}] * 2,
    }
    part = '--limit\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    text = "ba é 漢\nzu"
    body = part.format("q", text) + part.format("target", "yy") + "--limit--\r\n"
    answer = served.call("/translate", body.encode(), kind).json
    assert answer == served.call("/translate", {"q": text, "target": "yy"}).json
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    for form in (
        [("q", json.dumps(LINES[:2])), ("target", "yy")],
        [("q[]", LINES[0]), ("q[]", LINES[1]), ("target", "yy")],
    ):
        answer = served.call("/translate", urlencode(form).encode(), kind).json
        assert answer == {"translatedText": translations}
    reply = served.call("/translate", b"q=The cat & the dog&target=yy", kind)
    assert reply.status == 400
    assert "write & in a text as %26" in reply.error


def test_html_without_tags_is_text_with_entities(served: Served) -> None:
    fields = {"source": "auto", "target": "YY"}
    plain = served.call("/translate", {"q": 'ba & <3 "zu"', **fields}).json
    marked = {"q": "ba &amp; &lt;3 &quot;zu&quot;", "format": "html", **fields}
    answer = served.call("/translate", marked).json
    assert answer["translatedText"] == html.escape(plain["translatedText"], quote=False)
    assert answer["detectedLanguage"] == {"confidence": 33, "language": "xx"}


def test_markup_and_times_stay(served: Served, expected: dict[str, str]) -> None:
    """Inline markup is placed by attention, as `seq2seq translate --format` places it."""
    first_line, second_line = LINES[:2]
    page = f"<p class='a'>{first_line}</p>\n<ul><li>{second_line}<li><b>{first_line}</b></ul>"
    answer = served.call("/translate", {"q": page, "target": "yy", "format": "html"}).json
    first, second = (html.escape(expected[line], quote=False) for line in (first_line, second_line))
    assert answer["translatedText"] == (
        f"<p class='a'>{first}</p>\n<ul><li>{second}<li><b>{first}</b></ul>"
    )
    film = (
        f"1\n00:00:01,000 --> 00:00:02,000\n{first_line}\n\n"
        f"2\n00:00:03,000 --> 00:00:04,000\n{second_line}\n"
    )
    answer = served.call("/translate", {"q": [film], "target": "yy", "format": "srt"}).json
    translated_film = film.replace(first_line, expected[first_line]).replace(
        second_line, expected[second_line]
    )
    assert answer == {"translatedText": [translated_film]}
    reply = served.call("/v1/translate", {"text": [page, second_line], "format": "html"}).json
    assert reply["documents"] == [
        f"<p class='a'>{first}</p>\n<ul><li>{second}<li><b>{first}</b></ul>",
        second,
    ]
    assert [entry["text"] for entry in reply["translations"]] == [
        expected[line] for line in (first_line, second_line, first_line, second_line)
    ]


def test_requests_of_mastodon_are_answered(served: Served, expected: dict[str, str]) -> None:
    """As app/lib/translation_service/libre_translate.rb sends them, with an api_key of null."""
    (language, _) = served.call("/languages").json
    assert (language["code"], language["targets"]) == ("xx", ["yy"])
    texts = [f"<p>{LINES[0]}</p>", LINES[1], ""]
    fields = {"q": texts, "source": "auto", "target": "yy", "format": "html", "api_key": None}
    answer = served.call("/translate", fields).json
    first, second = (html.escape(expected[line], quote=False) for line in LINES[:2])
    assert answer["translatedText"] == [f"<p>{first}</p>", second, ""]
    assert [entry["language"] for entry in answer["detectedLanguage"]] == ["xx"] * 3


def test_requests_of_the_page_of_libretranslate_are_answered(
    served: Served, expected: dict[str, str]
) -> None:
    """It asks for settings and languages, then sends FormData with an empty key."""
    settings = served.call("/frontend/settings").json
    assert settings["language"]["source"]["code"] == "xx"
    assert settings["language"]["target"] == {"code": "yy", "name": "yy"}
    assert {"charLimit", "suggestions", "supportedFilesFormat", "filesTranslation"} <= set(settings)
    names = ("q", "source", "target", "format", "api_key")
    values = (LINES[0], "auto", "yy", "text", "")
    limit = "----geckoformboundary5f"
    kind = {"Content-Type": f"multipart/form-data; boundary={limit}"}
    body = "".join(
        f'--{limit}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in zip(names, values, strict=True)
    )
    reply = served.call("/translate", f"{body}--{limit}--\r\n".encode(), kind)
    assert reply.json == {
        "translatedText": expected[LINES[0]],
        "detectedLanguage": {"confidence": 33, "language": "xx"},
    }


def test_a_language_is_detected(served: Served) -> None:
    client = LibreTranslateAPI(served.address)
    assert client.detect("ba lo.") == [
        {"confidence": 33, "language": "xx"},
        {"confidence": 33, "language": "yy"},
    ]
    assert served.call("/detect", {"q": 4}).status == 400


def test_a_final_slash_is_no_other_path(served: Served) -> None:
    fields = {"q": LINES[0], "target": "yy"}
    reply = served.call("/translate/", fields)
    assert (reply.status, reply.json) == (200, served.call("/translate", fields).json)
    assert served.call("/languages/").status == 200


def test_numbers_beyond_all_bounds_are_refused(served: Served) -> None:
    reply = served.call("/translate", b"{}", {"Content-Length": "0" * 4_999 + "2"})
    assert reply.status == 400
    fields = {"text": "ba", "groups": 2, "beam_size": 2, "diversity": 1e308}
    reply = served.call("/v1/translate", fields)
    assert (reply.status, "must be from 0 to 1,000,000" in reply.error) == (400, True)


@pytest.mark.parametrize("count", [1, 2, 50])
def test_alternatives_are_different_texts_and_do_not_change_the_translation(
    count: int, served: Served, expected: dict[str, str]
) -> None:
    """The beam of the run (3) bounds them."""
    answer = served.call("/translate", {"q": LINES, "target": "yy", "alternatives": count}).json
    assert answer["translatedText"] == [expected[line] for line in LINES]
    for text, alternatives in zip(answer["translatedText"], answer["alternatives"], strict=True):
        assert 1 <= len(alternatives) <= min(count, 2)
        assert len({text, *alternatives}) == 1 + len(alternatives)


def test_alternatives_differ_in_more_than_spaces() -> None:
    """Two lists of tokens may be one text but for a space, as in l'eau and l' eau."""
    texts = [
        ["l'eau est là", "l' eau est là", "l'eau  est là", "eau là"],
        ["oui", "oui", "si", "si"],
    ]
    lines = [Translation([NBestEntry(text, -1.0) for text in entries]) for entries in texts]
    documents = [SourceDocument(text, "text") for text in ("a", "b")]
    answers = translated_documents(documents, lines, "fr", n_best=4)
    assert answers == [["l'eau est là", "eau là"], ["oui", "si"]]


def test_a_blank_text_has_no_alternatives(served: Served) -> None:
    answer = served.call("/translate", {"q": " ", "target": "yy", "alternatives": 2}).json
    assert (answer["translatedText"].strip(), answer["alternatives"]) == ("", [])


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"q": "a"}, 400, "target: Field required"),
        ({"target": "yy"}, 400, "q: Field required"),
        (
            {"q": "a", "target": "zz"},
            400,
            "source, target: no model translates to zz; there is xx-yy",
        ),
        (
            {"q": "a", "source": "yy", "target": "yy"},
            400,
            "source, target: no model translates from yy to yy; there is xx-yy",
        ),
        (
            {"q": "a", "target": "auto"},
            400,
            "source, target: no model translates to auto; there is xx-yy",
        ),
        ({"q": 7, "target": "yy"}, 400, "q: must be a string or a list of strings"),
        ({"q": ["a", 4], "target": "yy"}, 400, "q: must be a string or a list of strings"),
        (
            {"q": "a", "target": "yy", "format": "pdf"},
            400,
            "format: Input should be 'text', 'html', 'srt' or 'vtt'",
        ),
        (
            {"q": "a", "target": "yy", "alternatives": -1},
            400,
            "alternatives: Input should be greater than or equal to 0",
        ),
        (b"{", 400, "the body is not valid JSON in UTF-8"),
        (b"", 400, "the body is empty; the fields of a request belong in it, not in the address"),
        pytest.param(b"[" * 100_000, 400, "the body is not valid JSON in UTF-8", id="deep"),
        pytest.param(
            b'{"q": ' + b"9" * 5_000 + b"}", 400, "the body is not valid JSON in UTF-8", id="number"
        ),
        (b"\xff\xfe", 400, "the body is not valid JSON in UTF-8"),
        *(
            pytest.param(
                '{"q": "a\ud800", "target": "yy"}'.encode(code, "surrogatepass"),
                400,
                "the body is not valid JSON in UTF-8",
                id=code,
            )
            for code in ENCODINGS
        ),
        (b"[]", 400, "the body must be a JSON object"),
        (rb'{"q": "\uD800", "target": "yy"}', 400, "the body is not valid JSON in UTF-8"),
        (rb'{"q": "a", "target": "\uDFFF"}', 400, "the body is not valid JSON in UTF-8"),
        (
            "{'q': 'a', 'target': 'z\\u0007'}".replace("'", '"').encode(),
            400,
            r"source, target: no model translates to z\u0007; there is xx-yy",
        ),
    ],
    ids=str,
)
def test_an_error_is_explained(body: object, status: int, message: str, served: Served) -> None:
    reply = served.call("/translate", body)
    text = re.sub(r"(in UTF-8): .*| at line .*|, unable.*", r"\1", reply.error)
    assert (reply.status, text) == (status, message)


def test_other_kinds_of_bodies_are_refused(served: Served) -> None:
    reply = served.call("/translate", b"q=a", {"Content-Type": "text/plain"})
    assert reply.status == 415
    assert "send application/json or application/x-www-form-urlencoded" in reply.error
    kind = "multipart/form-data; boundary=x"
    assert served.call("/translate", b"q=a", {"Content-Type": kind}).status == 400
    kind = "application/x-www-form-urlencoded"
    for body in (b"q=%ff", b"q=%ed%a0%80", b"q=\xed\xa0\x80"):  # also half a surrogate pair
        assert served.call("/translate", body, {"Content-Type": kind}).status == 400


def test_a_byte_order_mark_is_ignored(served: Served) -> None:
    fields = {"q": "ba", "target": "yy"}
    marked = served.call("/translate", json.dumps(fields).encode("utf-8-sig"))
    assert marked.json == served.call("/translate", fields).json


def test_health_and_unknown_paths(served: Served) -> None:
    assert served.call("/health").json["status"] == "ok"
    assert served.call("/nothing").status == 404
    assert served.call("/static/../app.py").status == 404
    assert served.call("/static/%2e%2e%2fapp.py").status == 404
    assert served.call("/translate").status == 405


def test_older_clients_ask_for_the_languages_by_post(served: Served) -> None:
    """As `libretranslatepy` 2.1.0 does."""
    reply = served.call("/languages")
    asked = served.call("/languages", b"", {"Content-Type": "application/x-www-form-urlencoded"})
    assert (asked.status, asked.json) == (reply.status, reply.json) == (200, reply.json)
