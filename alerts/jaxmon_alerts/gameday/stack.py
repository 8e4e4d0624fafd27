"""Prometheus and Alertmanager with our rules, time-scaled, and what they say."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jaxmon.errors import CommandError, raised
from jaxmon.host.files import whole
from jaxmon.host.formats import durations
from jaxmon.host.formats.layout import clean
from jaxmon.host.http import client
from jaxmon.host.http.urls import place_of, target_of
from jaxmon_alerts.gameday.children import HOST, Children, free_ports


SCALE = 60
"""Speed-up over production: an hour becomes a minute."""

_TARGETS = "targets.json"
_SETTINGS = """\
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [recording.yaml, alerts.yaml]
alerting: {alertmanagers: [{static_configs: [{targets: ["%s"]}]}]}
scrape_configs:
- job_name: jaxmon
  file_sd_configs: [{files: ["%s"], refresh_interval: 1s}]
"""
_START_SECONDS = 60.0
_PROMETHEUS = ("prometheus",)
_ALERTMANAGER = ("prometheus-alertmanager", "alertmanager")
_PROMETHEUS_READY = re.compile(r"(Server is ready)")
_ALERTMANAGER_READY = re.compile(r"(Listening)")
# Windows shrink but compiles do not: fewer of them count as a storm, or a herd.
_RECOMPILES = 8
_THUNDERING_SECONDS = 0.5

_SECONDS = 5.0
_MAX_BYTES = 32 << 20

# Labels that identify the subject of an alert, the most specific first.
_SUBJECTS = (
    *("function", "loop", "route", "device", "uuid", "collector", "hook"),
    "instance",
)


@dataclass(frozen=True, slots=True)
class MonitoringPrograms:
    """Paths of the two programs."""

    prometheus: str
    alertmanager: str

    @classmethod
    def installed(cls) -> MonitoringPrograms | None:
        """Return those on PATH, `None` for a missing one."""
        prometheus, alertmanager = _which(_PROMETHEUS), _which(_ALERTMANAGER)
        if prometheus is None or alertmanager is None:
            return None
        return cls(prometheus, alertmanager)


@dataclass(frozen=True, slots=True)
class MonitoringStack:
    """URLs of the two servers, and the file that says what is scraped."""

    prometheus: str
    alertmanager: str
    targets: Path


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """One active alert; its *subject* is such as ``route=/complete``, or empty."""

    name: str
    severity: str
    subject: str
    firing: bool
    since: datetime

    @property
    def state(self) -> str:
        """The state, as Prometheus calls it."""
        return "firing" if self.firing else "pending"

    def age(self) -> float:
        """Return the seconds since its condition began to hold."""
        return (datetime.now(UTC) - self.since).total_seconds()

    def __str__(self) -> str:
        text = f"{self.state}  {self.severity}  {self.name}  {self.subject}"
        return text.rstrip()


def active(described: Iterable[Mapping[str, Any]]) -> list[ActiveAlert]:
    """
    Return Prometheus's active alerts; firing first, then pages, then oldest first.

    Those that differ only in their SLO window are merged; ``info`` alerts, which only
    inhibit others, are omitted. Raises `CommandError`: unexpected format.
    """
    wrong = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
    try:
        alerts = sorted(
            map(_alert, described),
            key=lambda alert: (not alert.firing, alert.severity != "page", alert.since),
        )
    except wrong as error:
        msg = f"Prometheus returned an invalid alert: {error!r}"
        raise CommandError(msg) from error
    found: dict[tuple[str, str, str], ActiveAlert] = {}
    for alert in alerts:
        if alert.severity != "info":
            found.setdefault((alert.name, alert.severity, alert.subject), alert)
    return list(found.values())


def _alert(described: Mapping[str, Any]) -> ActiveAlert:
    labels = described["labels"]
    subject = next((label for label in _SUBJECTS if labels.get(label)), None)
    return ActiveAlert(
        name=str(labels["alertname"]),
        severity=str(labels.get("severity", "")),
        subject=f"{subject}={labels[subject]}" if subject else "",
        firing=described["state"] == "firing",
        since=durations.moment(described["activeAt"]),
    )


def alerts_of(prometheus: str) -> list[dict[str, Any]]:
    """Return the alerts that are pending or firing; `CommandError` without any."""
    response = fetch("Prometheus", f"{prometheus}/api/v1/alerts")
    data = response.get("data") if isinstance(response, dict) else None
    found = data.get("alerts") if isinstance(data, dict) else None
    if not isinstance(found, list):
        msg = f"{prometheus} returned no alert list; is it really Prometheus?"
        raise CommandError(msg)
    return found


def write_targets(path: Path, targets: Mapping[str, str]) -> None:
    """Write *targets*, ``host:port`` by job, to *path*, for ``file_sd_configs``."""
    groups = [
        {"targets": [address], "labels": {"job": job}}
        for job, address in targets.items()
    ]
    whole.write(path, f"{json.dumps(groups, indent=2)}\n".encode())


def start(
    programs: MonitoringPrograms,
    children: Children,
    directory: Path,
    *,
    targets: Mapping[str, str],
    webhook: str | None,
    drawn: bool = True,
) -> MonitoringStack:
    """Start both, and return them once ready; without a *webhook*, nothing is sent."""
    ports = free_ports(2)
    write_targets(directory / _TARGETS, targets)
    for name, text in _files(ports[1], webhook, drawn=drawn).items():
        (directory / name).write_text(text, encoding="utf-8")
    alertmanager = children.start(
        "alertmanager",
        [
            *(programs.alertmanager, f"--config.file={directory}/alertmanager.yaml"),
            *(f"--storage.path={directory}/alertmanager", *_web(ports[1])),
            # One instance needs no port for others to join it.
            "--cluster.listen-address=",
        ],
    )
    prometheus = children.start(
        "prometheus",
        [
            *(programs.prometheus, f"--config.file={directory}/prometheus.yaml"),
            *(f"--storage.tsdb.path={directory}/prometheus", *_web(ports[0])),
        ],
    )
    alertmanager.says(_ALERTMANAGER_READY, seconds=_START_SECONDS)
    prometheus.says(_PROMETHEUS_READY, seconds=_START_SECONDS)
    return MonitoringStack(_url(ports[0]), _url(ports[1]), directory / _TARGETS)


def _web(port: int) -> tuple[str, str]:
    address = f"--web.listen-address={HOST}:{port}"
    return address, f"--web.external-url={_url(port)}"


def _url(port: int) -> str:
    return f"http://{HOST}:{port}"


def _files(alertmanager: int, webhook: str | None, *, drawn: bool) -> Mapping[str, str]:
    from jaxmon_alerts import rules as alerts
    from jaxmon_alerts import slo

    shipped = slo.load()
    limits = shipped.limits.replaced(
        recompiles=_RECOMPILES, thundering_seconds=_THUNDERING_SECONDS
    )
    site = slo.Site(webhook=webhook or "")
    slos = replace(shipped, limits=limits, site=site)
    options = alerts.RuleOptions(scale=SCALE, drawn=drawn)
    settings = _SETTINGS % (f"{HOST}:{alertmanager}", _TARGETS)
    return {"prometheus.yaml": settings, **alerts.render(slos, options)}


def _which(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)


def fetch(whose: str, url: str) -> Any:
    """Fetch JSON of *whose* endpoint *url*, or raise a `CommandError` about it."""
    parts = urlsplit(url)
    with raised(
        CommandError,
        f"{whose} at {url} does not respond",
        OSError,
        HTTPException,
        ValueError,
    ):
        response = client.get(
            place_of(parts), target_of(parts), seconds=_SECONDS, max_bytes=_MAX_BYTES
        )
        document = response.json() if response.status == HTTPStatus.OK else None
    if document is None:
        msg = f"{whose} at {url} returned HTTP status {response.status}"
        raise CommandError(msg)
    return sanitised(document)


def sanitised(value: Any) -> Any:
    """Return *value*, decoded JSON, with all its strings sanitised for a terminal."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): sanitised(item) for key, item in value.items()}
    return [sanitised(item) for item in value] if isinstance(value, list) else value
