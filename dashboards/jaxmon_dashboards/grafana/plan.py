"""
Decides what a push must do for each dashboard.

Nothing here connects to Grafana: the same observation always yields the same decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import unified_diff
from enum import StrEnum

from jaxmon_dashboards.grafana.content import (
    TAG,
    Board,
    digest,
    is_tagged,
    lines,
    pushed_digest,
)
from jaxmon_dashboards.grafana.models import Observed, Stored, Unreadable, shown


class Relation(StrEnum):
    """How a dashboard in Grafana relates to the desired one."""

    CREATE = "create"
    UNCHANGED = "unchanged"
    UPDATE = "update"
    DRIFTED = "drifted"
    FOREIGN = "foreign"
    PROVISIONED = "provisioned"
    V2 = "v2"
    UNKNOWN = "unknown"


_WRITTEN = frozenset({Relation.CREATE, Relation.UPDATE})


@dataclass(frozen=True)
class PlannedStep:
    """
    One dashboard, what Grafana has under its uid, and how they relate.

    Args:
        desired: in the model in which it would be written.
        reason: why it is not written; ``""`` if it is, or need not be.
    """

    desired: Board
    observed: Observed
    state: Relation
    reason: str = ""

    def writes(self, *, force: bool = False) -> bool:
        """
        Return whether a push writes; *force* accepts edited dashboards, and nothing
        else.
        """
        return self.state in _WRITTEN or (force and self.state is Relation.DRIFTED)

    def diff(self) -> list[str]:
        """Return a unified diff, stored to desired; empty if nothing differs."""
        uid, stored = self.desired.uid, self.observed
        found, name = [], f"{uid} in Grafana: none"
        if isinstance(stored, Stored):
            found = lines(stored.body)
            name = f"{uid} in Grafana, version {stored.version}"
        desired = lines(self.desired.body)
        return list(
            unified_diff(found, desired, name, f"{uid} as generated", lineterm="")
        )


def decide(
    desired: Board, observed: Observed, *, folder: str, taken: Mapping[str, str]
) -> PlannedStep:
    """
    Return the step for one dashboard.

    Args:
        desired: the dashboard to be stored.
        observed: what is stored under its uid.
        folder: uid of the folder that it should be in.
        taken: uids of that folder's dashboards by title.
    """
    if desired.twin and isinstance(observed, Stored) and observed.model == "v2":
        desired = desired.twin
    state, reason = Relation.CREATE, ""
    if isinstance(observed, Unreadable):
        state = Relation.V2
        reason = f"stored in another model than the classic: {observed.reason}"
    elif observed is not None:
        state, reason = _judged(desired, observed, folder)
    other = taken.get(desired.title, desired.uid)
    if state in _WRITTEN and other != desired.uid and not _has_title(observed, desired):
        state = Relation.FOREIGN
        reason = (
            f"the folder has another dashboard with this title, uid {other}; "
            "rename or move that one"
        )
    return PlannedStep(desired, observed, state, reason)


def _has_title(observed: Observed, desired: Board) -> bool:
    return (
        isinstance(observed, Stored)
        and shown(observed.body).get("title") == desired.title
    )


def _judged(desired: Board, observed: Stored, folder: str) -> tuple[Relation, str]:
    if observed.model == "v2" and desired.model == "classic":
        return Relation.V2, (
            "stored in Grafana's v2 model, which a classic dashboard would downgrade; "
            "push it in that model: --format auto or v2, or a file of that model"
        )
    stored = digest(observed.body)
    if stored == desired.digest and observed.folder == folder:
        return Relation.UNCHANGED, ""
    if observed.provisioned:
        return Relation.PROVISIONED, _keeper(observed)
    if not is_tagged(observed.body):
        return Relation.FOREIGN, (
            f"an existing dashboard with this UID lacks the tag {TAG}; delete it, "
            "or add that tag to treat it as edited"
        )
    reason = _drift(observed, stored, folder)
    return (Relation.DRIFTED, reason) if reason else (Relation.UPDATE, "")


def _drift(observed: Stored, stored: str, folder: str) -> str:
    """Return a description of changes since the last push, ``""`` if none."""
    if observed.message is None:
        return "the token may not read the version history, so edits cannot be detected"
    pushed = pushed_digest(observed.message)
    if pushed != stored:
        if pushed is None or observed.later:
            return _saved_since(observed)
        return f"version {observed.version} is not what the last push wrote"
    if observed.folder != folder:
        return f"it is in folder {observed.folder}, not in {folder}"
    return _saved_since(observed) if observed.later else ""


def _keeper(observed: Stored) -> str:
    if observed.manager:
        return f"managed by {observed.manager}, which allows no edits; change it there"
    return (
        "provisioned from a file on the Grafana server; change it there, or "
        "remove it there to allow pushing"
    )


def _saved_since(observed: Stored) -> str:
    who = f" by {observed.author}" if observed.author else ""
    when = f" on {observed.updated[:10]}" if observed.updated else ""
    return f"version {observed.version} was saved{who}{when}, not by a push"
