"""Whether a process is ready, and what it compiles afterwards."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from jaxmon import catalog
from jaxmon.agent.functions import Function, by_function
from jaxmon.agent.guard import log
from jaxmon.clocks import wall_time
from jaxmon.errors import CompiledAfterReady
from jaxmon.exposition.families import Family
from jaxmon.facts.events import LateCompiles, ReadyProcess
from jaxmon.indicators import work
from jaxmon.indicators.endings import now
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.agent.context import Built, Observers
    from jaxmon.agent.warm.uses import WarmedPrograms
    from jaxmon.indicators.requests import OpenRequest


# A storm of compiles is not to fill the log; the metric counts all of them.
_MOST_LOGGED = 100
_HELP = "warm it up before, or pad its arguments to sizes that are warm"


class Readiness:
    """
    Whether a process is ready for requests, and its compiles since. Thread-safe.

    A process is ready once it says so, with `jaxmon.ready`. If it was only warmed up,
    with `jaxmon.warmup`, it is ready once its probe or a request has come after that.

    Args:
        observers: where compiles find this, once they are to be counted.
        expected: whether a warm-up is announced.
        mode: ``count``, ``warn`` or ``fail``, as the setting ``after_ready``.
    """

    def __init__(
        self, observers: Observers, *, expected: bool, mode: str = "count"
    ) -> None:
        self._observers = observers
        self._mode = mode
        self._lock = RLock()
        self._awaited = expected
        self._running = self._done = self._total = 0
        # On the performance counter, and when that was on the wall clock.
        self._warmed: float | None = None
        self._since: float | None = None
        self._date = 0.0
        self._announced = False
        self._late: dict[Function, LateCompiles] = {}
        self._logged = 0
        self.programs: WarmedPrograms | None = None

    @property
    def reason(self) -> str | None:
        """Why the process is not ready; `None` if it is."""
        with self._lock:
            if self._running:
                return f"warming up: {self._done} of {self._total} signatures"
            return "the warm-up has not begun" if self._awaited else None

    def begin(self, signatures: int) -> None:
        """Record that a warm-up of so many *signatures* begins."""
        with self._lock:
            self._running += 1
            self._total += signatures
            self._observers.stage = "warming"

    def advance(self) -> None:
        """Record that one signature was tried."""
        with self._lock:
            self._done += 1

    def end(self) -> None:
        """Record that a warm-up has ended, however it did."""
        with self._lock:
            self._running -= 1
            self._awaited = False
            self._warmed = now()
            self._warm()

    def announce(self, processes: Callable[[], int]) -> None:
        """
        Record that the program says that it is ready; it may do so repeatedly.

        Args:
            processes: returns how many the job has, which initializes JAX.
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
            if self.programs is not None:
                self.programs.start()
        if self.compiled not in self._observers.built:
            self._observers.built.append(self.compiled)
        if self._mode == "fail" and self.refusal not in self._observers.refusing:
            self._observers.refusing.append(self.refusal)

    def probed(self) -> None:
        """Record that whoever sends requests has learned that it is ready."""
        if self._warmed is not None and self._since is None:
            self._begins()

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
        Return what to call in place of the compiler, `None` if it may compile.

        Args:
            function: what is about to be compiled.
            began: when its call did.
            differences: from what the function is compiled for; empty if it never was.
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

    def collect(self) -> Family:
        """Return how often each function was compiled after the process was ready."""
        with self._lock:
            counts = [(function, late.count) for function, late in self._late.items()]
        return by_function(catalog.COMPILES_AFTER_READY, counts)

    def explain(self) -> ReadyProcess:
        """Return since when the process is ready, and what it compiled since."""
        with self._lock:
            return ReadyProcess(
                since=self._date,
                announced=self._announced,
                warmed=() if self.programs is None else self.programs.explain(),
                where="" if self.programs is None else self.programs.place,
                compiles=tuple(self._late.values()),
            )
