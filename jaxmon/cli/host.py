"""What goes on on a host: whether users are all right, and what its processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from jaxmon import catalog
from jaxmon.cli.sources import HostSource
from jaxmon.facts.reading import Reading, by_process, read
from jaxmon.facts.recent import MINUTE, TEN_MINUTES, Recent, Window
from jaxmon.facts.status import UNREAD, AgentSummary, HostVerdict, State, Summary
from jaxmon.host.formats.layout import UNKNOWN, amount
from jaxmon.host.resources.hung import STOPPED
from jaxmon.limits import Limits
from jaxmon.screens.programs import label, without_interpreter
from jaxmon.screens.status.summary import summarise
from jaxmon.symptoms.answer import Onsets
from jaxmon.symptoms.findings import NOTHING


Condition: TypeAlias = Literal["running", "stuck?", "stopped", "crashed"]
"""The state of a process, as far as it can be seen from outside."""

_NOTHING_YET = Reading(0.0, {}, {}, {})
_STUCK = ("stalled", "compile_stuck")
_RANKS: tuple[State, ...] = ("failing", "degraded", "fine", "unknown")


@dataclass(frozen=True, slots=True)
class ProcessView:
    """
    A process, and what it does.

    Attributes:
        agent: what identifies it, and its findings.
        summary: its status, as if it were alone on the host.
        condition: whether it runs.
        compiles: in the last minute; `None` if unknown.
    """

    agent: AgentSummary
    summary: Summary
    condition: Condition
    compiles: float | None

    @property
    def number(self) -> str:
        """Its slot."""
        return self.agent.worker

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
        return _sum(one.rate for one in self.summary.requests)

    @property
    def steps(self) -> float | None:
        """Steps a second, of all its loops."""
        return _sum(one.rate for one in self.summary.loops)

    @property
    def error_ratio(self) -> float | None:
        """The fraction of the last minute's requests that failed."""
        finished = _sum(one.recent for one in self.summary.requests)
        failed = _sum(one.recent_failed for one in self.summary.requests)
        return failed / finished if finished and failed is not None else None

    @property
    def p95(self) -> float | None:
        """Of requests to its slowest route, or of the steps of its slowest loop."""
        requests = [one.latency for one in self.summary.requests]
        times = [one.p95 for one in requests if one is not None]
        times = times or [one.p95 for one in self.summary.loops]
        return max((one for one in times if one is not None), default=None)

    @property
    def memory(self) -> tuple[float | None, float | None]:
        """Bytes in use on its devices and their limit; of the host without devices."""
        devices = self.summary.devices
        used = _sum(one.memory_in_use for one in devices)
        if used is not None:
            return used, _sum(one.memory_limit for one in devices)
        return self.agent.resident_bytes, None

    @property
    def state(self) -> State:
        """How its users are."""
        return self.summary.answer.state

    @property
    def verdict(self) -> str:
        """What is wrong with it in a sentence, the worst first; not sanitised."""
        if self.condition == "crashed":
            return self.agent.verdict or "It ended without finishing."
        if reasons := self.summary.answer.reasons:
            text = reasons[0].text
            return text[:1].upper() + text[1:]
        if self.agent.trouble:
            return f"It {self.agent.trouble}."
        if self.agent.findings and not self.agent.verdict:
            return self.agent.findings[0].verdict
        return self.agent.verdict or ("" if self.agent.findings is None else NOTHING)

    @property
    def because(self) -> str:
        """The likely cause of that, empty if unknown; not sanitised."""
        reasons = self.summary.answer.reasons
        crashed = self.condition == "crashed"
        return reasons[0].because if reasons and not crashed else ""

    @property
    def rank(self) -> tuple[int, int, tuple[int, str]]:
        """The worst first."""
        findings = self.agent.findings or ()
        urgent = sum(one.urgency in ("failure", "time") for one in findings)
        return _RANKS.index(self.state), -urgent, self.order


class HostReader:
    """
    Reads *source* again and again, and knows the last minute from what it has read.

    Args:
        source: where to read.
        limits: by which it is judged; those of *source* if `None`.
        clock: Unix time.
    """

    def __init__(
        self,
        source: HostSource,
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._limits = limits
        self._clock = clock
        self._window = Window()
        self._now = _NOTHING_YET
        self._first: Reading | None = None
        self._verdict = UNREAD
        self._onsets = Onsets()

    def poll(self) -> None:
        """
        Read what is measured.

        Raises:
            CommandError: nothing could be read.
        """
        found = self._source.families()
        self._now = read(found, time=self._clock())
        self._window.add(self._now)
        self._first = self._first or self._now.compared()

    def judge(self) -> None:
        """Read the findings."""
        self._verdict = self._source.verdict(self._limits or self._source.limits())

    def summary(self) -> Summary:
        """Return the status of the host."""
        past = self._before(), self._window.before(self._now.time, TEN_MINUTES)
        return self._summary(self._now, past, self._verdict)

    def processes(self) -> list[ProcessView]:
        """Return the processes by slot, those that crashed among them."""
        then, long_before = (
            {} if past is None else by_process(past)
            for past in (
                self._before(),
                self._window.before(self._now.time, TEN_MINUTES),
            )
        )
        found = []
        for worker, now in by_process(self._now).items():
            verdict = self._verdict.of(worker)
            before = then.get(worker)
            past = before, long_before.get(worker)
            summary = self._summary(now, past, verdict, whole=False)
            compiles = _compiles(worker, now, before)
            # What ended in order is none.
            found += [
                ProcessView(one, summary, condition(one), compiles)
                for one in summary.agents
            ]
        return sorted(found, key=lambda one: one.order)

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
        *,
        whole: bool = True,
    ) -> Summary:
        return summarise(
            now,
            *past,
            whole=whole,
            run_dir=self._source.name,
            verdict=verdict,
            limits=self._limits or self._source.limits(),
            onsets=self._onsets if whole else None,
        )


def rate(one: ProcessView) -> str:
    """Return requests or steps a second."""
    if one.requests is not None:
        return f"{amount(one.requests)} req/s"
    if one.steps is not None:
        return f"{amount(one.steps)} steps/s"
    return UNKNOWN


def condition(agent: AgentSummary) -> Condition:
    """Return whether a process runs, as far as is known."""
    if agent.died:
        return "crashed"
    if not agent.up:
        return "stopped" if agent.trouble == STOPPED else "stuck?"
    topics = {one.topic for one in agent.findings or ()}
    return "stuck?" if topics.intersection(_STUCK) else "running"


def _compiles(worker: str, now: Reading, before: Reading | None) -> float | None:
    recent = Recent(now, before)
    rate, seconds = recent.sums(catalog.COMPILES).get(worker), recent.seconds(worker)
    return None if rate is None or seconds is None else round(rate * seconds)


def _sum(values: Any) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if known else None
