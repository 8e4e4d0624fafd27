"""Elements of HTML and SVG, which escape all text that is put into them."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NewType

from jaxmon.host.formats.layout import bound


BASE = Path(__file__).parent / "base.css"
"""Colours, text, tables and cards, for light and dark, and for phones."""


def source_hash(text: str) -> str:
    """Return the source of a content security policy that allows only *text*."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


Html = NewType("Html", str)
"""Markup made here; any other text is escaped by `text` first."""

NOTHING = Html("")

_DRAWN = frozenset(("rect", "line", "polyline", "polygon"))
_EMPTY = frozenset(("meta", "link"))


def text(value: object) -> Html:
    """Return *value* escaped; no line breaks between a number and its unit."""
    return Html(html.escape(bound(str(value))))


def element(kind: str, /, *children: Html, **attributes: object) -> Html:
    """Return *kind*; in names of attributes ``_`` is ``-``, or nothing at the end."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value != ""
    )
    if kind in _DRAWN:
        return Html(f"<{kind}{given}/>")
    if kind in _EMPTY:
        return Html(f"<{kind}{given}>")
    return Html(f"<{kind}{given}>{''.join(children)}</{kind}>")


def prose(words: str) -> Html:
    """Return *words*, with what stands between backticks as what to type."""
    parts = words.split("`")
    if len(parts) % 2 == 0:  # one of them has no other
        return text(words)
    typed = [
        element("kbd", Html(html.escape(part))) if n % 2 else text(part)
        for n, part in enumerate(parts)
    ]
    return Html("".join(typed))


def folded(
    items: Sequence[Html], few: int, make: Callable[[Sequence[Html]], Html]
) -> Html:
    """
    Return what *make* makes of *items*; of more than *few*, the rest is behind a click.
    """
    if len(items) <= few + 1:
        return make(items)
    title = element("summary", text(f"{len(items) - few:,} more"))
    return joined(make(items[:few]), element("details", title, make(items[few:])))


def joined(*parts: Html) -> Html:
    """Return *parts*, each on a line."""
    return Html("\n".join(part for part in parts if part))
