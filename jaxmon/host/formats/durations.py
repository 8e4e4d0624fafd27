"""Lengths of time as Prometheus writes them, such as ``1h30m``, and points in time."""

from __future__ import annotations

import re
from datetime import UTC, datetime


_UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
_MOST = 100 * 365 * 86400
_DURATION = re.compile(
    r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII
)


def seconds(text: str) -> int:
    """Return the seconds in *text*, at least one. Raises `ValueError`."""
    match = _DURATION.fullmatch(text)
    total = 0.0
    if match:
        total = sum(
            float(count or 0) * unit
            for count, unit in zip(match.groups(), _UNITS.values(), strict=True)
        )
    if not 0 < total <= _MOST:
        msg = f"{text[:40]!r} is not a duration such as 30s, 5m, 6h or 30d"
        raise ValueError(msg)
    return int(total)


def text(length: float) -> str:
    """Return *length* seconds, at least one, in the largest unit that divides it."""
    whole = max(1, round(length))
    for unit in ("d", "h", "m"):
        if whole % _UNITS[unit] == 0:
            return f"{whole // _UNITS[unit]}{unit}"
    return f"{whole}s"


def scaled(duration: str, scale: float) -> str:
    """Return *duration* divided by *scale*, at least one second."""
    return duration if scale == 1 else text(seconds(duration) / scale)


def moment(text: str) -> datetime:
    """Return a time in ISO format, of UTC without an offset. Raises `ValueError`."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
