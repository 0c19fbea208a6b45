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
    words, mark = re.findall(r"[\w'.-]*\w|[^\w\s]", line), line[-1:] if line[-1:] in ".!?" else ""
    body = [f"\N{LOWER ONE EIGHTH BLOCK}{word}" for word in words[: len(words) - len(mark)]]
    text = " ".join(words[: len(words) - len(mark)][::-1]) + mark
    size, last = len(body) + len(mark) + 1, [*mark, "</s>"]
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
        ("<p title='a > b'>c d", "<p title='a > b'>d c"),
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
    found = document.translated(unchanged(document.lines))
    assert found == SRT
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
        for found in (same, moved):
            assert Counter(TAGS.findall(found)) == Counter(TAGS.findall(text))
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
