"""Options of several commands of ``jaxmon dashboards``."""

from __future__ import annotations

from pathlib import Path

import click

from jaxmon.cli.options import RUNBOOK_BASE


FILES = click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))

GENERATION = (
    click.option(
        "--slo",
        "slo_file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Objectives and limits, as for jaxmon alerts build.",
    ),
    RUNBOOK_BASE,
)

FOLDER = click.option(
    "--folder",
    default="jaxmon",
    show_default=True,
    metavar="UID",
    help='Folder UID for the dashboards; "general" is the top level.',
)

FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "classic", "v2"]),
    default="auto",
    show_default=True,
    help="Grafana's model of generated dashboards: classic, v2 (Grafana 13 and later), "
    "or auto, the one in which Grafana stores each, and classic for new ones.",
)


def _uid(
    _context: click.Context, _parameter: click.Parameter, uid: str | None
) -> str | None:
    if uid and not (uid.isprintable() and " " not in uid):
        msg = f"{uid!r} is not a valid UID; use printable characters without spaces"
        raise click.BadParameter(msg)
    return uid


DATASOURCE = click.option(
    "--datasource",
    callback=_uid,
    metavar="UID",
    help="UID of the Prometheus data source to preselect in new dashboards.",
)
