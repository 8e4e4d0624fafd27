"""Text from elsewhere in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jaxmon.report.layout import clean


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with cells of untrusted text."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines)


def cell(text: str) -> str:
    """Return *text* so that it stays in its cell."""
    return line(text).replace("|", "\\|")


def line(text: str) -> str:
    """Return *text* in one line."""
    return " ".join(clean(text).split())
