"""
The XLA programs that are loaded, and their optimised HLO on request.

XLA lists them, and JAX decides how long they live. What is known of each is kept by the
identity of the executable, and an executable itself never. XLA prints HLO from the
executable: nothing is kept for it, and it costs nothing before.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from jaxmon.agent.functions import CompilePhases, Function
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink import backends, executables
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.worker import Worker
from jaxmon.clocks import monotonic
from jaxmon.facts import SCHEMA
from jaxmon.host.http.messages import Request, Response, error_response


if TYPE_CHECKING:
    from concurrent.futures import Future

    from jaxmon.agent.jaxlink.equations import EquationReader


# What a copy of a program takes in memory while it is made, measured: per byte of its
# text and of its constants, which the text omits.
_PER_TEXT, _PER_CONSTANT = 20, 2
_OMITTED = " constant({...})"

_MOST_KNOWN = 4096
# For reading programs of which nothing is known: those compiled before jaxmon started.
_SECONDS = 0.5


class SeenCompile(NamedTuple):
    """How a program was compiled or loaded; *jaxpr* returns `None` if that is gone."""

    function: Function
    finished: float
    phases: CompilePhases
    jaxpr: Callable[[], Any]


class LoadedProgram(NamedTuple):
    """
    What is known of a program: how it was *seen*, `None` if that was before us; the
    length of its HLO's *text*, without metadata; bytes that a *copy* of it takes while
    it is made; and *figures* of XLA, as far as these were read.
    """

    seen: SeenCompile | None
    text: int
    copy: int
    figures: Mapping[str, float] = MappingProxyType({})


_Found: TypeAlias = "list[tuple[Any, SeenCompile, LoadedProgram]]"
_Maker: TypeAlias = Callable[[_Found, int, str | None], dict[str, Any]]


class LoadedPrograms:
    """The loaded programs; `records` by identity of the executable. Thread-safe."""

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self.records: dict[int, LoadedProgram] = {}

    def note(self, executable: Any, record: LoadedProgram) -> None:
        """Keep the *record* of *executable* while that is loaded."""
        if len(self.records) >= _MOST_KNOWN:
            alive = set(map(id, executables.loaded(self._jax)))
            known_alive = self.records.copy().items()
            self.records = {k: record for k, record in known_alive if k in alive}
        if len(self.records) < _MOST_KNOWN:
            self.records[id(executable)] = record

    def now(self) -> list[tuple[Any, LoadedProgram | None]]:
        """Return those loaded now, which must not be kept."""
        return [
            (executable, self.records.get(id(executable)))
            for executable in executables.loaded(self._jax)
        ]

    def copy_bytes(self) -> int | None:
        """
        Return the memory that copying them all takes; `None` if that is not known.
        Takes milliseconds; half a second if many are unknown, which are known then.
        """
        total, until = 0, monotonic() + _SECONDS
        options = executables.printing(self._jax)
        for executable, record in self.now():
            if record is not None:
                total += record.copy
                continue
            if monotonic() > until:
                return None
            found = _read(executable, options)
            self.note(executable, found)
            total += found.copy
        return total


def _read(executable: Any, options: Any) -> LoadedProgram:
    try:
        texts = list(executables.texts(executable, options))
    except RuntimeError:  # deleted since, or its backend shows no HLO
        texts = []
    return LoadedProgram(None, sum(map(len, texts)), copy_bytes(texts))


def copy_bytes(texts: Iterable[str]) -> int:
    """Return the memory that copying a program with these HLO *texts* takes."""
    found = 0
    for text in texts:
        found += _PER_TEXT * len(text)
        at = text.find(_OMITTED)
        while at >= 0:
            _, _, kind = text[text.rfind("\n", 0, at) + 1 : at].partition(" = ")
            found += _PER_CONSTANT * executables.sizes_of(kind)[1]
            at = text.find(_OMITTED, at + 1)
    return found


DEFAULT_NEWEST, MOST_NEWEST = 5, 50
# Characters in all: XLA prints 100 kB in one to ten milliseconds, with the GIL held.
_MOST_TEXT = 4 << 20
# When asked for a function: 40,000 operations, which hold the GIL for half a second.
_MOST_OF_FUNCTION = 12 << 20
# For reading the equations of all programs.
_EQUATION_SECONDS = 2.0


class LoadedPages(NamedTuple):
    """Responds with the newest programs of the user's; *read* reads unread ones."""

    jax: Any
    guard: Guard
    worker: Worker
    loaded: LoadedPrograms
    read: Callable[[], None]

    def hlo(self, request: Request) -> Response | Future[Response]:
        """
        Handle ``/debug/hlo?newest=5``: return the programs compiled last, first one of
        each function, then their older ones; only those of ``&function=``, if given.
        """
        return self._respond(request, self._printed)

    def programs(self, request: Request) -> Response | Future[Response]:
        """Handle ``/debug/programs?newest=50``: return what is known of the same."""
        return self._respond(request, self._described, MOST_NEWEST)

    def jaxpr(self, request: Request) -> Response | Future[Response]:
        """Handle ``/debug/jaxpr?newest=1``: return the jaxprs of the same, in text."""
        return self._respond(request, self._traced, 1)

    def _respond(
        self, request: Request, make: _Maker, newest: int = DEFAULT_NEWEST
    ) -> Response | Future[Response]:
        from concurrent.futures import Future  # noqa: PLC0415 - on request

        text = request.query.get("newest", str(newest))
        if not (text.isdecimal() and 1 <= int(text[:9]) <= MOST_NEWEST):
            allowed = f"a number from 1 to {MOST_NEWEST}"
            message = f"newest={text} is invalid; give {allowed}"
            return error_response(HTTPStatus.BAD_REQUEST, message)
        if not backends.initialised(self.jax):
            message = "JAX has not initialised its devices yet"
            return error_response(HTTPStatus.CONFLICT, message)
        answer: Future[Response] = Future()
        function = request.query.get("function")
        job = functools.partial(self._answer, make, int(text), function, answer)
        if not self.worker.submit(job):
            message = "too many programs are being compiled; try again later"
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, message)
        self.worker.end_gathering()
        return answer

    def _answer(
        self, make: _Maker, newest: int, name: str | None, answer: Future[Response]
    ) -> None:
        try:
            self.read()
            found = _newest(self.loaded)
            if name is not None:
                found = [item for item in found if item[1].function.name == name]
            document = make(found, newest, name)
            response = Response(json.dumps(document).encode(), "application/json")
        except Exception:  # noqa: BLE001 - our own thread; the answer says it
            self.guard.failed("hlo", stays_on=True)
            message = "the programs could not be printed"
            response = error_response(HTTPStatus.INTERNAL_SERVER_ERROR, message)
        # The server may have stopped, or the client gone.
        if answer.set_running_or_notify_cancel():
            answer.set_result(response)

    def _printed(self, found: _Found, newest: int, name: str | None) -> dict[str, Any]:
        options = executables.printing(self.jax, origins=True)
        room, programs = _MOST_TEXT if name is None else _MOST_OF_FUNCTION, []
        for executable, seen, record in found[:newest]:
            about = {"function": seen.function.name, "finished": seen.finished}
            programs.append(about)
            if record.text > room:
                about["omitted"] = f"it has {record.text:,} characters"
                continue
            room -= record.text
            try:
                about["hlo"] = "\n".join(executables.texts(executable, options))
            except RuntimeError as error:  # deleted since
                about["omitted"] = str(error).partition("\n")[0][:200]
        return {"programs": programs}

    def _reader(self) -> EquationReader:
        from jaxmon.agent.jaxlink.equations import EquationReader  # noqa: PLC0415

        until = monotonic() + _EQUATION_SECONDS
        return EquationReader(SourceLineFinder(self.jax), until)

    def _traced(self, found: _Found, newest: int, _: str | None) -> dict[str, Any]:
        reader, programs = self._reader(), list[dict[str, Any]]()
        for _executable, seen, _record in found[:newest]:
            jaxpr = seen.jaxpr()
            rows = {} if jaxpr is None else reader.listing(jaxpr, seen.function.place)
            programs.append({"finished": seen.finished, **rows})
        return {"programs": programs}

    def _described(self, found: _Found, newest: int, _: str | None) -> dict[str, Any]:
        from jaxmon.facts.functions import Program  # noqa: PLC0415
        from jaxmon.facts.programs import CompiledPrograms  # noqa: PLC0415
        from jaxmon.facts.reader import from_json  # noqa: PLC0415
        from jaxmon.facts.record import encoded  # noqa: PLC0415 - all on request

        reader, programs = self._reader(), []
        for _, seen, record in found[:newest]:
            function = seen.function
            read = reader.read(seen.jaxpr(), function.place)
            programs.append(
                read.replace(
                    function=function.name,
                    place=function.place,
                    finished=seen.finished,
                    analysis=from_json(Program, record.figures),
                    **seen.phases._asdict(),
                )
            )
        document = CompiledPrograms(SCHEMA, tuple(programs), len(found[newest:]))
        return dict(encoded(document))


def _newest(loaded: LoadedPrograms) -> _Found:
    """Return the user's newest programs, one by function, then older; keep none."""
    found = [
        (executable, record.seen, record)
        for executable, record in loaded.now()
        if record is not None and record.seen is not None
        if not record.seen.function.internal
    ]
    found.sort(key=lambda item: -item[1].finished)
    ages: list[int] = []
    seen = defaultdict[str, int](int)
    for _, compiled, _ in found:
        ages.append(seen[compiled.function.name])
        seen[compiled.function.name] += 1
    order = sorted(range(len(found)), key=ages.__getitem__)
    return [found[at] for at in order]
