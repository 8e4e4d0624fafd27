"""One session of XLA's profiler, whose trace is kept in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.profiler import Busy, ProfilerSession, programs, reserved
from jaxmon.clocks import wall_time
from jaxmon.host.formats import protobuf as wire
from jaxmon.indicators.endings import now
from jaxmon.threads import Event, RLock


# Of XSpace and XPlane, and the name of the plane with the programs.
_PLANES, _NAME = 1, 2
_PROGRAMS = "/host:metadata"


class Recording:
    """
    A session that makes way for the program's own. Its profile has the `name`, when it
    `began`, in UTC; `ended` is `None` while it runs. `cut_short`: why it ended early;
    `problem`: why there is no trace; `without_programs`: why the trace has none.
    """

    def __init__(self, jax: Any, guard: Guard, site: str) -> None:
        self._jax = jax
        self._session = ProfilerSession(jax, self._make_way, guard=guard, site=site)
        self._over = Event()
        self._lock = RLock()
        self._space: bytes | None = None
        self.name = ""
        self.began = 0.0
        self.ended: float | None = 0.0
        self.cut_short: str | None = None
        self.problem: str | None = None
        self.without_programs: str | None = None

    def begin(self, platform: str, *, programs: bool) -> None:
        """
        Start recording the activity of devices of *platform*, such as ``gpu``; whether
        the trace gets the loaded *programs*. Raises `Busy`: another session records.
        """
        self._session.begin(platform, programs=programs)
        wall = wall_time()
        stamp = time.strftime("%Y_%m_%d_%H_%M_%S", time.gmtime(wall))
        self.name = f"{stamp}_{int(wall * 1000) % 1000:03}"
        self.began, self.ended = now(), None

    def wait(self, seconds: float) -> None:
        """Record for so long, unless it ends before."""
        self._over.wait(seconds)

    def end(self, reason: str | None) -> None:
        """Stop recording. Idempotent and thread-safe. *reason*: why it is cut short."""
        with self._lock:
            if self.ended is not None:
                return
            self.ended = now()
            self.cut_short = reason
            try:
                self._space = self._session.stop()
            except Busy as busy:
                self.problem = str(busy)
        self._over.set()

    def discard(self) -> None:
        """Stop recording without a trace."""
        with self._lock:
            if self.ended is None:
                self.ended = now()
                self._session.discard()

    def release(self) -> None:
        """Stop intercepting the program's own sessions."""
        self._session.release()

    def add_programs(self) -> None:
        """
        Add the loaded programs to the trace of a session without them. Raises `Busy`:
        another session is recording.
        """
        with reserved(self._jax):
            space = programs(self._jax)
        with self._lock:
            if self._space is not None:
                self._space += b"".join(_with_programs(space))

    def space(self) -> bytes | None:
        """Return the trace, an XSpace; `None` if there is none."""
        with self._lock:
            return self._space

    def _make_way(self) -> None:
        self.end("the program started its own profile")


def _with_programs(space: bytes) -> Iterator[bytes]:
    """
    Yield what is to be appended to a trace so that it has the programs of *space*:
    protocol buffers are merged by appending one to the other.
    """
    for number, plane in wire.fields(space):
        if number == _PLANES and not isinstance(plane, int):
            names = (value for key, value in wire.fields(plane) if key == _NAME)
            if next(map(wire.text, names), "") == _PROGRAMS:
                yield wire.encoded(_PLANES, plane)
