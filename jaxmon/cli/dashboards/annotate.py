"""``jaxmon dashboards annotate``: note a deployment in Grafana."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from jaxmon.cli import output
from jaxmon.cli.options import Whole, moment
from jaxmon.cli.servers import GRAFANA_HELP, Access, grafana_access


@click.command(
    epilog=f"""{GRAFANA_HELP}
\b
Example, in a pipeline:
  id=$(jaxmon dashboards annotate --job web --text "release 41")
  ...
  jaxmon dashboards annotate --id "$id" --end now
"""
)
@grafana_access
@click.option("--job", help="The service that is deployed.")
@click.option("--text", help='What is deployed, such as "release 41".')
@click.option(
    "--start",
    metavar="TIME",
    callback=moment,
    default="now",
    show_default=True,
    help="When it began: a date or time in ISO format, UTC unless it has an offset.",
)
@click.option(
    "--end",
    metavar="TIME",
    callback=moment,
    help="When it ended; by default, it is a moment.",
)
@click.option(
    "--dashboard",
    metavar="UID",
    default="",
    help="Only for this dashboard; by default, for all that show deployments.",
)
@click.option(
    "--id",
    "number",
    type=Whole(1),
    help="End this annotation, instead of adding one; needs --end.",
)
def command(
    *,
    url: str,
    access: Access,
    job: str | None,
    text: str | None,
    start: datetime,
    end: datetime | None,
    dashboard: str,
    number: int | None,
) -> None:
    """
    Note a deployment in Grafana, and print the annotation's ID.

    It gets the tags jaxmon, deploy and the job. Every board of jaxmon shows it; so does
    any that has an annotation query of the data source "-- Grafana --" by these tags.
    """
    from jaxmon_dashboards.boards.header import DEPLOY_TAGS
    from jaxmon_dashboards.grafana import annotations

    session = access.grafana(url)
    if number is not None:
        if end is None or job or text or dashboard:
            msg = "--id goes with --end alone: it ends an annotation that exists"
            raise click.UsageError(msg)
        annotations.end(session, number, end)
        output.line(f"annotation {number} ends at {_shown(end)}", err=True)
        return
    deployment = annotations.Deployment(
        tags=(*DEPLOY_TAGS, _given("--job", job)),
        text=_given("--text", text),
        start=start,
        end=end or start,
        dashboard=dashboard,
    )
    if deployment.end < start:
        msg = f"--end is before --start, {_shown(start)}; give a later time"
        raise click.UsageError(msg)
    number = annotations.add(session, deployment)
    tags = ", ".join(deployment.tags)
    output.line(f"noted at {_shown(start)}, with the tags {tags}", err=True)
    output.line(number)


def _given(name: str, value: str | None) -> str:
    if value is None or not value.strip():
        msg = f"{name} is missing; give --job and --text, or --id and --end"
        raise click.UsageError(msg)
    return value


def _shown(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
