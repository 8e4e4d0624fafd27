"""The real Alertmanager, in quick motion, with the alerts of many worlds at once."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from tests.alerts.outages.evaluation import Firing
from tests.alerts.outages.world import STEP
from tests.helpers.prometheus import Alertmanager, Webhook


SCALE = 60.0
"""A minute takes a second."""

_KEPT = timedelta(seconds=20)


def replay(
    firings: Iterable[Firing], directory: Path, end: int
) -> Counter[tuple[str, str]]:
    """
    Report *firings* for *end* seconds, as Prometheus would.

    Returns:
        How many notifications of alerts that fire came, by cluster and receiver.
    """
    found = list(firings)
    site = slo.Site(webhook="http://webhook")
    text = alerts.render(
        replace(slo.load(), site=site),
        alerts.RuleOptions(scale=SCALE),
    )["alertmanager.yaml"]
    with Webhook() as webhook:
        path = directory / "alertmanager.yaml"
        path.write_text(text.replace("http://webhook", webhook.url))
        with Alertmanager(directory, path) as running:
            began = time.monotonic()
            for second in range(0, end, STEP):
                time.sleep(max(0.0, began + second / SCALE - time.monotonic()))
                _report(running, found, second)
            # What is due just before the end.
            time.sleep(max(0.0, began + end / SCALE - time.monotonic()))
        received = {
            receiver: webhook.notifications(f"/{receiver}")
            for receiver in ("page", "ticket")
        }
    return Counter(
        (one["groupLabels"].get("cluster", ""), receiver)
        for receiver, notifications in received.items()
        for one in notifications
        if one["status"] == "firing"
    )


def _report(running: Alertmanager, found: list[Firing], second: int) -> None:
    now = datetime.now(UTC)
    document = []
    for firing in found:
        if not firing.start <= second <= firing.end:
            continue
        started = now - timedelta(seconds=(second - firing.start) / SCALE)
        ends = now if second == firing.end else now + _KEPT
        document.append(
            {
                "labels": dict(firing.labels),
                "annotations": {},
                "startsAt": started.isoformat(),
                "endsAt": ends.isoformat(),
            }
        )
    if document:
        running.send(document)
