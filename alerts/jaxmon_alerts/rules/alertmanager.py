"""Alertmanager configuration: routing and inhibition."""

from __future__ import annotations

from typing import Any

from jaxmon.host.formats import durations
from jaxmon.symptoms.alert import DEPLOY_NOISE, INFO, PAGE, TICKET
from jaxmon.symptoms.starts import DEPLOY_ALERT
from jaxmon.symptoms.steps import STALLED_ALERT, STALLED_SLO
from jaxmon.symptoms.time import TIME_ALERTS
from jaxmon_alerts.slo.site import AlertRoute, Site


# One objective of one service: a missing label equals a missing label.
_SAME = ("job", "slo", "route", "function", "loop")


def configuration(site: Site, scale: float) -> dict[str, Any]:
    """
    Return the configuration as a document, for Alertmanager 0.25 and later.

    Notifications are grouped by alert, service and function. A page inhibits tickets of
    the same objective, and of the same alert; a stalled loop is late as well, so one
    page covers both. A deployment inhibits tickets labelled as deployment noise, never
    pages. Groups wait at least one evaluation interval, so that inhibiting alerts
    arrive before inhibited ones are sent.
    """

    def after(duration: str) -> str:
        return durations.scaled(duration, scale)

    page, ticket, info = (
        f'severity="{site.severity(one)}"' for one in (PAGE, TICKET, INFO)
    )
    service = [*site.service_labels, "job"]
    noise = [f'{label}="{value}"' for label, value in DEPLOY_NOISE]
    pages = {"group_wait": after("30s"), "repeat_interval": after("4h")}
    routes = [
        {
            "matchers": [page, *_matchers(route)],
            "receiver": _name(PAGE, route),
            **pages,
        }
        for route in site.routes
    ]
    others = [
        {"matchers": [ticket, *_matchers(route)], "receiver": _name(TICKET, route)}
        for route in site.routes
    ]
    return {
        "route": {
            "receiver": "ticket",
            "group_by": ["alertname", *service, "function", "severity"],
            "group_wait": after("2m"),
            "group_interval": after("5m"),
            "repeat_interval": after("1d"),
            "routes": [
                {"matchers": [info], "receiver": "nobody"},
                *routes,
                *others,
                {"matchers": [page], "receiver": "page", **pages},
            ],
        },
        "receivers": [
            *_receivers(site.webhook),
            *(one for route in site.routes for one in _receivers(route.webhook, route)),
            {"name": "nobody"},
        ],
        "inhibit_rules": [
            {
                "source_matchers": [page, 'slo!=""'],
                "target_matchers": [ticket, 'slo!=""'],
                "equal": [*site.service_labels, *_SAME],
            },
            # The same, more urgent.
            {
                "source_matchers": [page],
                "target_matchers": [ticket],
                "equal": ["alertname", *service, "route"],
            },
            {
                "source_matchers": [f'alertname="{DEPLOY_ALERT}"'],
                "target_matchers": [_not(page), *noise],
                "equal": service,
            },
            {
                "source_matchers": [f'alertname="{STALLED_ALERT}"'],
                "target_matchers": [
                    f'alertname!="{STALLED_ALERT}"',
                    f'slo="{STALLED_SLO}"',
                ],
                "equal": [*service, "loop"],
            },
            # What a stalled loop waits for takes the time.
            {
                "source_matchers": [f'alertname="{STALLED_ALERT}"'],
                "target_matchers": [f'alertname=~"{"|".join(TIME_ALERTS)}"'],
                "equal": service,
            },
        ],
    }


def _not(matcher: str) -> str:
    return matcher.replace("=", "!=", 1)


def _matchers(route: AlertRoute) -> list[str]:
    return [f'{label}="{_escaped(value)}"' for label, value in route.match]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _name(receiver: str, route: AlertRoute | None = None) -> str:
    return "-".join(
        [receiver, *(value for _, value in route.match)] if route else [receiver]
    )


def _receivers(webhook: str, route: AlertRoute | None = None) -> list[dict[str, Any]]:
    return [
        {
            "name": _name(one, route),
            **({"webhook_configs": [{"url": f"{webhook}/{one}"}]} if webhook else {}),
        }
        for one in (PAGE, TICKET)
    ]
