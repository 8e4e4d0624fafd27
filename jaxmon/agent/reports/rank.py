"""
What others need to know of this process to judge the job that it is a rank of.

``/debug/rank``, on the Unix socket only: its place in the cluster, how often it has
called what the ranks call together, and what it is doing. Of limited size, whatever the
program does. Evaluated by `jaxmon.job`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from jaxmon.agent.context import Context
from jaxmon.agent.devices.part import hardware
from jaxmon.agent.functions import Function
from jaxmon.agent.goodput.identity import attempt_of, job_of
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.backends import cluster
from jaxmon.agent.part import Part
from jaxmon.clocks import monotonic
from jaxmon.facts.record import dumps, encoded
from jaxmon.http.messages import Request, Response
from jaxmon.http.server import Handler
from jaxmon.indicators.loops import Loops


if TYPE_CHECKING:
    from jaxmon.agent.reports.setup import Setup


_MOST_FUNCTIONS = 64
_MOST_LOOPS = 8
_MOST_LINES = 20
_MOST_GPUS = 64
_LONGEST = 256


class RankPart(Part):
    """
    Describes this process to those who compare it with the other ranks.

    Args:
        context: shared state of the agent.
        doing: returns what the program is doing, and its pace.
        run: returns the record of its run, if this process keeps it.
        loops: the loops that it marks.
        programs: returns the latest program of each function.
        spanning: returns the functions that run on devices of other processes, too.
        compiling: returns how many compiles are in progress, and age and function of
            the oldest.
    """

    name = "rank"

    def __init__(  # noqa: PLR0913 - what a rank is known by comes from many parts
        self,
        context: Context,
        *,
        doing: Callable[[], Mapping[str, Any]],
        run: Callable[[], Mapping[str, Any]],
        loops: Loops,
        programs: Callable[[], Mapping[str, Any]],
        spanning: Callable[[], Collection[Function]],
        compiling: Callable[[], tuple[int, float, str]],
    ) -> None:
        self._context = context
        self._doing = doing
        self._run = run
        self._loops = loops
        self._programs = programs
        self._spanning = spanning
        self._compiling = compiling
        self._began = monotonic()
        self._uuids: list[str] | None = None

    @functools.cached_property
    def _setup(self) -> Setup:
        from jaxmon.agent.reports.setup import Setup  # noqa: PLC0415 - few have peers

        return Setup(self._context.jax)

    def pages(self) -> dict[str, Handler]:
        """Return the endpoint."""
        return {"/debug/rank": self._page}

    def describe(self) -> dict[str, Any]:
        """Return the document. Takes some 100 µs, a millisecond in a hang."""
        from jaxmon.facts.rank import SCHEMA  # noqa: PLC0415 - few have peers

        found, doing = cluster(self._context.jax), self._doing()
        attempt = attempt_of()
        compiles, seconds, function = self._compiling()
        now = dict(doing.get("now", {}))
        for key in ("stack", "others"):
            now[key] = list(now.get(key, ()))[:_MOST_LINES]
        return {
            "schema": SCHEMA,
            "index": None if found is None else found.rank,
            "count": None if found is None else found.size,
            "coordinator": "" if found is None else found.coordinator[:_LONGEST],
            "job": job_of(),
            "attempt": "" if attempt is None else str(attempt),
            "run": self._run(),
            "host": os.uname().nodename[:_LONGEST],
            "pid": os.getpid(),
            "observed_seconds": max(monotonic() - self._began, 0.0),
            "loops": {
                one.name: {"steps": one.steps, "age_seconds": one.age}
                for one in list(self._loops)[:_MOST_LOOPS]
                if one.running
            },
            "functions": self._functions(),
            "pace": doing.get("pace", {}),
            "now": now,
            "compiling": {"count": compiles, "seconds": seconds, "function": function},
            "starved_ratio": doing.get("starved_ratio"),
            "course": doing.get("course", []),
            "alone": doing.get("alone", "")[:_LONGEST],
            "places": doing.get("places", []),
            "gpus": self._gpus(),
            **self._set_up(),
        }

    def _gpus(self) -> list[str]:
        """Return the UUIDs of its GPUs, once they are known."""
        jax = self._context.jax
        if self._uuids is None and backends.client(jax) is not None:
            known = [hardware(one)[0] for one in jax.local_devices()]
            self._uuids = [one for one in known[:_MOST_GPUS] if one]
        return self._uuids or []

    def _set_up(self) -> dict[str, Any]:
        """Return what it has in common with others; nothing if that fails."""
        try:
            setup = self._setup
            return {"setup": setup.read(), "key_part": setup.key_part()}
        except Exception:  # noqa: BLE001 - a hang is judged without it
            self._context.guard.failed("setup", stays_on=True)
            return {}

    def _page(self, _: Request) -> Response:
        return Response(dumps(encoded(self.describe())).encode(), "application/json")

    def _functions(self) -> dict[str, Any]:
        """Return those called most of the functions that several processes run."""
        programs = self._programs()
        known = [(one, one.calls_and_hits()[0]) for one in self._spanning()]
        known.sort(key=lambda item: -item[1])
        found = {}
        for function, calls in known[:_MOST_FUNCTIONS]:
            program = programs.get(function.name, {})
            found[function.name] = {
                # Without the call layer, or if jitted before the agent started.
                "calls": calls if function.counted else None,
                "fingerprint": program.get("fingerprint"),
                "devices": program.get("devices"),
                "programs": program.get("programs"),
                **_compiles(function),
            }
        return found


def _compiles(function: Function) -> dict[str, Any]:
    """Return how often *function* was compiled and loaded, and how long that took."""
    phase = function.phases.get("backend_compile")
    return {
        "compiled": function.compiles["compiled"].value,
        "loaded": function.compiles["cache_hit"].value,
        "compile_seconds": 0.0 if phase is None else phase.sum,
    }
