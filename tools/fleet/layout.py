"""Which processes exist when: hosts, jobs, clusters; deployments, restarts, faults."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace


DAY = 86400.0
WORKERS = 4
GPUS = 8
_STAGGER = 20.0
_GAP = 45.0
_RESTART_GAP = 15.0
_NAMESPACE = "ml"


@dataclass(frozen=True)
class Shape:
    """
    The size and the habits of a fleet.

    Args:
        processes: in total; four on each host, with two accelerators each.
        clusters: over which the hosts are spread.
        jobs: of each cluster, serving and training in turn; their names are the same
            in all clusters.
        seed: another seed gives other moments and rates.
        churn: whether jobs are deployed once a day, serving ones scale with the day,
            and processes restart, each once in ten days.
        same_addresses: whether hosts of different clusters have the same address.
    """

    processes: int = 1000
    clusters: int = 2
    jobs: int = 10
    seed: int = 0
    churn: bool = True
    same_addresses: bool = False

    def __post_init__(self) -> None:
        least = WORKERS * self.clusters * self.jobs
        if self.processes < least:
            msg = (
                f"{self.processes} processes are too few: {self.clusters} clusters of "
                f"{self.jobs} jobs need {least}, a host with {WORKERS} for each job"
            )
            raise ValueError(msg)


@dataclass(frozen=True)
class Life:
    """
    A process from start to end.

    Args:
        worker: its slot on the host.
        rank: its number in its job, and *ranks* how many there are.
        start, end: seconds since the epoch.
        speed: its rates, relative to those recorded.
    """

    worker: int
    rank: int
    ranks: int
    start: float
    end: float
    speed: float


@dataclass(frozen=True)
class Pod:
    """
    A target: a sidecar with its processes, from start to end.

    Args:
        number: of its host in the fleet.
        generation: how many pods the host had before.
        phase: of the day in its cluster, in radians.
    """

    cluster: str
    job: str
    program: str
    number: int
    generation: int
    address: str
    start: float
    end: float
    phase: float
    lives: tuple[Life, ...] = field(default=())

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Return the labels that Prometheus adds to each series of the target."""
        return (
            ("cluster", self.cluster),
            ("namespace", _NAMESPACE),
            ("job", self.job),
            ("instance", self.address),
            ("pod", f"{self.job}-{self.number}-{self.generation}"),
        )


def pods(shape: Shape, start: float, end: float) -> list[Pod]:
    """Return all that exist at some time between *start* and *end*."""
    return list(_pods(shape, start, end))


def _pods(shape: Shape, start: float, end: float) -> Iterator[Pod]:
    hosts = shape.processes // WORKERS
    in_cluster = [hosts // shape.clusters] * shape.clusters
    in_cluster[0] += hosts % shape.clusters
    number = 0
    for cluster, count in enumerate(in_cluster):
        for job in range(shape.jobs):
            mine = [n for n in range(count) if n * shape.jobs // count == job]
            for position, local in enumerate(mine):
                yield from _host(
                    shape,
                    (cluster, job),
                    (number, local, position, len(mine)),
                    (start, end),
                )
                number += 1


def _host(
    shape: Shape,
    where: tuple[int, int],
    place: tuple[int, int, int, int],
    span: tuple[float, float],
) -> Iterator[Pod]:
    (cluster, job), (number, local, position, of) = where, place
    program = ("serve", "train")[job % 2]
    chance = random.Random(f"{shape.seed}/{number}")  # noqa: S311 - a fleet, no secret
    for_job = random.Random(f"{shape.seed}/{cluster}/{job}")  # noqa: S311 - likewise
    octet = 0 if shape.same_addresses else cluster
    address = f"10.{octet}.{local // 250}.{local % 250}:9467"
    phase = for_job.uniform(0, 6.28)
    began = span[0] - chance.uniform(1, 9) * DAY
    moments = [began]
    if shape.churn:
        deploy = span[0] + for_job.uniform(0, DAY)
        # Ranks of one run restart together; replicas one after the other.
        stagger = 0.0 if program == "train" else position * _STAGGER
        while deploy < span[1]:
            moments.append(deploy + stagger)
            deploy += DAY * for_job.uniform(0.8, 1.2)
    # The last fifth of the replicas of a service runs from 8 to 20 o'clock.
    elastic = shape.churn and program == "serve" and position >= max(1, 0.8 * of)
    ends = [moment - _GAP for moment in moments[1:]] + [span[1] + DAY]
    generation = 0
    for begins, stops in zip(moments, ends, strict=True):
        for first, last in _daytimes(begins, stops) if elastic else [(begins, stops)]:
            if last > span[0] and first < span[1] and last - first > _GAP:
                rank = position * WORKERS
                lives = _lives(chance, shape, (first, last), rank, of * WORKERS)
                yield Pod(
                    f"c{cluster}",
                    f"{program}-{job}",
                    program,
                    number,
                    generation,
                    address,
                    first,
                    last,
                    phase,
                    tuple(lives),
                )
            generation += 1


def _daytimes(start: float, end: float) -> Iterator[tuple[float, float]]:
    day = start // DAY * DAY
    while day < end:
        first, last = max(start, day + 8 * 3600), min(end, day + 20 * 3600)
        if first < last:
            yield first, last
        day += DAY


def _lives(
    chance: random.Random,
    shape: Shape,
    span: tuple[float, float],
    rank: int,
    ranks: int,
) -> Iterator[Life]:
    for worker in range(WORKERS):
        speed = chance.uniform(0.8, 1.2)
        start = span[0]
        while start < span[1]:
            lasts = chance.expovariate(1 / (10 * DAY)) if shape.churn else 1e9
            end = min(span[1], start + max(600.0, lasts))
            yield Life(worker, rank + worker, ranks, start, end, speed)
            start = end + _RESTART_GAP


# What `Fault.amount` says.
KINDS = {
    "errors": "fraction of the requests that fail",
    "hang": "fraction of the processes in which nothing finishes any more",
    "recompiles": "recompiles a second in each process",
    "crashes": "seconds from a start to the next crash",
    "vanish": "fraction of the pods that no longer exist",
}
_DOWN_SECONDS = 10.0


@dataclass(frozen=True)
class Fault:
    """
    One of `KINDS`.

    Args:
        cluster, job: which job it concerns.
        start, end: seconds since the epoch.
        amount: see `KINDS`.
    """

    kind: str
    cluster: str
    job: str
    start: float
    end: float
    amount: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            msg = f"fault {self.kind!r} is unknown; known: {', '.join(KINDS)}"
            raise ValueError(msg)

    def concerns(self, pod: Pod, life: Life | None = None) -> bool:
        """Return whether *pod*, or the process *life* of it, has this fault."""
        if (pod.cluster, pod.job) != (self.cluster, self.job):
            return False
        return (
            self.kind != "hang" or life is None or life.rank < self.amount * life.ranks
        )


def apply(pods: Iterable[Pod], faults: Iterable[Fault]) -> list[Pod]:
    """Return *pods* as they are with the faults that end and start processes."""
    found = list(pods)
    for fault in faults:
        if fault.kind == "crashes":
            found = [
                _crashing(pod, fault) if fault.concerns(pod) else pod for pod in found
            ]
        if fault.kind == "vanish":
            found = [
                replace(
                    pod,
                    end=min(pod.end, fault.start),
                    lives=tuple(
                        replace(life, end=min(life.end, fault.start))
                        for life in pod.lives
                        if life.start < fault.start
                    ),
                )
                if _vanishes(pod, fault)
                else pod
                for pod in found
            ]
    return [pod for pod in found if pod.start < pod.end]


def _vanishes(pod: Pod, fault: Fault) -> bool:
    rank = min((life.rank for life in pod.lives), default=0)
    ranks = max((life.ranks for life in pod.lives), default=1)
    return fault.concerns(pod) and rank < fault.amount * ranks


def _crashing(pod: Pod, fault: Fault) -> Pod:
    lives: list[Life] = []
    for life in pod.lives:
        if life.end <= fault.start or life.start >= fault.end:
            lives.append(life)
            continue
        moment = max(life.start, fault.start)
        if life.start < moment:
            lives.append(replace(life, end=moment))
        while moment < min(life.end, fault.end):
            end = min(moment + fault.amount, life.end)
            lives.append(replace(life, start=moment, end=end))
            moment = end + _DOWN_SECONDS
        if moment < life.end:
            lives.append(replace(life, start=moment))
    return replace(pod, lives=tuple(lives))
