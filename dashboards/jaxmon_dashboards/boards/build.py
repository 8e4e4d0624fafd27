"""Every dashboard: its rows, as a site sees it, and as files."""

from __future__ import annotations

import warnings

from jaxmon_alerts import slo
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards.header import EVENTS, SERVICES, SUMMARY, VARIABLES
from jaxmon_dashboards.boards.model import Dashboard
from jaxmon_dashboards.boards.options import DashboardOptions, Format
from jaxmon_dashboards.boards.rows import (
    accelerators,
    calls,
    checks,
    compiles,
    devices,
    errors,
    executive,
    fleet,
    functions,
    gpus,
    memory,
    monitoring,
    now,
    processes,
    programs,
    ranks,
    requests,
    runs,
    services,
    training,
    transfers,
)
from jaxmon_dashboards.boards.rows import (
    devices as tpus,
)
from jaxmon_dashboards.boards.rows import (
    processes as replicas,
)
from jaxmon_dashboards.boards.rows import (
    training as goodput,
)
from jaxmon_dashboards.boards.site import localized


def all_dashboards(options: DashboardOptions | None = None) -> tuple[Dashboard, ...]:
    """
    Return every dashboard, as the site in the options sees it.

    Raises:
        SloError: the file with the objectives is invalid.
    """
    options = options or DashboardOptions()
    slos = slo.load(options.slo)
    boards = _boards(slos, options.at(slos.site).runbooks)
    return tuple(localized(one, slos.site) for one in boards)


def render_all(
    options: DashboardOptions | None = None, form: Format = "classic"
) -> dict[str, str]:
    """
    Return Grafana's JSON of every dashboard, in the model *form*, by file name.

    Needs grafana-foundation-sdk, which the extra ``dashboards`` brings.

    Raises:
        SloError: the file with the objectives is invalid.
    """
    with warnings.catch_warnings():
        # The SDK announces at import that the classic model is not its latest; it is
        # the one that every Grafana from 10.4 on accepts.
        warnings.simplefilter("ignore", DeprecationWarning)
        # A fifth of a second and 20 MiB, which the models alone do without.
        from jaxmon_dashboards.boards.render import render  # noqa: PLC0415

    options = options or DashboardOptions()
    options = options.at(slo.load(options.slo).site)
    return {
        f"{one.uid.removeprefix('jaxmon-')}.json": render(one, options, form)
        for one in all_dashboards(options)
    }


def _boards(slos: Slos, runbooks: str) -> tuple[Dashboard, ...]:
    """
    Return all dashboards: which rows each has, and for whom.

    Args:
        slos: objectives and limits.
        runbooks: URL to which a runbook's file name is appended.
    """
    return (
        # For those who answer for services: are they good, and at what price.
        Dashboard(
            uid="jaxmon-executive",
            title="jaxmon / Executive",
            description=(
                "Whether services keep their objectives, how fast they are, what "
                "they cost, and how that compares with last week. Requires jaxmon's "
                "recording rules."
            ),
            since="now-7d",
            variables=SERVICES,
            annotations=SUMMARY,
            rows=(
                executive.glance(slos),
                executive.quality(slos),
                now.budgets(slos),
                executive.cost(),
            ),
        ),
        # What someone on call needs: what is wrong, since when, for whom, what next.
        Dashboard(
            uid="jaxmon-oncall",
            title="jaxmon / On-call",
            description=(
                "What is wrong, since when, who is affected, and where to look."
            ),
            since="now-3h",
            variables=SERVICES,
            annotations=EVENTS,
            rows=(
                now.oncall(slos, runbooks),
                services.oncall(slos),
                now.budgets(slos),
                requests.oncall(slos),
                training.oncall(slos),
                compiles.oncall(slos),
                errors.oncall(),
                memory.oncall(slos),
                accelerators.oncall(),
                monitoring.oncall(),
            ),
        ),
        # What is needed to find causes: which function, process and device, and why.
        Dashboard(
            uid="jaxmon-debug",
            title="jaxmon / Debug",
            description=(
                "Which function, process and device, and why. Select them above; "
                "Service and Host narrow the other lists."
            ),
            since="now-1h",
            variables=VARIABLES,
            annotations=EVENTS,
            rows=(
                functions.debug(slos),
                calls.debug(),
                compiles.debug(slos),
                programs.debug(),
                requests.debug(),
                training.debug(),
                ranks.oncall(slos),
                memory.debug(),
                transfers.debug(),
                checks.debug(),
                errors.debug(),
                accelerators.debug(),
                gpus.debug(),
                tpus.debug(),
                processes.debug(),
                monitoring.debug(),
            ),
        ),
        # For those who run training: is it fast, is it healthy, which rank holds it up.
        Dashboard(
            uid="jaxmon-training",
            title="jaxmon / Training",
            description=(
                "Whether runs make progress, what their time goes into, and which "
                "rank holds up the others."
            ),
            since="now-6h",
            variables=VARIABLES,
            annotations=EVENTS,
            rows=(
                runs.glance(slos),
                training.oncall(slos),
                runs.time(),
                goodput.across_restarts(slos),
                ranks.oncall(slos),
                training.debug(),
                ranks.inspected(),
            ),
        ),
        # For those who run servers: how fast, for whom not, and what requests wait for.
        Dashboard(
            uid="jaxmon-serving",
            title="jaxmon / Serving",
            description=(
                "How fast requests are served, cold and warm, what they wait for, "
                "and which replica differs from the others."
            ),
            since="now-3h",
            variables=VARIABLES,
            annotations=EVENTS,
            rows=(
                replicas.glance(slos),
                requests.oncall(slos),
                replicas.stalls(slos),
                replicas.throughput(slos),
                replicas.replicas(),
                requests.serverless(),
                requests.debug().opened("Distributions"),
            ),
        ),
        # GPUs and TPUs in one schema: load, memory, power, health.
        Dashboard(
            uid="jaxmon-accelerators",
            title="jaxmon / Accelerators",
            description=(
                "Load, memory, power and health of GPUs and TPUs, by the service "
                "that uses them; the last rows are of one vendor each."
            ),
            since="now-3h",
            variables=VARIABLES,
            annotations=EVENTS,
            rows=(
                devices.glance(slos),
                devices.worst(),
                accelerators.oncall().opened("Load and health"),
                accelerators.debug().opened("Power and identity"),
                gpus.debug(),
                tpus.debug(),
            ),
        ),
        # From cluster to process: what runs where, and what stands out.
        Dashboard(
            uid="jaxmon-fleet",
            title="jaxmon / Fleet",
            description=(
                "From cluster to process: what runs where, in which version, what "
                "starts or compiles at the moment, and what stands out."
            ),
            since="now-6h",
            variables=VARIABLES,
            annotations=EVENTS,
            rows=(
                fleet.glance(slos),
                fleet.starts(slos),
                fleet.differences(),
                fleet.down(),
                fleet.worst(slos),
            ),
        ),
        # Whether jaxmon works, and what it costs.
        Dashboard(
            uid="jaxmon-itself",
            title="jaxmon / jaxmon itself",
            description=(
                "Whether agents and sidecars work, so that the other boards can be "
                "trusted, and what they cost."
            ),
            since="now-3h",
            variables=VARIABLES,
            annotations=EVENTS,
            rows=(
                monitoring.glance(slos),
                monitoring.oncall().opened(),
                monitoring.cost(),
                monitoring.debug().opened(),
            ),
        ),
    )
