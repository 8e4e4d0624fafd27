"""The part of Grafana's HTTP APIs that dashboards need."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from jaxmon_dashboards.grafana.content import (
    API_VERSION,
    GROUP,
    KIND,
    ROOT_FOLDER,
    VERSION,
    Board,
    Body,
    Observed,
    SaveResult,
    Stored,
    Unreadable,
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


def _is_valid(resource: Any, uid: str) -> bool:
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


_NAMESPACE = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


class NotServedError(GrafanaError):
    """This Grafana does not serve dashboards of the v2 model."""


_PAGE = 500
_MAX_PAGES = 200

_OK, _CREATED, _ACCEPTED = 200, 201, 202
_NOT_FOUND, _NOT_ACCEPTABLE, _EXISTS, _PRECONDITION = 404, 406, 409, 412


class ConflictError(GrafanaError):
    """The object was changed or created by someone else in the meantime."""


class Grafana:
    """One Grafana, as a service account sees it; methods raise `GrafanaError`."""

    def __init__(self, session: GrafanaSession) -> None:
        self._session = session
        self._served: list[str] | None = None
        self._namespace = ""

    @property
    def url(self) -> str:
        """Its URL, without a trailing slash."""
        return self._session.place

    def health(self) -> str:
        """Return Grafana's version, ``"unknown"`` if it is hidden."""
        response = self._session.request("GET", "/api/health")
        self._check(response, "health")
        return self._session.redacted(response.text("version")) or "unknown"

    def folder(self, uid: str) -> str | None:
        """Return the title of the folder *uid*, `None` if it does not exist."""
        response = self._session.request("GET", f"/api/folders/{_quoted(uid)}")
        if response.status == _NOT_FOUND:
            return None
        self._check(response, f"folder {uid}")
        return response.text("title")

    def create_folder(self, uid: str, title: str) -> None:
        """Create a folder; `ConflictError` if its uid or title is taken."""
        response = self._session.request(
            "POST", "/api/folders", body={"uid": uid, "title": title}
        )
        if response.status in (_EXISTS, _PRECONDITION):
            raise ConflictError(self._session.shown(response), status=response.status)
        self._check(response, f"creating folder {uid}")

    def titles(self, folder: str) -> dict[str, str]:
        """Return the uids of the dashboards in *folder* by title."""
        found: dict[str, str] = {}
        query: dict[str, str | int] = {"type": "dash-db", "folderUIDs": folder}
        for page in range(1, _MAX_PAGES + 1):
            query |= {"limit": _PAGE, "page": page}
            response = self._session.request("GET", "/api/search", query=query)
            if response.status != _OK or not isinstance(response.data, list):
                raise self._session.refused(response, f"listing folder {folder}")
            for dashboard in response.data:
                if isinstance(dashboard, dict):
                    uid = self._session.redacted(str(dashboard.get("uid")))
                    found[str(dashboard.get("title"))] = uid
            if len(response.data) < _PAGE:
                return found
        msg = f"folder {folder} has more than {_PAGE * _MAX_PAGES} dashboards"
        raise GrafanaError(msg)

    def dashboard(self, uid: str, *, v2: bool = False) -> Observed:
        """Return the dashboard *uid* as stored; `NotServedError` without *v2*."""
        # Before the rest: what changes after this no longer fits the lock.
        lock = self._resource(uid) if v2 else None
        response = self._session.request("GET", f"/api/dashboards/uid/{_quoted(uid)}")
        if response.status == _NOT_FOUND:
            return None
        if response.status == _NOT_ACCEPTABLE:
            try:
                return lock or self._resource(uid)
            except NotServedError as error:
                return Unreadable(str(error))
        body, meta = response.at("dashboard"), response.at("meta")
        if response.status != _OK or not (
            isinstance(body, dict) and isinstance(meta, dict)
        ):
            raise self._session.refused(response, f"dashboard {uid}")
        number = body.get("version", meta.get("version"))
        if not isinstance(number, int):
            raise self._session.refused(response, f"dashboard {uid} without a version")
        stored = Stored(
            body=body,
            version=number,
            folder=self._session.redacted(str(meta.get("folderUid") or ROOT_FOLDER)),
            provisioned=bool(meta.get("provisioned")),
            message=self._message(uid, number),
            author=self._session.redacted(str(meta.get("updatedBy") or "")),
            updated=self._session.redacted(str(meta.get("updated") or "")),
        )
        return replace(stored, resource=lock.body) if lock else stored

    def _resource(self, uid: str) -> Stored | None:
        path = f"{self._resources()}/{_quoted(uid)}"
        response = self._session.request("GET", path)
        if response.status == _NOT_FOUND:
            return None
        self._check(response, f"dashboard {uid}")
        if not _is_valid(response.data, uid):
            msg = f"dashboard {uid}: Grafana returned no whole {API_VERSION} resource"
            raise GrafanaError(msg, status=response.status)
        return stored(response.data, self._session.redacted)

    def _resources(self) -> str:
        """Return the path of dashboards of the v2 model, or raise `NotServedError`."""
        if self._served is None:
            versions = None
            try:
                versions = self._session.request("GET", f"/apis/{GROUP}").at("versions")
            except GrafanaError as error:
                # Grafana before 12 has a page that says so.
                if error.status != _NOT_FOUND:
                    raise
            self._served = [
                version["version"]
                for version in (versions if isinstance(versions, list) else ())
                if isinstance(version, dict) and isinstance(version.get("version"), str)
            ]
        if VERSION not in self._served:
            found = self._session.redacted(", ".join(self._served)) or "none"
            msg = (
                f"this Grafana does not serve {API_VERSION} (it serves {found}), "
                "which takes Grafana 13 or later"
            )
            raise NotServedError(msg)
        if not self._namespace:
            response = self._session.request("GET", "/api/frontend/settings")
            found = response.text("namespace")
            self._namespace = found if re.fullmatch(_NAMESPACE, found) else "default"
        return f"/apis/{API_VERSION}/namespaces/{self._namespace}/dashboards"

    def save(self, desired: Board, base: Stored | None, folder: str) -> SaveResult:
        """
        Store *desired* in its model, as the version after *base*, in *folder*, out of
        which Grafana would move it otherwise. Raises `ConflictError`: *base* is not
        what is stored.
        """
        if desired.model == "v2":
            return self._save_v2(desired, base, folder)
        dashboard = {
            key: value
            for key, value in desired.body.items()
            if key not in ("id", "version")
        }
        if base is not None:
            dashboard["version"] = base.version
        response = self._session.request(
            "POST",
            "/api/dashboards/db",
            body={
                "dashboard": dashboard,
                "folderUid": "" if folder == ROOT_FOLDER else folder,
                "message": desired.message,
                "overwrite": False,
            },
        )
        self._check_saved(response, desired, conflict=_is_mismatch(response))
        if response.status == _ACCEPTED:
            return SaveResult(None, "", pending=True)
        return SaveResult(_number(response, "version"), response.text("url"))

    def _save_v2(self, desired: Board, base: Stored | None, folder: str) -> SaveResult:
        resource = written(desired, base, folder)
        method, path = "POST", self._resources()
        if "resourceVersion" in resource["metadata"]:
            method, path = "PUT", f"{path}/{_quoted(desired.uid)}"
        response = self._session.request(method, path, body=resource)
        # Another client has deleted it.
        other = response.status == _NOT_FOUND
        conflict = other and response.at("details", "name") == desired.uid
        self._check_saved(response, desired, conflict=conflict)
        if response.status == _ACCEPTED:
            return SaveResult(None, "", pending=True)
        number = _number(response, "metadata", "generation")
        return SaveResult(number, f"/d/{desired.uid}")

    def _check_saved(
        self, response: JsonResponse, desired: Board, *, conflict: bool
    ) -> None:
        if conflict or response.status == _EXISTS:
            raise ConflictError(self._session.shown(response), status=response.status)
        self._check(response, f"saving {desired.uid}", _OK, _CREATED, _ACCEPTED)

    def _check(self, response: JsonResponse, what: str, *right: int) -> None:
        if response.status not in (right or (_OK,)):
            raise self._session.refused(response, what)

    def _message(self, uid: str, number: int) -> str | None:
        """Return the message of version *number*, `None` if Grafana has none."""
        path = f"/api/dashboards/uid/{_quoted(uid)}/versions"
        listed = self._session.request("GET", f"{path}/{number}")
        if listed.status == _OK:
            return listed.text("message")
        several = self._session.request("GET", path, query={"limit": 1})
        data = several.data if several.status == _OK else None
        rows = several.at("versions") if isinstance(data, dict) else data
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and row.get("version") == number:
                return str(row.get("message") or "")
        return None


def _quoted(uid: str) -> str:
    return quote(uid, safe="")


def _number(response: JsonResponse, *keys: str) -> int | None:
    found = response.at(*keys)
    return found if isinstance(found, int) else None


def _is_mismatch(response: JsonResponse) -> bool:
    """Return whether the version lock held; 412 can also mean a plugin's dashboard."""
    return response.status == _PRECONDITION and response.text("status") in (
        "",
        "version-mismatch",
    )
