"""jaxmon itself: whether it works, and what it costs."""

from __future__ import annotations

from jaxmon import catalog, promql
from jaxmon.artifacts.dashboards import hardware
from jaxmon.artifacts.dashboards import queries as q
from jaxmon.artifacts.dashboards.kinds import line, row, stat, timeseries
from jaxmon.artifacts.dashboards.model import Row, Target
from jaxmon.artifacts.dashboards.rows import now
from jaxmon.artifacts.overviews import functions, processes
from jaxmon.artifacts.slo import Slos
from jaxmon.promql import Expr, call, counter, eq, events, gauge, histogram
from jaxmon.promql.expressions import RANGE


_ZERO = call("vector", promql.number(0))
_HOST, _NAMED = ("job", "instance"), "{{job}} {{instance}}"


def glance(slos: Slos, *, runbooks: str = "") -> Row:
    """Return whether the data on all boards can be trusted."""
    silent = gauge(catalog.AGENT_UP, *q.PROCESS).equals(0)
    inactive = processes.INACTIVE_HOOKS(*q.PROCESS)
    oldest = hardware.host(catalog.COLLECTOR_AGE_SECONDS).max()
    failed = events.INTERNAL_ERRORS.within(RANGE, *q.PROCESS)
    dropped = counter(catalog.DROPPED, *q.PROCESS).rate().sum()
    scrape = histogram(catalog.SCRAPE_SECONDS, *q.PROCESS).quantile(0.99)
    return row(
        44,
        "Can the data be trusted?",
        line(
            now.oncall(slos, runbooks).panel("Targets down"),
            stat(
                4401,
                Target(silent.count().or_(_ZERO), "Agents silent", q.above(1)),
                text="Slots whose process does not respond to its sidecar.",
            ),
            stat(
                4402,
                Target(inactive.count().or_(_ZERO), "Hooks inactive", q.above(1)),
                text=(
                    "Hooks that could not attach or disabled themselves, in all "
                    "processes. Their metrics are missing."
                ),
            ),
            stat(
                4403,
                Target(oldest, "Oldest data", q.above(60, 300)),
                text="Age of the oldest data that a sidecar serves.",
                no_value="No sidecar",
            ),
            stat(
                4404,
                Target(failed.sum().or_(_ZERO), "Own failures", q.above(1)),
                text=(
                    "Contained failures of jaxmon's own code in the selected time "
                    "range. Please report them."
                ),
            ),
            stat(
                4405,
                Target(q.per_minute(dropped), "Dropped"),
                text="Items that jaxmon dropped per minute to stay within its limits.",
            ),
            stat(
                4406,
                Target(q.known(scrape), "Scrape p99"),
                text="Time to collect and encode a response, of the slowest scrapes.",
            ),
            stat(
                4407,
                Target(_of_sidecars(_cpu()).max(), "Sidecar CPU", q.above(0.2, 1)),
                text="CPU of the busiest sidecar; 100 % is one core.",
                no_value="No sidecar",
            ),
            height=4,
        ),
    )


def cost() -> Row:
    """Return what agents and sidecars take from the machines they run on."""
    memory = gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES, *q.HOST, eq("worker", ""))
    programs = functions.PROGRAMS(*q.PROCESS).max(*q.BY_PROCESS)
    ended = gauge(catalog.AGENT_ENDED_SECONDS, *q.PROCESS).count(*_HOST)
    return row(
        45,
        "What jaxmon costs",
        line(
            timeseries(
                4501,
                "CPU of sidecars",
                Target(_of_sidecars(_cpu()).worst(10), _NAMED),
                text=(
                    "CPU of the busiest sidecars; 100 % is one core. It grows with "
                    "the agents and devices of the host, and with the scrapes."
                ),
                no_value="No sidecar",
            ),
            timeseries(
                4502,
                "Memory of sidecars",
                Target(_of_sidecars(memory.max(*_HOST)).worst(10), _NAMED),
                text="Resident memory of the largest sidecars.",
                no_value="No sidecar",
            ),
            timeseries(
                4503,
                "Processes with most functions",
                Target(programs.worst(10), q.NAMED_PROCESS),
                text=(
                    "Functions that a process reports. Most of its series are theirs; "
                    "`max_functions` bounds them."
                ),
            ),
            timeseries(
                4504,
                "Ended processes still served",
                Target(ended.worst(10), _NAMED),
                text=(
                    "Slots whose process has ended, and whose counts a sidecar serves "
                    "for five minutes, or until the next process adds to them."
                ),
                no_value="None ended recently",
            ),
        ),
    )


def _cpu() -> Expr:
    # What sidecars relay has a worker.
    own = counter(catalog.PROCESS_CPU_SECONDS, *q.HOST, eq("worker", ""))
    return own.rate().max(*_HOST)


def _of_sidecars(expr: Expr) -> Expr:
    return expr.and_(gauge(catalog.COLLECTOR_SUCCESS, *q.HOST).max(*_HOST), *_HOST)
