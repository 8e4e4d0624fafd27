"""Arrays that are read once they are ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxmon.agent.jaxlink.arrays import is_ready_or_deleted


_FIRST_LOOK, _LAST_LOOK, _LOOKS = 0.002, 1.0, 3600


class Pending:
    """
    Arrays of one call, for a `Watcher`.

    Args:
        arrays: those to wait for.
        read: called once all are ready, or deleted.
    """

    def __init__(self, arrays: Sequence[Any], read: Callable[[], None]) -> None:
        self._arrays = arrays
        self._read = read
        self._delay = _FIRST_LOOK
        self._looks = 0

    def look(self) -> float | None:
        """Read them if they are ready; return when to look again, if at all."""
        if all([is_ready_or_deleted(one) for one in self._arrays]):
            self._read()
            return None
        self._looks += 1
        self._delay = min(self._delay * 1.5, _LAST_LOOK)
        return self._delay if self._looks < _LOOKS else None
