"""What processes do and sidecars see: requests, steps, memory, accelerators."""

from collections.abc import Iterator
from dataclasses import dataclass

from jaxmon import catalog
from tests.alerts.outages.world import STEP, Doing, Sample, count, gauge, observe


GIB = float(1 << 30)


@dataclass(frozen=True)
class Requests(Doing):
    """
    Requests of one route.

    Args:
        rate: requests a minute.
        seconds: latency of those that succeed.
        error: fraction that fails.
        slow: fraction that takes `slow_seconds`.
        left: fraction whose callers leave after `wait` seconds.
        busy: requests in progress.
        busy_rise: by how many they rise a minute.
        oldest: age of the oldest in progress.
        oldest_rise: by how much that rises a minute.
        buckets: other than the agent's.
    """

    route: str = "/generate"
    rate: float = 60.0
    seconds: float = 0.1
    error: float = 0.0
    slow: float = 0.0
    slow_seconds: float = 2.0
    left: float = 0.0
    wait: float = 30.0
    busy: float = 1.0
    busy_rise: float = 0.0
    oldest: float = 0.1
    oldest_rise: float = 0.0
    buckets: tuple[float, ...] | None = None

    def samples(self) -> Iterator[Sample]:
        """Yield the series of requests."""
        success = self.rate * (1 - self.error - self.left)
        for outcome, rate, seconds in (
            ("success", success * (1 - self.slow), self.seconds),
            ("success", success * self.slow, self.slow_seconds),
            ("error", self.rate * self.error, 0.01),
            ("client_error", self.rate * self.left, self.wait),
        ):
            of = {"route": self.route, "outcome": outcome, "start": "warm"}
            yield from count(catalog.REQUESTS, rate, **of)
            yield from observe(
                catalog.REQUEST_SECONDS, rate, seconds, self.buckets, **of
            )
        of = {"route": self.route}
        busy, oldest = catalog.REQUESTS_IN_PROGRESS, catalog.REQUEST_OLDEST_SECONDS
        yield from gauge(busy, self.busy, self.busy_rise, **of)
        yield from gauge(oldest, self.oldest, self.oldest_rise, **of)
        yield from count(catalog.JIT_CALLS, success, function="serve.predict")
        yield from count(catalog.JIT_CACHE_HITS, success, function="serve.predict")


def hung(rate: float = 60.0, wait: float = 0.0, since: float = 0.0) -> Requests:
    """
    Return requests of a process that answers none.

    Args:
        rate: requests a minute.
        wait: seconds after which callers leave; 0 if they stay.
        since: for how many minutes it has answered none, if they stay.
    """
    if wait:
        waiting = rate * wait / 60
        return Requests(rate=rate, left=1.0, wait=wait, busy=waiting, oldest=wait)
    return Requests(
        rate=0.0,
        busy=rate * since + 1,
        busy_rise=rate,
        oldest=60 * since + STEP,
        oldest_rise=60.0,
    )


IDLE = Requests(rate=0.0, busy=0.0, oldest=0.0)


@dataclass(frozen=True)
class Training(Doing):
    """
    Steps of one loop, in a job of several processes.

    Args:
        processes: of the job.
        rate: steps a minute; 0 if the loop is stuck.
        age: seconds since its last step, if it is stuck.
        state: what it is doing.
        loss: whether the loss is a number.
        saved: seconds since its last checkpoint.
        saving: whether saves succeed.
        seconds: device time of a step.
        stuck: seconds since its last call, if that is unusual.
    """

    processes: int = 4
    rate: float = 30.0
    age: float = 1.0
    state: str = "device"
    loss: bool = True
    nonfinite: float = 0.0
    saved: float = 300.0
    saving: bool = True
    seconds: float = 1.5
    stuck: float = 0.0
    loop: str = "main"
    busy: float = 0.9

    def samples(self) -> Iterator[Sample]:
        """Yield the series of a training process."""
        of = {"loop": self.loop}
        yield from gauge(catalog.PROCESS_COUNT, self.processes)
        yield from count(catalog.STEPS, self.rate, **of)
        each = 60 / self.rate if self.rate else 0.0
        yield from observe(catalog.STEP_SECONDS, self.rate, each, **of)
        ageing = 0.0 if self.rate else 60.0
        yield from gauge(catalog.STEP_AGE_SECONDS, self.age, ageing, **of)
        yield from count(catalog.JIT_CALLS, self.rate, function="train.step")
        yield from count(catalog.JIT_CACHE_HITS, self.rate, function="train.step")
        took = self.seconds
        device = catalog.EXECUTION_SECONDS
        yield from observe(device, self.rate / 10, took, function="train.step")
        yield from gauge(
            catalog.PROGRAM_INFO, 1, function="train.step", fingerprint="a1"
        )
        yield from gauge(catalog.PROGRAM_DEVICES, self.processes, function="train.step")
        wall = catalog.WALL_SECONDS
        yield from count(wall, 60 * self.busy, state=self.state)
        yield from count(wall, 60 * (1 - self.busy), state="python")
        if self.stuck:
            age = catalog.CALL_AGE_SECONDS
            yield from gauge(age, self.stuck, 60.0, state=self.state)
        value, run = catalog.VALUE, catalog.VALUE_NONFINITE_RUN
        yield from gauge(value, 2.5, name="loss")
        yield from gauge(
            run, self.nonfinite, 0 if self.loss else self.rate, name="loss"
        )
        activity = {"activity": "checkpoint"}
        yield from gauge(catalog.ACTIVITY_AGE_SECONDS, self.saved, 60, **activity)
        if not self.saving:
            failures = catalog.CHECKPOINT_FAILURES
            yield from count(failures, 0.2, operation="save")


def stuck(age: float = STEP, **how: object) -> Training:
    """Return a loop that has made no step for *age* seconds."""
    return Training(rate=0.0, age=age, **how)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Memory(Doing):
    """
    Memory of a process and its container.

    Args:
        gib: resident.
        rise: GiB an hour.
        limit: of the container, in GiB.
        cache: page cache of the container that grows, in GiB an hour.
        kills: of the kernel, in this phase, an hour.
    """

    gib: float = 20.0
    rise: float = 0.0
    limit: float = 32.0
    cache: float = 0.0

    def samples(self) -> Iterator[Sample]:
        """Yield the series of memory."""
        rise = self.rise * GIB / 60
        used = rise + self.cache * GIB / 60
        resident, working = self.gib * GIB, (self.gib + 0.2) * GIB
        yield from gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES, resident, rise)
        yield from gauge(catalog.CONTAINER_MEMORY_USED_BYTES, working, used)
        yield from gauge(catalog.CONTAINER_MEMORY_WORKING_SET_BYTES, working, rise)
        yield from gauge(catalog.CONTAINER_MEMORY_LIMIT_BYTES, self.limit * GIB)
        yield from gauge(catalog.CONTAINER_OOM_KILLS, 0)


@dataclass(frozen=True)
class Device(Doing):
    """
    A GPU that a process uses.

    Args:
        uuid: of the GPU.
        index: in the process.
        errors: how often an operation runs out of its memory, a minute.
    """

    uuid: str
    index: str = "0"
    errors: float = 0.0

    def samples(self) -> Iterator[Sample]:
        """Yield the series of a device."""
        yield from gauge(
            catalog.DEVICE_INFO,
            1,
            device=self.index,
            platform="gpu",
            device_kind="NVIDIA H100 80GB HBM3",
            process_index="0",
            uuid=self.uuid,
            pci_bus_id="00000000:1B:00.0",
        )
        memory = catalog.DEVICE_MEMORY_BYTES
        for kind, gib in (("in_use", 40.0), ("limit", 60.0)):
            yield from gauge(memory, gib * GIB, device=self.index, kind=kind)
        failing = {"function": "serve.predict", "kind": "oom"}
        yield from count(catalog.ERRORS, self.errors, **failing)


@dataclass(frozen=True)
class Gpu(Doing):
    """
    A GPU as the sidecar of its host sees it.

    Args:
        uuid: of the GPU.
        up: whether it responds.
        xid: of errors that the driver reported, a minute.
        ecc: uncorrected errors a minute.
        action: what the driver wants to be done.
        busy: fraction of time.
    """

    uuid: str
    up: bool = True
    xid: str = ""
    xids: float = 0.0
    ecc: float = 0.0
    action: int = 0
    busy: float = 0.9

    def samples(self) -> Iterator[Sample]:
        """Yield the series of an accelerator."""
        of = {"uuid": self.uuid}
        yield from gauge(catalog.ACCELERATOR_UP, self.up, **of)
        yield from gauge(
            catalog.ACCELERATOR_INFO,
            1,
            **of,
            index="0",
            vendor="nvidia",
            model="NVIDIA H100 80GB HBM3",
            driver="570.86",
            pci_bus_id="00000000:1B:00.0",
        )
        if self.xid:
            yield from count(catalog.GPU_XID_ERRORS, self.xids, **of, xid=self.xid)
        if not self.up:
            return
        yield from gauge(catalog.ACCELERATOR_UTILIZATION_RATIO, self.busy, **of)
        yield from gauge(catalog.GPU_RECOVERY_ACTION, self.action, **of)
        scope = {"severity": "uncorrected", "scope": "volatile"}
        ecc = catalog.GPU_ECC_ERRORS
        # There from the start, at 0.
        yield Sample(
            ecc,
            ecc.name,
            tuple({**of, **scope}.items()),
            self.ecc / 2,
            counts=True,
        )


@dataclass(frozen=True)
class Collector(Doing):
    """A collector of the sidecar that fails, and how often agents time out a minute."""

    name: str = "nvml"
    timeouts: float = 0.0

    def samples(self) -> Iterator[Sample]:
        """Yield the series of a collector."""
        success = catalog.COLLECTOR_SUCCESS
        yield from gauge(success, not self.name, collector=self.name or "agents")
        reason = {"collector": "agents", "reason": "agent_timeout"}
        yield from count(catalog.COLLECTOR_ERRORS, self.timeouts, **reason)


@dataclass(frozen=True)
class Foreign(Doing):
    """The latency of a server without an agent, which writes bounds as integers."""

    rate: float = 60.0
    slow: float = 0.0

    def samples(self) -> Iterator[Sample]:
        """Yield the series of a metric that the site declares."""
        metric = catalog.REQUEST_SECONDS._replace(
            name="http_request_duration_seconds", labels=("handler",)
        )
        rise = self.rate / 2
        within = {"0.5": 1 - self.slow, "1": 1 - self.slow, "5": 1.0, "+Inf": 1.0}
        handler = (("handler", "/predict"),)
        for le, part in within.items():
            labels = (*handler, ("le", le))
            name = f"{metric.name}_bucket"
            yield Sample(metric, name, labels, rise * part, counts=True)
        for name in ("_count", "_sum"):
            yield Sample(metric, f"{metric.name}{name}", handler, rise, counts=True)
