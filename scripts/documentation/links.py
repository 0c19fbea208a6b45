"""Links of a built site: every target exists, and no resource is loaded from the network."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_RESOURCES = {"script", "img", "iframe", "source", "audio", "video", "embed"}
_RESOURCE_LINKS = {"stylesheet", "icon", "preconnect", "preload", "modulepreload"}


class _Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the element's identifiers, its link, and whether that is a resource."""
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag in _RESOURCES and "src" in values:
            self.links.append((values["src"], True))
        if tag in {"a", "link"} and "href" in values:
            resource = bool(_RESOURCE_LINKS & set(values.get("rel", "").split()))
            self.links.append((values["href"], resource))


def problems_of(site: Path) -> list[str]:
    """List links to missing pages, files and anchors, and resources from the network."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = _Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    return [
        f"{path.relative_to(site)}: {problem}"
        for path, page in pages.items()
        for problem in _problems_of_page(path, page, pages, site)
    ]


def _problems_of_page(
    path: Path, page: _Page, pages: dict[Path, _Page], site: Path
) -> Iterator[str]:
    for link, resource in page.links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if resource and parts.scheme != "data":
                yield f"{link}: loaded from the network"
            continue
        base = site if parts.path.startswith("/") else path.parent
        target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        if not target.exists():
            yield f"{link}: no such file"
        elif target in pages and unquote(parts.fragment) not in {"", *pages[target].anchors}:
            yield f"{link}: no such anchor"
