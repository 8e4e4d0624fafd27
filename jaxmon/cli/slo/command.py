"""``jaxmon slo``: how the objectives fared."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxmon.cli import output
from jaxmon.cli.options import Number, Whole, moment
from jaxmon.cli.servers import Access, prometheus
from jaxmon.cli.servers import access as server_access


if TYPE_CHECKING:
    from jaxmon_alerts.weekly.report import SloReport

_SCHEMA = 1


@click.group
def command() -> None:
    """
    Report how the objectives of slo.yaml fared.

    See `jaxmon alerts` for the file, and for the rules that record what is reported.
    """


@command.command(
    epilog="""
\b
Example, on Monday morning:
  jaxmon slo report --prometheus https://prometheus.example.org > report.md
"""
)
@prometheus(required=True)
@click.option(
    "--slo",
    "slo_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Report the objectives of this file; by default, all that are recorded.",
)
@click.option(
    "--days",
    type=Whole(1, 90),
    default=7,
    show_default=True,
    help="How many days of 24 hours to report.",
)
@click.option(
    "--until",
    metavar="TIME",
    callback=moment,
    help="When they end: a date or time in ISO format, whose time zone days have, UTC "
    "unless given; by default, now.",
)
@click.option(
    "--price-per-hour",
    "price",
    type=Number(min=0),
    metavar="DOLLARS",
    help="Price of an accelerator hour; by default, as the sidecars export it.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "json"]),
    default="markdown",
    show_default=True,
    help="What to print.",
)
@server_access
def report(
    *,
    prometheus_url: str,
    slo_file: Path | None,
    days: int,
    until: datetime | None,
    price: float | None,
    form: str,
    access: Access,
) -> None:
    """
    Print the weekly report: objectives, alerts, causes and cost.

    Everything comes from Prometheus, which needs the rules of `jaxmon alerts build` and
    as many days of data. Queries over a large fleet take a while: raise --timeout.
    """
    from jaxmon.cli.slo.markdown import markdown
    from jaxmon_alerts import slo
    from jaxmon_alerts.prometheus import Prometheus
    from jaxmon_alerts.weekly.report import ReportCollector

    titles = {}
    if slo_file is not None:
        titles = {one.name: one.title for one in slo.load(slo_file)}
    end = until or datetime.now(UTC)
    collector = ReportCollector(
        Prometheus(access.session("Prometheus", prometheus_url)),
        end=end,
        days=days,
        titles=titles,
        price=price,
    )
    found = collector.collect()
    if form == "json":
        output.document(_document(found))
        return
    output.lines(markdown(found))


def _document(found: SloReport) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "start": found.start,
        "end": found.end,
        "objectives": [
            {
                "name": one.name,
                "service": one.service,
                "objective": one.objective,
                "attainment": one.attainment,
                "met": one.is_met,
                "burn": one.burn,
                "budget_remaining": one.remaining,
                "events": one.events,
                "errors": one.errors,
                "error_ratio_by_day": {
                    str(day.end): ratio for day, ratio in sorted(one.days.items())
                },
            }
            for one in found.objectives
        ],
        "alerts": [
            {
                "name": one.name,
                "severity": one.severity,
                "service": one.service,
                "count": one.count,
                "seconds": one.seconds,
                "times": [list(time) for time in one.times],
            }
            for one in found.fired
        ],
        "causes": {
            key: [
                {"service": one.service, **one.labels, "value": one.value}
                for one in ranked
            ]
            for key, ranked in found.rankings.items()
        },
        "cost": [
            {
                "service": one.service,
                "accelerator_hours": one.hours,
                "busy": one.busy,
                "kilowatt_hours": one.kilowatt_hours,
                "dollars": one.dollars,
            }
            for one in found.costs
        ],
        "missing": found.missing,
    }
