"""
Traces from XLA's profiler, taken on request and kept in memory.

Only one profiling session exists in a process. The program's own session takes
precedence: we refuse while it is active, and end ours when it starts one, so that
profiling never makes the program fail.
"""

from __future__ import annotations

import functools
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from jaxmon.agent.context import Context
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.profiler import Busy, Session, reserved
from jaxmon.agent.part import Part
from jaxmon.http.messages import Request, Response, error_response
from jaxmon.http.server import Handler
from jaxmon.threads import DaemonThread


if TYPE_CHECKING:
    from concurrent.futures import Future


DEFAULT_SECONDS = 3.0
MAX_SECONDS = 60.0
CUT_SHORT = "Jaxmon-Cut-Short"
"""Header of a trace that ended early, with the reason."""

SITE = "profile"

_GPU_REASON = (
    "profiling is disabled on GPUs: stopping a trace has taken minutes on large "
    "jobs and has crashed programs. If you accept that, start the program with "
    "jaxmon.instrument(profile_gpu=True) or JAXMON_PROFILE_GPU=1"
)


class TraceRefused(Exception):  # noqa: N818 - a refusal is no error of ours
    """A refused trace request."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Profiler(Part):
    """Takes one trace at a time."""

    name = SITE

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._guard = context.guard
        self._allow_gpu = context.settings.profile_gpu
        self._lock = threading.RLock()
        self._running: _Recording | None = None

    def pages(self) -> dict[str, Handler]:
        """Return the endpoint that takes a trace."""
        return {"/debug/profile": self.page}

    def page(self, request: Request) -> Response | Future[Response]:
        """Handle ``/debug/profile?seconds=3``: return an XSpace, as read by XProf."""
        try:
            recording = self._begin(_seconds(request.query.get("seconds")))
        except TraceRefused as refused:
            return error_response(refused.status, str(refused))
        from concurrent.futures import Future  # noqa: PLC0415

        answer: Future[Response] = Future()
        thread = DaemonThread(
            "jaxmon-profile",
            functools.partial(
                self._guard.run,
                SITE,
                functools.partial(self._finish, recording, answer),
            ),
        )
        try:
            thread.start()
        except RuntimeError:  # no threads left
            recording.end("no thread was available")
            self._running = None
            raise
        return answer

    def stop(self) -> None:
        """End the trace in progress, if any."""
        if (recording := self._running) is not None:
            recording.end("the agent was stopped")

    def abandon(self) -> None:
        """Leave the trace to the parent process; called in a forked child."""
        if (recording := self._running) is not None:
            recording.release()
            self._running = None

    def _begin(self, seconds: float) -> _Recording:
        if not backends.initialised(self._jax):
            msg = "JAX has not initialised its devices yet; try again later"
            raise TraceRefused(HTTPStatus.CONFLICT, msg)
        platform = self._jax.local_devices()[0].platform
        if platform == "gpu" and not self._allow_gpu:
            raise TraceRefused(HTTPStatus.FORBIDDEN, _GPU_REASON)
        with self._lock:
            if self._running is not None:
                msg = "another trace of this process is in progress"
                raise TraceRefused(HTTPStatus.CONFLICT, msg)
            try:
                with reserved(self._jax):
                    recording = _Recording(self._jax, self._guard, seconds)
                    recording.begin(platform)
            except Busy as busy:
                raise TraceRefused(HTTPStatus.CONFLICT, str(busy)) from busy
            self._running = recording
        return recording

    def _finish(self, recording: _Recording, answer: Future[Response]) -> None:
        try:
            recording.wait()
            response = recording.response()
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


class _Recording:
    """One session of XLA's profiler."""

    def __init__(self, jax: Any, guard: Guard, seconds: float) -> None:
        self._session = Session(jax, self._make_way, guard=guard, site=SITE)
        self._seconds = seconds
        self._over = threading.Event()
        self._lock = threading.RLock()
        self._ended = True
        self._space: bytes | None = None
        self._problem: str | None = None
        self._cut_short: str | None = None

    def begin(self, platform: str) -> None:
        """
        Start recording the activity of devices of *platform*.

        Raises:
            Busy: another session is recording.
        """
        self._session.begin(platform)
        self._ended = False

    def wait(self) -> None:
        """Record for the requested time."""
        self._over.wait(self._seconds)
        self.end(None)

    def end(self, reason: str | None) -> None:
        """
        Stop recording. Idempotent and thread-safe.

        Args:
            reason: why it is cut short, if so.
        """
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._cut_short = reason
            try:
                self._space = self._session.stop()
            except Busy as busy:
                self._problem = str(busy)
        self._over.set()

    def release(self) -> None:
        """Stop intercepting the program's own sessions."""
        self._session.release()

    def response(self) -> Response:
        """Return the trace, or why there is none."""
        with self._lock:
            if self._space is None:
                problem = self._problem or "nothing was recorded"
                return error_response(HTTPStatus.CONFLICT, problem)
            headers = {CUT_SHORT: self._cut_short} if self._cut_short else {}
            return Response(self._space, "application/octet-stream", headers=headers)

    def _make_way(self) -> None:
        self.end("the program started its own profile")


def _seconds(text: str | None) -> float:
    try:
        seconds = DEFAULT_SECONDS if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= MAX_SECONDS:
        allowed = f"more than 0, at most {MAX_SECONDS:g}"
        msg = f"seconds={text} is invalid; give {allowed}"
        raise TraceRefused(HTTPStatus.BAD_REQUEST, msg)
    return seconds
