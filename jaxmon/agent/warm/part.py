"""
What warm starts need of a process: its signatures, whether it is ready, and what it
compiles afterwards.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import pairwise
from math import inf
from types import FrameType
from typing import TYPE_CHECKING, Any

from jaxmon import catalog
from jaxmon.agent.context import Built, Context, Observers, Options
from jaxmon.agent.functions import Function, by_function
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink.arguments import JitCall, Shapes
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.jit import forget_fast_path
from jaxmon.agent.part import Explanation, Part
from jaxmon.clocks import wall_time
from jaxmon.errors import CompiledAfterReady
from jaxmon.exposition.families import Family, Tally, gauge, series
from jaxmon.facts.events import LateCompiles, ReadyProcess, WarmedFunction
from jaxmon.host.http.messages import Request, Response, error_response
from jaxmon.host.http.server import Handler
from jaxmon.host.sources import display_path
from jaxmon.indicators import work
from jaxmon.indicators.endings import now
from jaxmon.threads import RLock, get_ident


if TYPE_CHECKING:
    from jaxmon.agent.warm.recorder import SignatureRecorder
    from jaxmon.facts.events import Signatures
    from jaxmon.facts.signatures import RecordedSignature
    from jaxmon.indicators.requests import OpenRequest


# Programs of all functions whose sampled calls are counted.
_MOST_SHAPES = 10_000
# As many leaves as samples are distinguished by.
_LEAVES = 256


_QUIET_SECONDS = 300.0
# A storm of compiles is not to fill the log; the metric counts all of them.
_MOST_LOGGED = 100
_HELP = "warm it up before, or pad its arguments to sizes that are warm"


_SHOWN = 50


@dataclass(slots=True, eq=False)
class _Program:
    """What a warm-up made: *seen* if its executable is, *used* since."""

    name: str
    key: int
    signature: RecordedSignature | None
    seconds: float
    seen: bool = False
    used: bool = False
    text: str = ""


class WarmedPrograms:
    """
    The programs of warm-ups, and which of them were used since. Thread-safe.

    Which program a cached call runs is decided in C++. After JAX was made to forget
    that, the next call of each program is looked up in Python, where its executable is
    seen. So the first use is noticed, however rare, and later calls cost what they did.
    """

    def __init__(
        self, observers: Observers, calls: Callable[[str], int | None], place: str
    ) -> None:
        self._observers, self._calls, self.place = observers, calls, place
        self._programs: dict[str, list[_Program]] = {}
        # By the id of an executable, which dies with the weak reference to it.
        self._made: dict[int, tuple[weakref.ref[Any], list[_Program]]] = {}
        self._making: dict[int, _Program] = {}
        self._jitted: weakref.WeakSet[Any] = weakref.WeakSet()
        self._before: dict[str, int | None] = {}

    def watch(self, several: Iterable[Any]) -> None:
        """Notice uses of programs of these jitted objects, JAX's own."""
        for jitted in several:
            forget_fast_path(jitted)
            self._jitted.add(jitted)
            if self._served not in self._observers.served:
                self._observers.served.append(self._served)

    def begin(self, name: str, signature: RecordedSignature) -> None:
        """Record that this thread makes a program of the function *name* next."""
        self._making[get_ident()] = _Program(name, _key(signature), signature, -now())

    def end(self, *, failed: bool) -> None:
        """Record that this thread has made it, or *failed* to."""
        made = self._making.pop(get_ident())
        made.seconds += now()
        if not failed:
            self._programs.setdefault(made.name, []).append(made)

    def start(self) -> None:
        """Count uses from now on: the process is warm."""
        from jaxmon.facts.signatures import texts as signature_texts  # noqa: PLC0415

        for jitted in list(self._jitted):
            forget_fast_path(jitted)
        for name, several in self._programs.copy().items():
            self._before[name] = self._calls(name)
            new = [(made, made.signature) for made in several if made.signature]
            described = signature_texts([signature for _, signature in new])
            for (made, _), text in zip(new, described, strict=True):
                made.text, made.signature = text, None
            for made in several.copy():
                made.used = False

    def _served(self, function: Function, executable: Any) -> None:
        making = self._making.get(get_ident())
        if executable is None:
            return
        key = id(executable)
        if making is None:
            for made in self._made.get(key, (None, ()))[1]:
                made.used = True
        elif making.name == function.name:
            making.seen = True
            dead = weakref.ref(executable, lambda _: self._made.pop(key, None))
            self._made.setdefault(key, (dead, []))[1].append(making)

    def _calls_since(self, name: str) -> int | None:
        before, calls = self._before.get(name), self._calls(name)
        return None if before is None or calls is None else calls - before

    def _is_used(self, made: _Program) -> bool | None:
        """Return whether *made* was used since, `None` if that is not known."""
        idle = self._calls_since(made.name) == 0
        return False if idle else made.used if made.seen else None

    def explain(self) -> tuple[WarmedFunction, ...]:
        """Return what was made of each function, and what of it was never used."""
        found = []
        for name, several in self._programs.copy().items():
            used = {made: self._is_used(made) for made in several.copy()}
            idle = [made for made, state in used.items() if state is False]
            found.append(
                WarmedFunction(
                    name=name,
                    signatures=len(used),
                    calls=self._calls_since(name),
                    used=sum(state is True for state in used.values()),
                    unused=len(idle),
                    unused_signatures=tuple(made.text for made in idle[:_SHOWN]),
                    seconds=sum((made.seconds for made in idle), 0.0),
                )
            )
        return tuple(found)

    def used(self, name: str, signature: RecordedSignature) -> bool | None:
        """Return whether *signature* of a function was used, `None` if unknown."""
        for made in self._programs.get(name, []).copy():
            if made.key == _key(signature):
                return self._is_used(made)
        return None


def _key(signature: RecordedSignature) -> int:
    return hash(json.dumps([signature.args, dict(signature.kwargs)], sort_keys=True))


class WarmStarts(Part):
    """
    Records signatures, and responds whether the process is ready. Thread-safe.

    A process is ready once it says so, with `jaxmon.ready`. If it was only warmed up,
    with `jaxmon.warmup`, it is ready once its probe or a request has come after that.
    """

    name = "signatures"

    def __init__(self, context: Context) -> None:
        self._context, self._table = context, context.table
        self._observers, settings = context.observers, context.settings
        self._mode, self._awaited = settings.after_ready, settings.expect_warmup
        self._lock = RLock()
        self._running = self._done = self._total = 0
        # On the performance counter, and when that was on the wall clock.
        self._warmed: float | None = None
        self._since: float | None = None
        self._date = 0.0
        self._announced, self._quiet = False, 0.0
        self._late: dict[Function, LateCompiles] = {}
        self._logged = 0
        self._programs: WarmedPrograms | None = None
        self._results = {result: Tally() for result in catalog.WARMUP_RESULTS}
        # Two threads may both make one; all use the first.
        self._recorders: list[SignatureRecorder] = []
        self._sampled: dict[tuple[str, str], int] = {}
        if settings.signatures:
            context.observers.call.append(self._on_call)
            context.observers.executed.append(self._executed)

    @property
    def recorder(self) -> SignatureRecorder:
        """Records signatures; loaded at the first compile."""
        if not self._recorders:
            from jaxmon.agent.warm.recorder import SignatureRecorder  # noqa: PLC0415

            self._recorders.append(SignatureRecorder(self._context))
            calls = self._context.observers.call
            calls[:] = [
                self._recorders[0].on_call if see == self._on_call else see
                for see in calls
            ]
        return self._recorders[0]

    def _on_call(
        self, function: Function, jitted: Jitted, call: JitCall, options: Options
    ) -> Callable[[float], None] | None:
        try:
            return self.recorder.on_call(function, jitted, call, options)
        except Exception:  # noqa: BLE001 - contained: the program compiles on
            self._context.guard.failed(self.name, stays_on=True)
            return None

    @property
    def reason(self) -> str | None:
        """Why the process is not ready; `None` if it is."""
        with self._lock:
            if self._running:
                return f"warming up: {self._done} of {self._total} signatures"
            return "the warm-up has not begun" if self._awaited else None

    def begin(
        self, total: int, caller: FrameType, watched: Iterable[Any]
    ) -> WarmedPrograms:
        """Record where a warm-up begins, of *total* signatures, with jits *watched*."""
        with self._lock:
            self._running += 1
            self._total += total
            self._observers.stage = "warming"
        place = f"{display_path(caller.f_code.co_filename)}:{caller.f_lineno}"
        programs = self._programs or WarmedPrograms(
            self._observers, self._exact_calls, place
        )
        self._programs = programs
        programs.watch(watched)
        return programs

    def advance(self, *, failed: bool) -> None:
        """Record that a signature was tried."""
        self._results["failed" if failed else "warmed"].add()
        with self._lock:
            self._done += 1
        if self._programs is not None:
            self._programs.end(failed=failed)

    def end(self) -> None:
        """Record that a warm-up has ended, however it did."""
        with self._lock:
            self._running -= 1
            self._awaited = False
            self._warmed = now()
            self._warm()

    def announce(self, processes: Callable[[], int]) -> None:
        """
        Record that the program says that it is ready; it may do so repeatedly. To know
        the *processes* of the job initializes JAX.
        """
        alone = self._mode != "fail" or processes() == 1
        with self._lock:
            self._awaited = False
            if not alone:
                self._mode = "warn"
                log.warning(
                    'after_ready="fail" only warns: the other processes of this job '
                    "would wait for one that raises"
                )
            if not self._announced:
                self._announced = True
                self._begins()
                self._warm()

    def _warm(self) -> None:
        if not self._running:
            self._observers.stage = "warm"
            if self._programs is not None:
                self._programs.start()
        if self.compiled not in self._observers.built:
            self._observers.built.append(self.compiled)
        if self._mode == "fail" and self.refusal not in self._observers.refusing:
            self._observers.refusing.append(self.refusal)

    def _begins(self) -> None:
        self._since, self._date = now(), wall_time()

    def _is_late(self, began: float, requests: list[OpenRequest]) -> bool:
        """Return whether a call that *began* then did after the process was ready."""
        warmed = self._warmed
        if self._running:
            return False
        if warmed is not None and self._since is None:
            started = max((request.started for request in requests), default=-inf)
            if started >= warmed:
                self._since, self._date = warmed, wall_time() - (now() - warmed)
        return self._since is not None and began >= self._since

    def refusal(
        self, function: Function, began: float, differences: str
    ) -> Callable[..., Any] | None:
        """
        Return what to call in place of the compiler of *function*, `None` if it may
        compile. Its call *began* then; *differences* are from what it is compiled for,
        empty if it never was.
        """
        refuses = self._mode == "fail" and self._announced and function.is_users
        if not refuses or not self._is_late(began, []):
            return None
        what = differences or "it had not been compiled before"
        msg = f"{function.name} compiles after jaxmon.ready(): {what}; {_HELP}"

        def refuse(*_: object, **__: object) -> None:
            raise CompiledAfterReady(msg)

        return refuse

    def compiled(self, built: Built, differences: str) -> None:
        """Count what was *built*, if its call is late."""
        requests = work.payers()
        if not self._is_late(built.began, requests):
            return
        function, ended = built.function, built.ended
        seconds = ended - built.began
        with self._lock:
            late = self._late.get(function, LateCompiles())
            waited = sum(request.started < ended for request in requests)
            self._late[function] = LateCompiles(
                name=function.name,
                internal=function.internal,
                count=late.count + 1,
                loaded=late.loaded + built.loaded,
                seconds=late.seconds + seconds,
                requests=late.requests + waited,
                latest=wall_time(),
            )
            self._logged += 1
            logs = self._mode != "count" and self._logged <= _MOST_LOGGED
        if logs:
            what = f": {differences}" if differences else ""
            log.warning(
                *("%s compiled for %.3g s after the process was ready%s",),
                *(function.name, seconds, what),
            )

    def _exact_calls(self, name: str) -> int | None:
        function = self._table.named(name)
        # Others of its objects may not count.
        exact = function.counted and not function.other_missed.value
        return function.calls_and_hits()[0] if exact else None

    def collect(self) -> list[Family]:
        """Return whether the process is ready, its warm-ups, and compiles since."""
        metric = catalog.WARMUP_SIGNATURES
        with self._lock:
            late = [(function, late.count) for function, late in self._late.items()]
        results = self._results.items()
        return [
            gauge(catalog.READY, int(self.reason is None)),
            Family(metric, [(series(metric, name), n.value) for name, n in results]),
            by_function(catalog.COMPILES_AFTER_READY, late),
        ]

    def explain(self) -> Explanation:
        """Return how many signatures there are, those warmed up, and late compiles."""
        return Explanation({"signatures": self._explain, "ready": self._explain_ready})

    def _explain_ready(self) -> ReadyProcess:
        programs, times = self._programs, [at for at, _ in self._table.compiled.copy()]
        for at, after in pairwise([*times, wall_time()]):
            if not self._quiet and after - at >= _QUIET_SECONDS:
                self._quiet = at
        with self._lock:
            return ReadyProcess(
                since=self._date,
                announced=self._announced,
                quiet=self._quiet,
                compiled=sum(at > self._quiet > 0 for at in times),
                warmed=() if programs is None else programs.explain(),
                where="" if programs is None else programs.place,
                compiles=tuple(self._late.values()),
            )

    def _explain(self) -> Signatures:
        # Without a compile nothing is loaded that would record one.
        counts = self.recorder.explain() if self._recorders else {}
        from jaxmon.facts.events import Signatures  # noqa: PLC0415 - on request

        return Signatures(
            **counts, **{name: n.value for name, n in self._results.items()}
        )

    def pages(self) -> Mapping[str, Handler]:
        """Return the signatures, for `jaxmon signatures export`."""
        return {"/debug/signatures": self._page}

    def public_pages(self) -> Mapping[str, Handler]:
        """Return the readiness probe."""
        return {"/-/ready": self._ready}

    def _ready(self, _: Request) -> Response:
        reason = self.reason
        if reason is None:
            if self._warmed is not None and self._since is None:
                self._begins()  # whoever sends requests knows now
            return Response(b"ok\n")
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, reason)

    def _page(self, _: Request) -> Response:
        if not self._context.settings.signatures:
            message = "signatures are not recorded: JAXMON_SIGNATURES is false"
            return error_response(HTTPStatus.NOT_FOUND, message)
        built = {of.name: of.built for of in self._table if of.is_users and of.built}
        found = self.recorder.document(self._seen, built).as_json()
        # As long as the tree is ours, it has no cycles to look for.
        text = json.dumps(found, check_circular=False)
        return Response(text.encode(), "application/json")

    def _executed(self, function: Function, shapes: Shapes, _: float) -> None:
        """Count a sampled call; on a thread of ours."""
        arrays = [shape for shape in shapes if isinstance(shape, tuple)]
        words = [f"{dtype}{list(sizes)}" for dtype, sizes, *_ in arrays]
        key = function.name, " ".join(words)
        if key in self._sampled or len(self._sampled) < _MOST_SHAPES:
            self._sampled[key] = self._sampled.get(key, 0) + 1

    def _seen(self, name: str, of: RecordedSignature) -> RecordedSignature:
        """Return a signature with its use, and its part of the sampled calls."""
        from jaxmon.facts.signatures import ARRAYS, parts  # noqa: PLC0415 - on request

        programs, function = self._programs, self._table.named(name)
        used = None if programs is None else programs.used(name, of)
        counts = {
            arrays: count
            for (called, arrays), count in self._sampled.copy().items()
            if called == name
        }
        nodes = [node for _, node in parts(of) if node and node.get("kind") in ARRAYS]
        words = [f"{node['dtype']}{node['shape']}" for node in nodes[-_LEAVES:]]
        total, number = sum(counts.values()), counts.get(" ".join(words), 0)
        calls = round(function.calls_and_hits()[0] * number / (total or 1), 1)
        return of._replace(calls=calls if total else None, used=used)
