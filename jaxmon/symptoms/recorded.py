"""
What rules record for alerts: each series is something that an alert compares with a
limit, or a part of that, which would make its expression unreadable.
"""

from __future__ import annotations

from math import inf

from jaxmon import catalog, promql
from jaxmon.host.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Expr, counter, eq, events, gauge, gauge_over, histogram, ne
from jaxmon.symptoms.alert import PROCESS, SiteLimits


ROUTE = ("job", "route")
REPLICA = (*PROCESS, "route")
GIVEN_UP = "client_error"
# Evaluations and the like, by the words in their names.
PAUSES = "(?i)(eval|valid|test|checkpoint|sav|restor|load|warm|init).*"


def running() -> Expr:
    """Return how many processes each job has."""
    processes = gauge(catalog.RUNTIME_INFO).max(*PROCESS).count("job")
    return processes.record(
        "job", catalog.RUNTIME_INFO, "processes", "How many processes a job has."
    )


# --- requests -----------------------------------------------------------------------


def unanswered(window: str, limits: Limits) -> Expr:
    """
    Return the age of the oldest request where none was answered for *window*, by the
    route or by too many of its processes.
    """
    oldest = gauge(catalog.REQUEST_OLDEST_SECONDS).max(*ROUTE)
    hanging, most = hung(window, limits), limits.hung_share
    processes = gauge(catalog.REQUESTS_IN_PROGRESS).max(*REPLICA).count(*ROUTE)
    some = hanging.max(*ROUTE).and_(hanging.count(*ROUTE) > processes * most)
    some = some.record(
        *("route", catalog.REQUEST_OLDEST_SECONDS, f"hung{window}"),
        f"Age of the oldest, if more than {most:.0%} of the processes hang.",
    )
    return (oldest.unless(_answered(window)).or_(some)).record(
        *("route", catalog.REQUEST_OLDEST_SECONDS, f"unanswered{window}"),
        f"Age of the oldest request to a route that answered none within {window}, or "
        f"of which more than {most:.0%} of the processes hang.",
    )


def hung(window: str, limits: Limits) -> Expr:
    """Return the age of the oldest request to each process that hangs."""
    oldest = gauge(catalog.REQUEST_OLDEST_SECONDS).max(*REPLICA)
    several = gauge(catalog.REQUESTS_IN_PROGRESS).max(*REPLICA) >= limits.hung_requests
    late = oldest > durations.seconds(window)
    found = late.unless(replica_answered(window)).and_(several)
    return found.record(
        *("worker", catalog.REQUEST_OLDEST_SECONDS, f"hung{window}"),
        f"Age of the oldest request to a process that answered none within "
        f"{window}, if it is as old and there are several.",
    )


def left(window: str, limits: Limits) -> Expr:
    """Return how many callers left each process that answered none, after a wait."""
    asked = histogram(catalog.REQUEST_SECONDS, eq("outcome", GIVEN_UP))
    bounds = catalog.REQUEST_SECONDS.buckets
    wait = next((of for of in bounds if of >= limits.left_after), bounds[-1])
    every, soon = (
        counted.increase(window).sum(*REPLICA)
        for counted in (asked.count, asked.at_most(wait))
    )
    found = (every - soon).unless(replica_answered(window))
    return found.record(
        *("worker", catalog.REQUESTS, f"left{window}"),
        f"Callers who left within {window} after more than {wait:g} "
        "s, of a process that answered none.",
    )


def replica_answered(window: str) -> Expr:
    """Return how many requests each process answered, if it did."""
    answered = counter(catalog.REQUESTS, ne("outcome", GIVEN_UP))
    first = answered.total().unless(answered.total().offset(window))
    found = (answered.increase(window) > 0).or_(first).sum(*REPLICA)
    return found.record(
        *("worker", catalog.REQUESTS, f"answered{window}"),
        f"Requests that a process answered within {window}, if it did.",
    )


def replica_mean(window: str, limits: Limits) -> Expr:
    """Return the mean time of warm requests to each process with enough of them."""
    warm = histogram(
        *(catalog.REQUEST_SECONDS, eq("outcome", "success"), eq("start", "warm"))
    )
    total, number = (of.rate(window).sum(*REPLICA) for of in (warm.sum, warm.count))
    enough = number >= limits.requests_judged / durations.seconds(window)
    found = (total / enough).of_unit("seconds")
    return found.record(
        *("worker", catalog.REQUEST_SECONDS, f"mean{window}"),
        f"Mean time of warm requests within {window}, of a process with enough.",
    )


def times_siblings(window: str, limits: Limits) -> Expr:
    """Return how many times as long as in the median process requests take."""
    mean = replica_mean(window, limits)
    several = mean.count(*ROUTE) >= limits.replicas_compared
    median = mean.median(*ROUTE).and_(several)
    median = median.record(
        *("route", catalog.REQUEST_SECONDS, f"median{window}"),
        "The median of these, of a route with several processes.",
    )
    slower = mean.and_(mean.less(median, *ROUTE) > limits.slow_requests_by)
    return slower.relative_to(median, *ROUTE).record(
        *("worker", catalog.REQUEST_SECONDS, f"times_median{window}"),
        "How many times as long as that of the route, of processes that are slower.",
    )


def given_up(window: str) -> tuple[Expr, Expr]:
    """Return how many callers gave up where none was answered, and after which time."""
    number, seconds = (
        counted.within(window, eq("outcome", GIVEN_UP)).sum(*ROUTE)
        for counted in (events.REQUESTS, events.REQUEST_SECONDS)
    )
    number = number.unless(_answered(window)).record(
        *("route", catalog.REQUESTS, f"given_up{window}"),
        f"Callers who gave up within {window} on a route that answered none.",
    )
    mean = (seconds / (number > 0)).of_unit("seconds")
    mean = mean.record(
        *("route", catalog.REQUEST_SECONDS, f"given_up{window}"),
        "Mean time after which they did.",
    )
    return number, mean


def _answered(window: str) -> Expr:
    return events.REQUESTS.within(window, ne("outcome", GIVEN_UP)).sum(*ROUTE) > 0


def succeeded() -> Expr:
    """Return how many requests succeeded since the processes started."""
    requests = counter(catalog.REQUESTS, eq("outcome", "success")).total()
    return requests.sum(*ROUTE).record(
        *("route", catalog.REQUESTS, "succeeded"),
        "Successful requests since the processes of a route started.",
    )


def requests(window: str) -> Expr:
    """Return how many requests finished."""
    found = events.REQUESTS.within(window).sum(*ROUTE)
    return found.record(
        *("route", catalog.REQUESTS, f"sum{window}"),
        f"Requests that finished within {window}.",
    )


def cold_requests(window: str) -> Expr:
    """Return how many of them waited for a compile."""
    cold = events.REQUESTS.within(window, ne("start", "warm")).sum(*ROUTE)
    return cold.record(
        *("route", catalog.REQUESTS, f"cold{window}"),
        f"Requests that finished within {window} and waited for a compile.",
    )


def cold_latency(window: str) -> tuple[Expr, Expr]:
    """Return what 95 % of cold requests took at most, and how many these are."""
    cold = histogram(
        *(catalog.REQUEST_SECONDS, eq("start", "cold"), eq("outcome", "success")),
        rare=True,
    )
    buckets = cold.buckets(*ROUTE, window=window).record(
        *("route", f"{catalog.REQUEST_SECONDS.name}_bucket", f"cold{window}"),
        f"Successful cold requests within {window}, by bucket.",
    )
    slow = buckets.quantile(0.95, *ROUTE).of_unit("seconds")
    slow = slow.record(
        *("route", catalog.REQUEST_SECONDS, f"cold_p95_{window}"),
        "Seconds that 95 % of these took at most.",
    )
    number = cold.observed(window, *ROUTE).record(
        *("route", catalog.REQUEST_SECONDS, f"cold_count{window}"),
        "How many these were.",
    )
    return slow, number


# --- processes ----------------------------------------------------------------------


def young(within: str) -> Expr:
    """Return how many processes of each job are younger than *within*."""
    # By their own clocks; and only agents have runtime information: a new sidecar is no
    # new process.
    age = gauge(catalog.UPTIME_SECONDS).and_(gauge(catalog.RUNTIME_INFO), *PROCESS)
    found = (age < durations.seconds(within)).count("job")
    return found.record(
        *("job", catalog.UPTIME_SECONDS, f"young{within}"),
        f"Processes of a job that are younger than {within}.",
    )


def crashes(window: str) -> Expr:
    """Return how often processes crashed or started without a step or request."""
    # Without a sidecar, what is seen is that another process responds.
    changes = promql.gauge_changes(catalog.PROCESS_START_TIME_SECONDS, window) > 0
    counted, agents = counter(catalog.AGENT_CRASHES), gauge(catalog.RUNTIME_INFO)
    seen = changes.and_(agents, *PROCESS).unless(counted.total(), *PROCESS)
    seen = seen.record(
        *("worker", catalog.PROCESS_START_TIME_SECONDS, f"changes{window}"),
        f"Starts within {window} of processes without a sidecar that counts crashes.",
    )
    steps, requests = (
        counter(metric).highest(window).max(*PROCESS) > 0
        for metric in (catalog.STEPS, catalog.REQUESTS)
    )
    vain = crashed(window).or_(seen).max(*PROCESS).unless(steps).unless(requests)
    return vain.record(
        *("worker", catalog.AGENT_CRASHES, f"in_vain{window}"),
        f"Crashes or starts of a process within {window} without a step or request.",
    )


def traffic_of(window: str) -> Expr:
    """Return how many requests of each service finished within *window*."""
    found = events.REQUESTS.within(window).sum("job")
    return found.record(
        *("job", catalog.REQUESTS, f"sum{window}"),
        f"Requests to a service that finished within {window}.",
    )


def memory_growth(window: str, most: float) -> Expr:
    """Return by which part memory of each process grew, where it is near *most*."""
    rss = catalog.PROCESS_RESIDENT_MEMORY_BYTES
    growth = promql.gauge_slope(rss, window) * durations.seconds(window)
    part = (growth / gauge_over(rss, "avg", window)).max(*PROCESS)
    grown = part > most / 2
    # Many other programs export metrics of that name to Prometheus.
    found = grown.and_(gauge(catalog.BUILD_INFO), *PROCESS).of_unit("ratio")
    return found.record(
        *("worker", rss, f"growth{window}"),
        f"By which part the memory of a process grew within {window}, if by much.",
    )


def container_left(window: str) -> Expr:
    """Return in how many seconds memory reaches the limit of its container."""
    used = catalog.CONTAINER_MEMORY_WORKING_SET_BYTES
    slope = (promql.gauge_slope(used, window).max(*PROCESS) > 0).record(
        *("worker", used, f"slope{window}"),
        f"Bytes a second by which the memory of a container grows within {window}.",
    )
    free = gauge(catalog.CONTAINER_MEMORY_LIMIT_BYTES).min(*PROCESS)
    free -= gauge(used).max(*PROCESS)
    # What a start takes does not go on for twice that long.
    found = (free / slope.and_(slope.offset(window))).of_unit("seconds")
    return found.record(
        *("worker", used, f"seconds_left{window}"),
        "Seconds until the container reaches its limit at that pace.",
    )


def lost_loops(window: str) -> Expr:
    """Return by how many processes a loop ran within *window* that is gone."""
    metric, by = catalog.STEP_AGE_SECONDS, ("job", "loop")
    processes = gauge_over(metric, "last", window).max(*PROCESS, "loop").count(*by)
    lost = processes.unless(gauge(metric).max(*by)).unless(_finished(window), "job")
    return lost.record(
        *("loop", metric, "lost"),
        f"Processes of a loop that ran within {window} and is gone, and none finished.",
    )


def _finished(window: str) -> Expr:
    age = gauge_over(catalog.AGENT_FINISHED_SECONDS, "last", window)
    return (age < durations.seconds(window)).max("job")


def over(window: str, lately: str) -> Expr:
    """
    Return the jobs of which a process finished within *window*, or is shown to have;
    none of which others ran *lately*, and no process finished since.
    """
    ran = gauge_over(catalog.RUNTIME_INFO, "last", lately).max("job")
    finished = gauge_over(catalog.AGENT_FINISHED_SECONDS, "last", window).max("job")
    return finished.unless(ran.unless(_finished(lately), "job"), "job").record(
        *("job", catalog.AGENT_FINISHED_SECONDS, "over"),
        f"Jobs of which a process finished within {window}, unless others ran within "
        f"{lately} and none has finished since.",
    )


def crashed(window: str) -> Expr:
    """Return how often each process crashed within *window*, if it did."""
    rose = counter(catalog.AGENT_CRASHES).rise(window).max(*PROCESS) > 0
    return rose.record(
        *("worker", catalog.AGENT_CRASHES, f"crashed{window}"),
        f"Crashes of a process within {window}, if there were some.",
    )


def budget_paged(alert: str, limits: SiteLimits) -> Expr:
    """Return the routes about which an *alert* paged of late."""
    page, window = eq("severity", limits.page), limits.duration("1h")
    fired = promql.alerts(eq("alertname", alert), eq("alertstate", "firing"), page)
    latest = promql.call("last_over_time", f"{fired}[{window}]").max(*ROUTE)
    return latest.record(
        *("route", catalog.REQUESTS, "paged"),
        f"Routes about which the error budget paged within {window}.",
    )


# Pages about a run: the first is enough, whatever else follows from it.
_OF_RUNS = {
    "JaxmonAcceleratorLost": "loss",
    "JaxmonTrainingDied": "death",
    "JaxmonTrainingStalled": "stall",
}


def paged(but: str, limits: SiteLimits, window: str = "") -> Expr:
    """
    Return the jobs about whose run another alert than *but*, or any if it is empty,
    paged within *window*, or of late.
    """
    page, window = limits.page, window or limits.duration("1h")
    others = "|".join(name for name in _OF_RUNS if name != but)
    fired = promql.alerts(
        promql.re("alertname", others), eq("alertstate", "firing"), eq("severity", page)
    )
    latest = promql.call("last_over_time", f"{fired}[{window}]").max("job")
    return latest.record(
        *("job", "run", f"paged_but_{_OF_RUNS[but]}" if but else f"paged{window}"),
        f"Jobs about whose run one of these alerts paged within {window}.",
    )


# --- loops and jobs -----------------------------------------------------------------


def loops() -> Expr:
    """Return the processes in a loop."""
    return gauge(catalog.STEP_AGE_SECONDS).max(*PROCESS)


def busy(limit: float, *, compiling: float = inf, active: float = inf) -> Expr:
    """
    Return the processes that compile, or run an activity besides their loop, or did so
    less than *limit* seconds ago: their next step is not due yet.

    Args:
        limit: for a step.
        compiling: seconds after which a compile no longer counts.
        active: likewise, for an activity.
    """
    pauses = promql.re("activity", PAUSES)
    compiles = _within(gauge(catalog.COMPILE_OLDEST_SECONDS) > 0, compiling)
    running = _within(gauge(catalog.ACTIVITY_RUNNING_SECONDS, pauses) > 0, active)
    ended = gauge(catalog.ACTIVITY_AGE_SECONDS, pauses) < limit
    limited = [durations.text(most) for most in (compiling, active) if most != inf]
    recently = durations.text(limit)
    # Most are, now and then; those matter whose step seems late.
    late = gauge(catalog.STEP_AGE_SECONDS) > limit
    found = compiles.or_(running).or_(ended).and_(late, *PROCESS)
    return found.record(
        *("worker", catalog.ACTIVITY_AGE_SECONDS),
        "_".join((f"busy{recently}", *limited)),
        f"Processes whose last step is older than {recently}, and that compile or are "
        "in an activity besides their loop, or were less long ago.",
    )


def _within(age: Expr, limit: float) -> Expr:
    return age if limit == inf else age < limit


def lossy_values(pattern: str) -> Expr:
    """Return how long the values of running loops have not been finite, by name."""
    metric = catalog.VALUE_NONFINITE_RUN
    named = gauge(metric, promql.re("name", pattern)).and_(loops(), *PROCESS)
    return named.max("job", "name").record(
        *("job", metric, "loss"),
        "Values of a loss in a row that are NaN or infinite, of loops that run.",
    )


def deviations(window: str) -> Expr:
    """Return in how many checks each device of a process differed from others."""
    found = events.DEVICE_DEVIATIONS.within(window).sum(*PROCESS, "device")
    return found.record(
        *("device", catalog.DEVICE_DEVIATIONS, f"sum{window}"),
        f"Checks within {window} in which a device differed from others.",
    )


def failed_checks(checks: events.Events, window: str) -> Expr:
    """Return how many *checks* of each function failed."""
    failed = checks.within(window, eq("outcome", "failed")).sum("job", "function")
    return failed.record(
        *("function", checks.metric, f"failed{window}"),
        f"Checks of a function that failed within {window}.",
    )
