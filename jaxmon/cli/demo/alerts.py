"""Alerts that are active now, as Prometheus describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jaxmon.errors import CommandError


# What an alert is about, the most telling label first.
_SUBJECTS = (
    *("function", "loop", "route", "device", "uuid", "collector", "hook"),
    "instance",
)


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """
    One alert, whichever of its conditions holds.

    Attributes:
        name: of the alert, and of its runbook.
        severity: ``page``, ``ticket`` or ``info``.
        subject: what it is about, such as ``route=/complete``; may be empty.
        firing: whether it fires, rather than waits for its time to be over.
        since: when its condition began to hold.
    """

    name: str
    severity: str
    subject: str
    firing: bool
    since: datetime

    @property
    def state(self) -> str:
        """In Prometheus' word."""
        return "firing" if self.firing else "pending"

    def age(self) -> float:
        """Return the seconds since its condition began to hold."""
        return (datetime.now(UTC) - self.since).total_seconds()

    def __str__(self) -> str:
        text = f"{self.state}  {self.severity}  {self.name}  {self.subject}"
        return text.rstrip()


def active(described: Iterable[Mapping[str, Any]]) -> list[ActiveAlert]:
    """
    Return what Prometheus describes, firing alerts first, then pages, then the oldest.

    Alerts that differ in the windows of an objective only are one; those that merely
    mute others (``info``) are left out.

    Raises:
        CommandError: one is not described as Prometheus does it.
    """
    try:
        alerts = sorted(map(_alert, described), key=_urgency)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        msg = f"an alert of Prometheus is not described as it should be: {error!r}"
        raise CommandError(msg) from error
    found: dict[tuple[str, str, str], ActiveAlert] = {}
    for alert in alerts:
        if alert.severity != "info":
            found.setdefault((alert.name, alert.severity, alert.subject), alert)
    return list(found.values())


def _alert(described: Mapping[str, Any]) -> ActiveAlert:
    labels = described["labels"]
    subject = next((one for one in _SUBJECTS if labels.get(one)), None)
    return ActiveAlert(
        name=str(labels["alertname"]),
        severity=str(labels.get("severity", "")),
        subject=f"{subject}={labels[subject]}" if subject else "",
        firing=described["state"] == "firing",
        since=datetime.fromisoformat(described["activeAt"]).astimezone(UTC),
    )


def _urgency(alert: ActiveAlert) -> tuple[bool, bool, datetime]:
    return not alert.firing, alert.severity != "page", alert.since
