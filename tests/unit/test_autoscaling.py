"""
Autoscaling: the metrics exist, and the queries say what they are for.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from jaxmon import catalog
from jaxmon.artifacts import autoscaling
from tests.alerts import promtool


FILES = {name: yaml.safe_load(text) for name, text in autoscaling.render().items()}
RULES = FILES["prometheus-adapter-values.yaml"]["rules"]["custom"]
# Two pods; the first holds two workers with a device each, the second one.
SERIES = {
    f'jaxmon_{name}{{namespace="default",pod="{pod}",worker="{worker}",{label}}}': value
    for name, pod, worker, label, value in (
        ("device_memory_bytes", "server-a", 0, 'device="0",kind="in_use"', "60"),
        ("device_memory_bytes", "server-a", 0, 'device="0",kind="limit"', "80"),
        ("device_memory_bytes", "server-a", 1, 'device="0",kind="in_use"', "72"),
        ("device_memory_bytes", "server-a", 1, 'device="0",kind="limit"', "80"),
        ("device_memory_bytes", "server-b", 0, 'device="0",kind="in_use"', "8"),
        ("device_memory_bytes", "server-b", 0, 'device="0",kind="limit"', "80"),
        ("device_memory_bytes", "other-c", 0, 'device="0",kind="in_use"', "80"),
        ("device_memory_bytes", "other-c", 0, 'device="0",kind="limit"', "80"),
        ("requests_in_progress", "server-a", 0, 'route="/a"', "3"),
        ("requests_in_progress", "server-a", 1, 'route="/a"', "4"),
        ("requests_in_progress", "server-b", 0, 'route="/b"', "5"),
        ("requests_in_progress", "other-c", 0, 'route="/b"', "99"),
    )
}


def test_every_metric_is_in_the_catalogue() -> None:
    """
    No file names a metric that jaxmon does not have.
    """
    known = {metric.name for metric in catalog.METRICS}
    named = {
        name
        for text in autoscaling.render().values()
        for name in re.findall(r"\bjaxmon_\w+", text)
    }
    assert named
    assert named <= known


def test_the_autoscaler_asks_for_what_the_adapter_offers() -> None:
    """
    The names in hpa.yaml are those that prometheus-adapter is told to give.
    """
    metrics = FILES["hpa.yaml"]["spec"]["metrics"]
    asked = [one["pods"]["metric"]["name"] for one in metrics]

    assert asked == [rule["name"]["as"] for rule in RULES]


def test_pods_are_measured_by_their_fullest_device_and_their_requests(
    tmp_path: Path,
) -> None:
    """
    Prometheus gives prometheus-adapter one value for each pod that it asks about: the
    memory of the fullest device over its limit, and all requests in progress.
    """
    scope = {
        "<<.LabelMatchers>>": 'namespace="default",pod=~"server-a|server-b"',
        "<<.GroupBy>>": "pod",
    }
    memory, requests = (filled(rule["metricsQuery"], scope) for rule in RULES)

    evaluate(
        tmp_path,
        {
            memory: {'{pod="server-a"}': 0.9, '{pod="server-b"}': 0.1},
            requests: {'{pod="server-a"}': 7, '{pod="server-b"}': 5},
        },
    )


def test_the_adapter_discovers_pods(tmp_path: Path) -> None:
    """
    The queries for discovery find series of pods, and none without a pod.
    """
    queries = [rule["seriesQuery"] for rule in RULES]
    evaluate(
        tmp_path,
        {f"count({query})": {"{}": 4} for query in queries},
        extra={
            'jaxmon_device_memory_bytes{kind="limit",device="0"}': "1",
            'jaxmon_requests_in_progress{route="/a"}': "1",
        },
    )


def test_keda_asks_for_the_mean_and_the_sum_of_one_deployment(tmp_path: Path) -> None:
    """
    KEDA compares the mean of the fullest devices, and divides the sum of requests by
    the replicas; pods of other deployments do not count.
    """
    memory, requests = FILES["keda.yaml"]["spec"]["triggers"]
    assert (memory["metricType"], requests["metricType"]) == ("Value", "AverageValue")

    evaluate(
        tmp_path,
        {
            memory["metadata"]["query"]: {"{}": 0.5},
            requests["metadata"]["query"]: {"{}": 12},
        },
    )


def evaluate(
    directory: Path,
    expected: dict[str, dict[str, float]],
    extra: dict[str, str] | None = None,
) -> None:
    tests: list[dict[str, Any]] = [
        {
            "expr": query,
            "eval_time": "0m",
            "exp_samples": [
                {"labels": labels, "value": value} for labels, value in samples.items()
            ],
        }
        for query, samples in expected.items()
    ]
    promtool.evaluate(directory, [], SERIES | (extra or {}), promql_expr_test=tests)


def filled(query: str, scope: dict[str, str]) -> str:
    for placeholder, text in scope.items():
        query = query.replace(placeholder, text)
    return query
