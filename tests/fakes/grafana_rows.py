"""What the stand-in for Grafana stores, and in what Grafanas differ."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.grafana_models import API_VERSION, as_v2
from tests.fakes.http import Reply


TOKEN = "glsa_kuKuVu0aH4zDoNotLeakMe_8f1a2b3c"  # noqa: S105 - opens this double only
VIEWER = "glsa_viewerMayOnlyLook_00000000"
# Name and role of whom a token is for.
USERS = {TOKEN: ("sa-1-jaxmon", "Editor"), VIEWER: ("sa-2-look", "Viewer")}

SAVE_KEYS = {"dashboard", "folderUid", "message", "overwrite"}


@dataclass
class Version:
    """
    One version of a dashboard.

    Args:
        data: a classic body, or a spec of the v2 model.
    """

    number: int
    data: dict[str, Any]
    message: str
    author: str
    v2: bool = False

    @property
    def body(self) -> dict[str, Any]:
        """The classic body, or the resource around the spec."""
        if not self.v2:
            return self.data
        return {"apiVersion": API_VERSION, "kind": "Dashboard", "spec": self.data}

    @property
    def spec(self) -> dict[str, Any]:
        """What the new API shows of it; of a classic body, only what is in a list."""
        if self.v2:
            return self.data
        return as_v2({key: self.data[key] for key in ("uid", "title", "tags")})


@dataclass
class Row:
    """
    One dashboard with its history.

    Args:
        v2: it is stored in the v2 model.
        moves: changes of its folder.
        notes: annotations by clients.
        revision: changes whenever anything of it does.
    """

    id: int
    uid: str
    folder: str
    versions: list[Version]
    provisioned: bool = False
    v2: bool = False
    moves: int = 0
    notes: dict[str, str] = field(default_factory=dict)
    revision: int = 0

    @property
    def generation(self) -> int:
        """How often its spec or folder was written."""
        return self.current.number + self.moves

    @property
    def current(self) -> Version:
        return self.versions[-1]


@dataclass(frozen=True)
class Quirks:
    """
    In what releases and installations of Grafana differ.

    Args:
        list_hides_first_message: pkg/api/dashboard.go, GetDashboardVersions, calls the
            first version "Initial save" in the list whatever its message is.
        version_by_number: releases that keep dashboards in the new storage looked
            versions up by resource version and found none by number
            (pkg/services/dashboardversion/dashverimpl/dashver.go).
        gitops: pkg/api/dashboard.go, postDashboard: with a gitops observer a save
            that fails is answered with 202 and stored nowhere.
        titles_unique: releases to 10 (and some 11) refuse a second dashboard of
            the same title in a folder; with overwrite they replaced the other one.
        folder_conflict: 409 by pkg/api/apierrors/folder.go, 412 by the documentation.
        rewrite: changes what is stored, as a migration on the server does.
        min_refresh: no faster refresh is accepted.
        namespace: ``default``, ``org-N`` or ``stacks-N``.
        stored_version: of the new API, in which dashboards of the v2 model are stored.
        manager: what keeps provisioned dashboards.
    """

    list_hides_first_message: bool = True
    version_by_number: bool = True
    gitops: bool = False
    titles_unique: bool = False
    folder_conflict: int = 409
    rewrite: Callable[[dict[str, Any]], None] | None = None
    min_refresh: int = 5
    namespace: str = "default"
    stored_version: str = "v2"
    manager: str = "classic-file-provisioning"


class RefusedError(Exception):
    """Ends the handling of a request with an answer."""

    def __init__(
        self, code: int, message: str, /, *, reply: Reply | None = None, **more: Any
    ) -> None:
        super().__init__(message)
        self.reply = reply or Reply(code, {"message": message, **more})


def validate(new: dict[str, Any], message: str, quirks: Quirks) -> None:
    """Refuse what pkg/services/dashboards/errors.go has an error for."""
    title, uid = new.get("title"), new.get("uid")
    if not title or not str(title).strip():
        raise RefusedError(400, "Dashboard title cannot be empty", status="empty-name")
    if len(title) > 5000:
        reason = "Dashboard title cannot contain more than 5 000 characters"
        raise RefusedError(400, reason, status="title-too-long")
    if not isinstance(uid, str) or not re.fullmatch(r"[a-zA-Z0-9_-]*", uid):
        raise RefusedError(400, "uid contains illegal characters")
    if len(uid) > 40:
        raise RefusedError(400, "uid too long, max 40 characters")
    if len(message) > 500:
        raise RefusedError(400, "message too long, max 500 characters")
    refresh = re.fullmatch(r"(\d+)s", str(new.get("refresh") or ""))
    if refresh and int(refresh[1]) < quirks.min_refresh:
        raise RefusedError(400, "Dashboard refresh interval is too low")
