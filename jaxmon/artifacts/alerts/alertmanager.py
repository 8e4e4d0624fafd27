"""Alertmanager configuration: routing and inhibition."""

from __future__ import annotations

from typing import Any

from jaxmon.artifacts.alerts.causes import (
    DEPLOY_ALERT,
    STALLED_ALERT,
    STALLED_SLO,
    TIME_LOST_ALERT,
)
from jaxmon.artifacts.alerts.model import DEPLOY_NOISE, Options
from jaxmon.artifacts.slo import durations


# One objective of one service: a missing label equals a missing label.
_SAME = ("job", "slo", "route", "function", "loop")


def configuration(options: Options) -> dict[str, Any]:
    """
    Return the configuration as a document, for Alertmanager 0.25 and later.

    Notifications are grouped by alert, job and function. A page inhibits tickets of the
    same objective; a stalled loop is late as well, so one page covers both. A
    deployment inhibits tickets labelled as deployment noise, never pages. Groups wait
    at least one evaluation interval, so that inhibiting alerts arrive before inhibited
    ones are sent.
    """

    def after(duration: str) -> str:
        return durations.scaled(duration, options.scale)

    noise = [f'{label}="{value}"' for label, value in DEPLOY_NOISE]
    return {
        "route": {
            "receiver": "ticket",
            "group_by": ["alertname", "job", "function", "severity"],
            "group_wait": after("2m"),
            "group_interval": after("5m"),
            "repeat_interval": after("1d"),
            "routes": [
                {
                    "matchers": ['severity="page"'],
                    "receiver": "page",
                    "group_wait": after("30s"),
                    "repeat_interval": after("4h"),
                },
                {"matchers": ['severity="info"'], "receiver": "nobody"},
            ],
        },
        "receivers": [
            _receiver("page", options),
            _receiver("ticket", options),
            {"name": "nobody"},
        ],
        "inhibit_rules": [
            {
                "source_matchers": ['severity="page"', 'slo!=""'],
                "target_matchers": ['severity="ticket"', 'slo!=""'],
                "equal": list(_SAME),
            },
            {
                "source_matchers": [f'alertname="{DEPLOY_ALERT}"'],
                "target_matchers": ['severity!="page"', *noise],
                "equal": ["job"],
            },
            {
                "source_matchers": [f'alertname="{STALLED_ALERT}"'],
                "target_matchers": [
                    f'alertname!="{STALLED_ALERT}"',
                    f'slo="{STALLED_SLO}"',
                ],
                "equal": ["job", "loop"],
            },
            # What a stalled loop waits for takes the time.
            {
                "source_matchers": [f'alertname="{STALLED_ALERT}"'],
                "target_matchers": [f'alertname="{TIME_LOST_ALERT}"'],
                "equal": ["job"],
            },
        ],
    }


def _receiver(name: str, options: Options) -> dict[str, Any]:
    if options.webhook is None:
        return {"name": name}
    url = f"{options.webhook.rstrip('/')}/{name}"
    return {"name": name, "webhook_configs": [{"url": url}]}
