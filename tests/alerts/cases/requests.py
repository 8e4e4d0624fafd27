"""Cases of alerts on requests that hang or are slow."""

from tests.alerts.promtool import Case, page, ticket


ROUTE = 'job="web",instance="a:1",route="/gen"'
OLDEST = f"jaxmon_request_oldest_seconds{{{ROUTE}}}"
WHO = {"job": "web", "route": "/gen"}


def requests(outcome):
    return f'jaxmon_requests_total{{{ROUTE},outcome="{outcome}",start="warm"}}'


def seconds(part, outcome, start="warm", bound=""):
    """Return the name of a series of the latency."""
    le = f',le="{bound}"' if bound else ""
    own = f'{ROUTE},outcome="{outcome}",start="{start}"{le}'
    return f"jaxmon_request_seconds_{part}{{{own}}}"


def cancelled(after, number=2, since=0):
    """Return series of callers that give up after so many seconds each."""
    quiet = f"0+0x{since} " if since else ""
    return {
        requests("client_error"): f"{quiet}0+{number}x60",
        seconds("count", "client_error"): f"{quiet}0+{number}x60",
        seconds("sum", "client_error"): f"{quiet}0+{number * after:g}x60",
    }


def cold(below, number=3):
    """Return series of cold requests, all within the bucket that ends at *below*."""
    found = {
        seconds("bucket", "success", "cold", str(bound)): (
            f"0+{number if bound >= below else 0}x60"
        )
        for bound in (1.0, 10.0, 30.0)
    }
    return found | {
        seconds("bucket", "success", "cold", "+Inf"): f"0+{number}x60",
        seconds("count", "success", "cold"): f"0+{number}x60",
    }


def replica(name, metric, labels=""):
    """Return the name of a series of one of several processes."""
    return f'{metric}{{job="web",instance="{name}:1",route="/gen"{labels}}}'


def means(**each):
    """Return the latency of processes whose warm requests take so many seconds."""
    kind = ',outcome="success",start="warm"'
    name = "jaxmon_request_seconds_"
    return {
        replica(who, f"{name}{part}", kind): f"0+{10 * by:g}x60"
        for who, mean in each.items()
        for part, by in (("count", 1), ("sum", mean))
    }


def answering(*names):
    """Return the answers of processes."""
    of = ',outcome="success",start="warm"'
    return {replica(who, "jaxmon_requests_total", of): "0+9x60" for who in names}


CASES = {
    "one of two processes hangs": Case(
        "JaxmonReplicaSlow/replica_hangs",
        {
            **answering("b"),
            replica("a", "jaxmon_request_oldest_seconds"): "0+60x60",
            replica("a", "jaxmon_requests_in_progress"): "1+9x60",
            # Few of them, as a long stream is.
            replica("c", "jaxmon_request_oldest_seconds"): "0+60x60",
            replica("c", "jaxmon_requests_in_progress"): "1+0x60",
        },
        quiet=("4m",),
        firing={
            "10m": ticket(
                "A process of job web on a:1 has answered no request to route /gen "
                "for 5m; callers wait, or have waited and left.",
                "job=web instance=a:1 route=/gen symptom=replica_hangs",
            )
        },
    ),
    "all processes hang": Case(
        "JaxmonReplicaSlow/replica_hangs",
        {
            replica("a", "jaxmon_request_oldest_seconds"): "0+60x60",
            replica("a", "jaxmon_requests_in_progress"): "1+9x60",
        },
        quiet=("10m", "30m"),
    ),
    "one of three processes is slow": Case(
        "JaxmonReplicaSlow/replica_slow",
        means(a=0.8, b=0.2, c=0.2),
        quiet=("5m",),
        firing={
            "30m": ticket(
                "A process of job web on a:1 takes 4 times as long as the median "
                "process for requests to route /gen.",
                "job=web instance=a:1 route=/gen symptom=replica_slow",
            )
        },
    ),
    "one of two is slow": Case(
        "JaxmonReplicaSlow/replica_slow",
        means(a=0.8, b=0.2),
        quiet=("30m", "50m"),
    ),
    "one of three is slower by a little": Case(
        "JaxmonReplicaSlow/replica_slow",
        means(a=0.02, b=0.004, c=0.004),
        quiet=("30m", "50m"),
    ),
    "every request hangs": Case(
        "JaxmonRequestsHang",
        {requests("success"): "0+5x10 50+0x60", OLDEST: "1+0x10 0+60x60"},
        quiet=("10m", "15m"),
        firing={
            "20m": page(
                "Route /gen of job web, or some of its processes, answers no request; "
                "requests stay open for "
                "9m 0s.",
                **WHO,
            )
        },
    ),
    "one request of many hangs": Case(
        "JaxmonRequestsHang",
        {requests("success"): "0+5x60", OLDEST: "1+0x10 0+60x50"},
        quiet=("20m", "40m"),
    ),
    "every request of a new service hangs": Case(
        "JaxmonRequestsHang",
        {OLDEST: "0+60x30"},
        quiet=("4m",),
        firing={
            "8m": page(
                "Route /gen of job web, or some of its processes, answers no request; "
                "requests stay open for "
                "8m 0s.",
                **WHO,
            )
        },
    ),
    "callers give up on a service that hangs": Case(
        "JaxmonRequestsHang",
        {requests("success"): "0+5x10 50+0x60", OLDEST: "20+0x60"}
        | cancelled(30, since=10),
        quiet=("10m", "18m"),
        firing={
            "30m": page(
                "Route /gen of job web, or some of its processes, answers no request; "
                "requests stay open for "
                "30s.",
                **WHO,
            )
        },
    ),
    "a stream that its callers end is not known to answer": Case(
        "JaxmonRequestsHang",
        cancelled(30),
        firing={
            "30m": ticket(
                "Route /gen of job web, or some of its processes, answers no request; "
                "requests stay open for "
                "30s.",
                **WHO,
            )
        },
    ),
    "a route that only finds nothing": Case(
        "JaxmonRequestsHang", cancelled(0.01, 50), quiet=("30m", "50m")
    ),
    "cold requests that take long": Case(
        "JaxmonColdStartBudgetBurn/cold_latency",
        cold(30),
        firing={
            "30m": ticket(
                "5 % of the cold requests to route /gen of job web took longer than "
                "29s in the last 10m.",
                **WHO,
                deploy="expected",
                symptom="cold_latency",
            )
        },
    ),
    "cold requests that take a moment": Case(
        "JaxmonColdStartBudgetBurn/cold_latency", cold(10), quiet=("30m",)
    ),
    "a few cold requests that take long": Case(
        "JaxmonColdStartBudgetBurn/cold_latency", cold(30, 0.5), quiet=("30m",)
    ),
}
