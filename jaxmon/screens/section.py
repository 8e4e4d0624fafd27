"""A section of a report: a table, and sentences below it; as text here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias, TypeVar

from jaxmon.host.formats import layout


T = TypeVar("T")

Fields: TypeAlias = Sequence[tuple[layout.Column, Callable[[T], str]]]
"""The columns of a table, with the cell that a record has in each."""


class Section(NamedTuple):
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
    columns: Sequence[layout.Column] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    below: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.rows or self.below or self.about)

    def lines(self, width: int) -> list[str]:
        """Return lines of *width* columns, none if there is nothing to report."""
        if not self:
            return []
        lines = [layout.shortened(f"{self.title}{self.about}", width)]
        if self.rows:
            lines += layout.table(self.columns, self.rows, width=width)
        for text in self.below:
            lines += layout.wrapped(
                text, width, first=layout.INDENT, rest=layout.INDENT * 2
            )
        return lines


def number(
    heading: str,
    room: int,
    value: Callable[[T], float | None],
    text: Callable[[float], str],
) -> tuple[layout.Column, Callable[[T], str]]:
    """Return a column of numbers; each is formatted as *text*, if it is known."""
    return layout.Column(heading, room), lambda record: shown(value(record), text)


def words(
    heading: str,
    room: int,
    cell: Callable[[T], str],
    cut: Callable[[str, int], str] = layout.shortened,
) -> tuple[layout.Column, Callable[[T], str]]:
    """Return a column of words; with no *room*, it takes what others leave."""
    return layout.Column(heading, room, right=False, cut=cut), cell


def tabulated(
    title: str,
    fields: Fields[T],
    records: Sequence[T],
    *,
    about: str = "",
    below: Sequence[str] = (),
) -> Section:
    """Return a section with a row for each of *records*, which *about* is about."""
    rows = [[cell(record) for _, cell in fields] for record in records]
    columns = [column for column, _ in fields]
    return Section(title, about if rows else "", columns, rows, below=below)


def fitting(fields: Fields[T], dispensable: Iterable[str], room: int) -> Fields[T]:
    """Return those of *fields* that have *room*, without the first *dispensable*."""
    for heading in dispensable:
        if sum(column.size for column, _ in fields) <= room:
            break
        fields = [field for field in fields if field[0].heading != heading]
    return fields


def more(count: int) -> tuple[str, ...]:
    """Return the sentence on *count* rows that are not shown."""
    return (f"{count:,} more",) if count > 0 else ()


def shown(value: float | None, text: Callable[[float], str]) -> str:
    """Return *value* as *text*, `UNKNOWN` for `None`."""
    return layout.UNKNOWN if value is None else text(value)


def whole(value: float) -> str:
    """Return *value* without decimals."""
    return f"{value:,.0f}"


def ratio(value: float) -> str:
    """Return *value*, from 0 to 1, as a percentage."""
    return layout.share(value, 1)


def moment(time: float, text: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return the Unix *time* in UTC; empty if it is 0, or no time."""
    with suppress(OverflowError, ValueError, OSError):  # as an agent sent it
        return datetime.fromtimestamp(time, UTC).strftime(text) if time else ""
    return ""
