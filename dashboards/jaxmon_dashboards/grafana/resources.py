"""
Dashboards of the v2 model as resources of Grafana's new API: what their metadata say,
and what a push leaves there. The API is part of Grafana 12; with version v2, of 13.

Grafana does not return the message of a save with the resource. So a push leaves its
record in an annotation of its own, with the generation that the save creates: every
later change of the dashboard or its folder has a higher one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from jaxmon_dashboards.grafana.content import Board
from jaxmon_dashboards.grafana.models import (
    API_VERSION,
    GROUP,
    KIND,
    ROOT_FOLDER,
    VERSION,
    Body,
    Stored,
)
from jaxmon_dashboards.grafana.session import GrafanaError, GrafanaSession, JsonResponse


RECORD = "jaxmon/pushed"
"""The annotation with the record of the last push."""

_FOLDER = "grafana.app/folder"
_GRANT = "grafana.app/grant-permissions"
_MESSAGE = "grafana.app/message"
_CREATED_BY = "grafana.app/createdBy"
_UPDATED_BY = "grafana.app/updatedBy"
_UPDATED = "grafana.app/updatedTimestamp"
_MANAGER = "grafana.app/managedBy"
_MANAGER_NAME = "grafana.app/managerId"
_MANAGER_ALLOWS = "grafana.app/managerAllowsEdits"
_FILES = "classic-file-provisioning"

_RECORD = r"(jaxmon push \S+ sha256:[0-9a-f]{64}) generation:(\d{1,9})"


def stored(resource: Body, redacted: Callable[[str], str]) -> Stored:
    """Return a dashboard of the v2 model as it is stored, its texts *redacted*."""
    metadata = resource["metadata"]
    notes = _texts(metadata.get("annotations"))
    generation: int = metadata["generation"]
    record = re.fullmatch(_RECORD, notes.get(RECORD, ""))
    manager = ""
    if notes.get(_MANAGER) and notes.get(_MANAGER_ALLOWS) != "true":
        manager = redacted(f"{notes[_MANAGER]} {notes.get(_MANAGER_NAME, '')}").strip()
    author = notes.get(_UPDATED_BY) or notes.get(_CREATED_BY) or ""
    updated = notes.get(_UPDATED) or metadata.get("creationTimestamp") or ""
    return Stored(
        body=resource,
        version=generation,
        folder=redacted(notes.get(_FOLDER) or ROOT_FOLDER),
        provisioned=bool(manager),
        message=record[1] if record else "",
        # "user:ID" or "service-account:ID".
        author=redacted(author.replace(":", " ", 1)),
        updated=redacted(str(updated)),
        resource=resource,
        later=record is not None and generation > int(record[2]),
        manager="" if notes.get(_MANAGER) == _FILES else manager,
    )


def is_valid(resource: Any, uid: str) -> bool:
    """Return whether *resource* is the dashboard *uid*, in full."""
    if not isinstance(resource, dict) or resource.get("apiVersion") != API_VERSION:
        return False
    metadata, spec = resource.get("metadata"), resource.get("spec")
    return (
        isinstance(metadata, dict)
        and isinstance(spec, dict)
        and metadata.get("name") == uid
        and type(metadata.get("generation")) is int
        and isinstance(version := metadata.get("resourceVersion"), str)
        and bool(version)
    )


def written(desired: Board, base: Stored | None, folder: str) -> dict[str, Any]:
    """Return the resource that replaces *base* under its lock, with others' labels."""
    before = base.resource["metadata"] if base and base.resource else {}
    notes = _texts(before.get("annotations"))
    notes.pop(_GRANT, None)
    generation = before.get("generation", 0) + 1
    notes |= {
        _FOLDER: "" if folder == ROOT_FOLDER else folder,
        _MESSAGE: desired.message,
        RECORD: f"{desired.message} generation:{generation}",
    }
    if folder == ROOT_FOLDER and (base is None or base.folder != ROOT_FOLDER):
        # Outside of folders nothing is inherited: without this, as Grafana's own pages
        # send it, only administrators could see the dashboard.
        notes[_GRANT] = "default"
    metadata: dict[str, Any] = {"name": desired.uid, "annotations": notes}
    if before:
        metadata["resourceVersion"] = before["resourceVersion"]
        metadata["labels"] = _texts(before.get("labels"))
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": desired.body["spec"],
    }


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {key: text for key, text in value.items() if isinstance(text, str)}


_OK, _NOT_FOUND = 200, 404
_NAMESPACE = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_INSTEAD = rf"/namespaces/({_NAMESPACE})/dashboards/"


class NotServedError(GrafanaError):
    """This Grafana does not serve dashboards of the v2 model."""


class Apis:
    """Dashboards of the v2 model in one organisation; versions are read once."""

    def __init__(self, session: GrafanaSession) -> None:
        self._session = session
        self._served: list[str] | None = None
        self._namespace = ""

    def heed(self, response: JsonResponse) -> None:
        """Learn from *response* of the classic API where it says the dashboard is."""
        if found := re.search(_INSTEAD, response.text("message")):
            self._namespace = found[1]

    def get(self, uid: str) -> JsonResponse:
        """Return the response to a request for *uid*, or raise `NotServedError`."""
        response = self._session.request("GET", f"{self._path()}/{quote(uid, safe='')}")
        if response.status == _OK and not is_valid(response.data, uid):
            msg = f"dashboard {uid}: Grafana returned no whole {API_VERSION} resource"
            raise GrafanaError(msg, status=response.status)
        return response

    def put(self, resource: dict[str, Any]) -> JsonResponse:
        """Return the response to writing *resource*: new if it has no version yet."""
        metadata = resource["metadata"]
        if "resourceVersion" not in metadata:
            return self._session.request("POST", self._path(), body=resource)
        path = f"{self._path()}/{quote(metadata['name'], safe='')}"
        return self._session.request("PUT", path, body=resource)

    def _path(self) -> str:
        served = self._versions()
        if VERSION not in served:
            found = self._session.redacted(", ".join(served)) or "none"
            msg = (
                f"this Grafana does not serve {API_VERSION} (it serves {found}), "
                "which takes Grafana 13 or later"
            )
            raise NotServedError(msg)
        namespace = self._namespace = self._namespace or self._own_namespace()
        return f"/apis/{API_VERSION}/namespaces/{namespace}/dashboards"

    def _versions(self) -> list[str]:
        if self._served is None:
            try:
                response = self._session.request("GET", f"/apis/{GROUP}")
            except GrafanaError as error:
                # Grafana before 12 has a page that says so.
                if error.status != _NOT_FOUND:
                    raise
                return []
            self._served = _versions(response.data)
        return self._served

    def _own_namespace(self) -> str:
        response = self._session.request("GET", "/api/frontend/settings")
        found = response.text("namespace")
        return found if re.fullmatch(_NAMESPACE, found) else "default"


def _versions(group: Any) -> list[str]:
    versions = group.get("versions") if isinstance(group, dict) else None
    return [
        version["version"]
        for version in (versions if isinstance(versions, list) else ())
        if isinstance(version, dict) and isinstance(version.get("version"), str)
    ]
