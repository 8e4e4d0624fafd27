"""Outages of machines and of what watches them: memory, GPUs, sidecars, Prometheus."""

from tests.alerts.outages.doing import Collector, Gpu, Memory, Requests, Training
from tests.alerts.outages.outage import (
    START,
    Collection,
    Notice,
    lasting_ticket,
    ticket,
)
from tests.alerts.outages.world import World


MACHINES = Collection()
outage = MACHINES.outage

_REST = 45.0


@outage(
    "Host memory grows by 3 % an hour, until the kernel kills the process",
    ticket(90, job="web", pod="web-0"),
    minutes=210.0,
    slow=True,
)
def memory_grows(world: World, *, broken: bool) -> None:
    """The twin's memory grows for half an hour, and its page cache for ever."""
    pod = world.pod("web", "web-0")
    if not broken:
        pod.run(30, Requests(), Memory(24.0, rise=4.0))
        pod.run(180, Requests(), Memory(26.0, cache=1.5))
        return
    # 32 GiB less 29 at 0.96 an hour: killed after 187 minutes.
    pod.run(START, Requests(), Memory(29.0))
    pod.run(178, Requests(), Memory(29.0, rise=0.96))
    pod.crash()
    pod.run(0.5, dead={"0": ""})
    pod.restart(crashed=False)
    pod.run(1.5, Requests(), Memory(8.0))


@outage(
    "A GPU has uncorrectable errors, and waits for a reset for hours",
    lasting_ticket(15, uuid="GPU-.*"),
    minutes=120.0,
    tickets="GpuXid|GpuEcc|GpuNeedsReset",
)
def ecc_errors(world: World, *, broken: bool) -> None:
    """The twin's GPU has none."""
    host = world.host("nodes", "gpu-1", 0)
    uuid = f"GPU-{world.cluster}"
    host.run(START, seen=(Gpu(uuid),))
    if broken:
        host.run(0.5, seen=(Gpu(uuid, xid="48", xids=2.0, ecc=2.0),))
        host.run(89.5, seen=(Gpu(uuid),))
    else:
        host.run(90, seen=(Gpu(uuid),))


@outage(
    "A GPU that no job uses falls off the bus, and nothing else happens",
    lasting_ticket(10, uuid="GPU-.*"),
    minutes=120.0,
    tickets="AcceleratorLost|GpuXid",
)
def unused_gpu_lost(world: World, *, broken: bool) -> None:
    """The twin's GPU is idle."""
    host = world.host("nodes", "gpu-1", 0)
    gpus = tuple(Gpu(f"GPU-{world.cluster}-{index}") for index in range(2))
    host.run(START, seen=gpus)
    if broken:
        uuid = gpus[1].uuid
        host.run(0.5, seen=(gpus[0], Gpu(uuid, up=False, xid="79", xids=2.0)))
        host.run(89.5, seen=(gpus[0], Gpu(uuid, up=False)))
    else:
        host.run(90, seen=gpus)


@outage(
    "One of five sidecars no longer responds",
    ticket(8, job="web", instance="web-0:9467"),
)
def sidecar_lost(world: World, *, broken: bool) -> None:
    """The twin's misses two scrapes."""
    first, *others = world.pods("web", 5)
    for pod in others:
        pod.run(START + _REST, Requests())
    first.run(START, Requests())
    first.fail(_REST if broken else 1.0)
    if not broken:
        first.run(_REST - 1, Requests())


@outage(
    "One of five agents no longer answers its sidecar",
    ticket(15, job="web", pod="web-0"),
    tickets="AgentSilent|CollectorDown",
)
def agent_silent(world: World, *, broken: bool) -> None:
    """The twin's agents answer."""
    first, *others = world.pods("web", 5)
    for pod in others:
        pod.run(START + _REST, Requests())
    first.run(START, Requests())
    if not broken:
        first.run(_REST, Requests())
        return
    first.run(_REST, dead={"0": None}, seen=(Collector("", timeouts=20.0),))


@outage(
    "The driver of a host's GPUs no longer responds",
    ticket(20, instance="gpu-1:9467"),
    loops={"pretrain": "main"},
)
def driver_hangs(world: World, *, broken: bool) -> None:
    """The twin's collector fails for a minute."""
    host = world.host("pretrain", "gpu-1", 1)
    steps = Training(processes=1)
    host.run(START, steps)
    failing = (Collector("nvml"),)
    host.run(_REST if broken else 1.0, steps, seen=failing)
    if not broken:
        host.run(_REST - 1, steps)


@outage(
    "Nothing at all is scraped, or Alertmanager gets no alerts",
    Notice("watchdog", 5),
    start=0.0,
    minutes=10.0,
)
def watchdog(world: World, *, broken: bool) -> None:
    """An alert that always fires is missed when it ends, by its own receiver."""
    assert world.minutes, broken
