"""Options for which sidecars to ask, and how to connect to them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from jaxmon.cli.options import Url, with_options
from jaxmon.cli.servers import Access, token_in
from jaxmon.cli.servers import access as server_access
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.cli.job.asking import Credentials
    from jaxmon.facts.host import JobHost
    from jaxmon.monitoring.discovery import Target

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--targets",
        multiple=True,
        metavar="HOST:PORT,...",
        help="Sidecars to ask, separated by commas; repeatable. All addresses of a "
        "name are asked. The default port is 9467.",
    ),
    click.option(
        "--file-sd",
        "files",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Ask those in this file, in the format of Prometheus's file_sd; "
        "repeatable.",
    ),
    click.option(
        "--http-sd",
        "urls",
        multiple=True,
        type=Url(),
        metavar="URL",
        help="Ask those that this address returns, as for Prometheus's http_sd; "
        "repeatable. No secret is sent there.",
    ),
    click.option(
        "--scheme",
        type=click.Choice(["http", "https"]),
        default="http",
        show_default=True,
        help="How to connect to targets that do not say it themselves.",
    ),
    click.option("--user", default="", help="Name for basic authentication."),
    click.option(
        "--password-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File containing the password of --user.",
    ),
)


@dataclass(frozen=True, slots=True)
class Sidecars:
    """The options of `sidecars`, as they were given."""

    targets: tuple[str, ...]
    files: tuple[Path, ...]
    urls: tuple[str, ...]
    scheme: str
    user: str
    password_file: Path | None
    access: Access

    def ask(self, *, stacks: bool = False, timed: bool = False) -> list[JobHost]:
        """
        Return what the sidecars report; see `jaxmon.cli.job.asking.ask`.

        Raises:
            CommandError: something is no target, or there are none.
        """
        from jaxmon.cli.job.asking import ask
        from jaxmon.monitoring.discovery import DiscoveryError

        credentials = self._credentials()
        try:
            found = self._found()
        except DiscoveryError as error:
            raise CommandError(str(error), exit_code=2) from error
        seconds = self.access.timeout
        return ask(found, credentials, seconds=seconds, stacks=stacks, timed=timed)

    def _credentials(self) -> Credentials:
        from jaxmon.cli.job.asking import Credentials

        if bool(self.user) != (self.password_file is not None):
            msg = "--user and --password-file belong together"
            raise click.UsageError(msg)
        password, access = "", self.access
        if self.password_file is not None:
            password = token_in(self.password_file, "--password-file")
        token = "" if access.token_file is None else token_in(access.token_file)
        return Credentials(
            token, self.user, password, access.ca_file, access.insecure_http
        )

    def _found(self) -> list[Target]:
        """
        Return the sidecars to ask.

        Raises:
            DiscoveryError: something is no target, there are none, or too many.
        """
        from jaxmon.monitoring import discovery

        if not (self.targets or self.files or self.urls):
            msg = "give --targets, --file-sd or --http-sd"
            raise click.UsageError(msg)
        every = list(discovery.expanded(self._given()))
        if not every:
            msg = "there are no targets"
            raise discovery.DiscoveryError(msg)
        if len(every) > discovery.MOST_TARGETS:
            msg = (
                f"there are {len(every):,} targets; the limit is "
                f"{discovery.MOST_TARGETS:,}"
            )
            raise discovery.DiscoveryError(msg)
        return every

    def _given(self) -> Iterator[Target]:
        from jaxmon.monitoring import discovery
        from jaxmon.settings import SIDECAR_PORT

        scheme, access = self.scheme, self.access
        for text in self.targets:
            for one in filter(str.strip, text.split(",")):
                yield discovery.parsed(one, scheme=scheme, port=SIDECAR_PORT)
        for path in self.files:
            yield from discovery.from_file(path, scheme=scheme, port=SIDECAR_PORT)
        for url in self.urls:
            document = discovery.fetched(url, access.ca_file, access.timeout)
            yield from discovery.from_groups(
                document, "--http-sd", scheme=scheme, port=SIDECAR_PORT
            )


def sidecars(function: F) -> F:
    """Add the options to a command, which gets them as *sidecars*."""

    @functools.wraps(function)
    def collected(
        *,
        targets: tuple[str, ...],
        files: tuple[Path, ...],
        urls: tuple[str, ...],
        scheme: str,
        user: str,
        password_file: Path | None,
        access: Access,
        **others: Any,
    ) -> Any:
        given = Sidecars(targets, files, urls, scheme, user, password_file, access)
        return function(sidecars=given, **others)

    made: Any = server_access(cast("Any", collected))
    return cast("F", with_options(*_OPTIONS)(made))
