"""
Fetches another exporter's metrics over HTTP(S) within a time and size limit.

For our own agents, on Unix sockets, see `jaxmon.http.fetch`.
"""

from __future__ import annotations

import ssl
from http import HTTPStatus
from http.client import HTTPException

from jaxmon.http.fetch import BROKEN, TIMEOUT, TOO_LARGE, FetchError
from jaxmon.http.redaction import Secrets
from jaxmon.http.route import Route, UnreachableError
from jaxmon.http.stream import Bounds, TooLargeError
from jaxmon.http.urls import parts_of, target_of


UNREACHABLE = "unreachable"
REDIRECT = "redirect"
STATUS = "http_status"
TLS = "tls"

_ACCEPT = {"Accept": "text/plain; version=0.0.4"}


def usable(url: str) -> str:
    """
    Return *url*, with a path added if it has none.

    Raises:
        ValueError: it is not HTTP or HTTPS, or has no host.
    """
    parts = parts_of(url)
    return parts._replace(path=parts.path or "/metrics").geturl()


def fetch_page(url: str, *, timeout: float, max_bytes: int) -> tuple[str, bytes]:
    """
    GET *url* and return content type and body. Redirects are not followed: a redirect
    target was not configured by the user.

    Args:
        url: may contain user and password.
        timeout: seconds for the whole exchange, however slowly the response arrives.
        max_bytes: maximum size of the response, including the head.

    Raises:
        FetchError: with the reason.
    """
    parts = parts_of(url)
    route = Route(parts)
    # Its response may quote the request.
    hidden = Secrets(*route.secrets)
    bounds = Bounds(timeout, max_bytes)
    try:
        response = route.exchange("GET", target_of(parts), bounds, headers=_ACCEPT)
    except TimeoutError as error:
        message = f"no complete response within {timeout:g} s"
        raise FetchError(TIMEOUT, message) from error
    except TooLargeError as error:
        message = f"{error}; configure it to export fewer fields"
        raise FetchError(TOO_LARGE, message) from error
    except UnreachableError as error:
        message = f"cannot connect: {error}"
        raise FetchError(UNREACHABLE, message) from error
    except ssl.SSLError as error:
        message = f"TLS connection failed: {error}; set SSL_CERT_FILE for a custom CA"
        raise FetchError(TLS, message) from error
    except (HTTPException, ValueError) as error:
        message = f"invalid HTTP response: {error!r}"
        raise FetchError(BROKEN, hidden.redacted(message)) from error
    except OSError as error:
        message = f"connection failed: {error}"
        raise FetchError(BROKEN, message) from error
    if response.status in range(300, 400):
        message = f"HTTP status {response.status}; give the full URL of its metrics"
        raise FetchError(REDIRECT, message)
    if response.status != HTTPStatus.OK:
        raise FetchError(STATUS, f"it returned HTTP status {response.status}")
    # The default of HTTP if a server does not send a type.
    return hidden.redacted(response.type or "text/plain"), response.body
