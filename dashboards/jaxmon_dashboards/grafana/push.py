"""
Plans a push and applies it with optimistic locking.

A save names the version that it replaces, and Grafana rejects it if another one was
saved since. Nothing is ever overwritten without that lock, even with *force*: that only
accepts the state seen when planning, after backing it up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import unified_diff
from enum import StrEnum
from itertools import count
from pathlib import Path

from jaxmon.host.files import whole as whole_file
from jaxmon_dashboards.grafana.client import ConflictError, Grafana, NotServedError
from jaxmon_dashboards.grafana.content import (
    ROOT_FOLDER,
    TAG,
    Board,
    Model,
    Observed,
    Stored,
    Unreadable,
    digest,
    is_tagged,
    lines,
    pushed_digest,
    shown,
)
from jaxmon_dashboards.grafana.session import GrafanaError


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
    """A dashboard as it would be written, what Grafana has, and why not."""

    desired: Board
    observed: Observed
    state: Relation
    reason: str = ""

    def writes(self, *, force: bool = False) -> bool:
        """Return whether a push writes; *force* accepts edited dashboards."""
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
    """Return the step for a dashboard in *folder*, where titles are *taken* by uids."""
    if desired.twin and isinstance(observed, Stored) and observed.model == "v2":
        desired = desired.twin
    state, reason = Relation.CREATE, ""
    if isinstance(observed, Unreadable):
        state = Relation.V2
        reason = f"stored in another model than the classic: {observed.reason}"
    elif observed is not None:
        state, reason = _judged(desired, observed, folder)
    other = taken.get(desired.title, desired.uid)
    has_title = (
        isinstance(observed, Stored)
        and shown(observed.body).get("title") == desired.title
    )
    if state in _WRITTEN and other != desired.uid and not has_title:
        state = Relation.FOREIGN
        reason = (
            f"the folder has another dashboard with this title, uid {other}; "
            "rename or move that one"
        )
    return PlannedStep(desired, observed, state, reason)


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


class Outcome(StrEnum):
    """The outcome for one dashboard."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    PLANNED = "planned"
    PENDING = "pending"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Folder:
    """Where the dashboards go; created with that title if missing."""

    uid: str
    title: str


@dataclass(frozen=True)
class PushPlan:
    """What a push would do, in order; titles in the folder are *taken* by uids."""

    folder: Folder
    folder_missing: bool
    steps: tuple[PlannedStep, ...]
    taken: Mapping[str, str] = field(default_factory=dict, repr=False)

    def makes_folder(self, *, force: bool = False) -> bool:
        """Return whether applying it creates the folder."""
        return self.folder_missing and any(
            step.writes(force=force) for step in self.steps
        )


@dataclass(frozen=True)
class PushResult:
    """What was found and done for one dashboard, in a model, and why or why not."""

    uid: str
    title: str
    state: Relation
    outcome: Outcome
    model: Model = "classic"
    reason: str = ""
    version: int | None = None
    url: str = ""
    backup: Path | None = None


def make_plan(
    grafana: Grafana, dashboards: Sequence[Board], folder: Folder
) -> PushPlan:
    """Return what must be done; only reads. `GrafanaError`, `NotServedError`."""
    missing = folder.uid != ROOT_FOLDER and grafana.folder(folder.uid) is None
    taken = {} if missing else grafana.titles(folder.uid)
    steps = []
    for desired in dashboards:
        try:
            observed = _observed(grafana, desired)
        except NotServedError:
            raise
        except GrafanaError as error:
            if error.status in (None, 401):
                raise
            step = PlannedStep(desired, None, Relation.UNKNOWN, str(error))
        else:
            step = decide(desired, observed, folder=folder.uid, taken=taken)
        steps.append(step)
    return PushPlan(folder, missing, tuple(steps), taken)


def _observed(grafana: Grafana, desired: Board) -> Observed:
    return grafana.dashboard(desired.uid, v2=desired.model == "v2")


@dataclass
class Push:
    """Carries out a plan; *force* replaces edited dashboards, after a backup."""

    grafana: Grafana
    force: bool = False
    backup_dir: Path = Path()
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def apply(self, plan: PushPlan) -> list[PushResult]:
        """Return the outcome for each dashboard; `GrafanaError` without the folder."""
        if plan.makes_folder(force=self.force):
            self._make_folder(plan.folder)
        return [self._applied(step, plan) for step in plan.steps]

    def preview(self, plan: PushPlan) -> list[PushResult]:
        """Return what `apply` would find for each dashboard; writes nothing."""
        return [
            replace(unwritten(step), outcome=Outcome.PLANNED)
            if step.writes(force=self.force)
            else unwritten(step)
            for step in plan.steps
        ]

    def _make_folder(self, folder: Folder) -> None:
        try:
            self.grafana.create_folder(folder.uid, folder.title)
        except ConflictError as error:
            if self.grafana.folder(folder.uid) is not None:
                return  # another client created it at the same time
            msg = (
                f"folder {folder.uid} cannot be created ({error}); if there is "
                f"another folder with the title {folder.title!r}, give its UID "
                "with --folder"
            )
            raise GrafanaError(msg, status=error.status) from error

    def _applied(self, step: PlannedStep, plan: PushPlan) -> PushResult:
        if not step.writes(force=self.force):
            return unwritten(step)
        copy: Path | None = None
        try:
            if isinstance(step.observed, Stored) and step.state is Relation.DRIFTED:
                copy = self._back_up(step.observed, step.desired.uid)
            result = self._save(step, plan)
        except GrafanaError as error:
            result = _failed(step, str(error))
        except OSError as error:
            result = _failed(step, f"backup failed, so not replaced: {error}")
        return replace(result, backup=copy)

    def _back_up(self, stored: Stored, uid: str) -> Path:
        """Write *stored* to a new private file that Grafana can import."""
        self.backup_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        stem = f"{uid}-v{stored.version}-{self.now():%Y%m%dT%H%M%SZ}"
        text = json.dumps(stored.body, indent=2, ensure_ascii=False) + "\n"
        # Of a lone surrogate that is the escape that JSON has for it.
        data = text.encode("utf-8", "backslashreplace")
        for number in count(1):
            name = f"{stem}.json" if number == 1 else f"{stem}-{number}.json"
            path = self.backup_dir / name
            with suppress(FileExistsError):
                whole_file.write(path, data, private=True, replace=False)
                return path
        raise AssertionError(stem)  # numbers do not end

    def _save(self, step: PlannedStep, plan: PushPlan) -> PushResult:
        """Save under the lock; what another client has saved since is kept."""
        try:
            return self._save_once(step, plan.folder)
        except ConflictError:
            observed = _observed(self.grafana, step.desired)
        again = decide(step.desired, observed, folder=plan.folder.uid, taken=plan.taken)
        reason = f"changed during the push: {again.reason or 'push again'}"
        if again.state is Relation.UNCHANGED:
            reason = "already pushed, by this or a concurrent push"
        return replace(unwritten(again), reason=reason)

    def _save_once(self, step: PlannedStep, folder: Folder) -> PushResult:
        desired = step.desired
        base = step.observed if isinstance(step.observed, Stored) else None
        saved = self.grafana.save(desired, base, folder.uid)
        if saved.pending:
            reason = "not stored: Grafana requires approval"
            return replace(_result(step, Outcome.PENDING), reason=reason)
        outcome = Outcome.CREATED if base is None else Outcome.UPDATED
        # Grafana gives the path with or without its sub-path.
        start = saved.url.find("/d/")
        url = f"{self.grafana.url}{saved.url[start:]}" if start >= 0 else ""
        return replace(_result(step, outcome), version=saved.version, url=url)


def unwritten(step: PlannedStep) -> PushResult:
    """Return the result of a step for which nothing is written."""
    stored = step.observed
    outcomes = {Relation.UNCHANGED: Outcome.UNCHANGED, Relation.UNKNOWN: Outcome.FAILED}
    return replace(
        _result(step, outcomes.get(step.state, Outcome.REFUSED)),
        reason=step.reason,
        version=stored.version if isinstance(stored, Stored) else None,
    )


def _failed(step: PlannedStep, reason: str) -> PushResult:
    return replace(_result(step, Outcome.FAILED), reason=reason)


def _result(step: PlannedStep, outcome: Outcome) -> PushResult:
    desired = step.desired
    return PushResult(desired.uid, desired.title, step.state, outcome, desired.model)
