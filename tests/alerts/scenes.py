"""The same facts twice: as the numbers of a process, and as series of Prometheus."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from jaxmon import catalog
from jaxmon.exposition.families import Family, gauge
from jaxmon.facts.process import read
from jaxmon.facts.status import HostVerdict, ProcessVerdict, Reason
from jaxmon.symptoms.findings import as_fact, find
from tests.helpers.findings import NO_MORE
from tests.helpers.sidecars import START, Worker, reading, status


WHERE = 'instance="a",worker="0",job="%s"'


class Scene(NamedTuple):
    """
    The same facts for both.

    Attributes:
        series: their values, with ``%s`` for the job.
        reasons: what is wrong, as the page has it.
        at: when they are compared, in seconds.
    """

    series: dict[str, str]
    reasons: tuple[Reason, ...]
    at: float = 3600


def constant(value: float) -> str:
    return f"{value:.15g}+0x70"


def counting(rate: float) -> str:
    """Return a counter that rises by *rate* a minute."""
    return f"0+{rate:.15g}x70"


def counted(found: dict[str, str], reasons: tuple[Reason, ...]) -> Scene:
    """Return the scene of counters of a process that counts all the time."""
    return Scene(
        {**found, f"jaxmon_counting_seconds{{{WHERE}}}": counting(60)}, reasons
    )


def reasons(
    *workers: Worker,
    extra: Iterable[Family] = (),
    overview: Any = None,
    events: Any = (),
    beside: Iterable[Any] = (),
) -> tuple[Reason, ...]:
    """Return the page's reasons for *workers*, an *overview* and a process *beside*."""
    verdict = HostVerdict()
    if overview is not None:
        snapshot = read({**NO_MORE, **overview}, {"events": events})
        found = tuple(map(as_fact, find(snapshot, [*map(read, beside)])))
        verdict = HostVerdict({"0": ProcessVerdict(findings=found)})
    return status(*workers, extra=extra, verdict=verdict).answer.reasons


def trained() -> Worker:
    worker = Worker()
    worker.steps(100, 0.1)
    return worker


def late_compiles(number: float) -> Scene:
    """So many compiles after the process was ready."""
    late = {"name": "train.step", "count": 1, "seconds": 0.1, "latest": 900.0}
    overview = {
        "process": {"observed_seconds": 3600.0, "now": 1000.0},
        "ready": {"since": 100.0, "announced": True, "compiles": [late] * int(number)},
    }
    name = f'jaxmon_compiles_after_ready_total{{{WHERE},function="train.step"}}'
    series = {name: f"0+0x9 {number:.0f}+0x60"}
    return counted(series, reasons(trained(), overview=overview))


def checkpoint(failed: float) -> Scene:
    worker = trained()
    before = reading(worker, at=START + 540)
    worker.set(catalog.CHECKPOINT_FAILURES, failed, "save")
    name = f'jaxmon_checkpoint_failures_total{{{WHERE},operation="save"}}'
    found = status(worker, before=before).answer.reasons
    return counted({name: counting(failed)}, found)


def crashed(died: float) -> Scene:
    extra = [gauge(catalog.AGENT_DIED, died, "1", "train")]
    name = f'jaxmon_agent_died{{{WHERE},loop="train"}}'
    return Scene({name: f"0+0x10 {died}+0x60"}, reasons(trained(), extra=extra))
