"""``jaxmon deploy``: deploy windows in Alertmanager, shown by Grafana."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxmon.cli import options, output
from jaxmon.cli.servers import ACCESS, ALERTMANAGER, Access
from jaxmon.errors import CommandError, JaxmonError


if TYPE_CHECKING:
    from jaxmon_alerts.silences import DeployWindow, DeployWindows
    from jaxmon_dashboards.grafana.session import GrafanaSession


_TOKEN_FILE = "--grafana-token-file"  # noqa: S105 - the option's name
_GRAFANA = options.option(
    options.URL,
    "--grafana",
    meaning="Grafana's URL as in the browser; boards there show the deployment.",
    envvar="GRAFANA_URL",
)
_GRAFANA_TOKEN = options.option(
    options.FILE, meaning="File containing Grafana's token; overrides GRAFANA_TOKEN."
)


@dataclass(frozen=True)
class DeploymentNote:
    """A deployment of one service in Grafana; boards and its end find it by *tags*."""

    session: GrafanaSession
    tags: tuple[str, ...]

    def begin(self, text: str, start: datetime, end: datetime) -> list[int]:
        """Note that it lasts until *end*, or extend it; return the annotations."""
        from jaxmon_dashboards.grafana import annotations

        if current := self._moved(start, lambda planned: max(end, planned)):
            return current
        new = annotations.Deployment(self.tags, text, start, end)
        return [annotations.add(self.session, new)]

    def finish(self, now: datetime) -> list[int]:
        """Let it end *now*; return the annotations. Raises as `begin` does."""
        return self._moved(now, lambda _: now)

    def _moved(self, now: datetime, end: Callable[[datetime], datetime]) -> list[int]:
        from jaxmon_dashboards.grafana import annotations

        current = annotations.current(self.session, self.tags, now)
        for annotation in current:
            annotations.end(self.session, annotation.number, end(annotation.end))
        return [annotation.number for annotation in current]


@dataclass(frozen=True)
class DeployServers:
    """Where windows are opened, and what shows them."""

    alertmanager: str = ALERTMANAGER
    access: Access = ACCESS
    grafana_url: str | None = _GRAFANA
    grafana_token_file: Path | None = _GRAFANA_TOKEN

    def windows(self) -> DeployWindows:
        """Return the windows in Alertmanager; sends nothing."""
        return _windows(self.alertmanager, self.access)

    def note(self, scope: Mapping[str, str]) -> DeploymentNote | None:
        """Return the note of a service, `None` without Grafana; sends nothing."""
        if self.grafana_url is None:
            return None
        from jaxmon_dashboards.boards.build import DEPLOY_TAGS

        access = replace(self.access, token_file=self.grafana_token_file)
        session = access.grafana(self.grafana_url, _TOKEN_FILE)
        others = (f"{name}={value}" for name, value in scope.items() if name != "job")
        return DeploymentNote(session, (*DEPLOY_TAGS, scope["job"], *others))


_SERVERS = options.collected(DeployServers)


@dataclass
class Attempts:
    """Things to do, each although another may fail; *failed* is by what is undone."""

    failed: dict[str, str] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)

    @contextmanager
    def of(self, success: str, failure: str) -> Iterator[None]:
        """Run the block; the texts say what is then the case."""
        try:
            yield
        except JaxmonError as error:
            self.failed[failure] = str(error)
        else:
            self.done.append(success)

    def check(self) -> None:
        """Raise `CommandError` if anything failed, and say what succeeded."""
        if not self.failed:
            return
        reasons = [f"{failure}: {why}" for failure, why in self.failed.items()]
        details = [*reasons[1:], *(f"but {success}" for success in self.done)]
        raise CommandError(reasons[0], details=details)


def _labels(
    job: str = options.option(str, required=True, metavar="JOB"),
    cluster: str | None = options.option(str, metavar="CLUSTER"),
    namespace: str | None = options.option(str, metavar="NAMESPACE"),
    labels: tuple[tuple[str, str], ...] = options.option(
        options.LABEL, "--label", multiple=True
    ),
) -> dict[str, str]:
    """
    Return the labels by which the alerts of a service are selected.

    Options:
        job: The service's label `job`.
        cluster: Its label `cluster`; by default, those of all clusters.
        namespace: Its label `namespace`; by default, those of all namespaces.
        labels: Another label of its alerts, such as a site's own; may be repeated.
    """
    from jaxmon.symptoms.alert import DEPLOY_NOISE

    given = {"job": job, "cluster": cluster, "namespace": namespace}
    if taken := sorted(dict(labels).keys() & {*given, *dict(DEPLOY_NOISE)}):
        name = taken[0]
        how = f"use --{name}" if name in given else "all windows have that label"
        msg = f"--label cannot give {name}; {how}"
        raise click.UsageError(msg)
    # An empty matcher would match every service.
    if empty := [name for name, value in given.items() if value == ""]:
        msg = f"--{empty[0]} is empty; give the label's value, or omit the option"
        raise click.UsageError(msg)
    scope = {name: value for name, value in given.items() if value is not None}
    return {**scope, **dict(labels)}


_SCOPE = options.collected(_labels)


def _length(value: str) -> timedelta:
    """Return the length of a window, such as ``1h30m``. Raises `ValueError`."""
    from jaxmon.host.formats import durations
    from jaxmon_alerts.silences import LONGEST, SHORTEST

    length = timedelta(seconds=durations.seconds(value))
    if not SHORTEST <= length <= LONGEST:
        msg = (
            f"{value} is out of range; give 1m to 4h. A deployment that takes longer "
            "should be seen by its alerts."
        )
        raise ValueError(msg)
    return length


@click.group
def command() -> None:
    """
    Hold back the alerts that a deployment causes, while it lasts.

    A deploy window is a silence in Alertmanager (0.25 or later) for the alerts of one
    service labelled deploy="expected": recompiles, cold starts, latency tickets. Pages
    are never held back. It closes by itself, so a failed pipeline leaves nothing
    behind. With a Grafana given, the boards there show it, for as long as it is open.
    """


@options.subcommand(command)
def start(
    *,
    scope: dict[str, str] = _SCOPE,
    as_json: bool = options.AS_JSON,
    length: timedelta = options.option(
        options.Parsed("duration", _length), "--max", default="30m"
    ),
    reason: str = options.option(str, default="deployment"),
    by: str | None = options.option(str, metavar="NAME"),
    servers: DeployServers = _SERVERS,
) -> None:
    """
    Open a deploy window, or extend the open one.

    A second start extends the window; it never shortens it, nor keeps it open for more
    than four hours in all. If only one of Alertmanager and Grafana responds, that one
    knows of the deployment, and the exit code is 1.

    Options:
        as_json: Print the window as JSON, as `jaxmon deploy list` does.
        length: When the window closes by itself, 1m to 4h from now.
        reason: For its comment.
        by: Who opens it; by default, this user and host.

    Example, in a pipeline:
      export ALERTMANAGER_URL=https://alerts.example.org
      export GRAFANA_URL=https://grafana.example.org    # and GRAFANA_TOKEN
      jaxmon deploy start --job web --cluster eu --max 30m --reason "release 41"
      ...
      jaxmon deploy stop --job web --cluster eu
    """
    from jaxmon_alerts.silences import SHORTEST

    windows, note = servers.windows(), servers.note(scope)
    attempts = Attempts()
    now = datetime.now(UTC)
    end = now + length
    with attempts.of("the deploy window is open", "no deploy window was opened"):
        window = windows.start(
            scope,
            length,
            by=by or _myself(),
            comment=f"jaxmon deploy: {reason}",
            now=now,
        )
        end = window.end
        wide = "" if "cluster" in scope else " in all clusters"
        shown = f"open for {window.service}{wide}, {_until(window, now)}"
        output.result([_document(window)], shown, as_json=as_json)
        # The clocks of this host and Alertmanager may differ by seconds.
        if window.end - now < length - SHORTEST:
            output.line(
                f"it has been open since {_clock(window.start)} and cannot be extended "
                "beyond 4h in all; stop it, and look at what still fires",
                err=True,
            )
    if note is not None:
        with attempts.of("Grafana shows the deployment", "Grafana does not show it"):
            numbers = note.begin(reason, now, end)
            shown = f"noted in Grafana as annotation {_listed(numbers)}"
            output.line(shown, err=as_json)
    attempts.check()


@options.subcommand(command)
def stop(
    *,
    scope: dict[str, str] = _SCOPE,
    as_json: bool = options.AS_JSON,
    servers: DeployServers = _SERVERS,
) -> None:
    """
    Close the deploy window with exactly these labels.

    Succeeds if there is none, so that a pipeline can always end with it.

    Options:
        as_json: Print what was closed as JSON, as `jaxmon deploy list` does.
    """
    windows, note = servers.windows(), servers.note(scope)
    wanted = " ".join(f"{name}={value}" for name, value in scope.items())
    attempts = Attempts()
    with attempts.of(
        "no deploy window is open", "the deploy window may be open until it ends"
    ):
        closed = windows.stop(scope)
        lines = [f"closed for {window.service}" for window in closed]
        output.result(list(map(_document, closed)), lines, as_json=as_json)
        if not closed:
            output.line(f"no deploy window is open for {wanted}", err=True)
    if note is not None:
        with attempts.of(
            "Grafana shows that it has ended", "Grafana shows the end as planned"
        ):
            ended = note.finish(datetime.now(UTC))
            if ended:
                text = f"annotation {_listed(ended)} in Grafana ends now"
                output.line(text, err=as_json)
            else:
                output.line(f"Grafana shows no deployment of {wanted}", err=True)
    attempts.check()


@options.subcommand(command, "list")
def list_windows(
    *,
    as_json: bool = options.AS_JSON,
    alertmanager: str = ALERTMANAGER,
    access: Access = ACCESS,
) -> None:
    """List the open deploy windows."""
    found = _windows(alertmanager, access).open()
    now = datetime.now(UTC)
    text = [
        f"{window.service}  {_until(window, now)}  by {window.by}: {window.comment}"
        for window in found
    ]
    output.result(list(map(_document, found)), text, as_json=as_json)
    if not (found or as_json):
        output.line("no deploy window is open", err=True)


def _windows(url: str, access: Access) -> DeployWindows:
    from jaxmon.symptoms.alert import DEPLOY_NOISE
    from jaxmon_alerts.silences import DeployWindows

    return DeployWindows(access.session("Alertmanager", url), dict(DEPLOY_NOISE))


def _until(window: DeployWindow, now: datetime) -> str:
    minutes = max(0, round((window.end - now).total_seconds() / 60))
    return f"closes at {_clock(window.end)}, in {minutes} min"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _clock(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%H:%M UTC")


def _document(window: DeployWindow) -> dict[str, Any]:
    return {
        "id": window.identity,
        "labels": dict(window.scope),
        "start": window.start.isoformat(),
        "end": window.end.isoformat(),
        "by": window.by,
        "comment": window.comment,
    }


def _myself() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
