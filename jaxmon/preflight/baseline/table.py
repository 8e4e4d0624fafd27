"""Formats a comparison: a table of changes and a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxmon.host.formats.layout import (
    INDENT,
    Column,
    amount,
    clean,
    counted,
    duration,
    shortened,
    size,
    table,
    wrapped,
)
from jaxmon.preflight.baseline.compare import CostChange, CostComparison
from jaxmon.preflight.baseline.record import VERSIONS, Baseline


_LAYOUT = (
    Column("", 18, right=False),
    Column("BASELINE", 12),
    Column("NOW", 12),
    Column("CHANGE", 12),
    Column("ALLOWED", 12),
    Column("", 10),
)
_VERDICTS = {
    "worse": "WORSE",
    "better": "better",
    "within": "ok",
    "unclear": "unclear",
}
_MANY = 10
_EXACT = 1_000_000


def lines(comparison: CostComparison, *, width: int = 80) -> Iterator[str]:
    """Yield the lines to print."""
    yield from _versions("baseline", comparison.before, width)
    yield from _versions("now", comparison.after, width)
    for difference in comparison.differences:
        if difference.partition(":")[0] not in VERSIONS:
            yield from wrapped(clean(difference), width, first="changed: ", rest=INDENT)
    yield ""
    rows: dict[str, list[list[str]]] = {}
    for change in (*comparison.changes, *comparison.times):
        of = f" of {change.shapes}" if change.shapes else ""
        rows.setdefault(f"{change.function}{of}", []).append(_row(change))
    # The regressions last, where a log ends.
    ordered = sorted(rows, key=lambda one: (_rank(rows[one]), one))
    for number, name in enumerate(ordered):
        heading, *body = table(_LAYOUT, rows[name], width=width)
        if not number:
            yield heading.rstrip()
        yield shortened(clean(name), width)
        yield from (line.rstrip() for line in body)
    if rows:
        yield ""
    yield from _named("new", comparison.new, width)
    yield from _named("vanished", comparison.vanished, width)
    if comparison.one_sided:
        yield f"reported by one side only: {', '.join(comparison.one_sided)}"
    if comparison.untimed:
        text = f"run times are not compared: {comparison.untimed}"
        yield from wrapped(clean(text), width, rest=INDENT)
    yield from _unclear(comparison, width)
    yield from wrapped(clean(verdict(comparison)), width, rest=INDENT)


def verdict(comparison: CostComparison) -> str:
    """Return the outcome as a sentence without a full stop."""
    count = len(comparison.before.functions.keys() & comparison.after.functions.keys())
    worse = comparison.worse
    if not worse:
        return f"no regression in {counted(count, 'function')}"
    functions = len({change.function for change in worse})
    text = (
        f"{counted(len(worse), 'regression')} in {functions} of "
        f"{counted(count, 'function')}"
    )
    if comparison.differences:
        text += f"; changed: {', '.join(comparison.differences)}"
    return text


def _versions(title: str, record: Baseline, width: int) -> Iterator[str]:
    parts = [
        f"{name} {record.versions[name]}"
        for name in VERSIONS
        if name in record.versions
    ]
    yield shortened(f"{title + ':':9} {clean(', '.join(parts))}", width)


def _row(change: CostChange) -> list[str]:
    if change.before:
        growth = f"{100 * (change.after / change.before - 1):+,.1f}%"
    else:
        growth = f"+{_shown(change.after, change.measure)}"
    return [
        change.measure,
        _shown(change.before, change.measure),
        _shown(change.after, change.measure),
        growth,
        "any" if change.allowed is None else str(change.allowed),
        _VERDICTS[change.verdict],
    ]


def _unclear(comparison: CostComparison, width: int) -> Iterator[str]:
    """Return for each reason of which functions nothing can be said."""
    by_reason: dict[str, dict[str, None]] = {}
    for one in comparison.unclear:
        by_reason.setdefault(one.reason, {}).setdefault(one.function)
    for reason, (first, *others) in by_reason.items():
        more = f" and {len(others)} more" if others else ""
        text = f"cannot tell whether {first}{more} is slower: {reason}"
        yield from wrapped(clean(text), width, rest=INDENT)


def _shown(value: float, measure: str) -> str:
    if measure.endswith("_seconds"):
        return duration(value)
    if measure.endswith("_bytes"):
        return size(value)
    return f"{value:,.10g}" if value < _EXACT else amount(value)


def _rank(rows: Sequence[Sequence[str]]) -> bool:
    return any(row[-1] == _VERDICTS["worse"] for row in rows)


def _named(what: str, names: Sequence[str], width: int) -> Iterator[str]:
    for name in names[:_MANY]:
        yield shortened(f"{what}: {clean(name)}", width)
    if len(names) > _MANY:
        yield f"{what}: {len(names) - _MANY} more"
