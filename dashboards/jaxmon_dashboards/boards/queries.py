"""
Shared dashboard queries: selectors, expressions, thresholds.

Series come from a sidecar, which adds ``worker`` to those that it relays, or straight
from the agents. Prometheus should scrape one of the two: a sum over both counts
everything twice. If a deployment needs both, put them under different jobs, or set the
variable ``worker`` to ``.+`` to exclude the direct ones.
"""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.host.formats import durations
from jaxmon.promql import (
    Expr,
    HistogramQuery,
    call,
    eq,
    histogram,
    ne,
    number,
    ratio,
    re,
)
from jaxmon_alerts.overviews import services
from jaxmon_alerts.slo import Slo, Slos
from jaxmon_dashboards.boards.model import Link, Mapping, Thresholds


JOB = re("job", "$job")
# Of a sidecar's own metrics, of a process, of a function, of one of its devices.
HOST = (JOB, re("instance", "$instance"))
PROCESS = (*HOST, re("worker", "$worker"))
FUNCTION = (*PROCESS, re("function", "$function"))
DEVICE = (*PROCESS, re("device", "$device"))

# How many series a graph of processes, hosts or devices shows.
FEW = 20

BY_PROCESS = ("job", "instance", "worker")
NAMED_PROCESS = "{{job}} {{instance}} {{worker}}"

# Burn rates that mean a slow ticket, a ticket, a slow page, a page.
BURN = Thresholds(
    "green", ((1, "yellow"), (3, "orange"), (6, "semi-dark-red"), (14.4, "red"))
)
BUDGET_LEFT = Thresholds("red", ((0, "orange"), (0.25, "green")))

UP = (Mapping("0", "down", "red"), Mapping("1", "up", "green"))


def share(part: Expr, whole: Expr) -> Expr:
    """
    Return *part* / *whole*, which the rates of two counters may exceed a little: at
    most 1, 0 if *part* is absent, nothing without *whole*.
    """
    return call("clamp_max", ratio(part.or_(whole * 0), whole), 1)


def defined(expr: Expr) -> Expr:
    """Drop NaN values, such as a quantile of no observations."""
    return expr >= 0


def or_zero(count: Expr) -> Expr:
    """Return a number, which has no series if there is nothing to count."""
    return count.or_(call("vector", number(0)))


def per_minute(rate: Expr) -> Expr:
    """Return a rate per minute, for rare events."""
    return (rate * 60).of_unit("per minute")


def above(warning: float, critical: float | None = None) -> Thresholds:
    """Return colours for a value that should be low."""
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


def find(slos: Slos, name: str) -> Slo | None:
    """Return the objective *name*, if any; users' own files may lack it."""
    return next((slo for slo in slos if slo.name == name), None)


def budget(slos: Slos, name: str) -> Thresholds | None:
    """Return the line that an error ratio should stay below."""
    slo = find(slos, name)
    return above(slo.budget) if slo else None


def objective(slos: Slos, name: str) -> Thresholds | None:
    """Return the line that a ratio of good events should stay above."""
    slo = find(slos, name)
    return below(slo.objective) if slo else None


def latency(slos: Slos, name: str) -> Thresholds | None:
    """Return the line that a latency should stay below."""
    slo = find(slos, name)
    return above(slo.threshold_seconds) if slo and slo.threshold_seconds else None


def served(*by: str) -> Expr:
    """Return requests per second of services, excluding client errors."""
    return services.REQUESTS(JOB, ne("outcome", "client_error")).sum(*by)


def failed(*by: str) -> Expr:
    """Return server errors per second of services."""
    return services.REQUESTS(JOB, eq("outcome", "error")).sum(*by)


def cold(*by: str) -> Expr:
    """Return the requests per second that waited for a compile."""
    return services.REQUESTS(JOB, ne("start", "warm")).sum(*by)


def latency_of(start: str, quantile: float, *by: str) -> Expr:
    """Return a quantile of the latency of successful requests with this *start*."""
    buckets = services.REQUEST_SECONDS(JOB, eq("start", start))
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
    slo = find(slos, name)
    return (slo.alert,) if slo else ()


def hit_rate(*by: str) -> Expr:
    """Return the fraction of the services' calls that needed no tracing."""
    calls = services.CALLS(JOB).sum(*by)
    return share(services.CACHE_HITS(JOB).sum(*by), calls)


def backend_compiles() -> HistogramQuery:
    """Return the duration of compiles proper, without tracing and lowering."""
    backend = eq("phase", "backend_compile")
    return histogram(catalog.COMPILE_SECONDS, backend, *FUNCTION, rare=True)
