"""Command-line options for connecting to Grafana, and the token's source."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.options import Number, Url
from jaxmon.cli.servers import token_in
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.grafana.client import Grafana
    from jaxmon.grafana.session import Session


TOKEN_VARIABLE = "GRAFANA_TOKEN"  # noqa: S105 - the variable's name

_SILENT_SECONDS = 2.0
HELP = f"""
\b
The token of a service account with the Editor role is read from
{TOKEN_VARIABLE} or from --token-file, never from the command line, which
other users can see. Proxies are taken from HTTPS_PROXY and NO_PROXY and are
contacted over plain HTTP.
"""

SERVER = (
    click.option(
        "--url",
        type=Url(),
        metavar="URL",
        required=True,
        envvar="GRAFANA_URL",
        show_envvar=True,
        help="Grafana's URL as in the browser, including any path.",
    ),
    click.option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=f"File containing the token; overrides {TOKEN_VARIABLE}.",
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
        help="Timeout per request in seconds; requests are tried up to four times.",
    ),
    click.option(
        "--insecure-http",
        is_flag=True,
        help="Allow sending the token over unencrypted HTTP to another host.",
    ),
)

OPTIONS = (
    *SERVER,
    click.option(
        "--folder",
        default="jaxmon",
        show_default=True,
        metavar="UID",
        help='Folder UID for the dashboards; "general" is the top level.',
    ),
)


def grafana(
    url: str,
    token_file: Path | None,
    ca_file: Path | None,
    timeout: float,
    *,
    insecure_http: bool,
) -> Grafana:
    """
    Return a client for the dashboards of the Grafana given by the options.

    Raises as `session` does; nothing is sent yet.
    """
    from jaxmon.grafana.client import Grafana

    return Grafana(
        session(url, token_file, ca_file, timeout, insecure_http=insecure_http)
    )


def session(
    url: str,
    token_file: Path | None,
    ca_file: Path | None,
    timeout: float,
    *,
    insecure_http: bool,
    option: str = "--token-file",
) -> Session:
    """
    Return a session with the Grafana given by the options; nothing is sent yet. The
    *option* is the one that names the token's file.

    Raises:
        CommandError: there is no token.
        GrafanaError: the URL, token or certificates are invalid.
    """
    from jaxmon.grafana.session import Session

    token = _token(token_file, option)
    output.hide(token)
    return Session(
        url,
        token,
        ca_file=ca_file,
        timeout=timeout,
        insecure_http=insecure_http,
        sleep=_wait,
    )


def _wait(seconds: float) -> None:
    """Sleep, and print a notice if the wait is long."""
    if seconds > _SILENT_SECONDS:
        output.line(f"Grafana is busy; retrying in {seconds:.0f} s", err=True)
    time.sleep(seconds)


def _token(file: Path | None, option: str) -> str:
    """Return the token from *file*, which *option* gave, or the environment."""
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if not token:
            msg = f"no token; set {TOKEN_VARIABLE} or give {option}"
            raise CommandError(msg)
        return token
    return token_in(file, option)
