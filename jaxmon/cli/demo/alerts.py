"""Alerts that are active now, as Prometheus describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jaxmon.errors import CommandError


# Labels that identify the subject of an alert, the most specific first.
_SUBJECTS = (
    *("function", "loop", "route", "device", "uuid", "collector", "hook"),
    "instance",
)


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """
    One active alert.

    Attributes:
        name: of the alert, and of its runbook.
        severity: ``page``, ``ticket`` or ``info``.
        subject: what it is about, such as ``route=/complete``; may be empty.
        firing: whether it is firing rather than pending.
        since: when its condition became true.
    """

    name: str
    severity: str
    subject: str
    firing: bool
    since: datetime

    @property
    def state(self) -> str:
        """The state, as Prometheus calls it."""
        return "firing" if self.firing else "pending"

    def age(self) -> float:
        """Return the seconds since its condition began to hold."""
        return (datetime.now(UTC) - self.since).total_seconds()

    def __str__(self) -> str:
        text = f"{self.state}  {self.severity}  {self.name}  {self.subject}"
        return text.rstrip()


def active(described: Iterable[Mapping[str, Any]]) -> list[ActiveAlert]:
    """
    Parse Prometheus's active alerts; firing first, then pages, then oldest first.

    Alerts that differ only in their SLO window are merged; ``info`` alerts, which only
    inhibit others, are omitted.

    Raises:
        CommandError: an alert has an unexpected format.
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
        msg = f"Prometheus returned an invalid alert: {error!r}"
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
