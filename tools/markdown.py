"""Markdown that tools write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: str = "") -> str:
    """
    Return a table; a ``|`` inside a cell is escaped, and a cell is one line. Columns
    are left-aligned but for those with an ``r`` at their place in *numbers*.
    """
    sides = [numbers[place : place + 1] for place in range(len(head))]
    rule = ["---:" if side == "r" else "---" for side in sides]
    cells = [[" ".join(c.split()).replace("|", "\\|") for c in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *cells])


def page(*parts: str) -> str:
    """Return *parts* as one text, with blank lines between them."""
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
