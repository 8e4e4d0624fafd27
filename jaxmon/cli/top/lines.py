"""Lines of styled text, all of it harmless."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from jaxmon.cli import output
from jaxmon.host.formats.layout import Column, columns, shortened, table


QUIET, STRONG, CHOSEN = "dim", "bold", "reverse"
BAD, DOUBTFUL, GOOD = "red", "yellow", "green"
OF_STATE = {"failing": BAD, "degraded": DOUBTFUL, "fine": GOOD, "unknown": ""}
"""How it looks whether users are all right."""


class Span(NamedTuple):
    """Text in one style: names joined by spaces, as above."""

    text: str
    style: str = ""


Line: TypeAlias = tuple[Span, ...]
BLANK: Line = ()


def line(*parts: str | tuple[str, str]) -> Line:
    """Return a line of *parts*: texts, or texts with a style. They are sanitised."""
    spans = [Span(one) if isinstance(one, str) else Span(*one) for one in parts]
    return tuple(Span(output.safe(one.text), one.style) for one in spans if one.text)


def apart(left: Line, right: str, width: int) -> Line:
    """Return *left*, and *right* quietly at the end of the line, if there is room."""
    used = sum(columns(one.text) for one in left)
    gap = width - used - columns(right)
    return left if gap < 1 else (*left, Span(" " * gap), Span(right, QUIET))


def styled(lines: Iterable[str], style: str = "") -> list[Line]:
    """Return *lines* in one *style*."""
    return [line((one, style)) for one in lines]


def rows(
    layout: Sequence[Column], cells: Sequence[Sequence[str]], width: int
) -> list[Line]:
    """Return a table; its heading is strong."""
    clean = [[output.safe(cell) for cell in row] for row in cells]
    heading, *others = table(layout, clean, width=width)
    return [line((heading, STRONG)), *styled(others)]


def bar(part: float | None, size: int, *, plain: bool) -> Span:
    """Return a bar that is filled by *part*, from 0 to 1."""
    full, empty = ("#", ".") if plain else ("█", "░")
    if part is None:
        return Span(empty * size, QUIET)
    filled = round(min(max(part, 0.0), 1.0) * size)
    return Span(full * filled + empty * (size - filled))


def fitted(text: str, room: int) -> str:
    """Return *text*, sanitised, in exactly *room* columns."""
    cut = shortened(output.safe(text), room)
    return cut + " " * (room - columns(cut))
