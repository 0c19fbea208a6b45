"""The page in Chromium: typing, attention, alternatives, scripts, keyboard, touch, dark mode."""

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright", reason="needs playwright: make browser-test installs it")

from cases.server import Served, serve
from cases.toy_text import toy_pairs
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from seq2seq.inference.loaded_model import ModelOptions
from seq2seq.tools.serving.access import Access
from seq2seq.tools.serving.limits import Client
from seq2seq.tools.serving.service import LanguagePairs, load_pairs

pytestmark = pytest.mark.browser
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
LINES = toy_pairs(3, seed=8)[0]
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
Open = Callable[..., AbstractContextManager[Page]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"] if as_root else []
        )
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser, served: Served) -> Open:
    """Open the page; finally check that it loaded no other site and logged no message."""

    @contextmanager
    def open_page(address: str = served.address, silent: bool = True, **options: Any) -> Any:
        context = browser.new_context(**options)
        context.set_default_timeout(20_000)
        page = context.new_page()
        urls = []
        messages = []
        page.on("request", lambda request: urls.append(request.url))
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: messages.append(dialog.message))
        page.goto(address)
        yield page
        assert all(url.startswith(f"{address}/") for url in urls)
        assert not silent or messages == []
        context.close()

    return open_page


def type_text(page: Page, text: str) -> None:
    """Type a text and wait for its translation."""
    page.locator("#src").fill(text)
    expect(page.locator("#tgt p")).to_have_count(text.count("\n") + 1)
    expect(page.locator("#tgt")).not_to_have_class(re.compile("stale"))
    page.locator("#tgt .word").first.wait_for()


def answered(page: Page, *translations: dict[str, Any]) -> None:
    """Answer requests in place of the server, with tokens of a script that no test model has."""

    def answer(route: Route) -> None:
        asked = json.loads(route.request.post_data or "{}")
        answers = [
            {
                "score": -0.1,
                "log_probs": [-0.01] * len(translation["tgt_tokens"]),
                "attention_weights": [
                    [1 / len(translation["src_tokens"])] * len(translation["src_tokens"])
                    for _ in translation["tgt_tokens"]
                ],
                "n_best": [],
                **translation,
            }
            for translation in translations[: len(asked["text"])]
        ]
        notes = [translation.get("notes", []) for translation in answers]
        route.fulfill(json={"translations": answers, "notes": notes})

    page.route("**/v1/translate", answer)


def weights(page: Page, selector: str) -> list[float]:
    return page.eval_on_selector_all(
        selector, "all => all.map((each) => Number(each.style.getPropertyValue('--weight')))"
    )


def test_typing_shows_the_translation_of_each_line(opened: Open, served: Served) -> None:
    translations = served.call("/v1/translate", {"text": LINES}).json["translations"]
    with opened() as page:
        page.locator("#src").press_sequentially(f"{LINES[0]}\n", delay=5)
        page.locator("#src").press_sequentially(f"{LINES[1]}\n{LINES[2]}", delay=5)
        texts = page.locator("#tgt p")
        expect(texts).to_have_text([translation["text"] for translation in translations])
        page.locator("#src").fill("")
        expect(texts).to_have_count(0)
        expect(page.locator("#details")).to_be_hidden()


def test_a_word_shows_where_it_attends(opened: Open) -> None:
    """Weights of words are sums over source tokens and means over target tokens."""
    first = {"text": "z", "src_tokens": ["\u2581y", "</s>"], "tgt_tokens": ["\u2581z", "</s>"]}
    second = {
        "text": "unlike old",
        "src_tokens": ["\u2581very", "\u2581un", "like", "</s>"],
        "tgt_tokens": ["\u2581un", "like", "\u2581old", "</s>"],
        "attention_weights": [
            [0.1, 0.5, 0.3, 0.1],
            [0.3, 0.2, 0.4, 0.1],
            [0.01, 0.5, 0.09, 0.4],
            [0, 0, 0, 1],
        ],
    }
    with opened() as page:
        answered(page, first, second)
        type_text(page, "y\nvery unlike")
        words, rows = page.locator("#tgt p").nth(1).locator(".word"), page.locator("#weights tr")
        words.nth(0).hover()
        expect(rows.nth(1)).to_have_class("active")
        assert rows.count() == 4  # a header row, two words and the end
        assert weights(page, "#weights tr.active td") == [0.2, 0.7, 0.1]
        expect(page.locator("#status")).to_have_text(
            "unlike: probability 98%; attends to unlike 70%"
        )
        assert weights(page, "#backdrop mark") == [0.2, 0.7]
        expect(page.locator("#backdrop mark")).to_have_text(["very", "unlike"])
        words.nth(1).hover()
        expect(rows.nth(2)).to_have_class("active")
        assert weights(page, "#weights tr.active td") == [0.01, 0.59, 0.4]
        assert weights(page, "#backdrop mark") == [0.59]  # a small weight is not marked
        assert page.locator("#backdrop").text_content() == "y\nvery unlike\n"
        boxes = [page.locator(selector).bounding_box() for selector in ("#src", "#backdrop")]
        assert boxes[0] == boxes[1]
        page.mouse.move(0, 0)
        expect(page.locator("#backdrop mark")).to_have_count(0)


def test_no_token_is_lost_between_words(opened: Open) -> None:
    """Each row of the heat map of a real model sums to 1."""
    with opened() as page:
        type_text(page, LINES[0])
        cells = weights(page, "#weights tbody td")
        width = page.locator("#weights thead th").count()
        sums = [sum(cells[start : start + width]) for start in range(0, len(cells), width)]
        assert sums == pytest.approx([1] * len(sums), abs=0.01)


def test_alternatives_equal_those_of_the_server(opened: Open, served: Served) -> None:
    (translation,) = served.call("/v1/translate", {"text": LINES[:1], "n_best": 3}).json[
        "translations"
    ]
    with opened() as page:
        type_text(page, LINES[0])
        expect(page.locator("#n-best button")).to_have_text(
            [alternative["text"] for alternative in translation["n_best"][1:]]
        )
        for text, entry in zip(
            page.locator("#n-best small").all_text_contents(),
            translation["n_best"][1:],
            strict=True,
        ):
            assert text.endswith("%")
            assert float(text[:-1]) == pytest.approx(100 * math.exp(entry["score"]), rel=0.1)


def test_an_alternative_shows_its_differences_and_can_be_chosen(opened: Open) -> None:
    line = {
        "text": "the old red car",
        "src_tokens": ["\u2581a", "</s>"],
        "tgt_tokens": ["\u2581the", "\u2581old", "\u2581red", "\u2581car", "</s>"],
        "n_best": [{"text": "the red old car", "score": -0.5, "log_probs": [-1], "tokens": []}],
    }
    with opened() as page:
        answered(page, line)
        type_text(page, "a")
        expect(page.locator("#n-best b")).to_have_text(["old"])
        with page.expect_request("**/v1/translate") as asked:
            page.locator("#n-best button").click()
        assert json.loads(asked.value.post_data or "")["prefix"] == "the red old car"


def test_a_word_can_be_replaced(opened: Open) -> None:
    """The rest of the line is translated again after the chosen word, and freely if asked to."""
    line = {
        "text": "the red car",
        "src_tokens": ["\u2581a", "</s>"],
        "tgt_tokens": ["\u2581the", "\u2581red", "\u2581car", "</s>"],
        "n_best": [
            {
                "text": f"the {word} car",
                "score": -1,
                "tokens": ["\u2581the", f"\u2581{word}", "\u2581car", "</s>"],
                "log_probs": [-0.1, log_prob, -0.1, -0.1],
            }
            for word, log_prob in (("red", -0.1), ("old", -2.3), ("big", -1.2), ("<b>", -9))
        ],
    }
    with opened() as page:
        answered(page, line, line)
        type_text(page, "a\nb")
        for press in (False, True):
            if press:
                for _ in range(2):
                    page.keyboard.press("ArrowRight")
                page.keyboard.press("Enter")
            else:
                page.locator("#tgt p").first.locator(".word").nth(1).click()
            choices = page.locator("#choices button")
            again = ["\u21ba"] * press
            expect(choices).to_have_text(["big 30%", "old 10%", *again])  # none that is unlikely
            with page.expect_request(
                lambda request: "prefix" in (request.post_data or "")
            ) as asked:
                choices.nth(1 + press).click()
            fields = json.loads(asked.value.post_data or "")
            assert (fields["text"], fields["prefix"]) == (["a"], "" if press else "the old ")
            expect(page.locator("#tgt")).to_be_focused()
            expect(page.locator("#tgt p")).to_have_count(2)


def test_an_example_a_link_and_copies(
    tiny_runs: dict[str, Path], tmp_path: Path, opened: Open
) -> None:
    """The page introduces the model by what its run folder says."""
    run = tmp_path / "run"
    shutil.copytree(tiny_runs["luong"], run)
    (run / "metrics.jsonl").write_text('{"step": 9, "valid_bleu": 31.27}\n', encoding="utf-8")
    samples = [json.dumps({"source": line}) for line in (*LINES, LINES[0], "ba " * 99)]
    (run / "samples.jsonl").write_text("\n".join([*samples, "{", "[1]"]), encoding="utf-8")
    (run / "train.log").write_text("demo: xx -> yy, 9,200 training pairs, 3\n", encoding="utf-8")
    pairs = load_pairs([str(run)], ModelOptions("cpu"))
    with serve(pairs) as served, opened(served.address) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        expect(page.locator("#introduction")).to_have_text(
            re.compile(r"^trained 20\d\d-\d\d-\d\d, 9,200 pairs, BLEU 31.3 on held-out sentences$")
        )
        expect(page.locator("#examples button")).to_have_text(sorted(LINES, key=len))
        page.locator("#examples button").first.click()
        page.locator("#tgt .word").first.wait_for()
        expect(page.locator("#src")).to_have_value(min(LINES, key=len))
        expect(page.locator("#examples")).to_be_hidden()
        shown_text = page.locator("#tgt p").text_content()
        page.locator("#copy").click()
        expect(page.locator("#copy")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == shown_text
        page.reload()
        expect(page.locator("#src")).to_have_value(min(LINES, key=len))
        expect(page.locator("#tgt p")).to_have_text([shown_text])
        page.locator("#clear").click()
        expect(page.locator("#tgt p")).to_have_count(0)
        assert page.url == f"{served.address}/"


def test_nothing_moves_when_a_word_is_marked(opened: Open) -> None:
    with opened(**PHONE) as page:
        type_text(page, LINES[0])
        page.locator("#n-best li").first.wait_for()
        box_before = page.locator("#details").bounding_box()
        page.locator("#tgt .word").first.hover()
        expect(page.locator("#status")).to_contain_text("probability")
        assert page.locator("#details").bounding_box() == box_before


def test_the_map_does_not_move_when_its_widest_word_is_marked(opened: Open) -> None:
    line = {
        "text": "a landschaftsmalerei",
        "src_tokens": ["\u2581b", "</s>"],
        "tgt_tokens": ["\u2581a", "\u2581landschaftsmalerei", "</s>"],
    }
    with opened() as page:
        answered(page, line)
        type_text(page, "b")
        table = page.locator("#weights")
        box_before = table.bounding_box()
        page.locator("#tgt .word").last.hover()
        expect(table.locator("tr.active th")).to_have_text("landschaftsmalerei")
        assert table.bounding_box() == box_before


def test_notes_stay_and_nothing_below_moves_when_a_word_is_chosen(opened: Open) -> None:
    """Notes are as high as some lines at most; a word without others in its place says so."""
    line = {
        "text": "one two",
        "src_tokens": ["\u2581a", "</s>"],
        "tgt_tokens": ["\u2581one", "\u2581two", "</s>"],
        "notes": ["hardly any attention"] * 99,
    }
    with opened() as page:
        answered(page, line)
        type_text(page, "a")
        notes, hint = page.locator("#notes"), page.locator("#hint")
        expect(notes).to_contain_text("Hardly any attention. Hardly")
        places = [hint.bounding_box()]
        assert notes.evaluate("notes => notes.scrollHeight > 2 * notes.clientHeight")
        page.locator("#tgt .word").first.hover()
        expect(page.locator("#status")).to_contain_text("one: probability")
        places.append(hint.bounding_box())
        page.locator("#tgt .word").first.click()
        expect(page.locator("#choices")).to_have_text("No other word is likely here.")
        assert places == [hint.bounding_box()] * 2
        expect(notes).to_be_visible()


def test_a_long_line_has_a_part_of_its_map_until_all_is_asked_for(opened: Open) -> None:
    tokens = [f"\u2581w{number}" for number in range(99)]
    line = {"text": " ".join(tokens).replace("\u2581", ""), "tgt_tokens": [*tokens, "</s>"]}
    with opened(**PHONE) as page:
        answered(page, {**line, "src_tokens": [*tokens, "</s>"]})
        type_text(page, line["text"])
        expect(page.locator("#weights tbody td")).to_have_count(60 * 60)
        expect(page.locator(".scroll")).to_have_class(re.compile("more"))
        page.locator("#all").click()
        expect(page.locator("#weights tbody td")).to_have_count(100 * 100)
        page.eval_on_selector(".scroll", "box => { box.scrollLeft = 300; }")
        corner = page.locator("#weights thead td").bounding_box()
        assert corner["x"] >= 0  # type: ignore[index]  # above the headers that pass it


def test_uncertain_words_are_marked(opened: Open) -> None:
    tokens = ["\u2581sure", "\u2581un", "sure", "\u2581half", "</s>"]
    line = {
        "text": "sure unsure half",
        "src_tokens": ["\u2581a", "</s>"],
        "tgt_tokens": tokens,
        "log_probs": [-0.1, -0.4, -0.4, -0.69, -0.1],
    }
    with opened() as page:
        answered(page, line)
        type_text(page, "a")
        expect(page.locator(".word.uncertain[data-place]")).to_have_text(["unsure"])
        page.locator(".word.uncertain[data-place]").hover()
        expect(page.locator("#status")).to_contain_text("unsure: probability 45%")


def test_arrow_keys_move_between_words(opened: Open) -> None:
    with opened() as page:
        type_text(page, f"{LINES[0]}\n{LINES[1]}")
        active = page.locator("#tgt .active")
        words = page.locator("#tgt .word").all_text_contents()
        for _ in range(2):  # past the button that clears the text
            page.keyboard.press("Tab")
        expect(page.locator("#tgt")).to_be_focused()
        for word in words:
            page.keyboard.press("ArrowRight")
            expect(active).to_have_text(word)
            assert page.locator("#status").text_content().startswith(f"{word}: ")  # type: ignore[union-attr]
        page.keyboard.press("ArrowRight")  # stays at the last word
        expect(active).to_have_attribute("data-place", re.compile("^1 "))
        for word in words[-2::-1]:
            page.keyboard.press("ArrowLeft")
            expect(active).to_have_text(word)
        page.keyboard.press("Escape")
        expect(active).to_have_count(0)


def test_a_tap_marks_a_word_and_a_phone_shows_all(opened: Open) -> None:
    with opened(**PHONE) as page:
        type_text(page, " ".join([*LINES, "x" * 80]))
        word = page.locator("#tgt .word").nth(1)
        word.tap()
        expect(word).to_have_class(re.compile("active"))
        expect(page.locator("#backdrop mark").first).to_be_attached()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        areas = [page.locator(selector).bounding_box() for selector in ("#src", "#tgt")]
        assert areas[0]["y"] + areas[0]["height"] <= areas[1]["y"]  # type: ignore[index]


def test_right_to_left_text_runs_from_the_right(opened: Open) -> None:
    """Also in a text whose other line runs from the left; the left arrow key moves forward."""
    hebrew = {
        "text": "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd.",
        "src_tokens": ["\u2581hello", "\u2581world", "</s>"],
        "tgt_tokens": [
            "\u2581\u05e9\u05dc\u05d5\u05dd",
            "\u2581\u05e2\u05d5\u05dc\u05dd",
            ".",
            "</s>",
        ],
    }
    latin = {"text": "a", "src_tokens": ["\u2581b", "</s>"], "tgt_tokens": ["\u2581a", "</s>"]}
    with opened() as page:
        answered(page, hebrew, latin)
        type_text(page, "hello world\nb")
        directions = "all => all.map((each) => getComputedStyle(each).direction)"
        assert page.eval_on_selector_all("#tgt p", directions) == ["rtl", "ltr"]
        words = page.locator("#tgt p").first.locator(".word")
        expect(words).to_have_text(["\u05e9\u05dc\u05d5\u05dd", "\u05e2\u05d5\u05dc\u05dd."])
        first, second = (words.nth(n).bounding_box() for n in (0, 1))
        pane = page.locator("#tgt").bounding_box()
        assert first["x"] > second["x"]  # type: ignore[index]
        assert first["x"] + first["width"] > pane["x"] + 0.8 * pane["width"]  # type: ignore[index]
        page.locator("#tgt").focus()
        for place in ("0 0", "0 1"):
            page.keyboard.press("ArrowLeft")
            expect(page.locator("#tgt .active")).to_have_attribute("data-place", place)
        page.locator("#src").fill("\u05e9\u05dc\u05d5\u05dd")
        assert page.eval_on_selector("#src", "it => getComputedStyle(it).direction") == "rtl"


@pytest.mark.parametrize(
    ("text", "tokens", "words"),
    [
        pytest.param(
            "राहुल चांगला आहे",
            ["\u2581रा", "हु", "ल", "\u2581चां", "गल", "ा", "\u2581आहे"],
            ["राहुल", "चांगला", "आहे"],
            id="Devanagari",
        ),
        pytest.param(
            "私は猫です。",
            ["\u2581", "私", "は", "猫", "です", "。"],
            ["私", "は", "猫", "です", "。"],
            id="Japanese",
        ),
        pytest.param(
            "猫\U0001f600 ok",
            ["\u2581猫", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "\u2581", "ok"],
            ["猫\U0001f600", "ok"],
            id="bytes",
        ),
        pytest.param(
            "e\u0301 <b>&", ["\u2581e", "\u0301", "\u2581<b>", "&"], ["e\u0301", "<b>&"], id="marks"
        ),
        pytest.param(
            "राहुल चांगला आहे",
            ["\u2581राहुल", "\u2581चांगला", "\u2581आहे", "."],
            ["राहुल", "चांगला", "आहे"],
            id="a final mark that the text lacks",
        ),
    ],
)
def test_words_of_a_script_are_words(
    text: str, tokens: list[str], words: list[str], opened: Open
) -> None:
    with opened() as page:
        answered(
            page, {"text": text, "src_tokens": ["\u2581a", "</s>"], "tgt_tokens": [*tokens, "</s>"]}
        )
        type_text(page, "a")
        expect(page.locator("#tgt .word")).to_have_text(words)
        assert page.locator("#tgt p").text_content() == text


def test_a_line_in_parts_has_one_heat_map(opened: Open) -> None:
    line = {
        "text": "c d",
        "src_tokens": ["\u2581a", "</s>", "\u2581b", "</s>"],
        "tgt_tokens": ["\u2581c", "</s>", "\u2581d", "</s>"],
        "attention_weights": None,
        "attention_blocks": [[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.4, 0.6]]],
    }
    with opened() as page:
        answered(page, line)
        type_text(page, "a b")
        assert weights(page, "#weights tbody td") == [
            *(0.9, 0.1, 0, 0, 0.2, 0.8, 0, 0, 0, 0, 0.7, 0.3, 0, 0, 0.4, 0.6)
        ]


def test_text_is_never_markup(opened: Open) -> None:
    text = '<img src=x onerror=alert(1)><script>alert(2)</script>"&amp;'
    line = {"text": text, "src_tokens": [f"\u2581{text}", "</s>"], "tgt_tokens": [f"\u2581{text}"]}
    with opened() as page:
        answered(page, {**line, "n_best": [{"text": f"{text}!", "score": -1}]})
        type_text(page, text)
        expect(page.locator("#n-best button")).to_have_text([f"{text}!"])
        page.locator("#tgt .word").hover()
        assert page.locator("#tgt p").text_content() == text
        assert page.locator("main img, main script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_legible(scheme: str, opened: Open) -> None:
    with opened(color_scheme=scheme) as page:
        type_text(page, LINES[0])
        for selector in (
            "#tgt",
            "#src",
            ".hint",
            "h1",
            "#api a",
            "#weights th",
            "summary",
            "#copy",
        ):
            assert contrast(page, selector) >= 4.5, selector
        ground = luminance(page, "body", "backgroundColor")
        assert ground > 0.8 if scheme == "light" else ground < 0.1


def luminance(page: Page, selector: str, name: str) -> float:
    """Return the relative luminance of a colour, as WCAG defines it."""
    colour = page.eval_on_selector(selector, f"it => getComputedStyle(it).{name}")
    channels = [int(channel) / 255 for channel in re.findall(r"\d+", colour)[:3]]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in channels]
    return sum(x * y for x, y in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def contrast(page: Page, selector: str) -> float:
    """Return the contrast of a text with the background of the page."""
    colours = luminance(page, selector, "color"), luminance(page, "body", "backgroundColor")
    return (max(colours) + 0.05) / (min(colours) + 0.05)


def test_the_page_asks_for_a_token(tiny_pairs: LanguagePairs, opened: Open) -> None:
    with (
        serve(tiny_pairs, access=Access({"s3cret": Client("one")})) as served,
        opened(served.address, silent=False) as page,
    ):
        page.locator("#src").fill(LINES[0])
        expect(page.locator("#status")).to_have_text("Enter the token above.")
        page.locator("#token").fill("other")
        page.locator("#token").press("Enter")
        expect(page.locator("#status")).to_have_text("The server has another token.")
        page.locator("#token").fill("s3cret")
        page.locator("#token").press("Enter")
        expect(page.locator("#tgt .word").first).to_be_visible()
        expect(page.locator("#status")).not_to_contain_text("token")


def test_an_unreachable_server_is_reported(tiny_pairs: LanguagePairs, opened: Open) -> None:
    with serve(tiny_pairs) as served:
        page_of = opened(served.address, silent=False)
        page = page_of.__enter__()
    page.locator("#src").fill(LINES[0])
    expect(page.locator("#status")).to_have_text("The server does not answer.")
    page_of.__exit__(None, None, None)


def test_only_the_translation_of_the_last_text_is_shown(opened: Open) -> None:
    """A late answer does not replace that of a later request."""
    with opened() as page:
        late: list[Route] = []

        def hold_first(route: Route) -> None:
            if late:
                route.continue_()
            else:
                late.append(route)

        page.route("**/v1/translate", hold_first)
        page.locator("#src").fill(LINES[0])
        expect(page.locator("#tgt")).to_have_class("stale")
        type_text(page, LINES[1])
        shown_text = page.locator("#tgt").text_content()
        assert late[0].request.failure or late[0].request.response is not None
        page.wait_for_timeout(300)
        assert page.locator("#tgt").text_content() == shown_text


def test_the_page_leads_to_the_description_of_the_api(opened: Open) -> None:
    with opened(**PHONE) as page:
        with page.expect_response("**/openapi.json") as answered:
            page.locator("summary").click()
            assert "/v1/translate" in (page.locator("#call").text_content() or "")
            page.locator("#api a").click()
        assert {"/v1/translate", "/translate"} <= answered.value.json()["paths"].keys()
