"""A fleet: from its services to hosts and processes, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog, promql
from jaxmon.host.formats import durations
from jaxmon.promql import Expr, counter, eq, gauge, recorded, time, up
from jaxmon.symptoms.starts import YOUNG
from jaxmon_alerts.overviews import services
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, stat, table, timeseries
from jaxmon_dashboards.boards.rows import errors, monitoring


_HOST = ("job", "instance")
_ONE_HOST = q.opening("instance", "Debug this host", "debug", "job")
_ROWS = 25


@row(40, "Fleet", lines=(6, 1))
def glance(slos: Slos) -> Iterator[Panel]:
    """Return the size and state of the fleet, and one line for each service."""
    agents = gauge(catalog.RUNTIME_INFO, *q.PROCESS)
    hosts = gauge(catalog.BUILD_INFO, *q.HOST).max(*_HOST)
    age = gauge(catalog.UPTIME_SECONDS, *q.PROCESS).and_(agents, *q.BY_PROCESS)
    crashes = counter(catalog.AGENT_CRASHES, *q.PROCESS).mishaps("$__range")
    yield stat(4001, "Service count")(
        hosts.count("job").count(),
        text="Services, which are jobs of Prometheus, that run jaxmon.",
    )
    yield stat(4002, "Scraped hosts")(
        hosts.count(), text="Sidecars, and agents that are scraped directly."
    )
    yield stat(4003, "Processes")(
        agents.max(*q.BY_PROCESS).count(),
        text="JAX processes with an agent.",
    )
    yield stat(4004, "New processes")(
        q.or_zero((age < durations.seconds(slos.limits.deploy_window)).count(), age),
        text="Processes that started within the deploy window: a deployment if they "
        "belong to one service, a crash loop if they are always the same.",
    )
    yield monitoring.glance().panel("Targets down")
    yield stat(4005, "Crashes")(
        q.or_zero(crashes.sum(), agents),
        text="Processes that ended without finishing in the selected time range.",
        thresholds=q.above(1),
    )
    none = hosts.count("job") * 0
    versions = agents.count("job", "jax", "jaxlib", "platform_version").count("job")
    young = recorded(YOUNG, q.JOB, labels=("job",)).max("job")
    yield table(4007, "Services of the fleet")(
        Target(hosts.count("job"), "Hosts"),
        Target(agents.max(*q.BY_PROCESS).count("job"), "Processes"),
        Target(q.of_job(catalog.ACCELERATOR_UP).count("job").or_(none), "Accelerators"),
        Target(up(*q.HOST).avg("job").of_unit("ratio"), "Targets up", q.below(1)),
        Target(young.or_(none), "Young", q.above(slos.limits.deploy_share)),
        Target(versions, "Versions", q.above(2)),
        Target(_diverging().count("job").or_(none), "Diverging", q.above(1)),
        Target(gauge(catalog.COMPILES_IN_PROGRESS, *q.PROCESS).sum("job"), "Compiling"),
        Target(crashes.sum("job").or_(none), "Crashes", q.above(1)),
        text="One line per service. Young: the fraction of its processes that started "
        "recently. Diverging: functions whose latest program differs between "
        "processes. The name selects the service here.",
        cell_links=(q.opening("job", "Only this service, from here down", "fleet"),),
        no_value="No services",
        sort="Processes",
    )


@row(41, "Hosts and processes", lines=(1, 1))
def down(slos: Slos) -> Iterator[Panel]:
    """Return the hosts and processes that stand out, for the way down."""
    left = promql.ratio(
        q.host(catalog.HOST_MEMORY_AVAILABLE_BYTES).sum(*_HOST),
        q.host(catalog.HOST_MEMORY_SIZE_BYTES).sum(*_HOST),
    )
    stalled = q.host_rate(catalog.HOST_PRESSURE_SECONDS, eq("kind", "some"))
    agents = gauge(catalog.RUNTIME_INFO, *q.PROCESS).count(*_HOST)
    base = promql.ratio(
        q.host(catalog.HOST_LOAD_1M).sum(*_HOST), q.host(catalog.HOST_CPUS).sum(*_HOST)
    ).topk(_ROWS)
    low = q.below(slos.limits.host_memory_left)
    yield table(4101, "Busiest hosts")(
        Target(base.of_unit(""), "Load per CPU", q.above(1, 2)),
        Target(left.and_(base, *_HOST), "Memory available", low),
        Target(stalled.max(*_HOST).and_(base, *_HOST), "Stalled"),
        Target(agents.and_(base, *_HOST), "Processes"),
        text=f"The {_ROWS} hosts with most load per CPU. Above 1, threads wait for a "
        "core, and the input pipeline with them. The host links to Debug.",
        height=9,
        cell_links=(_ONE_HOST,),
        no_value="No sidecar",
        sort="Load per CPU",
    )
    by = q.BY_PROCESS
    agents = gauge(catalog.RUNTIME_INFO, *q.PROCESS).max(*by)
    resident = gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES, *q.PROCESS).max(*by)
    base = resident.and_(agents, *by).topk(_ROWS)
    cpu = counter(catalog.PROCESS_CPU_SECONDS, *q.PROCESS).rate().max(*by)
    age = (time() - gauge(catalog.PROCESS_START_TIME_SECONDS, *q.PROCESS)).max(*by)
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS, *q.PROCESS).max(*by)
    yield table(4102, "Largest processes")(
        Target(base, "Memory"),
        Target(cpu.and_(base, *by), "CPU"),
        Target(age.and_(base, *by), "Age"),
        Target(oldest.and_(base, *by), "Compiling for"),
        Target(services.PROGRAMS(*q.PROCESS).max(*by).and_(base, *by), "Functions"),
        text=f"The {_ROWS} processes with most host memory. One that is larger than "
        "its peers may leak; 100 % of CPU is one core.",
        height=9,
        cell_links=(
            _ONE_HOST,
            q.opening(
                *("worker", "Debug this worker on all hosts", "debug"),
                *("job", "instance"),
            ),
        ),
        no_value="No processes",
        sort="Memory",
    )


@row(42, "Versions and programs", lines=(2,))
def differences() -> Iterator[Panel]:
    """Return versions and programs that differ between processes of one service."""
    versions = monitoring.debug()
    yield versions.panel("Versions of JAX and its platform")
    yield table(4201, "Functions with different programs")(
        Target(_diverging().topk(_ROWS), "Fingerprints", q.above(2)),
        text="Functions whose latest program is not the same in all processes of a "
        "service. Ranks of one run that differ deadlock in their first collective; "
        "servers may differ by the shapes they saw.",
        height=6,
        no_value="None",
        sort="Fingerprints",
        alerts=("JaxmonProgramsDiverge",),
    )


@row(43, "Starts and compiles", lines=(3,))
def starts(slos: Slos) -> Iterator[Panel]:
    """Return deployments, crash loops, and compiles that many do at once."""
    compiling = gauge(catalog.COMPILES_IN_PROGRESS, *q.PROCESS).max(*q.BY_PROCESS) > 0
    yield timeseries(4301, "Young processes by service")(
        recorded(YOUNG, q.JOB, labels=("job",)).max("job").worst(10),
        text="Fraction of each service's processes that started within the deploy "
        "window; above the line it counts as a deployment.",
        thresholds=q.above(slos.limits.deploy_share),
        alerts=("JaxmonDeployInProgress",),
        no_value="None",
    )
    yield errors.oncall().panel("Process restarts")
    yield timeseries(4302, "Processes compiling by service")(
        compiling.count("job").worst(10),
        text="Processes that compile at the same time. Many replicas at once compile "
        "the same program, each for itself: share a persistent cache.",
        alerts=("JaxmonThunderingCompilation",),
        no_value="None",
    )


def _diverging() -> Expr:
    """Return how many programs each function has that has more than one."""
    info = gauge(catalog.PROGRAM_INFO, *q.FUNCTION)
    return info.count("job", "function", "fingerprint").count("job", "function") > 1
