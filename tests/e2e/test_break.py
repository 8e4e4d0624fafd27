"""
From a fault of the demo's programs to a notification, and back to quiet, through real
programs: JAX, the agent, the sidecar, Prometheus, Alertmanager.
"""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.helpers.commands import DEADLINE, demo, read_until
from tests.helpers.processes import ROOT, files, require_program, until
from tests.helpers.prometheus import Webhook


SECONDS = 90.0

ALERT = "JaxmonRequestErrorBudgetBurn"
LABELS = {
    "job": "demo",
    "severity": "page",
    "route": "/complete",
    "slo": "request-error",
}


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    require_program("prometheus")
    require_program("prometheus-alertmanager")
    with Webhook() as running:
        yield running


@pytest.mark.exhaustive
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
        found = webhook.until_alert(ALERT, seconds=SECONDS)
        until(lambda: is_resolved(webhook, found[1]), "the end", seconds=SECONDS)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0, err
    assert "60 times as fast" in seen
    assert re.search("prometheus +http", seen)
    assert len(children) == 5
    assert not any(child.is_running() for child in children)
    assert files(run_dir) == []
    check(webhook, *found)
    assert f"firing  page  {ALERT}  route=/complete" in out
    assert "fault errors ended" in out


def check(webhook: Webhook, path: str, alert: dict[str, Any]) -> None:
    """Assert that *alert* says what it should, and that no other was sent."""
    assert path == "/page"
    assert alert["labels"].items() >= LABELS.items()
    notes = alert["annotations"]
    said = r"job demo, route /complete: [\d.]+% of events"
    assert re.search(said, notes["summary"])
    assert re.fullmatch(r"[A-Z].*\.", notes["description"])
    assert notes["runbook"] == f"jaxmon runbook show {ALERT}"
    assert (ROOT / "runbooks" / f"{ALERT}.md").is_file()
    assert {one["labels"]["alertname"] for _, one in webhook.alerts()} == {ALERT}


def is_resolved(webhook: Webhook, alert: dict[str, Any]) -> bool:
    resolved = [one["fingerprint"] for _, one in webhook.alerts("resolved")]
    return alert["fingerprint"] in resolved
