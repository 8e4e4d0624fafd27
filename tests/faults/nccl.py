"""Rows about the RAS of a job that uses NCCL, and the files of Inspector."""

import os

from tests.fakes.nccl.inspector import Rank, Writer
from tests.fakes.nccl.jobs import job
from tests.fakes.nccl.server import Ras, ras
from tests.faults.matrix import Area
from tests.faults.stage import Sidecar, Stage, errors, success


AREA = Area("NCCL")
RESPONDING = 'jaxmon_nccl_processes{state="responding"}'
BEHIND = "jaxmon_nccl_lagging_ranks"
COLLECTIVES = (
    'jaxmon_nccl_collectives_total{worker="other",collective="AllReduce",'
    'size="under_256MiB"}'
)


def sidecar_of(stage: Stage, served: Ras) -> Sidecar:
    disabled = ("--disable", "host", "--disable", "nvml", "--disable", "gpm")
    return stage.sidecar(
        *disabled, "--nccl-interval", "0.2", environ={"NCCL_RAS_ADDR": served.address}
    )


def whole(sidecar: Sidecar) -> bool:
    page = sidecar.page()
    return page.get(RESPONDING) == 16 and page.get(BEHIND) == 0


@AREA.row("the job ends", quick=True)
def ended(stage: Stage) -> None:
    with ras(job(2, 8)) as served:
        sidecar = sidecar_of(stage, served)
        stage.until(lambda: whole(sidecar), "the figures")
    stage.shows(lambda: success(sidecar.page(), "nccl") == 0, "nccl success 0")
    found = sidecar.collector("nccl")
    stage.expect(found["reason"] == "no_job", "reason no_job")
    stage.expect(found["absent"], "shown as not present")
    stage.expect(RESPONDING not in sidecar.page(), "its series gone")
    stage.expect(success(sidecar.page(), "agents") == 1, "agents success 1")


@AREA.row("a rank is stuck, and a process dies")
def stuck(stage: Stage) -> None:
    made = job(2, 8)
    late, dead = made.communicators[0].members[3:5]
    with ras(made) as served:
        sidecar = sidecar_of(stage, served)
        stage.until(lambda: whole(sidecar), "the figures")
        late.counts, dead.trouble = [0, 0, 7, 7, 38], "dead"
        lag = f'jaxmon_nccl_rank_lag{{host="{late.host}",rank="3"}}'
        stage.shows(lambda: sidecar.page().get(lag) == 2, "rank 3 is 2 behind")
        missing = f'jaxmon_nccl_missing_processes{{host="{dead.host}"}}'
        stage.expect(sidecar.page()[missing] == 1, "the host of the dead process")
        late.counts, dead.trouble = [0, 0, 7, 7, 40], ""
        stage.recovers(lambda: whole(sidecar))


@AREA.row("does not respond")
def silent(stage: Stage) -> None:
    with ras(job(2, 8)) as served:
        sidecar = sidecar_of(stage, served)
        stage.until(lambda: whole(sidecar), "the figures")
        served.silent = True
        stage.shows(lambda: success(sidecar.page(), "nccl") == 0, "nccl success 0")
        found = sidecar.collector("nccl")["reason"]
        stage.expect(found == "timeout", "reason timeout")
        stage.expect(RESPONDING not in sidecar.page(), "its series gone")
        stage.expect(success(sidecar.page(), "agents") == 1, "agents success 1")
        served.silent = False
        stage.recovers(lambda: whole(sidecar))


@AREA.row("a process floods its file of Inspector with garbage")
def flooded(stage: Stage) -> None:
    directory = stage.directory / "inspector"
    directory.mkdir()
    host, rank = os.uname().nodename, Rank()
    writers = [Writer(directory, host, pid) for pid in (7, 8)]
    for writer in writers:
        stage.later(writer.close)
    sidecar = stage.sidecar(
        *("--disable", "host", "--disable", "nvml", "--disable", "gpm"),
        *("--nccl-inspector-interval", "0.2"),
        environ={"NCCL_INSPECTOR_DUMP_DIR": str(directory)},
    )

    def recorded() -> float:
        writers[0].launch(rank)
        writers[0].flush()
        return sidecar.page().get(COLLECTIVES, 0)

    stage.until(lambda: recorded() > 0, "the figures")
    for _ in range(8):
        writers[1].raw(b"{" * 1000 + b"\n" + b"x" * (6 << 20))
        recorded()
    stage.shows(
        lambda: errors(sidecar.page(), "nccl_inspector", "behind") > 0, "behind counted"
    )
    before = recorded()
    stage.shows(lambda: recorded() > before, "those of the other process count")
    stage.expect(success(sidecar.page(), "nccl_inspector") == 1, "success 1")
    megabytes = sidecar.resident_bytes() >> 20
    stage.expect(megabytes < 80, "resident memory below 80 MB")
    stage.expect(success(sidecar.page(), "agents") == 1, "agents success 1")
