"""What is slow, compared with the latest of its kind. Loads no OpenTelemetry."""

from __future__ import annotations

from collections import deque


_NAMES = 200
# Of so many durations the slowest hundredth is slow, once there are enough. Of a few,
# what takes twice as long as nine tenths of them: the first may have been slow.
_LATEST = 512
_ENOUGH = 100
_UPDATED_EVERY = 32
_FEW = 10


class Durations:
    """The latest durations by name, in nanoseconds; 200 names. Not thread-safe."""

    def __init__(self) -> None:
        self._usual: dict[str, _Usual] = {}

    def is_slow(self, name: str, duration: int) -> bool:
        """
        Return whether *duration* is longer than 99 % of those before it, or while they
        are few, twice as long as 90 %; add it.
        """
        usual = self._usual.get(name)
        if usual is None:
            if len(self._usual) >= _NAMES:
                return False
            usual = self._usual[name] = _Usual()
        return usual.is_slow(duration)


class _Usual:
    __slots__ = ("_count", "_latest", "_limit")

    def __init__(self) -> None:
        self._latest: deque[int] = deque(maxlen=_LATEST)
        self._count = 0
        self._limit: int | None = None

    def is_slow(self, duration: int) -> bool:
        limit = self._limit
        self._latest.append(duration)
        self._count += 1
        few = self._count < _ENOUGH
        if self._count % (_FEW if few else _UPDATED_EVERY) == 0:
            ordered = sorted(self._latest)
            self._limit = (
                2 * ordered[(len(ordered) - 1) * 9 // 10]
                if few
                else ordered[len(ordered) * 99 // 100]
            )
        return limit is not None and duration > limit
