"""Deployments as annotations of Grafana, which boards draw across their panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jaxmon_dashboards.grafana.session import GrafanaSession


_OK = 200
_MOST = 100
_MISSING = "; check the ID, or the UID of the dashboard"


@dataclass(frozen=True)
class Deployment:
    """A deployment to note, by *tags*; its end may be its start, until it is known."""

    tags: tuple[str, ...]
    text: str
    start: datetime
    end: datetime
    dashboard: str = ""


@dataclass(frozen=True)
class Noted:
    """A deployment in Grafana: the annotation's ID, and when it ends."""

    number: int
    end: datetime


def add(session: GrafanaSession, deployment: Deployment) -> int:
    """Note *deployment* and return the annotation's ID; `GrafanaError` if rejected."""
    body: dict[str, Any] = {
        "text": deployment.text,
        "tags": list(deployment.tags),
        "time": _milliseconds(deployment.start),
        "timeEnd": _milliseconds(deployment.end),
    }
    if deployment.dashboard:
        body["dashboardUID"] = deployment.dashboard
    # Sent twice, it would be there twice.
    response = session.request("POST", "/api/annotations", body=body, repeatable=False)
    number = response.at("id")
    if response.status != _OK or not isinstance(number, int):
        raise session.refused(response, "adding the annotation", _MISSING)
    return number


def current(
    session: GrafanaSession, tags: Sequence[str], moment: datetime
) -> list[Noted]:
    """Return the deployments with exactly these *tags* around *moment*."""
    at = _milliseconds(moment)
    query: dict[str, str | int | Sequence[str]] = {
        "type": "annotation",
        "from": at,
        "to": at,
        "limit": _MOST,
        "tags": tags,
    }
    response = session.request("GET", "/api/annotations", query=query)
    what = "looking for annotations"
    if response.status != _OK or not isinstance(response.data, list):
        raise session.refused(response, what, _MISSING)
    mine = [
        annotation
        for annotation in response.data
        if isinstance(annotation, dict)
        and isinstance(found := annotation.get("tags"), list)
        and set(map(str, found)) == set(tags)
    ]
    try:
        return [
            Noted(int(of["id"]), datetime.fromtimestamp(of["timeEnd"] / 1000, UTC))
            for of in mine
        ]
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        raise session.refused(response, what, _MISSING) from None


def end(session: GrafanaSession, number: int, moment: datetime) -> None:
    """Let annotation *number* end at *moment*; `GrafanaError` if there is none."""
    path = f"/api/annotations/{number}"
    body = {"timeEnd": _milliseconds(moment)}
    response = session.request("PATCH", path, body=body)
    if response.status != _OK:
        raise session.refused(response, f"ending annotation {number}", _MISSING)


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
