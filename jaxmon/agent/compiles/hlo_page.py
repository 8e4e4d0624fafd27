"""
The optimised HLO of loaded programs, on request.

XLA prints it from the executable: nothing is kept for it, and it costs nothing before.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from jaxmon.agent.functions import Function
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink import backends, executables
from jaxmon.agent.loaded_programs import LoadedProgram, LoadedPrograms
from jaxmon.agent.worker import Worker
from jaxmon.host.http.messages import Request, Response, error_response


if TYPE_CHECKING:
    from concurrent.futures import Future


DEFAULT_NEWEST, MOST_NEWEST = 5, 50
# Characters in all: XLA prints 100 kB in one to ten milliseconds, with the GIL held.
_MOST_TEXT = 4 << 20


class HloPage:
    """
    Responds with the HLO of the newest programs of the user's functions.

    Args:
        jax: the module.
        guard: contains failures.
        worker: prints it.
        loaded: the programs.
        read: reads those that were not read yet.
    """

    def __init__(
        self,
        jax: Any,
        guard: Guard,
        worker: Worker,
        loaded: LoadedPrograms,
        read: Callable[[], None],
    ) -> None:
        self._jax = jax
        self._guard = guard
        self._worker = worker
        self._loaded = loaded
        self._read = read

    def respond(self, request: Request) -> Response | Future[Response]:
        """
        Handle ``/debug/hlo?newest=5``: return the programs compiled last, first one of
        each function, then their older ones.
        """
        from concurrent.futures import Future  # noqa: PLC0415 - on request

        text = request.query.get("newest", str(DEFAULT_NEWEST))
        if not (text.isdecimal() and 1 <= int(text[:9]) <= MOST_NEWEST):
            allowed = f"a number from 1 to {MOST_NEWEST}"
            message = f"newest={text} is invalid; give {allowed}"
            return error_response(HTTPStatus.BAD_REQUEST, message)
        if not backends.initialised(self._jax):
            message = "JAX has not initialised its devices yet"
            return error_response(HTTPStatus.CONFLICT, message)
        answer: Future[Response] = Future()
        if not self._worker.submit(functools.partial(self._answer, int(text), answer)):
            message = "too many programs are being compiled; try again later"
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, message)
        self._worker.end_gathering()
        return answer

    def _answer(self, newest: int, answer: Future[Response]) -> None:
        try:
            document = {"programs": list(self._printed(newest))}
            response = Response(json.dumps(document).encode(), "application/json")
        except Exception:  # noqa: BLE001 - our own thread; the answer says it
            self._guard.failed("hlo", stays_on=True)
            message = "the programs could not be printed"
            response = error_response(HTTPStatus.INTERNAL_SERVER_ERROR, message)
        # The server may have stopped, or the client gone.
        if answer.set_running_or_notify_cancel():
            answer.set_result(response)

    def _printed(self, newest: int) -> Iterator[dict[str, Any]]:
        options = executables.printing(self._jax, origins=True)
        room = _MOST_TEXT
        self._read()
        for executable, function, known in _newest(self._loaded)[:newest]:
            described = {"function": function.name, "finished": known.finished}
            if known.text > room:
                yield {**described, "omitted": f"it has {known.text:,} characters"}
                continue
            room -= known.text
            try:
                text = "\n".join(executables.texts(executable, options))
            except RuntimeError as error:  # deleted since
                yield {**described, "omitted": str(error).partition("\n")[0][:200]}
            else:
                yield {**described, "hlo": text}


def _newest(loaded: LoadedPrograms) -> list[tuple[Any, Function, LoadedProgram]]:
    """
    Return the newest program of each function of the user's, then the older ones. They
    must not be kept.
    """
    found = [
        (executable, known.function, known)
        for executable, known in loaded.now()
        if known is not None and known.function is not None
        if not known.function.internal
    ]
    found.sort(key=lambda one: -one[2].finished)
    ages: list[int] = []
    seen = defaultdict[str, int](int)
    for _, function, _ in found:
        ages.append(seen[function.name])
        seen[function.name] += 1
    order = sorted(range(len(found)), key=ages.__getitem__)
    return [found[at] for at in order]
