"""
Shared dashboard queries: selectors, expressions, thresholds; and which hardware belongs
to the selected services.

Series come from a sidecar, which adds ``worker`` to those that it relays, or straight
from the agents. Prometheus should scrape one of the two: a sum over both counts
everything twice. If a deployment needs both, put them under different jobs, or set the
variable ``worker`` to ``.+`` to exclude the direct ones.

In Kubernetes a DaemonSet reports hardware under a separate job, and programs have
sidecars, or none. So GPUs are selected by their uuid, of which a rule records who uses
it and who reads it, and hosts by their GPUs. A TPU's uuid is its position in its host;
it is always read next to its program. Both sets are the same at each moment of a graph,
and are looked up only once; before that, a variable selects the hosts, so that of one
service not every GPU of the fleet is read.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Literal

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.host.formats import durations
from jaxmon.promql import (
    Expr,
    HistogramQuery,
    Matcher,
    call,
    counter,
    eq,
    gauge,
    histogram,
    ne,
    ratio,
    re,
    recorded,
    recorded_over,
    up,
)
from jaxmon_alerts.overviews import services
from jaxmon_alerts.overviews.hosts import (
    ALERTED,
    ALERTED_READERS,
    OWNED,
    OWNERS,
    READERS,
    firing,
)
from jaxmon_alerts.overviews.model import OverviewRule
from jaxmon_alerts.slo import Slos
from jaxmon_alerts.slo.model import EVENTS, WINDOW, Ratio
from jaxmon_dashboards.boards.model import (
    Color,
    DependentVariable,
    Link,
    Mapping,
    Thresholds,
)


JOB = re("job", "$job")
# Of a sidecar's own metrics, of a process, of a function.
HOST = (JOB, re("instance", "$instance"))
PROCESS = (*HOST, re("worker", "$worker"))
FUNCTION = (*PROCESS, re("function", "$function"))

# How many series a graph of processes, hosts or devices shows.
FEW = 20

BY_PROCESS = ("job", "instance", "worker")

BUDGET_LEFT = Thresholds("red", ((0, "orange"), (0.25, "green")))

UP = (Mapping("0", "down", "red"), Mapping("1", "up", "green"))


def share(part: Expr, whole: Expr) -> Expr:
    """Return *part* / *whole*: at most 1, 0 without *part*, nothing without *whole*."""
    return call("clamp_max", ratio(part.or_(whole * 0), whole), 1)


def defined(expr: Expr) -> Expr:
    """Drop NaN values, such as a quantile of no observations."""
    return expr >= 0


def or_zero(count: Expr, data: Expr) -> Expr:
    """Return a number: 0 if nothing is counted in the *data* that there are."""
    return count.or_(data.count() * 0)


def per_minute(rate: Expr) -> Expr:
    """Return a rate per minute, for rare events."""
    return (rate * 60).of_unit("per minute")


def above(warning: float | str, critical: float | None = None) -> Thresholds:
    """Return colours for a value, or a duration, that should be low."""
    if isinstance(warning, str):
        warning = durations.seconds(warning)
    if critical is None:
        return Thresholds("green", ((warning, "red"),))
    return Thresholds("green", ((warning, "orange"), (critical, "red")))


def below(good: float) -> Thresholds:
    """Return colours for a value that should be high."""
    return Thresholds("red", ((good, "green"),))


def opening(label: str, title: str, board: str, *kept: str) -> tuple[str, Link]:
    """Return the link from cells of *label* to a board that selects their value."""
    others = "".join(f"&${{{name}:queryparam}}" for name in (*kept, "datasource"))
    chosen = f"var-{label}=${{__value.text}}{others}&${{__url_time_range}}"
    return label, Link(title, f"/d/jaxmon-{board}?{chosen}")


def budget(slos: Slos, name: str) -> Thresholds | None:
    """Return the line that an error ratio should stay below."""
    slo = slos.get(name)
    return above(slo.budget) if slo else None


def burn_rates(slos: Slos) -> dict[str, float]:
    """Return the least burn rate that means a ticket, and a page."""
    pairs = [pair for slo in slos for pair in slo.pairs if pair.factor]
    return {
        severity: min(pair.factor or 0.0 for pair in pairs if pair.severity == severity)
        for severity in ("ticket", "page")
        if any(pair.severity == severity for pair in pairs)
    }


def burn(slos: Slos) -> Thresholds:
    """Return the colours of a burn rate: orange is a ticket, red a page."""
    rates = burn_rates(slos)
    page = rates.get("page", inf)
    colours: list[tuple[float, Color]] = [(rates.get("ticket", inf), "orange")]
    steps = [step for step in colours if step[0] < page]
    if page < inf:
        steps.append((page, "red"))
    return Thresholds("green", tuple(steps))


def objective(slos: Slos, name: str) -> Thresholds | None:
    """Return the line that a ratio of good events should stay above."""
    slo = slos.get(name)
    return below(slo.objective) if slo else None


def latency(slos: Slos, name: str) -> Thresholds | None:
    """Return the line that a latency should stay below."""
    slo = slos.get(name)
    return above(slo.threshold_seconds) if slo and slo.threshold_seconds else None


def failing(slos: Slos) -> Expr:
    """Return the fraction of requests that fail, of the routes that have any."""
    return _of_routes(slos, "request-error", eq("outcome", "error"))


def cold(slos: Slos) -> Expr:
    """Return the fraction of requests that wait for a compile, of routes that do."""
    return _of_routes(slos, "cold-start", ne("start", "warm"))


def _of_routes(slos: Slos, name: str, bad: Matcher) -> Expr:
    """Return what the objective *name* records, or the fraction of *bad* requests."""
    slo, by = slos.get(name), ("job", "route")
    if slo is None:
        every = services.REQUESTS(JOB, ne("outcome", "client_error")).sum(*by)
        return ratio(services.REQUESTS(JOB, bad).sum(*by), every)
    shortest = min(slo.pairs, key=lambda pair: durations.seconds(pair.short))
    return slo.short(shortest).where(JOB)


def gave_up(slos: Slos) -> Expr | None:
    """Return the fraction of callers who waited long and left, where it is counted."""
    slo = slos.get("request-error")
    if slo is None or not isinstance(slo.indicator, Ratio) or not slo.indicator.left:
        return None
    name = f"slo:{slo.series}_abandoned:delta"
    left = recorded_over("sum", recorded(name, JOB, labels=slo.by, unit=""), "299s")
    return ratio(left.sum(), slo.increase(EVENTS, WINDOW, JOB).of_unit("").sum())


def latency_of(quantile: float, *by: str, start: str = "") -> Expr:
    """Return a quantile of the latency of successful requests, with this *start*."""
    kind = (eq("start", start),) if start else ()
    buckets = services.REQUEST_SECONDS(JOB, *kind)
    return defined(buckets.quantile(quantile, *by).of_unit("seconds"))


def request_seconds(start: str) -> HistogramQuery:
    """Return the latency of successful requests of processes, with this *start*."""
    # Often the first of its route, and the only one.
    rare = start != "warm"
    kind = eq("outcome", "success"), eq("start", start)
    return histogram(catalog.REQUEST_SECONDS, *kind, *PROCESS, rare=rare)


def recompiling(*by: str) -> Expr:
    """Return the recompiles per minute of the function and process with most."""
    return per_minute(services.WORST_RECOMPILES(JOB).max(*by))


def storm(slos: Slos) -> float:
    """Return the recompiles per minute that the alert calls a storm."""
    minutes = durations.seconds(slos.limits.recompile_window) / 60
    return slos.limits.recompiles / minutes


def alert_of(slos: Slos, name: str) -> tuple[str, ...]:
    """Return the name of the alert of the objective *name*, if there is one."""
    slo = slos.get(name)
    return (slo.alert,) if slo else ()


def backend_compiles() -> HistogramQuery:
    """Return the duration of compiles proper, without tracing and lowering."""
    backend = eq("phase", "backend_compile")
    return histogram(catalog.COMPILE_SECONDS, backend, *FUNCTION, rare=True)


GPU, _TPU = re("uuid", "$gpu"), re("uuid", "TPU-.+")
# Without Grafana's escapes: a value may be a pattern.
_READER = re("instance", "${host:pipe}")
GPUS = (GPU, _READER)
_BY_HOST = ("job", "instance")
_ALL = ".+"

# Of more than that none is offered; a person first chooses a service or a host.
_MOST_OFFERED = 500
_MANY_HOSTS = 100


def of_gpus(series: Expr) -> Expr:
    """Return those *series* by uuid that are about GPUs of the selected processes."""
    return series.and_(_used(), "uuid")


def gpu(metric: Metric, *matchers: Matcher) -> Expr:
    """Return a gauge of the selected GPUs, whichever sidecar reads them."""
    return of_gpus(gauge(metric, *GPUS, *matchers))


def accelerator(metric: Metric) -> Expr:
    """Return a gauge of the selected GPUs, and of the TPUs of the selected sidecars."""
    return gpu(metric).or_(gauge(metric, *HOST, _TPU))


def host(metric: Metric, *matchers: Matcher) -> Expr:
    """Return a gauge of the selected sidecars, and of those that read selected GPUs."""
    others = gauge(metric, _READER, *matchers).and_(_readers(), *_BY_HOST)
    return gauge(metric, *HOST, *matchers).or_(others)


def host_rate(metric: Metric, *matchers: Matcher) -> Expr:
    """Return the rise per second of a counter of the same sidecars."""
    others = counter(metric, _READER, *matchers).rate().and_(_readers(), *_BY_HOST)
    return counter(metric, *HOST, *matchers).rate().or_(others)


def host_recorded(recorded: OverviewRule) -> Expr:
    """Return what is recorded of the same sidecars."""
    others = recorded(_READER).and_(_readers(), *_BY_HOST)
    return recorded(*HOST).or_(others)


def worst_of_services(
    recorded: OverviewRule, total: Callable[[Expr], Expr], number: int = FEW
) -> Expr:
    """Return the *number* largest *total* series of services, by host or GPU."""
    return total(recorded()).and_(_extremes(recorded, total, "max").topk(number))


def least_of_services(
    recorded: OverviewRule, total: Callable[[Expr], Expr], number: int = FEW
) -> Expr:
    """Return the *number* smallest ones."""
    return total(recorded()).and_(_extremes(recorded, total, "min").bottomk(number))


def _extremes(
    recorded: OverviewRule,
    total: Callable[[Expr], Expr],
    function: Literal["max", "min"],
) -> Expr:
    """Return the extremes over Grafana's range of what services have, found once."""
    every = total(recorded().over_range(function))
    if "uuid" in (recorded().shape.labels or ()):
        return every.and_(_owned(), "uuid")
    of_services = total(recorded(JOB).over_range(function))
    return of_services.or_(every.and_(_hosts(), *_BY_HOST))


def down() -> Expr:
    """Return 0 for targets of services and their GPUs that were down."""
    beside = up().over_range("min").equals(0).and_(_hosts(), *_BY_HOST)
    return up(JOB).over_range("min").equals(0).or_(beside)


def about_hardware() -> tuple[Expr, Expr]:
    """Return since when alerts about the services' GPUs fire, and about their hosts."""
    owned = ALERTED(JOB)
    hosts = ALERTED_READERS().and_(owned, "uuid")
    return (
        firing(ne("uuid", "")).and_(owned, "uuid"),
        firing(eq("uuid", "")).and_(hosts, *_BY_HOST),
    )


def _owned() -> Expr:
    return OWNED(JOB).over_range("last")


def _used() -> Expr:
    return OWNERS(*PROCESS).over_range("last")


def _readers() -> Expr:
    return of_gpus(READERS(*GPUS).over_range("last")).max(*_BY_HOST)


def _hosts() -> Expr:
    read = READERS().over_range("last")
    # At each moment, hosts are fewer to compare than GPUs.
    return read.and_(_owned(), "uuid").max(*_BY_HOST)


def _offered() -> Expr:
    found = _used().max("uuid")
    return found.provided(found.count() < _MOST_OFFERED)


def _selected() -> Expr:
    """Return the hosts of the selected GPUs, or one that is a pattern for all."""
    found = of_gpus(READERS(GPU).over_range("last"))
    hosts = found.max("instance")
    many = (hosts.count() >= _MANY_HOSTS).labelled("instance", _ALL)
    return hosts.provided(hosts.count() < _MANY_HOSTS).or_(many)


VARIABLES = (
    DependentVariable(
        name="gpu",
        title="GPU",
        label="uuid",
        values='(?:GPU|MIG)-[^"]+',
        expr=_offered(),
        all_value=_ALL,
        text="GPUs used by the selected processes or read by the selected sidecars, "
        f"whatever their job. Listed if there are fewer than {_MOST_OFFERED}.",
    ),
    DependentVariable(
        name="host",
        title="Hosts of GPUs",
        label="instance",
        values='[^"]+',
        expr=_selected(),
        text="The sidecars that read the selected GPUs.",
        hidden=True,
    ),
)


_GPUS, _TPUS = re("uuid", "GPU-.+"), re("uuid", "TPU-.+")
_CHIP = ("instance", "uuid")


def of_job(metric: Metric) -> Expr:
    """Return a gauge of the chosen processes' accelerators, by job and uuid."""
    gpus = gauge(catalog.DEVICE_INFO, *PROCESS, _GPUS).max("job", "uuid")
    chips = gauge(catalog.DEVICE_INFO, *PROCESS, _TPUS).max("job", *_CHIP)
    of_gpus = gauge(metric, *GPUS).max("uuid")
    of_chips = gauge(metric, *HOST, _TPUS).max(*_CHIP)
    found = gpus.joined(of_gpus, on=("uuid",), take=()).of_unit(metric.unit)
    return found.or_(chips.joined(of_chips, on=_CHIP, take=()).of_unit(metric.unit))
