"""
Where clients wait that have no place in the server and have said nothing yet.

Most of a burst of connections never says anything. Here each costs a descriptor for a
moment, and no task, buffer or handshake.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    import asyncio

    from jaxmon.http.listeners import Listener


_PATIENCE_SECONDS = 1.0
# Until those who leave have left.
_AGAIN_SECONDS = 0.02


class Guest(NamedTuple):
    """
    A client as it was accepted.

    Args:
        sock: non-blocking; whoever holds the guest closes it.
        listener: where it came in.
        peer: address of the client, the same for all of a Unix socket.
    """

    sock: socket.socket
    listener: Listener
    peer: str


class Lobby:
    """
    Waits for the first word of each guest; used on the loop's thread alone.

    Args:
        loop: tells when a guest speaks.
        most: guests at a time. For one more the first leaves, who had the longest
            time to say something.
        enter: called with each guest that has spoken; tells whether there was room
            for it. If not, it is called again a little later.
        leave: called for each that is turned away, before its socket is closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        most: int,
        *,
        enter: Callable[[Guest], bool],
        leave: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._most = most
        self._enter = enter
        self._leave = leave
        # By when they came, the first of them first.
        self._guests: dict[Guest, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, guest: Guest) -> None:
        """Let *guest* wait, for a second at most."""
        if len(self._guests) >= self._most:
            self._dismiss(next(iter(self._guests)))
        self._guests[guest] = monotonic()
        self._loop.add_reader(guest.sock, self._call, guest)
        if self._timer is None:
            self._timer = self._loop.call_later(_PATIENCE_SECONDS, self._look)

    def close(self) -> None:
        """
        Close all sockets, without a word to the loop: it has ended, or is a parent's.
        """
        while self._guests:
            self._guests.popitem()[0].sock.close()

    def _call(self, guest: Guest) -> None:
        if guest not in self._guests:  # left, or closed, meanwhile
            return
        self._loop.remove_reader(guest.sock)
        if self._enter(guest):
            del self._guests[guest]
        else:
            self._loop.call_later(_AGAIN_SECONDS, self._call, guest)

    def _dismiss(self, guest: Guest) -> None:
        self._loop.remove_reader(guest.sock)
        del self._guests[guest]
        # It may have spoken since the loop looked.
        if not (_has_spoken(guest.sock) and self._enter(guest)):
            self._leave()
            guest.sock.close()

    def _look(self) -> None:
        """Dismiss those whose time is up."""
        self._timer = None
        patience = monotonic() - _PATIENCE_SECONDS
        for guest in [one for one, came in self._guests.items() if came <= patience]:
            self._dismiss(guest)
        if self._guests:
            first = next(iter(self._guests.values()))
            self._timer = self._loop.call_later(max(0.0, first - patience), self._look)


def _has_spoken(sock: socket.socket) -> bool:
    try:
        sock.recv(1, socket.MSG_PEEK)
    except OSError:  # nothing yet, or gone
        return False
    return True
