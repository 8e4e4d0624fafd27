"""The part of Grafana's HTTP APIs that dashboards need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn
from urllib.parse import quote

from jaxmon_dashboards.grafana import resources
from jaxmon_dashboards.grafana.content import Board
from jaxmon_dashboards.grafana.models import (
    ROOT_FOLDER,
    Observed,
    SaveResult,
    Stored,
    Unreadable,
)
from jaxmon_dashboards.grafana.resources import Apis, NotServedError
from jaxmon_dashboards.grafana.session import GrafanaError, GrafanaSession, JsonResponse


_PAGE = 500
_MAX_PAGES = 200

_OK, _CREATED, _ACCEPTED = 200, 201, 202
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
_NOT_ACCEPTABLE, _EXISTS, _PRECONDITION = 406, 409, 412


class ConflictError(GrafanaError):
    """The object was changed or created by someone else in the meantime."""


class Grafana:
    """One Grafana, as a service account sees it; methods raise `GrafanaError`."""

    def __init__(self, session: GrafanaSession) -> None:
        self._session = session
        self._apis = Apis(session)

    @property
    def url(self) -> str:
        """Its URL, without a trailing slash."""
        return self._session.place

    def health(self) -> str:
        """Return Grafana's version, ``"unknown"`` if it is hidden."""
        response = self._session.request("GET", "/api/health")
        if response.status != _OK:
            self._refused("health", response)
        return self._session.redacted(response.text("version")) or "unknown"

    def folder(self, uid: str) -> str | None:
        """Return the title of the folder *uid*, `None` if it does not exist."""
        response = self._session.request("GET", f"/api/folders/{_quoted(uid)}")
        if response.status == _NOT_FOUND:
            return None
        if response.status != _OK:
            self._refused(f"folder {uid}", response)
        return response.text("title")

    def create_folder(self, uid: str, title: str) -> None:
        """Create a folder; `ConflictError` if its uid or title is taken."""
        response = self._session.request(
            "POST", "/api/folders", body={"uid": uid, "title": title}
        )
        if response.status in (_EXISTS, _PRECONDITION):
            raise ConflictError(self._text(response), status=response.status)
        if response.status != _OK:
            self._refused(f"creating folder {uid}", response)

    def titles(self, folder: str) -> dict[str, str]:
        """Return the uids of the dashboards in *folder* by title."""
        found: dict[str, str] = {}
        query: dict[str, str | int] = {"type": "dash-db", "folderUIDs": folder}
        for page in range(1, _MAX_PAGES + 1):
            query |= {"limit": _PAGE, "page": page}
            response = self._session.request("GET", "/api/search", query=query)
            if response.status != _OK or not isinstance(response.data, list):
                self._refused(f"listing folder {folder}", response)
            for dashboard in response.data:
                if isinstance(dashboard, dict):
                    uid = self._session.redacted(str(dashboard.get("uid")))
                    found[str(dashboard.get("title"))] = uid
            if len(response.data) < _PAGE:
                return found
        msg = f"folder {folder} has more than {_PAGE * _MAX_PAGES} dashboards"
        raise GrafanaError(msg)

    def dashboard(self, uid: str, *, v2: bool = False) -> Observed:
        """
        Return the dashboard *uid*, in the model in which it is stored. Raises
        `NotServedError`: it will be saved as *v2*, which this Grafana does not have.
        """
        # Before the rest: what changes after this no longer fits the lock.
        lock = self._resource(uid) if v2 else None
        response = self._session.request("GET", f"/api/dashboards/uid/{_quoted(uid)}")
        if response.status == _NOT_FOUND:
            return None
        if response.status == _NOT_ACCEPTABLE:
            self._apis.heed(response)
            return lock or self._stored_as_v2(uid)
        if response.status != _OK or not _has_dashboard(response.data):
            self._refused(f"dashboard {uid}", response)
        body, meta = response.data["dashboard"], response.data["meta"]
        number = body.get("version", meta.get("version"))
        if not isinstance(number, int):
            self._refused(f"dashboard {uid} without a version", response)
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

    def _stored_as_v2(self, uid: str) -> Observed:
        try:
            return self._resource(uid)
        except NotServedError as error:
            return Unreadable(str(error))

    def _resource(self, uid: str) -> Stored | None:
        response = self._apis.get(uid)
        if response.status == _NOT_FOUND:
            return None
        if response.status != _OK:
            self._refused(f"dashboard {uid}", response)
        return resources.stored(response.data, self._session.redacted)

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
        if response.status == _EXISTS or _is_mismatch(response):
            raise ConflictError(self._text(response), status=response.status)
        if response.status == _ACCEPTED:
            return SaveResult(None, "", pending=True)
        if response.status != _OK:
            self._refused(f"saving {desired.uid}", response)
        return SaveResult(_number(response, "version"), response.text("url"))

    def _save_v2(self, desired: Board, base: Stored | None, folder: str) -> SaveResult:
        response = self._apis.put(resources.written(desired, base, folder))
        if response.status == _EXISTS or _is_gone(response, desired.uid):
            raise ConflictError(self._text(response), status=response.status)
        if response.status == _ACCEPTED:
            return SaveResult(None, "", pending=True)
        if response.status not in (_OK, _CREATED):
            self._refused(f"saving {desired.uid}", response)
        return SaveResult(
            _number(response, "metadata", "generation"), f"/d/{desired.uid}"
        )

    def _message(self, uid: str, number: int) -> str | None:
        """
        Return the message of version *number*, `None` if Grafana does not return it: in
        the list, old releases have another for the first version; by number, new ones
        find none.
        """
        path = f"/api/dashboards/uid/{_quoted(uid)}/versions"
        listed = self._session.request("GET", f"{path}/{number}")
        if listed.status == _OK:
            return listed.text("message")
        several = self._session.request("GET", path, query={"limit": 1})
        data = several.data if several.status == _OK else None
        rows = data.get("versions") if isinstance(data, dict) else data
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and row.get("version") == number:
                return str(row.get("message") or "")
        return None

    def _text(self, response: JsonResponse) -> str:
        text = self._session.redacted(response.text("message"))
        return f"{response.status} {text}".rstrip()

    def _refused(self, what: str, response: JsonResponse) -> NoReturn:
        text = self._text(response)
        if response.status == _UNAUTHORIZED:
            msg = (
                f"Grafana rejected the token ({text}); create one for a service "
                "account with the Editor role"
            )
        elif response.status == _FORBIDDEN:
            msg = (
                f"{what}: permission denied ({text}); the service account needs "
                "the Editor role"
            )
        else:
            msg = f"{what}: Grafana returned {text}"
        raise GrafanaError(msg, status=response.status)


def _quoted(uid: str) -> str:
    return quote(uid, safe="")


def _has_dashboard(data: Any) -> bool:
    return (
        isinstance(data, dict)
        and isinstance(data.get("dashboard"), dict)
        and isinstance(data.get("meta"), dict)
    )


def _number(response: JsonResponse, *keys: str) -> int | None:
    found = response.data
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, int) else None


def _is_gone(response: JsonResponse, uid: str) -> bool:
    """Return whether the dashboard itself was not found, rather than its folder."""
    data = response.data if isinstance(response.data, dict) else {}
    details = data.get("details")
    return (
        response.status == _NOT_FOUND
        and isinstance(details, dict)
        and details.get("name") == uid
    )


def _is_mismatch(response: JsonResponse) -> bool:
    """Return whether the version lock held; 412 can also mean a plugin's dashboard."""
    return response.status == _PRECONDITION and response.text("status") in (
        "",
        "version-mismatch",
    )
