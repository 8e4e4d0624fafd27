"""Who of a server's clients holds a place, and who gives way to one more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Literal, TypeAlias


if TYPE_CHECKING:
    import asyncio

    from jaxmon.http.connection import Connection


# That a client may keep us waiting while others wait for its place.
_PATIENCE_SECONDS = 1.0

Place: TypeAlias = Literal["held", "wanted", "refused"]
"""What a connection has: a place; none, until it has asked for a page and another gives
way; none, and it is told so."""


class Places:
    """
    The places for clients of a server; used on its thread alone.

    Args:
        taken: connections by the task that serves them, the oldest first; those that
            want a place are among them.
        most: how many clients are served at a time.
    """

    def __init__(
        self, taken: Mapping[asyncio.Task[None], Connection], most: int
    ) -> None:
        self._taken = taken
        self._most = most

    @property
    def full(self) -> bool:
        """Tell whether every place is taken."""
        held = sum(connection.place == "held" for connection in self._taken.values())
        return held >= self._most

    def welcome(self, peer: str) -> bool:
        """
        Tell whether one more client at the address *peer* has a place, before it has
        said anything; another may have to leave for it.

        Of the clients at the address that has the most places, that is the one that
        has waited longest between two requests, or else that has kept us waiting for
        longest, and more than a second. If there is none, it is such a one at *peer*
        itself. To an address that has fewer places than that one, all who are idle
        or slow give way, and at last the first of the many: none keeps another out.
        """
        return not self.full or self._make_room(peer, asked=False)

    def claim(self, connection: Connection) -> bool:
        """
        Give a place to one that has asked for a page, if there is one; tell whether.

        Besides those of `welcome`, who has not finished asking gives way to it at
        once: a connection is quickly opened, also ten thousand of them.
        """
        if self.full and not self._make_room(connection.peer, asked=True):
            return False
        connection.place = "held"
        return True

    def tolerates(self) -> bool:
        """
        Tell whether one more may ask without a place; another that is still asking
        may have to leave for it.
        """
        if len(self._taken) < 2 * self._most:
            return True
        asking = {
            task: connection
            for task, connection in self._taken.items()
            if connection.place == "wanted" and not connection.leaving
        }
        task = _asking(asking)
        if task is None or len(self._taken) >= 3 * self._most:
            return False
        self._dismiss(task)
        return True

    def _make_room(self, peer: str, *, asked: bool) -> bool:
        staying = {
            task: connection
            for task, connection in self._taken.items()
            if connection.place == "held" and not connection.leaving
        }
        places = Counter(connection.peer for connection in staying.values())
        crowd = max(places.values(), default=0)
        poorer = crowd > places[peer] + 1
        # Wanting a place takes a connection, and so does leaving.
        if not asked and len(self._taken) >= (4 if poorer else 2) * self._most:
            return False
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
        for clients in (many, others):
            task = _idle(clients) or _slow(clients)
            if task is None and asked:
                task = _asking(clients)
            if task is not None:
                break
        else:
            task = next(iter(many)) if poorer else None
        if task is None:
            return False
        self._dismiss(task)
        return True

    def _dismiss(self, task: asyncio.Task[None]) -> None:
        self._taken[task].leaving = True
        task.cancel()


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


def _asking(
    clients: Mapping[asyncio.Task[None], Connection],
) -> asyncio.Task[None] | None:
    """Return the first that has not said all of its request."""
    for task, connection in clients.items():
        if connection.slow_since is not None and not connection.responding:
            return task
    return None
