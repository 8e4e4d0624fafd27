"""Boards over weeks and annotations, computed by promtool from recorded series."""

import json
import re
from typing import Any

import pytest

from tests.alerts.promtool import evaluate, shipped
from tests.helpers.dashboards import DASHBOARDS, expression, filled


JOB = 'cluster="eu",namespace="prod",job="web"'
RUN = 'cluster="eu",namespace="prod",job="run"'
RATE = "job:jaxmon_requests:rate5m{" + JOB + ',route="/gen"'
BUCKET = "job:jaxmon_request_seconds_bucket:increase5m{" + JOB
BUCKET += ',route="/gen",start="warm",le='
PRICE = "job:jaxmon_accelerator_cost_dollars_per_hour:sum"
TIME = "job:jaxmon_time_seconds:rate5m{" + RUN
SERIES = {
    # One of 100 fails in the first half hour, none later; of a client, not ours.
    f'{RATE},outcome="success",start="warm"}}': "99x29 100x31",
    f'{RATE},outcome="error",start="warm"}}': "1x29 0x31",
    f'{RATE},outcome="client_error",start="warm"}}': "50x60",
    f'{BUCKET}"0.1"}}': "50x60",
    f'{BUCKET}"0.2"}}': "100x60",
    f'{BUCKET}"+Inf"}}': "100x60",
    f"{PRICE}{{{JOB}}}": "12x60",
    f"{PRICE}{{{RUN}}}": "36x60",
    f'job:jaxmon_items:rate5m{{{RUN},loop="main",item="token"}}': "1000x60",
    f'{TIME},activity="step"}}': "0.9x60",
    # Only for a while: it does not count as if it had been all the time.
    f'{TIME},activity="checkpoint"}}': "_x30 0.1x29",
    # Marked by a server, which has no steps.
    f'job:jaxmon_time_seconds:rate5m{{{JOB},activity="rest"}}': "1x60",
}
CASES = {
    "Success rate": ("", "{}", 1 - 30 / 6100),
    "p95": ("", "{}", 0.19),
    "Cost per hour": ("", "{}", 48),
    "Services at a glance": ("Success", f"{{{JOB}}}", 1 - 30 / 6100),
    # Requests of clients that fail are no results.
    "Cost of 1,000 requests": (
        *("", f"{{{JOB}}}"),
        12 / (100 * 3600) * 1000,
    ),
    "Cost of a million items": ("", f"{{{RUN}}}", 36 / 3.6),
}


OVER = "61m"


def overviews() -> list[dict[str, Any]]:
    """Return the rules of boards that read other recorded series."""
    derived = ("served5m", "failed5m", "failing5m", "goodput5m", "dollars5m")
    groups = [
        {
            **group,
            "rules": [one for one in group["rules"] if one["record"].endswith(derived)],
        }
        for group in shipped().recording
        if group["name"].startswith("jaxmon-overviews")
    ]
    return [group for group in groups if group["rules"]]


@pytest.mark.parametrize("title", CASES)
def test_the_figure_is_right(title, tmp_path):
    """What is recorded over five minutes adds up over the range."""
    column, labels, value = CASES[title]
    test = {
        "expr": f"round({expression(title, column, over=OVER)}, 0.0001)",
        "eval_time": "1h",
        "exp_samples": [{"labels": labels, "value": round(value, 4)}],
    }

    evaluate(tmp_path, overviews(), SERIES, promql_expr_test=[test])


def test_goodput_is_the_share_of_steps(tmp_path):
    """Of a job with a loop; a server's activities have none, and rests are meant."""
    series = {**SERIES, f'{TIME},activity="rest"}}': "5x60"}
    test = {
        "expr": f"round({expression('Goodput of services', over=OVER)}, 0.0001)",
        "eval_time": "1h",
        "exp_samples": [{"labels": f"{{{RUN}}}", "value": 0.9}],
    }

    evaluate(tmp_path, overviews(), series, promql_expr_test=[test])


LEFT = "slo:jaxmon_request_error_abandoned:delta{" + JOB + ',route="/gen"}'
EVENTS = (
    "slo:events:increase5m{" + JOB + ',route="/gen",sloth_id="jaxmon-request-error"}'
)


def test_callers_who_gave_up_are_a_fraction_of_all(tmp_path):
    """Two of each evaluation, of the 100 requests within five minutes."""
    test = {
        "expr": f"round({expression('Gave up', over=OVER)}, 0.001)",
        "eval_time": "1h",
        "exp_samples": [{"labels": "{}", "value": 0.1}],
    }
    series = {LEFT: "2x60", EVENTS: "100x60"}

    evaluate(tmp_path, [], series, promql_expr_test=[test])


def test_activities_are_fractions_of_their_sum(tmp_path):
    """Of many processes, activities take many seconds per second, and 100 %."""
    values = {"step": 0.45, "rest": 0.5, "checkpoint": 0.05}
    test = {
        "expr": f"round({expression('Time by activity', over=OVER)}, 0.0001)",
        "eval_time": "1h",
        "exp_samples": [
            {"labels": f'{{activity="{name}"}}', "value": value}
            for name, value in values.items()
        ],
    }

    evaluate(tmp_path, [], SERIES, promql_expr_test=[test])


def test_last_week_is_the_week_before(tmp_path):
    """Twice the requests of the same hour a week earlier are 200 %."""
    name = f'{RATE},outcome="success",start="warm"}}'
    series = {name: f"100x60 _x{7 * 24 * 60 - 61} 200x60"}
    test = {
        "expr": expression("Services at a glance", "Trend", over=OVER),
        "eval_time": f"{7 * 24 * 60 + 60}m",
        "exp_samples": [{"labels": f"{{{JOB}}}", "value": 2}],
    }

    evaluate(tmp_path, overviews(), series, promql_expr_test=[test])


def annotation(name: str) -> str:
    """Return the query of an annotation."""
    found = DASHBOARDS["oncall.json"]["annotations"]["list"]
    (query,) = (one["expr"] for one in found if one["name"] == name)
    return filled(query, over=OVER)


VERSION = "job:jaxmon_runtime_info:versions{" + JOB + ',jaxlib="1",jax='
PROGRAM = "program:jaxmon_execution_seconds_count:rate5m{" + JOB + ',function="step"'


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Versions", f'{VERSION}"0.9"}}', f'{VERSION}"0.10"}}'),
        ("Programs", f'{PROGRAM},fingerprint="a"}}', f'{PROGRAM},fingerprint="b"}}'),
    ],
)
def test_a_change_is_drawn_when_it_happens(name, old, new, tmp_path):
    """Not before, not long after it, not for what leaves or starts at all."""
    series = {old: "1x40", new: "_x29 1x60"}
    drawn = {"labels": new[new.index("{") :], "value": 1}
    tests = [
        {
            "expr": annotation(name),
            "eval_time": at,
            "exp_samples": [drawn] if shown else [],
        }
        for at, shown in (
            *(("1m", False), ("28m", False), ("30m", True), ("35m", True)),
            *(("45m", False), ("60m", False)),
        )
    ]

    evaluate(tmp_path, [], series, promql_expr_test=tests)


def test_recompiles_name_the_function(tmp_path):
    """Whatever the cause, a function that begins to recompile is drawn once."""
    name = "job:jaxmon_recompiles:rate5m{" + JOB + ',function="step",cause='
    drawn = {"labels": f'{{{JOB},function="step"}}', "value": 3}
    tests = [
        {"expr": annotation("Recompiles"), "eval_time": at, "exp_samples": found}
        for at, found in (("5m", [drawn]), ("15m", []), ("30m", []))
    ]

    evaluate(
        tmp_path,
        [],
        {f'{name}"shape"}}': "1x40", f'{name}"dtype"}}': "2x40"},
        promql_expr_test=tests,
    )


def test_an_alert_is_drawn_where_it_begins(tmp_path):
    """Not for as long as it fires, and once, whatever it has besides."""
    name = '{alertname="JaxmonSlow",severity="ticket",' + JOB
    firing = f'ALERTS{name},alertstate="firing"'
    labels = f'{{{JOB},alertname="JaxmonSlow",severity="ticket"}}'
    series = {
        f'{kind},function="{function}"}}': f"_x9 {value}x30"
        for function in "ab"
        for kind, value in ((firing, 1), (f"ALERTS_FOR_STATE{name}", 540))
    }
    tests = [
        {"expr": annotation("Alerts"), "eval_time": at, "exp_samples": found}
        for at, found in (
            ("8m", []),
            ("11m", [{"labels": labels, "value": 540}]),
            ("20m", []),
        )
    ]

    rules = [one for one in shipped().recording if one["name"] == "jaxmon-firing"]
    evaluate(tmp_path, rules, series, promql_expr_test=tests)


def test_links_keep_what_is_chosen():
    """From a table to a board, time, data source, cluster and namespace stay."""
    links = re.findall(r'"(/d/[^"]+)"', json.dumps(DASHBOARDS))
    assert links
    for link in links:
        for kept in ("__url_time_range", *(f"{one}:queryparam" for one in KEPT)):
            assert f"${{{kept}}}" in link


KEPT = ("datasource", "cluster", "namespace")
