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

from math import inf

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.host.formats import durations
from jaxmon_alerts.overviews import services
from jaxmon_alerts.overviews.hosts import (
    ALERTED,
    ALERTED_READERS,
    OWNERS,
    READERS,
    firing,
)
from jaxmon_alerts.slo import Slos
from jaxmon_alerts.slo.model import EVENTS, WINDOW, Ratio
from jaxmon_dashboards.boards.model import (
    Color,
    DependentVariable,
    Link,
    Mapping,
    Target,
    Thresholds,
)


JOB = promql.re("job", "$job")
# Of a sidecar's own metrics, of a process, of a function.
HOST = (JOB, promql.re("instance", "$instance"))
PROCESS = (*HOST, promql.re("worker", "$worker"))
FUNCTION = (*PROCESS, promql.re("function", "$function"))

# How many functions are offered, and shown if none is chosen.
FUNCTIONS = 50

# How many series a graph of processes, hosts or devices shows.
FEW = 20

BY_PROCESS = ("job", "instance", "worker")

BUDGET_LEFT = Thresholds("red", ((0, "orange"), (0.25, "green")))

UP = (Mapping("0", "down", "red"), Mapping("1", "up", "green"))


def defined(expr: promql.Expr) -> promql.Expr:
    """Drop NaN values, such as a quantile of no observations."""
    return expr >= 0


def or_zero(count: promql.Expr, data: promql.Expr) -> promql.Expr:
    """Return a number: 0 if nothing is counted in the *data* that there are."""
    return count.or_(data.count() * 0)


def per_minute(rate: promql.Expr) -> promql.Expr:
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


def failing(slos: Slos) -> promql.Expr:
    """Return the fraction of requests that fail, of the routes that have any."""
    return _of_routes(slos, "request-error", promql.eq("outcome", "error"))


def cold(slos: Slos) -> promql.Expr:
    """Return the fraction of requests that wait for a compile, of routes that do."""
    return _of_routes(slos, "cold-start", promql.ne("start", "warm"))


def _of_routes(slos: Slos, name: str, bad: promql.Matcher) -> promql.Expr:
    """Return what the objective *name* records, or the fraction of *bad* requests."""
    slo, by = slos.get(name), ("job", "route")
    if slo is None or "route" not in slo.by:
        every = services.REQUESTS(JOB, promql.ne("outcome", "client_error")).sum(*by)
        return promql.ratio(services.REQUESTS(JOB, bad).sum(*by), every)
    shortest = min(slo.pairs, key=lambda pair: durations.seconds(pair.short))
    return slo.short(shortest).where(JOB)


def gave_up(slos: Slos) -> promql.Expr | None:
    """Return the fraction of callers who waited long and left, where it is counted."""
    slo = slos.get("request-error")
    if slo is None or not isinstance(slo.indicator, Ratio) or not slo.indicator.left:
        return None
    name = f"slo:{slo.series}_abandoned:delta"
    left = promql.recorded_over(
        "sum", promql.recorded(name, JOB, labels=slo.by, unit=""), "299s"
    )
    return promql.ratio(left.sum(), slo.increase(EVENTS, WINDOW, JOB).of_unit("").sum())


def latency_of(quantile: float, *by: str, start: str = "") -> promql.Expr:
    """Return a quantile of the latency of successful requests, with this *start*."""
    kind = (promql.eq("start", start),) if start else ()
    buckets = services.REQUEST_SECONDS(JOB, *kind)
    return defined(buckets.quantile(quantile, *by).of_unit("seconds"))


def request_seconds(start: str) -> promql.HistogramQuery:
    """Return the latency of successful requests of processes, with this *start*."""
    # Often the first of its route, and the only one.
    rare = start != "warm"
    kind = promql.eq("outcome", "success"), promql.eq("start", start)
    return promql.histogram(catalog.REQUEST_SECONDS, *kind, *PROCESS, rare=rare)


def recompiling(*by: str) -> promql.Expr:
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


# Hidden variables have the hosts and accelerators of the selection; without Grafana's
# escapes, since a value may be a pattern.
_READER = promql.re("instance", "${host:pipe}")
ANY_JOB = promql.re("job", ".+")
"""Whichever job; a site's cluster takes its place."""
HOSTS = (ANY_JOB, _READER)
GPUS = (promql.re("uuid", "${gpus:pipe}"), _READER)
BY_HOST = ("job", "instance")
_GPU, _TPU = promql.re("uuid", "$gpu"), promql.re("uuid", "TPU-.+")
_ALL = ".+"
# Of more than that none is offered; a person first chooses a service or a host.
_MOST_OFFERED = 500


def down() -> tuple[promql.Expr, promql.Expr]:
    """Return 0 for targets of services that are down, and for those beside them."""
    services, beside = promql.up(JOB), promql.up(*HOSTS)
    latest = beside.over_range("min").unless(services).bottomk(FEW)
    silent = services.equals(0).and_(services.over_range("min").bottomk(FEW))
    return silent, beside.equals(0).and_(latest)


def about_hardware() -> tuple[promql.Expr, promql.Expr]:
    """Return since when alerts about the services' GPUs fire, and about their hosts."""
    owned = ALERTED(JOB)
    hosts = ALERTED_READERS().and_(owned, "uuid")
    return (
        firing(promql.ne("uuid", "")).and_(owned, "uuid"),
        firing(promql.eq("uuid", "")).and_(hosts, *BY_HOST),
    )


def accelerator(metric: Metric, *matchers: promql.Matcher) -> promql.Expr:
    """Return a gauge of the selected accelerators, whichever sidecar reads them."""
    return promql.gauge(metric, *GPUS, *matchers)


def host(metric: Metric, *matchers: promql.Matcher) -> promql.Expr:
    """Return a gauge of the selected sidecars, and of those that read selected GPUs."""
    return promql.gauge(metric, *HOSTS, *matchers)


def host_rate(metric: Metric, *matchers: promql.Matcher) -> promql.Expr:
    """Return the rise per second of a counter of the same sidecars."""
    return promql.counter(metric, *HOSTS, *matchers).rate()


def worst_of(
    series: promql.Expr, number: int = FEW, *only: promql.Matcher
) -> promql.Expr:
    """Return the *number* largest recorded *series* of services."""
    # Chosen on the right alone: what else is recorded is few series.
    return series.and_(series.where(JOB, *only).over_range("max").topk(number))


def least_of(series: promql.Expr, number: int = FEW) -> promql.Expr:
    """Return the *number* smallest ones."""
    return series.and_(series.where(JOB).over_range("min").bottomk(number))


def among_processes(values: promql.Expr) -> tuple[Target, Target]:
    """Return the highest of the *values*, and the median to compare it with."""
    return Target(values.max(), "highest"), Target(values.median(), "median")


def _used(*chosen: promql.Matcher) -> promql.Expr:
    return _accelerators((*PROCESS, *chosen), (*HOST, *chosen))


def _accelerators(
    process: tuple[promql.Matcher, ...], host: tuple[promql.Matcher, ...]
) -> promql.Expr:
    chips = promql.gauge(catalog.ACCELERATOR_INFO, *host, _TPU)
    return OWNERS(*process).over_range("last").or_(chips.over_range("last"))


def _hosts() -> promql.Expr:
    success = promql.gauge(catalog.COLLECTOR_SUCCESS, *HOST).over_range("last")
    return success.or_(READERS(GPUS[0]).over_range("last"))


def _listed(some: promql.Expr, every: promql.Expr, label: str) -> promql.Expr:
    """Return the values of *label*, or a pattern if they are those of *every*."""
    found, number = some.max(label), every.max(label).count()
    listed = found.provided((found.count() < _MOST_OFFERED).differing(number))
    return listed.or_(found.count().equals(number).labelled(label, _ALL))


_OFFERED = _used().max("uuid")
VARIABLES = (
    DependentVariable(
        name="function",
        title="Function",
        label="function",
        values='[^"]+',
        expr=promql.counter(catalog.JIT_CACHE_MISSES, *PROCESS)
        .latest("$__range")
        .sum("function")
        .topk(FUNCTIONS),
        text=f"The jitted function; the {FUNCTIONS} with the most cache misses.",
    ),
    DependentVariable(
        name="gpu",
        title="GPU",
        label="uuid",
        values='(?:GPU|MIG|TPU)-[^"]+',
        expr=_OFFERED.provided(_OFFERED.count() < _MOST_OFFERED),
        all_value=_ALL,
        text="Accelerators that the selected processes use or the selected sidecars "
        f"read, whatever their job. Listed if there are fewer than {_MOST_OFFERED}.",
    ),
    DependentVariable(
        name="gpus",
        title="Accelerators",
        label="uuid",
        values='[^"]+',
        expr=_listed(_used(_GPU), _accelerators((), ()), "uuid"),
        text="Those that are chosen.",
        hidden=True,
    ),
    DependentVariable(
        name="host",
        title="Hosts of GPUs",
        label="instance",
        values='[^"]+',
        expr=_listed(
            _hosts(),
            promql.gauge(catalog.COLLECTOR_SUCCESS).over_range("last"),
            "instance",
        ),
        text="The selected sidecars, and those that read the chosen GPUs.",
        hidden=True,
    ),
)
