"""
From a fault of the demo's programs to a notification, and back to quiet, through real
programs: JAX, the agent, the sidecar, Prometheus, Alertmanager.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psutil
import pytest

from jaxmon.cli.demo import stack
from jaxmon.cli.demo.alerts import active
from jaxmon.cli.demo.children import Child, Children
from jaxmon.cli.demo.faults import PLACES
from jaxmon.cli.demo.stack import Programs, Stack
from tests.alertmanager import Webhook
from tests.demo import DEADLINE, demo, read_until
from tests.support import ROOT, clean_environ, http_get, require_program, until


RUNBOOKS = "https://github.com/jaxmon/jaxmon/blob/main/runbooks/"
SECONDS = 90.0
QUIET_SCRAPES = 8


@dataclass(frozen=True)
class Expected:
    """
    What a fault leads to.

    Args:
        alert: name of the alert that reports it.
        labels: which that alert must have, among others.
        description: expression that matches what it says; ``{job}`` stands for it.
        follows: other alerts that are true as well, and may arrive.
    """

    alert: str
    labels: dict[str, str]
    description: str
    follows: frozenset[str] = frozenset()


FAULTS = {
    # All wait for compiles: cold requests, and calls that miss the cache.
    "recompile": Expected(
        "JaxmonRecompileStorm",
        {"severity": "ticket", "function": "__main__.forward"},
        r"Function __main__\.forward of job {job} recompiled \d",
        frozenset(
            {
                "JaxmonColdStarts",
                "JaxmonColdStartBudgetBurn",
                "JaxmonCacheHitRateBudgetBurn",
            }
        ),
    ),
    # The server does without what memory does not suffice for: no request fails.
    "oom": Expected(
        "JaxmonOutOfMemory",
        {"severity": "ticket", "function": "__main__.compare_with_all"},
        r"Function __main__\.compare_with_all of job {job} ran out of device memory",
    ),
    # A loop that is stuck is late as well, which is muted while it is stuck.
    "stall": Expected(
        "JaxmonTrainingStalled",
        {"severity": "page", "loop": "train", "slo": "step-freshness"},
        r"job {job} finished its last step of loop train \d+",
        frozenset({"JaxmonStepFreshnessBudgetBurn", "JaxmonTimeLost"}),
    ),
    "errors": Expected(
        "JaxmonRequestErrorBudgetBurn",
        {"severity": "page", "route": "/complete", "slo": "request-error"},
        r"job {job}, route /complete: [\d.]+% of events",
    ),
}


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """Return what Alertmanager sends to."""
    require_program("prometheus")
    require_program("prometheus-alertmanager")
    with Webhook() as running:
        yield running


def test_the_demo_is_quiet_until_it_breaks(webhook: Webhook, run_dir: Path) -> None:
    """
    While nothing is wrong, start included, nothing is sent; what is broken brings its
    alert, on the screen as well; and the demo takes all that it started with it.
    """
    options = ("--break", "errors", "--break-after", "40", "--break-for", "30")
    with demo(run_dir, *options, "--webhook", webhook.url) as process:
        seen = read_until(process, "alertmanager +http")
        children = psutil.Process(process.pid).children()
        read_until(process, "fault errors: ")
        assert webhook.alerts() == []
        found = webhook.until_alert(FAULTS["errors"].alert, seconds=SECONDS)
        until(lambda: is_resolved(webhook, found[1]), "the end", seconds=SECONDS)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0, err
    assert "60 times as fast" in seen
    assert re.search("prometheus +http", seen)
    assert len(children) == 5
    assert not any(child.is_running() for child in children)
    assert list(run_dir.iterdir()) == []
    check(webhook, "demo", FAULTS["errors"], found)
    assert f"firing  {line_of(FAULTS['errors'])}" in out
    assert "fault errors ended" in out


def test_each_fault_brings_its_alert(webhook: Webhook, run_dir: Path) -> None:
    """
    The other faults, each in a job of its own: the alert arrives where it should with
    all that helps, nothing else does but what follows from the fault, and it is
    resolved once the fault is over.
    """
    faults = {name: one for name, one in FAULTS.items() if name != "errors"}
    programs = Programs.installed()
    assert programs is not None
    environ = clean_environ(run_dir, JAXMON_PORT="0", JAXMON_MEMORY_INTERVAL="2")
    with Children(environ, run_dir) as children:
        broken = {name: start(children, name) for name in faults}
        targets = {name: address(child) for name, child in broken.items()}
        running = stack.start(
            programs, children, run_dir, targets=targets, webhook=webhook.url
        )
        until(lambda: scrapes(running, faults) >= QUIET_SCRAPES, "quiet scrapes")
        assert webhook.alerts() == []
        send(signal.SIGUSR1, broken.values())
        arrived = {
            name: webhook.until_alert(expected.alert, seconds=SECONDS)
            for name, expected in faults.items()
        }
        shown = {name: alerts_of(running, name) for name in faults}
        send(signal.SIGUSR2, broken.values())
        for _, alert in arrived.values():
            until(partial(is_resolved, webhook, alert), "the end", seconds=SECONDS)
        children.check()

    for name, expected in faults.items():
        check(webhook, name, expected, arrived[name])
        assert f"firing  {line_of(expected)}" in shown[name]


def check(
    webhook: Webhook, job: str, expected: Expected, arrived: tuple[str, dict[str, Any]]
) -> None:
    """Assert that *arrived* says what it should, and nothing else came from *job*."""
    path, alert = arrived
    assert path == f"/{expected.labels['severity']}"
    assert alert["labels"].items() >= {"job": job, **expected.labels}.items()
    notes = alert["annotations"]
    assert re.search(expected.description.replace("{job}", job), notes["description"])
    assert re.fullmatch(r"[A-Z].*\.", notes["summary"])
    assert notes["runbook_url"] == f"{RUNBOOKS}{expected.alert}.md"
    assert (ROOT / "runbooks" / f"{expected.alert}.md").is_file()
    labels = [one["labels"] for _, one in webhook.alerts()]
    assert {one["job"] for one in labels} <= {"demo", *FAULTS}
    sent = {one["alertname"] for one in labels if one["job"] == job}
    assert sent <= {expected.alert, *expected.follows}


def line_of(expected: Expected) -> str:
    """Return how the demo lists the alert."""
    subject = next(
        f"{label}={expected.labels[label]}"
        for label in ("function", "loop", "route")
        if label in expected.labels
    )
    return f"{expected.labels['severity']}  {expected.alert}  {subject}"


def start(children: Children, fault: str) -> Child:
    """Start the program of the demo that has *fault*, and wait for its agent."""
    module = {"training": "train", "serving": "serve"}[PLACES[fault]]
    arguments = ("-m", f"jaxmon.demo.{module}", "--fault", fault)
    return children.start(fault, [sys.executable, *arguments])


def address(child: Child) -> str:
    """Return host and port of the agent of *child*, once it prints them."""
    told = child.says(re.compile(r"metrics: http://([^/]+)"), seconds=DEADLINE)
    return told.replace("localhost", "127.0.0.1")


def send(number: signal.Signals, broken: Iterable[Child]) -> None:
    """Send a signal to each of the programs."""
    for child in broken:
        child.process.send_signal(number)


def scrapes(running: Stack, jobs: Iterable[str]) -> float:
    """Return how often the program of each of *jobs* has been scraped, at least."""
    query = urlencode({"query": "sum_over_time(up[1m])"})
    answer = json.loads(http_get(f"{running.prometheus}/api/v1/query?{query}"))
    found = {
        one["metric"]["job"]: float(one["value"][1]) for one in answer["data"]["result"]
    }
    return min(found.get(job, 0.0) for job in jobs)


def alerts_of(running: Stack, job: str) -> list[str]:
    """Return how the demo lists the alerts of *job*."""
    described = [one for one in running.alerts() if one["labels"].get("job") == job]
    return [str(one) for one in active(described)]


def is_resolved(webhook: Webhook, alert: dict[str, Any]) -> bool:
    """Return whether the end of *alert* was notified."""
    resolved = [one["fingerprint"] for _, one in webhook.alerts("resolved")]
    return alert["fingerprint"] in resolved
