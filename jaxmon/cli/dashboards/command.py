"""``jaxmon dashboards``: generate the Grafana dashboards and push them to Grafana."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jaxmon.cli import output
from jaxmon.cli.dashboards import connection
from jaxmon.cli.options import RUNBOOK_BASE
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.grafana.content import Dashboard
    from jaxmon.grafana.push import Folder


_F = TypeVar("_F", bound=Callable[..., Any])

_PUSH_EPILOG = f"""{connection.HELP}
\b
Exit codes:
  0 Grafana has these dashboards
  1 an error before pushing, or for every dashboard
  2 usage error
  3 refused: at least one was edited by hand, belongs to someone else, is
      provisioned, stored in the new format, or waits for approval in Grafana;
      the others were pushed
  4 some failed
  5 with --dry-run only: a push would change something

\b
Example:
  export {connection.TOKEN_VARIABLE}=glsa_...
  jaxmon dashboards push --url https://example.com/grafana --dry-run
"""

_DIFF_EPILOG = f"""{connection.HELP}
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

_FILES = click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))

_GENERATION = (
    click.option(
        "--slo",
        "slo_file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Objectives and thresholds, as for jaxmon alerts build.",
    ),
    RUNBOOK_BASE,
)


def _uid(
    _context: click.Context, _parameter: click.Parameter, uid: str | None
) -> str | None:
    if uid and not (uid.isprintable() and " " not in uid):
        msg = f"{uid!r} is not a valid UID; use printable characters without spaces"
        raise click.BadParameter(msg)
    return uid


_DATASOURCE = click.option(
    "--datasource",
    callback=_uid,
    metavar="UID",
    help="UID of the Prometheus data source to preselect in new dashboards.",
)


def _options(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Return a decorator that adds *options* in this order."""

    def add(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


@click.group(no_args_is_help=True)
def command() -> None:
    """Generate the Grafana dashboards and push them to Grafana."""


@command.command(epilog="\b\nExample:\n  jaxmon dashboards build --out dashboards")
@click.option(
    "--out",
    default="dashboards",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Output directory; created if missing.",
)
@_options(*_GENERATION, _DATASOURCE)
def build(
    *,
    out: Path,
    slo_file: Path | None,
    runbook_base: str | None,
    datasource: str | None,
) -> None:
    """
    Write the dashboards as JSON files.

    For provisioning or manual import. Lists those that changed.
    """
    from jaxmon.artifacts import write

    files = _rendered(slo_file, runbook_base, datasource)
    for path in write.write(out, files):
        output.line(out / path)


@command.command(epilog=_PUSH_EPILOG)
@_options(_FILES, *connection.OPTIONS, *_GENERATION, _DATASOURCE)
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
    "form",
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
    token_file: Path | None,
    ca_file: Path | None,
    timeout: float,
    insecure_http: bool,
    slo_file: Path | None,
    runbook_base: str | None,
    datasource: str | None,
    folder_title: str,
    dry_run: bool,
    force: bool,
    backup_dir: Path,
    form: str,
) -> None:
    """
    Push dashboards to Grafana without losing edits.

    Pushes jaxmon's own dashboards, or those in FILES (JSON files, or directories of
    *.json files). Unchanged dashboards are not rewritten. Dashboards edited in Grafana
    are left alone and reported.
    """
    from jaxmon.cli.dashboards.pushed import PushReport
    from jaxmon.grafana.push import Push, make_plan

    place = _folder(folder, folder_title)
    dashboards = _dashboards(files, slo_file, runbook_base, datasource)
    grafana = connection.grafana(
        url, token_file, ca_file, timeout, insecure_http=insecure_http
    )
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
    if form == "json":
        output.document(pushed.document())
    else:
        output.lines(pushed.lines())
    if advice := pushed.advice():
        output.lines(advice, err=True)
    ctx.exit(pushed.exit_code())


@command.command(epilog=_DIFF_EPILOG)
@_options(_FILES, *connection.OPTIONS, *_GENERATION)
@click.pass_context
def diff(
    ctx: click.Context,
    *,
    files: tuple[Path, ...],
    url: str,
    folder: str,
    token_file: Path | None,
    ca_file: Path | None,
    timeout: float,
    insecure_http: bool,
    slo_file: Path | None,
    runbook_base: str | None,
) -> None:
    """
    Show what a push would change in Grafana.

    Compares meaningful content only: IDs assigned by Grafana, selected variable values
    and empty members are ignored.
    """
    from jaxmon.cli.dashboards.pushed import DIFFERENT
    from jaxmon.grafana.plan import State
    from jaxmon.grafana.push import make_plan

    place = _folder(folder)
    dashboards = _dashboards(files, slo_file, runbook_base)
    grafana = connection.grafana(
        url, token_file, ca_file, timeout, insecure_http=insecure_http
    )
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


def _folder(uid: str, title: str = "") -> Folder:
    from jaxmon.grafana.content import is_uid
    from jaxmon.grafana.push import Folder

    if not is_uid(uid):
        msg = f"--folder={uid!r} is invalid; give 1 to 40 letters, digits, - or _"
        raise click.UsageError(msg)
    return Folder(uid, title)


def _rendered(
    slo_file: Path | None, runbook_base: str | None, datasource: str | None
) -> dict[str, str]:
    """Return the generated dashboards by file name."""
    from jaxmon.cli.extras import require

    require("dashboards", "grafana_foundation_sdk")
    from jaxmon.artifacts.dashboards import Options, render_all

    default = Options()
    return render_all(
        Options(
            slo=slo_file,
            runbooks=runbook_base or default.runbooks,
            datasource=datasource or default.datasource,
        )
    )


def _dashboards(
    files: Sequence[Path],
    slo_file: Path | None,
    runbook_base: str | None,
    datasource: str | None = None,
) -> list[Dashboard]:
    """Return the dashboards in *files*, without any those that are generated."""
    from jaxmon.grafana import content

    if not files:
        return content.parse_all(_rendered(slo_file, runbook_base, datasource))
    if slo_file or runbook_base or datasource:
        msg = (
            "--slo, --runbook-base and --datasource apply to generated "
            "dashboards; give either these or FILES"
        )
        raise click.UsageError(msg)
    found = content.load(files)
    if not found:
        msg = "no dashboards: the given directories have no *.json files"
        raise CommandError(msg)
    return found
