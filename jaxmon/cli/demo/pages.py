"""JSON responses of local servers started by the demo."""

from __future__ import annotations

from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from jaxmon.errors import CommandError
from jaxmon.formats.layout import clean
from jaxmon.http import client
from jaxmon.http.urls import place_of, target_of


_SECONDS = 5.0
_MAX_BYTES = 32 << 20


def fetch(whose: str, url: str) -> Any:
    """
    Fetch JSON from *url*, within 5 seconds and 32 MiB.

    Raises:
        CommandError: the request failed; the message names *whose* endpoint it is.
    """
    parts = urlsplit(url)
    try:
        response = client.get(
            place_of(parts), target_of(parts), seconds=_SECONDS, max_bytes=_MAX_BYTES
        )
        document = response.json() if response.status == HTTPStatus.OK else None
    except (OSError, HTTPException, ValueError) as error:
        msg = f"{whose} at {url} does not respond: {error}"
        raise CommandError(msg) from error
    if document is None:
        msg = f"{whose} at {url} returned HTTP status {response.status}"
        raise CommandError(msg)
    return sanitised(document)


def sanitised(value: Any) -> Any:
    """Return *value*, decoded JSON, with all its strings sanitised for a terminal."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): sanitised(one) for key, one in value.items()}
    return [sanitised(one) for one in value] if isinstance(value, list) else value
