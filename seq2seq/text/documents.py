"""Documents: texts between markup or time codes, which stay as they are written.

Libraries that parse subtitles renumber cues, round times and drop what they do not know; here
everything but the texts of SubRip and WebVTT stays as it is.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from html import escape, unescape
from io import StringIO

from seq2seq.runtime import errors, file_types
from seq2seq.text.characters import MARKS, is_lower
from seq2seq.text.html_attributes import SetAsideAttributes
from seq2seq.text.inline_markup import Escape, Fragment, Segment, TranslatedLine, segments

MAX_CUES = 4  # that a sentence is joined from
_TIMES = re.compile(r"\s*(?:\d+:)?\d+:\d+(?:[.,]\d+)?\s*-->\s*(?:\d+:)?\d+:\d+")
_TAG = re.compile(r"<(?:(?P<end>/?)(?P<name>[a-zA-Z][^\s<>/.]*)|\d)[^<>]*>|\{\\[^{}]*\}")
_DASHES = ("-", "\u2013", "\u2014")


class SourceDocument:
    """A document in parts: lines to translate, and what is between them."""

    def __init__(self, text: str, format: str) -> None:
        """Read a document; raises UserError for an unknown format."""
        self._escape: Escape = str
        self._attributes = SetAsideAttributes(text)
        if format == "html":
            fragments = list(_html_fragments(text, self._attributes))
            self._parts = list(_read_html(fragments))
            self._escape = _escaping(fragments)
        elif format in ("srt", "vtt"):
            self._parts = list(_read_subtitles(text, format == "vtt"))
            self._escape = partial(escape, quote=False) if format == "vtt" else str
        elif format == "text":
            self._parts = list(_read_lines(text))
        else:
            formats = ", ".join(file_types.DOCUMENT_FORMATS)
            raise errors.UserError(f"use one of {formats}", argument="format", value=format)
        texts = [part for part in self._parts if isinstance(part, Segment)]
        self.lines = [segment.text for segment in texts]  # to translate, without markup
        self.lines += [value.text for value in self._attributes.texts]
        self.numbers = [segment.number for segment in texts]  # at which they begin, from 1
        self.numbers += _line_numbers(text, [value.place for value in self._attributes.texts])
        self.has_inline_markup = any(segment.nodes for segment in texts)  # placed by attention

    def translated(
        self, translations: Sequence[TranslatedLine], rank: int = 0, language: str = ""
    ) -> str:
        """Return the document with a translation of each line: that of a rank, from 0.

        The root element of HTML is then in the language, if one is given and it names one.
        """
        next_translations = iter(translations)
        document = "".join(
            part
            if isinstance(part, str)
            else part.translated(next(next_translations), rank, self._escape)
            for part in self._parts
        )
        texts = [translation.n_best[rank].text for translation in next_translations]
        return self._attributes.restored(document, texts, language)


def _line_numbers(text: str, places: Sequence[int]) -> list[int]:
    """Return the number of the line of each place, from 1."""
    ends = [match.start() for match in re.finditer("\n", text)] if places else []
    return [1 + bisect_left(ends, place) for place in places]


def _read_lines(text: str) -> Iterator[str | Segment]:
    """Yield the lines of a text, each translated as a line of a file, without its line end."""
    for number, line in enumerate(text.split("\n"), start=1):
        yield "\n" * (number > 1)
        yield Segment(line.removesuffix("\r"), number=number)


def _read_subtitles(text: str, is_vtt: bool) -> Iterator[str | Segment]:
    """Yield the segments of subtitles, and what is between them.

    The lines of a cue are a segment, as are cues that share a sentence: the next one begins in
    lower case. A line that begins with a dash begins one.
    """
    fragments: list[Fragment] = []
    between = ""
    said = ""
    begun = 1
    cues = 1
    for number, content, ending, is_text in _lines(text, is_vtt):
        if not is_text:
            between += content + ending
            continue
        is_cue = len(between.splitlines()) > 1
        joined = cues < MAX_CUES and _continues(said, content) if is_cue else bool(fragments)
        if joined and not content.lstrip().startswith(_DASHES):
            fragments.append(Fragment(between, "break", text=" "))
            cues += is_cue
        else:
            yield from segments(fragments, begun)
            yield between
            fragments = []
            begun = number
            cues = 1
        fragments += _fragments(content, is_vtt)
        between = ending
        said = content
    yield from segments(fragments, begun)
    yield between


def _lines(text: str, is_vtt: bool) -> Iterator[tuple[int, str, str, bool]]:
    """Yield number, content and end of each line, and whether it is text, after a time code."""
    lines = list(StringIO(text, newline=""))
    in_text = False
    for number, line in enumerate(lines, start=1):
        content = line.rstrip("\r\n")
        following = lines[number] if number < len(lines) else ""
        is_times = _TIMES.match(content) is not None
        is_empty = not content.strip()
        is_number = _TIMES.match(following) is not None and (is_vtt or content.strip().isdigit())
        in_text = is_times or (in_text and not is_number and not (is_vtt and is_empty))
        yield number, content, line[len(content) :], in_text and not is_times and not is_empty


def _continues(said: str, following: str) -> bool:
    said, following = (_TAG.sub("", text).strip() for text in (said, following))
    letter = next(filter(str.isalpha, following), "")
    return bool(said) and is_lower(letter) and said[-1] not in MARKS


def _fragments(line: str, is_vtt: bool) -> Iterator[Fragment]:
    position = 0
    for match in _TAG.finditer(line):
        yield _text(line[position : match.start()], is_vtt)
        name = match["name"]
        kind = "point" if name is None else "close" if match["end"] else "open"
        yield Fragment(match[0], kind, (name or "").lower())
        position = match.end()
    yield _text(line[position:], is_vtt)


def _text(raw: str, has_entities: bool = True) -> Fragment:
    return Fragment(raw, "text", text=unescape(raw) if has_entities else raw)


_BLOCKS = re.findall(
    r"\w+",
    """address article aside blockquote body br button caption center col colgroup dd details dialog
    dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head
    header hgroup hr html legend li link main menu meta nav noframes noscript object ol optgroup
    option p param pre search section select source summary table tbody td tfoot th thead title
    tr track ul""",
)
_VOID = ("area", "base", "embed", "img", "input", "wbr")
_OPAQUE = re.findall(
    r"\w+",
    "code iframe kbd math noembed pre samp script style sup svg template textarea tt var xmp",
)
_MARKUP = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|<[!?][^>]*+>?"
    r"|<(?P<raw>script|style|textarea|xmp|iframe)(?=[\s/>]).*?(?:</(?P=raw)\s*+>|\Z)"
    r"|<(?P<end>/?)(?P<name>[a-z][^\s/>]*+)"
    r"(?P<rest>(?:=\s*+(?:\"[^\"]*+\"?|'[^']*+'?)|[^>])*+)>?",
    re.IGNORECASE | re.DOTALL,
)
_UNTRANSLATED = re.compile(
    r"\stranslate\s*=\s*[\"']?no\b|\sclass\s*=\s*[\"']?(?:[^\"'>]*\s)?notranslate\b", re.IGNORECASE
)
_CLOSED = re.compile(r"(?:^|[\s\"'])/\Z")
_ENTITY = re.compile(r"&(?:\#\w{1,8}|\w{1,32});", re.ASCII)
_WHITE = " \t\n\r\f\ufeff"


def _read_html(fragments: Sequence[Fragment]) -> Iterator[str | Segment]:
    """Yield the segments of an HTML document, and what is between them."""
    block: list[Fragment] = []  # of a block, so far
    number = 1  # line of the document
    for fragment in fragments:
        if fragment.kind == "block":
            yield from _segment(block, number)
            number += sum(part.raw.count("\n") for part in (*block, fragment))
            block = []
            yield fragment.raw
        else:
            block.append(fragment)
    yield from _segment(block, number)


def _escaping(fragments: Sequence[Fragment]) -> Escape:
    """Write `&<>` as entities, and others that the document only has as entities as these."""
    texts = [fragment for fragment in fragments if fragment.kind == "text"]
    entities = {e: unescape(e) for fragment in texts for e in _ENTITY.findall(fragment.raw)}
    raw = frozenset("".join(_ENTITY.sub("", fragment.raw) for fragment in texts))
    written = {
        ord(character): entity
        for entity, character in entities.items()
        if len(character) == 1 and character not in raw and character not in "&<>"
    }
    return lambda target: escape(target, quote=False).translate(written)


def _segment(fragments: list[Fragment], number: int) -> Iterator[str | Segment]:
    """Yield what fragments make, without the white space around it."""
    leading_space = trailing_space = ""
    fragments = [*fragments]
    if fragments and fragments[0].kind == "text":
        content = fragments[0].raw.lstrip(_WHITE)
        leading_space = fragments[0].raw[: len(fragments[0].raw) - len(content)]
        fragments[0] = _text(content)
    if fragments and fragments[-1].kind == "text":
        content = fragments[-1].raw.rstrip(_WHITE)
        trailing_space = fragments[-1].raw[len(content) :]
        fragments[-1] = _text(content)
    yield leading_space
    yield from segments(fragments, number + leading_space.count("\n"))
    yield trailing_space


def _html_fragments(text: str, attributes: SetAsideAttributes) -> Iterator[Fragment]:
    """Yield the texts and the markup of a document; together they are the document."""
    position = depth = start = 0  # depth of elements of one name, from `start`, that are left alone
    opaque = ""
    for match in _MARKUP.finditer(text):
        name = (match["name"] or "").lower()
        is_end = bool(match["end"])
        is_empty = not is_end and (name in _VOID or _CLOSED.search(match["rest"] or ""))
        if depth:
            depth += 0 if name != opaque or is_empty else -1 if is_end else 1
            if not depth:
                yield Fragment(text[start : match.end()], "block" if name == "pre" else "point")
            position = match.end()
            continue
        if position < match.start():
            yield _text(text[position : match.start()])
        position = match.end()
        is_opaque = name in _OPAQUE or bool(name and _UNTRANSLATED.search(match["rest"]))
        if is_opaque and not is_end and not is_empty:
            start = match.start()
            depth = 1
            opaque = name
            continue
        is_plain = is_end or is_opaque or not name
        tag = match[0] if is_plain else attributes.set_aside(match[0], name, match.start())
        if name in _BLOCKS:
            yield Fragment(tag, "block")
        elif not name or is_empty:
            yield Fragment(tag, "point")
        else:
            yield Fragment(tag, "close" if is_end else "open", name)
    if depth:
        yield Fragment(text[start:], "block")
    elif position < len(text):
        yield _text(text[position:])
