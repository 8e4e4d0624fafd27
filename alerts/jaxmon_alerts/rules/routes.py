"""Where notifications go, and which alerts mute others."""

from __future__ import annotations

from typing import Any

from jaxmon.host.formats import durations
from jaxmon.symptoms.alert import DEPLOY_NOISE, INFO, PAGE, TICKET, Severity
from jaxmon.symptoms.requests import FAILED
from jaxmon.symptoms.starts import DEPLOY_ALERT
from jaxmon.symptoms.steps import STALLED_ALERT, STALLED_SLO
from jaxmon.symptoms.time import TIME_ALERT
from jaxmon_alerts.slo.receivers import AlertReceiver, AlertRoute, MuteHours
from jaxmon_alerts.slo.site import Site


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
    service = [*site.service_labels, "job"]
    noise = [f'{label}="{value}"' for label, value in DEPLOY_NOISE]
    often = {"group_wait": "0s", "repeat_interval": after("5m")}
    watchdog = {"matchers": ['alertname="JaxmonWatchdog"'], "receiver": "watchdog"}
    pages = {"group_wait": after("30s"), "repeat_interval": after("4h")}
    ours = AlertRoute((), site.webhook, site.receivers)
    teams = (*site.routes, ours)
    routes = [
        {
            "matchers": [matcher, *_matchers(team)],
            "receiver": _name(severity, team),
            **waits,
            **_muted(severity, team, site),
        }
        for severity, matcher, waits in ((PAGE, page, pages), (TICKET, ticket, {}))
        for team in teams
        # The first of all routes has the receiver of other tickets, but mutes nothing.
        if team.match or severity == PAGE or _muted(severity, team, site)
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
                *([watchdog | often] if site.watchdog else ()),
                {"matchers": [info], "receiver": "nobody"},
                *routes,
            ],
        },
        "receivers": [
            *(_receiver(PAGE, ours), _receiver(TICKET, ours)),
            *(
                _receiver(severity, team)
                for team in site.routes
                for severity in (PAGE, TICKET)
            ),
            *(
                [{"name": "watchdog", "webhook_configs": [{"url": site.watchdog}]}]
                if site.watchdog
                else []
            ),
            {"name": "nobody"},
        ],
        **_time_intervals(site),
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


def _name(severity: Severity, team: AlertRoute) -> str:
    return "-".join([severity, *(value for _, value in team.match)])


# A message of Slack has no text otherwise.
_SLACK = {
    "send_resolved": True,
    "text": "{{ range .Alerts }}{{ .Annotations.summary }}\n"
    "<{{ .Annotations.runbook_url }}|Runbook>"
    "{{ with .Annotations.dashboard_url }} <{{ . }}|Dashboard>{{ end }}\n{{ end }}",
}
_MORE: dict[str, dict[str, Any]] = {"slack": _SLACK, "email": {"send_resolved": True}}


def _receiver(severity: Severity, team: AlertRoute) -> dict[str, Any]:
    found = dict(team.receivers).get(severity, ())
    if not team.receivers and team.webhook:
        found = (AlertReceiver("webhook", {"url": f"{team.webhook}/{severity}"}),)
    configs: dict[str, list[dict[str, Any]]] = {}
    for kind, options, _ in found:
        config = {**options, **_MORE.get(kind, {})}
        if "team" in options:
            config["responders"] = [{"type": "team", "name": config.pop("team")}]
        configs.setdefault(f"{kind}_configs", []).append(config)
    return {"name": _name(severity, team), **configs}


def _hours(severity: Severity, team: AlertRoute, site: Site) -> list[MuteHours]:
    hours = site.mute if team.mute is None else team.mute
    return [muted for muted in hours if severity in muted.severities]


def _muted(severity: Severity, team: AlertRoute, site: Site) -> dict[str, list[str]]:
    """Return which intervals mute alerts of *severity* of *team*."""
    if not _hours(severity, team, site):
        return {}
    name = severity if team.mute is None else _name(severity, team)
    return {"mute_time_intervals": [f"muted-{name}"]}


def _time_intervals(site: Site) -> dict[str, list[dict[str, Any]]]:
    """Return the intervals that `_muted` names, if there are any."""
    found = {
        name: [_interval(muted) for muted in _hours(severity, team, site)]
        for severity in (PAGE, TICKET)
        for team in (*site.routes, AlertRoute(()))
        for name in _muted(severity, team, site).get("mute_time_intervals", ())
    }
    listed = [{"name": name, "time_intervals": times} for name, times in found.items()]
    return {"time_intervals": listed} if listed else {}


def _interval(muted: MuteHours) -> dict[str, Any]:
    times = [{"start_time": start, "end_time": end} for start, end in muted.hours]
    zone = {} if muted.zone == "UTC" else {"location": muted.zone}
    days = {"weekdays": [*muted.weekdays]} if muted.weekdays else {}
    return {**({"times": times} if times else {}), **days, **zone}
