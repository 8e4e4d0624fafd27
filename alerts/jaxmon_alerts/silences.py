"""
Deploy windows: silences in Alertmanager for the alerts that a deployment causes.

A window is a silence with equality matchers for a job, optionally for more labels, such
as its cluster, and for the label of those alerts. Pages never carry that label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from jaxmon.host.formats import durations
from jaxmon.host.http.session import MonitoringError, Session


SHORTEST, LONGEST = timedelta(minutes=1), timedelta(hours=4)
"""Bounds of a window, from when it was opened until it closes."""

_FIRST = ("job", "cluster", "namespace")

_OPEN = ("active", "pending")


@dataclass(frozen=True, slots=True)
class DeployWindow:
    """An open deploy window: a silence of alerts with the labels *scope*."""

    identity: str
    scope: Mapping[str, str]
    start: datetime
    end: datetime
    by: str
    comment: str

    @property
    def service(self) -> str:
        """The scope as text: ``job=web cluster=eu``."""
        return " ".join(f"{name}={value}" for name, value in self.scope.items())


class DeployWindows:
    """The deploy windows of one Alertmanager (0.25 or later), by *noise* labels."""

    def __init__(self, session: Session, noise: Mapping[str, str]) -> None:
        self._session = session
        self._noise = dict(noise)

    def open(self) -> list[DeployWindow]:
        """Return the open windows, by service, or raise a `MonitoringError`."""
        response = self._session.get("/api/v2/silences")
        silences = self._session.decoded(response)
        if response.status != HTTPStatus.OK or not isinstance(silences, list):
            reason = f"{response.status} for its silences"
            raise self._session.foreign(reason)
        found = [
            self._window(silence) for silence in silences if isinstance(silence, dict)
        ]
        return sorted(
            filter(None, found), key=lambda window: (window.service, window.start)
        )

    def of(self, scope: Mapping[str, str]) -> list[DeployWindow]:
        """Return the open windows of exactly *scope*; raises as `open` does."""
        return [window for window in self.open() if window.scope == dict(scope)]

    def start(
        self,
        scope: Mapping[str, str],
        length: timedelta,
        *,
        by: str,
        comment: str,
        now: datetime | None = None,
    ) -> DeployWindow:
        """
        Open a window that closes by itself after *length*, or extend the open one to
        that; it is never shortened, nor open for more than `LONGEST` in all. Raises
        `MonitoringError`: no response, not an Alertmanager, or it rejects this.
        """
        now = now or datetime.now(UTC)
        open_windows = self.of(scope)
        start, end, identity = now, now + length, ""
        if open_windows:
            first = open_windows[0]
            start, identity = first.start, first.identity
            end = min(max(end, first.end), first.start + LONGEST)
        window = DeployWindow(identity, dict(scope), start, end, by, comment)
        return replace(window, identity=self._put(window))

    def stop(self, scope: Mapping[str, str]) -> list[DeployWindow]:
        """Close the windows of exactly *scope*; return them. Raises as `start` does."""
        open_windows = self.of(scope)
        for window in open_windows:
            self._expire(window)
        return open_windows

    def _put(self, window: DeployWindow) -> str:
        document = {
            **({"id": window.identity} if window.identity else {}),
            "matchers": [
                {"name": name, "value": value, "isRegex": False, "isEqual": True}
                for name, value in {**window.scope, **self._noise}.items()
            ],
            "startsAt": window.start.isoformat(),
            "endsAt": window.end.isoformat(),
            "createdBy": window.by,
            "comment": window.comment,
        }
        response = self._session.post("/api/v2/silences", document)
        if response.status != HTTPStatus.OK:
            text = self._session.redacted(response.body.decode(errors="replace"))
            msg = f"Alertmanager rejected the window: {response.status} {text}"
            raise MonitoringError(msg)
        created = self._session.decoded(response)
        found = created.get("silenceID") if isinstance(created, dict) else None
        if not isinstance(found, str):
            reason = "no silenceID for a new silence"
            raise self._session.foreign(reason)
        return found

    def _expire(self, window: DeployWindow) -> None:
        path = f"/api/v2/silence/{quote(window.identity, safe='')}"
        response = self._session.delete(path)
        # It may have ended by itself since it was listed.
        if response.status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
            text = self._session.redacted(response.body.decode(errors="replace"))
            msg = f"Alertmanager did not close the window: {response.status} {text}"
            raise MonitoringError(msg)

    def _window(self, silence: Mapping[str, Any]) -> DeployWindow | None:
        """Return *silence* as a window, `None` if it is another one or has ended."""
        status = silence.get("status")
        state = status.get("state") if isinstance(status, dict) else None
        values = _equalities(silence.get("matchers"))
        if state not in _OPEN or values is None or "job" not in values:
            return None
        if not self._noise.items() <= values.items():
            return None
        first = [name for name in _FIRST if name in values]
        others = sorted(values.keys() - self._noise.keys() - set(first))
        scope = {name: values[name] for name in (*first, *others)}
        try:
            return DeployWindow(
                identity=str(silence["id"]),
                scope=scope,
                start=durations.moment(str(silence["startsAt"])),
                end=durations.moment(str(silence["endsAt"])),
                by=str(silence.get("createdBy") or ""),
                comment=str(silence.get("comment") or ""),
            )
        except (KeyError, ValueError):
            reason = "a silence without identity or times"
            raise self._session.foreign(reason) from None


def _equalities(matchers: Any) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for matcher in matchers if isinstance(matchers, Iterable) else ():
        if not isinstance(matcher, dict) or matcher.get("isRegex"):
            return None
        if matcher.get("isEqual") is False:
            return None
        found[str(matcher.get("name"))] = str(matcher.get("value"))
    return found
