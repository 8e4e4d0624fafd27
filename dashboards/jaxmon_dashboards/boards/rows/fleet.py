"""A fleet: from its services to hosts and processes, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon import catalog
from jaxmon.promql import counter, eq, gauge, ne, recorded, up
from jaxmon.symptoms import recorded as symptoms
from jaxmon.symptoms.starts import YOUNG
from jaxmon_alerts.overviews import services
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Target, row, stat, table, timeseries
from jaxmon_dashboards.boards.rows import functions, monitoring


_ONE_HOST = q.opening("instance", "Debug this host", "debug", "job")
_ROWS = 25


@row(40, "Fleet", lines=(6, 1))
def glance(slos: Slos) -> Iterator[Panel]:
    """Return the size and state of the fleet, and one line for each service."""
    agents = gauge(catalog.RUNTIME_INFO, *q.PROCESS)
    hosts = gauge(catalog.BUILD_INFO, *q.HOST).max(*q.BY_HOST)
    running = symptoms.running().where(q.JOB)
    started = symptoms.young(slos.limits.deploy_window).where(q.JOB)
    crashes = symptoms.crashed("1h").where(q.JOB)
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
        started.sum().or_(running.sum() * 0),
        text="Processes that started within the deploy window: a deployment if they "
        "belong to one service, a crash loop if they are always the same.",
    )
    yield monitoring.glance().panel("Targets down")
    yield stat(4005, "Crashes")(
        crashes.sum().or_(running.sum() * 0),
        text="Processes that ended without finishing within an hour.",
        thresholds=q.above(1),
    )
    devices = gauge(catalog.DEVICE_INFO, ne("uuid", ""), *q.PROCESS)
    used = devices.max(*q.BY_HOST, "uuid").count("job")
    versions = agents.count("job", "jax", "jaxlib", "platform_version").count("job")
    young = recorded(YOUNG, q.JOB, labels=("job",)).max("job")
    compiling = gauge(catalog.COMPILES_IN_PROGRESS, *q.PROCESS)
    yield table(4007, "Services of the fleet")(
        Target(hosts.count("job"), "Hosts"),
        Target(agents.max(*q.BY_PROCESS).count("job"), "Processes"),
        Target(used, "Accelerators"),
        Target(up(*q.HOST).avg("job").of_unit("ratio"), "Targets up", q.below(1)),
        Target(young, "Young", q.above(slos.limits.deploy_share)),
        Target(versions, "Versions", q.above(2)),
        Target(compiling.sum("job"), "Compiling"),
        Target(crashes.sum("job").or_(running * 0), "Crashes", q.above(1)),
        text="One line per service. Young: the fraction of its processes that started "
        "recently. Crashes: within an hour. The name selects the service here.",
        cell_links=(q.opening("job", "Only this service, from here down", "fleet"),),
        no_value="No services",
        sort="Processes",
    )


@row(41, "Hosts and processes", lines=(1, 1))
def down(slos: Slos) -> Iterator[Panel]:
    """Return the hosts and processes that stand out, for the way down."""
    agents = gauge(catalog.RUNTIME_INFO, *q.PROCESS).count(*q.BY_HOST)
    load, left = (
        (q.host(part) / q.host(whole)).max(*q.BY_HOST)
        for part, whole in (
            (catalog.HOST_LOAD_1M, catalog.HOST_CPUS),
            (catalog.HOST_MEMORY_AVAILABLE_BYTES, catalog.HOST_MEMORY_SIZE_BYTES),
        )
    )
    stalled = q.host_rate(catalog.HOST_PRESSURE_SECONDS, eq("kind", "some"))
    low = q.below(slos.limits.host_memory_left)
    yield table(4101, "Busiest hosts")(
        Target(load.of_unit("").topk(_ROWS), "Load per CPU", q.above(1, 2)),
        Target(left.bottomk(_ROWS), "Memory available", low),
        Target(stalled.max(*q.BY_HOST).topk(_ROWS), "Stalled"),
        Target(agents.topk(_ROWS), "Processes"),
        text=f"The {_ROWS} hosts with most load per CPU, least memory available, most "
        "time stalled, and most processes; - for others. Above 1, threads wait for a "
        "core, and the input pipeline with them. The host links to Debug.",
        height=9,
        cell_links=(_ONE_HOST,),
        no_value="No sidecar",
        sort="Load per CPU",
    )
    resident = gauge(catalog.PROCESS_RESIDENT_MEMORY_BYTES, *q.PROCESS)
    cpu = counter(catalog.PROCESS_CPU_SECONDS, *q.PROCESS).rate()
    oldest = gauge(catalog.COMPILE_OLDEST_SECONDS, *q.PROCESS)
    functions = services.PROGRAMS(*q.PROCESS)
    yield table(4102, "Largest processes")(
        *(
            Target(values.max(*q.BY_PROCESS).topk(_ROWS), title)
            for values, title in (
                (resident, "Memory"),
                (cpu, "CPU"),
                (oldest > 0, "Compiling for"),
                (functions, "Functions"),
            )
        ),
        text=f"The {_ROWS} processes with most host memory, CPU, time in a compile, "
        "and functions, sidecars included; - for others. One that is larger than its "
        "peers may leak; 100 % of CPU is one core.",
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
    yield monitoring.debug().panel("Versions of JAX and its platform")
    info = gauge(catalog.PROGRAM_INFO, *q.PROCESS)
    programs = info.count("job", "function", "fingerprint").count("job", "function")
    yield table(4201, "Functions with different programs")(
        Target((programs > 1).topk(_ROWS), "Fingerprints", q.above(2)),
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
    compiling = gauge(catalog.COMPILES_IN_PROGRESS, *q.PROCESS)
    yield timeseries(4301, "Young processes by service")(
        recorded(YOUNG, q.JOB, labels=("job",)).worst(10),
        text="Fraction of each service's processes that started within the deploy "
        "window; above the line it counts as a deployment.",
        thresholds=q.above(slos.limits.deploy_share),
        alerts=("JaxmonDeployInProgress",),
        no_value="None",
    )
    yield functions.failures().panel("Process restarts")
    yield timeseries(4302, "Processes compiling")(
        Target((compiling > 0).count(), "compiling"),
        text="Processes that compile at the same time. Many replicas at once compile "
        "the same program, each for itself: share a persistent cache.",
        alerts=("JaxmonThunderingCompilation",),
        no_value="None",
    )
