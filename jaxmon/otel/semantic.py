"""Data points as OpenTelemetry's semantic conventions want them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jaxmon.catalog.conventions import Convention


# Attributes whose values are numbers.
_NUMBERS = ("cpython.gc.generation",)


def applies(convention: Convention, point: Any) -> bool:
    """Return whether *convention* is about the series of *point*."""
    if not convention.only:
        return True
    label = convention.labels[0][0]
    return str(point.attributes.get(label, "")).startswith(convention.only)


def by_convention(convention: Convention, point: Any, started: int) -> Any:
    """
    Return *point* with the attributes of *convention*.

    Args:
        convention: of its metric.
        point: a number of the SDK.
        started: start time of sums that are no counters, in Unix nanoseconds.
    """
    names = dict(convention.labels)
    attributes: dict[str, Any] = {
        names.get(label, label): value for label, value in point.attributes.items()
    }
    for name in _NUMBERS:
        if name in attributes:
            attributes[name] = int(attributes[name])
    attributes.update(convention.attributes)
    since = started if convention.instrument == "updowncounter" else None
    return replace(
        point,
        attributes=attributes,
        start_time_unix_nano=since or point.start_time_unix_nano,
    )
