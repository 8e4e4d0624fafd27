"""A section of a report: a table, and sentences below it; as text here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxmon.host.formats.layout import INDENT, Column, shortened, table, wrapped


@dataclass(frozen=True, slots=True)
class Section:
    """
    Facts as they are displayed, on a terminal and on a page.

    Attributes:
        title: in capitals.
        about: what the whole table is about.
        columns: of the table.
        rows: cells as text; without rows there is no table.
        notes: where what each row is about is defined; pages have room for it.
        below: sentences below the table.
    """

    title: str
    about: str = ""
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    below: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.rows or self.below or self.about)

    def lines(self, width: int) -> list[str]:
        """Return lines of *width* columns, none if there is nothing to report."""
        if not self:
            return []
        lines = [shortened(f"{self.title}{self.about}", width)]
        if self.rows:
            lines += table(self.columns, self.rows, width=width)
        for text in self.below:
            lines += wrapped(text, width, first=INDENT, rest=INDENT * 2)
        return lines


def more(count: int) -> tuple[str, ...]:
    """Return the sentence on *count* rows that are not shown."""
    return (f"{count:,} more",) if count > 0 else ()
