"""Outages of training: stuck and dead loops, evictions, lost hosts, checkpoints."""

from tests.alerts.outages.doing import (
    Device,
    Gpu,
    Requests,
    Training,
    stuck,
)
from tests.alerts.outages.outage import START, Collection, lasting_ticket, page, ticket
from tests.alerts.outages.world import Doing, Target, World


TRAINING = Collection()
outage = TRAINING.outage

_REST = 45.0
_LOOPS = {"pretrain": "main"}


def finish(pod: Target, lingers: float = 1.0) -> None:
    """Let a pod finish its program; its sidecar waits for a scrape, and is gone."""
    pod.run(lingers, finished=tuple(pod.workers))


@outage("Every rank is stuck in a collective", page(15, job="pretrain"), loops=_LOOPS)
def all_stuck(world: World, *, broken: bool) -> None:
    """The twin evaluates for a minute."""
    for pod in world.pods("pretrain", 4):
        pod.run(START, Training())
        if broken:
            pod.run(_REST, stuck())
        else:
            pod.run(1.0, stuck())
            pod.run(_REST - 1, Training())


@outage("Every pod of a run is evicted", page(15, job="pretrain"), loops=_LOOPS)
def run_evicted(world: World, *, broken: bool) -> None:
    """The twin comes to its end."""
    for pod in world.pods("pretrain", 4):
        pod.run(START, Training())
        if not broken:
            finish(pod)


@outage(
    "A training pod dies, and its sidecar with it half a minute later",
    page(15, job="pretrain"),
    loops=_LOOPS,
)
def pod_dies(world: World, *, broken: bool) -> None:
    """The twin's pod finishes."""
    pod = world.pod("pretrain", "pretrain-0")
    pod.run(START, Training(processes=1))
    if broken:
        pod.crash()
        pod.run(0.5, dead={"0": "main"})
    else:
        finish(pod, 0.5)


@outage(
    "A process of a run is killed on a host whose sidecar stays",
    page(15, job="pretrain"),
    loops=_LOOPS,
)
def killed_on_host(world: World, *, broken: bool) -> None:
    """The twin's processes finish one by one."""
    host = world.host("pretrain", "gpu-1", 4)
    host.run(START, Training())
    if broken:
        host.crash("2")
        host.run(_REST, stuck(), dead={"2": "main"})
    else:
        host.run(0.5, stuck(), finished=("2",))
        host.run(4.5, finished=tuple(host.workers))
        host.workers.clear()
        host.run(40)


@outage(
    "A run that is expected to run is evicted",
    page(15, job="expected"),
    loops={"expected": "main"},
    runs={"expected": 4},
)
def expected_run_evicted(world: World, *, broken: bool) -> None:
    """The twin ended well: it is expected no more."""
    for pod in world.pods("expected", 4):
        pod.run(START, Training())
        if not broken:
            finish(pod)


@outage(
    "An hourly job that is expected to run dies in its third hour",
    page(15, job="hourly"),
    loops={"hourly": "main"},
    runs={"hourly": 1},
    start=130.0,
    minutes=170.0,
)
def hourly_job_dies(world: World, *, broken: bool) -> None:
    """The twin finishes each time, and is not there in between."""
    for hour in range(3):
        pod = world.pod("hourly", f"hourly-{hour}", at=60.0 * hour)
        dies = broken and hour == 2
        pod.run(10 if dies else 20, Training(processes=1))
        if dies:
            pod.crash()
            pod.run(0.5, dead={"0": "main"})
        else:
            finish(pod)


@outage(
    "A host with eight of a run's sixteen GPUs is lost",
    page(15, job="pretrain"),
    loops=_LOOPS,
    tickets="TargetDown",
)
def host_lost(world: World, *, broken: bool) -> None:
    """The twin's host misses two scrapes."""
    for number in range(2):
        host = world.host("pretrain", f"gpu-{number}", 8)
        gpus = tuple(Gpu(f"GPU-{world.cluster}-{number}-{index}") for index in range(8))
        devices: dict[str, tuple[Doing, ...]] = {
            str(index): (Training(processes=16), Device(gpu.uuid))
            for index, gpu in enumerate(gpus)
        }
        host.run(START, others=devices, seen=gpus)
        if broken and number:
            host.fail(_REST)
        elif broken:
            waiting = {
                name: (stuck(processes=16), device)
                for name, (_, device) in devices.items()
            }
            host.run(_REST, others=waiting, seen=gpus)
        else:
            if number:
                host.fail(1.0)
            else:
                host.run(1.0, others=devices, seen=gpus)
            host.run(_REST - 1, others=devices, seen=gpus)


@outage(
    "A GPU that a run uses falls off the bus, and its process dies",
    page(10, job="pretrain"),
    lasting_ticket(30, uuid="GPU-.*-1"),
    minutes=120.0,
    loops=_LOOPS,
)
def gpu_lost(world: World, *, broken: bool) -> None:
    """The twin's GPU is reset after one scrape."""
    host = world.host("pretrain", "gpu-1", 2)
    gpus = tuple(Gpu(f"GPU-{world.cluster}-{index}") for index in range(2))
    steps = Training(processes=2)
    devices: dict[str, tuple[Doing, ...]] = {
        str(index): (steps, Device(gpu.uuid)) for index, gpu in enumerate(gpus)
    }
    host.run(START, others=devices, seen=gpus)
    lost = Gpu(gpus[1].uuid, up=False, xid="79", xids=2.0)
    gone = Gpu(gpus[1].uuid, up=False)
    if not broken:
        host.run(0.5, others=devices, seen=(gpus[0], gone))
        host.run(89.5, others=devices, seen=gpus)
        return
    waits = {"0": (stuck(processes=2), Device(gpus[0].uuid))}
    host.run(0.5, others=devices, seen=(gpus[0], lost))
    host.crash("1")
    host.run(89.5, others=waits, dead={"1": "main"}, seen=(gpus[0], gone))


@outage(
    "A run has not been saved for six hours",
    ticket(20, job="pretrain"),
    minutes=60.0,
    start=15.0,
    loops=_LOOPS,
)
def not_saved(world: World, *, broken: bool) -> None:
    """The twin was saved five minutes ago."""
    age = 6 * 3600 - 15 * 60.0 if broken else 300.0
    for pod in world.pods("pretrain", 2):
        pod.run(60, Training(processes=2, saved=age))


@outage("Saves fail", ticket(20, job="pretrain"), loops=_LOOPS)
def saves_fail(world: World, *, broken: bool) -> None:
    """The twin's succeed."""
    for pod in world.pods("pretrain", 2):
        pod.run(START, Training(processes=2))
        pod.run(_REST, Training(processes=2, saving=not broken))


@outage("The loss is NaN from one step on", page(10, job="pretrain"), loops=_LOOPS)
def loss_is_nan(world: World, *, broken: bool) -> None:
    """A single loss of the twin is NaN."""
    for pod in world.pods("pretrain", 2):
        pod.run(START, Training(processes=2))
        if broken:
            pod.run(_REST, Training(processes=2, loss=False, nonfinite=15.0))
        else:
            pod.run(0.5, Training(processes=2, nonfinite=1.0))
            pod.run(_REST - 0.5, Training(processes=2))


@outage(
    "Every process of a service runs out of device memory",
    page(10, job="web"),
    tickets="OutOfMemory|DeviceMemoryHigh",
)
def out_of_memory(world: World, *, broken: bool) -> None:
    """One process of the twin runs out of it, for a minute, and restarts."""
    for number, pod in enumerate(world.pods("web", 4)):
        device = Device(f"GPU-{world.cluster}-{number}")
        failing = Device(device.uuid, errors=4.0)
        pod.run(START, Requests(), device)
        pod.run(
            _REST, Requests(error=0.2 if broken else 0.0), failing if broken else device
        )


@outage(
    "The GPU of one of ten replicas is lost",
    page(15, job="web"),
    ticket(15, uuid="GPU-.*-0"),
)
def gpu_of_one_replica(world: World, *, broken: bool) -> None:
    """The twin's GPU is there."""
    for number, pod in enumerate(world.pods("web", 10)):
        gpu = Gpu(f"GPU-{world.cluster}-{number}")
        lost = Gpu(gpu.uuid, up=False, xid="79", xids=0.0)
        pod.run(START, Requests(), Device(gpu.uuid), seen=(gpu,))
        fails = broken and not number
        does = Requests(error=1.0) if fails else Requests()
        pod.run(_REST, does, Device(gpu.uuid), seen=(lost if fails else gpu,))
