"""Where a site's notifications go, and when they wait."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit
from zoneinfo import available_timezones

from jaxmon.symptoms.alert import PAGE, TICKET, Match, Severity
from jaxmon_alerts.slo.source import Source, given


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
        match, **given(found, webhook=url, receivers=receivers, mute=mute)
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


def mute(source: Source) -> tuple[MuteHours, ...]:
    """Return the section ``mute``."""
    return tuple(map(_mute_hours, source.items()))


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
