"""The status of a host, or of one process, out of its latest reading."""

from __future__ import annotations

from collections.abc import Sequence

from jaxmon import catalog
from jaxmon.limits import Limits
from jaxmon.report.status.answer import Known, answer
from jaxmon.report.status.functions import MOST, errors, functions, shown, totals
from jaxmon.report.status.hardware import accelerators, devices
from jaxmon.report.status.model import CollectorSummary, FindingsSummary, Summary
from jaxmon.report.status.processes import processes
from jaxmon.report.status.reading import Reading
from jaxmon.report.status.recent import YOUNG, Recent
from jaxmon.report.status.traffic import batches, queues, requests
from jaxmon.report.status.training import loops
from jaxmon.report.status.verdicts import UNREAD, HostVerdict
from jaxmon.settings import RUNBOOKS


def summarise(  # noqa: PLR0913 - what a status consists of
    now: Reading,
    before: Reading | None = None,
    *,
    young: float = YOUNG,
    version: str = "",
    whole: bool = True,
    run_dir: str = "",
    verdict: HostVerdict = UNREAD,
    collectors: Sequence[CollectorSummary] = (),
    limits: Limits | None = None,
) -> Summary:
    """
    Return the status as of *now*.

    Args:
        now: the latest reading.
        before: the one to compare it with, of about a minute ago; without it, nothing
            is known of the last minute of processes older than that.
        young: age in seconds up to which all that a process did is recent.
        version: of jaxmon.
        whole: whether it is of all processes of a host.
        run_dir: where the agents are.
        verdict: the findings on them.
        collectors: of the sidecar.
        limits: by which it is judged; the defaults if `None`.
    """
    uptimes = now.of(catalog.UPTIME_SECONDS)
    verdict = verdict.current({worker: value for (worker,), value in uptimes.items()})
    recent = Recent(now, before, young=young)
    every = functions(now)
    known = Known(
        now=now,
        recent=recent,
        requests=requests(now, recent),
        loops=loops(now, recent),
        agents=processes(now, verdict.processes),
        devices=devices(now),
        accelerators=accelerators(now),
        limits=limits or Limits(),
    )
    return Summary(
        version=version,
        time=now.time,
        whole=whole,
        run_dir=run_dir,
        answer=answer(known, verdict),
        requests=list(known.requests),
        queues=queues(now),
        batches=batches(now, recent),
        loops=list(known.loops),
        errors=errors(now),
        totals=totals(every),
        functions=shown(every),
        functions_omitted=max(len(every) - MOST, 0),
        agents=list(known.agents),
        findings=FindingsSummary(
            shared=verdict.shared,
            age=verdict.age,
            trouble=verdict.trouble,
            runbooks=RUNBOOKS,
        ),
        accelerators=list(known.accelerators),
        devices=list(known.devices),
        collectors=list(collectors),
    )
