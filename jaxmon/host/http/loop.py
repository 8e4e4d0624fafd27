"""A private event loop inside the user's program."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable
from itertools import count
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from jaxmon.host.files.descriptor import DescriptorLostError, OwnedSocket
from jaxmon.host.http.messages import now
from jaxmon.host.http.sockets import READ, SocketPoll, pair
from jaxmon.threads import unlist
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from jaxmon.host.http.sockets import Transport

    _Socket: TypeAlias = OwnedSocket | Transport

_Call: TypeAlias = Callable[[], None]

# Between two turns, if `wake` is impossible: the program has closed what it needs.
_DEAF_SECONDS = 0.1


class _Watch(NamedTuple):
    sock: _Socket
    events: int
    call: _Call


class EventLoop:
    """
    Makes calls when sockets are ready, and at given times. Except for `wake`, it is
    used by one thread at a time.

    Args:
        report: called with what a call raised, as a failure of ``server``.

    Raises:
        OSError: there are no descriptors left.
    """

    def __init__(self, report: Callable[[str, BaseException], None]) -> None:
        self._report = report
        self._timers: list[tuple[float, int, _Call]] = []
        self._number = count()
        self._watched: dict[int, _Watch] = {}
        with contextlib.ExitStack() as undo:
            self._poller = SocketPoll()
            self._pipe = tuple(map(OwnedSocket, pair()))
            for end in self._pipe:
                undo.callback(end.close)
                end.get().settimeout(0)
            self.watch(self._pipe[0], READ, self._wake_up)
            undo.pop_all()

    def watch(self, sock: _Socket, events: int, call: _Call) -> None:
        """Make *call* whenever *sock* is ready for *events*, and for no others."""
        number = sock.fileno()
        watched = self._watched.get(number)
        # If it is another socket's, the program closed that.
        if watched is None or watched.sock is not sock or watched.events != events:
            self._poller.register(number, events)
            self._watched[number] = _Watch(sock, events, call)

    def unwatch(self, sock: _Socket) -> None:
        """Stop watching *sock*; call this before it is closed."""
        watched = self._watched.get(sock.fileno())
        if watched is not None and watched.sock is sock:
            del self._watched[sock.fileno()]
            self._poller.unregister(sock.fileno())

    def later(self, seconds: float, call: _Call) -> None:
        """Make *call* once, *seconds* from now."""
        heapq.heappush(self._timers, (now() + seconds, next(self._number), call))

    def wake(self) -> None:
        """Make `turn` return soon; thread-safe."""
        with contextlib.suppress(OSError):  # it will, or cannot
            self._pipe[1].get().send(b"\0")

    def turn(self, until: float = inf) -> None:
        """Wait until something is due, or *until* (by `now`), and do what is due."""
        due = min(until, self._timers[0][0] if self._timers else inf)
        if not all(end.is_ours for end in self._pipe):
            self.unwatch(self._pipe[0])
            due = min(due, now() + _DEAF_SECONDS)
        unlist()
        ready = self._poller.wait(None if due == inf else max(0.0, due - now()))
        for number, watch in [(one, self._watched.get(one)) for one in ready]:
            # It may have been closed meanwhile, and its number be another socket's.
            if watch is not None and self._watched.get(number) is watch:
                self._do(watch.call)
        while self._timers and self._timers[0][0] <= now():
            self._do(heapq.heappop(self._timers)[-1])

    def close(self) -> None:
        """Close the loop's own descriptors."""
        for end in self._pipe:
            end.close()

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError, DescriptorLostError):
            self._pipe[0].get().recv(1 << 12)

    def _do(self, call: _Call) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - contained: the loop continues
            self._report("server", error)
