"""Jobs that use NCCL, and what the collector exports of them."""

from collections.abc import Callable

from jaxmon_exporter.collectors.nccl import Nccl
from jaxmon_exporter.polling import Poller
from tests.fakes.nccl.jobs import Job, job


def at_once(least: int, _: int) -> int:
    """Return the least, and no pause at first."""
    return 0 if least < 2 else least


def never(_: int, __: int) -> int:
    """Return no pause at all."""
    return 0


def poller(address: str, chance: Callable[[int, int], int] = never, **more) -> Poller:
    """Return the poller of a collector that waits for nothing."""
    return Poller(Nccl(address, chance=chance, **more))


def values(polled: Poller) -> dict[str, float]:
    """Poll, and return every series of the metrics of the job."""
    polled.poll()
    assert polled.status().success, polled.status().message
    found = {name: value for one in polled.families() for name, value in one.samples}
    return {
        name.removeprefix("jaxmon_nccl_"): value
        for name, value in found.items()
        if "_age_" not in name
    }


def expected(job: Job, **stuck: float) -> dict[str, float]:
    """Return what the model of a job holds, counted without replies."""
    found = {f'info{{version="{job.version}",cuda="12.8",driver="13.0"}}': 1.0}
    troubles = [*job.processes().values()]
    for state, trouble in (("responding", ""), ("unresponsive",) * 2, ("dead",) * 2):
        found[f'processes{{state="{state}"}}'] = troubles.count(trouble)
    found["gpus"] = len({(one.host, one.pid) for one in job.every()})
    found["nodes"] = len({one.host for one in job.every()})
    levels = [max(one.levels) for one in job.communicators]
    states = ("unknown", "init", "running", "finalize", "abort")
    for level, state in enumerate(states):
        found[f'communicators{{state="{state}"}}'] = levels.count(level)
    for kind in ("mismatch", "error", "incomplete"):
        count = sum(kind.upper() in one.errors for one in job.communicators)
        found[f'faulty_communicators{{kind="{kind}"}}'] = count
    found['faulty_communicators{kind="stuck"}'] = stuck.get("communicators", 0)
    found["lagging_ranks"] = stuck.get("ranks", 0)
    found["collection_seconds"] = 0.25
    found["collection_timeouts"] = job.timeouts
    return found


def healthy() -> Job:
    return job(4, 8, communicators=3)


def initialising() -> Job:
    made = healthy()
    for one in made.communicators[1].members:
        one.init = 7
    return made


def ending() -> Job:
    made = healthy()
    for one in made.communicators[0].members[:2]:
        one.finalize = True
    for one in made.communicators[0].members[6:]:
        one.trouble = "left"
    return made


def aborted() -> Job:
    made = healthy()
    made.communicators[2].members[5].abort = True
    return made


def failed() -> Job:
    made = healthy()
    made.communicators[1].members[9].error = 2
    return made


def unlike() -> Job:
    made = job(3, 4)
    del made.communicators[0].members[-1]
    made.timeouts = 2
    return made


def lossy() -> Job:
    made = healthy()
    for each_ in made.communicators:
        each_.members[3].trouble = "dead"
        for one in each_.members[16:24]:
            one.trouble = "unresponsive"
    return made
