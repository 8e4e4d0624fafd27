"""
The part of the stand-in for Grafana that keeps dashboards of the v2 model: its new API.

What it does is taken from pkg/storage/unified/apistore/prepare.go and
pkg/registry/apis/dashboard of github.com/grafana/grafana. It is stricter than the real
one: a write that names no version, which would overwrite an edit, is a violation.
"""

import copy
import re
from collections.abc import Callable
from typing import Any

from tests.fakes import grafana_schema as schema
from tests.fakes.grafana_models import API_VERSION
from tests.fakes.grafana_rows import Quirks, RefusedError, Row
from tests.fakes.http import Reply


GROUP = "dashboard.grafana.app"
FOLDER = "grafana.app/folder"
MESSAGE = "grafana.app/message"
GRANT = "grafana.app/grant-permissions"

# By the first number of the release.
_SERVED = {
    "12": ("v1beta1", "v0alpha1", "v2alpha1", "v2beta1"),
    "13": ("v1", "v2", "v1beta1", "v0alpha1", "v2alpha1", "v2beta1"),
}
_METADATA = {
    *("name", "namespace", "uid", "resourceVersion", "generation", "labels"),
    *("creationTimestamp", "annotations", "managedFields"),
}


class Resources:
    """
    Answers requests to ``/apis``.

    Args:
        rows: the dashboards, which the classic API has, too.
        folders: titles by uid.
        quirks: of this release and installation.
        version: of Grafana.
        violations: where to note what no good client does.
        append: stores a version.
        new_row: makes an empty dashboard.
    """

    def __init__(
        self,
        rows: dict[str, Row],
        folders: dict[str, str],
        quirks: Quirks,
        *,
        version: str,
        violations: list[str],
        append: Callable[..., None],
        new_row: Callable[..., Row],
    ) -> None:
        self.rows, self.folders, self.quirks = rows, folders, quirks
        self.violations = violations
        self.grants: list[str] = []
        self.served = _SERVED.get(version.partition(".")[0], ())
        self._append, self._new_row = append, new_row

    def routes(self, json: Callable[[], dict[str, Any]], user: str) -> list[Any]:
        """Return method, path and handler of each route; *json* reads a body."""
        dashboards = rf"/apis/{GROUP}/([a-z0-9]+)/namespaces/([^/]+)/dashboards"
        return [
            ("GET", rf"/apis/{GROUP}", self._group),
            ("GET", rf"{dashboards}/([^/]+)", self._get),
            ("POST", dashboards, lambda *at: self._create(at, json(), user)),
            ("PUT", rf"{dashboards}/([^/]+)", lambda *at: self._put(at, json(), user)),
        ]

    def _group(self) -> Reply:
        if not self.served:
            raise RefusedError(404, "Not found")
        names = [{"groupVersion": f"{GROUP}/{v}", "version": v} for v in self.served]
        body = {"kind": "APIGroup", "apiVersion": "v1", "name": GROUP}
        return Reply(200, {**body, "versions": names, "preferredVersion": names[0]})

    def _check(self, version: str, namespace: str) -> None:
        if version not in self.served:
            # The library that serves it has no JSON for this.
            reply = Reply(404, "404 page not found", type="text/plain")
            raise RefusedError(404, "", reply=reply)
        if version != "v2":
            self.violations.append(f"a request for version {version}")
        if namespace != self.quirks.namespace:
            raise refused(403, "Forbidden", f"invalid namespace {namespace}")

    def _get(self, version: str, namespace: str, uid: str) -> Reply:
        self._check(version, namespace)
        if uid not in self.rows:
            raise missing(uid)
        return Reply(200, self.resource(self.rows[uid]))

    def _create(self, at: Any, body: dict[str, Any], user: str) -> Reply:
        self._check(*at)
        metadata, notes = self._checked(body)
        uid = metadata["name"]
        if metadata.get("resourceVersion"):
            message = "resourceVersion should not be set on objects to be created"
            raise refused(400, "BadRequest", message)
        if uid in self.rows:
            message = f'dashboards.{GROUP} "{uid}" already exists'
            raise refused(409, "AlreadyExists", message, uid)
        row = self._new_row(uid)
        if GRANT in notes:
            self.grants.append(uid)
        self._write(row, body["spec"], notes, user)
        return Reply(201, self.resource(row))

    def _put(self, at: Any, body: dict[str, Any], user: str) -> Reply:
        version, namespace, uid = at
        self._check(version, namespace)
        metadata, notes = self._checked(body)
        if metadata["name"] != uid:
            raise refused(400, "BadRequest", "the name of the object does not match")
        if uid not in self.rows:
            raise missing(uid)
        row = self.rows[uid]
        wanted = metadata.get("resourceVersion")
        if not wanted:
            self.violations.append("a PUT without resourceVersion")
        elif wanted != str(row.revision):
            message = (
                f'Operation cannot be fulfilled on dashboards.{GROUP} "{uid}": the '
                "object has been modified; please apply your changes to the latest "
                "version and try again"
            )
            raise refused(409, "Conflict", message, uid)
        if row.provisioned:
            raise refused(403, "Forbidden", "this resource is managed by a file")
        if lost := set(row.notes) - set(notes):
            self.violations.append(f"a PUT that drops {sorted(lost)}")
        self._write(row, body["spec"], notes, user)
        return Reply(200, self.resource(row))

    def _checked(self, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the metadata and annotations of *body*, if it may be written."""
        unknown = [f'unknown field "{one}"' for one in set(body) - _BODY]
        metadata = body.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            raise refused(400, "BadRequest", "name or generateName is required")
        unknown += [
            f'unknown field "metadata.{one}"' for one in set(metadata) - _METADATA
        ]
        unknown += schema.problems(body.get("spec"))
        if unknown:
            message = f"strict decoding error: {', '.join(unknown)}"
            raise refused(400, "BadRequest", message)
        if (body.get("apiVersion"), body.get("kind")) != (API_VERSION, "Dashboard"):
            raise refused(400, "BadRequest", "the API version does not match")
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", metadata["name"]):
            raise refused(422, "Invalid", "metadata.name: Invalid value")
        stored = schema.complete(body["spec"])
        if wrong := list(schema.invalid(stored)):
            message = f'Dashboard.{GROUP} "{metadata["name"]}" is invalid: {wrong}'
            raise refused(422, "Invalid", message, metadata["name"])
        refresh = re.fullmatch(r"(\d+)s", stored["timeSettings"].get("autoRefresh", ""))
        if refresh and int(refresh[1]) < self.quirks.min_refresh:
            raise refused(400, "BadRequest", "Dashboard refresh interval is too low")
        notes = dict(metadata.get("annotations") or {})
        if len(notes.get(MESSAGE, "")) > 500:
            raise refused(400, "BadRequest", "message too long, max 500 characters")
        if (folder := notes.get(FOLDER)) and folder not in self.folders:
            message = f'folders.folder.grafana.app "{folder}" not found'
            raise refused(404, "NotFound", message, folder)
        return metadata, notes

    def _write(
        self, row: Row, spec: dict[str, Any], notes: dict[str, str], user: str
    ) -> None:
        message = notes.get(MESSAGE, "")
        row.folder, row.v2 = notes.get(FOLDER, ""), True
        # What a client only says, and what the server says itself.
        row.notes = {
            key: value
            for key, value in notes.items()
            if key not in (MESSAGE, GRANT, FOLDER, *_AUDIT)
        }
        self._append(row, schema.complete(spec), message, user)

    def resource(self, row: Row) -> dict[str, Any]:
        now, first = row.current, row.versions[0]
        notes = {**row.notes, "grafana.app/createdBy": _user(first.author)}
        if row.generation > 1:
            notes["grafana.app/updatedBy"] = _user(now.author)
            notes["grafana.app/updatedTimestamp"] = "2026-11-20T08:00:00Z"
        if row.folder:
            notes[FOLDER] = row.folder
        if row.provisioned:
            notes["grafana.app/managedBy"] = self.quirks.manager
            notes["grafana.app/managerId"] = "boards"
        return {
            "kind": "Dashboard",
            "apiVersion": API_VERSION,
            "metadata": {
                "name": row.uid,
                "namespace": self.quirks.namespace,
                "uid": f"5f0c{row.id:04}-0000-4000-8000-000000000000",
                "resourceVersion": str(row.revision),
                "generation": row.generation,
                "creationTimestamp": "2026-11-19T08:00:00Z",
                "labels": {"grafana.app/deprecatedInternalID": str(row.id)},
                "annotations": notes,
            },
            "spec": copy.deepcopy(now.spec),
            "status": {},
        }


_BODY = {"apiVersion", "kind", "metadata", "spec", "status"}
_AUDIT = (
    *("grafana.app/createdBy", "grafana.app/updatedBy", "grafana.app/updatedTimestamp"),
    *("grafana.app/managedBy", "grafana.app/managerId"),
)


def refused(code: int, reason: str, message: str, name: str = "") -> RefusedError:
    """Return the error for an answer as the library of Kubernetes gives it."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    details = {"name": name, "group": GROUP} if name else {}
    body = {"status": "Failure", "message": message, "reason": reason, "code": code}
    reply = Reply(code, {**status, **body, "details": details})
    return RefusedError(code, message, reply=reply)


def missing(uid: str) -> RefusedError:
    """Return the error for a dashboard that is not there."""
    return refused(404, "NotFound", f'dashboards.{GROUP} "{uid}" not found', uid)


def _user(name: str) -> str:
    kind = "service-account" if name.startswith("sa-") else "user"
    return f"{kind}:{name}"
