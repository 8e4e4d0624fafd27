"""Budgets: which pairs fire at which pace, when, and what keeps them silent."""

from dataclasses import replace

import pytest

from jaxmon_alerts import slo
from tests.alerts.promtool import Case, Firing, run


GOOD = 'jaxmon_requests_total{job="web",route="/gen",outcome="success",start="warm"}'
BAD = GOOD.replace("success", "error")
ALERT = "JaxmonRequestErrorBudgetBurn"

# Severity, and what is recorded while it burns: for 30 days.
PAIRS = {
    "14.4": ("page", "1h_14_4"),
    "6": ("page", "6h_6"),
    "3 of 1h": ("page", "1h_3"),
    "10m": ("page", "10m_of_few"),
    "30m": ("page", "30m_of_few"),
    "3 of 1d": ("ticket", "1d_3"),
    "1": ("ticket", "3d_1"),
}
OUTAGES = ("10m", "30m")
PAGES = ("14.4", "6", "3 of 1h")
TICKETS = ("3 of 1d", "1")


def firing(name, who, value, allowed, pairs, *, page=True, noise=False):
    """
    Return what is expected of the SLO *name* while *pairs* fire at *value*.

    Args:
        name: of the SLO.
        who: its own labels, in order.
        value: error ratio as text.
        allowed: budget as text.
        pairs: keys of `PAIRS`.
        page: whether urgent pairs page.
        noise: whether tickets wait for deployments.
    """
    found = {}
    text = ", ".join(f"{label} {value}" for label, value in who.items())
    for pair in pairs:
        severity = PAIRS[pair][0] if page else "ticket"
        labels = {**who, "severity": severity, "slo": name, "owner": "on-call"}
        if noise and severity == "ticket":
            labels["deploy"] = "expected"
        spans = {"page": "10m, 30m, 1h and 6h", "ticket": "1d and 3d"}[severity]
        if not page:
            # What never pages has no windows for services with little traffic.
            spans = "1h, 6h, 1d and 3d"
        found[severity] = Firing(
            labels,
            f"{text}: {value} of events in the shortest of the last {spans} that burns "
            f"were bad ({allowed} allowed).",
        )
    return [*found.values()]


def requests(value, pairs, job="web"):
    """Return what is expected of the SLO on errors of requests."""
    return firing("request-error", {"job": job, "route": "/gen"}, value, "0.1%", pairs)


def of(job, series):
    return series.replace('"web"', f'"{job}"')


PACES = [
    (9, "0.09%", ()),
    (20, "0.2%", ("1",)),
    (40, "0.4%", ("3 of 1h", *TICKETS)),
    (80, "0.8%", ("6", "3 of 1h", *TICKETS)),
    (200, "2%", (*PAGES, *TICKETS)),
    (10000, "100%", (*PAGES, *OUTAGES, *TICKETS)),
]


def test_pairs_fire_by_pace(tmp_path):
    """The faster the budget burns, the more pairs fire; just within it, none does."""
    series, expected = {}, []
    for errors, value, pairs in PACES:
        job = f"web-{errors}"
        series[of(job, GOOD)] = f"0+{10000 - errors}x90"
        series[of(job, BAD)] = f"0+{errors}x90"
        expected += requests(value, pairs, job)

    tests = [
        {
            "expr": f"group by (job) (slo:jaxmon_request_error:burning{name})",
            "eval_time": "80m",
            "exp_samples": [
                {"labels": f'{{job="web-{errors}"}}', "value": 1}
                for errors, _, pairs in PACES
                if pair in pairs
            ],
        }
        for pair, (_, name) in PAIRS.items()
    ]
    case = Case(ALERT, series, firing={"80m": expected})
    run(case, tmp_path, queries=tests)


# Half of all requests fail from 61m to 80m.
TWENTY_MINUTES = {
    GOOD: "0+100x60 6050+50x19 7100+100x370",
    BAD: "0+0x60 50+50x19 1000+0x370",
}


def test_pages_come_soon_and_end_soon(tmp_path):
    """
    Half of all requests fail from 61m to 80m: the fast pairs page within four
    minutes, tickets follow after a quarter of an hour, and pages end with their short
    windows.
    """
    case = Case(
        ALERT,
        TWENTY_MINUTES,
        quiet=("60m", "62m"),
        firing={
            # Of the 6,400 requests until then, 200 failed: 150 of 6,000 in an hour.
            "65m": with_value(requests("", ["14.4", "6"]), "3.333%"),
            # The short windows of 5m and 30m are clean; 2h and 6h are not.
            "115m": with_value(requests("", ["3 of 1d", "1"]), "8.772%"),
        },
    )

    run(case, tmp_path)


def with_value(expected, value):
    return [
        replace(one, summary=one.summary.replace("gen: ", f"gen: {value}"))
        for one in expected
    ]


# Each of a job of its own.
QUIET = (
    # If no request ever failed, the ratio is 0, not absent.
    {GOOD: "0+100x180"},
    # Errors of callers are neither errors nor traffic.
    {GOOD: "0+100x180", GOOD.replace("success", "client_error"): "0+900x180"},
    # A single failure among 30 requests is 3 %, and no reason to page.
    {GOOD: "0+0.5x100", BAD: "0+0x61 1+0x40"},
    # Four failures among 180 are 2 %, and still fewer than the minimum.
    {GOOD: "0+3x180", BAD: "0+0x60 4+0x120"},
    # Fewer events than the minimum keep burn rates silent, fewer errors every pair.
    {GOOD: "0+1x90", BAD: "0+0x60 0+0.1x30"},
)


def test_what_is_no_alert(tmp_path):
    """Chance, and what callers do, page no one."""
    series = {
        of(f"web-{number}", name): values
        for number, found in enumerate(QUIET)
        for name, values in found.items()
    }
    quiet = ("30m", "62m", "64m", "70m", "80m", "90m", "95m")

    run(Case(ALERT, series, quiet=quiet), tmp_path)


VANISHED = {GOOD: "0+50x30 stale", BAD: "0+50x30 stale"}


def test_a_target_that_vanishes_takes_its_page_along(tmp_path):
    """Without series there is no ratio: each page ends with its short window."""
    firing = {
        "30m": requests("50%", (*PAGES, *TICKETS)),
        "62m": requests("50%", ("3 of 1d", "1")),
    }

    run(Case(ALERT, VANISHED, firing=firing), tmp_path)


HISTOGRAM = (
    'jaxmon_request_seconds_{}{{job="web",route="/gen",outcome="success",'
    'start="warm"{}}}'
)
LATENCY = {
    HISTOGRAM.format("count", ""): "0+100x60",
    HISTOGRAM.format("bucket", ',le="0.2"'): "0+20x60",
}
ROUTE = {"job": "web", "route": "/gen"}


def tickets(name, who, value, allowed, *, noise=False):
    """Return the tickets of an objective that never pages, all of whose pairs fire."""
    pairs = (*PAGES, *TICKETS)
    return firing(name, who, value, allowed, pairs, page=False, noise=noise)


def other(series, old, new):
    return {name.replace(old, new): values for name, values in series.items()}


# By alert: series of jobs, and what fires, and nothing else does.
OBJECTIVES = {
    "JaxmonWarmLatencyBudgetBurn": (
        {
            "web": LATENCY,
            "cold": other(LATENCY, '"warm"', '"cold"'),
            "failing": other(LATENCY, '"success"', '"error"'),
            "delayed": other(LATENCY, '"warm"', '"delayed"'),
        },
        tickets("warm-latency", ROUTE, "80%", "5%", noise=True),
    ),
    "JaxmonColdStartBudgetBurn/": (
        {
            "web": {GOOD: "0+80x60", GOOD.replace('"warm"', '"cold"'): "0+20x60"},
            "late": {GOOD: "0+80x60", GOOD.replace('"warm"', '"delayed"'): "0+20x60"},
        },
        [
            *tickets("cold-start", ROUTE, "20%", "1%", noise=True),
            *tickets("cold-start", {**ROUTE, "job": "late"}, "20%", "1%", noise=True),
        ],
    ),
    "JaxmonStepFreshnessBudgetBurn": (
        {
            "web": {'jaxmon_step_age_seconds{job="web",loop="main"}': "0+60x60"},
            "well": {'jaxmon_step_age_seconds{job="web",loop="main"}': "60+0x60"},
        },
        # 23 of the 26 evaluations from 0m to 50m find it older than 5 minutes.
        tickets("step-freshness", {"job": "web", "loop": "main"}, "88.46%", "1%"),
    ),
}


@pytest.mark.parametrize("alert", OBJECTIVES)
def test_each_objective(alert, tmp_path):
    """
    Each SLO's alert fires with its labels when its indicator is bad, and only then.
    """
    jobs, expected = OBJECTIVES[alert]
    series = {
        of(job, name): values
        for job, found in jobs.items()
        for name, values in found.items()
    }

    run(Case(alert, series, firing={"50m": expected}), tmp_path)


def test_a_first_step_that_compiles_for_long_burns_nothing(tmp_path):
    """Programs of large models compile for a quarter of an hour, all ranks at once."""
    process = 'job="web",instance="a:1",worker="{}"'
    series = {}
    for worker in range(2):
        own = process.format(worker)
        series[f'jaxmon_step_age_seconds{{{own},loop="main"}}'] = "0+60x13 0+0x60"
        series[f"jaxmon_compile_oldest_seconds{{{own}}}"] = "0+60x13 0+0x60"
    quiet = tuple(f"{minute}m" for minute in range(5, 70, 2))

    run(Case("JaxmonStepFreshnessBudgetBurn", series, quiet=quiet), tmp_path)


def test_every_objective_has_a_case():
    """A new default SLO needs a case above."""
    assert {one.alert for one in slo.load()} == {
        "JaxmonRequestErrorBudgetBurn",
        "JaxmonWarmLatencyBudgetBurn",
        "JaxmonColdStartBudgetBurn",
        "JaxmonStepFreshnessBudgetBurn",
    }
