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
from typing import TYPE_CHECKING

from jaxmon.agent.context import Context
from jaxmon.agent.devices.part import hardware
from jaxmon.agent.functions import Function
from jaxmon.agent.goodput.store import attempt_of, job_of
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.backends import cluster
from jaxmon.agent.part import Part
from jaxmon.clocks import monotonic
from jaxmon.facts import SCHEMA
from jaxmon.facts.functions import Program
from jaxmon.facts.rank import Rank, RankLoop, RunningCompiles, SharedFunction
from jaxmon.facts.record import Fact, dumps, encoded
from jaxmon.host.http.messages import Request, Response
from jaxmon.host.http.server import Handler
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

    *doing* returns what the program is doing, and its pace, *run* the record of its run
    if this process keeps it, *spanning* the functions that run on devices of other
    processes, too, *compiling* the compiles in progress, with age and function of the
    oldest.
    """

    name = "rank"

    def __init__(  # noqa: PLR0913 - what a rank is known by comes from many parts
        self,
        context: Context,
        *,
        doing: Callable[[], Rank],
        run: Callable[[], Fact],
        loops: Loops,
        programs: Callable[[], Mapping[str, Program]],
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
        self._began = context.began
        self._uuids: list[str] | None = None

    @functools.cached_property
    def _setup(self) -> Setup:
        from jaxmon.agent.reports.setup import Setup  # noqa: PLC0415 - few have peers

        return Setup(self._context.jax)

    def pages(self) -> dict[str, Handler]:
        """Return the endpoint."""
        return {"/debug/rank": self._page}

    def describe(self) -> Rank:
        """Return the record. Takes some 100 µs, a millisecond in a hang."""
        place, attempt, doing = cluster(self._context.jax), attempt_of(), self._doing()
        stack, others = doing.now.stack[:_MOST_LINES], doing.now.others[:_MOST_LINES]
        rank = Rank(
            schema=SCHEMA,
            index=None if place is None else place.rank,
            count=None if place is None else place.size,
            coordinator="" if place is None else place.coordinator[:_LONGEST],
            job=job_of(),
            attempt="" if attempt is None else str(attempt),
            run=self._run(),
            host=os.uname().nodename[:_LONGEST],
            pid=os.getpid(),
            observed_seconds=max(monotonic() - self._began, 0.0),
            loops=tuple(
                [
                    RankLoop(loop.name, loop.steps, loop.age)
                    for loop in list(self._loops)[:_MOST_LOOPS]
                    if loop.running
                ]
            ),
            functions=self._functions(),
            pace=doing.pace,
            now=doing.now.replace(stack=stack, others=others),
            compiling=RunningCompiles(*self._compiling()),
            starved_ratio=doing.starved_ratio,
            course=doing.course,
            alone=doing.alone[:_LONGEST],
            places=doing.places,
            gpus=tuple(self._gpus()),
        )
        # A hang is judged without what it has in common with others.
        with self._context.guard.contained("setup", stays_on=True):
            setup = self._setup
            return rank.replace(setup=setup.read(), key_part=setup.key_part())
        return rank

    def _gpus(self) -> list[str]:
        jax = self._context.jax
        if self._uuids is None and backends.client(jax) is not None:
            uuids = [hardware(device)[0] for device in jax.local_devices()]
            self._uuids = [uuid for uuid in uuids[:_MOST_GPUS] if uuid]
        return self._uuids or []

    def _page(self, _: Request) -> Response:
        return Response(dumps(encoded(self.describe())).encode(), "application/json")

    def _functions(self) -> tuple[SharedFunction, ...]:
        """Return those called most of the functions that several processes run."""
        programs, nothing = self._programs(), Program()
        by_calls = [(f, f.calls_and_hits()[0]) for f in self._spanning()]
        by_calls.sort(key=lambda item: -item[1])
        return tuple(
            [
                _shared(function, calls, programs.get(function.name, nothing))
                for function, calls in by_calls[:_MOST_FUNCTIONS]
            ]
        )


def _shared(function: Function, calls: int, program: Program) -> SharedFunction:
    phase = function.phases.get("backend_compile")
    return SharedFunction(
        function.name,
        # Without the call layer, or if jitted before the agent started.
        calls if function.counted else None,
        program.fingerprint or "",
        program.devices or 0,
        program.programs,
        function.compiles["compiled"].value,
        function.compiles["cache_hit"].value,
        0.0 if phase is None else phase.sum,
    )
