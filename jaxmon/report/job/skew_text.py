"""The words for what ranks of a job differ in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jaxmon.formats.layout import INDENT, counted, wrapped
from jaxmon.report.job.skew import PROGRAM, Difference, Odd
from jaxmon.report.job.words import short, who


_MOST_GROUPS = 5
_MOST_NAMED = 4
_MOST_NUMBERS = 1000
_ADVICE = (
    "Start all ranks with the same image, flags and settings: programs that differ "
    "hang, or compute something else."
)


def lines(odd: Sequence[Odd], width: int) -> Iterator[str]:
    """Yield *odd* in lines of at most *width* columns, one or two dozens at most."""
    for one in odd[:_MOST_GROUPS]:
        text = f"differs: {who(one)} has {said(one)}"
        if len(one.numbers) > 1:
            text = f"differ: {who(one)} have {said(one)}"
        yield from wrapped(text, width, first=INDENT, rest=INDENT * 2)
    if (left := len(odd) - _MOST_GROUPS) > 0:
        yield f"{INDENT}and {counted(left, 'further group')} of ranks that differ"
    if odd:
        yield from wrapped(_ADVICE, width, first=INDENT * 2, rest=INDENT * 2)


def said(odd: Odd) -> str:
    """Return in what *odd* differ from most others."""
    found = [_said(one) for one in odd.differences[:_MOST_NAMED]]
    if (left := len(odd.differences) - _MOST_NAMED) > 0:
        found.append(f"and {counted(left, 'more difference')}")
    return "; ".join(found)


def document(odd: Sequence[Odd]) -> list[dict[str, Any]]:
    """Return *odd* as JSON types."""
    return [
        {
            "ranks": one.numbers[:_MOST_NUMBERS],
            "number": len(one.numbers),
            "verdict": f"{who(one)}: {said(one)}",
            "differences": [
                {
                    "name": of.name,
                    "value": of.own if of.values == 1 else None,
                    "others": of.usual,
                    "values": of.values,
                }
                for of in one.differences
            ],
        }
        for one in odd
    ]


def _said(difference: Difference) -> str:
    name = difference.name.removeprefix("package ")
    if name.startswith(PROGRAM):
        function = short(name.removeprefix(PROGRAM))
        name = f"another program of {function}:"
    if difference.values > 1:
        return (
            f"{difference.values:,} values of {name.rstrip(':')}, others "
            f"{difference.usual or 'none'}"
        )
    own, usual = difference.own or "not set", difference.usual or "not set"
    return f"{name} {own}, others {usual}"
