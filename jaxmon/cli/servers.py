"""Options for connecting to the Prometheus and Alertmanager of a site."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from jaxmon.cli import output
from jaxmon.cli.options import Number, Url, with_options
from jaxmon.errors import CommandError, ConfigFileError


if TYPE_CHECKING:
    from jaxmon.monitoring.session import Session

F = TypeVar("F", bound=Callable[..., Any])

# No token has a tenth of that.
_MAX_BYTES = 1 << 16

ALERTMANAGER = click.option(
    "--alertmanager",
    type=Url(path_follows=True),
    metavar="URL",
    required=True,
    envvar="ALERTMANAGER_URL",
    show_envvar=True,
    help="Alertmanager's URL as in the browser, including any path.",
)


def prometheus(*, required: bool) -> Callable[[F], F]:
    """Return the option ``--prometheus``."""
    return click.option(
        "--prometheus",
        "prometheus_url",
        type=Url(path_follows=True),
        metavar="URL",
        required=required,
        envvar="PROMETHEUS_URL",
        show_envvar=True,
        help="Prometheus's URL as in the browser, including any path.",
    )


_CONNECTION = (
    click.option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File containing a bearer token to send.",
    ),
    click.option(
        "--ca-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="CA certificates (PEM) to trust instead of the system's.",
    ),
    click.option(
        "--timeout",
        default=10.0,
        show_default=True,
        type=Number(0.1, 300.0),
        help="Timeout per request in seconds.",
    ),
    click.option(
        "--insecure-http",
        is_flag=True,
        help="Allow sending credentials over unencrypted HTTP to another host.",
    ),
)


@dataclass(frozen=True, slots=True)
class Access:
    """
    The options of `access`.

    Args:
        token_file: holds a bearer token.
        ca_file: CA certificates to trust instead of the system's.
        timeout: seconds for each request.
        insecure_http: allow sending credentials unencrypted to another host.
    """

    token_file: Path | None
    ca_file: Path | None
    timeout: float
    insecure_http: bool

    def session(self, whose: str, url: str) -> Session:
        """
        Return a session with a server; nothing is sent yet.

        Args:
            whose: ``Prometheus`` or ``Alertmanager``.
            url: of the server.

        Raises:
            CommandError: the token file is invalid.
            MonitoringError: the URL, token or certificates are invalid.
        """
        from urllib.parse import urlsplit

        from jaxmon.http.urls import secrets_of
        from jaxmon.monitoring.session import Session

        token = "" if self.token_file is None else token_in(self.token_file)
        output.hide(token, *secrets_of(urlsplit(url)))
        return Session(
            whose,
            url,
            token=token,
            ca_file=self.ca_file,
            timeout=self.timeout,
            insecure_http=self.insecure_http,
        )


def access(function: F) -> F:
    """Add the options for connecting to a command, which gets them as *access*."""

    @functools.wraps(function)
    def collected(
        *,
        token_file: Path | None,
        ca_file: Path | None,
        timeout: float,
        insecure_http: bool,
        **others: Any,
    ) -> Any:
        given = Access(token_file, ca_file, timeout, insecure_http)
        return function(access=given, **others)

    made: Any = collected
    return cast("F", with_options(*_CONNECTION)(made))


def token_in(file: Path, option: str = "--token-file") -> str:
    """
    Return the token in *file*, which *option* gave.

    Raises:
        CommandError: it cannot be read or is empty.
    """
    from jaxmon.files.bounded import read_text

    try:
        token = read_text(file, most=_MAX_BYTES, pipe=True).strip()
    except ConfigFileError as error:
        msg = f"{option} {file}: {error}"
        raise CommandError(msg) from None
    if not token:
        msg = f"no token: {file} is empty"
        raise CommandError(msg)
    return token
