"""
A Grafana to push to: a real HTTP server with the behaviour of the real one.

What it does is taken from Grafana's documentation of its HTTP API and from its
source; a behaviour that surprises names the file of github.com/grafana/grafana that
shows it. It is stricter than the real one: what no good client sends is kept in
`violations`.

People are played by methods (`edit`, `move`, `restore`), failures by `Fault`.
"""

import copy
import json
import re
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.grafana_models import as_classic, as_v2
from tests.fakes.grafana_resources import Resources
from tests.fakes.grafana_rows import (
    SAVE_KEYS,
    USERS,
    Quirks,
    RefusedError,
    Row,
    Version,
    validate,
)
from tests.fakes.http import FaultyServer, Reply, Seen


class FakeGrafana(FaultyServer):
    """
    A Grafana for the length of a ``with`` block.

    Args:
        path: sub-path that it is served under, such as ``/grafana``.
        model: in which people make dashboards by hand.
        tls: serve https with this.
    """

    def __init__(
        self,
        *,
        path: str = "",
        version: str = "",
        model: str = "classic",
        tls: ssl.SSLContext | None = None,
        quirks: Quirks | None = None,
    ) -> None:
        self.path, self.model = path, model
        self.version = version or {"classic": "11.4.0", "v2": "13.0.1"}[model]
        self.quirks = quirks or Quirks()
        self.rows: dict[str, Row] = {}
        self.folders: dict[str, str] = {}
        self.violations: list[str] = []
        self.annotations: dict[int, dict[str, Any]] = {}
        self.tokens = dict(USERS)
        self._next_id = 1
        self._revision = 1000
        self.resources = Resources(
            self.rows,
            self.folders,
            self.quirks,
            version=self.version,
            violations=self.violations,
            append=self._append,
            new_row=self._new_row,
        )
        super().__init__(self._answer, tls)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.port}{path}"

    # What tests look at.

    @property
    def writes(self) -> int:
        """The number of versions and folders there are: each write adds one."""
        with self.lock:
            return len(self.folders) + sum(len(r.versions) for r in self.rows.values())

    def body(self, uid: str) -> dict[str, Any]:
        """Return what is stored under *uid* now, as the classic model has it."""
        with self.lock:
            now = self.rows[uid].current
            return as_classic(now.data, uid) if now.v2 else copy.deepcopy(now.data)

    # What other people do.

    def put(
        self,
        body: dict[str, Any],
        *,
        folder: str = "",
        author: str = "alice",
        **row: Any,
    ) -> Row:
        """Let *author* make a dashboard by hand, or Grafana from a file."""
        with self.lock:
            made = self._new_row(body["uid"], folder, **row)
            made.v2 = row.get("v2", self.model == "v2")
            self._append(made, self._in_model(made, body), "", author)
            return made

    def edit(
        self, uid: str, *, author: str = "alice", message: str = "", **changes: Any
    ) -> None:
        """Let *author* change members of a dashboard and save it."""
        with self.lock:
            row = self.rows[uid]
            # Grafana's pages send the annotations that they have read.
            body = self._in_model(row, {**self.body(uid), **changes})
            self._append(row, body, message, author)

    def move(self, uid: str, folder: str) -> None:
        """Move a dashboard as another user, which creates no version."""
        with self.lock:
            row = self.rows[uid]
            row.moves += row.v2 and row.folder != folder
            row.folder = folder
            self._changed(row)

    def restore(self, uid: str, number: int, *, author: str = "alice") -> None:
        """
        Let *author* bring back an old version; the message is Grafana's
        (dashver.go, DashboardRestoreMessage).
        """
        with self.lock:
            row = self.rows[uid]
            old = next(one for one in row.versions if one.number == number)
            message = f"Restored from version {number}"
            # K8sDashboardV2API.restoreDashboardVersion sends no other annotations.
            row.notes = {}
            self._append(row, copy.deepcopy(old.data), message, author)

    # What it does itself.

    def _answer(self, seen: Seen, authorization: str) -> Reply:
        """Return the answer to one request."""
        self._check_headers(seen)
        parts = urlsplit(seen.target)
        if not parts.path.startswith(f"{self.path}/"):
            # A proxy in front sends other paths to another site.
            return Reply(404, "<html>not here</html>", type="text/html")
        path = parts.path[len(self.path) :]
        every = parse_qs(parts.query)
        query = {key: value[-1] for key, value in every.items()}
        try:
            return self._routed(seen, path, query, every.get("tags", []), authorization)
        except RefusedError as refused:
            return refused.reply

    def _check_headers(self, seen: Seen) -> None:
        if seen.method != "GET" and seen.headers.get("content-type") != (
            "application/json"
        ):
            self.violations.append(f"{seen.method} {seen.target} without content type")
        if seen.headers.get("accept") != "application/json":
            self.violations.append(f"{seen.method} {seen.target} without Accept")

    def _routed(
        self,
        seen: Seen,
        path: str,
        query: dict[str, str],
        tags: list[str],
        authorization: str,
    ) -> Reply:
        # Documented as open to everybody; pkg/api/http_server.go, apiHealthHandler.
        if (seen.method, path) == ("GET", "/api/health"):
            return Reply(
                200, {"database": "ok", "version": self.version, "commit": "x"}
            )
        user, role = self._who(authorization)
        routes: list[tuple[str, str, Callable[..., Reply]]] = [
            ("GET", r"/api/folders/([^/]+)", self._get_folder),
            ("GET", r"/api/search", lambda: self._search(query)),
            ("GET", r"/api/dashboards/uid/([^/]+)", self._get),
            ("GET", r"/api/dashboards/uid/([^/]+)/versions", self._versions),
            ("GET", r"/api/dashboards/uid/([^/]+)/versions/(\d+)", self._version),
            ("GET", r"/api/frontend/settings", self._settings),
            *self.resources.routes(lambda: self._json(seen), user),
            ("GET", r"/api/annotations", lambda: self._annotations(query, tags)),
            ("POST", r"/api/annotations", lambda: self._annotate(self._json(seen))),
            (
                "PATCH",
                r"/api/annotations/(\d+)",
                lambda number: self._patch(int(number), self._json(seen)),
            ),
            ("POST", r"/api/folders", lambda: self._make_folder(self._json(seen))),
            ("POST", r"/api/dashboards/db", lambda: self._save(self._json(seen), user)),
        ]
        for method, pattern, handle in routes:
            if method == seen.method and (found := re.fullmatch(pattern, path)):
                # Reading a history needs the right to save: pkg/api/dashboard.go.
                writes = method != "GET"
                if role != "Editor" and (writes or "/versions" in path):
                    raise RefusedError(
                        403,
                        "You'll need additional permissions to perform this action. "
                        "Permissions needed: dashboards:write",
                        title="Access denied",
                        accessErrorId="ACE0123456789",
                    )
                return handle(*found.groups())
        self.violations.append(f"no route for {seen.method} {path}")
        raise RefusedError(404, "Not found")

    def _who(self, authorization: str) -> tuple[str, str]:
        scheme, _, token = authorization.partition(" ")
        if scheme != "Bearer" or token not in self.tokens:
            # pkg/services/contexthandler: a token that is not known, or no longer.
            raise RefusedError(401, "Invalid API key")
        return self.tokens[token]

    def _json(self, seen: Seen) -> dict[str, Any]:
        try:
            body = json.loads(seen.body)
        except ValueError:
            raise RefusedError(400, "bad request data") from None
        if not isinstance(body, dict):
            raise RefusedError(400, "bad request data")
        return body

    def _settings(self) -> Reply:
        # pkg/api/frontendsettings.go; hundreds of other members.
        return Reply(200, {"namespace": self.quirks.namespace, "buildInfo": {}})

    def _annotate(self, body: dict[str, Any]) -> Reply:
        # pkg/api/annotations.go, PostAnnotation
        if unknown := set(body) - {"text", "tags", "time", "timeEnd", "dashboardUID"}:
            self.violations.append(f"unknown members: {sorted(unknown)}")
        if not body.get("text"):
            raise RefusedError(400, "Failed to save annotation: text field is empty")
        uid = body.get("dashboardUID")
        if uid and uid not in self.rows:
            raise RefusedError(404, "Dashboard not found")
        self.annotations[number := len(self.annotations) + 1] = body
        return Reply(200, {"message": "Annotation added", "id": number})

    def _annotations(self, query: dict[str, str], tags: list[str]) -> Reply:
        # pkg/services/annotations/annotationsimpl/xorm_store.go, Get
        if unknown := set(query) - {"type", "from", "to", "limit", "tags"}:
            self.violations.append(f"unknown parameters: {sorted(unknown)}")
        first, last = int(query["from"]), int(query["to"])
        found = [
            {"id": number, "dashboardUID": "", "alertId": 0, **body}
            for number, body in self.annotations.items()
            if body["time"] <= last
            and body["timeEnd"] >= first
            and set(tags) <= set(body["tags"])
        ]
        newest = sorted(found, key=lambda one: -one["timeEnd"])
        return Reply(200, newest[: int(query.get("limit", 100))])

    def _patch(self, number: int, body: dict[str, Any]) -> Reply:
        if unknown := set(body) - {"text", "tags", "time", "timeEnd"}:
            self.violations.append(f"unknown members: {sorted(unknown)}")
        if number not in self.annotations:
            raise RefusedError(404, "Could not find annotation to update")
        self.annotations[number] |= body
        return Reply(200, {"message": "Annotation patched"})

    def _get_folder(self, uid: str) -> Reply:
        # pkg/api/apierrors/folder.go
        if uid not in self.folders:
            raise RefusedError(404, "folder not found", status="not-found")
        return Reply(200, {"uid": uid, "title": self.folders[uid], "version": 1})

    def _make_folder(self, body: dict[str, Any]) -> Reply:
        if unknown := set(body) - {"uid", "title", "parentUid", "description"}:
            self.violations.append(f"unknown members of a folder: {sorted(unknown)}")
        uid, title = body.get("uid"), body.get("title")
        if not title:
            raise RefusedError(400, "folder title cannot be empty")
        if not isinstance(uid, str) or not re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", uid):
            raise RefusedError(400, "uid contains illegal characters")
        if uid in self.folders or title in self.folders.values():
            raise RefusedError(
                self.quirks.folder_conflict,
                "a folder with the same name already exists",
            )
        self.folders[uid] = title
        return Reply(200, {"uid": uid, "title": title, "version": 1})

    def _search(self, query: dict[str, str]) -> Reply:
        # Documented: limit at most 5000, pages from 1; "general" is the top level.
        limit, page = int(query.get("limit", 1000)), int(query.get("page", 1))
        if limit > 5000:
            raise RefusedError(422, "limit must not be above 5000")
        folder = query.get("folderUIDs", "")
        if folder != "general" and folder not in self.folders:
            return Reply(200, [])
        rows = sorted(
            (r for r in self.rows.values() if (r.folder or "general") == folder),
            key=lambda row: str(row.current.data.get("title")),
        )
        return Reply(
            200,
            [
                {"uid": r.uid, "title": r.current.data["title"], "type": "dash-db"}
                for r in rows[(page - 1) * limit : page * limit]
            ],
        )

    def _row(self, uid: str) -> Row:
        if uid not in self.rows:
            # pkg/services/dashboards/errors.go
            raise RefusedError(404, "Dashboard not found", status="not-found")
        return self.rows[uid]

    def _get(self, uid: str) -> Reply:
        row = self._row(uid)
        if row.v2:
            # What the classic API cannot show it refuses to (12 and later).
            raise RefusedError(
                406,
                "dashboard api version not supported, use "
                f"/apis/dashboard.grafana.app/{self.quirks.stored_version}/namespaces/"
                f"{self.quirks.namespace}/dashboards/{uid} instead",
            )
        now = row.current
        meta = {
            "version": now.number,
            "folderUid": row.folder,
            "folderTitle": self.folders.get(row.folder, "General"),
            "provisioned": row.provisioned,
            "updatedBy": now.author,
            "createdBy": row.versions[0].author,
            "updated": "2026-11-20T08:00:00Z",
            "canSave": True,
            "url": f"{self.path}/d/{uid}/a-slug",
        }
        return Reply(200, {"dashboard": now.data, "meta": meta})

    def _versions(self, uid: str) -> Reply:
        newest = self._row(uid).current
        return Reply(200, [self._version_meta(uid, newest, listed=True)])

    def _version(self, uid: str, number: str) -> Reply:
        for version in self._row(uid).versions:
            if version.number == int(number) and self.quirks.version_by_number:
                return Reply(200, self._version_meta(uid, version, listed=False))
        # pkg/api/dashboard.go, GetDashboardVersion
        raise RefusedError(
            500, f"Dashboard version {number} not found for dashboardId 1"
        )

    def _version_meta(self, uid: str, one: Version, *, listed: bool) -> dict[str, Any]:
        first = one.number == 1 and listed and self.quirks.list_hides_first_message
        return {
            "version": one.number,
            "uid": uid,
            "message": "Initial save" if first else one.message,
            "createdBy": one.author,
            "data": one.data,
        }

    def _save(self, body: dict[str, Any], user: str) -> Reply:
        if unknown := set(body) - SAVE_KEYS:
            self.violations.append(f"unknown members of a save: {sorted(unknown)}")
        if body.get("overwrite"):
            self.violations.append("a save with overwrite: true")
        if "folderUid" not in body:
            self.violations.append("a save without folderUid")
        try:
            return self._saved(body, user)
        except RefusedError:
            if self.quirks.gitops:
                return Reply(202, {"status": "pending", "message": "was broadcast"})
            raise

    def _saved(self, body: dict[str, Any], user: str) -> Reply:
        new = body.get("dashboard")
        if not isinstance(new, dict):
            raise RefusedError(400, "bad request data")
        validate(new, str(body.get("message") or ""), self.quirks)
        # Without a folder the dashboard goes, or moves, to the top level.
        folder = body.get("folderUid") or ""
        if folder and folder not in self.folders:
            raise RefusedError(
                400, "folder not found"
            )  # pkg/api/apierrors/dashboard.go
        row = self.rows.get(new["uid"])
        if new.get("id") and row is None:
            # An id says that it exists: pkg/services/dashboards/database/database.go.
            raise RefusedError(404, "Dashboard not found", status="not-found")
        if row is not None:
            self._check_lock(row, new, overwrite=bool(body.get("overwrite")))
        elif self.quirks.titles_unique and any(
            other.folder == folder and other.current.data["title"] == new["title"]
            for other in self.rows.values()
        ):
            raise RefusedError(
                412,
                "A dashboard with the same name in the folder already exists",
                status="name-exists",
            )
        if row is None:
            row = self._new_row(new["uid"], folder)
        elif row.v2:
            # github.com/grafana/mcp-grafana lost tabs in this way.
            self.violations.append("a classic save over a dashboard of the v2 model")
        row.folder, row.v2 = folder, False
        self._append(row, new, str(body.get("message") or ""), user)
        return Reply(
            200,
            {
                "status": "success",
                "id": row.id,
                "uid": row.uid,
                "url": f"{self.path}/d/{row.uid}/a-slug",
                "version": row.current.number,
                "slug": "a-slug",
                "folderUid": folder,
            },
        )

    def _check_lock(self, row: Row, new: dict[str, Any], *, overwrite: bool) -> None:
        if row.provisioned:
            raise RefusedError(400, "Cannot save provisioned dashboard")
        if new.get("id") not in (None, row.id):
            raise RefusedError(400, "A dashboard with the same uid already exists")
        if not overwrite and new.get("version", 0) != row.current.number:
            raise RefusedError(
                412,
                "The dashboard has been changed by someone else",
                status="version-mismatch",
            )

    def _append(
        self, row: Row, data: dict[str, Any], message: str, author: str
    ) -> None:
        """Store a version; what is not known is kept, id and version are Grafana's."""
        number = row.versions[-1].number + 1 if row.versions else 1
        stored = json.loads(json.dumps(data))
        if self.quirks.rewrite is not None:
            self.quirks.rewrite(stored)
        if not row.v2:
            stored |= {"id": row.id, "uid": row.uid, "version": number}
        row.versions.append(Version(number, stored, message, author, row.v2))
        self._changed(row)

    def _changed(self, row: Row) -> None:
        self._revision += 1
        row.revision = self._revision

    def _in_model(self, row: Row, body: dict[str, Any]) -> dict[str, Any]:
        """Return a classic *body* in the model of *row*."""
        return as_v2(body) if row.v2 else copy.deepcopy(body)

    def _new_row(self, uid: str, folder: str = "", **row: Any) -> Row:
        self.rows[uid] = Row(self._new_id(), uid, folder, [], **row)
        return self.rows[uid]

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id
