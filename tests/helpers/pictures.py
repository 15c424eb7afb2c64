"""The picture of ``%plot`` as a cell shows it while a job runs."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from xml.etree import ElementTree

_PREFIX = "data:image/svg+xml;base64,"
_TEXT = "{http://www.w3.org/2000/svg}text"


def image(html: str) -> dict[str, str]:
    """Return the attributes of the only element, an image."""
    found: list[tuple[str, dict[str, str]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, {name: value or "" for name, value in attrs}))

        def handle_data(self, data: str) -> None:
            found.append(("text", {"": data}))

    reader = Reader()
    reader.feed(html)
    reader.close()
    ((tag, attributes),) = found
    assert tag == "img"
    return attributes


def svg(html: str) -> str:
    """Return the SVG in an image element."""
    source = image(html)["src"]
    assert source.startswith(_PREFIX)
    return base64.b64decode(source.removeprefix(_PREFIX)).decode()


def texts(html: str) -> list[str]:
    """Return the texts of the picture."""
    return [element.text or "" for element in ElementTree.fromstring(svg(html)).iter(_TEXT)]
