"""What differs from site to site: labels, severities, addresses, notifications."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from zoneinfo import available_timezones

from jaxmon.host.formats import durations
from jaxmon.promql.expressions import Identity
from jaxmon.settings import RUNBOOKS
from jaxmon.symptoms.alert import PAGE, SEVERITIES, TICKET, ExpectedRun, Match, Severity
from jaxmon_alerts.slo.source import Source, given, listed


SECRET = "secret_file"  # noqa: S105 - the key, not a secret

# Of each kind the options that it requires, and others, as Alertmanager calls them.
_KINDS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "webhook": ({"url": "url"}, {}),
    "pagerduty": ({SECRET: "routing_key_file"}, {"url": "url"}),
    "opsgenie": ({SECRET: "api_key_file"}, {"url": "api_url", "team": "team"}),
    "slack": ({SECRET: "api_url_file", "channel": "channel"}, {}),
    "email": (
        {"to": "to", "from": "from", "server": "smarthost"},
        {"user": "auth_username", SECRET: "auth_password_file"},
    ),
}
_HOURS = re.compile(r"(([01]\d|2[0-3]):[0-5]\d)-(([01]\d|2[0-3]):[0-5]\d|24:00)")
_PATTERN = re.compile(r"[*|^$?\[\\]|\.\+")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class AlertReceiver(NamedTuple):
    """A way to be notified, with the options that Alertmanager has for its *kind*."""

    kind: str
    options: dict[str, str]
    source: Source | None = None


class MuteHours(NamedTuple):
    """
    Hours in which alerts of these *severities* notify no one; they do once the hours
    are over, if they still fire. Empty *weekdays* are all; *hours* are spans of a day.
    """

    source: Source
    severities: tuple[str, ...] = (TICKET,)
    weekdays: tuple[str, ...] = ()
    hours: tuple[tuple[str, str], ...] = ()
    zone: str = "UTC"


Receivers = tuple[tuple[Severity, tuple[AlertReceiver, ...]], ...]


@dataclass(frozen=True, slots=True)
class AlertRoute:
    """
    Where alerts of a team go instead: to *receivers* by severity, or to a base URL, to
    which the severity is appended. *mute* is that of the site if it is `None`.
    """

    match: Match
    webhook: str = ""
    receivers: Receivers = ()
    mute: tuple[MuteHours, ...] | None = None


def route(source: Source) -> AlertRoute:
    """Return an entry of ``routes``."""
    found = source.mapping(["match"], ["webhook", "receivers", "mute"])
    match = tuple(
        (key.text(), whole(key.text(), value))
        for key, value in found["match"].entries()
    )
    if not match:
        found["match"].fail("no labels; at least one is required, such as owner")
    if ("webhook" in found) == ("receivers" in found):
        source.fail("give either 'webhook' or 'receivers'")
    return AlertRoute(
        match,
        **given(found, webhook=url, receivers=receivers, mute=listed(_mute_hours)),
    )


def receivers(source: Source) -> Receivers:
    """Return the receivers of both severities."""
    found = source.mapping([PAGE, TICKET])
    return tuple(
        (severity, tuple(map(_receiver, found[severity].items())))
        for severity in (PAGE, TICKET)
    )


def _receiver(source: Source) -> AlertReceiver:
    found = source.mapping(optional=_KINDS)
    if len(found) != 1:
        source.fail(
            f"found {len(found)} kinds; each receiver has one of {', '.join(_KINDS)}"
        )
    [(kind, value)] = found.items()
    required, others = _KINDS[kind]
    options = value.mapping(required, others)
    if kind == "email" and ("user" in options) != (SECRET in options):
        value.fail(f"'user' and {SECRET!r}, the file with its password, go together")
    spellings = required | others
    spelled = {
        spellings[name]: _READERS.get(name, Source.text)(option)
        for name, option in options.items()
    }
    return AlertReceiver(kind, spelled, value)


def _secret(source: Source) -> str:
    path = source.text()
    if not re.fullmatch(r"/[^/]+(/[^/]+)+", path):
        # It may be the secret itself, so it is not shown.
        source.fail(
            "expected the absolute path of a file that Alertmanager reads, such as "
            "/etc/alertmanager/secrets/jaxmon/slack; no secret stands in this file"
        )
    return path


def _mute_hours(source: Source) -> MuteHours:
    found = source.read(
        severities=lambda names: _choices(names, (PAGE, TICKET)),
        weekdays=lambda names: _choices(names, _DAYS),
        hours=_hours,
        zone=_zone,
    )
    hours = MuteHours(source, **found)
    if not hours.weekdays and not hours.hours:
        source.fail("no times; give weekdays, hours such as 19:00-08:00, or both")
    if len(hours.hours) > 1 and hours.weekdays:
        source.fail("hours past midnight are of two weekdays; make two entries of them")
    return hours


def _choices(source: Source, allowed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(item.choice(allowed) for item in source.items())


def _hours(source: Source) -> tuple[tuple[str, str], ...]:
    match = _HOURS.fullmatch(source.text())
    if match is None or match[1] == match[3]:
        source.fail(f"{source.text()!r} are no hours such as 19:00-08:00")
    start, end = match[1], match[3]
    if start < end:
        return ((start, end),)
    until = ((start, "24:00"),)
    return until if end == "00:00" else (*until, ("00:00", end))


def _zone(source: Source) -> str:
    name, zones = source.text(), available_timezones()
    # Without a database, Alertmanager is the first to judge.
    if zones and name not in zones:
        source.fail(f"there is no time zone {name!r}; give one such as Europe/Berlin")
    return name


def url(source: Source) -> str:
    """Return an address to which a path is appended, without a trailing slash."""
    text = _address(source)
    parts = urlsplit(text)
    if parts.query or parts.fragment:
        source.fail(f"{text!r} has a query or fragment, but a path is appended to it")
    return text.rstrip("/")


def _address(source: Source) -> str:
    text = source.text()
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        source.fail(f"{text!r} is not a URL such as https://alerts.example.com")
    return text


def whole(label: str, source: Source) -> str:
    """Return what *label* has to be; what begins with ``=`` may look like a pattern."""
    value = source.text()
    if value.startswith("=") and not value.startswith("=~"):
        return value[1:]
    if value.startswith("=~") or _PATTERN.search(value):
        source.fail(
            f"{label} {value!r} looks like a pattern, but whole values are compared; "
            f"make an entry for each value, or write '={value}' if this is one"
        )
    return value


_READERS = {SECRET: _secret, "url": _address}


SERVICE_LABELS, PROCESS_LABELS = ("cluster", "namespace"), ("pod",)
"""The defaults, which series of Kubernetes have; elsewhere they are absent."""

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
RESOURCE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
# Rules and routing set these, or Prometheus does.
_TAKEN = ("job", "instance", "worker", "alertname", "severity", "le")
_WRITTEN = ("summary", "description", "runbook", "runbook_url", "dashboard_url")


@dataclass(frozen=True, slots=True)
class Resource:
    """Metadata of the PrometheusRule; the default is what kube-prometheus selects."""

    name: str = "jaxmon"
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = (
        ("prometheus", "k8s"),
        ("role", "alert-rules"),
    )


@dataclass(frozen=True, slots=True)
class Site:
    """
    Section ``site`` of ``slo.yaml``.

    Series have *service_labels* besides ``job``, and *process_labels* besides
    ``instance``. *severities* are the site's names of ours; *labels* and *annotations*
    are added to every alert. To *runbooks*, a URL, an alert's name and ``.md`` are
    appended. *webhook* is the base URL of notifications, unless there are *receivers*;
    of *routes*, the first match counts. *mute* are hours without notifications.
    *watchdog* gets the alert that always fires. *delay* is how late samples may be
    stored.
    """

    service_labels: tuple[str, ...] = SERVICE_LABELS
    process_labels: tuple[str, ...] = PROCESS_LABELS
    severities: tuple[tuple[Severity, str], ...] = tuple(
        (severity, severity) for severity in SEVERITIES
    )
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    runbooks: str = RUNBOOKS.rstrip("/")
    dashboards: str = ""
    webhook: str = "https://alerts.example.com/jaxmon"
    receivers: Receivers = ()
    mute: tuple[MuteHours, ...] = ()
    routes: tuple[AlertRoute, ...] = ()
    watchdog: str = ""
    resource: Resource = Resource()
    delay: str = "15s"

    @property
    def labels_of_series(self) -> tuple[str, ...]:
        """The labels that this site's Prometheus adds to ``job`` and ``instance``."""
        return (*self.service_labels, *self.process_labels)

    @property
    def identity(self) -> Identity:
        """What identifies services and processes, besides job and instance."""
        return Identity(self.service_labels, self.process_labels)

    def severity(self, ours: Severity) -> str:
        """Return the site's name of a severity."""
        return dict(self.severities)[ours]


def site(source: Source) -> Site:
    """Return the section ``site``, or raise a `SloError` with line and what to do."""
    found = Site(
        **source.read(
            service_labels=_labels,
            process_labels=_labels,
            severities=_severities,
            labels=pairs,
            annotations=annotated,
            runbooks=url,
            dashboards=url,
            webhook=url,
            receivers=receivers,
            mute=listed(_mute_hours),
            watchdog=url,
            routes=listed(route),
            resource=lambda found: Resource(
                **found.read(
                    name=_resource_name,
                    namespace=_resource_name,
                    # Kubernetes's labels have dots and slashes.
                    labels=lambda labels: tuple(
                        (key.text(), value.text()) for key, value in labels.entries()
                    ),
                )
            ),
            delay=Source.duration,
        )
    )
    if twice := set(found.service_labels) & set(found.process_labels):
        source.fail(f"label {min(twice)!r} is of services and of processes; choose one")
    return found


def pairs(source: Source) -> tuple[tuple[str, str], ...]:
    """Return a mapping of labels to values."""
    return tuple((label(key), value.text()) for key, value in source.entries())


def label(source: Source, taken: tuple[str, ...] = _TAKEN) -> str:
    """Return the name of a label that is none of *taken*, which rules set."""
    name = source.text()
    if not _LABEL.fullmatch(name) or name.startswith("__"):
        source.fail(f"{name!r} is not a label name, such as team")
    if name in taken:
        source.fail(f"label {name!r} is set by jaxmon or Prometheus; use another")
    return name


def annotated(source: Source) -> tuple[tuple[str, str], ...]:
    """Return a mapping of annotations to templates."""
    return tuple((label(key, _WRITTEN), text.text()) for key, text in source.entries())


def _labels(source: Source) -> tuple[str, ...]:
    found = tuple(map(label, source.items()))
    if len(set(found)) < len(found):
        source.fail(f"found a label twice in {', '.join(found)}")
    return found


def _severities(source: Source) -> tuple[tuple[Severity, str], ...]:
    names = source.mapping(optional=SEVERITIES)
    found = tuple(
        (ours, names[ours].text() if ours in names else ours) for ours in SEVERITIES
    )
    if len({name for _, name in found}) < len(found):
        source.fail(f"two severities have one name: {dict(found)}")
    return found


def _resource_name(source: Source) -> str:
    name = source.text()
    if not RESOURCE_NAME.fullmatch(name):
        source.fail(f"{name!r} is not a name of Kubernetes, such as jaxmon")
    return name


SUBJECTS = ("job", "loop", "route", "function")
"""What limits may be local to, besides the labels of services."""


@dataclass(frozen=True, slots=True)
class LocalLimits:
    """Other limits for some jobs, loops, routes or functions, with their source."""

    match: Match
    limits: tuple[tuple[str, Any], ...]
    source: Source


@dataclass(frozen=True, slots=True)
class Override:
    """
    What a site changes about every alert of one name; `None` is as shipped. It is not
    for the services in *except_*.
    """

    alert: str
    source: Source
    enabled: bool = True
    severity: Severity | None = None
    for_: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    summary: str | None = None
    description: str | None = None
    except_: tuple[Match, ...] = ()


def local(
    source: Source, limits: Callable[[Source, tuple[str, ...]], dict[str, Any]]
) -> LocalLimits:
    """Return an entry of ``local``; *limits* reads the limits of a mapping."""
    values = limits(source, ("match",))
    found = {key.text(): value for key, value in source.entries()}
    if "match" not in found:
        source.fail("key 'match' is missing")
    match = _match(found["match"])
    if not values:
        source.fail("no limits; at least one is required, such as stalled_after")
    return LocalLimits(match, tuple(values.items()), source)


def overrides(source: Source) -> tuple[Override, ...]:
    """Return the section ``overrides``."""
    return tuple(_override(key, key.text(), value) for key, value in source.entries())


def run(source: Source) -> ExpectedRun:
    """Return an entry of ``runs``."""
    found = source.mapping(["match", "processes"])
    match = _service(found["match"])
    count = found["processes"].count()
    if count != int(count):
        found["processes"].fail(f"expected a whole number, found {count:g}")
    return ExpectedRun(match, int(count))


def longer(source: Source, short: str, long: str) -> None:
    """Reject a *short* window that is not shorter than the *long* one."""
    if durations.seconds(short) >= durations.seconds(long):
        source.fail(f"the short window, {short}, must be shorter than {long}")


def _match(source: Source) -> Match:
    found = tuple(
        (
            name := key.text() if key.text() in SUBJECTS else label(key),
            whole(name, value),
        )
        for key, value in source.entries()
    )
    if not found:
        source.fail("no labels; at least one is required, such as job")
    return found


def _service(source: Source) -> Match:
    match = _match(source)
    if "job" not in dict(match):
        source.fail("label 'job' is missing")
    return match


def _override(key: Source, alert: str, source: Source) -> Override:
    found = source.read(
        enabled=Source.flag,
        severity=lambda severity: severity.choice(SEVERITIES),
        for_=Source.duration,
        labels=pairs,
        annotations=annotated,
        summary=Source.text,
        description=Source.text,
        except_=listed(_service),
    )
    return Override(alert, key, **found)
