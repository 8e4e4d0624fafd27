"""Autoscaling: the metrics exist, and the queries say what they are for."""

import re
from pathlib import Path
from typing import Any

import yaml

from jaxmon.catalog import BY_NAME
from tests.alerts import promtool
from tests.helpers.processes import ROOT


TEXTS = {
    path.name: path.read_text()
    for path in (ROOT / "exporters/kubernetes/autoscaling").glob("*.yaml")
}
FILES = {name: yaml.load(text, Loader=yaml.CSafeLoader) for name, text in TEXTS.items()}
RULES = FILES["prometheus-adapter-values.yaml"]["rules"]["custom"]
CANARY = "server-canary-7f9c-c"
# Two pods; the first holds two workers with a device each, the second one.
SERIES = {
    f'jaxmon_{name}{{namespace="default",pod="{pod}",worker="{worker}",{label}}}': value
    for name, pod, worker, label, value in (
        ("device_memory_bytes", "server-7f9c-a", 0, 'device="0",kind="in_use"', "60"),
        ("device_memory_bytes", "server-7f9c-a", 0, 'device="0",kind="limit"', "80"),
        ("device_memory_bytes", "server-7f9c-a", 1, 'device="0",kind="in_use"', "72"),
        ("device_memory_bytes", "server-7f9c-a", 1, 'device="0",kind="limit"', "80"),
        ("device_memory_bytes", "server-7f9c-b", 0, 'device="0",kind="in_use"', "8"),
        ("device_memory_bytes", "server-7f9c-b", 0, 'device="0",kind="limit"', "80"),
        ("device_memory_bytes", CANARY, 0, 'device="0",kind="in_use"', "80"),
        ("device_memory_bytes", CANARY, 0, 'device="0",kind="limit"', "80"),
        ("queue_depth", "server-7f9c-a", 0, 'queue="prefill"', "6"),
        ("queue_depth", "server-7f9c-a", 0, 'queue="decode"', "1"),
        ("queue_depth", "server-7f9c-a", 1, 'queue="prefill"', "4"),
        ("queue_depth", "server-7f9c-b", 0, 'queue="prefill"', "0"),
        ("queue_depth", CANARY, 0, 'queue="prefill"', "50"),
        ("requests_in_progress", "server-7f9c-a", 0, 'route="/a"', "3"),
        ("requests_in_progress", "server-7f9c-a", 1, 'route="/a"', "4"),
        ("requests_in_progress", "server-7f9c-b", 0, 'route="/b"', "5"),
        ("requests_in_progress", CANARY, 0, 'route="/b"', "99"),
    )
}


def test_the_autoscaler_asks_for_what_the_adapter_offers() -> None:
    """The names in hpa.yaml are among those that prometheus-adapter provides."""
    metrics = FILES["hpa.yaml"]["spec"]["metrics"]
    asked = [one["pods"]["metric"]["name"] for one in metrics]

    assert asked == ["device_memory_used_ratio", "queue_depth"]
    offered = {rule["name"]["as"] for rule in RULES}
    assert offered == {*asked, "requests_in_progress"}


def test_the_metrics_are_those_of_the_catalogue() -> None:
    """Every metric that a file queries is one that agents export."""
    named = set(re.findall(r"jaxmon_\w+", "".join(TEXTS.values())))

    assert len(named) == 3
    assert named <= BY_NAME.keys()


def test_pods_are_measured_by_their_fullest_device_and_what_waits(tmp_path):
    """
    Prometheus gives prometheus-adapter one value for each pod that it asks about: the
    memory of the fullest device over its limit, what waits in all queues, and all
    requests in progress.
    """
    scope = {
        "<<.LabelMatchers>>": 'namespace="default",pod=~"server-7f9c-a|server-7f9c-b"',
        "<<.GroupBy>>": "pod",
    }
    memory, queued, requests = (filled(rule["metricsQuery"], scope) for rule in RULES)

    evaluate(
        tmp_path,
        {
            memory: {'{pod="server-7f9c-a"}': 0.9, '{pod="server-7f9c-b"}': 0.1},
            queued: {'{pod="server-7f9c-a"}': 11, '{pod="server-7f9c-b"}': 0},
            requests: {'{pod="server-7f9c-a"}': 7, '{pod="server-7f9c-b"}': 5},
        },
    )


def test_the_adapter_discovers_pods(tmp_path: Path) -> None:
    """The queries for discovery find series of pods, and none without a pod."""
    memory, queued, requests = (rule["seriesQuery"] for rule in RULES)
    expected = {memory: 4, queued: 5, requests: 4}
    evaluate(
        tmp_path,
        {f"count({query})": {"{}": found} for query, found in expected.items()},
        extra={
            'jaxmon_device_memory_bytes{kind="limit",device="0"}': "1",
            'jaxmon_queue_depth{queue="prefill"}': "1",
            'jaxmon_requests_in_progress{route="/a"}': "1",
        },
    )


def test_keda_asks_for_the_mean_and_the_sum_of_one_deployment(tmp_path: Path) -> None:
    """KEDA compares means and sums over the replicas of this deployment alone."""
    memory, queued = FILES["keda.yaml"]["spec"]["triggers"]
    assert (memory["metricType"], queued["metricType"]) == ("Value", "AverageValue")

    evaluate(
        tmp_path,
        {
            memory["metadata"]["query"]: {"{}": 0.5},
            queued["metadata"]["query"]: {"{}": 11},
        },
    )


def test_a_device_without_a_limit_is_not_full(tmp_path: Path) -> None:
    """Some allocators have no limit, and say 0: a division by it would be endless."""
    device = (
        'jaxmon_device_memory_bytes{{namespace="default",pod="server-7f9c-b",'
        'worker="0",device="1",kind="{}"}}'
    )
    memory, _ = FILES["keda.yaml"]["spec"]["triggers"]

    evaluate(
        tmp_path,
        {memory["metadata"]["query"]: {"{}": 0.5}},
        extra={device.format("in_use"): "8", device.format("limit"): "0"},
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
