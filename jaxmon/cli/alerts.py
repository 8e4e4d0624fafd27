"""
``jaxmon alerts``: rules and routing from ``slo.yaml``, and whether they are loaded.
"""

from __future__ import annotations

import difflib
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxmon.cli import options, output
from jaxmon.cli.servers import ACCESS, Access, prometheus
from jaxmon.errors import CommandError, raised


if TYPE_CHECKING:
    from jaxmon_alerts.rules import RuleOptions
    from jaxmon_alerts.rules.build import Format
    from jaxmon_alerts.rules.explanation import ExplainedAlert
    from jaxmon_alerts.slo import Slos


# Of promtool, and of amtool.
_SECONDS = 60.0
_MOST_VALUES = 5

_FORM = options.option(
    click.Choice(["prometheus", "prometheusrule", "alertmanagerconfig", "mimir"]),
    "--format",
    meaning="Write rule files; PrometheusRule resources, or these with an "
    "AlertmanagerConfig; or one namespace for the ruler of Mimir.",
    default="prometheus",
)
_TIME_SCALE = options.option(
    options.Number(min=1, max=300),
    meaning="Divide every duration by this factor: with 60, an hour becomes a minute. "
    "For experiments with a Prometheus that scrapes every second.",
    default=1.0,
)


@click.group
def command() -> None:
    """
    Recording rules, alerts and routing, from slo.yaml.

    One file defines the objectives and all other limits; without it, the
    defaults printed by `jaxmon alerts slo` are used.
    """


@options.subcommand(command, "slo")
def print_slo(*, as_json: bool = options.AS_JSON) -> None:
    """
    Print the default slo.yaml as a starting point.

    Options:
        as_json: Print its limits as JSON, which --limits accepts as well.

    Example:
      jaxmon alerts slo --out slo.yaml
    """
    from jaxmon.limits import LIMITS, shared
    from jaxmon_alerts import slo

    limits = {name: limit.default for name, limit in LIMITS.items()}
    document = {"schema": shared.SCHEMA, "limits": limits}
    output.result(document, slo.default(), as_json=as_json)


@options.subcommand(command)
def build(
    *,
    slo_file: Path | None = options.option(options.NEW_FILE, "--slo"),
    out: Path = options.option(options.DIRECTORY, default="alerts"),
    form: Format = _FORM,
    time_scale: float = _TIME_SCALE,
) -> None:
    """
    Write the files and list those that changed.

    Options:
        slo_file: Objectives and limits.
        out: Directory to write to.

    Example:
      jaxmon alerts build --slo slo.yaml --out alerts
    """
    from jaxmon.host.files import whole
    from jaxmon_alerts import slo
    from jaxmon_alerts.rules import RuleOptions, render

    files = render(slo.load(slo_file), RuleOptions(scale=time_scale), form=form)
    for name in whole.write_all(out, files):
        output.line(out / name)


@options.subcommand(command)
def check(
    *,
    slo_file: Path | None = options.argument(options.NEW_FILE, required=False),
    against: str | None = options.option(str, metavar="DIRECTORY|URL"),
    form: Format = _FORM,
    time_scale: float = _TIME_SCALE,
    as_json: bool = options.AS_JSON,
) -> None:
    """
    Validate SLO_FILE and the rules generated from it.

    Runs promtool and amtool as well where they are installed, and promql-parser on the
    selectors of SLO_FILE. Writes nothing.

    Options:
        against: Compare with the files in this directory, or with the rules that the
            Prometheus at this URL has loaded, and report differences.

    Exit codes:
      0 the file is valid
      1 it is invalid, or the rules of --against differ

    Example:
      jaxmon alerts check slo.yaml --against alerts
    """
    from jaxmon_alerts import slo
    from jaxmon_alerts.rules import RuleOptions, render

    slos = slo.load(slo_file)
    rule_options = RuleOptions(scale=time_scale)
    for tool in missing_tools():
        output.line(f"{tool} is not installed; skipping its checks", err=True)
    reports = list(problems(render(slos, rule_options)))
    if form != "prometheus":
        render(slos, rule_options, form=form)  # it may not hold what the site wants
    if against:
        reports += _differences(against, slos, rule_options, form)
    text = "".join(reports) or f"{len(slos.slos)} SLOs: no problems"
    document = {"slos": len(slos.slos), "problems": reports}
    output.result(document, text, as_json=as_json)
    if reports:
        msg = f"{len(reports)} problem(s) found"
        raise CommandError(msg)


@options.subcommand(command)
def explain(
    *,
    name: str = options.argument(),
    slo_file: Path | None = options.option(options.NEW_FILE, "--slo"),
    prometheus_url: str | None = prometheus(required=False),
    access: Access = ACCESS,
    as_json: bool = options.AS_JSON,
) -> None:
    """
    Say what the alert NAME compares, how long, and by which limits.

    The file of the rules has the same sentence for each series that it reads. With
    --prometheus, its values now, and the rules of that name that are loaded if they are
    others.

    Options:
        slo_file: Objectives and limits.

    Examples:
      jaxmon alerts explain JaxmonRequestsHang
      jaxmon alerts explain JaxmonRequestsHang --prometheus http://prometheus:9090
    """
    from jaxmon.symptoms.alert import FORMER_NAMES
    from jaxmon_alerts import slo
    from jaxmon_alerts.rules import all_alerts
    from jaxmon_alerts.rules.explanation import explain as explained
    from jaxmon_alerts.rules.explanation import limits_of

    slos = slo.load(slo_file)
    name, _, symptom = FORMER_NAMES.get(name, name).partition("/")
    found = [of for of in explained(name, slos) if symptom in ("", of.alert.symptom)]
    if not found:
        names = {alert.name for alert in all_alerts(slos)}
        close = difflib.get_close_matches(name, names, 3, 0.4)
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        msg = f"there is no alert {name!r}{hint}"
        raise CommandError(msg)
    values, others = None, list[dict[str, Any]]()
    if prometheus_url:
        values, others = _values(access, prometheus_url, name)
    alerts = [_alert(alert, values) for alert in found]
    limits = [limit._asdict() for limit in limits_of(name, slos)]
    text = [line for alert in alerts for line in _lines_of(alert)]
    for limit in limits:
        text += [f"{limit['name']}: {limit['value']}", f"  {limit['meaning']}"]
    expected = {"".join(alert["expr"].split()) for alert in alerts}
    if all("".join(rule["expr"].split()) in expected for rule in others):
        others = []
    for rule in others:
        text += [f"Loaded there as {name}:", f"  {rule['expr']}"]
        text += [f"  {value}" for value in rule["values"]]
    document = {"alerts": alerts, "limits": limits, "loaded": others}
    output.result(document, text, as_json=as_json)


def _alert(
    found: ExplainedAlert, values: Callable[[str], list[str]] | None
) -> dict[str, Any]:
    alert, expr, parts = found
    now = values or (lambda _: [])
    return {
        "name": alert.name,
        "symptom": alert.symptom,
        "severity": alert.severity,
        "description": alert.description,
        "for": alert.for_,
        "expr": str(expr),
        "values": now(str(expr)),
        "series": [
            {"name": p.name, "sentence": p.sentence, "values": now(p.name)}
            for p in parts
        ],
    }


def _lines_of(alert: Mapping[str, Any]) -> Iterator[str]:
    held = f" for {alert['for']}" if alert["for"] else ""
    part = f"/{alert['symptom']}" if alert["symptom"] else ""
    yield f"{alert['name']}{part}, {alert['severity']}: {alert['description']}"
    yield f"It fires if this holds{held}:"
    yield f"  {alert['expr']}"
    yield from (f"  {value}" for value in alert["values"])
    for series in alert["series"]:
        yield series["name"]
        yield f"  {series['sentence']}"
        yield from (f"  {value}" for value in series["values"])
    yield ""


def _values(
    access: Access, url: str, name: str
) -> tuple[Callable[[str], list[str]], list[dict[str, Any]]]:
    """Return the values now of a query, and the loaded rules *name* with theirs."""
    from jaxmon_alerts.prometheus import Prometheus

    server = Prometheus(access.session("Prometheus", url))
    now, rules = time.time(), server.rules()
    loaded = {str(rule.get("name")) for rule in rules}

    def values(query: str) -> list[str]:
        found = server.instant(query, now)
        missing = [name for name in re.findall(_RECORDED, query) if name not in loaded]
        if rules and missing and not found:
            return [f"{missing[0]} is not recorded there: {_OTHER_RULES}"]
        found.sort(key=lambda series: -series.value)
        lines = []
        for series in found[:_MOST_VALUES]:
            labels = [f"{k} {v}" for k, v in sorted(series.labels.items())]
            of = ", ".join(pair for pair in labels if not pair.startswith("__name__"))
            lines.append(f"now {series.value:.6g} of {of or 'all'}")
        if (more := len(found) - len(lines)) > 0:
            lines.append(f"and {more} lower ones")
        return lines or ["no value now"]

    queries = [str(rule.get("query")) for rule in rules if rule.get("name") == name]
    return values, [{"expr": query, "values": values(query)} for query in queries]


def _differences(
    against: str, slos: Slos, rule_options: RuleOptions, form: Format
) -> list[str]:
    from jaxmon.host.files import whole
    from jaxmon_alerts.rules import all_groups, render

    if against.startswith(("http://", "https://")):
        groups = [group.document() for group in all_groups(slos, rule_options)]
        return [f"{difference}\n" for difference in differences(against, groups)]
    if not Path(against).is_dir():
        msg = f"--against={against} is neither a directory nor a URL"
        raise click.UsageError(msg)
    return list(whole.check(Path(against), render(slos, rule_options, form=form)))


def missing_tools() -> list[str]:
    """Return what would check more, but is not installed."""
    tools = [tool for tool in ("promtool", "amtool") if shutil.which(tool) is None]
    if find_spec("promql_parser") is None:
        tools.append("promql-parser (pip install 'jaxmon[alerts]')")
    return tools


def problems(files: Mapping[str, str]) -> Iterator[str]:
    """Yield the problems that promtool and amtool, if installed, find in *files*."""
    from jaxmon.host import subprocesses
    from jaxmon.host.files import whole as scratch
    from jaxmon_alerts.rules.build import ALERTMANAGER, ALERTS, RECORDING

    rules = ("check", "rules", "--lint=all", "--lint-fatal", RECORDING, ALERTS)
    routing = ("check-config", ALERTMANAGER)
    with scratch.directory("jaxmon-") as directory:
        for name, text in files.items():
            (directory / name).write_text(text, encoding="utf-8")
        for tool, arguments in (("promtool", rules), ("amtool", routing)):
            if (program := shutil.which(tool)) is None:
                continue
            command = [program, *arguments]
            try:
                done = subprocesses.run(command, seconds=_SECONDS, cwd=directory)
            except OSError as error:  # TimeoutError, too
                yield f"{tool}: {error}\n"
                continue
            if done.code:
                yield f"{tool}: {done.out}{done.err}"


_OURS = "jaxmon-"
# Names of series that rules record.
_RECORDED = r"\b[a-z]+:[\w:]*\w"
_OTHER_RULES = (
    "the rules loaded are others, as with another file or --time-scale; `jaxmon alerts "
    "check --against URL` compares them"
)
_SERVER_SECONDS = 30.0

Document = Mapping[str, Any]


def differences(url: str, groups: list[dict[str, Any]]) -> Iterator[str]:
    """
    Yield how *groups*, those of a rule file, differ from what runs at *url*, an API's
    prefix. Groups of others are left alone. Raises `CommandError`: that is no
    Prometheus.
    """
    prefix = url.rstrip("/")
    formatted = cache(lambda query: _data(prefix, "format_query", {"query": query}))
    loaded = {
        group["name"]: group
        for group in _data(prefix, "rules").get("groups", ())
        if group["name"].startswith(_OURS)
    }
    wanted = {group["name"]: group for group in groups}
    scales = {
        round(_seconds(wanted[name]["interval"]) / group["interval"], 1)
        for name, group in loaded.items()
        if name in wanted and group["interval"]
    }
    # Intervals have a least length: not all are divided by as much.
    if scales and 1 not in scales:
        yield (
            f"the rules loaded have {max(scales):g} times as short intervals, as with "
            f"another --time-scale: pass the one they were built with"
            if max(scales) > 1
            else "the rules loaded have longer intervals: omit --time-scale"
        )
        return
    for name in loaded.keys() - wanted.keys():
        yield f"group {name} is loaded, but not generated"
    for name, group in wanted.items():
        if name not in loaded:
            yield f"group {name} is not loaded"
        else:
            for problem in _group_differences(formatted, group, loaded[name]):
                yield f"group {name}: {problem}"


def _group_differences(
    formatted: Callable[[str], Any], wanted: Document, loaded: Document
) -> Iterator[str]:
    interval = _seconds(wanted["interval"])
    if loaded["interval"] != interval:
        yield f"its interval is {loaded['interval']:g} s, expected {interval:g} s"
    rules = dict(_described(rule) for rule in wanted["rules"])
    found = dict(_loaded(rule) for rule in loaded["rules"])
    for name, rule in rules.items():
        if name not in found:
            yield f"{name} is not loaded"
            continue
        for key, value in rule.items():
            other = found[name][key]
            if other == value:
                continue
            if key != "query" or formatted(value) != formatted(other):
                yield f"{name}: {key} is {other!r}, expected {value!r}"
    for name in found.keys() - rules.keys():
        yield f"{name} is loaded, but not generated"


def _data(url: str, path: str, query: Mapping[str, str] | None = None) -> Any:
    from http import HTTPStatus

    from jaxmon.host.http.session import MonitoringError, Session

    with raised(
        CommandError,
        f"{url} does not respond like a Prometheus",
        MonitoringError,
        ValueError,
        KeyError,
        TypeError,
    ):
        session = Session("Prometheus", url, timeout=_SERVER_SECONDS)
        response = session.get(f"/api/v1/{path}", query)
        if response.status == HTTPStatus.OK:
            return response.json()["data"]
    msg = f"{url} returned HTTP status {response.status} for {path}"
    raise CommandError(msg)


def _described(rule: Document) -> tuple[str, dict[str, Any]]:
    wait = _seconds(rule["for"]) if "for" in rule else 0.0
    return _compared(rule, rule.get("alert") or rule["record"], rule["expr"], wait)


def _loaded(rule: Document) -> tuple[str, dict[str, Any]]:
    wait = float(rule.get("duration", 0))
    return _compared(rule, rule["name"], rule["query"], wait)


def _compared(
    rule: Document, name: str, query: str, wait: float
) -> tuple[str, dict[str, Any]]:
    """Return what identifies a rule, and what matters of it."""
    texts = {key: dict(rule.get(key, {})) for key in ("labels", "annotations")}
    labels = (f"{key}={value}" for key, value in sorted(texts["labels"].items()))
    whole = {"name": name, "query": query, "for": wait, **texts}
    return f"{name}{{{', '.join(labels)}}}", whole


def _seconds(duration: str) -> float:
    from jaxmon.host.formats import durations

    return float(durations.seconds(duration))
