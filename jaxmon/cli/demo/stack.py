"""Prometheus and Alertmanager with our rules, time-scaled."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jaxmon.cli.demo.children import Children
from jaxmon.cli.demo.pages import fetch
from jaxmon.errors import CommandError
from jaxmon.files import whole


SCALE = 60
"""Speed-up over production: an hour becomes a minute."""

_HOST = "127.0.0.1"
_TARGETS = "targets.json"
_START_SECONDS = 60.0
_ATTEMPTS = 3
_TAKEN = "address already in use"
_PROMETHEUS = ("prometheus",)
_ALERTMANAGER = ("prometheus-alertmanager", "alertmanager")
_PROMETHEUS_READY = re.compile(r"(Server is ready)")
_ALERTMANAGER_READY = re.compile(r"(Listening)")
# Windows shrink but compiles do not: fewer of them count as a storm, or a herd.
_RECOMPILES = 8
_THUNDERING_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of the two programs."""

    prometheus: str
    alertmanager: str

    @classmethod
    def installed(cls) -> Programs | None:
        """Return those on PATH, `None` for a missing one."""
        prometheus, alertmanager = _which(_PROMETHEUS), _which(_ALERTMANAGER)
        if prometheus is None or alertmanager is None:
            return None
        return cls(prometheus, alertmanager)


@dataclass(frozen=True, slots=True)
class Stack:
    """
    The two running servers.

    Args:
        prometheus: its URL.
        alertmanager: its URL.
        targets: the file that says what is scraped.
    """

    prometheus: str
    alertmanager: str
    targets: Path

    def alerts(self) -> list[dict[str, Any]]:
        """
        Return the alerts that are pending or firing, as Prometheus describes them.

        Raises:
            CommandError: it does not respond.
        """
        return alerts_of(self.prometheus)

    def alert_states(self) -> dict[str, str]:
        """
        Return the states of the alerts that Alertmanager has, by fingerprint:
        ``active``, or ``suppressed`` if something inhibits them.

        Raises:
            CommandError: it does not respond.
        """
        response = fetch("Alertmanager", f"{self.alertmanager}/api/v2/alerts")
        try:
            return {str(one["fingerprint"]): one["status"]["state"] for one in response}
        except (LookupError, TypeError) as error:
            msg = f"{self.alertmanager} returned an invalid alert: {error!r}"
            raise CommandError(msg) from error

    def scrape(self, targets: Mapping[str, str]) -> None:
        """Have Prometheus scrape *targets*, ``host:port`` by job, and no others."""
        write_targets(self.targets, targets)


def alerts_of(prometheus: str) -> list[dict[str, Any]]:
    """
    Return the alerts that are pending or firing, as the server at this URL describes
    them.

    Raises:
        CommandError: it does not respond, or is no Prometheus.
    """
    response = fetch("Prometheus", f"{prometheus}/api/v1/alerts")
    data = response.get("data") if isinstance(response, dict) else None
    found = data.get("alerts") if isinstance(data, dict) else None
    if not isinstance(found, list):
        msg = f"{prometheus} returned no alert list; is it really Prometheus?"
        raise CommandError(msg)
    return found


def write_targets(path: Path, targets: Mapping[str, str]) -> None:
    """
    Write *targets*, ``host:port`` by job, to *path*, for ``file_sd_configs``.

    Raises:
        OSError: it cannot be written.
    """
    groups = [
        {"targets": [address], "labels": {"job": job}}
        for job, address in targets.items()
    ]
    whole.write(path, f"{json.dumps(groups, indent=2)}\n".encode())


def start(
    programs: Programs,
    children: Children,
    directory: Path,
    *,
    targets: Mapping[str, str],
    webhook: str | None,
    drawn: bool = True,
) -> Stack:
    """
    Start both, and return them once they are ready.

    Args:
        programs: what to start.
        children: to which they are added.
        directory: where their files and data go.
        targets: ``host:port`` to scrape, by job.
        webhook: where notifications are sent; `None` sends none.
        drawn: whether it records what dashboards show.

    Raises:
        CommandError: one of them exited, or took too long.
    """
    for attempt in range(_ATTEMPTS):
        ports = _free_ports()
        write_targets(directory / _TARGETS, targets)
        for name, text in _files(ports[1], webhook, drawn=drawn).items():
            (directory / name).write_text(text, encoding="utf-8")
        alertmanager = children.start(
            "alertmanager",
            [
                *(
                    programs.alertmanager,
                    f"--config.file={directory}/alertmanager.yaml",
                ),
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
        try:
            alertmanager.says(_ALERTMANAGER_READY, seconds=_START_SECONDS)
            prometheus.says(_PROMETHEUS_READY, seconds=_START_SECONDS)
        except CommandError as error:
            if _TAKEN not in str(error) or attempt + 1 == _ATTEMPTS:
                raise
            # Another process was faster: try other ports.
            for child in (alertmanager, prometheus):
                children.end(child)
        else:
            break
    return Stack(_url(ports[0]), _url(ports[1]), directory / _TARGETS)


def _web(port: int) -> tuple[str, str]:
    address = f"--web.listen-address={_HOST}:{port}"
    return address, f"--web.external-url={_url(port)}"


def _url(port: int) -> str:
    return f"http://{_HOST}:{port}"


def _files(alertmanager: int, webhook: str | None, *, drawn: bool) -> Mapping[str, str]:
    """Return what the two read, by file name."""
    import yaml

    from jaxmon.artifacts import alerts, slo

    shipped = slo.load()
    limits = shipped.limits.replaced(
        recompiles=_RECOMPILES,
        thundering_seconds=_THUNDERING_SECONDS,
    )
    site = slo.Site(webhook=webhook or "")
    slos = replace(shipped, limits=limits, site=site)
    options = alerts.Options(scale=SCALE, drawn=drawn)
    settings = {
        "global": {
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "evaluation_interval": "1s",
        },
        "rule_files": ["recording.yaml", "alerts.yaml"],
        "alerting": {
            "alertmanagers": [
                {"static_configs": [{"targets": [f"{_HOST}:{alertmanager}"]}]}
            ]
        },
        "scrape_configs": [
            {
                "job_name": "jaxmon",
                "file_sd_configs": [{"files": [_TARGETS], "refresh_interval": "1s"}],
            }
        ],
    }
    return {
        "prometheus.yaml": yaml.safe_dump(settings),
        **alerts.render(slos, options),
    }


def _free_ports() -> list[int]:
    """Return two unused ports."""
    with socket.socket() as first, socket.socket() as second:
        for one in (first, second):
            one.bind((_HOST, 0))
        return [int(one.getsockname()[1]) for one in (first, second)]


def _which(names: tuple[str, ...]) -> str | None:
    return next(filter(None, map(shutil.which, names)), None)
