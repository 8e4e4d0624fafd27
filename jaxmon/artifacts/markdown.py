"""The little Markdown that generated documents need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a ``|`` inside a cell is escaped."""
    lines = [_row(head), _row(["---"] * len(head))]
    lines += [_row([cell.replace("|", "\\|") for cell in row]) for row in rows]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(*parts: str) -> str:
    """
    Return *parts* as one text, a blank line between them and a newline at the end.
    """
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
