"""Trials of the alert on failing requests: little traffic, births, gaps, clusters."""

import pytest

from tests.alerts.promtool import evaluate, needed, shipped
from tests.alerts.worlds import Process, World, world


ALERT = "JaxmonRequestErrorBudgetBurn"
ROUTE = 'route="/gen",outcome="{}",start="warm"'


def requests(outcome, pod=0, cluster=""):
    place = f',cluster="{cluster}"' if cluster else ""
    own = f'job="web",instance="{pod}:1"{place}'
    return f"jaxmon_requests_total{{{own},{ROUTE.format(outcome)}}}"


def uptime(pod=0):
    return f'jaxmon_uptime_seconds{{job="web",instance="{pod}:1"}}'


def fired(job, at, *windows, **more):
    """Return what promtool should find: a page of *job*, while these *windows* burn."""
    names = "slo:jaxmon_request_error:burning(10m_of_few|30m_of_few|1h_14_4|1h_3|6h_6)"
    burning = f'{{__name__=~"{names}",job="{job}"}}'
    found = f'label_replace({burning}, "at", "$1", "__name__", "{names}")'
    page = 'ALERTS{alertstate="firing",severity="page"}'
    labels = ",".join(f'{name}="{value}"' for name, value in more.items())
    return {
        "expr": f"group by (cluster, at) ({found} and on (job) {page})",
        "eval_time": f"{at}m",
        "exp_samples": [
            {"labels": f'{{{labels}{"," if labels else ""}at="{window}"}}', "value": 1}
            for window in windows
        ],
    }


def pods_that_fail_their_first_requests():
    """Return ten pods, born with 30 failures each, of which `increase` sees nothing."""
    series = {uptime(0): "6000+60x120", requests("success", 0): "9000+100x120"}
    for pod in range(1, 11):
        series[uptime(pod)] = "_x59 20+60x60"
        series[requests("error", pod)] = "_x59 30+0x60"
        series[requests("success", pod)] = "_x59 0+10x60"
    return series


# Services by name, and when which windows burn.
OUTAGES = {
    # What answered one request a minute, and then none, pages within ten minutes of the
    # first failure, and stops within half an hour after the last.
    "rare": (
        {
            uptime(): "6000+60x200",
            requests("success"): "100+1x60 160+0x28 161+1x60",
            requests("error"): "0+0x60 1+1x28 29+0x60",
        },
        {
            60: (),
            64: (),
            # Once 100 requests are known, so is the burn rate of the hour.
            70: ("10m_of_few",),
            85: ("10m_of_few", "30m_of_few"),
            125: (),
        },
    ),
    # What has never answered pages within ten minutes as well.
    "new": (
        {uptime(): "5+60x60", requests("error"): "1+1x60"},
        {4: (), 9: ("10m_of_few", "30m_of_few")},
    ),
    # Five failures in half an hour, most of all requests, are enough for a page.
    "twelve-an-hour": (
        {
            uptime(): "6000+60x300",
            requests("success"): "100+0x4 101+0x4 102+0x4 103+0x4 104+0x300",
            requests("error"): "0+0x19 " + " ".join(f"{n}+0x4" for n in range(1, 30)),
        },
        {20: (), 35: (), 48: ("30m_of_few",)},
    ),
    "born-failing": (
        pods_that_fail_their_first_requests(),
        {59: (), 64: ("1h_14_4", "6h_6")},
    ),
}
# Of these, none may page.
QUIET = {
    # Fewer than five failures are chance, whatever their share.
    "two-failures": {
        uptime(): "6000+60x200",
        requests("error"): "0+0x19 1+0x30 2+0x100",
    },
    # After 80 minutes without Prometheus, old processes come back with high counts.
    # What they counted in their lives is not counted again.
    "gap": {
        uptime(): "900000+60x20 _x80 906060+60x60",
        requests("success"): "100000+100x20 _x80 110000+100x60",
        requests("error"): "5000+0x20 _x80 5000+0x60",
    },
    # Thirty replicas that replace each other, with few errors, are one service.
    "churn": {
        name: f"_x{5 * pod} {lives}x40 stale"
        for pod in range(30)
        for name, lives in (
            (uptime(pod), "30+60"),
            (requests("success", pod), "500+1000"),
            (requests("error", pod), "0+0.5"),
        )
    },
}
# One job in two clusters is two services: one burns, the other does not.
CLUSTERS = {
    requests("success", 0, cluster="eu"): "0+100x90",
    requests("success", 1, cluster="us"): "0+98x90",
    requests("error", 1, cluster="us"): "0+2x90",
}


def test_what_is_an_outage(tmp_path):
    """
    Little traffic, births, clusters; and what is no outage: two failures in an hour, a
    gap, churn. Services side by side, each as if it were alone.
    """
    worlds = {
        **{job: series for job, (series, _) in OUTAGES.items()},
        **QUIET,
        "clusters": CLUSTERS,
    }
    series = {
        name.replace('"web"', f'"{job}"'): values
        for job, found in worlds.items()
        for name, values in found.items()
    }
    quiet = (
        f'ALERTS{{alertname="{ALERT}",alertstate="firing",job=~"{"|".join(QUIET)}"}}'
    )
    tests = [
        *(
            fired(job, at, *windows)
            for job, (_, expected) in OUTAGES.items()
            for at, windows in expected.items()
        ),
        *(
            {"expr": quiet, "eval_time": f"{at}m", "exp_samples": []}
            for at in (20, 25, 30, 55, 80, 90, 102, 106, 130, 140)
        ),
        fired("clusters", 80, "1h_14_4", "6h_6", "1h_3", cluster="us"),
    ]

    evaluate(tmp_path, needed((ALERT,), shipped()), series, promql_expr_test=tests)


def test_counts_are_exact(tmp_path):
    """
    Events are counted once each: scrapes a minute apart, a restart whose counter
    begins anew, scrapes that fail for three minutes, a process born with counts.
    """
    series = {
        uptime(0): "6000+60x60",
        # 40 until the failed scrapes, 100 when they work again, 200 in the end.
        requests("success", 0): "0+10x4 _x2 100+0x10 200+0x40",
        uptime(1): "6000+60x9 5+60x50",
        # 18 before the restart, 7 and 50 after it.
        requests("success", 1): "0+2x9 7+0x1 50+0x50",
        uptime(2): "_x20 15+60x40",
        requests("success", 2): "_x20 33+0x40",
    }
    own = 'sloth_id="jaxmon-request-error"'
    labels = (
        f'{{job="web", route="/gen", {own}, sloth_service="jaxmon", '
        'sloth_slo="request-error"}'
    )
    test = {
        "expr": f"slo:events:increase1h{{{own}}}",
        "eval_time": "50m",
        "exp_samples": [
            {"labels": f"slo:events:increase1h{labels}", "value": 200 + 18 + 50 + 33}
        ],
    }
    groups = needed((ALERT,), shipped())

    evaluate(tmp_path, groups, series, promql_expr_test=[test])


def test_counts_of_short_processes_are_exact(tmp_path):
    """
    A job that counts the same in each run counts each time: its process is a new one.
    One that continues the counts of ended processes adds to them, also while there is
    no process, and after Prometheus was away what it missed is not counted.
    """

    def counting(pod):
        return uptime(pod).replace("uptime", "counting")

    series = {
        # Every eight minutes, served for five.
        counting(0): "2+60x5 stale _x2 2+60x5 stale _x2 2+60x5 stale",
        requests("success", 0): "3+0x5 stale _x2 3+0x5 stale _x2 3+0x5 stale",
        # One job after another: the slot counts on, and no process is old.
        counting(1): "2+60x60",
        uptime(1): "1 stale 1 stale 1 stale 1 stale",
        requests("success", 1): "4+4x9 40+0x50",
        # Ended long before Prometheus was there.
        counting(2): "_x20 2000+60x5 stale",
        requests("success", 2): "_x20 70+0x5 stale",
    }
    own = 'sloth_id="jaxmon-request-error"'
    labels = (
        f'{{job="web", route="/gen", {own}, sloth_service="jaxmon", '
        'sloth_slo="request-error"}'
    )
    test = {
        "expr": f"slo:events:increase1h{{{own}}}",
        "eval_time": "50m",
        "exp_samples": [
            {"labels": f"slo:events:increase1h{labels}", "value": 3 * 3 + 40}
        ],
    }
    groups = needed((ALERT,), shipped())

    evaluate(tmp_path, groups, series, promql_expr_test=[test])


COUNTED = (
    'sum by (route) (sum_over_time(slo:{}:delta{{sloth_slo="request-error"}}[1h]))'
)
EVENTS = "sum by (route) (sum_over_time(worker:{}:delta[1h]))"


def counted(tmp_path, worlds, *, exact, event=""):
    """
    Have promtool evaluate *worlds*, each with a route of its own, and compare with what
    the rules can know: it is never more, and the same if *exact*, else almost. Counted
    are requests, or *event*, a counter of which rises are rare.
    """
    name = "jaxmon-events" if event else "jaxmon-slo-request-error-short"
    groups = [one for one in shipped().recording if one["name"] == name]
    metric = event or "jaxmon_requests"
    rules = {"events": EVENTS.format(event)}
    if not event:
        rules = {what: COUNTED.format(what) for what in ("events", "errors")}
    series: dict[str, str] = {}
    for number, one in enumerate(worlds):
        slot = f'job="web",instance="{number}:1",worker="0"'
        own = f'{slot},route="/{number}",start="warm"'
        found = one.series(f"{metric}_total", own, "outcome")
        series |= {
            name if metric in name else name.replace(own, slot): values
            for name, values in found.items()
        }
        ledger = one.ledger(60 if event else 30, 15)
        truths = {"events": sum(ledger.values()), "errors": ledger.get("error", 0)}
        for what in rules:
            length = one.length // 5
            series[f'{what}{{route="/{number}"}}'] = f"{truths[what]}+0x{length}"
    at = f"{worlds[0].length}s"
    tests = []
    for what, rule in rules.items():
        if exact:
            wrong = [f"({rule} or {what} * 0) != on (route) {what}"]
        else:
            wrong = [
                f"{rule} > on (route) {what}",
                f"sum({rule}) < 0.99 * sum({what})",
            ]
        tests += [{"expr": one, "eval_time": at, "exp_samples": []} for one in wrong]
    evaluate(tmp_path, groups, series, sampled="5s", promql_expr_test=tests)


def late(*counts, first=60.0, life=240.0, down=30.0):
    """
    Return a slot whose processes count so many successes and errors each, long after
    they began to export, and are killed.
    """
    processes, now = [], 100.0
    for good, bad in counts:
        each = (("success", good), ("error", bad))
        events = {label: [now + first] * number for label, number in each}
        processes.append(Process(now, now + life, events))
        now += life + down
    return World(15, 0, 1800, processes)


def test_successors_count_in_full(tmp_path):
    """
    A killed process's successor is scraped while it imports and loads, before it counts
    anything, and counts as much or more. So does each process of a crash loop, slow or
    as fast as scrapes are.
    """
    worlds = [
        late((100, 5), (110, 7)),
        late((100, 5), (60, 3)),
        late(*[(40, 5)] * 5),
        late(*[(40 + more, 5 + more) for more in range(5)]),
        late(*[(0, 1)] * 20, first=10.0, life=35.0, down=20.0),
    ]
    assert [sum(one.ledger().values()) for one in worlds] == [222, 168, 225, 245, 20]
    # Of those, the rules see all.
    assert all(one.ledger() == one.ledger(30, 15) for one in worlds)

    counted(tmp_path, worlds, exact=True)


@pytest.mark.parametrize(
    ("number", "seed"),
    [
        (60, 0),
        *(pytest.param(400, one, marks=pytest.mark.exhaustive) for one in (1, 2)),
    ],
)
def test_random_lives_are_counted(number, seed, tmp_path):
    """
    Processes that end at any moment, killed or not, followed at once or never; series
    that are born at any moment; four intervals of scrapes.
    """
    counted(tmp_path, [world(1000 * seed + one) for one in range(number)], exact=True)


@pytest.mark.parametrize("event", ["jaxmon_internal_errors", "jaxmon_recompiles"])
@pytest.mark.parametrize("failures", [0.0, 0.05])
def test_rare_events_of_random_lives_are_counted(event, failures, tmp_path):
    """
    As requests are, once a minute: what is mostly 0, of which the rules keep the rest,
    and what is not. Exactly, if processes live for two evaluations.
    """
    worlds = [world(one, failures=failures, shortest=8) for one in range(50)]
    counted(tmp_path, worlds, exact=not failures, event=event)


@pytest.mark.parametrize(
    "trouble",
    [
        {"failures": 0.05},
        pytest.param({"failures": 0.2}, marks=pytest.mark.exhaustive),
        # Several processes between two evaluations.
        pytest.param({"shortest": 0.5}, marks=pytest.mark.exhaustive),
    ],
    ids=repr,
)
def test_failed_scrapes_are_no_events(trouble, tmp_path):
    """
    Nothing counts twice. What is lost: of a process whose first series appear right
    after a failed scrape, as much as its predecessor counted before.
    """
    counted(tmp_path, [world(one, **trouble) for one in range(50)], exact=False)
