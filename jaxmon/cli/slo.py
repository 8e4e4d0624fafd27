"""``jaxmon slo``: how the objectives fared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxmon.cli import options, output
from jaxmon.cli.markdown import escaped, table
from jaxmon.cli.servers import ACCESS, Access, prometheus
from jaxmon.screens.section import shown


if TYPE_CHECKING:
    from jaxmon_alerts.weekly.queries import Fired
    from jaxmon_alerts.weekly.report import Objective, Ranked, ServiceCost, SloReport

_SCHEMA = 1
_UNKNOWN = "-"
_MOST_ALERTS = 30
_HOUR, _MINUTE = 3600.0, 60.0


@click.group
def command() -> None:
    """
    Report how the objectives of slo.yaml fared.

    See `jaxmon alerts` for the file, and for the rules that record what is reported.
    """


@options.subcommand(command)
def report(
    *,
    prometheus_url: str = prometheus(required=True),
    slo_file: Path | None = options.option(options.NEW_FILE, "--slo"),
    days: int = options.option(options.Whole(1, 90), default=7),
    until: datetime | None = options.option(options.MOMENT),
    price: float | None = options.option(
        options.Number(min=0), "--price-per-hour", metavar="DOLLARS"
    ),
    as_json: bool = options.AS_JSON,
    access: Access = ACCESS,
) -> None:
    """
    Print the weekly report: objectives, alerts, causes and cost.

    Everything comes from Prometheus, which needs the rules of `jaxmon alerts build` and
    as many days of data. Queries over a large fleet take a while: raise --timeout.

    Options:
        slo_file: Report the objectives of this file; by default, all that are recorded.
        days: How many days of 24 hours to report.
        until: When they end: a date or time in ISO format, whose time zone days have,
            UTC unless given; by default, now.
        price: Price of an accelerator hour; by default, as the sidecars export it.

    Example, on Monday morning:
      jaxmon slo report --prometheus https://prometheus.example.org --out report.md
    """
    from jaxmon_alerts import slo
    from jaxmon_alerts.prometheus import Prometheus
    from jaxmon_alerts.weekly.report import ReportCollector

    titles = {}
    if slo_file is not None:
        titles = {objective.name: objective.title for objective in slo.load(slo_file)}
    end = until or datetime.now(UTC)
    collector = ReportCollector(
        Prometheus(access.session("Prometheus", prometheus_url)),
        end=end,
        days=days,
        titles=titles,
        price=price,
    )
    found = collector.collect()
    output.result(_document(found), _markdown(found), as_json=as_json)


def _document(found: SloReport) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "start": found.start,
        "end": found.end,
        "objectives": [
            {
                "name": objective.name,
                "service": objective.service,
                "objective": objective.objective,
                "attainment": objective.attainment,
                "met": objective.is_met,
                "burn": objective.burn,
                "budget_remaining": objective.remaining,
                "events": objective.events,
                "errors": objective.errors,
                "error_ratio_by_day": {
                    str(day.end): ratio for day, ratio in sorted(objective.days.items())
                },
            }
            for objective in found.objectives
        ],
        "alerts": [{**asdict(alert), "count": alert.count} for alert in found.fired],
        "causes": {
            key: [
                {"service": cause.service, **cause.labels, "value": cause.value}
                for cause in ranked
            ]
            for key, ranked in found.rankings.items()
        },
        "cost": list(map(asdict, found.costs)),
        "missing": found.missing,
    }


def _markdown(report: SloReport) -> str:
    zone = report.zone
    first, last = (_date(moment, zone) for moment in (report.start, report.end))
    parts = [
        f"# Objectives, {first} to {last}",
        _summary(report),
        "## Objectives",
        *_objectives(report.objectives, report.missing, zone),
        "## Alerts",
        *_alerts(report.fired, report.missing, zone),
        "## Causes",
        *_causes(report),
        "## Cost",
        *_costs(report.costs, report.missing),
    ]
    if report.missing:
        rows = sorted(report.missing.items())
        lines = [f"- {escaped(name)}: {escaped(reason)}." for name, reason in rows]
        parts += ["## Not determined", "\n".join(lines)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(report: SloReport) -> str:
    judged = [
        objective for objective in report.objectives if objective.is_met is not None
    ]
    missed = [objective for objective in judged if not objective.is_met]
    pages = sum(alert.count for alert in report.fired if alert.severity == "page")
    text = f"{len(judged) - len(missed)} of {len(judged)} objectives were met"
    if missed:
        worst = max(missed, key=lambda objective: objective.burn or 0.0)
        text += f"; the worst was {escaped(worst.title)!r} of {escaped(worst.service)}"
        text += f", at {worst.burn or 0:.1f} times its budget"
    return f"{text}. {pages} {'page' if pages == 1 else 'pages'} fired."


def _objectives(
    objectives: Sequence[Objective], missing: dict[str, str], zone: tzinfo
) -> Iterator[str]:
    if not objectives:
        yield "" if "Objectives" in missing else "None."
        return
    head = (
        *("Objective", "Service", "Goal", "Attained", "Met", "Burn"),
        *("Budget left", "Worst day", "Events"),
    )
    yield table(head, (_objective(objective, zone) for objective in objectives))
    yield (
        "Burn is the error ratio as a multiple of what the objective allows; 1 uses up "
        "the budget exactly. Budget left is that of the whole period now, where the "
        f"least is left. Days are those of {_named(zone)}; the first and the last may "
        "be partial."
    )


def _objective(objective: Objective, zone: tzinfo) -> tuple[str, ...]:
    worst = _UNKNOWN
    if objective.worst_day is not None:
        day, ratio = objective.worst_day
        partial = ", partial" if day.is_partial else ""
        worst = f"{_date(day.start, zone)}{partial} ({_percent(1 - ratio)})"
        worst = worst if ratio else "none"
    return (
        objective.title,
        objective.service or "no events",
        _percent(objective.objective),
        _percent(objective.attainment),
        _UNKNOWN if objective.is_met is None else ("yes" if objective.is_met else "no"),
        shown(objective.burn, "{:.2f}".format),
        shown(objective.remaining, "{:.1%}".format),
        worst,
        f"{objective.events:,.0f}",
    )


def _alerts(
    fired: Sequence[Fired], missing: dict[str, str], zone: tzinfo
) -> Iterator[str]:
    if not fired:
        yield "" if "Alerts" in missing else "None fired."
        return
    for title, of_budget in (("Budgets", True), ("Causes, longest first", False)):
        some = [alert for alert in fired if alert.is_of_budget is of_budget]
        if some:
            rows = (
                (
                    alert.name,
                    alert.severity,
                    alert.service,
                    str(alert.count),
                    _duration(alert.seconds),
                    _moment(alert.times[0][0], zone) if alert.times else _UNKNOWN,
                )
                for alert in some[:_MOST_ALERTS]
            )
            yield f"### {title}"
            yield table(
                ("Alert", "Severity", "Service", "Times", "In all", "First"), rows
            )
        if (rest := len(some) - _MOST_ALERTS) > 0:
            yield f"And {rest} more."


def _causes(report: SloReport) -> Iterator[str]:
    from jaxmon_alerts.weekly.report import RANKINGS

    for key, (title, _) in RANKINGS.items():
        if ranked := report.rankings.get(key):
            yield f"### {title}"
            yield _ranking(ranked)
    if not any(report.rankings.values()):
        yield "None recorded."


def _ranking(ranked: Sequence[Ranked]) -> str:
    names = sorted({name for cause in ranked for name in cause.labels})
    rows = (
        (
            cause.service,
            *(cause.labels.get(name, "") for name in names),
            f"{cause.value:,.1f}".removesuffix(".0"),
        )
        for cause in ranked
    )
    head = ("Service", *(name.capitalize() for name in names), "Value")
    return table(head, rows)


def _costs(costs: Sequence[ServiceCost], missing: dict[str, str]) -> Iterator[str]:
    if not costs:
        yield "" if "Cost" in missing else "No accelerators were held."
        return
    head = ("Service", "Accelerator hours", "Busy", "Energy", "Mean power", "Dollars")
    yield table(head, map(_cost, costs))
    yield (
        "Busy is the mean utilisation while held. Energy is that of GPUs; those that "
        "several processes share count in full for each."
    )


def _cost(cost: ServiceCost) -> tuple[str, ...]:
    dollars = _UNKNOWN
    if cost.dollars is not None:
        dollars = f"{cost.dollars:,.2f}"
        if cost.busy is not None:
            dollars += f" ({cost.dollars * (1 - cost.busy):,.2f} idle)"
    return (
        cost.service,
        f"{cost.accelerator_hours:,.1f}",
        shown(cost.busy, "{:.0%}".format),
        shown(cost.kilowatt_hours, "{:,.1f} kWh".format),
        shown(cost.mean_watts, "{:,.0f} W".format),
        dollars,
    )


def _percent(ratio: float | None) -> str:
    # Three digits of what is missing to 100 %: 99.9 % is not 100 %.
    return shown(ratio, lambda part: f"{part * 100:.6g} %")


def _duration(seconds: float) -> str:
    if seconds < _MINUTE:
        return "under 1 min"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h"


def _date(moment: float, zone: tzinfo) -> str:
    return datetime.fromtimestamp(moment, zone).strftime("%Y-%m-%d")


def _moment(moment: float, zone: tzinfo) -> str:
    at = datetime.fromtimestamp(moment, zone)
    return f"{at:%Y-%m-%d %H:%M} {_named(zone)}"


def _named(zone: tzinfo) -> str:
    return zone.tzname(None) or "UTC"
