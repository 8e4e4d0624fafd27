"""Options for connecting to the Prometheus, Alertmanager and Grafana of a site."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxmon.cli import output
from jaxmon.cli.options import BASE_URL, FILE, URL, Number, collected, flag, option
from jaxmon.errors import CommandError, ConfigFileError, raised


if TYPE_CHECKING:
    from jaxmon.host.http.session import Session
    from jaxmon_dashboards.grafana.session import GrafanaSession

TOKEN_VARIABLE = "GRAFANA_TOKEN"  # noqa: S105 - the variable's name
GRAFANA_HELP = f"""
\b
The token of a service account with the Editor role is read from
{TOKEN_VARIABLE} or from --token-file. Other users can see the command line:
it has no token. Proxies are taken from HTTPS_PROXY and NO_PROXY and are
contacted over plain HTTP.
"""

_SILENT_SECONDS = 2.0
# No token has a tenth of that.
_MAX_BYTES = 1 << 16

ALERTMANAGER = option(
    BASE_URL,
    meaning="Alertmanager's URL as in the browser, including any path.",
    required=True,
    envvar="ALERTMANAGER_URL",
)


def prometheus(*, required: bool) -> Any:
    """Return the option ``--prometheus``."""
    return option(
        BASE_URL,
        "--prometheus",
        meaning="Prometheus's URL as in the browser, including any path.",
        required=required,
        envvar="PROMETHEUS_URL",
    )


@dataclass(frozen=True, slots=True)
class Access:
    """
    How to connect, as `ACCESS` and `GRAFANA_ACCESS` declare it; *timeout* is for each
    request, *insecure_http* allows sending secrets unencrypted to another host.
    """

    token_file: Path | None
    ca_file: Path | None
    timeout: float
    insecure_http: bool

    def session(self, whose: str, url: str) -> Session:
        """Return a session with a server; nothing is sent yet."""
        from urllib.parse import urlsplit

        from jaxmon.host.http.session import Session
        from jaxmon.host.http.urls import secrets_of

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

    def grafana(self, url: str, option: str = "--token-file") -> GrafanaSession:
        """Return a session with Grafana; *option* names the file of the token."""
        from jaxmon_dashboards.grafana.session import GrafanaSession

        if self.token_file is not None:
            token = token_in(self.token_file, option)
        elif not (token := os.environ.get(TOKEN_VARIABLE, "").strip()):
            msg = f"no token; set {TOKEN_VARIABLE} or give {option}"
            raise CommandError(msg)
        output.hide(token)
        return GrafanaSession(
            url,
            token=token,
            ca_file=self.ca_file,
            timeout=self.timeout,
            insecure_http=self.insecure_http,
            sleep=_wait,
        )


def _wait(seconds: float) -> None:
    if seconds > _SILENT_SECONDS:
        output.line(f"Grafana is busy; retrying in {seconds:.0f} s", err=True)
    time.sleep(seconds)


def _access(token: str, secrets: str, timeout: str = "") -> Any:
    """Return the options of `Access`; the texts are of their help."""
    return collected(
        Access,
        token_file=option(FILE, meaning=token),
        ca_file=option(
            FILE, meaning="CA certificates (PEM) to trust instead of the system's."
        ),
        timeout=option(
            Number(0.1, 300.0),
            meaning=f"Timeout per request in seconds{timeout}.",
            default=10.0,
        ),
        insecure_http=flag(
            meaning=f"Allow sending {secrets} over unencrypted HTTP to another host."
        ),
    )


ACCESS = _access("File containing a bearer token to send.", "credentials")

GRAFANA_URL = option(
    URL,
    "--url",
    meaning="Grafana's URL as in the browser, including any path.",
    required=True,
    envvar="GRAFANA_URL",
)
GRAFANA_ACCESS = _access(
    f"File containing the token; overrides {TOKEN_VARIABLE}.",
    "the token",
    "; requests are tried up to four times",
)


def token_in(file: Path, option: str = "--token-file") -> str:
    """Return the token in *file*, which *option* gave."""
    from jaxmon.host.files.bounded import read_text

    with raised(CommandError, f"{option} {file}", ConfigFileError):
        token = read_text(file, most=_MAX_BYTES, pipe=True).strip()
    if not token:
        msg = f"no token: {file} is empty"
        raise CommandError(msg)
    return token
