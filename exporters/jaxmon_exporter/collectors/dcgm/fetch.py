"""
The page of another exporter, over HTTP or HTTPS, within a time and a size.

For pages of our own agents, on Unix sockets, see `jaxmon.http.fetch`.
"""

from __future__ import annotations

import contextlib
import ssl
from http import HTTPStatus
from http.client import HTTPException
from urllib.parse import SplitResult, unquote, urlsplit

from jaxmon.errors import JaxmonError
from jaxmon.http import client
from jaxmon.http.redaction import Secrets
from jaxmon.http.stream import Bounds, TooLargeError, connected
from jaxmon.http.urls import credentials, parts_of, place_of, target_of


UNREACHABLE = "unreachable"
TIMEOUT = "timeout"
REDIRECT = "redirect"
STATUS = "http_status"
TOO_LARGE = "too_large"
TLS = "tls"
BROKEN = "broken"


class PageUnavailable(JaxmonError):  # noqa: N818 - a state, not a mistake
    """
    A page that did not arrive.

    Args:
        reason: one of the constants of this module.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def usable(url: str) -> str:
    """
    Return *url*; a path is added when it has none.

    Raises:
        ValueError: it is not http or https, or names no host.
    """
    parts = parts_of(url)
    return parts._replace(path=parts.path or "/metrics").geturl()


def without_password(url: str) -> str:
    """Return *url* as it may stand in logs and on pages."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def fetch_page(url: str, *, timeout: float, max_bytes: int) -> tuple[str, bytes]:
    """
    GET *url* and return content type and body. Redirects are not followed: what a
    site points elsewhere was not meant to be read by us.

    Args:
        url: may hold user and password.
        timeout: seconds for all of it, however slowly the answer drips.
        max_bytes: most that the response may have, head included.

    Raises:
        PageUnavailable: with the reason.
    """
    parts = urlsplit(url)
    # What it answers may quote what it was sent.
    hidden = _secrets(parts)
    try:
        answer = _exchange(parts, Bounds(timeout, max_bytes))
    except TimeoutError as error:
        message = f"no complete answer within {timeout:g} s"
        raise PageUnavailable(TIMEOUT, message) from error
    except TooLargeError as error:
        message = f"{error}; have it export fewer fields"
        raise PageUnavailable(TOO_LARGE, message) from error
    except ssl.SSLError as error:
        message = f"no encrypted connection: {error}; SSL_CERT_FILE names authorities"
        raise PageUnavailable(TLS, message) from error
    except (HTTPException, ValueError) as error:
        message = f"its answer is not HTTP as it should be: {error!r}"
        raise PageUnavailable(BROKEN, hidden.redacted(message)) from error
    except OSError as error:
        message = f"connection failed: {error}"
        raise PageUnavailable(BROKEN, message) from error
    if answer.status in range(300, 400):
        message = (
            f"it answered HTTP status {answer.status}; give the address of its page"
        )
        raise PageUnavailable(REDIRECT, message)
    if answer.status != HTTPStatus.OK:
        raise PageUnavailable(STATUS, f"it answered HTTP status {answer.status}")
    # As for any text on the web, where a server does not say what it sends.
    return hidden.redacted(answer.type or "text/plain"), answer.body


def _exchange(parts: SplitResult, bounds: Bounds) -> client.Answer:
    place = place_of(parts)
    headers = {"Accept": "text/plain; version=0.0.4"}
    if parts.username is not None:
        headers["Authorization"] = f"Basic {credentials(parts)}"
    with contextlib.ExitStack() as stack:
        try:
            stream = stack.enter_context(connected(place, bounds))
        except TimeoutError:
            raise
        except OSError as error:
            message = f"cannot connect: {error}"
            raise PageUnavailable(UNREACHABLE, message) from error
        if parts.scheme == "https":
            stream.encrypt(ssl.create_default_context(), place[0])
        client.send(
            stream,
            "GET",
            target_of(parts),
            host=place[0],
            port=parts.port,
            headers=headers,
        )
        return client.receive(stream, "GET")


def _secrets(parts: SplitResult) -> Secrets:
    if not parts.password:
        return Secrets()
    return Secrets(unquote(parts.password), credentials(parts))
