"""``jaxmon dashboards``: generate the Grafana dashboards and push them to Grafana."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click

from jaxmon.cli import options, output
from jaxmon.cli.servers import GRAFANA_ACCESS, GRAFANA_HELP, GRAFANA_URL, Access
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon_dashboards.boards import Format
    from jaxmon_dashboards.grafana.content import Board
    from jaxmon_dashboards.grafana.push import Folder


FILES = options.argument(click.Path(exists=True, path_type=Path), nargs=-1)

FOLDER = options.option(
    str,
    meaning='Folder UID for the dashboards; "general" is the top level.',
    default="jaxmon",
    metavar="UID",
)

FORMAT = options.option(
    click.Choice(["auto", "classic", "v2"]),
    "--format",
    meaning="Grafana's model of generated dashboards: classic, v2 (Grafana 13 and "
    "later), or auto, the one in which Grafana stores each, and classic for new ones.",
    default="auto",
)


def _uid(uid: str) -> str:
    if uid and not (uid.isprintable() and " " not in uid):
        msg = f"{uid!r} is not a valid UID; use printable characters without spaces"
        raise ValueError(msg)
    return uid


DATASOURCE = options.option(
    options.Parsed("uid", _uid),
    meaning="UID of the Prometheus data source to preselect in new dashboards.",
)


Choice: TypeAlias = Literal["auto", "classic", "v2"]


@dataclass(frozen=True)
class Generation:
    """What shapes generated dashboards, as the command line has it."""

    slo_file: Path | None
    runbook_base: str | None
    datasource: str | None = None

    def rendered(self, form: Format = "classic") -> dict[str, str]:
        """Return the generated dashboards, in the model *form*, by file name."""
        from jaxmon.cli.main import require

        require("dashboards", "grafana_foundation_sdk")
        from jaxmon_dashboards.boards import DashboardOptions, render_all

        default = DashboardOptions()
        return render_all(
            DashboardOptions(
                slo=self.slo_file,
                runbooks=self.runbook_base or default.runbooks,
                datasource=self.datasource or default.datasource,
            ),
            form,
        )

    def dashboards(self, files: Sequence[Path], form: Choice) -> list[Board]:
        """Return the dashboards in *files*, in their models, without generated ones."""
        from jaxmon_dashboards.grafana import content

        if not files:
            return self._generated(form)
        if form != "auto" or self.slo_file or self.runbook_base or self.datasource:
            msg = (
                "--slo, --runbook-base, --datasource and --format apply to generated "
                "dashboards; give either these or FILES"
            )
            raise click.UsageError(msg)
        found = content.load(files)
        if not found:
            msg = "no dashboards: the given directories have no *.json files"
            raise CommandError(msg)
        return found

    def _generated(self, form: Choice) -> list[Board]:
        from jaxmon_dashboards.grafana import content

        if form != "auto":
            return content.parse_all(self.rendered(form))
        twins = {board.uid: board for board in content.parse_all(self.rendered("v2"))}
        return [
            replace(board, twin=twins[board.uid])
            for board in content.parse_all(self.rendered("classic"))
        ]


_GENERATION = {
    "slo_file": options.option(
        options.NEW_FILE,
        "--slo",
        meaning="Objectives and limits, as for jaxmon alerts build.",
    ),
    "runbook_base": options.RUNBOOK_BASE,
}
GENERATED = options.collected(Generation, **_GENERATION)
SHAPED = options.collected(Generation, **_GENERATION, datasource=DATASOURCE)


def _folder_of(uid: str, title: str = "") -> Folder:
    from jaxmon_dashboards.grafana.content import is_uid
    from jaxmon_dashboards.grafana.push import Folder

    if not is_uid(uid):
        msg = f"--folder={uid!r} is invalid; give 1 to 40 letters, digits, - or _"
        raise click.UsageError(msg)
    return Folder(uid, title)


# Of the lines of a diff, by what they begin with.
_COLOURS = {"-": "red", "+": "green", "@": "cyan"}


@click.group(no_args_is_help=True)
def command() -> None:
    """Generate the Grafana dashboards and push them to Grafana."""


@options.subcommand(command)
def build(
    *,
    out: Path | None = options.option(
        options.DIRECTORY,
        meaning="Output directory; created if missing.  [default: dashboards, or "
        "dashboards-v2]",
    ),
    form: Format = options.option(
        click.Choice(["classic", "v2"]), "--format", default="classic"
    ),
    shape: Generation = SHAPED,
) -> None:
    """
    Write the dashboards as JSON files.

    For provisioning or manual import, in either of Grafana's models. Lists those that
    changed.

    Options:
        form: Grafana's model of a dashboard: classic for Grafana 10.4 and later, v2 for
            13 and later.

    Example:
      jaxmon dashboards build --out dashboards
    """
    from jaxmon.host.files import whole

    files = shape.rendered(form)
    out = out or Path("dashboards" if form == "classic" else "dashboards-v2")
    for path in whole.write_all(out, files):
        output.line(out / path)


@options.subcommand(command, epilog=GRAFANA_HELP)
def push(
    *,
    files: tuple[Path, ...] = FILES,
    url: str = GRAFANA_URL,
    access: Access = GRAFANA_ACCESS,
    folder: str = FOLDER,
    shape: Generation = SHAPED,
    form: Choice = FORMAT,
    folder_title: str = options.option(str, default="jaxmon"),
    dry_run: bool = options.flag(),
    force: bool = options.flag(),
    backup_dir: Path = options.option(options.DIRECTORY, default="jaxmon-backups"),
    as_json: bool = options.AS_JSON,
) -> int:
    """
    Push dashboards to Grafana without losing edits.

    Pushes jaxmon's own dashboards, or those in FILES (JSON files, or directories of
    *.json files). Unchanged dashboards are not rewritten. Dashboards edited in Grafana
    are left alone and reported.

    Options:
        folder_title: Title of the folder if it must be created.
        dry_run: Show what would be done without writing anything.
        force: Back up and replace dashboards that were edited or moved by hand.
        backup_dir: Directory for the backups of --force.

    Exit codes:
      0 Grafana has these dashboards
      1 an error before pushing, or for every dashboard
      3 refused: at least one was edited by hand, belongs to someone else, is
          provisioned, stored in the other model, or waits for approval in Grafana;
          the others were pushed
      4 some failed
      5 with --dry-run only: a push would change something

    Example:
      export GRAFANA_TOKEN=glsa_...
      jaxmon dashboards push --url https://example.com/grafana --dry-run
    """
    from jaxmon.cli.pushed import PushReport
    from jaxmon_dashboards.grafana.client import Grafana
    from jaxmon_dashboards.grafana.push import Push, make_plan

    place = _folder_of(folder, folder_title)
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
    output.result(pushed.document(), pushed.lines(), as_json=as_json)
    if advice := pushed.advice():
        output.lines(advice, err=True)
    return pushed.exit_code()


@options.subcommand(command, epilog=GRAFANA_HELP)
def diff(
    *,
    files: tuple[Path, ...] = FILES,
    url: str = GRAFANA_URL,
    access: Access = GRAFANA_ACCESS,
    folder: str = FOLDER,
    shape: Generation = GENERATED,
    form: Choice = FORMAT,
    as_json: bool = options.AS_JSON,
) -> int:
    """
    Show what a push would change in Grafana.

    Compares meaningful content only: IDs assigned by Grafana, selected variable values
    and empty members are ignored.

    Exit codes:
      0 Grafana has exactly these dashboards
      3 at least one is missing or differs

    Example:
      jaxmon dashboards diff --url https://example.com/grafana
    """
    from jaxmon.cli.pushed import DIFFERENT
    from jaxmon_dashboards.grafana.client import Grafana
    from jaxmon_dashboards.grafana.push import Relation, make_plan

    place = _folder_of(folder)
    dashboards = shape.dashboards(files, form)
    grafana = Grafana(access.grafana(url))
    plan = make_plan(grafana, dashboards, place)
    found = []
    for step in plan.steps:
        uid = step.desired.uid
        if step.state is Relation.UNKNOWN:
            raise CommandError(step.reason)
        lines = [] if step.state is Relation.V2 else step.diff()
        found.append(
            {"uid": uid, "state": step.state, "reason": step.reason, "diff": lines}
        )
        if step.state is Relation.UNCHANGED:
            output.line(f"{uid}: no difference", err=True)
        else:
            output.line(f"{uid}: {step.state}: {step.reason}".rstrip(": "), err=True)
        for line in [] if as_json else lines:
            output.line(line, colour=_COLOURS.get(line[:1]))
    if as_json:
        output.document(found)
    same = all(step.state is Relation.UNCHANGED for step in plan.steps)
    return 0 if same else DIFFERENT


@options.subcommand(command, epilog=GRAFANA_HELP)
def annotate(
    *,
    url: str = GRAFANA_URL,
    access: Access = GRAFANA_ACCESS,
    job: str | None = options.option(str),
    text: str | None = options.option(str),
    start: datetime = options.option(options.MOMENT, default="now"),
    end: datetime | None = options.option(options.MOMENT),
    dashboard: str = options.option(str, metavar="UID", default=""),
    number: int | None = options.option(options.Whole(1), "--id"),
    as_json: bool = options.AS_JSON,
) -> None:
    """
    Note a deployment in Grafana, and print the annotation's ID.

    It gets the tags jaxmon, deploy and the job. Every board of jaxmon shows it; so does
    any that has an annotation query of the data source "-- Grafana --" by these tags.

    Options:
        job: The service that is deployed.
        text: What is deployed, such as "release 41".
        start: When it began: a date or time in ISO format, UTC unless it has an offset.
        end: When it ended; by default, it is a moment.
        dashboard: Only for this dashboard; by default, for all that show deployments.
        number: End this annotation, instead of adding one; needs --end.

    Example, in a pipeline:
      id=$(jaxmon dashboards annotate --job web --text "release 41")
      ...
      jaxmon dashboards annotate --id "$id" --end now
    """
    from jaxmon_dashboards.boards.build import DEPLOY_TAGS
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
    document = {"id": number, "tags": deployment.tags}
    output.result(document, str(number), as_json=as_json)


def _given(name: str, value: str | None) -> str:
    if value is None or not value.strip():
        msg = f"{name} is missing; give --job and --text, or --id and --end"
        raise click.UsageError(msg)
    return value


def _shown(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
