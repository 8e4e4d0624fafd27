"""``jaxmon bundle``: what a post-mortem needs, in one file."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxmon.cli import options, output
from jaxmon.cli.markdown import escaped, table
from jaxmon.cli.servers import ACCESS, Access, prometheus
from jaxmon.errors import CommandError
from jaxmon.host.formats.layout import clean, shortened
from jaxmon.screens.section import moment


if TYPE_CHECKING:
    from jaxmon.cli.archive import AgentReport, Archive
    from jaxmon.facts.ending import ProcessEnd
    from jaxmon.facts.events import EventFact
    from jaxmon.facts.functions import FunctionFact

_SCHEMA = 1
_MOST_ALERTS = 1000
# Incidents make hosts slow.
_SIDECAR_SECONDS = 30.0


@options.subcommand()
def command(
    *,
    worker: str | None = options.WORKER,
    out: Path | None = options.option(
        click.Path(dir_okay=False, allow_dash=True, path_type=Path)
    ),
    programs: int | None = options.option(options.Whole(1, 50), "--hlo", metavar="N"),
    run_dir: Path | None = options.JUDGED_RUN_DIR,
    sidecar: str = options.option(options.BASE_URL, default="http://127.0.0.1:9467"),
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
    from jaxmon.cli import archive as agents
    from jaxmon.cli.archive import Archive, host_facts
    from jaxmon.cli.workers import directory_of
    from jaxmon.host import disclosure

    taken = time.time()
    host = platform.node() or "host"
    stamp = datetime.fromtimestamp(taken, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"jaxmon-bundle-{re.sub(r'[^A-Za-z0-9.-]', '-', host)[:60]}-{stamp}"
    path = out or Path(f"{name}.tar.gz")
    to_stdout = str(path) == "-"
    if not to_stdout and path.exists():
        msg = f"{path} exists; give another file with --out"
        raise CommandError(msg)
    archive = Archive(name, taken, disclosure.forms)
    processes = agents.collect(
        archive, run_dir, worker, programs=programs, limits=options.limits_of(run_dir)
    )
    ends = agents.add_ends(archive, run_dir)
    crashes = agents.crashes(ends)
    _add_sidecar(archive, sidecar)
    disks = [directory_of(run_dir), Path.cwd()]
    archive.add_json("host.json", host_facts(disks))
    alerts = None
    if prometheus_url is not None:
        alerts = _alerts(archive, prometheus_url, access)
    text = _text(
        host=host,
        taken=taken,
        crashes=crashes,
        processes=processes,
        timeline=entries(processes, alerts or (), ends),
        alerts=alerts,
        missing=archive.missing,
    )
    archive.add("post-mortem.md", text)
    manifest = {
        "schema": _SCHEMA,
        "host": host,
        "time": taken,
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


_MOST = 80
_LONGEST = 160
# Too many of these happen in a healthy program.
_ORDINARY = ("compile", "miss")


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened *count* times from the Unix time *first* to *last*."""

    first: float
    last: float
    count: int
    source: str
    what: str


def entries(
    processes: Iterable[AgentReport],
    alerts: Iterable[Mapping[str, Any]],
    ends: Mapping[str, ProcessEnd],
) -> list[Entry]:
    """Return what happened, in order of time; of too much, the latest."""
    found = [*_of_alerts(alerts)]
    for number, end in ends.items():
        if (at := end.time) is not None:
            found.append(Entry(at, at, 1, f"worker {number}", _line(end.sentence)))
    for process in processes:
        found += _of_process(process)
    return sorted(found, key=lambda entry: (entry.first, entry.source))[-_MOST:]


def _of_alerts(alerts: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
    for alert in alerts:
        since = alert.get("since")
        if isinstance(since, float):
            labels = alert["labels"]
            name, severity = labels.get("alertname", ""), labels.get("severity", "")
            about = " ".join(
                f"{key}={labels[key]}"
                for key in ("job", "cluster", "instance", "function", "route")
                if labels.get(key)
            )
            what = f"alert {name} ({severity}) {about}"
            yield Entry(since, since, 1, "Prometheus", _line(what))


def _of_process(process: AgentReport) -> Iterator[Entry]:
    source = f"worker {process.number}"
    if started := process.snapshot.process.started:
        yield Entry(started, started, 1, source, "jaxmon was started in the process")
    groups: dict[tuple[str, str], list[EventFact]] = {}
    for event in process.snapshot.events:
        if event.time and event.kind not in _ORDINARY:
            groups.setdefault((event.kind, event.function), []).append(event)
    for (kind, function), events in groups.items():
        first, last = events[0], events[-1]
        named = f" {function}" if function else ""
        what = f"{kind}{named}: {last.message}"
        yield Entry(first.time, last.time, len(events), source, _line(what))


def _line(text: str) -> str:
    return shortened(" ".join(clean(text).split()), _LONGEST)


GAP = "TO FILL IN"
_MOST_ROWS = 30
_FINGERPRINT = 16
_UNKNOWN = "-"


def _text(
    *,
    host: str,
    taken: float,
    crashes: Sequence[str],
    processes: Sequence[AgentReport],
    timeline: Sequence[Entry],
    alerts: Sequence[Mapping[str, Any]] | None,
    missing: Mapping[str, str],
) -> str:
    """Return the post-mortem as Markdown."""
    facts = (
        f"Facts by `jaxmon bundle` on {escaped(host)} at {moment(taken)} UTC. {GAP} "
        "marks what people fill in. No blame: what made it easy to happen and hard to "
        "see?"
    )
    history = (
        f"{GAP}: first sign, first page, first action, mitigation, end; and what "
        "people knew at each point."
    )
    before = (
        f"All packages are in `packages.txt` of each process. {GAP}: the versions "
        "before the incident."
    )
    impact = (
        "who was affected, and how: requests, steps or accelerator hours lost, and the "
        "part of the error budget that was spent (`jaxmon slo report`)."
    )
    parts = [
        f"# Post-mortem: {GAP}: what failed, in one sentence",
        *map(escaped, crashes),
        facts,
        *_to_write("Summary", "what happened, how long, and how it ended."),
        *_to_write("Impact", impact),
        *("## Timeline (UTC)", _timeline(timeline), history),
        *("## Alerts", *_alert_table(alerts)),
        f"{GAP}: which alert should have come first? Which were noise?",
        *("## Cache hit rates", _hit_rates(processes)),
        f"{GAP}: the rates before the incident.",
        *("## Programs and kernels", *_programs(processes)),
        f"{GAP}: which of them changed, compared with before the incident?",
        *("## Versions", _versions(processes), before),
        *("## Findings", *_findings(processes)),
        *_to_write("Root cause", "why it happened, and why it was not prevented."),
        *_to_write("What went well, and what did not", "detection, runbooks, tools."),
        *("## Actions", table(("Action", "Owner", "Due"), [(GAP, GAP, GAP)])),
    ]
    if missing:
        rows = "\n".join(f"- {escaped(k)}: {escaped(v)}" for k, v in missing.items())
        parts += ["## Not collected", rows]
    return "\n\n".join(part for part in parts if part) + "\n"


def _to_write(heading: str, what: str) -> tuple[str, str]:
    return f"## {heading}", f"{GAP}: {what}"


def _timeline(timeline: Sequence[Entry]) -> str:
    if not timeline:
        return "No events are known."
    rows = []
    for entry in timeline:
        times = ""
        if entry.count > 1:
            times = f" ({entry.count} times, until {moment(entry.last)})"
        rows.append((moment(entry.first), entry.source, entry.what + times))
    return table(("Time", "Source", "What"), rows)


def _alert_table(alerts: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    if alerts is None:
        yield f"{GAP}: those that fired; `--prometheus URL` would have listed them."
        return
    if not alerts:
        yield "None was active when the bundle was taken."
        return
    rows = (
        (
            alert["labels"].get("alertname", ""),
            alert["labels"].get("severity", ""),
            moment(alert["since"] or 0.0) or _UNKNOWN,
            " ".join(
                f"{name}={value}"
                for name, value in sorted(alert["labels"].items())
                if name not in ("alertname", "severity", "alertstate")
            ),
        )
        for alert in alerts[:_MOST_ROWS]
    )
    yield table(("Alert", "Severity", "Since", "Labels"), rows)
    if (rest := len(alerts) - _MOST_ROWS) > 0:
        yield f"And {rest} more in `alerts.json`."


def _hit_rates(processes: Sequence[AgentReport]) -> str:
    rows = []
    for process in processes:
        where = f"worker {process.number}"
        worst = sorted(_calls(process), key=lambda row: row[1] - row[2], reverse=True)
        calls, hits = sum(row[1] for row in worst), sum(row[2] for row in worst)
        rows.append((where, "jit, all functions", _rate(hits, calls), f"{calls:,}"))
        for name, called, hit in worst[:5]:
            rows.append((where, f"jit, {name}", _rate(hit, called), f"{called:,}"))
        found = process.snapshot.cache.requests
        asked = found.hit + found.miss
        rows.append((where, "persistent", _rate(found.hit, asked), f"{asked:,}"))
    if not rows:
        return "No process responded."
    return table(("Process", "Cache", "Hit rate", "Calls"), rows)


def _programs(processes: Sequence[AgentReport]) -> Iterator[str]:
    rows: list[tuple[Any, ...]] = []
    variants: dict[str, dict[str, str]] = {}
    for process in processes:
        for function in process.snapshot.functions:
            program = function.program
            if not program.fingerprint:
                continue
            fingerprint = program.fingerprint[:_FINGERPRINT]
            variants.setdefault(function.name, {})[fingerprint] = process.number
            rows.append(
                (
                    program.finished,
                    f"worker {process.number}",
                    function.name,
                    fingerprint,
                    str(program.programs or ""),
                    moment(program.finished) or _UNKNOWN,
                    _recompiles(function),
                )
            )
    if not rows:
        yield "No programs are known."
        return
    rows.sort(reverse=True)
    head = ("Process", "Function", "Latest", "Programs", "Compiled", "Recompiles")
    yield table(head, [row[1:] for row in rows[:_MOST_ROWS]])
    differing = sorted(name for name, some in variants.items() if len(some) > 1)
    if differing:
        names = ", ".join(escaped(name) for name in differing[:_MOST_ROWS])
        yield f"Processes have different latest programs of: {names}."


def _versions(processes: Sequence[AgentReport]) -> str:
    columns = [(process.number, _pins(process)) for process in processes]
    names = sorted({name for _, pins in columns for name in pins})
    if not names:
        return "No process responded."
    rows = [
        (name, *(pins.get(name, _UNKNOWN) for _, pins in columns)) for name in names
    ]
    return table(("", *(f"worker {number}" for number, _ in columns)), rows)


def _findings(processes: Sequence[AgentReport]) -> Iterator[str]:
    some = False
    for process in processes:
        if process.findings:
            some = True
            lines = "\n".join(
                f"- {escaped(finding)}" for finding in process.findings[:10]
            )
            yield f"Worker {process.number}, most urgent first:\n\n{lines}"
    if not some:
        yield "None."


def _pins(process: AgentReport) -> dict[str, str]:
    about = process.snapshot.process
    pins = {"jaxmon": about.jaxmon, "jax": about.jax, "python": about.python}
    return {name: version for name, version in pins.items() if version} | {
        **process.environment.versions
    }


def _calls(process: AgentReport) -> Iterator[tuple[str, int, int]]:
    for function in process.snapshot.functions:
        if function.calls and function.hits is not None:
            yield function.name, function.calls, function.hits


def _recompiles(function: FunctionFact) -> str:
    causes = sorted(function.recompiles.items())
    return ", ".join(f"{name} {count}" for name, count in causes) or "none"


def _rate(hits: int, calls: int) -> str:
    return f"{hits / calls:.1%}" if calls else _UNKNOWN
