"""Text for a terminal: harmless characters, known width, human units."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple


INDENT = "  "
UNKNOWN = "-"
ELLIPSIS = "…"
_MOST_NAMED = 3
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_PREFIXES = ("", " k", " M", " G", " T", " P", " E")
UNITS = (
    r"(\d|\b(?:min|h|d)) "
    r"(?=(?:\d+ )?(?:%|[mµ]?s|min|h|d|[KMGT]iB|[BkMGTPE]|°C|W|[a-z]+/s)(?!\w))"
)
"""Matches a space in a quantity and what is in front of it; for scripts, too."""

_NO_BREAK = "\N{NO-BREAK SPACE}"
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_PLAIN_SPACE = str.maketrans("\t\n\r\v\f", "     ")


def clean(text: str) -> str:
    """Return *text* as one line: what moves the cursor or is invisible is escaped."""
    text = text.translate(_PLAIN_SPACE)
    if text.isascii() and text.isprintable():
        return text
    text = unicodedata.normalize("NFC", text)
    return "".join(
        character
        if character.isprintable()
        and not unicodedata.category(character).startswith("M")
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def bound(text: str) -> str:
    """Return *text* with numbers and their units on one line, by no-break spaces."""
    return re.sub(UNITS, rf"\1{_NO_BREAK}", text)


def columns(text: str) -> int:
    """Return how many columns the `clean` *text* takes."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def shortened(text: str, room: int) -> str:
    """Shorten *text* in the middle to fit *room* columns."""
    if columns(text) <= room:
        return text
    head = _fitting(text, (room - 1) // 2)
    tail = _fitting(text[::-1], room - 1 - columns(head))[::-1]
    return f"{head}{ELLIPSIS}{tail}"


def ending(text: str, room: int) -> str:
    """Shorten *text* to *room* columns at the start, as of a path."""
    if columns(text) <= room:
        return text
    return ELLIPSIS + _fitting(text[::-1], room - 1)[::-1]


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """
    Return `clean` *text* in lines of at most *width* columns with the indentation,
    *first* and then *rest*; words, and numbers with a unit, are broken only if longer
    than a line.
    """
    lines: list[str] = []
    line, begun = first, False
    for whole in filter(None, bound(" ".join(text.split())).split(" ")):
        word = whole.replace(_NO_BREAK, " ")
        if begun and columns(line) + 1 + columns(word) <= width:
            line = f"{line} {word}"
            continue
        if begun:
            lines.append(line)
            line = rest
        while columns(line) + columns(word) > width:
            part = _fitting(word, max(width - columns(line), 1)) or word[0]
            lines.append(line + part)
            line, word = rest, word[len(part) :]
        line, begun = line + word, True
    return [*lines, line] if begun else lines


class Column(NamedTuple):
    """
    A column of *size* with the gap before it, 0 for what remains; *cut* shortens cells.
    """

    heading: str
    size: int = 0
    right: bool = True
    cut: Callable[[str, int], str] = shortened


def table(
    layout: Sequence[Column],
    rows: Iterable[Sequence[str]],
    *,
    width: int,
    indent: str = INDENT,
) -> list[str]:
    """Return *rows* of `clean` cells under their headings."""
    left = width - columns(indent) - sum(column.size for column in layout)
    sizes = [column.size or left for column in layout]
    return [
        _row(layout, sizes, cells, indent)
        for cells in ([column.heading for column in layout], *rows)
    ]


def size(count: float) -> str:
    """Return bytes in powers of 1024, as XLA and nvidia-smi do: ``1.5 GiB``."""
    sign, count = "-" if count < 0 else "", abs(count)
    for unit in _UNITS:
        if count < 999.5:  # noqa: PLR2004 - more would take a fourth digit
            return f"{sign}{count:.3g} {unit}"
        count /= 1024
    return f"{sign}{count * 1024:,.0f} {_UNITS[-1]}"


def amount(count: float) -> str:
    """Return a large number: ``1.23 T``, ``850``."""
    for prefix in _PREFIXES[:-1]:
        if abs(count) < 999.5:  # noqa: PLR2004 - what would be shown as 1000
            return f"{count:.3g}{prefix}"
        count /= 1000
    return f"{count:.3g}{_PREFIXES[-1]}"


def duration(seconds: float) -> str:
    """Format a duration: ``12 µs``, ``85 ms``, ``14.2 s``, ``3 min 20 s``."""
    seconds = max(seconds, 0.0)
    if seconds < 0.000995:  # noqa: PLR2004 - what would be shown as 1 ms
        return f"{seconds * 1e6:.3g} µs" if seconds else "0 s"
    if seconds < 0.0995:  # noqa: PLR2004 - beyond, seconds with a decimal will do
        return f"{seconds * 1e3:.2g} ms"
    if seconds < 59.95:  # noqa: PLR2004 - what would be shown as 60.0
        return f"{seconds:.{1 if seconds >= 1 else 2}f} s"
    whole = round(seconds)
    for unit, name, part, below in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // part
            return f"{whole // unit} {name}" + (f" {rest} {below}" if rest else "")
    return f"{seconds:.1f} s"


def brief(seconds: float) -> str:
    """Return the `duration` without its smaller unit, which is cut off: ``3 min``."""
    return " ".join(duration(seconds).split()[:2])


def estimate(seconds: float) -> str:
    """Format an estimate, such as a percentile from a histogram: ``~14 s``."""
    return f"~{duration(float(f'{seconds:.2g}'))}".replace(".0 s", " s")


def ago(seconds: float) -> str:
    """Return how long ago something was: ``10 s ago``, ``just now``."""
    whole = round(seconds)
    if whole < 1:
        return "just now"
    return f"{duration(whole)} ago".replace(".0 s", " s")


def share(part: float, whole: float) -> str:
    """Return *part* of *whole* as a percentage, 100 at most."""
    percent = min(100 * part / whole, 100) if whole > 0 else 0.0
    if 99.5 <= percent < 100:  # noqa: PLR2004 - almost all is not all
        return f"{min(percent, 99.9):.1f} %"
    few = 0 < percent < 10  # noqa: PLR2004 - where a decimal matters
    return f"{percent:.{1 if few else 0}f} %"


def share_of_time(spent: float, observed: float) -> str:
    """Return which part of *observed* was *spent*, by one thread or by several."""
    if spent > observed:
        return f"on several threads, in {duration(observed)}"
    return f"{share(spent, observed)} of {duration(observed)}"


def times(count: int) -> str:
    """Format a count of occurrences: ``once``, ``twice``, ``12 times``."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def counted(count: float, noun: str) -> str:
    """Return ``1 array``, ``12 arrays``, ``12 processes``."""
    ending = "es" if noun.endswith("s") else "s"
    return f"{count:,.0f} {noun}{'' if count == 1 else ending}"


def named(names: Sequence[str]) -> str:
    """Return ``a, b, c and 4 others``."""
    rest = names[_MOST_NAMED:]
    others = f" and {counted(len(rest), 'other')}" if rest else ""
    return ", ".join(names[:_MOST_NAMED]) + others


def _columns(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fitting(text: str, room: int) -> str:
    """Return as much of the beginning of *text* as fits into *room* columns."""
    for index, character in enumerate(text):
        room -= _columns(character)
        if room < 0:
            return text[:index]
    return text


def _row(
    layout: Sequence[Column], sizes: Sequence[int], cells: Sequence[str], indent: str
) -> str:
    line = indent
    for column, room, cell in zip(layout, sizes, cells, strict=True):
        # A column to the left keeps its gap behind it.
        text = column.cut(cell, room - 1)
        padding = " " * (room - columns(text))
        line += padding + text if column.right else text + padding
    return line.rstrip()
