"""What ``jaxmon deploy`` notes in Grafana, if one is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jaxmon.cli.options import Url, with_options
from jaxmon.cli.servers import Access
from jaxmon.errors import CommandError, JaxmonError


if TYPE_CHECKING:
    from jaxmon.grafana.session import GrafanaSession

F = TypeVar("F", bound=Callable[..., Any])

_TOKEN_FILE = "--grafana-token-file"  # noqa: S105 - the option's name
_OPTIONS = (
    click.option(
        "--grafana",
        "grafana_url",
        type=Url(),
        metavar="URL",
        envvar="GRAFANA_URL",
        show_envvar=True,
        help="Grafana's URL as in the browser; boards there show the deployment.",
    ),
    click.option(
        _TOKEN_FILE,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File containing Grafana's token; overrides GRAFANA_TOKEN.",
    ),
)


def grafana(function: F) -> F:
    """Add the options for a Grafana that shows the deployment."""
    return with_options(*_OPTIONS)(function)


@dataclass(frozen=True)
class Note:
    """
    A deployment of one service, as Grafana shows it.

    Args:
        session: with Grafana.
        tags: by which boards, and the end of the deployment, find it.
    """

    session: GrafanaSession
    tags: tuple[str, ...]

    def begin(self, text: str, start: datetime, end: datetime) -> list[int]:
        """
        Note that it lasts from *start* to *end*, or extend what is noted; return the
        annotations.

        Raises:
            GrafanaError: Grafana cannot be reached, or rejects it.
        """
        from jaxmon.grafana import annotations

        if known := annotations.current(self.session, self.tags, start):
            for one in known:
                annotations.end(self.session, one.number, max(end, one.end))
            return [one.number for one in known]
        new = annotations.Deployment(self.tags, text, start, end)
        return [annotations.add(self.session, new)]

    def finish(self, now: datetime) -> list[int]:
        """Let it end *now*; return the annotations. Raises as `begin` does."""
        from jaxmon.grafana import annotations

        known = annotations.current(self.session, self.tags, now)
        for one in known:
            annotations.end(self.session, one.number, now)
        return [one.number for one in known]


def note(
    url: str | None, token_file: Path | None, access: Access, scope: Mapping[str, str]
) -> Note | None:
    """
    Return the note of the service with the labels *scope*, `None` without a *url*;
    nothing is sent yet.

    Raises:
        CommandError: there is no token.
        GrafanaError: the URL, token or certificates are invalid.
    """
    if url is None:
        return None
    from jaxmon.artifacts.dashboards.events import DEPLOY_TAGS

    session = replace(access, token_file=token_file).grafana(url, _TOKEN_FILE)
    others = (f"{name}={value}" for name, value in scope.items() if name != "job")
    return Note(session, (*DEPLOY_TAGS, scope["job"], *others))


@dataclass
class Attempts:
    """
    Several things to do, each although another may fail.

    Args:
        failed: message of each failure, by what is left undone.
        done: what succeeded.
    """

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
        """
        Raise what failed, and say what succeeded.

        Raises:
            CommandError: anything failed.
        """
        if not self.failed:
            return
        reasons = [f"{failure}: {why}" for failure, why in self.failed.items()]
        details = [*reasons[1:], *(f"but {success}" for success in self.done)]
        raise CommandError(reasons[0], details=details)
