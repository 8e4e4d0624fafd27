"""
Worlds for promtool: pods and hosts with processes, as Prometheus would scrape them.

A world is one cluster. Its targets live through phases; in each, every process counts
at constant rates and its gauges change at constant rates, so a series is a few terms of
promtool's notation. What a phase lacks ends with a stale marker, as after a scrape.
Names, labels and buckets are the catalogue's: another one is an error.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jaxmon import catalog
from jaxmon.catalog import Metric
from tests.alerts.tape import Tape


STEP = 30
"""Seconds between two scrapes, and between two evaluations."""

TICKS = 60 // STEP
"""Scrapes a minute."""

Labels = tuple[tuple[str, str], ...]
_DAY = 86400.0
_EPOCH = 1e9  # promtool's notation has no negative numbers after a gap
_LEFT = ("jaxmon_agent_ended_seconds", "jaxmon_agent_finished_seconds")


@dataclass(frozen=True)
class Sample:
    """A series in one phase: its first value, or of a counter its rise, and a slope."""

    metric: Metric
    name: str
    labels: Labels
    value: float
    slope: float = 0.0
    counts: bool = False


class Doing:
    """What a process does, or what a sidecar sees, in one phase."""

    def samples(self) -> Iterator[Sample]:
        """Yield the series of a process, without the labels of its target."""
        raise NotImplementedError


def gauge(
    metric: Metric, value: float, slope: float = 0.0, /, **labels: str
) -> Iterator[Sample]:
    """Yield a gauge that begins at *value* and rises by *slope* a minute."""
    yield Sample(metric, metric.name, ordered(metric, labels), value, slope / TICKS)


def count(metric: Metric, rate: float, /, **labels: str) -> Iterator[Sample]:
    """Yield a counter that rises by *rate* a minute; without a rate, it is not born."""
    if rate:
        labelled = ordered(metric, labels)
        yield Sample(metric, metric.name, labelled, rate / TICKS, counts=True)


def observe(
    metric: Metric,
    rate: float,
    value: float,
    buckets: tuple[float, ...] | None = None,
    /,
    **labels: str,
) -> Iterator[Sample]:
    """Yield a histogram with *rate* observations of *value* a minute."""
    if not rate:
        return
    labelled, rise = ordered(metric, labels), rate / TICKS
    for bound in metric.buckets if buckets is None else buckets:
        le = (*labelled, ("le", str(float(bound))))
        within = rise if value <= bound else 0.0
        yield Sample(metric, f"{metric.name}_bucket", le, within, counts=True)
    le = (*labelled, ("le", "+Inf"))
    yield Sample(metric, f"{metric.name}_bucket", le, rise, counts=True)
    yield Sample(metric, f"{metric.name}_count", labelled, rise, counts=True)
    yield Sample(metric, f"{metric.name}_sum", labelled, rise * value, counts=True)


def ordered(metric: Metric, labels: dict[str, str]) -> Labels:
    """Return *labels* in the order of the catalogue, which has no others."""
    assert set(labels) <= set(metric.labels), (metric.name, labels)
    return tuple((name, labels[name]) for name in metric.labels if name in labels)


@dataclass
class Worker:
    """One slot of a target, its process, and what that counted."""

    began: float = -_DAY
    starts: int = 1
    crashes: int = 0
    counts: dict[tuple[str, Labels], float] = field(default_factory=dict)


@dataclass
class Target:
    """
    What Prometheus scrapes: the sidecar of a pod or host, with the processes beside it.

    Args:
        world: that it is in.
        labels: that Prometheus adds: job, instance, and others.
        sidecar: whether there is one, or one process that serves its own page.
    """

    world: "World"
    labels: dict[str, str]
    sidecar: bool = True
    at: int = 0
    workers: dict[str, Worker] = field(default_factory=dict)
    counts: dict[tuple[str, Labels], float] = field(default_factory=dict)
    tapes: dict[tuple[str, Labels], Tape] = field(default_factory=dict)

    def run(
        self,
        minutes: float,
        *doing: Doing,
        seen: tuple[Doing, ...] = (),
        others: Mapping[str, tuple[Doing, ...]] | None = None,
        dead: dict[str, str | None] | None = None,
        finished: tuple[str, ...] = (),
    ) -> None:
        """
        Let every process do the same for *minutes*.

        Args:
            minutes: of the phase.
            doing: what its processes do.
            seen: what the sidecar exports besides.
            others: what some processes do instead, by worker.
            dead: workers that ended without finishing, with their loop; `None` if they
                live and do not respond.
            finished: workers that finished; what they counted is served.
        """
        ticks = round(minutes * TICKS)
        if not ticks:
            return
        found: dict[tuple[str, Labels], tuple[float, float]] = {}
        own = tuple(sample for part in seen for sample in part.samples())
        self._put(found, {}, ticks, (*self._target(), *own), self.counts)
        gone = dead or {}
        for name, worker in self.workers.items():
            slot = {"worker": name} if self.sidecar else {}
            if self.sidecar:
                fate = "dead" if gone.get(name) is not None else "silent"
                fate = "finished" if name in finished else fate
                fate = fate if name in gone or name in finished else ""
                self._put(found, {}, ticks, tuple(self._slot(worker, name, fate)), {})
            if name in finished:
                self._put_left(found, name, worker, ticks)
            if name in gone or name in finished:
                continue
            does = (others or {}).get(name, doing)
            parts = (sample for part in does for sample in part.samples())
            samples = (*self._process(worker), *parts)
            self._put(found, slot, ticks, samples, worker.counts)
        up = (("up", ()), (1.0, 0.0))
        self._write({**dict([up]), **found}, ticks)

    def fail(self, minutes: float) -> None:
        """Let every scrape fail for *minutes*, while discovery still has the target."""
        self._write({("up", ()): (0.0, 0.0)}, round(minutes * TICKS))

    def vanish(self, minutes: float = 0.0) -> None:
        """Let discovery lose the target; with *minutes*, it comes back after them."""
        for tape in self.tapes.values():
            tape.end(self.at)
        self.at += round(minutes * TICKS)

    def restart(self, *names: str, crashed: bool = True) -> None:
        """Let these processes, or all, begin anew, after a crash or in order."""
        for name in names or tuple(self.workers):
            worker = self.workers[name]
            worker.began = self.at * STEP
            worker.starts += 1
            worker.crashes += crashed
            worker.counts = {}

    def crash(self, *names: str) -> None:
        """Count that these processes, or all, died; none has taken their place."""
        for name in names or tuple(self.workers):
            self.workers[name].crashes += 1

    def renew(self) -> None:
        """Begin anew altogether, sidecar and processes."""
        self.counts = {}
        born = float(self.at * STEP)
        self.workers = {name: Worker(born) for name in self.workers}

    def _put(
        self,
        found: dict[tuple[str, Labels], tuple[float, float]],
        slot: dict[str, str],
        ticks: int,
        samples: tuple[Sample, ...],
        counts: dict[tuple[str, Labels], float],
    ) -> None:
        rises: dict[tuple[str, Labels], float] = {}
        for sample in samples:
            key = sample.name, (*slot.items(), *sample.labels)
            if sample.counts:
                rises[key] = rises.get(key, 0.0) + sample.value
            else:
                found[key] = sample.value, sample.slope
        for key, rise in rises.items():
            # Served from the first event on.
            before = counts.get(key, 0.0)
            found[key] = before + rise, rise
            counts[key] = before + rise * ticks
        # What a process counted stays on its page.
        for key, value in counts.items():
            found.setdefault(key, (value, 0.0))

    def _put_left(
        self,
        found: dict[tuple[str, Labels], tuple[float, float]],
        name: str,
        worker: Worker,
        ticks: int,
    ) -> None:
        """Serve what a process counted that finished."""
        for key, value in worker.counts.items():
            found[key] = value, 0.0
        slot = (("worker", name),)
        for mark in _LEFT:
            found[mark, slot] = 1.0, float(STEP)
        age = self.at * STEP - worker.began
        found[catalog.COUNTING_SECONDS.name, slot] = age, float(STEP)
        assert ticks * STEP <= 300, "what a process counted is served for 5 minutes"

    def _write(
        self, found: dict[tuple[str, Labels], tuple[float, float]], ticks: int
    ) -> None:
        for key, tape in self.tapes.items():
            if key not in found:
                tape.end(self.at)
        for key, (first, slope) in found.items():
            tape = self.tapes.setdefault(key, Tape())
            tape.write(self.at, first, slope, ticks)
        self.at += ticks

    def _target(self) -> Iterator[Sample]:
        """Yield what a sidecar exports of itself."""
        if not self.sidecar:
            return
        yield from gauge(catalog.BUILD_INFO, 1, version="1.0")
        yield from gauge(catalog.UPTIME_SECONDS, _DAY + self.at * STEP, 60)
        yield from gauge(catalog.PROCESS_START_TIME_SECONDS, _EPOCH - _DAY)
        yield from gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES, 60 << 20)
        for collector in ("agents", "host", "nvml"):
            yield from gauge(catalog.COLLECTOR_SUCCESS, 1, collector=collector)

    def _slot(self, worker: Worker, name: str, fate: str) -> Iterator[Sample]:
        """Yield what a sidecar exports of a slot whose process lives, or its *fate*."""
        # A finished process has no socket; that of a killed one is left.
        if fate != "finished":
            yield from gauge(catalog.AGENT_UP, not fate, worker=name)
        yield from gauge(catalog.AGENT_STARTS, worker.starts, worker=name)
        yield from gauge(catalog.AGENT_CRASHES, worker.crashes, worker=name)
        loop = self.world.loops.get(self.labels["job"])
        of = {"worker": name, **({"loop": loop} if loop else {})}
        yield from gauge(catalog.AGENT_DIED, fate == "dead", **of)

    def _process(self, worker: Worker) -> Iterator[Sample]:
        """Yield what every process with an agent exports."""
        age = self.at * STEP - worker.began
        yield from gauge(catalog.BUILD_INFO, 1, version="1.0")
        versions = {
            "release": "",
            "jax": "0.10.2",
            "jaxlib": "0.10.2",
            "python": "3.11.9",
        }
        yield from gauge(
            catalog.RUNTIME_INFO,
            1,
            **versions,
            platform="gpu",
            platform_version="cuda 12090",
        )
        yield from gauge(catalog.UPTIME_SECONDS, age + 2, 60)
        yield from gauge(catalog.COUNTING_SECONDS, age + 1, 60)
        began = _EPOCH + worker.began
        yield from gauge(catalog.PROCESS_START_TIME_SECONDS, began)
        yield from gauge(catalog.COMPILES_IN_PROGRESS, 0)
        yield from gauge(catalog.COMPILE_OLDEST_SECONDS, 0)
        yield from gauge(catalog.HOOK_ACTIVE, 1, hook="pjit")


@dataclass
class World:
    """
    One cluster, for the length of an outage.

    Args:
        cluster: its name, a label of all of its series.
        minutes: how long it lasts.
        loops: the loop that processes of a job run, by job.
    """

    cluster: str
    minutes: float
    loops: dict[str, str] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)

    def pods(self, job: str, number: int, *, sidecar: bool = True) -> list[Target]:
        """Return so many pods of a job, each with a sidecar and one process."""
        names = (f"{job}-{index}" for index in range(number))
        return [self.pod(job, name, sidecar=sidecar) for name in names]

    def pod(
        self, job: str, name: str, at: float = 0, *, sidecar: bool = True
    ) -> Target:
        """Return a pod that is born at minute *at*."""
        labels = {"instance": f"{name}:9467", "pod": name, "namespace": "prod"}
        target = self._add({"job": job, **labels}, 1, at)
        target.sidecar = sidecar
        return target

    def host(self, job: str, name: str, workers: int) -> Target:
        """Return a host outside of Kubernetes, with so many processes."""
        return self._add({"job": job, "instance": f"{name}:9467"}, workers, 0)

    def series(self) -> dict[str, str]:
        """Return promtool's series."""
        ticks = round(self.minutes * TICKS) + 1
        found = {}
        for target in self.targets:
            placed = {"cluster": self.cluster, **target.labels}
            place = ",".join(f'{name}="{text}"' for name, text in placed.items())
            for (name, labels), tape in target.tapes.items():
                if tape.ticks < ticks:
                    tape.end(target.at)
                own = "".join(f',{label}="{text}"' for label, text in labels)
                found[f"{name}{{{place}{own}}}"] = tape.text(ticks)
        return found

    def _add(self, labels: dict[str, str], workers: int, at: float) -> Target:
        tick = round(at * TICKS)
        target = Target(self, labels, at=tick)
        born = tick * STEP if at else -_DAY
        target.workers = {str(slot): Worker(born) for slot in range(workers)}
        self.targets.append(target)
        return target
