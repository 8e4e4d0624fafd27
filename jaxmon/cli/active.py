"""Alerts that are active now, as lines of text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jaxmon.cli.overview import Style, clock, shortened
from jaxmon.errors import CommandError


# What an alert is about, the most telling label first.
_SUBJECTS = (
    *("function", "loop", "route", "device", "uuid", "collector", "hook"),
    "instance",
)
_INDENT = "  "
_LEAST_WIDTH = 80
_MOST = 6
_NAME, _STATE, _SEVERITY, _SINCE = 31, 9, 10, 9


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
    def told(self) -> str:
        """What it is, in a line."""
        state = "firing" if self.firing else "pending"
        return f"{state}  {self.severity}  {self.name}  {self.subject}".rstrip()


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


def lines(
    alerts: Sequence[ActiveAlert], *, width: int, style: Style, most: int = _MOST
) -> list[str]:
    """Return a table of at most *most* alerts, and where to read about the first."""
    if not alerts:
        return [style.quiet(f"{_INDENT}no alerts")]
    about = max(width, _LEAST_WIDTH) - len(_INDENT) - _NAME - _STATE - _SEVERITY
    about -= _SINCE
    heading = f"{'ALERT':<{_NAME}}{'STATE':<{_STATE}}{'SEVERITY':<{_SEVERITY}}"
    heading += f"{'ABOUT':<{about}}{'SINCE':>{_SINCE}}"
    table = [style.strong(f"{_INDENT}{heading}")]
    table += [_row(one, about, style) for one in alerts[:most]]
    if rest := len(alerts) - most:
        table += [style.quiet(f"{_INDENT}{rest} more")] if rest > 0 else []
    hint = f"{_INDENT}{style.quiet('what to do:')} jaxmon runbook show {alerts[0].name}"
    return [*table, hint]


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


def _row(alert: ActiveAlert, about: int, style: Style) -> str:
    age = (datetime.now(UTC) - alert.since).total_seconds()
    _, _, subject = alert.subject.partition("=")
    state = f"{'firing' if alert.firing else 'pending':<{_STATE}}"
    cells = [
        f"{alert.name:<{_NAME}}",
        style.warning(state) if alert.firing else style.quiet(state),
        f"{alert.severity:<{_SEVERITY}}",
        f"{shortened(subject, about - 1):<{about}}",
        f"{clock(age):>{_SINCE}}",
    ]
    return _INDENT + "".join(cells)
