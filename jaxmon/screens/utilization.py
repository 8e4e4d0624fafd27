"""The section of a report on what functions compute, and how near to the peak."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.facts.functions import Function, Uncounted
from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.layout import UNKNOWN, Column, amount
from jaxmon.screens.section import Section


_MOST_FUNCTIONS = 12
_MOST_UNKNOWN = 4

_WHY: Mapping[str, str] = {
    "loop": "a while loop whose number of trips is unknown",
    "branch": "branches that need different FLOPs",
    "kernel": "a kernel without a cost estimate",
    "library": "a library computes",
    "layout": "this JAX describes it in a way that jaxmon does not know",
    "size": "its program is too large to be counted",
    "untraced": "its program was not seen when JAX lowered it",
    "format": "there is no peak for operands of the format",
    "programs": "several programs that its calls do not distinguish",
    "uncounted": "its calls are not counted",
}


def flops(snapshot: Snapshot, *, most: int = _MOST_FUNCTIONS) -> Section:
    """
    Return the FLOPs of functions that multiply matrices, what they achieve, what bounds
    them, and why FLOPs are unknown.
    """
    users = [one for one in snapshot.functions if not one.internal]
    known = [one for one in users if one.program.model_flops]
    known.sort(key=lambda one: -(one.program.model_flops or 0) * (one.calls or 0))
    layout = [
        Column("FUNCTION", right=False),
        Column("FLOP", 9),
        Column("RECOMPUTED", 12),
        Column("FLOP/S", 9),
        Column("OF PEAK", 9),
        Column("BOUND BY", 12),
    ]
    unknown = [one for one in users if one.flops.unknown is not None and one.calls]
    below = [
        f"FLOPs of {one.name} are unknown: {_why(one.flops.unknown)}"
        for one in unknown[:_MOST_UNKNOWN]
        if one.flops.unknown is not None
    ]
    about = " (FLOPs of matrix products and convolutions, on all devices)"
    return Section(
        "ARITHMETIC",
        about if known or below else "",
        layout,
        [_row(one) for one in known[:most]],
        [one.place for one in known[:most]],
        below,
    )


def _row(function: Function) -> list[str]:
    program, found = function.program, function.flops
    again, share = program.recomputed_flops, found.of_peak
    place = found.roofline
    bound = UNKNOWN
    if place is not None:
        bound = "arithmetic" if place.intensity >= place.ridge else "memory"
    return [
        function.name,
        amount(program.model_flops or 0),
        amount(again) if again else UNKNOWN,
        UNKNOWN if found.achieved is None else amount(found.achieved),
        UNKNOWN if share is None else f"{100 * share:.3g} %",
        bound,
    ]


def _why(unknown: Uncounted) -> str:
    reason = _WHY.get(unknown.reason, unknown.reason)
    if unknown.reason in ("library", "format"):
        reason = f"{reason} {unknown.what}"
    return f"{reason}, at {unknown.where}." if unknown.where else f"{reason}."
