"""What fires in a fleet in which nothing is wrong, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tools.fleet.replay import Firing, span_text


def table(found: Sequence[Firing], start: float) -> str:
    """Return what fired although nothing was wrong, as Markdown."""
    if not found:
        return "Nothing fired.\n"
    kinds = Counter((one.alert, one.severity) for one in found)
    lines = [
        "| alert | severity | times | first after | longest | subject |",
        "|---|---|---:|---:|---:|---|",
    ]
    for (alert, severity), count in kinds.most_common():
        first = next(
            one for one in found if (one.alert, one.severity) == (alert, severity)
        )
        own = dict(first.labels)
        subject = ", ".join(f"{name} {own[name]}" for name in _SUBJECT if name in own)
        after = span_text(first.start - start)
        longest = _longest(found, alert, severity)
        lines.append(
            f"| {alert} | {severity} | {count} | {after} | {longest} | {subject} |"
        )
    return "\n".join(lines) + "\n"


def _longest(found: Sequence[Firing], alert: str, severity: str) -> str:
    lengths = [
        one.end - one.start if one.end else float("inf")
        for one in found
        if (one.alert, one.severity) == (alert, severity)
    ]
    longest = max(lengths)
    return span_text(longest) if longest < float("inf") else "does not end"


_SUBJECT = (
    "cluster",
    "job",
    "route",
    "function",
    "loop",
    "instance",
    "worker",
)
