"""Formats a comparison: a table of changes and a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxmon.baseline.compare import Change, Comparison
from jaxmon.baseline.figures import FIGURES
from jaxmon.baseline.record import VERSIONS, Record
from jaxmon.report.layout import (
    Column,
    amount,
    clean,
    counted,
    duration,
    shortened,
    size,
    table,
)


_LAYOUT = (
    Column("", 18, right=False),
    Column("BASELINE", 12),
    Column("NOW", 12),
    Column("CHANGE", 12),
    Column("ALLOWED", 12),
    Column("", 10),
)
_VERDICTS = {"worse": "WORSE", "better": "better", "within": "ok"}
_MANY = 10
_EXACT = 1_000_000


def lines(comparison: Comparison, *, width: int = 80) -> Iterator[str]:
    """Return the lines to print."""
    yield from _versions("baseline", comparison.before, width)
    yield from _versions("now", comparison.after, width)
    yield ""
    by_function: dict[str, list[Change]] = {}
    for change in comparison.changes:
        by_function.setdefault(change.function, []).append(change)
    # The regressions last, where a log ends.
    ordered = sorted(by_function, key=lambda name: (_worst(by_function[name]), name))
    for number, name in enumerate(ordered):
        rows = [_row(change) for change in by_function[name]]
        heading, *body = table(_LAYOUT, rows, width=width)
        if not number:
            yield heading.rstrip()
        yield shortened(clean(name), width)
        yield from (line.rstrip() for line in body)
    if ordered:
        yield ""
    yield from _named("new", comparison.new, width)
    yield from _named("vanished", comparison.vanished, width)
    if comparison.one_sided:
        yield f"reported by one side only: {', '.join(comparison.one_sided)}"
    yield verdict(comparison)


def verdict(comparison: Comparison) -> str:
    """Return the outcome as one line."""
    count = len(comparison.before.functions.keys() & comparison.after.functions.keys())
    worse = comparison.worse
    if not worse:
        return f"no regression in {counted(count, 'function')}"
    functions = len({change.function for change in worse})
    return (
        f"{counted(len(worse), 'regression')} in {functions} of "
        f"{counted(count, 'function')}"
    )


def _versions(title: str, record: Record, width: int) -> Iterator[str]:
    told = [
        f"{name} {record.versions[name]}"
        for name in VERSIONS
        if name in record.versions
    ]
    yield shortened(f"{title + ':':9} {clean(', '.join(told))}", width)


def _row(change: Change) -> list[str]:
    unit = FIGURES[change.figure].unit
    if change.before:
        share = f"{100 * (change.after / change.before - 1):+,.1f}%"
    else:
        share = f"+{_shown(change.after, unit)}"
    allowed = "any" if change.allowed is None else str(change.allowed)
    return [
        change.figure,
        _shown(change.before, unit),
        _shown(change.after, unit),
        share,
        allowed,
        _VERDICTS[change.verdict],
    ]


def _shown(value: float, unit: str) -> str:
    if unit == "seconds":
        return duration(value)
    if unit == "bytes":
        return size(value)
    return f"{value:,.10g}" if value < _EXACT else amount(value)


def _worst(changes: Sequence[Change]) -> bool:
    return any(change.verdict == "worse" for change in changes)


def _named(what: str, names: Sequence[str], width: int) -> Iterator[str]:
    for name in names[:_MANY]:
        yield shortened(f"{what}: {clean(name)}", width)
    if len(names) > _MANY:
        yield f"{what}: {len(names) - _MANY} more"
