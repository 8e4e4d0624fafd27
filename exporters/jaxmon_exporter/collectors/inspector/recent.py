"""Times of the latest collectives by rank, for those who compare ranks."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, NamedTuple

from jaxmon_exporter.collecting import Clock
from jaxmon_exporter.collectors.inspector.files import Process
from jaxmon_exporter.collectors.inspector.record import Record


# All ranks do the same in these. In others the root ends first, or a sender.
_SYMMETRIC = ("AllReduce", "AllGather", "ReduceScatter")
_WINDOWS = 3
_LEAST_SECONDS = 10.0
_MOST_RANKS = 4096
_MOST_ROWS = 256


class _Key(NamedTuple):
    host: str
    pid: int
    communicator: str
    rank: int
    ranks: int
    collective: str
    size: str

    @property
    def compared(self) -> tuple[str, int, str, str]:
        """What ranks must have in common to be compared."""
        return self.communicator, self.ranks, self.collective, self.size


class _Window(NamedTuple):
    """
    Sums of some seconds, by rank: collectives launched, recorded, seconds of these, and
    their squares.
    """

    seconds: float
    sums: dict[_Key, list[float]]


class Recent:
    """Keeps the sums of the last three windows of ten seconds or more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock()
        self._sums: dict[_Key, list[float]] = {}
        self._windows: deque[_Window] = deque(maxlen=_WINDOWS)

    def add(self, process: Process, record: Record, launched: int) -> None:
        """Add a record, which stands for so many that were *launched*."""
        if record.collective not in _SYMMETRIC or record.ranks == 1:
            return
        key = _Key(
            *process,
            record.communicator,
            record.rank,
            record.ranks,
            record.collective,
            record.size,
        )
        sums = self._sums.get(key)
        if sums is None:
            if len(self._sums) == _MOST_RANKS:
                return
            self._sums[key] = sums = [0.0] * 4
        seconds = record.seconds
        for place, value in enumerate((launched, 1, seconds, seconds * seconds)):
            sums[place] += value

    def turn(self) -> None:
        """Begin another window, if this one is long enough."""
        now = self._clock()
        if now - self._began >= _LEAST_SECONDS:
            self._windows.appendleft(_Window(now - self._began, self._sums))
            self._began, self._sums = now, {}

    def document(self) -> dict[str, Any] | None:
        """
        Return the windows as JSON types, the newest first, `None` if there are none: of
        the ranks that are in all of them, those of collectives that take longest.
        """
        windows = list(self._windows)
        if len(windows) < _WINDOWS:
            return None
        newest = windows[0].sums
        keys = [one for one in newest if all(one in window.sums for window in windows)]
        if not keys:
            return None
        # Not by the seconds of each rank: the last one has fewest.
        spent: defaultdict[tuple[str, int, str, str], float] = defaultdict(float)
        for key in keys:
            spent[key.compared] += newest[key][2]
        keys.sort(key=lambda key: (spent[key.compared], key.compared), reverse=True)
        return {
            "seconds": [one.seconds for one in windows],
            "ranks": [
                {
                    **key._asdict(),
                    "windows": [
                        dict(
                            zip(
                                ("launched", "recorded", "seconds", "squares"),
                                window.sums[key],
                                strict=True,
                            )
                        )
                        for window in windows
                    ],
                }
                for key in keys[:_MOST_ROWS]
            ],
        }
