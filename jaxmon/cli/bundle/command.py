"""``jaxmon bundle``: what a post-mortem needs, in one file."""

from __future__ import annotations

import platform
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxmon.cli import output
from jaxmon.cli.options import (
    BASE_URL,
    JUDGED_RUN_DIR,
    WORKER,
    Whole,
    limits_of,
    option,
    subcommand,
)
from jaxmon.cli.servers import ACCESS, Access, prometheus
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.cli.bundle.agents import Archive

_SCHEMA = 1
_MOST_ALERTS = 1000
# Incidents make hosts slow.
_SIDECAR_SECONDS = 30.0


@subcommand()
def command(
    *,
    worker: str | None = WORKER,
    out: Path | None = option(
        click.Path(dir_okay=False, allow_dash=True, path_type=Path)
    ),
    programs: int | None = option(Whole(1, 50), "--hlo", metavar="N"),
    run_dir: Path | None = JUDGED_RUN_DIR,
    sidecar: str = option(BASE_URL, default="http://127.0.0.1:9467"),
    prometheus_url: str | None = prometheus(required=False),
    access: Access = ACCESS,
) -> None:
    """
    Collect what a post-mortem needs, before a restart destroys it.

    For each instrumented process of this host, or for WORKER, given by its number, pid
    or name: a report as a page and its summary, findings, events, cache hit rates,
    programs, stacks, versions and out-of-memory reports. Besides these, what the
    sidecar sees, facts about the host, active alerts, and a post-mortem to complete.

    Of command lines it has the script, names of options and plain values of common
    ones; of the environment, the variables that change how XLA compiles. It does have
    source lines, argument names and shapes, so only its owner can read it.

    Options:
        out: File to write, - for standard output; by default, named by host and time.
        programs: Add the optimised HLO of the newest N programs of each process. It has
            small constants and source paths of the program.
        sidecar: The sidecar of this host.

    Examples:
      jaxmon bundle
      jaxmon bundle train.py --hlo 3
      jaxmon bundle --out incident.tar.gz --prometheus https://prometheus.example.org
      kubectl exec POD -c jaxmon -- jaxmon bundle --out - > incident.tar.gz
    """
    from jaxmon.cli.bundle import agents, postmortem
    from jaxmon.cli.bundle.agents import Archive, host_facts
    from jaxmon.host import disclosure, rundir

    moment = time.time()
    host = platform.node() or "host"
    stamp = datetime.fromtimestamp(moment, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"jaxmon-bundle-{re.sub(r'[^A-Za-z0-9.-]', '-', host)[:60]}-{stamp}"
    path = out or Path(f"{name}.tar.gz")
    to_stdout = str(path) == "-"
    if not to_stdout and path.exists():
        msg = f"{path} exists; give another file with --out"
        raise CommandError(msg)
    archive = Archive(name, moment, disclosure.forms)
    processes = agents.collect(
        archive, run_dir, worker, programs=programs, limits=limits_of(run_dir)
    )
    ends = agents.add_ends(archive, run_dir)
    crashes = agents.crashes(ends)
    _add_sidecar(archive, sidecar)
    disks = [run_dir or rundir.locate(), Path.cwd()]
    archive.add_json("host.json", host_facts(disks))
    alerts = None
    if prometheus_url is not None:
        alerts = _alerts(archive, prometheus_url, access)
    text = postmortem.text(
        host=host,
        taken=moment,
        crashes=crashes,
        processes=processes,
        timeline=postmortem.entries(processes, alerts or (), ends),
        alerts=alerts,
        missing=archive.missing,
    )
    archive.add("post-mortem.md", text)
    manifest = {
        "schema": _SCHEMA,
        "host": host,
        "time": moment,
        "processes": [process.number for process in processes],
        "files": archive.names(),
        "missing": archive.missing,
    }
    archive.add_json("manifest.json", manifest)
    data = archive.packed()
    if to_stdout:
        output.binary(data)
    else:
        from jaxmon.host.files import whole

        whole.write(path, data, private=True, replace=False)
        output.line(path)
    output.lines(crashes, err=True)
    for what, reason in archive.missing.items():
        output.line(f"without {what}: {reason}", err=True)


def _add_sidecar(archive: Archive, url: str) -> None:
    from jaxmon.host.http.session import MonitoringError, Session

    try:
        session = Session("sidecar", url, timeout=_SIDECAR_SECONDS)
        for target, name in (
            ("/metrics", "metrics.txt"),
            ("/api/summary", "summary.json"),
        ):
            response = session.get(target)
            text = response.body.decode(errors="replace")
            archive.add(f"sidecar/{name}", text)
    except MonitoringError as error:
        archive.missing["sidecar"] = str(error)


def _alerts(archive: Archive, url: str, access: Access) -> list[dict[str, Any]] | None:
    """Add and return the active alerts, `None` if they could not be determined."""
    from jaxmon import promql
    from jaxmon.host.http.session import MonitoringError
    from jaxmon_alerts.prometheus import Prometheus

    try:
        server = Prometheus(access.session("Prometheus", url))
        firing = promql.alerts(promql.eq("alertstate", "firing"))
        found = server.instant(str(firing), archive.moment)
        since = {
            _identity(sample.labels): sample.value
            for sample in server.instant(str(promql.alerts_since()), archive.moment)
        }
    except MonitoringError as error:
        archive.missing["alerts"] = str(error)
        return None
    alerts = [
        {
            "labels": {
                k: v for k, v in sorted(sample.labels.items()) if k != "__name__"
            },
            "since": since.get(_identity(sample.labels)),
        }
        for sample in found
    ]
    alerts.sort(key=lambda alert: (alert["since"] or 0.0, str(alert["labels"])))
    archive.add_json("alerts.json", alerts[:_MOST_ALERTS])
    return alerts[:_MOST_ALERTS]


def _identity(labels: Any) -> frozenset[tuple[str, str]]:
    """Return the labels of an alert without those that only one of its series has."""
    ignored = ("__name__", "alertstate")
    return frozenset((k, v) for k, v in labels.items() if k not in ignored)
