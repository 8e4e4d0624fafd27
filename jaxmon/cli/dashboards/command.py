"""``jaxmon dashboards``: generate the Grafana dashboards and push them to Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.dashboards import annotate, options
from jaxmon.cli.dashboards.desired import Choice, Generation, folder_of
from jaxmon.cli.options import with_options
from jaxmon.cli.servers import GRAFANA_HELP, TOKEN_VARIABLE, Access, grafana_access
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.artifacts.dashboards import Format


_PUSH_EPILOG = f"""{GRAFANA_HELP}
\b
Exit codes:
  0 Grafana has these dashboards
  1 an error before pushing, or for every dashboard
  2 usage error
  3 refused: at least one was edited by hand, belongs to someone else, is
      provisioned, stored in the other model, or waits for approval in Grafana;
      the others were pushed
  4 some failed
  5 with --dry-run only: a push would change something

\b
Example:
  export {TOKEN_VARIABLE}=glsa_...
  jaxmon dashboards push --url https://example.com/grafana --dry-run
"""

_DIFF_EPILOG = f"""{GRAFANA_HELP}
\b
Exit codes:
  0   Grafana has exactly these dashboards
  1   an error
  2 usage error
  3   at least one is missing or differs

\b
Example:
  jaxmon dashboards diff --url https://example.com/grafana
"""

# Of the lines of a diff, by what they begin with.
_COLOURS = {"-": "red", "+": "green", "@": "cyan"}


@click.group(no_args_is_help=True)
def command() -> None:
    """Generate the Grafana dashboards and push them to Grafana."""


command.add_command(annotate.command, "annotate")


@command.command(epilog="\b\nExample:\n  jaxmon dashboards build --out dashboards")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Output directory; created if missing.  [default: dashboards, or "
    "dashboards-v2]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["classic", "v2"]),
    default="classic",
    show_default=True,
    help="Grafana's model of a dashboard: classic for Grafana 10.4 and later, v2 for "
    "13 and later.",
)
@with_options(*options.GENERATION, options.DATASOURCE)
def build(
    *,
    out: Path | None,
    form: Format,
    slo_file: Path | None,
    runbook_base: str | None,
    datasource: str | None,
) -> None:
    """
    Write the dashboards as JSON files.

    For provisioning or manual import, in either of Grafana's models. Lists those that
    changed.
    """
    from jaxmon.artifacts import write

    files = Generation(slo_file, runbook_base, datasource).rendered(form)
    out = out or Path("dashboards" if form == "classic" else "dashboards-v2")
    for path in write.write(out, files):
        output.line(out / path)


@command.command(epilog=_PUSH_EPILOG)
@with_options(
    options.FILES,
    grafana_access,
    options.FOLDER,
    *options.GENERATION,
    options.DATASOURCE,
    options.FORMAT,
)
@click.option(
    "--folder-title",
    default="jaxmon",
    show_default=True,
    help="Title of the folder if it must be created.",
)
@click.option(
    "--dry-run", is_flag=True, help="Show what would be done without writing anything."
)
@click.option(
    "--force",
    is_flag=True,
    help="Back up and replace dashboards that were edited or moved by hand.",
)
@click.option(
    "--backup-dir",
    default="jaxmon-backups",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the backups of --force.",
)
@click.option(
    "--output",
    "output_form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)
@click.pass_context
def push(
    ctx: click.Context,
    *,
    files: tuple[Path, ...],
    url: str,
    folder: str,
    access: Access,
    slo_file: Path | None,
    runbook_base: str | None,
    datasource: str | None,
    form: Choice,
    folder_title: str,
    dry_run: bool,
    force: bool,
    backup_dir: Path,
    output_form: str,
) -> None:
    """
    Push dashboards to Grafana without losing edits.

    Pushes jaxmon's own dashboards, or those in FILES (JSON files, or directories of
    *.json files). Unchanged dashboards are not rewritten. Dashboards edited in Grafana
    are left alone and reported.
    """
    from jaxmon.cli.dashboards.pushed import PushReport
    from jaxmon.grafana.client import Grafana
    from jaxmon.grafana.push import Push, make_plan

    place = folder_of(folder, folder_title)
    shape = Generation(slo_file, runbook_base, datasource)
    dashboards = shape.dashboards(files, form)
    grafana = Grafana(access.grafana(url))
    version = grafana.health()
    plan = make_plan(grafana, dashboards, place)
    job = Push(grafana, force=force, backup_dir=backup_dir)
    pushed = PushReport(
        url=grafana.url,
        version=version,
        folder=plan.folder,
        makes_folder=plan.makes_folder(force=force),
        dry_run=dry_run,
        results=job.preview(plan) if dry_run else job.apply(plan),
    )
    if output_form == "json":
        output.document(pushed.document())
    else:
        output.lines(pushed.lines())
    if advice := pushed.advice():
        output.lines(advice, err=True)
    ctx.exit(pushed.exit_code())


@command.command(epilog=_DIFF_EPILOG)
@with_options(
    options.FILES, grafana_access, options.FOLDER, *options.GENERATION, options.FORMAT
)
@click.pass_context
def diff(
    ctx: click.Context,
    *,
    files: tuple[Path, ...],
    url: str,
    folder: str,
    access: Access,
    slo_file: Path | None,
    runbook_base: str | None,
    form: Choice,
) -> None:
    """
    Show what a push would change in Grafana.

    Compares meaningful content only: IDs assigned by Grafana, selected variable values
    and empty members are ignored.
    """
    from jaxmon.cli.dashboards.pushed import DIFFERENT
    from jaxmon.grafana.client import Grafana
    from jaxmon.grafana.plan import State
    from jaxmon.grafana.push import make_plan

    place = folder_of(folder)
    dashboards = Generation(slo_file, runbook_base).dashboards(files, form)
    grafana = Grafana(access.grafana(url))
    plan = make_plan(grafana, dashboards, place)
    for step in plan.steps:
        uid = step.desired.uid
        if step.state is State.UNKNOWN:
            raise CommandError(step.reason)
        if step.state is State.UNCHANGED:
            output.line(f"{uid}: no difference", err=True)
        else:
            output.line(f"{uid}: {step.state}: {step.reason}".rstrip(": "), err=True)
        if step.state is not State.V2:
            for line in step.diff():
                output.line(line, colour=_COLOURS.get(line[:1]))
    same = all(step.state is State.UNCHANGED for step in plan.steps)
    ctx.exit(0 if same else DIFFERENT)
