"""
The live page and the alerts, on the same figures: at, below and above each limit.

What pages is failing, what is a ticket is degraded, and what is neither is neither,
unless the page says that one follows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jaxmon import catalog
from tests.alerts.promtool import evaluate, needed, shipped
from tests.status import ROUTE, Worker, status


WHERE = 'instance="a",worker="0"'
LIMIT = 80 * 2**30

Series = dict[str, str]
Figures = tuple[Series, Callable[[Worker], None]]


def memory(part: float) -> Figures:
    """Device memory: the ticket after ten minutes is on the page at once."""
    name = f'jaxmon_device_memory_bytes{{{WHERE},job="%s",device="0",kind="%s"}}'

    def set_on(worker: Worker) -> None:
        worker.steps(100, 0.1)
        worker.set(catalog.DEVICE_INFO, 1, "0", "gpu", "H100", "0", "", "")
        worker.set(catalog.DEVICE_MEMORY_BYTES, part * LIMIT, "0", "in_use")
        worker.set(catalog.DEVICE_MEMORY_BYTES, LIMIT, "0", "limit")

    return {
        name % ("%s", "in_use"): f"{part * LIMIT:.0f}",
        name % ("%s", "limit"): f"{LIMIT}",
    }, set_on


def compile_(age: float) -> Figures:
    def set_on(worker: Worker) -> None:
        worker.steps(100, 0.1)
        worker.set(catalog.COMPILE_OLDEST_SECONDS, age)

    return {f'jaxmon_compile_oldest_seconds{{{WHERE},job="%s"}}': f"{age:g}"}, set_on


def step(age: float) -> Figures:
    def set_on(worker: Worker) -> None:
        worker.steps(100, 0.1)
        worker.set(catalog.STEP_AGE_SECONDS, age, "train")

    name = f'jaxmon_step_age_seconds{{{WHERE},job="%s",loop="train"}}'
    return {name: f"{age:g}"}, set_on


def request(age: float) -> Figures:
    def set_on(worker: Worker) -> None:
        worker.set(catalog.REQUESTS_IN_PROGRESS, 3, ROUTE)
        worker.set(catalog.REQUEST_OLDEST_SECONDS, age, ROUTE)

    name = f'jaxmon_request_oldest_seconds{{{WHERE},job="%s",route="{ROUTE}"}}'
    return {name: f"{age:g}"}, set_on


def loss(run: float) -> Figures:
    return nonfinite("loss", run)


def norm(run: float) -> Figures:
    return nonfinite("grad_norm", run)


def nonfinite(quantity: str, run: float) -> Figures:
    def set_on(worker: Worker) -> None:
        worker.steps(100, 0.1)
        worker.set(catalog.VALUE_NONFINITE_RUN, run, quantity)

    name = f'jaxmon_value_nonfinite_run{{{WHERE},job="%s",name="{quantity}"}}'
    age = f'jaxmon_step_age_seconds{{{WHERE},job="%s",loop="train"}}'
    return {name: f"{run:g}", age: "0.1"}, set_on


def outputs(number: float) -> Figures:
    def set_on(worker: Worker) -> None:
        worker.steps(100, 0.1)
        worker.set(catalog.NONFINITE_OUTPUTS, number, "train.step")

    name = f'jaxmon_nonfinite_outputs{{{WHERE},job="%s",name="train.step"}}'
    return {name: f"{number:g}"}, set_on


# Of each: the alert, the reason on the page, and figures around its limits.
CASES = {
    memory: ("JaxmonDeviceMemoryHigh", "memory", (0.85, 0.9, 0.92)),
    compile_: ("JaxmonCompileStuck", "compile_stuck", (400.0, 900.0, 901.0)),
    step: ("JaxmonTrainingStalled", "stalled", (30.0, 70.0, 600.0, 601.0)),
    request: ("JaxmonRequestsHang", "hanging", (30.0, 70.0, 300.0, 301.0)),
    loss: ("JaxmonNonFinite", "nonfinite_value", (1.0, 2.0, 3.0)),
    norm: ("JaxmonNonFinite", "nonfinite_value", (9.0, 10.0, 11.0)),
    outputs: ("JaxmonNonFinite", "nonfinite", (0.0, 1.0)),
}


@pytest.mark.parametrize("figures", CASES, ids=lambda one: one.__name__)
def test_page_and_alert_agree(
    figures: Callable[[float], Figures], tmp_path: Path
) -> None:
    """After an hour of each figure; both sides are there, so neither is mute."""
    alert, kind, values = CASES[figures]
    series: Series = {}
    expected = []
    states = set()
    for number, value in enumerate(values):
        found, set_on = figures(value)
        job = f"job{number}"
        series |= {name % job: f"{text}+0x70" for name, text in found.items()}
        worker = Worker()
        set_on(worker)
        reasons = status(worker)["answer"]["reasons"]
        due = [
            one["state"]
            for one in reasons
            if one["kind"] == kind and "a page follows at" not in one["text"]
        ]
        states.add(tuple(due))
        severities = {"failing": "page", "degraded": "ticket"}
        expected += [
            {"labels": f'{{job="{job}",severity="{severities[one]}"}}', "value": 1}
            for one in due
        ]
    assert len(states) > 1
    firing = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    evaluate(
        tmp_path,
        needed(alert, shipped()),
        series,
        promql_expr_test=[
            {
                "expr": f"sum by (job, severity) ({firing})",
                "eval_time": "60m",
                "exp_samples": expected,
            }
        ],
    )
