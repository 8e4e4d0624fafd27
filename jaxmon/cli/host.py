"""What goes on on a host: whether users are all right, and what its processes do."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from jaxmon import catalog
from jaxmon.errors import CommandError, PageError, raised
from jaxmon.exposition.families import Family
from jaxmon.facts.reader import from_json, mapping
from jaxmon.facts.reading import Reading, by_process, read
from jaxmon.facts.recent import MINUTE, TEN_MINUTES, Recent, Window
from jaxmon.facts.status import UNREAD, AgentSummary, HostVerdict, State, Summary
from jaxmon.host.formats import json_text
from jaxmon.host.formats.layout import UNKNOWN, amount
from jaxmon.host.resources.hung import STOPPED
from jaxmon.limits import Limits, shared
from jaxmon.screens.programs import label, without_interpreter
from jaxmon.screens.status import summarise
from jaxmon.symptoms.answer import Onsets
from jaxmon.symptoms.findings import NOTHING
from jaxmon.symptoms.job import STUCK


if TYPE_CHECKING:
    from jaxmon.host.http.session import Session

Condition: TypeAlias = Literal["running", "stuck?", "stopped", "ended", "crashed"]
"""The state of a process, as far as it can be seen from outside."""

_FINDINGS_SECONDS = 3.0
_NOTHING_YET = Reading(0.0, {}, {}, {})
_RANKS: tuple[State, ...] = ("failing", "degraded", "fine", "unknown")


class HostSource(Protocol):
    """Where to read from; each call takes at most some seconds."""

    name: str

    def families(self) -> list[Family]:
        """Return what is measured now. Raises `JaxmonError`: nothing could be read."""

    def limits(self) -> Limits:
        """Return the limits to judge by, as far as they are known."""

    def verdict(self, limits: Limits) -> HostVerdict:
        """Return the findings on all processes, by *limits*; never raises."""


class Sockets:
    """The agents in a run directory, over their Unix sockets."""

    def __init__(self, run_dir: Path) -> None:
        from jaxmon_exporter.collectors.agents import Agents

        self.name = str(run_dir)
        self._run_dir = run_dir
        self._agents = Agents(run_dir)
        # What it would log is shown, as the state of a process.
        logging.getLogger("jaxmon.exporter").addHandler(logging.NullHandler())

    def families(self) -> list[Family]:
        """Read all agents; an absent run directory has none."""
        from jaxmon_exporter.polling import NO_RUN_DIR, CollectorUnavailable

        try:
            return list(self._agents.collect())
        except CollectorUnavailable as error:
            if error.reason == NO_RUN_DIR:
                return []
            raise CommandError(str(error)) from error

    def limits(self) -> Limits:
        """Return those of the run directory."""
        return shared.current(self._run_dir)

    def verdict(self, limits: Limits) -> HostVerdict:
        """Evaluate what all agents report."""
        from jaxmon_exporter.judge import judge

        return judge(self._run_dir, limits, timeout=_FINDINGS_SECONDS)


class Sidecar:
    """The sidecar of a host, which also knows its accelerators."""

    def __init__(self, session: Session, url: str) -> None:
        self.name = url
        self._session = session
        self._limits: Limits | None = None

    def families(self) -> list[Family]:
        """Read ``/metrics``, and at first the limits."""
        from jaxmon.exposition.parse import parse, to_family

        if self._limits is None:
            self.verdict(Limits())
        text = self._session.get("/metrics").body.decode(errors="replace")
        with raised(CommandError, f"{self.name} is no sidecar of jaxmon", PageError):
            return [to_family(parsed) for parsed in parse(text)]

    def limits(self) -> Limits:
        """Return its own, or the defaults as long as it has not responded."""
        return self._limits or Limits()

    def verdict(self, limits: Limits) -> HostVerdict:  # noqa: ARG002 - its own
        """Read the findings in ``/api/summary``, by the sidecar's limits."""
        from jaxmon.host.http.session import MonitoringError

        try:
            document = self._document({})
            self._limits = shared.checked(mapping(document.get("limits")))
        except (MonitoringError, ValueError) as error:
            return HostVerdict(trouble=f"unknown: {error}")
        # Perhaps of another release.
        agents = from_json(Summary, document).agents
        return HostVerdict({agent.worker: agent for agent in agents})

    def processes(self) -> tuple[Summary, list[ProcessView]]:
        """Return the host and its processes by slot, as the sidecar sees them."""
        with raised(
            CommandError,
            f"{self.name} is no sidecar of jaxmon, or of an older release",
            ValueError,
        ):
            whole = self._status({})
            found = [
                ProcessView(agent, alone, condition(agent), None)
                for listed in whole.agents
                for alone in [self._status({"worker": listed.worker})]
                for agent in alone.agents[:1]
            ]
        return whole, sorted(found, key=lambda process: process.order)

    def _status(self, query: Mapping[str, str]) -> Summary:
        document = self._document(query)
        if not mapping(document.get("answer")):
            msg = "it has no summary"
            raise ValueError(msg)
        return from_json(Summary, document)

    def _document(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        body = self._session.get("/api/summary", query).body
        return mapping(json_text.parse(body.decode(errors="replace")))


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A process, its status as if alone, and its compiles of the last minute."""

    agent: AgentSummary
    summary: Summary
    condition: Condition
    compiles: float | None

    @property
    def number(self) -> str:
        """Its slot."""
        return self.agent.worker

    @property
    def job_rank(self) -> str:
        """Its number in its job, empty if it is in none."""
        index = self.agent.rank.index
        return "" if index is None else str(index)

    @property
    def order(self) -> tuple[int, str]:
        """What slots are sorted by."""
        return len(self.number), self.number

    @property
    def command(self) -> str:
        """Its command line, from its script or module on."""
        return without_interpreter(self.agent.program)

    @property
    def label(self) -> str:
        """Its command line, begun by the name of its script or module."""
        return label(self.agent.program)

    @property
    def requests(self) -> float | None:
        """Requests a second."""
        return _sum(route.rate for route in self.summary.requests)

    @property
    def steps(self) -> float | None:
        """Steps a second, of all its loops."""
        return _sum(loop.rate for loop in self.summary.loops)

    @property
    def rate(self) -> str:
        """Requests, or else steps or calls, a second, as text."""
        calls = self.agent.calling.rate or None
        rates = (self.requests, "req/s"), (self.steps, "steps/s"), (calls, "calls/s")
        for value, unit in rates:
            if value is not None:
                return f"{amount(value)} {unit}"
        return UNKNOWN

    @property
    def error_ratio(self) -> float | None:
        """The fraction of the last minute's requests that failed."""
        finished = _sum(route.recent for route in self.summary.requests)
        failed = _sum(route.recent_failed for route in self.summary.requests)
        return failed / finished if finished and failed is not None else None

    @property
    def p95(self) -> float | None:
        """Of requests to its slowest route, or of the steps of its slowest loop."""
        latencies = [route.latency for route in self.summary.requests]
        times = [latency.p95 for latency in latencies if latency is not None]
        times = times or [loop.p95 for loop in self.summary.loops]
        return max((time for time in times if time is not None), default=None)

    @property
    def memory(self) -> tuple[float | None, float | None]:
        """Bytes in use on its devices and their limit; of the host without devices."""
        devices = self.summary.devices
        used = _sum(device.memory_in_use for device in devices)
        if used is not None:
            return used, _sum(device.memory_limit for device in devices)
        return self.agent.resident_bytes, None

    @property
    def state(self) -> State:
        """How its users are."""
        return self.summary.answer.state

    @property
    def verdict(self) -> str:
        """What is wrong with it in a sentence, the worst first; not sanitised."""
        if self.agent.died:
            return self.agent.verdict or "It ended without finishing."
        if reasons := self.summary.answer.reasons:
            text = reasons[0].text
            is_name = set("._(") & {*text.partition(" ")[0]}
            return text if is_name else text[:1].upper() + text[1:]
        if self.agent.trouble:
            return f"It {self.agent.trouble}."
        if self.agent.findings and not self.agent.verdict:
            return self.agent.findings[0].verdict
        return self.agent.verdict or ("" if self.agent.findings is None else NOTHING)

    @property
    def because(self) -> str:
        """The likely cause of that, empty if unknown; not sanitised."""
        reasons = self.summary.answer.reasons
        return reasons[0].because if reasons and not self.agent.died else ""

    @property
    def rank(self) -> tuple[int, int, tuple[int, str]]:
        """The worst first."""
        urgencies = [finding.urgency for finding in self.agent.findings or ()]
        urgent = urgencies.count("failure") + urgencies.count("time")
        return _RANKS.index(self.state), -urgent, self.order


@dataclass(eq=False)
class HostReader:
    """Reads *source* repeatedly; *clock* is Unix time, *limits* else the source's."""

    source: HostSource
    limits: Limits | None = None
    clock: Callable[[], float] = time.time
    _window: Window = field(default_factory=Window)
    _now: Reading = _NOTHING_YET
    _first: Reading | None = None
    _verdict: HostVerdict = UNREAD
    _onsets: Onsets = field(default_factory=Onsets)

    def poll(self) -> None:
        """Read what is measured."""
        self._now = read(self.source.families(), time=self.clock())
        self._window.add(self._now)
        self._first = self._first or self._now.compared()

    def judge(self) -> None:
        """Read the findings."""
        self._verdict = self.source.verdict(self.limits or self.source.limits())

    def summary(self) -> Summary:
        """Return the status of the host."""
        past = self._before(), self._window.before(self._now.time, TEN_MINUTES)
        return self._summary(self._now, past, self._verdict, self._onsets)

    def processes(self) -> list[ProcessView]:
        """Return the processes by slot, those that crashed among them."""
        past = self._before(), self._window.before(self._now.time, TEN_MINUTES)
        then, long_before = ({} if of is None else by_process(of) for of in past)
        found = []
        for worker, now in by_process(self._now).items():
            before = then.get(worker)
            past = before, long_before.get(worker)
            summary = self._summary(now, past, self._verdict.of(worker), None)
            compiles = _compiles(worker, now, before)
            # What ended in order is none.
            found += [
                ProcessView(agent, summary, condition(agent), compiles)
                for agent in summary.agents
            ]
        return sorted(found, key=lambda process: process.order)

    def _before(self) -> Reading | None:
        """Return what to compare with; at the beginning, that is what there is."""
        now, first = self._now.time, self._first
        if first is None or not 0 < now - first.time < MINUTE:
            first = None
        return self._window.before(now) or first

    def _summary(
        self,
        now: Reading,
        past: tuple[Reading | None, Reading | None],
        verdict: HostVerdict,
        onsets: Onsets | None,
    ) -> Summary:
        return summarise(
            now,
            *past,
            whole=onsets is not None,
            run_dir=self.source.name,
            verdict=verdict,
            limits=self.limits or self.source.limits(),
            onsets=onsets,
        )


def condition(agent: AgentSummary) -> Condition:
    """Return whether a process runs, as far as is known."""
    if agent.died:
        return "ended" if agent.unrecorded else "crashed"
    if not agent.up:
        return "stopped" if agent.trouble == STOPPED else "stuck?"
    topics = {finding.topic for finding in agent.findings or ()}
    return "stuck?" if topics.intersection(STUCK) else "running"


def _compiles(worker: str, now: Reading, before: Reading | None) -> float | None:
    recent = Recent(now, before)
    rate, seconds = recent.sums(catalog.COMPILES).get(worker), recent.seconds(worker)
    return None if rate is None or seconds is None else round(rate * seconds)


def _sum(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present else None
