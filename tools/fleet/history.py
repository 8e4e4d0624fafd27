"""Fills a Prometheus with the history of a fleet and what rules recorded of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tools.fleet import remote
from tools.fleet.remote import Floats, Writer
from tools.fleet.rules import Group, ordered
from tools.fleet.series import Fleet
from tools.fleet.server import Server, ServerError


# Prometheus takes samples that are at most half a block older than the latest.
_PIECE_SECONDS = 1800.0

Windows: TypeAlias = Mapping[str, float]


@dataclass(frozen=True)
class Recorded:
    """
    A series that a rule records.

    Args:
        labels: encoded.
        interval: seconds between its samples.
    """

    name: str
    labels: bytes
    value: float
    interval: float


def fill(
    server: Server,
    fleet: Fleet,
    times: Floats,
    windows: Windows | None = None,
    recorded: Sequence[Recorded] = (),
) -> int:
    """
    Write the samples at *times*, oldest first; return how many.

    Args:
        server: takes samples that are newer than all it has.
        fleet: whose samples.
        times: evenly spaced, in seconds since the epoch.
        windows: how many seconds before the last moment each series name is needed;
            others are not written. By default all are, at all times.
        recorded: further series, of one value each.
    """
    with Writer(server.url) as writer:
        for piece in pieces(times):
            age = times[-1] - piece[-1]
            near = windows and {n for n, reach in windows.items() if reach >= age}
            fleet.write(writer, piece, near)
            _repeat(
                writer,
                piece,
                [one for one in recorded if near is None or one.name in near],
            )
            # What comes next is newer than all of this.
            writer.flush()
        return writer.samples


def record(server: Server, groups: list[Group], times: Floats) -> list[Recorded]:
    """
    Evaluate all recording rules at the end of *times*, and return what they record.

    Each is written to the server for all of *times* before the next is evaluated, so
    that rules on recorded series have something to read. The values are those of the
    last moment: cost depends on how many there are, not on what they are.
    """
    found: list[Recorded] = []
    for group, rule in ordered(groups):
        if rule.alert:
            continue
        mine = []
        for labels, value in server.query(rule.expression, times[-1]):
            own = remote.series(
                {**labels, "__name__": rule.name, **dict(rule.labels)}.items()
            )
            mine.append(Recorded(rule.name, own, value, group.interval))
        with Writer(server.url) as writer:
            _repeat(writer, times, mine)
        found += mine
    return found


def _repeat(writer: Writer, times: Floats, recorded: Iterable[Recorded]) -> None:
    """Write the value of each series at those *times* at which a rule records."""
    step = times[1] - times[0] if len(times) > 1 else 1.0
    for one in recorded:
        every = max(1, round(one.interval / step))
        mine = times[np.round(times / step) % every == 0]
        writer.add(
            one.labels, remote.samples(mine), np.full(len(mine), one.value), None
        )


def pieces(times: Floats, seconds: float = _PIECE_SECONDS) -> Iterator[Floats]:
    """Return *times* in pieces of at most *seconds*."""
    number = ((times - times[0]) // seconds).astype(int)
    for index in range(number[-1] + 1):
        yield times[number == index]


def moments(end: float, seconds: float, interval: float) -> Floats:
    """Return the moments of scrapes in the *seconds* before *end*, that included."""
    count = round(seconds / interval)
    return end - interval * np.arange(count, -1, -1.0)


def until_compacted(server: Server, patience: float = 600.0) -> None:
    """Wait until blocks are no longer compacted, which would count as cost."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        before = server.cpu_seconds()
        time.sleep(2)
        if server.cpu_seconds() - before < 0.2:  # noqa: PLR2004 - a tenth of a core
            return
    msg = f"Prometheus is still busy {patience:.0f} s after the last sample"
    raise ServerError(msg)
