"""Which sidecars to ask, and how: all at the same time and within one deadline."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote

import click

from jaxmon.cli import output
from jaxmon.cli.options import Url, with_options
from jaxmon.cli.servers import Access, token_in
from jaxmon.cli.servers import access as server_access
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.cli.job.discovery import ScrapeTarget
    from jaxmon.facts.host import JobHost
    from jaxmon.host.http.session import Session

_AT_ONCE = 64
_MAX_BYTES = 16 << 20

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
        Return what the sidecars report, all within one timeout, in their order; of one
        that does not answer, why.

        Args:
            stacks: whether to ask for the stacks of all threads.
            timed: ask each twice. The first response may wait for processes that do not
                respond; the second follows at once, and so its time is known well.

        Raises:
            CommandError: something is no target, or there are none.
        """
        from concurrent.futures import ThreadPoolExecutor

        from jaxmon.cli.job.discovery import DiscoveryError
        from jaxmon.facts.host import JobHost
        from jaxmon.host.http.session import MonitoringError

        token, password = self._secrets()
        login = f"{quote(self.user, safe='')}:{quote(password, safe='')}@"
        session = partial(self._session, token, login if self.user else "")
        try:
            targets = self._found()
        except DiscoveryError as error:
            raise CommandError(str(error), exit_code=2) from error
        output.hide(token, password)
        end = time.monotonic() + self.access.timeout

        def one(target: ScrapeTarget) -> JobHost:
            left = end - time.monotonic()
            if left <= 0:
                return JobHost(target.name, "there was no time left to ask it")
            try:
                answer = _asked(target, session(target, left), stacks=stacks)
            except (MonitoringError, ValueError) as error:
                return JobHost(target.name, str(error))
            left = end - time.monotonic()
            if timed and left > 0:
                with suppress(MonitoringError, ValueError):
                    answer = _asked(target, session(target, left))
            return answer

        with ThreadPoolExecutor(min(_AT_ONCE, len(targets)), "jaxmon-job") as pool:
            return list(pool.map(one, targets))

    def _secrets(self) -> tuple[str, str]:
        """Return token and password; ``""`` for none."""
        if bool(self.user) != (self.password_file is not None):
            msg = "--user and --password-file belong together"
            raise click.UsageError(msg)
        password, access = "", self.access
        if self.password_file is not None:
            password = token_in(self.password_file, "--password-file")
        return "" if access.token_file is None else token_in(
            access.token_file
        ), password

    def _session(
        self, token: str, login: str, target: ScrapeTarget, seconds: float
    ) -> Session:
        from jaxmon.host.http.session import Session

        return Session(
            "sidecar",
            f"{target.scheme}://{login}{target.host}:{target.port}",
            token=token,
            ca_file=self.access.ca_file,
            timeout=seconds,
            insecure_http=self.access.insecure_http,
            address=target.address,
            max_bytes=_MAX_BYTES,
        )

    def _found(self) -> list[ScrapeTarget]:
        """
        Return the sidecars to ask.

        Raises:
            DiscoveryError: something is no target, there are none, or too many.
        """
        from jaxmon.cli.job import discovery

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

    def _given(self) -> Iterator[ScrapeTarget]:
        from jaxmon.cli.job import discovery
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


def _asked(target: ScrapeTarget, session: Session, *, stacks: bool = False) -> JobHost:
    from jaxmon.facts.host import host
    from jaxmon.host.formats import json_text

    began, wall = time.monotonic(), time.time()
    response = session.get("/job", {"stacks": "1"} if stacks else None)
    taken = time.monotonic() - began
    if response.status == 404:  # noqa: PLR2004 - no such page
        msg = "it serves no ranks; start it with --peer-access"
        raise ValueError(msg)
    if response.status != 200:  # noqa: PLR2004 - OK
        msg = f"it returned HTTP status {response.status}"
        raise ValueError(msg)
    answer = host(target.name, json_text.parse(response.body, odd_numbers=True))
    # It was made at some time in between.
    return answer.replace(asked=wall + taken / 2, within=taken / 2)
