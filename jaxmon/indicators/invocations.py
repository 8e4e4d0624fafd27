"""
Serverless functions: each invocation is a request, and is pushed before it ends.

A platform freezes the process when an invocation has returned, and ends it whenever it
likes. So what was measured is pushed within the invocation. The start of the instance,
which the first invocation waited for, is counted apart from compiles, which any may
wait for.

HTTP requests as events of serverless functions. API gateways, load balancers and
function URLs pass a dictionary with ``headers``, and take one with ``statusCode``.
Other platforms pass a request of a framework, which has ``headers``, and take a
response with ``status_code``, or what Flask makes one of.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, overload

from jaxmon import catalog, interrupts
from jaxmon.exposition.families import Family, Histogram, family_of
from jaxmon.host.resources import process
from jaxmon.indicators.decorate import kind_of
from jaxmon.indicators.recorder import CARRIED, RequestOrigin, recorder
from jaxmon.indicators.requests import (
    OpenRequest,
    ServedRequest,
    http_outcome,
    origin_of,
)
from jaxmon.threads import DaemonThread, RLock


_LOWEST, _HIGHEST, _DIGITS = 100, 599, 3


def headers_of(event: Any) -> Any:
    """Return the headers of *event*, a mapping, `None` if it is no HTTP request."""
    if isinstance(event, Mapping):
        found = event.get("headers")
        if not found:  # load balancers have one or the other
            found = event.get("multiValueHeaders") or found
    else:
        found = getattr(event, "headers", None)
    return found if callable(getattr(found, "items", None)) else None


def carried_headers(headers: Any) -> Iterator[tuple[str, str]]:
    """Yield those of *headers* that carry the context of a trace, in lower case."""
    for name, value in headers.items():
        if isinstance(name, str) and (lower := name.lower()) in CARRIED:
            yield lower, ",".join(value) if isinstance(value, list) else str(value)


def status_of(response: Any) -> int | None:
    """Return the status of *response*, `None` if it does not say one."""
    if isinstance(response, Mapping):
        found = response.get("statusCode")
    elif isinstance(response, tuple):  # Flask's: body, status
        found = response[1] if len(response) > 1 else None
    else:
        found = getattr(response, "status_code", None)
    if isinstance(found, str) and len(found) == _DIGITS and found.isdecimal():
        found = int(found)
    return found if isinstance(found, int) and _LOWEST <= found <= _HIGHEST else None


F = TypeVar("F", bound=Callable[..., Any])

SITE = "invocations"
_EVENTS = "events"
FLUSH_SECONDS = 2.0
"""How long an invocation waits for a push, by default: as long as it is new."""

# No invocation takes longer, and no lock can wait for ever.
_LONGEST_SECONDS = 900.0
# What a platform has left of an invocation must suffice to return.
_RESERVE_SECONDS = 0.1
_NAME = "AWS_LAMBDA_FUNCTION_NAME"


class Invocations:
    """Invocations by route, and how long the instance took to start."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._start = Histogram(catalog.INSTANCE_START_SECONDS)
        self._lock = RLock()

    def begin(self, route: str) -> None:
        """Count an invocation of *route*, which is a label."""
        with self._lock:
            first = not self._counts
            for start in catalog.INSTANCE_STARTS:
                self._counts.setdefault((route, start), 0)
            self._counts[route, "cold" if first else "warm"] += 1
        if first and (seconds := process.age()) is not None:
            self._start.observe(seconds)

    def collect(self) -> list[Family]:
        """Return the metrics, nothing without invocations."""
        if not self._counts:
            return []
        counts = [(*kind, n) for kind, n in self._counts.copy().items()]
        return [
            family_of(catalog.INVOCATIONS, counts),
            Family(catalog.INSTANCE_START_SECONDS, self._start.samples()),
        ]


def flush(timeout: float = FLUSH_SECONDS) -> bool:
    """
    Push metrics and spans by OTLP now, as the agent does otherwise from time to time,
    and wait until the handlers of `logging` have the events.

    Never raises. What does not arrive is in the next push.

    Args:
        timeout: maximum seconds to wait.

    Returns:
        Whether the push has ended; without an agent, or without OTLP, there is none.
    """
    indicators = recorder()
    if indicators is None:
        return True
    try:
        return indicators.flush(min(max(timeout, 0.0), _LONGEST_SECONDS))
    except Exception:  # noqa: BLE001 - contained: the program goes on
        indicators.guard.failed(SITE, stays_on=True)
        return False


@overload
def serverless(handler: F, /) -> F: ...
@overload
def serverless(
    *, route: str = "", timeout: float = FLUSH_SECONDS
) -> Callable[[F], F]: ...


def serverless(
    handler: F | None = None, /, *, route: str = "", timeout: float = FLUSH_SECONDS
) -> F | Callable[[F], F]:
    """
    Decorate the *handler* of a serverless function, ``def`` or ``async def``.

    Each call is a `jaxmon.request`; then metrics and spans are pushed, before it
    returns. It waits for at most *timeout* seconds, and for no longer than the second
    argument, if that is AWS Lambda's context, has left. Counted apart are the start of
    the instance, before its first invocation, and compiles (``start="cold"``).

    If the first argument is an HTTP request, as gateways pass it (a dictionary with
    ``headers``, or an object that has them), its span continues the trace of the
    client, and the status of the response determines the outcome.

    Without an agent it calls *handler*, and nothing else. Never raises.

    Args:
        handler: takes any arguments, such as ``event, context``.
        route: the label; by default the name of the Lambda function, or the handler's.
        timeout: maximum seconds for the push.

    Example:
        >>> import jaxmon
        >>> @jaxmon.serverless
        ... def handler(event, context):
        ...     return {"statusCode": 200}
    """
    if handler is None:
        return lambda function: _decorated(function, route, timeout)
    return _decorated(handler, route, timeout)


def begin(route: str) -> None:
    """Count an invocation; never raises."""
    indicators = recorder()
    if indicators is not None and indicators.guard.on(SITE):
        try:
            indicators.invocations.begin(indicators.routes.of(str(route)).name)
        except Exception:  # noqa: BLE001 - contained: the invocation goes on
            indicators.guard.failed(SITE)


def frozen(route: str) -> bool:
    """Return whether this is an invocation of *route*, which is then counted."""
    indicators = recorder()
    if indicators is None or not indicators.serverless:
        return False
    begin(route)
    return True


def _decorated(handler: F, route: str, timeout: float) -> F:
    named = os.environ.get(_NAME) or getattr(handler, "__name__", "handler")
    name = route or str(named)
    wrapper: Callable[..., Any]
    if inspect.iscoroutinefunction(kind_of(handler)):

        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            begin(name)
            event = _Event(name, args)
            try:
                with ServedRequest(name, event.origin) as request:
                    return event.ended(request, await handler(*args, **kwargs))
            finally:
                await flush_in_thread(_seconds(args, timeout))

    else:

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            begin(name)
            event = _Event(name, args)
            try:
                with ServedRequest(name, event.origin) as request:
                    return event.ended(request, handler(*args, **kwargs))
            finally:
                flush(_seconds(args, timeout))

    return functools.wraps(handler)(wrapper)  # type: ignore[return-value]  # alike


class _Event:
    """What an invocation is called with, if an HTTP request. No method raises."""

    def __init__(self, route: str, args: tuple[Any, ...]) -> None:
        self.origin: RequestOrigin | None = None
        self._is_http = False
        indicators = recorder()
        if indicators is None or not args or not indicators.guard.on(_EVENTS):
            return
        try:
            headers = headers_of(args[0])
            if headers is not None:
                self._is_http = True
                self.origin = origin_of(route, "function", "", carried_headers(headers))
        except Exception:  # noqa: BLE001 - contained: the invocation goes on
            indicators.guard.failed(_EVENTS, theirs=True)

    def ended(self, request: OpenRequest, response: Any) -> Any:
        """Note what the status of *response* says of *request*; return *response*."""
        indicators = recorder()
        if self._is_http and indicators is not None:
            try:
                status = status_of(response)
                if status is not None:
                    if request.outcome is None:
                        request.outcome = http_outcome(status)
                    if self.origin is not None:
                        self.origin.status = status
            except Exception:  # noqa: BLE001 - contained: the invocation goes on
                indicators.guard.failed(_EVENTS, theirs=True)
        return response


async def flush_in_thread(seconds: float = FLUSH_SECONDS) -> None:
    """`flush` without blocking the event loop."""
    if recorder() is None:
        return
    import asyncio  # noqa: PLC0415 - a program with a coroutine has it

    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def work() -> None:
        flush(seconds)
        try:
            loop.call_soon_threadsafe(done.set)
        except RuntimeError as error:  # the loop was closed meanwhile
            interrupts.pass_on(error)

    try:
        DaemonThread("jaxmon-flush", work).start()
    except RuntimeError as error:  # no threads left
        interrupts.pass_on(error)
        flush(0)
    else:
        await done.wait()


def _seconds(args: tuple[Any, ...], timeout: float) -> float:
    if recorder() is None:
        return timeout
    try:
        left = float(args[1].get_remaining_time_in_millis()) / 1000
        return max(min(timeout, left - _RESERVE_SECONDS), 0.0)
    except Exception as error:  # noqa: BLE001 - another platform's arguments
        interrupts.pass_on(error, theirs=True)
        return timeout
