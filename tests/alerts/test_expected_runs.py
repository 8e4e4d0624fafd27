"""Runs that are expected to run: those that ended well are expected no more."""

import pytest

from jaxmon_alerts import slo
from tests.alerts.promtool import evaluate, needed, rules


SITE = """
runs:
  - {match: {job: nightly}, processes: 1}
"""
PAGES = 'ALERTS{alertname="JaxmonTrainingDied",alertstate="firing",job="nightly"}'


def slot(pod, life, *, finished="", died="", ended=""):
    """Return the series of a process without a loop, and of its slot after its end."""
    where = f'job="nightly",pod="{pod}",instance="{pod}:1",worker="0"'
    found = {
        f"jaxmon_runtime_info{{{where}}}": life,
        f"jaxmon_agent_finished_seconds{{{where}}}": finished,
        f'jaxmon_agent_died{{{where},loop=""}}': died,
        f"jaxmon_agent_ended_seconds{{{where}}}": ended,
    }
    return {name: values for name, values in found.items() if values}


CASES = {
    "finished, and its pod is gone: known for as long as Prometheus is to look": (
        slot("a", "1x29 stale", finished="_x29 1+60x4 stale"),
        ("31m", "45m", "60m", "90m"),
        ("100m",),
    ),
    "finished on a host whose sidecar stays: for as long as no other takes its slot": (
        slot("a", "1x29 stale", finished="_x29 1+60x200"),
        ("31m", "45m", "60m", "90m", "200m"),
        (),
    ),
    "finished, and its successor dies, with its pod": (
        {
            **slot("a", "1x29 stale", finished="_x29 1+60x4 stale"),
            **slot("b", "_x60 1x29 stale"),
        },
        ("31m", "45m", "59m", "75m", "92m"),
        ("95m",),
    ),
    "finished, and the next in its slot dies": (
        slot(
            "a",
            "1x29 stale _x30 1x29 stale",
            finished="_x29 1+60x30 stale",
            died="0x90 1x200",
        ),
        ("31m", "59m", "75m", "92m"),
        ("96m",),
    ),
    "ended by an exception: what it counted is served, but it did not finish": (
        slot("a", "1x29 stale", died="0x29 1x200", ended="_x29 1+60x4 stale"),
        ("29m", "31m"),
        (
            "34m",
            "60m",
        ),
    ),
    "died with its pod: nothing says how": (
        slot("a", "1x29 stale"),
        ("29m", "31m"),
        (
            "34m",
            "60m",
        ),
    ),
    "one of its pods dies after another finished, and is not restarted": (
        {
            **slot("a", "1x29 stale", finished="_x29 1+60x4 stale"),
            **slot("b", "1x31 stale"),
        },
        ("31m", "36m", "60m"),
        (),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_expected_runs(name, tmp_path):
    """What finished does not page; what ended otherwise does, after three minutes."""
    series, quiet, firing = CASES[name]
    path = tmp_path / "slo.yaml"
    # A week, in an hour.
    text = slo.default().replace("finished_within: 7d", "finished_within: 1h")
    path.write_text(text + SITE)
    groups = needed(("JaxmonTrainingDied",), rules(slo.load(path)))
    tests = [
        {
            "expr": f"count({PAGES})",
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": 1}] if at in firing else [],
        }
        for at in (*quiet, *firing)
    ]
    evaluate(tmp_path, groups, series, promql_expr_test=tests)
