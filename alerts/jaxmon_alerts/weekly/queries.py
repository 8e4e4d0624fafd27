"""
Queries of the report on objectives, over one window that ends at the evaluation time,
and the alerts that fired in it.

What is added up over the window is recorded per evaluation, so that nothing is counted
twice, and nothing missed that short processes count. Costs are sampled every five
minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from jaxmon import catalog, promql
from jaxmon.host.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Counter, Expr, Matcher, counter, gauge, ne
from jaxmon.promql import events as of_processes
from jaxmon.symptoms.steps import than_before
from jaxmon_alerts.overviews.hosts import PROCESS_POWER
from jaxmon_alerts.prometheus import PrometheusSeries
from jaxmon_alerts.slo.model import BUDGET_REMAINING, ERRORS, EVENTS, OBJECTIVE


# A missing sample or two, as when Prometheus restarts, does not end an alert.
_GAP_STEPS = 3


@dataclass(frozen=True, slots=True)
class Fired:
    """An alert of a service that fired: *seconds* in all, start and end of each."""

    name: str
    severity: str
    service: str
    seconds: float
    times: tuple[tuple[float, float], ...]

    @property
    def count(self) -> int:
        """How often it fired; at least once, if more briefly than a step."""
        return max(1, len(self.times))

    @property
    def is_of_budget(self) -> bool:
        """Return whether it is an objective's alert, not one about a cause."""
        return self.name.endswith("BudgetBurn")


def fired(
    sampled: Iterable[PrometheusSeries],
    at_all: Iterable[PrometheusSeries],
    *,
    step: float,
) -> list[Fired]:
    """Return the alerts, longest first: *sampled* each *step*, or *at_all* between."""
    times = {_key(series): tuple(_intervals(series, step)) for series in sampled}
    keys = {**dict.fromkeys(times), **{_key(series): None for series in at_all}}
    found = [
        Fired(
            *key,
            seconds=sum(end - start for start, end in times.get(key, ())),
            times=times.get(key, ()),
        )
        for key in keys
    ]
    return sorted(found, key=lambda alert: (-alert.seconds, alert.name, alert.service))


def service(labels: Mapping[str, str]) -> str:
    """Return the service of a series as text, without absent labels."""
    names = ("job", "namespace", "cluster")
    return " ".join(f"{name}={labels[name]}" for name in names if labels.get(name))


def _key(series: PrometheusSeries) -> tuple[str, str, str]:
    labels = series.labels
    return (labels.get("alertname", ""), labels.get("severity", ""), service(labels))


def _intervals(series: PrometheusSeries, step: float) -> Iterator[tuple[float, float]]:
    """Yield each time that it fired: from its first sample to a step after its last."""
    start = last = series.points[0][0]
    for moment, _ in series.points[1:]:
        if moment - last > _GAP_STEPS * step:
            yield start, last + step
            start = moment
        last = moment
    yield start, last + step


SERVICE = ("cluster", "namespace", "job")
"""Labels that identify a service; the first two may be absent."""

RESOLUTION = 300.0
"""Seconds between two samples of what accelerators cost."""

_SLO = ("sloth_service", "sloth_slo")
_STEP = "5m"
_TOP = 10
# The device is not at work, and the program could be.
_LOST = "compile|data_wait|transfer|eager|gc|gil|blocked"
_GPU = "GPU-.+"
_OURS = "Jaxmon.+"
_ALERT = ("alertname", "severity", *SERVICE)


def errors(window: str) -> Expr:
    """Return the bad events of each objective and service."""
    return _counted(ERRORS, window)


def events(window: str) -> Expr:
    """Return all events of each objective and service."""
    return _counted(EVENTS, window)


def budget_remaining() -> Expr:
    """Return what is left of the period's budget where the least is left."""
    return promql.recorded(BUDGET_REMAINING).min(*_SLO, *SERVICE)


def objective() -> Expr:
    """Return the objectives."""
    return promql.recorded(OBJECTIVE).max(*_SLO)


def firing() -> Expr:
    """Return 1 for each of our alerts that fires and notifies someone."""
    return _alerts().max(*_ALERT)


def fired_within(window: str) -> Expr:
    """Return the alerts that fired within *window*, however briefly."""
    return promql.call("count_over_time", f"{_alerts()}[{window}]").max(*_ALERT)


def compile_seconds(window: str) -> Expr:
    """Return the functions that were compiled for longest, in seconds."""
    compiled = ne("phase", "cache_retrieval")
    spent = _anywhere(of_processes.COMPILE_SECONDS.within(window, compiled))
    return spent.sum(*SERVICE, "function").topk(_TOP)


def recompiles(window: str) -> Expr:
    """Return the functions that were recompiled most often, by cause."""
    found = _anywhere(of_processes.RECOMPILES.within(window))
    return found.sum(*SERVICE, "function", "cause").topk(_TOP)


def slower(window: str) -> Expr:
    """Return the functions whose programs take longer than a week before its end."""
    del window
    slower = _anywhere(than_before("7d")).max(*SERVICE, "function")
    return (slower > Limits().slowdown).topk(_TOP)


def lost_seconds(window: str) -> Expr:
    """Return the wall time in states that keep the device waiting."""
    lost = counter(catalog.WALL_SECONDS, promql.re("state", _LOST))
    return _rise(lost, window).sum(*SERVICE, "state").topk(_TOP)


def out_of_memory(window: str) -> Expr:
    """Return how often functions ran out of device memory."""
    found = of_processes.ERRORS.within(window, promql.eq("kind", "oom"))
    return _anywhere(found).sum(*SERVICE, "function")


def oom_kills(window: str) -> Expr:
    """Return how often the kernel killed processes for their host memory."""
    return _rise(counter(catalog.CONTAINER_OOM_KILLS), window).sum(*SERVICE) > 0


def held(window: str) -> Expr:
    """Return accelerators held by each service, added up over all samples."""
    return _devices().count(*SERVICE).over("sum", window, _STEP)


def busy(window: str) -> Expr:
    """Return the mean utilisation of the accelerators that each service held."""
    used = _joined(gauge(catalog.ACCELERATOR_UTILIZATION_RATIO))
    return used.avg(*SERVICE).over("avg", window, _STEP)


def idle(window: str) -> Expr:
    """Return accelerators that services held without use, added up over samples."""
    used = _joined(gauge(catalog.ACCELERATOR_UTILIZATION_RATIO))
    unused = (used < Limits().accelerator_idle).count(*SERVICE, "instance")
    return unused.over("sum", window, _STEP).topk(_TOP)


def watts(window: str) -> Expr:
    """Return the power of the GPUs that each service held, added up over samples."""
    drawn = promql.recorded(PROCESS_POWER, unit="watts").sum(*SERVICE)
    return drawn.over("sum", window, _STEP)


def dollars_per_hour(window: str) -> Expr:
    """Return the price of the accelerators held, added up over all samples."""
    price = _joined(gauge(catalog.ACCELERATOR_COST_DOLLARS_PER_HOUR))
    return price.sum(*SERVICE).over("sum", window, _STEP)


def _alerts() -> Expr:
    return promql.alerts(
        promql.re("alertname", _OURS),
        promql.eq("alertstate", "firing"),
        promql.ne("severity", "info"),
    )


def _devices(*matchers: Matcher) -> Expr:
    # Processes may share one; on the CPU there is nothing to hold.
    accelerators = promql.ne("platform", "cpu")
    info = _anywhere(gauge(catalog.DEVICE_INFO, accelerators, *matchers))
    return info.max(*SERVICE, "instance", "uuid")


def _joined(values: Expr) -> Expr:
    """Return *values*, by uuid, for each accelerator that a service holds."""
    found = _anywhere(values)
    host = ("cluster", "instance", "uuid")
    beside = _devices().joined(found.max(*host), on=host, take=())
    # The sidecar that reads GPUs may be scraped apart; only their uuids are unique.
    gpus = _devices(promql.re("uuid", _GPU))
    return beside.or_(gpus.joined(found.max("uuid"), on=("uuid",), take=()))


def _rise(series: Counter, window: str) -> Expr:
    """Return the rise over *window*, with the first sample of series begun in it."""
    rise = _anywhere(series.increase(window))
    selector = replace(rise, marked=series.selector)
    first = replace(rise, marked=f"min_over_time({selector}[{window}])")
    before = replace(rise, marked=f"last_over_time({selector}[1h] offset {window})")
    return (rise + first.unless(before)).or_(rise)


def _anywhere(expr: Expr) -> Expr:
    """Allow labels that only the site's Prometheus adds to *expr*, such as cluster."""
    return replace(expr, shape=replace(expr.shape, labels=None))


def _counted(name: str, window: str) -> Expr:
    series = promql.recorded(name)
    seconds = durations.seconds(window)
    return promql.recorded_over("sum", series, seconds).sum(*_SLO, *SERVICE)
