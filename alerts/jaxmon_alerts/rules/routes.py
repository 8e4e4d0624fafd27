"""Where notifications go, which alerts mute others; and the operator's form of both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from jaxmon.host.formats import durations
from jaxmon.promql import eq
from jaxmon.symptoms.alert import DEPLOY_NOISE, INFO, PAGE, TICKET, Severity
from jaxmon.symptoms.requests import FAILED
from jaxmon.symptoms.starts import DEPLOY_ALERT
from jaxmon.symptoms.steps import STALLED_ALERT, STALLED_SLO
from jaxmon.symptoms.time import TIME_ALERT
from jaxmon_alerts.slo.site import (
    RESOURCE_NAME,
    AlertReceiver,
    AlertRoute,
    MuteHours,
    Site,
)


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
            "matchers": [matcher, *(str(eq(*pair)) for pair in team.match)],
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
    watched = [{"url": site.watchdog}] if site.watchdog else []
    intervals = {
        name: [_interval(muted) for muted in _hours(severity, team, site)]
        for severity in (PAGE, TICKET)
        for team in (*site.routes, AlertRoute(()))
        for name in _muted(severity, team, site).get("mute_time_intervals", ())
    }
    times = [{"name": name, "time_intervals": of} for name, of in intervals.items()]
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
                *([watchdog | often] if watched else ()),
                {"matchers": [info], "receiver": "nobody"},
                *routes,
            ],
        },
        "receivers": [
            *(
                _receiver(severity, team)
                for team in (ours, *site.routes)
                for severity in (PAGE, TICKET)
            ),
            *([{"name": "watchdog", "webhook_configs": watched}] if watched else []),
            {"name": "nobody"},
        ],
        **({"time_intervals": times} if times else {}),
        "inhibit_rules": [
            {"source_matchers": sources, "target_matchers": targets, "equal": equal}
            for sources, targets, equal in inhibitions
        ],
    }


def _not(matcher: str) -> str:
    return matcher.replace("=", "!=", 1)


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
    if not _hours(severity, team, site):
        return {}
    name = severity if team.mute is None else _name(severity, team)
    return {"mute_time_intervals": [f"muted-{name}"]}


def _interval(muted: MuteHours) -> dict[str, Any]:
    times = [{"start_time": start, "end_time": end} for start, end in muted.hours]
    zone = {} if muted.zone == "UTC" else {"location": muted.zone}
    days = {"weekdays": [*muted.weekdays]} if muted.weekdays else {}
    return {**({"times": times} if times else {}), **days, **zone}


Document: TypeAlias = dict[str, Any]

# kubectl keeps a resource in an annotation of its own, and all of these have at most
# 262,144 bytes. As JSON, a resource is smaller than here.
_MOST_BYTES = 250_000
_MATCHER = re.compile(r'^(\w+)(=~|!~|!=|=)"(.*)"$', re.DOTALL)
_FILE = "_file"
# What the operator spells in other ways than by capitals.
_SPELLINGS = {
    "source_matchers": "sourceMatch",
    "target_matchers": "targetMatch",
    "api_url": "apiURL",
}


def resources(
    groups: list[Document], site: Site, text: Callable[[Document], str]
) -> Iterator[str]:
    """Yield the *text* of a PrometheusRule with *groups*, of several if it is big."""
    parts: list[list[Document]] = [[]]
    size = 0
    for group in groups:
        more = len(text(_rule([group], site, 1)).encode())
        if parts[-1] and size + more > _MOST_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(group)
        size += more
    for number, part in enumerate(parts, 1):
        yield text(_rule(part, site, number))


def _rule(groups: list[Document], site: Site, number: int) -> Document:
    name = site.resource.name if number == 1 else f"{site.resource.name}-{number}"
    head = _head("v1", "PrometheusRule", name, site)
    return {**head, "spec": {"groups": groups}}


def _head(version: str, kind: str, name: str, site: Site) -> Document:
    resource = site.resource
    namespace = {"namespace": resource.namespace} if resource.namespace else {}
    labels = {"labels": dict(resource.labels)} if kind == "PrometheusRule" else {}
    return {
        "apiVersion": f"monitoring.coreos.com/{version}",
        "kind": kind,
        "metadata": {"name": name, **namespace, **labels},
    }


def notifications(routing: Document, site: Site) -> Document:
    """
    Return *routing*, a configuration of Alertmanager, as an AlertmanagerConfig. Raises
    `SloError`: hours have a time zone, or no Secret has the name of a secret's file.
    """
    ours = AlertRoute((), receivers=site.receivers, mute=site.mute)
    for team in (ours, *site.routes):
        for hours in team.mute or ():
            if hours.zone != "UTC":
                hours.source.fail(
                    f"found zone {hours.zone}, but an AlertmanagerConfig has hours in "
                    "UTC; give them so, or use Alertmanager's own file (--format "
                    "prometheusrule)"
                )
        for _, receivers in team.receivers:
            for receiver in receivers:
                _check_secret(receiver)
    # Without a webhook that converts, the operator serves this version alone.
    head = _head("v1alpha1", "AlertmanagerConfig", site.resource.name, site)
    spec = {_camel(key): _converted(value) for key, value in routing.items()}
    if "timeIntervals" in spec:
        spec["muteTimeIntervals"] = spec.pop("timeIntervals")
    return {**head, "spec": spec}


def _check_secret(receiver: AlertReceiver) -> None:
    for key, value in receiver.options.items():
        name, _ = _secret(value)
        wrong = key.endswith(_FILE) and not RESOURCE_NAME.fullmatch(name)
        if wrong and receiver.source:
            receiver.source.fail(
                f"{name!r} is no name of a Secret; the operator mounts the key KEY of "
                "the Secret NAME as /etc/alertmanager/secrets/NAME/KEY"
            )


def _secret(path: str) -> tuple[str, str]:
    file = PurePosixPath(path)
    return file.parent.name, file.name


def _converted(found: Any) -> Any:
    if isinstance(found, list):
        return [_converted(item) for item in found]
    if not isinstance(found, dict):
        return found
    made: Document = {}
    for key, value in found.items():
        bare = key.removesuffix(_FILE)
        if key.endswith("matchers"):
            made[_camel(key)] = [_matcher(text) for text in value]
        elif key != bare:
            made[_camel(bare)] = dict(zip(("name", "key"), _secret(value), strict=True))
        else:
            made[_camel(key)] = _converted(value)
    return made


def _camel(key: str) -> str:
    first, *others = key.split("_")
    return _SPELLINGS.get(key) or first + "".join(map(str.capitalize, others))


def _matcher(text: str) -> Document:
    [(name, operator, value)] = _MATCHER.findall(text)
    plain = re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value)
    return {"name": name, "matchType": operator, "value": plain}
