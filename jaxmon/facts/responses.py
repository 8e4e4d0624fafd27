"""Responses of agents' debug endpoints, which are not trusted, as JSON objects."""

from __future__ import annotations

from typing import Any

from jaxmon.facts import SCHEMA
from jaxmon.host.formats import json_text
from jaxmon.host.http import fetch
from jaxmon.host.http.fetch import FetchError


UNREADABLE = "unreadable"
"""A response that is of a later release."""

# A sidecar passes them on in documents of its own.
_DEEPEST = json_text.MAX_DEPTH - 10


def decoded(answer: str | FetchError) -> dict[str, Any]:
    """
    Return the JSON object in *answer*. Raises `FetchError`: *answer* is one, or is not
    a JSON object.
    """
    if isinstance(answer, FetchError):
        raise answer
    try:
        found = json_text.parse(answer, odd_numbers=True, depth=_DEEPEST)
    except ValueError as error:
        message = f"its response is {error}"
        raise FetchError(fetch.BROKEN, message) from error
    if not isinstance(found, dict):
        message = "its response is not a JSON object"
        raise FetchError(fetch.BROKEN, message)
    return found


def overview(answer: str | FetchError) -> dict[str, Any]:
    """
    Return the overview in *answer*, in which all agents have functions, if only none
    yet: without them all would seem to be well. Raises `FetchError`: *answer* is one,
    no agent's overview, or that of a later release.
    """
    found = decoded(answer)
    if not isinstance(found.get("functions"), dict):
        message = "its response contains no jaxmon data; there is nothing to evaluate"
        raise FetchError(fetch.BROKEN, message)
    try:
        json_text.require_schema(found, SCHEMA, oldest=0)
    except ValueError as error:
        raise FetchError(UNREADABLE, f"{error}") from error
    return found


def trouble(error: FetchError) -> str:
    """Return why a process has no report, as the predicate of a sentence."""
    if error.reason == UNREADABLE:
        return f"cannot be read: {error}"
    return f"does not respond: {error}"
