"""
`jaxmon demo --break`: from a fault to a notification, and back to quiet, through real
programs: JAX, the agent, the sidecar, Prometheus, Alertmanager.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.alertmanager import Webhook
from tests.demo import DEADLINE, demo, read_until
from tests.support import ROOT, require_program, until


RUNBOOKS = "https://github.com/jaxmon/jaxmon/blob/main/runbooks/"
SECONDS = 90.0


@dataclass(frozen=True)
class Expected:
    """
    What a fault leads to.

    Args:
        alert: name of the alert that tells of it.
        labels: which that alert must have, among others.
        description: expression that matches what it says.
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
        r"Function __main__\.forward of job demo was recompiled \d",
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
        r"Function __main__\.compare_with_all of job demo ran out of device memory",
    ),
    # A loop that is stuck is late as well, which is muted while it is stuck.
    "stall": Expected(
        "JaxmonTrainingStalled",
        {"severity": "page", "loop": "train", "slo": "step-freshness"},
        r"job demo finished its last step of loop train \d+",
        frozenset({"JaxmonStepFreshnessBudgetBurn"}),
    ),
    "errors": Expected(
        "JaxmonRequestErrorBudgetBurn",
        {"severity": "page", "route": "/complete", "slo": "request-error"},
        r"job demo, route /complete: [\d.]+% of the events",
    ),
}


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """Return what Alertmanager sends to."""
    require_program("prometheus")
    require_program("prometheus-alertmanager")
    with Webhook() as running:
        yield running


def test_a_quiet_demo_alerts_nobody(webhook: Webhook, run_dir: Path) -> None:
    """
    While nothing is wrong, start included, nothing is sent; and the demo takes
    Prometheus and Alertmanager with it when it ends.
    """
    options = ("--duration", "40", "--webhook", webhook.url)
    with demo(run_dir, *options) as process:
        seen = read_until(process, "alertmanager +http")
        children = psutil.Process(process.pid).children()
        out, err = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0, err
    assert "60 times as fast" in seen
    assert re.search("prometheus +http", seen)
    assert " firing " not in out
    assert webhook.alerts() == []
    assert len(children) == 5
    assert not any(child.is_running() for child in children)
    assert list(run_dir.iterdir()) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_brings_its_alert(fault: str, webhook: Webhook, run_dir: Path) -> None:
    """
    The alert arrives where it should with all that helps, nothing else does but what
    follows from the fault, and it is resolved once the fault is over.
    """
    expected = FAULTS[fault]
    options = ("--break", fault, "--break-after", "8", "--break-for", "30")
    with demo(run_dir, *options, "--webhook", webhook.url) as process:
        read_until(process, f"fault {fault}: ")
        assert webhook.alerts() == []
        path, alert = webhook.until_alert(expected.alert, seconds=SECONDS)
        until(lambda: is_resolved(webhook, alert), "the end", seconds=SECONDS)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0, err
    assert path == f"/{expected.labels['severity']}"
    assert alert["labels"].items() >= {"job": "demo", **expected.labels}.items()
    notes = alert["annotations"]
    assert re.search(expected.description, notes["description"])
    assert re.fullmatch(r"[A-Z].*\.", notes["summary"])
    assert notes["runbook_url"] == f"{RUNBOOKS}{expected.alert}.md"
    assert (ROOT / "runbooks" / f"{expected.alert}.md").is_file()
    sent = {one["labels"]["alertname"] for _, one in webhook.alerts()}
    assert sent <= {expected.alert, *expected.follows}
    subject = next(
        f"{label}={expected.labels[label]}"
        for label in ("function", "loop", "route")
        if label in expected.labels
    )
    told = f"{expected.labels['severity']}  {expected.alert}  {subject}"
    assert f"firing  {told}" in out
    assert f"fault {fault} ended" in out


def is_resolved(webhook: Webhook, alert: dict[str, Any]) -> bool:
    """Tell whether the end of *alert* was notified."""
    resolved = [one["fingerprint"] for _, one in webhook.alerts("resolved")]
    return alert["fingerprint"] in resolved
