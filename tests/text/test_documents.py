"""Documents: markup, time codes and entities stay, inline tags move with their words."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.inference.nbest import AttentionBlocks, NBestEntry
from seq2seq.inference.translation import Translation
from seq2seq.runtime.errors import UserError
from seq2seq.runtime.file_types import DOCUMENT_FORMATS
from seq2seq.text.documents import SourceDocument

TAGS = re.compile(r"</?[a-z][^<>]*>|<!--[^>]*-->")


Translate = Callable[[list[str]], Sequence[Translation]]


def translate_document(text: str, format: str, translate: Translate) -> str:
    document = SourceDocument(text, format)
    return document.translated(translate(document.lines))


def reversed_words(lines: list[str]) -> list[Translation]:
    """Translate lines to their words in reverse order, each of which attends to its source."""
    return [_reversed(line, with_attention=True) for line in lines]


def without_attention(lines: list[str]) -> list[Translation]:
    return [_reversed(line, with_attention=False) for line in lines]


def unchanged(lines: list[str]) -> list[Translation]:
    return [Translation([NBestEntry(line, 0.0)]) for line in lines]


def _reversed(line: str, with_attention: bool) -> Translation:
    words = re.findall(r"[\w'.-]*\w|[^\w\s]", line)
    mark = line[-1:] if line[-1:] in ".!?" else ""
    body = [f"\N{LOWER ONE EIGHTH BLOCK}{word}" for word in words[: len(words) - len(mark)]]
    text = " ".join(words[: len(words) - len(mark)][::-1]) + mark
    size = len(body) + len(mark) + 1
    last = [*mark, "</s>"]
    order = [*reversed(range(len(body))), *range(len(body), size)]
    blocks = AttentionBlocks([np.eye(size, dtype=np.float32)[order]]) if with_attention else None
    tokens = body[::-1] + last
    return Translation([NBestEntry(text, 0.0, tokens, [], blocks)], [*body, *last])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("<p>One <b>two</b> three.</p>", "<p>three <b>two</b> One.</p>"),
        ("<b>One two</b> three.", "three <b>two One</b>."),
        ("<b>One</b> <i>two</i> three.", "three <i>two</i> <b>One</b>."),
        ("<b>One <i>two</i></b> three.", "three <b><i>two</i> One</b>."),
        ("<a href='x?a=1&b=2'>One two.</a>", "<a href='x?a=1&b=2'>two One.</a>"),
        ("<b>One <i>two</b> three</i>.", "three</i> <b>two <i>One</b>."),  # crossing tags
        ("One <b>two three.", "three two <b>One."),
        ("One two<sup>1</sup> three.", "three two<sup>1</sup> One."),
        ("One <code>a b</code> two.", "two <code>a b</code> One."),
        ("One <span translate='no'>a b</span> two.", "two <span translate='no'>a b</span> One."),
        ("One<br>two three.<hr/>four", "One<br>three two.<hr/>four"),
        ("<!doctype html>\n<title>One two</title>", "<!doctype html>\n<title>two One</title>"),
        ("  <td>\n One\n two </td>\n", "  <td>\n two One </td>\n"),
        ("<p>12 &nbsp; &copy;</p><p>a b</p>", "<p>12 &nbsp; &copy;</p><p>b a</p>"),
        ("One caf&eacute; &lt;", "&lt; caf&eacute; One"),
        ("5 < 6 a & b", "b &amp; a 6 &lt; 5"),
        ("<pre>a b</pre><script>'</p> a b'</script>", "<pre>a b</pre><script>'</p> a b'</script>"),
        ("<pre>a <pre>b</pre> c</pre>d e", "<pre>a <pre>b</pre> c</pre>e d"),
        ("<p data-a='a > b'>c d", "<p data-a='a > b'>d c"),
        ("a b <unclosed c d", "b a <unclosed c d"),
        ("a b <!-- c d", "b a <!-- c d"),
        ("<custom-tag>a</custom-tag> b <x id=1 />c", "c <x id=1 />b <custom-tag>a</custom-tag>"),
    ],
)
def test_tags_of_html_move_with_their_words(source: str, target: str) -> None:
    assert translate_document(source, "html", reversed_words) == target


def test_markup_without_attention_is_placed_in_proportion() -> None:
    source = "<p>one two <b>three four</b> five six</p>"
    expected = "<p>six five <b>four three</b> two one</p>"
    assert translate_document(source, "html", without_attention) == expected


SRT = """\ufeff1\r
00:00:01,000 --> 00:00:02,000 X1:1\r
One <i>two</i>\r
three.\r
\r
2\r
00:00:03,000 --> 00:00:04,000\r
- Four five.\r
- Six seven.\r
\r
3\r
00:00:05,000 --> 00:00:06,000\r
{\\an8}Eight nine\r
\r
7\r
00:00:07,000 --> 00:00:08,000\r
ten eleven.\r
\r
8
00:00:09,000 --> 00:00:10,000

1984"""


def test_subtitles_keep_numbers_times_and_line_ends() -> None:
    """A sentence over two cues is one line; a break stays between the words that it parts."""
    document = SourceDocument(SRT, "srt")
    assert document.lines == [
        "One two three.",
        "- Four five.",
        "- Six seven.",
        "Eight nine ten eleven.",
    ]
    assert document.numbers == [3, 8, 9, 13]
    translated = document.translated(unchanged(document.lines))
    assert translated == SRT
    moved = translate_document(SRT, "srt", reversed_words)
    assert "<i>two</i>" in moved
    assert [line for line in moved.splitlines() if "-->" in line or line.isdigit()] == [
        line for line in SRT.splitlines() if "-->" in line or line.isdigit()
    ]


def test_only_the_cues_of_vtt_are_translated() -> None:
    text = """WEBVTT a b

NOTE a b
c d

STYLE
::cue { color: red }

name of cue
00:01.000 --> 00:02.000 align:start
<v Bob Smith>One <c.red>two</c> &amp; three

00:01:03.000 --> 00:01:04.000
One <00:01:03.500>two &lt;"""
    document = SourceDocument(text, "vtt")
    assert document.lines == ["One two & three", "One two <"]
    assert document.translated(unchanged(document.lines)) == text
    moved = translate_document(text, "vtt", reversed_words)
    assert "<v Bob Smith>three &amp; <c.red>two</c> One\n" in moved


def test_lines_of_text_stay_lines() -> None:
    text = "a b\r\n\n\tc  d\n \ne f"
    assert translate_document(text, "text", unchanged) == text.replace("\r", "")
    assert SourceDocument(text, "text").lines == ["a b", "", "\tc  d", " ", "e f"]


def test_another_format_is_refused() -> None:
    with pytest.raises(UserError, match="text, html, srt, vtt"):
        SourceDocument("", "pdf")


FRAGMENTS = st.sampled_from(
    [
        *(
            "<p>",
            "</p>",
            "<b>",
            "</b>",
            "<i class='x'>",
            "</i>",
            "<br>",
            "<img src=a>",
            "<!-- a -->",
        ),
        *("<code>x</code>", "<td", ">", "<", "&amp;", "&eacute;", "&", "<pre>", "</pre>", "<v A>"),
        *("<script>", "</script>", "{\\an8}", "WEBVTT\n\n", "00:00:01,000 --> 00:00:02,000\n"),
        *(
            "\n\n",
            "\r\n",
            "\n",
            " ",
            "-->",
            "- ",
            "a",
            "word",
            "B.",
            "é",
            "'",
            '"',
            "1",
            "=",
            "你好。",
        ),
    ]
)


def _text_of(html: str) -> str:
    """Return the texts of a document, as the standard library reads it."""
    texts: list[str] = []
    parser = HTMLParser()
    parser.handle_data = texts.append  # type: ignore[method-assign]
    parser.feed(html)
    parser.close()
    return "".join(texts)


@given(st.lists(FRAGMENTS, max_size=30).map("".join), st.sampled_from(DOCUMENT_FORMATS))
def test_malformed_documents_lose_nothing(text: str, form: str) -> None:
    """The characters, but white space, are those of the document, and its tags are in it."""
    document = SourceDocument(text, form)
    same = document.translated(unchanged(document.lines))
    moved = translate_document(text, form, reversed_words)
    if form == "html":
        for translated in (same, moved):
            assert Counter(TAGS.findall(translated)) == Counter(TAGS.findall(text))
        same, text = _text_of(same), _text_of(text)
    elif form == "vtt":
        same, text = unescape(same), unescape(text)
    assert Counter("".join(same.split())) == Counter("".join(text.split()))


@pytest.mark.parametrize(
    "text",
    [
        "<p>The car is old. <code>x</code></p>",
        "<p><code>x</code>\n The car.</p>",
        "<p>a <b>b </b></p>",
        "<p>a <b>b</b> <i>c</i> <br></p>",
        "<p>\n  The <b>car</b> is old.\n  <!-- c -->\n</p>",
    ],
)
def test_white_space_at_the_ends_of_a_text_stays(text: str) -> None:
    document = SourceDocument(text, "html")
    assert document.translated(unchanged(document.lines)) == text


PAGE = """<!DOCTYPE html>
<HTML xml:lang="en-GB" LANG=en>
<head><title>Cars</title><link rel="stylesheet" title="Plain style"></head>
<body lang="en" title='The "old" car'>
<p>The <a title="A &amp; B" href="?alt='x'">red</a> car.
<img src="car.jpg" alt="A
red car"> <img alt=Car><img alt=""><img alt="12"></p>
<code title="f">x</code><div translate="no" title="No">No</div>
</body></html>
"""


def test_alternative_texts_and_titles_are_translated_and_the_root_has_the_language() -> None:
    document = SourceDocument(PAGE, "html")
    lines = ["Cars", "The red car.", 'The "old" car', "A & B", "A red car", "Car"]
    assert document.lines == lines
    assert document.numbers == [3, 5, 4, 5, 6, 7]
    assert document.translated(unchanged(lines)) == PAGE
    texts = ["Autos", "L'auto rouge.", 'L\'auto "vieille"', "B & A", "Une auto rouge", "Auto d'or"]
    expected = PAGE.replace('xml:lang="en-GB" LANG=en', 'xml:lang="fr" LANG="fr"')
    for raw, written in (
        (">Cars<", ">Autos<"),
        ("""'The "old" car'""", """'L&#39;auto "vieille"'"""),
        ('"A &amp; B"', '"B &amp; A"'),
        ('"A\nred car"', '"Une auto rouge"'),
        ("alt=Car>", """alt="Auto d'or">"""),
    ):
        assert raw in expected
        expected = expected.replace(raw, written)
    translated = document.translated(unchanged(texts), language="fr")
    assert TAGS.findall(translated) == TAGS.findall(expected)
    assert "<title>Autos</title>" in translated
    assert re.search("auto.* rouge", re.sub("<[^<>]*>", "", translated))


ELEMENTS = st.sampled_from(["b", "i", "a href='x'", 'span lang="en" title="The car"', "em"])
WORDS = st.sampled_from(
    [
        "The",
        "old",
        "caf\u00e9,",
        "is",
        "red.",
        "l'homme",
        "Pays-Bas",
        "3.5",
        "(12)",
        "&amp;",
        "\u4f60\u597d",
    ]
)
POINTS = st.sampled_from(
    ["<img src=a alt='A house'>", "<!-- c -->", "<code>x</code>", "<wbr>", "<sup>1</sup>", "<br>"]
)
SPACES = st.sampled_from(["", " ", "\n  ", "\t", "  "])
BLOCKS = st.sampled_from(["p", "li", "h1", "td", "div"])


@st.composite
def inline_markup(draw: st.DrawFn, depth: int = 0) -> str:
    """Draw words with markup beside and around them, none within a word."""
    text = ""
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["words", "words", "element", "point"]))
        if kind == "element" and depth < 3:
            element = draw(ELEMENTS)
            inner = draw(inline_markup(depth + 1))
            text += f"<{element}>{inner}</{element.split()[0]}>"
        elif kind == "point":
            text += draw(POINTS)
        else:
            words = draw(st.lists(WORDS, min_size=1, max_size=4))
            text += f"{draw(SPACES)}{' '.join(words)}{draw(SPACES)}"
        text += draw(SPACES)
    return text


@st.composite
def pages(draw: st.DrawFn) -> str:
    blocks = [
        f"<{name}>{draw(inline_markup())}</{name}>{draw(SPACES)}"
        for name in draw(st.lists(BLOCKS, min_size=1, max_size=3))
    ]
    return "".join(blocks)


@given(st.one_of(pages(), st.lists(FRAGMENTS, max_size=30).map("".join)))
def test_an_identity_translation_returns_a_document_as_it_is(text: str) -> None:
    document = SourceDocument(text, "html")
    assert document.translated(unchanged(document.lines)) == text


def in_capitals(lines: list[str]) -> list[Translation]:
    """Translate lines to their letters in capitals; each word attends to its source."""
    translations = []
    for line in lines:
        tokens = [
            token.replace(" ", "\u2581") for token in re.findall(r" ?[\w'-]+| ?[^\w\s]", line)
        ]
        src = [*tokens, "</s>"]
        tgt = [*map(str.upper, tokens), "</s>"]
        blocks = AttentionBlocks([np.eye(len(src), dtype=np.float32)])
        translations.append(Translation([NBestEntry(line.upper(), 0.0, tgt, [], blocks)], src))
    return translations


@given(pages())
def test_markup_stays_at_its_words(text: str) -> None:
    """But for white space: within an element at its end, it comes after the element."""
    text = re.sub(r"(?<=\w)(?=<)|(?<=>)(?=\w)", " ", text)  # no markup within a word
    document = SourceDocument(text, "html")
    expected = re.sub(
        r"(<code>.*?</code>|<[^<>]*>|&amp;)|[^<>&]+",
        lambda part: part[1] or part[0].upper(),
        re.sub(r"(title|alt)=(.)([^'\"]*)", lambda m: f"{m[1]}={m[2]}{m[3].upper()}", text),
    )
    translated = document.translated(in_capitals(document.lines))
    assert "".join(translated.split()) == "".join(expected.split())
