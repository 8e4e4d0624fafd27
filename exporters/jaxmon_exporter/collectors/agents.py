"""
Every instrumented process on the host, over its Unix socket, distinguished by the label
``worker``.

A faulty agent affects only itself: one that was killed, hangs, floods, or serves no
metrics has ``jaxmon_agent_up 0`` while its socket exists. One that exits cleanly
removes that. What it counted stays for a while, and its successor adds to it
(`jaxmon.facts.endings`). Of its slot stays how many agents started in it and did not
finish.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from jaxmon import catalog
from jaxmon.catalog import BY_NAME, Metric
from jaxmon.clocks import monotonic
from jaxmon.errors import PageError
from jaxmon.exposition.add import added
from jaxmon.exposition.encode import names_of
from jaxmon.exposition.families import Family, by_label, family_of, gauge, series
from jaxmon.facts import endings
from jaxmon.facts.ending import FINISHED, ProcessEnd
from jaxmon.facts.endings import SlotEnds
from jaxmon.host import rundir
from jaxmon.host.http import fetch
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon_exporter import polling
from jaxmon_exporter.endings import ExitStatuses, are_same


# An agent may be newer than this, but must not report that a target is down.
_OURS = ("jaxmon_", "process_", "python_")
# What is kept beyond a poll, such as how a new metric is introduced, must be short.
_LONGEST = 1000
_LONGEST_SERIES = 8192
_SHOWN = 80
_BORROWED = {metric.name for metric in catalog.BORROWED}
_CATALOGUE = {name for metric in catalog.METRICS for name in names_of(metric)}


def page_families(worker: str, page: str) -> list[Family]:
    """Return an agent's metrics with the label *worker*; `PageError` if invalid."""
    # Where there is no agent, none of its grammar is compiled.
    from jaxmon.exposition.parse import parse, relabel, to_family  # noqa: PLC0415

    found = [
        # A device does not belong to the worker: others may use it, and the driver
        # reports it.
        to_family(
            family if family.name in _BORROWED else relabel(family, "worker", worker)
        )
        for family in parse(page)
    ]
    taken: dict[str, str] = {}
    for family in found:
        _check(family)
        _reserve_names(family.metric, taken)
    return found


def _reserve_names(metric: Metric, taken: dict[str, str]) -> None:
    """Add a metric's names to *taken*; `PageError` if another has one."""
    who = f"{metric.kind} {metric.name}"
    names = names_of(metric)
    for name in names:
        other = taken.get(name, who)
        if other != who:
            msg = f"{who} and {other} conflict and cannot be exported together"
            raise PageError(msg)
    taken.update(dict.fromkeys(names, who))


def _check(family: Family) -> None:
    """Reject metrics that agents may not export, wrong types and duplicate series."""
    from jaxmon.exposition.parse import check_histogram  # noqa: PLC0415 - see above

    if problem := _problem(family):
        raise PageError(problem)
    if family.metric.name in _BORROWED:
        _check_devices(family)
    if family.metric.kind == "histogram":
        check_histogram(family)


def _problem(family: Family) -> str:  # noqa: PLR0911 - each check has its own text
    name, names = family.metric.name, [series for series, _ in family.samples]
    metric = BY_NAME.get(name)
    if metric is None and len(name) + len(family.metric.help) > _LONGEST:
        return f"{name[:_SHOWN]} has a name and help of more than {_LONGEST} characters"
    if not name.startswith(_OURS):
        return f"{name} is not a jaxmon metric; names start with {', '.join(_OURS)}"
    if metric is not None and "agent" not in metric.sources:
        return f"{name} must not be exported by an agent"
    if metric is None and not _CATALOGUE.isdisjoint(names_of(family.metric)):
        return f"{name} collides with a sample name of a jaxmon metric"
    if metric is not None and metric is not family.metric:
        return f"{name} is a {family.metric.kind}; this sidecar has a {metric.kind}"
    if len(set(names)) < len(names):
        return f"{name} has a duplicate series"
    most = _LONGEST if name in _BORROWED else _LONGEST_SERIES
    if max(map(len, names), default=0) > most:
        return f"{name} has a series of more than {most} characters"
    return ""


def _check_devices(family: Family) -> None:
    """Refuse what does not say of which device it is, or less than others rely on."""
    from jaxmon.exposition.parse import labels  # noqa: PLC0415 - see above

    metric = family.metric
    for name, _ in family.samples:
        if not polling.device_of(name):
            msg = f"{metric.name} does not start with a device uuid"
            raise PageError(msg)
        if missing := set(metric.labels) - labels(name).keys():
            msg = f"{metric.name} has no label {', '.join(sorted(missing))}"
            raise PageError(msg)


_KINDS = ("counter", "histogram")


class SlotSeries:
    """Exports the records of slots, so that one killed between polls is counted."""

    def __init__(self) -> None:
        # A successor may hold a slot a moment before it has counted a crash; the
        # counter does not go back in between.
        self._counted: dict[str, tuple[int, int]] = {}

    def families(
        self, slots: Mapping[str, SlotEnds], *, up: set[str], unheard: set[str]
    ) -> list[Family]:
        """Return the families of all *slots* by worker, some 10 µs each."""
        died: dict[tuple[str, str], float] = {}
        finished: dict[str, float] = {}
        counted = {}
        for worker, slot in slots.items():
            dead = slot.died
            if dead is None:  # the system does not say
                dead = worker in unheard
            record = slot.latest
            counted[worker] = self._number(worker, slot, dead=dead)
            # An agent of a release without records may have the slot now.
            died[worker, record.running] = float(dead and worker not in up)
            over = record.state == FINISHED or (record.stop and slot.ended)
            age = endings.age_of(record) if over else None
            if age is not None and worker not in up:
                finished[worker] = age
        self._counted = counted
        numbers = [(worker, *counts) for worker, counts in counted.items()]
        return [
            family_of(catalog.AGENT_STARTS, [row[:2] for row in numbers]),
            family_of(catalog.AGENT_CRASHES, [row[::2] for row in numbers]),
            by_label(catalog.AGENT_DIED, died),
            by_label(catalog.AGENT_FINISHED_SECONDS, finished),
        ]

    def _number(self, worker: str, slot: SlotEnds, *, dead: bool) -> tuple[int, int]:
        record, earlier = slot.latest, slot.before
        starts, crashes = record.starts, record.crashes_with(earlier)
        crashes += dead and record.crashed(earlier)
        before = self._counted.get(worker)
        if before is not None and before[0] <= starts:
            crashes = max(crashes, before[1])
        return starts, crashes


class LeftCounts(NamedTuple):
    """The counts that a process left, as they were read: whose, and how large."""

    of: ProcessEnd
    families: list[Family]
    size: int


class EndedCounts:
    """Reads the counts that agents leave, each of them once, up to *max_total*."""

    def __init__(self, run_dir: Path, max_total: int) -> None:
        self._run_dir = run_dir
        self._max_total = max_total
        self._left_counts: dict[str, LeftCounts] = {}

    def read(self, slots: Mapping[str, SlotEnds]) -> dict[str, PageError]:
        """Read what is new in *slots*; return what is wrong with counts, by worker."""
        troubles: dict[str, PageError] = {}
        found: dict[str, LeftCounts] = {}
        total = 0
        for worker, slot in slots.items():
            if (of := slot.counted) is None:
                continue
            counts = self._left_counts.get(worker)
            if counts is None or _identity(counts.of) != _identity(of):
                try:
                    counts = self._read(worker, of)
                except (PageError, ValueError) as error:
                    troubles[worker] = PageError(f"counts of ended processes: {error}")
                    counts = LeftCounts(of, [], 0)
            total += 0 if counts is None else counts.size
            if counts is not None and total <= self._max_total:
                found[worker] = counts
        self._left_counts = found
        return troubles

    def merged(
        self, pages: Mapping[str, list[Family]], slots: Mapping[str, SlotEnds]
    ) -> Iterator[tuple[str, list[Family]]]:
        """Yield each worker's *pages* with the counts of those before it."""
        for worker in {**pages, **self._left_counts}:
            page, slot = pages.get(worker, []), slots.get(worker)
            counts = self._left_counts.get(worker)
            if counts is not None and counts.families and slot is not None:
                later = slot.latest.starts - counts.of.starts
                if not later:
                    # It has ended, and what is left has more than it responded.
                    page = _left(worker, counts)
                elif later == 1:
                    page = _continued(worker, page, counts)
            yield worker, page

    def _read(self, worker: str, of: ProcessEnd) -> LeftCounts | None:
        """Return the counts left by *of*, `None` if void; `PageError` if bad."""
        text = endings.counts(self._run_dir / f"agent-{worker}.end", of)
        if text is None:
            return None
        found = [of for of in page_families(worker, text) if of.metric.kind in _KINDS]
        return LeftCounts(of, found, len(text))


def _identity(of: ProcessEnd) -> tuple[object, ...]:
    return of.starts, of.pid, of.counted_since, of.counted_until, of.counted_bytes


def _left(worker: str, counts: LeftCounts) -> list[Family]:
    if (age := endings.counted_age(counts.of)) is None:
        return []
    mark = gauge(catalog.AGENT_ENDED_SECONDS, age, worker)
    return [*counts.families, mark, _counting(worker, counts.of)]


def _continued(worker: str, page: list[Family], counts: LeftCounts) -> list[Family]:
    counting = [
        family for family in page if family.metric.name != catalog.COUNTING_SECONDS.name
    ]
    # Agents of earlier releases do not know that there is something to continue.
    if len(counting) == len(page):
        return page
    return [*added(counting, counts.families), _counting(worker, counts.of)]


def _counting(worker: str, of: ProcessEnd) -> Family:
    metric = catalog.COUNTING_SECONDS._replace(labels=("worker",))
    seconds = monotonic() - of.counted_since
    return Family(catalog.COUNTING_SECONDS, [(series(metric, worker), seconds)])


log = logging.getLogger("jaxmon.exporter")

BAD_PAGE = "page"
CONFLICT = "agent_conflict"
# Exemplars are in OpenMetrics alone.
_ACCEPT = "application/openmetrics-text; version=1.0.0, text/plain; q=0.5"
_FAILURES = (fetch.TIMEOUT, fetch.TOO_LARGE, fetch.BROKEN, BAD_PAGE)


class Agents(polling.Collector):
    """
    Collects from the agents in *run_dir*, which may be missing until an agent creates
    it; each poll waits *timeout* seconds for the slowest.

    Responses have *max_bytes* at most (jaxmon's largest are about 1 MB), and
    *max_total* together, without the largest; parsed, they take about ten times as much
    memory.
    """

    name = "agents"

    def __init__(
        self,
        run_dir: Path,
        *,
        interval: float = 2.0,
        timeout: float = 3.0,
        max_bytes: int = 4 << 20,
        max_total: int = 16 << 20,
    ) -> None:
        self.interval = interval
        self.deadline = timeout + 5.0
        self._run_dir = run_dir
        self._series = SlotSeries()
        self._exits = ExitStatuses(run_dir)
        self._ended = EndedCounts(run_dir, max_total)
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._max_total = max_total
        self._troubles: dict[str, str] = {}
        self._failures = Counter({f"agent_{reason}": 0 for reason in _FAILURES})
        self._failures[CONFLICT] = 0
        self._conflicting = False
        # What is wrong with records of a later release.
        self._refused: dict[str, str] = {}

    def collect(self) -> Iterable[Family]:
        """Read all agents concurrently: *timeout* seconds at most, plus parsing."""
        sockets = self._sockets()
        before = self._slots()
        answers = fetch_all(
            sockets,
            "/metrics",
            accept=_ACCEPT,
            timeout=self._timeout,
            max_bytes=self._max_bytes,
            max_total=self._max_total,
        )
        # After the responses: what died meanwhile is dead, and what it counted is kept.
        refused: dict[str, str] = {}
        slots = self._slots(refused)
        if self._exits.follow(slots, sockets):
            slots = self._slots()
        for worker, trouble in self._ended.read(slots).items():
            self._trouble(f"{worker} (ended)", BAD_PAGE, trouble)
        for worker in refused.keys() - self._refused.keys():
            self._trouble(f"{worker} (record)", BAD_PAGE, PageError(refused[worker]))
        self._refused = refused
        pages, unheard = self._pages(answers, slots)
        up = {worker: float(page is not None) for worker, page in pages.items()}
        responded = {worker for worker, is_up in up.items() if is_up}
        # Where another process started meanwhile, it is unknown whose page it is.
        served = {
            worker: page
            for worker, page in pages.items()
            if page and are_same(before.get(worker), slots.get(worker))
        }
        found, owned = [by_label(catalog.AGENT_UP, up)], set[str]()
        taken: dict[str, str] = {}
        for worker, page in self._ended.merged(served, slots):
            kept = list(self._compatible(worker, page, taken))
            found += polling.unowned(kept, owned)
        ends = self._series.families(slots, up=responded, unheard=unheard)
        return [*found, *ends, polling.partial_failures(self.name, self._failures)]

    def close(self) -> None:
        """Follow no process any more."""
        self._exits.close()

    def _pages(
        self, answers: dict[str, str | FetchError], slots: Mapping[str, SlotEnds]
    ) -> tuple[dict[str, list[Family] | None], set[str]]:
        """Return each agent's families, and whose sockets nothing listens on."""
        pages: dict[str, list[Family] | None] = {}
        unheard = set()
        for worker in list(answers):
            pages[worker] = None
            try:
                if isinstance(answer := answers.pop(worker), FetchError):
                    raise answer
                pages[worker] = page_families(worker, answer)
            except FetchError as error:
                slot = slots.get(worker)
                stopped = slot is not None and slot.ended and slot.ended.stop
                is_dead = error.reason == fetch.GONE
                if error.reason == fetch.LEFT or (is_dead and stopped):  # in order
                    self._troubles.pop(worker, None)
                    del pages[worker]
                    continue
                self._trouble(worker, error.reason, error)
                if is_dead:
                    unheard.add(worker)
            except PageError as error:
                self._trouble(worker, BAD_PAGE, error)
            else:
                self._troubles.pop(worker, None)
        for worker in self._troubles.keys() - pages.keys():
            del self._troubles[worker]
        return pages, unheard

    def _sockets(self) -> dict[str, Path]:
        lead = f"run directory {self._run_dir}"
        try:
            found = rundir.sockets(self._run_dir)
        except OSError as error:
            advice = "run as the agents' user or set --run-dir"
            reason, message = "run_dir", f"{lead}: {error.strerror}; {advice}"
            raise polling.CollectorUnavailable(reason, message, costly=False) from error
        if not found and not os.path.lexists(self._run_dir):
            reason = polling.NO_RUN_DIR
            message = (
                f"{lead} does not exist: no agent has run here yet, or it was removed "
                "(running agents recreate it within seconds); if agents use another "
                "directory, set --run-dir"
            )
            raise polling.CollectorUnavailable(reason, message, costly=False)
        return found

    def _slots(self, refused: dict[str, str] | None = None) -> dict[str, SlotEnds]:
        try:
            return endings.slots(self._run_dir, refused)
        except OSError:  # removed meanwhile; it was there for the sockets
            return {}

    def _compatible(
        self, worker: str, page: list[Family], taken: dict[str, str]
    ) -> Iterator[Family]:
        for family in page:
            try:
                if family.metric.name not in BY_NAME:
                    _reserve_names(family.metric, taken)
            except PageError as error:
                self._failures[CONFLICT] += 1
                if not self._conflicting:
                    self._conflicting = True
                    log.warning("agent %s: dropped: %s", worker, error)
            else:
                yield family

    def _trouble(self, worker: str, reason: str, error: Exception) -> None:
        """Count a failure, log it if it is new; a process that exited is none."""
        if reason != fetch.GONE:
            self._failures[f"agent_{reason}"] += 1
        if self._troubles.get(worker) != reason:
            self._troubles[worker] = reason
            log.warning("agent %s: %s: %s", worker, reason, error)
