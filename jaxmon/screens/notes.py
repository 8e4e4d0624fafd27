"""What is missing from a report, and why."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.facts.process import Snapshot
from jaxmon.host.formats.layout import INDENT, counted, share, wrapped
from jaxmon.symptoms.unmarked import FORKED
from jaxmon.version import version


_MOST_FUNCTIONS = 8


def doubts(snapshot: Snapshot) -> Iterator[str]:
    """Yield sentences on why findings may be missing or wrong."""
    theirs, ours = snapshot.process.jaxmon, version()
    if theirs and theirs != ours:
        yield f"The process runs jaxmon {theirs}, this is {ours}: data may be missing."
    if snapshot.implausible:
        names = ", ".join(snapshot.implausible)
        yield f"The process reports implausible values, which are dropped: {names}."
    if off := [name for name, active in snapshot.hooks.items() if not active]:
        yield f"Inactive hooks, whose data is missing: {', '.join(off)}."
    if failed := {site: n for site, n in snapshot.internal_errors.items() if n}:
        details = ", ".join(f"{site} {n:,}" for site, n in failed.items())
        yield (
            "jaxmon, or what the program passed to it, had errors, so some data may be "
            f"missing: {details}."
        )
    for doubt in snapshot.run_doubts:
        yield f"{doubt}."
    for warned in snapshot.warnings:
        if warned.text.endswith("_at_fork"):
            yield (
                f"{warned.where} {FORKED}What its children do is not observed here, "
                "and JAX may hang in them: start them by spawn, or import JAX after "
                "the fork."
            )
    waiting = snapshot.usual.waiting or 0.0
    if waiting >= snapshot.limits.rank_starved_share:
        yield (
            "Threads of this process waited for a processor for "
            f"{share(waiting, 1)} of the time in which they could run, so what they "
            "compute takes longer. Other processes, or too many threads of its own, "
            "hold the processors, or a CPU limit is reached."
        )


def notes(snapshot: Snapshot, width: int) -> list[str]:
    """Return the section on what is missing, an empty list if nothing is."""
    texts = [*doubts(snapshot), *_left_out(snapshot)]
    lines = []
    for text in texts:
        lines += wrapped(text, width, first=INDENT, rest=INDENT * 2)
    return ["NOTES", *lines] if lines else []


def _left_out(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.functions_left_out:
        left = counted(snapshot.functions_left_out, "further function")
        yield f"{left} not shown and not included in the totals."
    if left_out := [
        function for function in snapshot.functions if function.determinism.not_repeated
    ]:
        details = ", ".join(
            f"{function.name} ({function.determinism.not_repeated.replace('_', ' ')})"
            for function in left_out[:_MOST_FUNCTIONS]
        )
        more = len(left_out) - _MOST_FUNCTIONS
        details += f" and {more} more" if more > 0 else ""
        yield f"Not re-run for determinism checks (shadow_interval): {details}."
