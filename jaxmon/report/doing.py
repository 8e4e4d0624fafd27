"""What a process does lately, in one sentence: the cause of what is slow or hangs."""

from __future__ import annotations

from collections import defaultdict

from jaxmon.facts.process import Snapshot
from jaxmon.facts.walltime import Period
from jaxmon.formats.layout import share
from jaxmon.report.time_table import STATES


_WORTH = 0.05
_IDLE = "idle"


def doing(snapshot: Snapshot) -> str:
    """
    Return which line takes a larger part of the last minute than of the whole time;
    if there is none, which takes most. Empty if that is little, or unknown.
    """
    recent = snapshot.time.recent
    if not recent.settled:
        return ""
    lately, usual = _parts(recent), _parts(snapshot.time.since_start)
    if not lately:
        return ""
    growth = {key: part - usual.get(key, 0.0) for key, part in lately.items()}
    (state, place), grown = max(growth.items(), key=lambda item: item[1])
    if grown < _WORTH:
        state, place = max(lately, key=lambda key: lately[key])
    if (part := lately[state, place]) < _WORTH:
        return ""
    return f"Lately, {share(part, 1)} of the time goes to {place} ({STATES[state]})."


def _parts(period: Period) -> dict[tuple[str, str], float]:
    """Return the part of *period* that each line takes, by what it does there."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for one in period.places:
        # What the program marks is expected.
        if one.place and one.state in STATES and one.state != _IDLE:
            found[one.state, one.place] += 0.0 if one.activity else one.seconds
    return {key: seconds / period.seconds for key, seconds in found.items()}
