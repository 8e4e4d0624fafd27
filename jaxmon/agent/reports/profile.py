"""
Traces from XLA's profiler, taken on request and kept in memory.

Only one profiling session exists in a process. The program's own session takes
precedence: we refuse while it is active, and end ours when it starts one, so that
profiling never makes the program fail.

A profile of the next slow request. XLA's profiler records from a start, and which
request will be slow is not known before. So it runs while requests are in progress, in
sessions that are discarded after some seconds unless one of them contains a request
slower than the threshold.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from jaxmon.agent.context import Context
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.profiler import Busy, ProfilerSession, programs, reserved
from jaxmon.agent.loaded_programs import LoadedPrograms
from jaxmon.agent.part import Part
from jaxmon.clocks import monotonic, wall_time
from jaxmon.errors import WireError
from jaxmon.host.formats import protobuf as wire
from jaxmon.host.http.messages import Request, Response, error_response
from jaxmon.host.http.server import Handler
from jaxmon.indicators.endings import now
from jaxmon.indicators.requests import OpenRequest
from jaxmon.indicators.routes import Routes
from jaxmon.otel.traces import spans as conventions
from jaxmon.otel.traces.spans import Child
from jaxmon.threads import DaemonThread, Event, RLock


if TYPE_CHECKING:
    from concurrent.futures import Future


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


_POLL_SECONDS = 0.01
# A session is discarded when it is older and no request in it may still become slow,
# and when it is as old as any may be.
_SESSION_SECONDS = 5.0
_LONGEST_SECONDS = 60.0


class SlowRequests:
    """Waits for a request that is *slower_than* so many seconds, in a session."""

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

    def wait(
        self, seconds: float, gave_up: Callable[[], bool]
    ) -> tuple[Recording, OpenRequest, dict[str, str]] | None:
        """
        Return a slow request, `None` if none came, or the client *gave_up*; with the
        session in which it ended, which has, and headers: its route, how long it took,
        or has taken if the session ended before, how much of that is in the trace, and
        the id of its trace, if there are traces.
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

    def _look(self) -> tuple[Recording, str, OpenRequest] | None:
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

    def _follow(
        self, recording: Recording, route: str, request: OpenRequest
    ) -> tuple[Recording, OpenRequest, dict[str, str]]:
        """Record until *request* ends."""
        headers = {ROUTE: route.encode("ascii", "backslashreplace").decode()}
        if request.trace and (ids := request.trace.profiled(recording.name)):
            headers[TRACE] = ids.trace
        latest = recording.began + _LONGEST_SECONDS
        while request.in_progress() and now() < latest and recording.ended is None:
            recording.wait(_POLL_SECONDS)
        ended = now()
        recording.end(None)
        if recording.ended is not None:
            ended = min(ended, recording.ended)
        headers[TOOK] = f"{ended - request.started:.3f}"
        headers[RECORDED] = f"{ended - max(recording.began, request.started):.3f}"
        return recording, request, headers


DEFAULT_SECONDS = 3.0
MAX_SECONDS = 60.0
CUT_SHORT = "Jaxmon-Cut-Short"
"""Header of a trace that ended early, with the reason."""
WITHOUT_PROGRAMS = "Jaxmon-Without-Programs"
"""Header of a trace without the XLA programs, with the reason."""
PROFILE, SECONDS, ROUTE, TOOK, RECORDED, TRACE = (
    f"Jaxmon-{name}"
    for name in ("Profile", "Seconds", "Route", "Took", "Recorded", "Trace")
)
"""
Headers of a trace: its name and how long it is; and for that of a slow request its
route, the seconds that it took, how many of them were recorded, and its trace's id.
"""

SITE = "profile"

# XLA copies all loaded programs at once, with their constants.
_MOST_COPIED = 1 << 30

GPU_REASON = (
    "profiling is disabled on GPUs: stopping a trace has taken minutes on large "
    "jobs and has crashed programs. If you accept that, start the program with "
    "jaxmon.instrument(profile_gpu=True) or JAXMON_PROFILE_GPU=1"
)
"""Why a session needs permission there: XLA records devices in every one."""


class TraceRefused(Exception):  # noqa: N818 - a refusal is no error of ours
    """A refused trace request."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Profiler(Part):
    """Takes one trace at a time."""

    name = SITE

    def __init__(
        self,
        context: Context,
        routes: Routes,
        loaded: LoadedPrograms,
        pass_traces: Callable[[], Any],
    ) -> None:
        self._pass_traces = pass_traces
        self._jax = context.jax
        self._guard = context.guard
        self._observers = context.observers
        self._routes = routes
        self._loaded = loaded
        self._allow_gpu = context.settings.profile_gpu
        self._lock = RLock()
        self._running: Any = None

    def pages(self) -> dict[str, Handler]:
        """Return the endpoints that take a trace."""
        return dict.fromkeys(("/debug/profile", "/debug/passes"), self.page)

    def page(self, request: Request) -> Response | Future[Response]:
        """
        Handle ``/debug/profile?seconds=3``: return an XSpace, as read by XProf. With
        ``slower_than=1``: that of the next request slower than a second, or 204 if
        there was none in *seconds*. ``/debug/passes``: where compiles went that begin
        in *seconds*, as `PassTraces` keeps it: lines, a zero byte, and a trace.
        """
        query = request.query
        try:
            asked = query.get("seconds", str(DEFAULT_SECONDS))
            seconds = _seconds("seconds", asked, MAX_SECONDS)
            if request.path == "/debug/passes":
                work = functools.partial(self._observe().follow, seconds)
            elif (slower_than := query.get("slower_than")) is not None:
                least = _seconds("slower_than", slower_than, MAX_SECONDS / 2)
                work = functools.partial(self._wait, self._arm(least), seconds)
            else:
                work = functools.partial(self._record, self._begin(), seconds)
        except TraceRefused as refused:
            return error_response(refused.status, str(refused))
        return self._answer(work)

    def stop(self) -> None:
        """End the trace in progress, if any."""
        if (running := self._running) is not None:
            running.end("the agent was stopped")

    def abandon(self) -> None:
        """Leave the trace to the parent process; called in a forked child."""
        if (running := self._running) is not None:
            running.release()
            self._running = None

    def _arm(self, slower_than: float) -> SlowRequests:
        with self._lock:
            # Refuse now, not when a request comes. Without programs: most sessions
            # are discarded, and XLA would copy the programs for each.
            session = functools.partial(self._session, self._platform(), programs=False)
            waiting = SlowRequests(self._routes, session, slower_than)
            self._running = waiting
        return waiting

    def _begin(self) -> Recording:
        with self._lock:
            platform, too_large = self._platform(), self._too_large()
            recording = self._session(platform, programs=too_large is None)
            recording.without_programs = too_large
            self._running = recording
        return recording

    def _observe(self) -> Any:
        with self._lock:
            self._platform()
            try:
                with reserved(self._jax):
                    self._running = self._pass_traces()
            except Busy as busy:
                raise TraceRefused(HTTPStatus.CONFLICT, str(busy)) from busy
            return self._running

    def _platform(self) -> str:
        if not backends.initialised(self._jax):
            msg = "JAX has not initialised its devices yet; try again later"
            raise TraceRefused(HTTPStatus.CONFLICT, msg)
        platform: str = self._jax.local_devices()[0].platform
        if platform == "gpu" and not self._allow_gpu:
            raise TraceRefused(HTTPStatus.FORBIDDEN, GPU_REASON)
        if self._running is not None:
            msg = "another trace of this process is in progress"
            raise TraceRefused(HTTPStatus.CONFLICT, msg)
        return platform

    def _too_large(self) -> str | None:
        """Return why the programs are not to be in the trace, `None` if they are."""
        needed = self._loaded.copy_bytes()
        if needed is not None and needed <= _MOST_COPIED:
            return None
        size = "an unknown amount" if needed is None else f"{needed >> 20:,} MiB"
        return f"copying the loaded XLA programs would take {size} of memory"

    def _session(self, platform: str, *, programs: bool) -> Recording:
        try:
            with reserved(self._jax):
                recording = Recording(self._jax, self._guard, SITE)
                recording.begin(platform, programs=programs)
        except Busy as busy:
            raise TraceRefused(HTTPStatus.CONFLICT, str(busy)) from busy
        return recording

    def _answer(
        self, work: Callable[[Callable[[], bool]], Response]
    ) -> Response | Future[Response]:
        from concurrent.futures import Future  # noqa: PLC0415

        answer: Future[Response] = Future()
        finish = functools.partial(self._finish, work, answer)
        run = functools.partial(self._guard.run, SITE, finish)
        if self._guard.start(DaemonThread("jaxmon-profile", run), SITE):
            return answer
        reason = "no thread was available"
        if (running := self._running) is not None:
            running.end(reason)
        self._running = None
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, reason)

    def _finish(
        self, work: Callable[[Callable[[], bool]], Response], answer: Future[Response]
    ) -> None:
        try:
            response = work(answer.cancelled)
        except TraceRefused as refused:
            response = error_response(refused.status, str(refused))
        except Exception:  # noqa: BLE001 - our own thread; the answer says it
            self._guard.failed(SITE, stays_on=True)
            response = error_response(
                HTTPStatus.INTERNAL_SERVER_ERROR, "the trace could not be taken"
            )
        finally:
            self._running = None
        # The server may have stopped, or the client gone.
        if answer.set_running_or_notify_cancel():
            answer.set_result(response)

    def _record(
        self, recording: Recording, seconds: float, _: Callable[[], bool]
    ) -> Response:
        recording.wait(seconds)
        recording.end(None)
        tracer = self._observers.tracer
        if tracer is not None and (payer := tracer.payer(())) is not None:
            tracer.kept(_span(recording), payer)
        return _response(recording, {})

    def _wait(
        self, waiting: SlowRequests, seconds: float, gave_up: Callable[[], bool]
    ) -> Response:
        caught = waiting.wait(seconds, gave_up)
        if caught is None:
            if waiting.cut_short is not None:
                return error_response(HTTPStatus.CONFLICT, waiting.cut_short)
            return Response(b"", status=HTTPStatus.NO_CONTENT)
        recording, request, headers = caught
        self._add_programs(recording)
        tracer, trace = self._observers.tracer, request.trace
        if tracer is not None and trace is not None:
            tracer.below(trace, _span(recording))
        return _response(recording, headers)

    def _add_programs(self, recording: Recording) -> None:
        try:
            recording.without_programs = self._too_large()
            if recording.without_programs is None:
                recording.add_programs()
        except (Busy, WireError) as error:
            recording.without_programs = str(error)


def _span(recording: Recording) -> Child:
    began, ended = recording.began, recording.ended or recording.began
    profile = {conventions.PROFILE: recording.name}
    return Child(conventions.PROFILE_NAME, began, ended, profile)


def _response(recording: Recording, facts: Mapping[str, str]) -> Response:
    """Return the trace with *facts* about it, or why there is none."""
    space = recording.space()
    if space is None:
        problem = recording.problem or "nothing was recorded"
        return error_response(HTTPStatus.CONFLICT, problem)
    # The trace says when the profiler stopped, and copying programs is part of that.
    seconds = (recording.ended or recording.began) - recording.began
    headers = {PROFILE: recording.name, SECONDS: f"{seconds:.3f}", **facts}
    if recording.cut_short:
        headers[CUT_SHORT] = recording.cut_short
    if recording.without_programs:
        headers[WITHOUT_PROGRAMS] = recording.without_programs
    return Response(space, "application/octet-stream", headers=headers)


def _seconds(name: str, text: str, most: float) -> float:
    seconds = -1.0
    with contextlib.suppress(ValueError):
        seconds = float(text)
    if not 0 < seconds <= most:
        msg = f"{name}={text} is invalid; give more than 0, at most {most:g}"
        raise TraceRefused(HTTPStatus.BAD_REQUEST, msg)
    return seconds
