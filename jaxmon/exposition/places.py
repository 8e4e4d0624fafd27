"""
Who of a server's clients holds a place, and who gives way to one more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Literal, TypeAlias


if TYPE_CHECKING:
    import asyncio

    from jaxmon.exposition.connection import Connection


# That a client may keep us waiting while others wait for its place.
_PATIENCE_SECONDS = 1.0

Welcome: TypeAlias = Literal["served", "refused", "closed"]
"""What becomes of one more client: it is served; it is told that there are too many;
there are too many even of those who are told so."""


class Places:
    """
    The places for clients of a server; used on its thread alone.

    Args:
        taken: connections by the task that serves them, the oldest first.
        most: how many clients are served at a time.
    """

    def __init__(
        self, taken: Mapping[asyncio.Task[None], Connection], most: int
    ) -> None:
        self._taken = taken
        self._most = most

    @property
    def full(self) -> bool:
        """
        Tell whether every place is taken.
        """
        return len(self._taken) >= self._most

    def welcome(self, peer: str) -> Welcome:
        """
        Tell what becomes of one more client at the address *peer*; another may have
        to leave for it.

        Of the clients at the address that has the most places, that is the one that
        has waited longest between two requests, or else that has kept us waiting for
        longest, and more than a second. If there is none, it is such a one at *peer*
        itself. To an address that has fewer places than that one, all who are idle
        or slow give way, and at last the first of the many: none keeps another out.
        """
        if not self.full:
            return "served"
        staying = {
            task: connection
            for task, connection in self._taken.items()
            if not connection.leaving
        }
        places = Counter(connection.peer for connection in staying.values())
        crowd = max(places.values(), default=0)
        poorer = crowd > places[peer] + 1
        # Refusing politely takes a connection, and so does leaving.
        if len(self._taken) >= (3 if poorer else 2) * self._most:
            return "closed"
        many = {
            task: connection
            for task, connection in staying.items()
            if places[connection.peer] == crowd
        }
        others = {
            task: connection
            for task, connection in staying.items()
            if poorer or connection.peer == peer
        }
        task = _idle(many) or _slow(many) or _idle(others) or _slow(others)
        if task is None and poorer:
            task = next(iter(many))
        if task is None:
            return "refused"
        staying[task].leaving = True
        task.cancel()
        return "served"


def _idle(
    clients: Mapping[asyncio.Task[None], Connection],
) -> asyncio.Task[None] | None:
    since = (
        (connection.idle_since, task)
        for task, connection in clients.items()
        if connection.idle_since is not None
    )
    return min(since, key=itemgetter(0), default=(0.0, None))[1]


def _slow(
    clients: Mapping[asyncio.Task[None], Connection],
) -> asyncio.Task[None] | None:
    patience = monotonic() - _PATIENCE_SECONDS
    since = (
        (connection.slow_since, task)
        for task, connection in clients.items()
        if connection.slow_since is not None and connection.slow_since < patience
    )
    return min(since, key=itemgetter(0), default=(0.0, None))[1]
