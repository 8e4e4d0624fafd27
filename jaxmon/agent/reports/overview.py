"""
The facts of this process, from all parts: as records, and as the debug overview.

Read by the debug endpoints, `jaxmon explain` and the exit report. They contain what
labels must not: source lines, argument names, the command line.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function, is_active
from jaxmon.agent.jaxlink.backends import cluster
from jaxmon.agent.jaxlink.configuration import debugging
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.part import Part
from jaxmon.agent.reports.setup import environment
from jaxmon.clocks import monotonic, wall_time
from jaxmon.facts import SCHEMA
from jaxmon.facts import functions as facts
from jaxmon.facts.functions import Counted, Phase
from jaxmon.facts.process import Exports, JobRank, Process, Snapshot, read
from jaxmon.facts.record import NOTHING, encoded
from jaxmon.host import disclosure
from jaxmon.limits import Limits
from jaxmon.version import version


_MOST_FUNCTIONS = 500

_OF_MEMORY = ("memory", "allocations", "transfers")
_NOT_OF_PARTS = frozenset(
    (
        *("schema", "process", "functions", "functions_left_out", "exports", "hooks"),
        *("internal_errors", "problems"),
        *("events", "recompiles", "implausible", "limits"),
    )
)
# What parts observe, and of functions, with what is known without them.
_SECTIONS = [name for name in Snapshot.fields if name not in _NOT_OF_PARTS]
_UNOBSERVED: Mapping[str, Any] = {
    name: getattr(facts.FunctionFact, name)
    for name in facts.FunctionFact.fields[facts.FunctionFact.fields.index("cache") :]
}
_NOT_COUNTED = Counted(None, None)


class Overview(NamedTuple):
    """
    Combines what an agent's parts observe. Thread-safe; a few milliseconds.

    If a part fails, only its data is missing; the error is listed under ``problems``.
    The agent *started* in Unix and in monotonic time; *exports* returns what did not
    arrive at receivers of OTLP; *url* is that of the metrics.
    """

    context: Context
    parts: Iterable[Part]
    hooks: Hooks
    started: tuple[float, float]
    exports: Callable[[], Exports]
    url: str | None

    def snapshot(self) -> Snapshot:
        """Return all but events; `None` for a record whose part fails; see `read`."""
        problems: dict[str, str] = {}
        functions = self._functions(problems)
        return functions.replace(
            schema=SCHEMA,
            process=self._process(),
            **self._sections(_SECTIONS, problems),
            exports=self.exports(),
            hooks=self.hooks.active(),
            internal_errors=self.context.guard.failures(),
            problems=problems,
        )

    def judged_by(self, limits: Limits) -> Snapshot:
        """Return all of it with the events, as others read it, to be judged."""
        happened = [event._asdict() for event in self.context.events.since()]
        return read(self.snapshot(), {"events": happened}, limits)

    def whole(self) -> dict[str, Any]:
        """Return the whole document, without events."""
        return dict(encoded(self.snapshot()))

    def functions(self) -> dict[str, Any]:
        """Return the functions by compile time, longest first."""
        problems: dict[str, str] = {}
        return dict(encoded(self._functions(problems).replace(problems=problems)))

    def memory(self) -> dict[str, Any]:
        """Return device memory, the source lines that allocated it, and transfers."""
        problems: dict[str, str] = {}
        sections = self._sections(_OF_MEMORY, problems)
        return dict(encoded(Snapshot(**sections, problems=problems)))

    def environment(self) -> dict[str, Any]:
        """Return interpreter, versions, flags and installed packages."""
        return environment(self.context.jax, self.context.settings.release)

    def _process(self) -> Process:
        jax = self.context.jax
        return Process(
            pid=os.getpid(),
            program=disclosure.own_command()[:500],
            rank=self._rank(),
            started=self.started[0],
            now=wall_time(),
            observed_seconds=monotonic() - self.started[1],
            jaxmon=version(),
            jax=str(getattr(jax, "__version__", "")),
            python=platform.python_version(),
            release=self.context.settings.release,
            url=self.url or "",
            debugging=debugging(jax),
            forked=self.context.forked,
        )

    def _rank(self) -> JobRank:
        with self.context.guard.contained("rank", stays_on=True):
            place = cluster(self.context.jax)
            if place is not None and place.size > 1:
                return JobRank(place.rank, place.size)
        return JobRank()

    def _functions(self, problems: dict[str, str]) -> Snapshot:
        found: dict[str, Mapping[str, Any]] = {}
        for part in self.parts:
            for key, ask in part.explain().functions.items():
                found[key] = self._read(part, ask, problems) or {}
        counted = found.pop("counted", {})
        observed = [
            (key, found.get(key, NOTHING), unobserved)
            for key, unobserved in _UNOBSERVED.items()
        ]
        functions = [f for f in self.context.table if is_active(f)]
        functions.sort(key=_importance)
        return Snapshot(
            functions=tuple(
                _described(
                    function,
                    counted.get(function.name, _NOT_COUNTED),
                    {key: of.get(function.name, no) for key, of, no in observed},
                )
                for function in functions[:_MOST_FUNCTIONS]
            ),
            functions_left_out=max(len(functions) - _MOST_FUNCTIONS, 0),
        )

    def _sections(
        self, wanted: Iterable[str], problems: dict[str, str]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {name: getattr(Snapshot, name) for name in wanted}
        for part in self.parts:
            for name, ask in part.explain().sections.items():
                if name in found:
                    found[name] = self._read(part, ask, problems)
        return found

    def _read(
        self, part: Part, ask: Callable[[], Any], problems: dict[str, str]
    ) -> Any:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - contained and counted
            problems[part.name] = disclosure.error(error)[:200]
            self.context.guard.failed(f"snapshot_{part.name}", stays_on=True)
            return None


def _importance(function: Function) -> tuple[float, int]:
    lost = sum([phase.sum for phase in list(function.phases.values())])
    return -lost, -(function.objects.calls + function.missed)


def _described(
    function: Function, counted: Counted, observed: Mapping[str, Any]
) -> facts.FunctionFact:
    """Return *function*, its calls, and what parts have *observed* of it."""
    return facts.FunctionFact(
        name=function.name,
        internal=function.internal,
        place=function.place,
        package=function.package,
        misses=function.missed,
        compiles=_values(function.compiles),
        recompiles=_values(function.recompiles),
        errors=_values(function.errors),
        phases={
            phase: Phase(seconds=histogram.sum, count=histogram.count)
            for phase, histogram in function.phases.copy().items()
        },
        **vars(counted),
        **observed,
    )


def _values(tallies: dict[str, Any]) -> dict[str, int]:
    return {name: tally.value for name, tally in tallies.copy().items() if tally.value}
