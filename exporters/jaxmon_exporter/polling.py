"""
Polls collectors in the background; a scrape only reads their latest results.

Each collector has one daemon thread. A poll that never returns affects only its
collector: no second thread is started, the failure shows after the deadline, and the
collector recovers when the call returns. The last good values are served until they are
three intervals plus one deadline old: a gap is better than a stale value. Results of a
failed poll, such as ``up 0``, are valid until the next one, which backs off after
costly failures.

Of two collectors with one series, our own driver readings take precedence: they are
fresher, and their meaning is known. Another exporter only fills gaps, so that a series
is never exported twice, and gaps are filled if a driver is missing, too old or hung.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from jaxmon import catalog
from jaxmon.errors import JaxmonError
from jaxmon.exposition.families import Family, Sample, by_label, samples_of, series
from jaxmon.exposition.plausible import PlausibilityFilter
from jaxmon.facts.status import CollectorSummary
from jaxmon.host import disclosure


_UUID = re.compile(r'\{uuid="([^"\\]*)"')
_BORROWED = {metric.name for metric in catalog.BORROWED}
_SENT_BY_NVLINK = catalog.GPU_NVLINK_TRANSMIT_BYTES
COUNTERS = {
    catalog.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND.name: catalog.GPU_PCIE_TRANSMIT_BYTES,
    catalog.GPU_PCIE_RECEIVE_BYTES_PER_SECOND.name: catalog.GPU_PCIE_RECEIVE_BYTES,
    catalog.GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND.name: _SENT_BY_NVLINK,
    catalog.GPU_NVLINK_RECEIVE_BYTES_PER_SECOND.name: catalog.GPU_NVLINK_RECEIVE_BYTES,
}
"""Counters by the rate metric that they replace."""


def instance(uuid: str, number: str) -> str:
    """Return the name of a GPU instance, for which `unserved` puts MIG's UUIDs."""
    return f"{uuid}/{number}"


def unserved(
    first: Sequence[Family],
    second: Iterable[Family],
    *,
    all_gpus: bool = False,
    all_rates: bool = False,
) -> list[Family]:
    """
    Return the series of *second*, of another exporter, that are not in *first*. Of GPUs
    that *first* does not know, although it knows some, only with *all_gpus*: in a
    container not all may be visible; rates of what *first* counts, only with
    *all_rates*.
    """
    served = {name for family in first for name, _ in family.samples}
    ours = _identities(first)
    instances = _instances(first)

    def is_wanted(metric: str, uuid: str) -> bool:
        if metric == catalog.ACCELERATOR_INFO.name and uuid in ours:
            return False
        if ours and not all_gpus and uuid not in ours:
            return False
        counter = None if all_rates else COUNTERS.get(metric)
        return counter is None or series(counter, uuid) not in served

    found = []
    for family in second:
        kept: list[Sample] = []
        for sample in family.samples:
            for uuid, name, value in _named(sample, instances):
                wanted = uuid is None or is_wanted(family.metric.name, uuid)
                if wanted and name not in served:
                    served.add(name)
                    kept.append((name, value))
        found.append(Family(family.metric, kept))
    return found


def unowned(families: Sequence[Family], owned: set[str]) -> list[Family]:
    """
    Return *families* without devices in *owned*, and add theirs to it: of several
    agents and a driver that know a device, the first provides all of its metrics.
    """
    described = {device_of(name) for name, _ in samples_of(families, *catalog.BORROWED)}
    described |= _identities(families)
    found = list(families)
    if not described.isdisjoint(owned):
        for place, (metric, samples, *_) in enumerate(found):
            if metric.name in _BORROWED:
                kept = [of for of in samples if device_of(of[0]) not in owned]
                found[place] = Family(metric, kept)
    owned |= described
    return found


def device_of(name: str) -> str:
    """Return the UUID in a series of a device, ``""`` if it is not the first label."""
    match = _UUID.search(name)
    return match[1] if match else ""


def _named(
    sample: Sample, instances: dict[str, list[str]]
) -> Iterator[tuple[str | None, str, float]]:
    """Yield device, series and value; an instance becomes its MIG devices, if any."""
    name, value = sample
    match = _UUID.search(name)
    if match is None:
        yield None, name, value
    elif "/" not in match[1]:
        yield match[1], name, value
    else:
        for uuid in instances.get(match[1], ()):
            yield uuid, f"{name[: match.start(1)]}{uuid}{name[match.end(1) :]}", value


def _identities(families: Iterable[Family]) -> set[str]:
    found = samples_of(families, catalog.ACCELERATOR_INFO, catalog.GPU_MIG_INFO)
    return {device_of(name) for name, _ in found}


def _instances(families: Iterable[Family]) -> dict[str, list[str]]:
    from jaxmon.exposition.parse import labels  # noqa: PLC0415 - few have instances

    found: dict[str, list[str]] = {}
    for name, _ in samples_of(families, catalog.GPU_MIG_INFO):
        device = labels(name)
        key = instance(device["parent"], device["gpu_instance"])
        found.setdefault(key, []).append(device["uuid"])
    return found


# Reasons for having nothing to read that other modules refer to.
NO_RUN_DIR = "no_run_dir"
NO_JOB = "no_job"

Clock = Callable[[], float]


class CollectorUnavailable(JaxmonError):  # noqa: N818 - a state, not a mistake
    """
    Raised when a collector has nothing to read, such as on a host without GPUs.

    *reason* is one word, a value of the label; the message says what was found and what
    to do. *families* are still valid, such as ``up 0``. If *costly*, the poller backs
    off.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        families: Sequence[Family] = (),
        *,
        costly: bool = True,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.families = list(families)
        self.costly = costly


class Collector(Protocol):
    """A source of metrics, on a thread of its own; polled each *interval* seconds."""

    name: str
    interval: float
    deadline: float

    def collect(self) -> Iterable[Family]:
        """Read the source once, or raise `CollectorUnavailable`."""

    def close(self) -> None:
        """Release what is held between polls. Called once, after the last poll."""
        return


def partial_failures(collector: str, counts: Mapping[str, int]) -> Family:
    """Return failures that cost a collector some metrics but not the poll."""
    found = {(collector, reason): count for reason, count in counts.items()}
    return by_label(catalog.COLLECTOR_ERRORS, found)


log = logging.getLogger("jaxmon.exporter")

TIMEOUT = "timeout"
ERROR = "error"
# A host without such a device, or what its driver brings, is a normal one, as is one
# where no agent has run. One that has it, and no package to read it, is not.
_ABSENT = ("library_not_found", "no_devices", "unsupported", NO_RUN_DIR)
# Jobs come and go, as do what they bring.
_PASSING = (NO_JOB,)
_MAX_BACKOFF = 60.0
_MAX_DOUBLINGS = 6


class Poller:
    """Polls one collector on one thread, and keeps its latest values."""

    def __init__(self, collector: Collector, *, clock: Clock = time.monotonic) -> None:
        self.name = collector.name
        self.max_age = 3 * collector.interval + collector.deadline
        self._collector = collector
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"jaxmon-poll-{collector.name}", daemon=True
        )
        self._sieve = PlausibilityFilter(log, f"collector {collector.name}")
        self._families: list[Family] = []
        self._worked = False
        self._taken: float | None = None
        self._lasts = self.max_age
        self._duration: float | None = None
        self._began: float | None = None
        self._overdue = False
        self._polled = False
        # Costly ones, one after the other: each waits longer.
        self._failures = 0
        self._reason = self._message = ""
        self._errors = Counter({TIMEOUT: 0, ERROR: 0})

    def start(self) -> None:
        """Start polling, with a poll at once."""
        self._thread.start()

    def stop(self) -> None:
        """Have the thread stop after the poll in progress; returns immediately."""
        self._stop.set()

    def join(self, timeout: float) -> bool:
        """Wait for the thread; `False` if its poll still has not returned."""
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def dropped(self) -> int:
        """Number of implausible values that were dropped."""
        return self._sieve.dropped

    def failures(self) -> Family:
        """Return how often polls failed, by reason."""
        with self._lock:
            return partial_failures(self.name, self._errors)

    def families(self) -> list[Family]:
        """Return the latest values, nothing if they are too old."""
        with self._lock:
            if self._taken is None or self._clock() - self._taken > self._lasts:
                return []
            return self._families

    def status(self) -> CollectorSummary:
        """
        Return whether the last poll succeeded, and none is overdue; whether one has
        finished; age of its values, and duration; why it failed, in one word and as
        text; whether its source never existed here, or has ended, which is normal.
        """
        with self._lock:
            now = self._clock()
            self._notice_overdue(now)
            return CollectorSummary(
                self.name,
                success=self._polled and not self._reason,
                polled=self._polled,
                age=None if self._taken is None else now - self._taken,
                duration=self._duration,
                reason=self._reason,
                message=self._message,
                absent=self._absent(self._reason),
                errors=dict(+self._errors),
            )

    def poll(self) -> None:
        """Poll once, on the calling thread. Never raises."""
        began = self._clock()
        with self._lock:
            self._began, self._overdue = began, False
        found: list[Family] | None = None
        reason, message, costly = "", "", True
        try:
            found = self._sieve.sift(self._collector.collect())
        except CollectorUnavailable as error:
            found = self._sieve.sift(error.families)
            reason, message, costly = error.reason, str(error), error.costly
        except (Exception, SystemExit) as error:  # a library may exit when loaded
            log.debug("collector %s failed", self.name, exc_info=True)
            reason, message = ERROR, disclosure.error(error)
        now = self._clock()
        with self._lock:
            # A late poll counts as a failure, but its values are valid.
            self._notice_overdue(now)
            self._began, self._polled = None, True
            self._duration = now - began
            self._failures = self._failures + 1 if reason and costly else 0
            if found is not None:
                # Nothing to serve has no age; a source that is empty has one.
                served = not reason or any(family.samples for family in found)
                self._families, self._taken = found, began if served else None
                self._lasts = self.max_age
                if reason:
                    due = self._duration + self._backoff()
                    self._lasts = max(self.max_age, due + self._collector.deadline)
            self._note(reason, message)

    def delay(self) -> float:
        """Return seconds until the next poll is due: longer after each failure."""
        with self._lock:
            if self._failures:
                return self._backoff()
            return max(0.0, self._collector.interval - (self._duration or 0.0))

    def _run(self) -> None:
        while not self._stop.is_set():
            self.poll()
            self._stop.wait(self.delay())
        try:
            self._collector.close()
        except Exception:
            log.exception("failed to close collector %s", self.name)

    def _absent(self, reason: str) -> bool:
        return reason in _PASSING or (reason in _ABSENT and not self._worked)

    def _backoff(self) -> float:
        interval = self._collector.interval
        longer: float = interval * 2 ** min(self._failures, _MAX_DOUBLINGS)
        return max(interval, min(longer, _MAX_BACKOFF))

    def _notice_overdue(self, now: float) -> None:
        """Count the poll in progress as failed, once, when it is past its deadline."""
        if self._began is None or self._overdue:
            return
        deadline = self._collector.deadline
        if now - self._began > deadline:
            self._overdue = self._polled = True
            self._note(TIMEOUT, f"no response within {deadline:g} s, still waiting")

    def _note(self, reason: str, message: str) -> None:
        """Count a failure, and log when the state changes, not on every poll."""
        if reason:
            self._errors[reason] += 1
        if reason != self._reason:
            if reason:
                level = logging.INFO if self._absent(reason) else logging.WARNING
                log.log(level, "collector %s: %s: %s", self.name, reason, message)
            else:
                log.info("collector %s has recovered", self.name)
        self._reason, self._message = reason, message
        self._worked |= not reason


class PollerGroup:
    """All collectors; of *secondary* ones is added what is `unserved`."""

    def __init__(
        self,
        collectors: Iterable[Collector],
        *,
        secondary: Iterable[Collector] = (),
        all_gpus: bool = False,
        all_rates: bool = False,
        clock: Clock = time.monotonic,
    ) -> None:
        self._primary = [Poller(collector, clock=clock) for collector in collectors]
        self._secondary = [Poller(collector, clock=clock) for collector in secondary]
        self._pollers = self._primary + self._secondary
        self._unserved = partial(unserved, all_gpus=all_gpus, all_rates=all_rates)

    def start(self) -> None:
        """Start one thread per collector."""
        for poller in self._pollers:
            poller.start()

    def stop(self, timeout: float = 3.0) -> list[str]:
        """Stop within *timeout* seconds; return those whose poll is stuck."""
        end = time.monotonic() + timeout
        for poller in self._pollers:
            poller.stop()
        return [
            poller.name
            for poller in self._pollers
            if not poller.join(max(0.0, end - time.monotonic()))
        ]

    def ready(self) -> bool:
        """Return whether every collector had its first poll, successful or not."""
        return all(status.polled for status in self.statuses())

    def statuses(self) -> list[CollectorSummary]:
        """Return the status of each collector."""
        return [poller.status() for poller in self._pollers]

    @property
    def dropped(self) -> int:
        """Number of implausible values of all collectors."""
        return sum(poller.dropped for poller in self._pollers)

    def families(self) -> list[Family]:
        """Return the latest values of all collectors, and metrics about them."""
        statuses = self.statuses()
        found = [
            *_status_families(statuses),
            *(poller.failures() for poller in self._pollers),
        ]
        owned: set[str] = set()
        for poller in self._primary:
            found += unowned(poller.families(), owned)
        # Until all have polled, the gaps are unknown.
        looked = all(status.polled for status in statuses[: len(self._primary)])
        if looked:
            others = [of for poller in self._secondary for of in poller.families()]
            found += self._unserved(found, others)
        return found


def _status_families(statuses: Sequence[CollectorSummary]) -> Iterator[Family]:
    success = {of.name: float(of.success) for of in statuses if of.polled}
    yield by_label(catalog.COLLECTOR_SUCCESS, success)
    for metric, name in (
        (catalog.COLLECTOR_DURATION_SECONDS, "duration"),
        (catalog.COLLECTOR_AGE_SECONDS, "age"),
    ):
        values = {of.name: getattr(of, name) for of in statuses}
        yield by_label(metric, {of: n for of, n in values.items() if n is not None})
