"""
A profile of the next slow request.

XLA's profiler records from a start, and which request will be slow is not known before.
So it runs while requests are in progress, in sessions that are discarded after some
seconds unless one of them contains a request slower than the threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jaxmon.agent.reports.recording import Recording
from jaxmon.clocks import monotonic
from jaxmon.indicators.endings import now
from jaxmon.indicators.routes import Routes, Serving
from jaxmon.threads import Event


_POLL_SECONDS = 0.01
# A session is discarded when it is older and no request in it may still become slow,
# and when it is as old as any may be.
_SESSION_SECONDS = 5.0
_LONGEST_SECONDS = 60.0


class Caught(NamedTuple):
    """
    A slow request, and the session in which it ended.

    Attributes:
        recording: the session, which has ended.
        request: the request.
        route: its route.
        seconds: how long it took, or has taken if the session ended before.
        recorded: how much of that is in the trace.
        trace: the id of its trace, if there are traces.
    """

    recording: Recording
    request: Serving
    route: str
    seconds: float
    recorded: float
    trace: str | None


class SlowRequests:
    """
    Waits for a slow request.

    Args:
        routes: the requests in progress.
        record: begins a session; raises what is to be reported.
        slower_than: threshold in seconds.
    """

    def __init__(
        self, routes: Routes, record: Callable[[], Recording], slower_than: float
    ) -> None:
        self._routes = routes
        self._record = record
        self._threshold = slower_than
        self._recording: Recording | None = None
        self._over = Event()
        self.cut_short: str | None = None

    def end(self, reason: str) -> None:
        """Stop waiting, and the session with it. Thread-safe."""
        self.cut_short = reason
        self._over.set()
        if (recording := self._recording) is not None:
            recording.end(reason)

    def release(self) -> None:
        """Stop intercepting the program's own sessions."""
        if (recording := self._recording) is not None:
            recording.release()

    def wait(self, seconds: float, gave_up: Callable[[], bool]) -> Caught | None:
        """
        Return the next slow request; `None` if there is none within so many *seconds*,
        if the client *gave_up*, or if this was ended.
        """
        until = monotonic() + seconds
        try:
            while monotonic() < until and not self._over.is_set() and not gave_up():
                caught = self._look()
                if caught is not None:
                    return self._follow(*caught)
                self._over.wait(_POLL_SECONDS)
        finally:
            recording, self._recording = self._recording, None
            if recording is not None:
                recording.discard()  # nothing happens if it has ended
        return None

    def _look(self) -> tuple[Recording, str, Serving] | None:
        """Begin or discard a session, or return that of a slow request."""
        serving = self._routes.in_progress()
        recording, at = self._recording, now()
        if recording is None:
            if serving:
                self._recording = self._record()
            return None
        if recording.ended is not None:  # it made way
            self.end(recording.cut_short or "the profiler stopped")
            return None
        for route, request in serving:
            age = at - request.started
            # Most of it must be in the trace.
            if age >= self._threshold and at - recording.began >= age / 2:
                return recording, route, request
        oldest = max((at - request.started for _, request in serving), default=0.0)
        age = at - recording.began
        if age >= _LONGEST_SECONDS or (
            age >= _SESSION_SECONDS and oldest < self._threshold / 2
        ):
            self._recording = None
            recording.discard()
        return None

    def _follow(self, recording: Recording, route: str, request: Serving) -> Caught:
        """Record until *request* ends."""
        trace = None
        if request.trace is not None:
            ids = request.trace.profiled(recording.name)
            trace = None if ids is None else ids.trace
        latest = recording.began + _LONGEST_SECONDS
        while request.in_progress() and now() < latest and recording.ended is None:
            recording.wait(_POLL_SECONDS)
        ended = now()
        recording.end(None)
        if recording.ended is not None:
            ended = min(ended, recording.ended)
        recorded = ended - max(recording.began, request.started)
        seconds = ended - request.started
        return Caught(recording, request, route, seconds, recorded, trace)
