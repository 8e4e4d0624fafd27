"""On-call: which users suffer, where it comes from, and what else is folded away."""

from __future__ import annotations

from collections.abc import Iterator

from jaxmon.promql import Expr, ne, time
from jaxmon.symptoms import recorded as symptoms
from jaxmon_alerts.overviews import hosts, services
from jaxmon_alerts.slo import Slos
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.model import Panel, Row, Target, row, table, timeseries
from jaxmon_dashboards.boards.rows import (
    functions,
    monitoring,
    processes,
    requests,
    training,
)


_MOST, _ERRORS = 20, "request-error"
_REPLICA = (*q.BY_PROCESS, "route")
_RELEASE = ("job", "release", "jax")


@row(54, "Users", lines=(4,))
def users(slos: Slos) -> Iterator[Panel]:
    """Return what the callers of services see."""
    served = requests.oncall(slos)
    yield served.panel("Requests by outcome")
    yield served.panel("Request error ratio")
    yield served.panel("Latency of requests")
    yield served.panel("Oldest request in progress")


@row(55, "Where", lines=(2, 3))
def where(slos: Slos) -> Iterator[Panel]:
    """Return the replicas and versions that stand out, and the usual causes."""
    limits = slos.limits
    yield table(122, "Replicas that stand out")(
        Target(_replicas(symptoms.times_siblings("10m", limits)), "Times as slow"),
        Target(_replicas(symptoms.left("5m", limits)), "Callers who left"),
        Target(_replicas(symptoms.hung("5m", limits)), "Hangs for"),
        text="Replicas that are slower than the median of their route, and those that "
        "answered none within five minutes: how many callers left, and for how long "
        "the oldest request waits. The host opens Debug.",
        labels=_REPLICA,
        cell_links=(q.opening("instance", "Debug this host", "debug", "job"),),
        height=6,
        no_value="None differs from its siblings",
        sort="Times as slow",
    )
    yield table(123, "Releases")(
        Target(services.RELEASES(q.JOB).max(*_RELEASE), "Processes"),
        Target(services.SERVED_BY_RELEASE(q.JOB).max(*_RELEASE), "Requests"),
        Target(
            services.FAILING_BY_RELEASE(q.JOB).max(*_RELEASE),
            "Errors",
            q.budget(slos, _ERRORS),
        ),
        Target(services.SECONDS_BY_RELEASE(q.JOB).max(*_RELEASE), "Mean"),
        text="What each service runs, by the release that the setting `release` names "
        "and the version of JAX: a canary that fails or is slower than the release "
        "beside it is the first thing to roll back. Without a release, only processes "
        "are counted.",
        labels=_RELEASE,
        no_value="No processes",
        sort="Processes",
    )
    yield functions.oncall(slos).panel("Recompiles by function")
    yield functions.failures().panel("JAX errors by function")
    yield timeseries(125, "What processes do")(
        services.SPENDING(q.JOB, ne("state", "idle")).worst(_MOST),
        text="Fraction of its time that the process with most of it spends in each "
        "state. blocked: it waits for a lock, a socket or a file; data_wait: for its "
        "input; compile; device and fetch: for the device. Debug has each process.",
        no_value="No agents",
    )


def _replicas(series: Expr) -> Expr:
    return series.where(q.JOB).topk(_MOST).max(*_REPLICA)


def folded(slos: Slos) -> Iterator[Row]:
    """Return the rows that are looked at once the first ones say where."""
    yield _requests(slos)
    yield _training(slos)
    yield _processes(slos)
    yield _hardware()
    yield _monitoring()


@row(56, "Requests that wait", lines=(3,), collapsed=True)
def _requests(slos: Slos) -> Iterator[Panel]:
    served = requests.oncall(slos)
    yield served.panel("Requests in progress")
    yield served.panel("Latency of cold and warm requests")
    yield served.panel("Cold request ratio")


@row(57, "Training", lines=(4,), collapsed=True)
def _training(slos: Slos) -> Iterator[Panel]:
    loops = training.oncall(slos)
    yield loops.panel("Age of the last step")
    yield loops.panel("Step time")
    yield loops.panel("Items per second")
    yield loops.panel("Non-finite values")


@row(58, "Processes and compiles", lines=(3, 2), collapsed=True)
def _processes(slos: Slos) -> Iterator[Panel]:
    yield functions.failures().panel("Process restarts")
    yield monitoring.oncall().panel("Processes that crashed")
    yield processes.memory(slos).panel("Resident memory of the largest process")
    yield processes.memory(slos).panel("Device memory in use")
    yield functions.oncall(slos).panel("Oldest compile in progress")


@row(59, "Hardware", lines=(1,), collapsed=True)
def _hardware() -> Iterator[Panel]:
    gpus, machines = q.about_hardware()
    yield table(124, "Alerts about hardware")(
        Target(_lasting(gpus), "GPU, for"),
        Target(_lasting(machines), "Host, for"),
        text="Alerts about GPUs that the selected services use, and about the hosts "
        "that read them, whichever job reports them.",
        labels=hosts.SUBJECT,
        no_value="None",
        sort="GPU, for",
        alerts=("JaxmonAcceleratorLost", "JaxmonGpuFault"),
    )


def _lasting(since: Expr) -> Expr:
    return (time() - since).topk(_MOST)


@row(60, "Monitoring", lines=(3,), collapsed=True)
def _monitoring() -> Iterator[Panel]:
    health = monitoring.oncall()
    yield health.panel("Collectors")
    yield health.panel("Age of collected data")
    yield health.panel("Hosts with silent agents")
