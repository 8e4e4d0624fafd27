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


CASES = {
    "every request hangs": Case(
        "JaxmonRequestsHang",
        {requests("success"): "0+5x10 50+0x60", OLDEST: "1+0x10 0+60x60"},
        quiet=("10m", "15m"),
        firing={
            "20m": page(
                "Route /gen of job web answers no request; callers have waited for "
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
                "Route /gen of job web answers no request; callers have waited for "
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
                "Route /gen of job web answers no request; callers have waited for "
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
                "Route /gen of job web answers no request; callers have waited for "
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
