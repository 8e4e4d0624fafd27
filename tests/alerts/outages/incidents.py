"""Outages from public reports on model servers and training clusters."""

from tests.alerts.outages.doing import (
    IDLE,
    Device,
    Gpu,
    Memory,
    Requests,
    Training,
    hung,
    stuck,
)
from tests.alerts.outages.outage import START, Collection, lasting_ticket, page, ticket
from tests.alerts.outages.training import finish
from tests.alerts.outages.world import Doing, World


INCIDENTS = Collection()
outage = INCIDENTS.outage

_REST = 45.0
_LOOPS = {"pretrain": "main"}
_ROUTE = {"job": "web", "route": "/generate"}


@outage(
    "The engine of a server dies silently; its front end accepts requests",
    page(15, **_ROUTE),
    source="https://github.com/vllm-project/vllm/issues/39863",
)
def engine_dies(world: World, *, broken: bool) -> None:
    """Callers give up after two minutes; the twin's get answers."""
    for pod in world.pods("web", 1):
        pod.run(START, Requests(seconds=0.15))
        if broken:
            pod.run(2.0, hung())
            pod.run(_REST - 2, hung(wait=120.0))
        else:
            pod.run(_REST, Requests(seconds=0.15))


@outage(
    "A proxy keeps a deadlocked backend in rotation for 85 minutes; requests end "
    "after 120 s",
    page(20, **_ROUTE),
    ticket(20, job="web", pod="web-0"),
    minutes=115.0,
    source="https://github.com/azrtydxb/Fastllm-proxy/issues/19",
)
def dead_backend(world: World, *, broken: bool) -> None:
    """One of four backends; the twin's has a lull."""
    first, *others = world.pods("web", 4)
    for pod in others:
        pod.run(115, Requests())
    first.run(START, Requests())
    if broken:
        first.run(2.0, hung())
        first.run(83.0, hung(wait=120.0))
    else:
        first.run(85.0, Requests(rate=10.0))


@outage(
    "Cancelled requests leave one replica after another stuck",
    page(45, **_ROUTE),
    ticket(25, job="web", pod="web-0"),
    minutes=90.0,
    source="https://github.com/ray-project/ray/issues/44644",
)
def stuck_one_by_one(world: World, *, broken: bool) -> None:
    """Five of eight replicas, ten minutes apart; those of the twin cancel in time."""
    for number, pod in enumerate(world.pods("web", 8)):
        after = START + 10.0 * number
        if broken and after < 80:
            pod.run(after, Requests())
            pod.run(90 - after, hung())
        else:
            pod.run(90, Requests(left=0.05, wait=1.0))


@outage(
    "A replica passes its health check and serves none; its callers time out at 60 s",
    page(20, **_ROUTE),
    ticket(20, job="web", pod="web-0"),
    source="https://github.com/ray-project/ray/issues/61263",
)
def half_alive(world: World, *, broken: bool) -> None:
    """One of six replicas; the twin's is slow for two minutes."""
    first, *others = world.pods("web", 6)
    for pod in others:
        pod.run(START + _REST, Requests())
    first.run(START, Requests())
    if broken:
        first.run(_REST, hung(wait=60.0))
    else:
        first.run(2.0, Requests(seconds=0.7))
        first.run(_REST - 2, Requests())


@outage(
    "A server stops answering at full load; requests pile up until memory is full",
    page(15, **_ROUTE),
    tickets="HostMemory",
    minutes=90.0,
    source="https://github.com/triton-inference-server/server/issues/7649",
)
def pile_up(world: World, *, broken: bool) -> None:
    """Killed after forty minutes; the twin works through its queue."""
    pod = world.pod("web", "web-0")
    pod.run(START, Requests(), Memory(10.0))
    if broken:
        pod.run(40.0, hung(), Memory(10.0, rise=33.0))
        pod.restart()
        pod.run(20.0, Requests(), Memory(10.0))
    else:
        pod.run(3.0, Requests(rate=50.0, busy_rise=10.0), Memory(10.0, rise=5.0))
        pod.run(57.0, Requests(rate=65.0), Memory(10.2))


@outage(
    "The memory of a server rises with every request, for days",
    ticket(120, job="web", pod="web-0"),
    minutes=210.0,
    slow=True,
    source="https://github.com/triton-inference-server/server/issues/3954",
)
def leaks(world: World, *, broken: bool) -> None:
    """A tenth of the limit in three hours, six hours before the end."""
    pod = world.pod("web", "web-0")
    pod.run(START, Requests(), Memory(22.0))
    pod.run(180.0, Requests(), Memory(22.0, rise=1.1 if broken else 0.0))


@outage(
    "After a restart no pod gets beyond its init container; the service is ready",
    page(15, job="web"),
    tickets="TargetDown",
    source="https://github.com/kserve/kserve/issues/1859",
)
def never_starts(world: World, *, broken: bool) -> None:
    """The twin's pods are back after two minutes."""
    for number in range(2):
        old = world.pod("web", f"web-a{number}")
        old.run(START, Requests())
        old.run(1.0, finished=("0",))
        new = world.pod("web", f"web-b{number}", at=START + 1)
        if broken:
            # Its main container never runs; discovery knows the port.
            new.fail(_REST - 1)
        else:
            new.fail(1.0)
            new.run(0.5, IDLE)
            new.run(_REST - 2.5, Requests())


@outage(
    "One rank stays alive and enters no collective; the others wait for ever",
    page(15, job="pretrain"),
    ticket(15, job="pretrain", instance="gpu-1:9467"),
    loops=_LOOPS,
    tickets="RankStuck|NcclStuck",
    source="https://github.com/jax-ml/jax/issues/38503",
)
def one_rank_stuck(world: World, *, broken: bool) -> None:
    """The twin's rank is late by half a minute."""
    for number in range(4):
        host = world.host("pretrain", f"gpu-{number}", 1)
        host.run(START, Training())
        state = "python" if number == 1 else "device"
        if broken:
            host.run(_REST, stuck(state=state, stuck=30.0))
        else:
            host.run(0.5, stuck(state=state))
            host.run(_REST - 0.5, Training())


@outage(
    "A worker's pod is preempted; the others wait in NCCL for half an hour",
    page(15, job="pretrain"),
    loops=_LOOPS,
    source="https://github.com/pytorch/pytorch/issues/111646",
)
def preempted(world: World, *, broken: bool) -> None:
    """The twin restarts all of its pods, within three minutes."""
    first, *others = world.pods("pretrain", 4)
    first.run(START, Training())
    for pod in others:
        pod.run(START, Training())
        if broken:
            pod.run(30.0, stuck())
        else:
            pod.run(1.5, stuck())
            pod.restart(crashed=False)
            pod.run(_REST - 1.5, Training())
    if not broken:
        first.vanish(2.0)
        first.renew()
        first.run(_REST - 2, Training())


@outage(
    "HBM errors end a run on sixteen hosts, and its restart lands on the same host",
    page(15, job="pretrain"),
    lasting_ticket(15, uuid="GPU-.*"),
    minutes=120.0,
    loops=_LOOPS,
    tickets="GpuXid|GpuEcc|GpuNeedsReset",
    source="https://direct.datacenterdynamics.com/en/news/meta-report-details-hundreds-of-gpu-and-hbm3-related-interruptions-to-llama-3-training-run",
)
def hbm_errors(world: World, *, broken: bool) -> None:
    """Four hosts stand for sixteen; the twin's run is restarted once, for an update."""
    for number in range(4):
        host = world.host("pretrain", f"gpu-{number}", 1)
        gpu = Gpu(f"GPU-{world.cluster}-{number}")
        does: tuple[Doing, ...] = (Training(), Device(gpu.uuid))
        host.run(START, *does, seen=(gpu,))
        if not broken:
            host.run(2.0, finished=("0",), seen=(gpu,))
            host.restart(crashed=False)
            host.run(88.0, *does, seen=(gpu,))
            continue
        bad = Gpu(gpu.uuid, xid="95", xids=2.0, ecc=4.0) if not number else gpu
        host.crash()
        host.run(5.0, dead={"0": "main"}, seen=(bad,))
        host.restart(crashed=False)
        host.run(3.0, *does, seen=(gpu,))
        host.crash()
        host.run(82.0, dead={"0": "main"}, seen=(gpu,))


@outage(
    "Five hosts of a run go down at once",
    page(15, job="pretrain"),
    loops=_LOOPS,
    tickets="TargetDown",
    source="https://github.com/facebookresearch/metaseq/blob/main/projects/OPT/chronicles/56_percent_update.md",
)
def five_hosts_down(world: World, *, broken: bool) -> None:
    """Five of eight; the twin is moved to other hosts within three minutes."""
    for number in range(8):
        host = world.host("pretrain", f"gpu-{number}", 1)
        steps = Training(processes=8)
        host.run(START, steps)
        if broken and number < 5:
            host.fail(_REST)
        elif broken:
            host.run(_REST, stuck(processes=8))
        else:
            host.run(1.0, finished=("0",))
            host.vanish(2.0)
            host.renew()
            host.run(_REST - 3, steps)


@outage(
    "A node of an elastic run crashes; the rest hangs for eight hours, unnoticed",
    page(15, job="pretrain"),
    loops=_LOOPS,
    source="https://github.com/pytorch/pytorch/issues/76287",
)
def hangs_after_crash(world: World, *, broken: bool) -> None:
    """All of the twin's pods finish."""
    first, *others = world.pods("pretrain", 4)
    first.run(START, Training())
    if not broken:
        finish(first)
    for pod in others:
        pod.run(START, Training())
        if broken:
            pod.run(_REST, stuck())
        else:
            finish(pod)
