"""A private event loop inside the user's program."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from jaxmon.http.messages import now
from jaxmon.http.sockets import READ, Poller, pair
from jaxmon.threads import unlist


if TYPE_CHECKING:
    import socket

    from jaxmon.http.transport import Transport

    _Socket: TypeAlias = socket.socket | Transport

_Call: TypeAlias = Callable[[], None]


class _Watch(NamedTuple):
    events: int
    call: _Call


class Loop:
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
            self._poller = undo.enter_context(contextlib.closing(Poller()))
            self._pipe = pair()
            for end in self._pipe:
                undo.callback(end.close)
                end.settimeout(0)
            self.watch(self._pipe[0], READ, self._wake_up)
            undo.pop_all()

    def watch(self, sock: _Socket, events: int, call: _Call) -> None:
        """Make *call* whenever *sock* is ready for *events*, and for no others."""
        number = sock.fileno()
        watched = self._watched.get(number)
        if watched is None:
            self._poller.register(number, events)
        elif watched.events != events:
            self._poller.modify(number, events)
        else:
            return
        self._watched[number] = _Watch(events, call)

    def unwatch(self, sock: _Socket) -> None:
        """Stop watching *sock*; call this before it is closed."""
        if self._watched.pop(sock.fileno(), None) is not None:
            self._poller.unregister(sock.fileno())

    def later(self, seconds: float, call: _Call) -> None:
        """Make *call* once, *seconds* from now."""
        heapq.heappush(self._timers, (now() + seconds, next(self._number), call))

    def wake(self) -> None:
        """Make `turn` return soon; thread-safe."""
        with contextlib.suppress(OSError):  # it will, or the loop was closed
            self._pipe[1].send(b"\0")

    def turn(self, until: float = inf) -> None:
        """Wait until something is due, or *until* (by `now`), and do what is due."""
        due = min(until, self._timers[0][0] if self._timers else inf)
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
        self._poller.close()
        for end in self._pipe:
            end.close()

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._pipe[0].recv(1 << 12)

    def _do(self, call: _Call) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - contained: the loop continues
            self._report("server", error)
