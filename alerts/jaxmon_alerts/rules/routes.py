"""Where notifications go, and which alerts mute others."""

from __future__ import annotations

from typing import Any

from jaxmon.host.formats import durations
from jaxmon.symptoms.alert import DEPLOY_NOISE, INFO, PAGE, TICKET
from jaxmon.symptoms.requests import FAILED
from jaxmon.symptoms.starts import DEPLOY_ALERT
from jaxmon.symptoms.steps import STALLED_ALERT, STALLED_SLO
from jaxmon.symptoms.time import TIME_ALERT
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
        f'severity="{site.severity(severity)}"' for severity in (PAGE, TICKET, INFO)
    )
    watchdog = {"matchers": ['alertname="JaxmonWatchdog"'], "receiver": "watchdog"}
    often = {"group_wait": "0s", "repeat_interval": after("5m")}
    watching = [watchdog | often] if site.watchdog else []
    service = [*site.service_labels, "job"]
    noise = [f'{label}="{value}"' for label, value in DEPLOY_NOISE]
    pages = {"group_wait": after("30s"), "repeat_interval": after("4h")}
    routes = [
        {"matchers": [page, *_matchers(route)], "receiver": _name(PAGE, route), **pages}
        for route in site.routes
    ]
    others = [
        {"matchers": [ticket, *_matchers(route)], "receiver": _name(TICKET, route)}
        for route in site.routes
    ]
    stalled = f'alertname="{STALLED_ALERT}"'
    hanging = 'alertname="JaxmonRequestsHang"'
    failing, vanished = f'alertname="{FAILED}"', 'alertname="JaxmonServiceVanished"'
    crashing = 'alertname="JaxmonCrashLoop"'
    died, lost = 'alertname="JaxmonTrainingDied"', 'alertname="JaxmonAcceleratorLost"'
    run = 'alertname=~"JaxmonTraining.*|JaxmonServiceVanished"'
    inhibitions = (
        ([page, 'slo!=""'], [ticket, 'slo!=""'], [*site.service_labels, *_SAME]),
        # The same, more urgent.
        ([page], [ticket], ["alertname", *service, "route"]),
        ([f'alertname="{DEPLOY_ALERT}"'], [_not(page), *noise], service),
        ([stalled], [_not(stalled), f'slo="{STALLED_SLO}"'], [*service, "loop"]),
        # One outage is one page, and what comes first does not end before the rest.
        ([page, hanging], [page, _not(hanging), 'slo!=""'], [*service, "route"]),
        ([page, failing], [page, _not(failing), 'slo!=""'], [*service, "route"]),
        ([page, 'slo!=""'], [page, vanished], service),
        ([page, 'slo!=""', _not(stalled)], [page, crashing], service),
        ([page, run], [page, crashing], service),
        ([page, vanished], ['alertname="JaxmonTargetDown"'], service),
        ([page, lost], [ticket, died], service),
        # What a stalled loop waits for takes the time.
        ([stalled], [f'alertname="{TIME_ALERT}"'], service),
    )
    return {
        "route": {
            "receiver": "ticket",
            "group_by": ["alertname", *service, "function", "severity"],
            "group_wait": after("2m"),
            "group_interval": after("5m"),
            "repeat_interval": after("1d"),
            "routes": [
                *watching,
                {"matchers": [info], "receiver": "nobody"},
                *routes,
                *others,
                {"matchers": [page], "receiver": "page", **pages},
            ],
        },
        "receivers": [
            *_receivers(site.webhook),
            *(
                receiver
                for route in site.routes
                for receiver in _receivers(route.webhook, route)
            ),
            *(
                [{"name": "watchdog", "webhook_configs": [{"url": site.watchdog}]}]
                if site.watchdog
                else []
            ),
            {"name": "nobody"},
        ],
        "inhibit_rules": [
            {"source_matchers": sources, "target_matchers": targets, "equal": equal}
            for sources, targets, equal in inhibitions
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
            "name": _name(severity, route),
            **(
                {"webhook_configs": [{"url": f"{webhook}/{severity}"}]}
                if webhook
                else {}
            ),
        }
        for severity in (PAGE, TICKET)
    ]
