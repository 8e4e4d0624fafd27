"""
The page of another exporter, over HTTP or HTTPS, within a time and a size.

For pages of our own agents, on Unix sockets, see `jaxmon.http.fetch`.
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
    Return *url*; a path is added when it has none.

    Raises:
        ValueError: it is not http or https, or names no host.
    """
    parts = parts_of(url)
    return parts._replace(path=parts.path or "/metrics").geturl()


def fetch_page(url: str, *, timeout: float, max_bytes: int) -> tuple[str, bytes]:
    """
    GET *url* and return content type and body. Redirects are not followed: what a
    site points elsewhere was not meant to be read by us.

    Args:
        url: may hold user and password.
        timeout: seconds for all of it, however slowly the answer drips.
        max_bytes: most that the response may have, head included.

    Raises:
        FetchError: with the reason.
    """
    parts = parts_of(url)
    route = Route(parts)
    # What it answers may quote what it was sent.
    hidden = Secrets(*route.secrets)
    bounds = Bounds(timeout, max_bytes)
    try:
        answer = route.exchange("GET", target_of(parts), bounds, headers=_ACCEPT)
    except TimeoutError as error:
        message = f"no complete answer within {timeout:g} s"
        raise FetchError(TIMEOUT, message) from error
    except TooLargeError as error:
        message = f"{error}; have it export fewer fields"
        raise FetchError(TOO_LARGE, message) from error
    except UnreachableError as error:
        message = f"cannot connect: {error}"
        raise FetchError(UNREACHABLE, message) from error
    except ssl.SSLError as error:
        message = f"no encrypted connection: {error}; SSL_CERT_FILE names authorities"
        raise FetchError(TLS, message) from error
    except (HTTPException, ValueError) as error:
        message = f"its answer is not HTTP as it should be: {error!r}"
        raise FetchError(BROKEN, hidden.redacted(message)) from error
    except OSError as error:
        message = f"connection failed: {error}"
        raise FetchError(BROKEN, message) from error
    if answer.status in range(300, 400):
        message = (
            f"it answered HTTP status {answer.status}; give the address of its page"
        )
        raise FetchError(REDIRECT, message)
    if answer.status != HTTPStatus.OK:
        raise FetchError(STATUS, f"it answered HTTP status {answer.status}")
    # As for any text on the web, where a server does not say what it sends.
    return hidden.redacted(answer.type or "text/plain"), answer.body
