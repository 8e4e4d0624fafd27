"""
JSON over HTTP to one Grafana: retries, beside what every session has.

The token is sent to the configured address and nowhere else: no redirect is
followed, and no error, log line or representation holds it.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from ssl import SSLCertVerificationError
from typing import Any
from urllib.parse import SplitResult

from jaxmon.host.http.client import ClientResponse
from jaxmon.host.http.session import REDIRECTS, MonitoringError, Session
from jaxmon.host.http.stream import TooLargeError
from jaxmon.host.http.urls import without_user


ATTEMPTS = 4
MAX_WAIT_SECONDS = 30.0

# Longest wait, in seconds, that is reported from a server's request.
_LONGEST_WAIT = 1e6

_RETRIED = frozenset({429, 502, 503, 504})
# What came with this was not done.
_REFUSED = frozenset({429})


class GrafanaError(MonitoringError):
    """A request failed; the message has no token, *status* is that of a response."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class JsonResponse:
    """A complete response: status, and its body if that is JSON, or why not."""

    status: int
    data: Any
    problem: str = ""
    retry_after: float | None = None
    location: str = ""

    def at(self, *keys: str) -> Any:
        """Return what is at *keys*, one in the other, in the body, `None` without."""
        found = self.data
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def text(self, key: str) -> str:
        """Return the string at *key* in the body, ``""`` if there is none."""
        found = self.at(key)
        return found if isinstance(found, str) else ""


@dataclass
class GrafanaSession(Session):
    """
    Sends requests to one Grafana, which all need a token.

    A request is retried, a bounded number of times, if Grafana or a proxy is busy (429,
    502, 503, 504) or the connection fails. This is safe for nearly every request made
    here: reading changes nothing, and a save carries the version it replaces, so that
    repeating a save that did arrive is rejected. Others are not *repeatable*.
    """

    whose: str = field(default="Grafana", init=False)
    max_bytes: int = 32 << 20
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    error = GrafanaError
    credentials = "token"
    hidden = "[token]"

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int | Sequence[str]] | None = None,
        body: Any = None,
        repeatable: bool = True,
    ) -> JsonResponse:
        """Return the response to a request; `GrafanaError` without one."""
        data = None if body is None else json.dumps(body).encode()
        retried = _RETRIED if repeatable else _REFUSED
        for attempt in range(1, ATTEMPTS + 1):
            last = attempt == ATTEMPTS
            try:
                response = _json_response(
                    self._exchanged(method, path, query=query, body=data)
                )
            except (OSError, HTTPException) as error:
                # Another attempt would fail in the same way.
                final = isinstance(error, (SSLCertVerificationError, TooLargeError))
                if last or not repeatable or final:
                    raise self._unreachable(error) from None
                wait = _backoff(attempt)
            else:
                if response.status not in retried:
                    return self._usable(response)
                wait = response.retry_after or _backoff(attempt)
                if last or wait > MAX_WAIT_SECONDS:
                    raise self._busy(response)
            self.sleep(wait)
        raise AssertionError(ATTEMPTS)  # the last attempt returns or raises

    def shown(self, response: JsonResponse) -> str:
        """Return status and message of *response*."""
        text = self.redacted(response.text("message"))
        return f"{response.status} {text}".rstrip()

    def refused(
        self, response: JsonResponse, what: str, missing: str = ""
    ) -> GrafanaError:
        """Return the error that *what* was not done, and advice if it is *missing*."""
        text, role = self.shown(response), "the Editor role"
        msg = {
            401: f"Grafana rejected the token ({text}); create one for a service "
            f"account with {role}",
            403: f"{what}: permission denied ({text}); the service account needs "
            f"{role}",
            404: f"{what}: Grafana returned {text}{missing}",
        }.get(response.status, f"{what}: Grafana returned {text}")
        return GrafanaError(msg, status=response.status)

    def _usable(self, response: JsonResponse) -> JsonResponse:
        """Return *response* unless it cannot be from Grafana's API."""
        if response.status in REDIRECTS:
            place = self.redacted(response.location.partition("?")[0])
            msg = (
                f"{self.place} redirects to {place or 'nowhere'}; use Grafana's own "
                "URL, since the token is not sent anywhere else"
            )
            raise GrafanaError(msg, status=response.status)
        if response.data is None:
            msg = (
                f"{self.place} returned {response.status} with "
                f"{self.redacted(response.problem)}; use Grafana's URL as in the "
                "browser, including any path"
            )
            raise GrafanaError(msg, status=response.status)
        return response

    def _busy(self, response: JsonResponse) -> GrafanaError:
        asked = response.retry_after
        hint = f"; it requested a wait of {asked:,.0f} s" if asked else ""
        msg = f"{self.place} is busy: {self.shown(response)}{hint}"
        return GrafanaError(f"{msg}; try again later", status=response.status)

    def _unreachable(self, error: Exception) -> MonitoringError:
        if isinstance(error, SSLCertVerificationError):
            return self._untrusted(self.place, error)
        text = self.redacted(str(error) or type(error).__name__)
        return GrafanaError(f"no response from {self.place}: {text}")

    def _problem(self, parts: SplitResult) -> str:
        if parts.query:
            shown = without_user(self.url)
            return f"not a valid Grafana URL: {shown!r}; remove the query string"
        if parts.username is not None:
            return "credentials in the URL are not supported; use a token"
        if not (self.token and self.token.isascii() and self.token.isprintable()):
            return "the token is empty or contains invalid characters"
        return ""


def _json_response(response: ClientResponse) -> JsonResponse:
    data, problem = None, "something that is not JSON"
    if "json" in response.type:
        try:
            data = response.json()
        except ValueError as error:
            problem = f"invalid JSON ({error})"
    return JsonResponse(
        response.status,
        data,
        problem,
        _seconds(response.headers.get("retry-after", "")),
        response.headers.get("location", ""),
    )


def _seconds(retry_after: str) -> float | None:
    """Return the seconds that a ``Retry-After`` requests, `None` if it has a date."""
    wanted = retry_after.strip()
    return min(float(wanted), _LONGEST_WAIT) if wanted.isdecimal() else None


def _backoff(attempt: int) -> float:
    """Return seconds to wait after *attempt*: 0.5, 1, 2, each up to half less."""
    spread = random.random()  # noqa: S311 - spreads load, guards nothing
    return float(2 ** (attempt - 2) * (1 - spread / 2))
