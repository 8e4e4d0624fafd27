"""
JSON over HTTP to a server of a site's monitoring: time limits, TLS, proxies, tokens.

A token or password is sent to the configured address and nowhere else: no redirect is
followed, and no error, log line or representation holds it. Nothing is retried: a
person waits for the response.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import SplitResult, urlencode, urlunsplit

from jaxmon.errors import JaxmonError
from jaxmon.host.formats.layout import clean, shortened
from jaxmon.host.http.client import (
    CertificatesError,
    ClientResponse,
    Route,
    RouteError,
    trusted,
)
from jaxmon.host.http.stream import Bounds, TooLargeError
from jaxmon.host.http.urls import Secrets, is_loopback, parts_of, without_user
from jaxmon.version import version


MAX_BYTES = 64 << 20
_SHOWN = 300
REDIRECTS = range(300, 400)
_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class MonitoringError(JaxmonError):
    """A request failed; the message names the server and never holds a secret."""


@dataclass
class Session:
    """
    Sends requests to one server, *whose* name is in messages; its *url* may hold a user
    and a password, else *token* is the bearer's. *timeout* is for each request;
    *insecure_http* allows sending secrets unencrypted to another host; *address* is
    where to connect if the name has several. Raises `MonitoringError`: an option is
    invalid.
    """

    whose: str
    url: str = field(repr=False)
    token: str = field(default="", repr=False)
    ca_file: Path | None = None
    timeout: float = 10.0
    insecure_http: bool = False
    address: str = ""
    max_bytes: int = MAX_BYTES

    error: ClassVar[type[MonitoringError]] = MonitoringError
    credentials: ClassVar[str] = "credentials"
    hidden: ClassVar[str] = "[secret]"

    def __post_init__(self) -> None:
        parts = self._checked()
        self._path = parts.path.rstrip("/")
        host = parts.netloc.rpartition("@")[2]
        self.place = urlunsplit((parts.scheme, host, self._path, "", ""))
        try:
            route = Route.by_environment(parts, trusted(parts, self.ca_file))
            self._route = route._replace(address=self.address)
        except (CertificatesError, RouteError) as error:
            raise self.error(str(error)) from None
        self._secrets = Secrets(self.token, *self._route.secrets, hidden=self.hidden)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> ClientResponse:
        """Return the response to a GET of *path*. Raises `MonitoringError`."""
        return self._request("GET", path, query=query)

    def post(self, path: str, document: Any) -> ClientResponse:
        """Return the response to a POST of *document* as JSON; raises as `get` does."""
        return self._request("POST", path, body=json.dumps(document).encode())

    def delete(self, path: str) -> ClientResponse:
        """Return the response to a DELETE of *path*; raises as `get` does."""
        return self._request("DELETE", path)

    def decoded(self, response: ClientResponse) -> Any:
        """Return the JSON in *response*, of any status. Raises `MonitoringError`."""
        try:
            if "json" in response.type:
                return response.json()
            reason = f"{response.status} with something that is not JSON"
        except ValueError as error:
            reason = f"{response.status} with invalid JSON ({error})"
        raise self.foreign(reason)

    def foreign(self, reason: str) -> MonitoringError:
        """Return the error for a server that is not the expected one."""
        article = "an" if self.whose[:1] in "AEIOU" else "a"
        msg = (
            f"{self.place} is not {article} {self.whose}: it returned "
            f"{self.redacted(reason)}; give its URL as in the browser, including any "
            "path"
        )
        return MonitoringError(msg)

    def redacted(self, text: str) -> str:
        """Return untrusted *text* shortened, on one line, without secrets."""
        line = " ".join(clean(self._secrets.redacted(text)).split())
        return shortened(line, _SHOWN)

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> ClientResponse:
        try:
            response = self._exchanged(method, path, query=query, body=body)
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        self._require_admitted(response)
        return response

    def _exchanged(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int | Sequence[str]] | None,
        body: bytes | None,
    ) -> ClientResponse:
        """Return one response. Raises `OSError`, `HTTPException`."""
        target = self._path + path
        target += f"?{urlencode(query, doseq=True)}" if query else ""
        headers = {
            "Accept": "application/json",
            "User-Agent": f"jaxmon/{version()}",
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
            **({} if body is None else {"Content-Type": "application/json"}),
        }
        bounds = Bounds(self.timeout, self.max_bytes)
        return self._route.exchange(method, target, bounds, headers=headers, body=body)

    def _require_admitted(self, response: ClientResponse) -> None:
        if response.status in _DENIED:
            msg = (
                f"{self.whose} at {self.place} rejected the request "
                f"({response.status}); give a token with --token-file, or a user and "
                "password in the URL, that may do this"
            )
            raise MonitoringError(msg)
        if response.status in REDIRECTS:
            where = response.headers.get("location", "").partition("?")[0]
            msg = (
                f"{self.place} redirects to {self.redacted(where) or 'nowhere'}; give "
                f"the URL of {self.whose} itself, since redirects are not followed"
            )
            raise MonitoringError(msg)

    def _unreachable(self, error: Exception) -> MonitoringError:
        where = f"{self.whose} at {self.place}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._untrusted(where, error)
        text = self.redacted(str(error) or type(error).__name__)
        if isinstance(error, TooLargeError):
            return MonitoringError(f"{where} returned too much: {text}")
        msg = f"no response from {where}: {text}; check the URL and the network"
        return MonitoringError(msg)

    def _untrusted(
        self, where: str, error: ssl.SSLCertVerificationError
    ) -> MonitoringError:
        msg = (
            f"the certificate of {where} is not trusted: {error.verify_message}; "
            "set its CA with --ca-file"
        )
        return self.error(msg)

    def _checked(self) -> SplitResult:
        """Return the parts of the URL if secrets may be sent there."""
        try:
            parts = parts_of(self.url)
        except ValueError as error:
            raise self.error(str(error)) from None
        if problem := self._problem(parts):
            raise self.error(problem)
        open_to_all = parts.scheme == "http" and not is_loopback(parts)
        if (self.token or parts.password) and open_to_all and not self.insecure_http:
            msg = (
                f"the {self.credentials} would be sent to {parts.hostname} "
                "unencrypted; use https, or allow this with --insecure-http"
            )
            raise self.error(msg)
        return parts

    def _problem(self, parts: SplitResult) -> str:
        if parts.query or parts.fragment:
            return f"{without_user(self.url)!r}: give a URL without ? and #"
        if not (self.token.isascii() and self.token.isprintable()):
            return "the token contains invalid characters"
        if self.token and parts.username is not None:
            return "give either a token or a user in the URL, not both"
        return ""
