"""
Requests of web frameworks, counted although the program marks none.

With the setting ``frameworks``, which ``jaxmon run`` turns on, applications of
Starlette, FastAPI and Flask are called through our middleware, outside of all others.
A request that the program marks itself, inside, takes the place of ours, and ours end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import wraps
from types import MethodType
from typing import Any, TypeAlias

from jaxmon.agent.context import Context
from jaxmon.agent.guard import log
from jaxmon.agent.part import Explanation, Part
from jaxmon.indicators.requests import RecognisedRequest


_Call: TypeAlias = Callable[..., Any]

_MARKED = (
    "the program marks its own requests; those of its web framework are no longer "
    "counted by themselves"
)


class Frameworks(Part):
    """
    Replaces how applications of known frameworks are called, once these are imported.

    Looks at the loaded modules as often as functions are sampled; a call costs nothing
    but the middleware. Off, and after `stop`, applications are called as before.
    """

    name = "frameworks"

    def __init__(self, context: Context) -> None:
        self._timer = context.observers.timer
        self._calls: dict[str, tuple[Any, _Call, _Call]] = {}
        context.observers.timer.append(self._look)

    def stop(self) -> None:
        """Restore what nothing else has replaced since."""
        if self._look in self._timer:
            self._timer.remove(self._look)
        for kind, call, counted in self._calls.values():
            if kind.__dict__.get("__call__") is counted:
                setattr(kind, "__call__", call)  # noqa: B010 - a method, for mypy
        self._calls = {}

    def explain(self) -> Explanation:
        """Return the names of the frameworks whose requests are counted."""
        return Explanation({"recognised": lambda: tuple(self._calls)})

    def _look(self) -> None:
        if RecognisedRequest.replaced:
            if self._calls:
                log.info(_MARKED)
            self.stop()
            return
        for name, (module, replacement) in _FRAMEWORKS.items():
            kind = getattr(sys.modules.get(module), name, None)
            call = vars(kind).get("__call__") if isinstance(kind, type) else None
            if name in self._calls or call is None:
                continue
            counted = replacement(call)
            self._calls[name] = kind, call, counted
            setattr(kind, "__call__", counted)  # noqa: B010 - likewise


def _asgi(call: _Call) -> _Call:
    from jaxmon.asgi import Middleware  # noqa: PLC0415 - with the framework

    class RecognisedAsgi(Middleware):
        request = RecognisedRequest

    @wraps(call)
    async def counted(app: Any, scope: Any, receive: Any, send: Any) -> None:
        await RecognisedAsgi(MethodType(call, app))(scope, receive, send)

    return counted


def _wsgi(call: _Call) -> _Call:
    from jaxmon.wsgi import WsgiMiddleware  # noqa: PLC0415 - with the framework

    class RecognisedWsgi(WsgiMiddleware):
        request = RecognisedRequest

    @wraps(call)
    def counted(app: Any, environ: Any, start_response: Any) -> Iterable[bytes]:
        return RecognisedWsgi(MethodType(call, app))(environ, start_response)

    return counted


# By the name of their class: where it is, and how it is called through ours. FastAPI's
# is Starlette's.
_FRAMEWORKS: dict[str, tuple[str, Callable[[_Call], _Call]]] = {
    "Starlette": ("starlette.applications", _asgi),
    "Flask": ("flask.app", _wsgi),
}
