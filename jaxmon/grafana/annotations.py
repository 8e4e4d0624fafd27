"""Deployments as annotations of Grafana, which boards draw across their panels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jaxmon.grafana.session import GrafanaError, JsonResponse, Session


_OK, _FORBIDDEN, _NOT_FOUND = 200, 403, 404


@dataclass(frozen=True)
class Deployment:
    """
    A deployment to note.

    Args:
        tags: by which boards find it.
        text: what is deployed.
        start: with a time zone.
        end: the same as the start for a moment, which `end` can extend later.
        dashboard: uid of the only dashboard that shows it; any if empty.
    """

    tags: tuple[str, ...]
    text: str
    start: datetime
    end: datetime
    dashboard: str = ""


def add(session: Session, deployment: Deployment) -> int:
    """
    Note *deployment* and return the annotation's ID.

    Raises:
        GrafanaError: Grafana cannot be reached, or rejects it.
    """
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
    number = response.data.get("id") if isinstance(response.data, dict) else None
    if response.status != _OK or not isinstance(number, int):
        raise _refused(session, response, "adding the annotation")
    return number


def end(session: Session, number: int, moment: datetime) -> None:
    """
    Let annotation *number* end at *moment*.

    Raises:
        GrafanaError: Grafana cannot be reached, or there is no such annotation.
    """
    path = f"/api/annotations/{number}"
    body = {"timeEnd": _milliseconds(moment)}
    response = session.request("PATCH", path, body=body)
    if response.status != _OK:
        raise _refused(session, response, f"ending annotation {number}")


def _refused(session: Session, response: JsonResponse, what: str) -> GrafanaError:
    text = session.redacted(f"{response.status} {response.text('message')}".rstrip())
    advice = {
        _FORBIDDEN: "; the service account needs the Editor role",
        _NOT_FOUND: "; check the ID, or the UID of the dashboard",
    }.get(response.status, "")
    msg = f"{what}: Grafana returned {text}{advice}"
    return GrafanaError(msg, status=response.status)


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
