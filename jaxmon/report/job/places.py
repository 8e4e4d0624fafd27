"""
Where ranks wait for the device: on the line on which most do, or on another.

Ranks that run the same program meet on the same line. One that waits on another line
runs what the others do not run, skipped what they wait in, or only reads a result of
what all have dispatched, such as process 0, which alone logs the loss.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from jaxmon.report.job.model import Waiting
from jaxmon.report.job.records import Rank


# Functions that run programs of JAX on all devices, which are not counted; and the
# start and the end of a job.
_BARRIERS = {
    "jax/experimental/multihost_utils.py:": "",
    "jax/_src/distributed.py:": "jax.distributed.",
}
_JOINS = "jax.distributed.initialize"
# All processes exchange which devices they have.
_INITIALISES = "jax/_src/xla_bridge.py:", " in _init_backend"
_DEVICES = "the initialisation of devices"


def barrier(rank: Rank) -> str:
    """Return the function of JAX in which *rank* waits for all processes, if any."""
    file, function = _INITIALISES
    for line in reversed(rank.now.stack):
        for known, module in _BARRIERS.items():
            if line.startswith(known):
                return module + line.rpartition(" in ")[2]
        if line.startswith(file) and line.endswith(function):
            return _DEVICES
    return ""


def starts(rank: Rank) -> bool:
    """Return whether *rank* waits for others to join the job, or for their devices."""
    return barrier(rank) in {_JOINS, _DEVICES}


def meeting_point(waiting: Sequence[Rank], function: str) -> tuple[str, list[Rank]]:
    """
    Return the line on which most of *waiting* do, of several the one after the most
    calls of *function*, and who waits there; all of them if no line is known.
    """
    there: defaultdict[str, list[Rank]] = defaultdict(list)
    for one in waiting:
        if one.now.place:
            there[one.now.place].append(one)
    if not there:
        return "", list(waiting)
    return max(
        there.items(),
        key=lambda item: (
            len(item[1]),
            max(one.calls(function) or 0 for one in item[1]),
        ),
    )


def elsewhere(alive: Sequence[Rank], waiting: Waiting) -> list[Rank]:
    """Return those of *alive* that wait on another line than most."""
    numbers = set(waiting.numbers)
    return [
        one
        for one in alive
        if one.index in numbers and one.now.place and one.now.place != waiting.place
    ]
