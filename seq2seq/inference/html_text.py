"""Texts of an HTML document, between its tags.

Libraries that parse HTML write another document: they add elements, repair nesting and replace tags
and entities. Here everything but the texts stays as it is written, in linear time.
"""

import re
from collections.abc import Callable, Iterator
from html import escape, unescape

from seq2seq.inference.inline_markup import Fragment, Segment, segments

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


def read_html(text: str) -> Iterator[str | Segment]:
    """Yield the segments of an HTML document, and what is between them."""
    fragments: list[Fragment] = []
    number = 1  # line of the document
    for fragment in _fragments(text):
        if fragment.kind == "block":
            yield from _segment(fragments, number)
            number += sum(part.raw.count("\n") for part in (*fragments, fragment))
            fragments = []
            yield fragment.raw
        else:
            fragments.append(fragment)
    yield from _segment(fragments, number)


def escaping(text: str) -> Callable[[str], str]:
    """Return how characters are written: those that the document has as entities alone, as these.

    `&`, `<` and `>` are always entities.
    """
    fragments = [fragment for fragment in _fragments(text) if fragment.kind == "text"]
    entities = {e: unescape(e) for fragment in fragments for e in _ENTITY.findall(fragment.raw)}
    raw = frozenset("".join(_ENTITY.sub("", fragment.raw) for fragment in fragments))
    written = {
        ord(character): entity
        for entity, character in entities.items()
        if len(character) == 1 and character not in raw and character not in "&<>"
    }
    return lambda target: escape(target, quote=False).translate(written)


def _segment(fragments: list[Fragment], number: int) -> Iterator[str | Segment]:
    """Yield what fragments make, without the white space around it."""
    before = after = ""
    fragments = [*fragments]
    if fragments and fragments[0].kind == "text":
        content = fragments[0].raw.lstrip(_WHITE)
        before = fragments[0].raw[: len(fragments[0].raw) - len(content)]
        fragments[0] = _text(content)
    if fragments and fragments[-1].kind == "text":
        content = fragments[-1].raw.rstrip(_WHITE)
        after = fragments[-1].raw[len(content) :]
        fragments[-1] = _text(content)
    yield before
    yield from segments(fragments, number + before.count("\n"))
    yield after


def _text(raw: str) -> Fragment:
    return Fragment(raw, "text", text=unescape(raw))


def _fragments(text: str) -> Iterator[Fragment]:
    """Yield the texts and the markup of a document; together they are the document."""
    done = depth = start = 0  # depth of elements of one name, from `start`, that are left alone
    opaque = ""
    for match in _MARKUP.finditer(text):
        name = (match["name"] or "").lower()
        is_end = bool(match["end"])
        is_empty = not is_end and (name in _VOID or _CLOSED.search(match["rest"] or ""))
        if depth:
            depth += 0 if name != opaque or is_empty else -1 if is_end else 1
            if not depth:
                yield Fragment(text[start : match.end()], "block" if name == "pre" else "point")
            done = match.end()
            continue
        if done < match.start():
            yield _text(text[done : match.start()])
        done = match.end()
        is_opaque = name in _OPAQUE or bool(name and _UNTRANSLATED.search(match["rest"]))
        if is_opaque and not is_end and not is_empty:
            start, depth, opaque = match.start(), 1, name
        elif name in _BLOCKS:
            yield Fragment(match[0], "block")
        elif not name or is_empty:
            yield Fragment(match[0], "point")
        else:
            yield Fragment(match[0], "close" if is_end else "open", name)
    if depth:
        yield Fragment(text[start:], "block")
    elif done < len(text):
        yield _text(text[done:])
