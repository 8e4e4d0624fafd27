"""Which GPUs of this host are slower than they could be, for those who judge jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from jaxmon.catalog.gpus import GPU_CLOCK_EVENT_ACTIVE
from jaxmon.exposition.families import Family
from jaxmon.exposition.parse import labels


_MOST_GPUS = 100
# Of NVML's, those that lower the clocks of a GPU that works.
_REASONS = frozenset(
    ("sw_power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")
)


def throttled(families: Iterable[Family]) -> list[dict[str, Any]]:
    """Return the GPUs that are throttled now, and why."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for family in families:
        if family.metric.name == GPU_CLOCK_EVENT_ACTIVE.name:
            for name, active in family.samples:
                of = labels(name)
                if active > 0 and of.get("reason") in _REASONS:
                    found[of.get("uuid", "")].append(of["reason"])
    known = list(found.items())[:_MOST_GPUS]
    return [{"uuid": uuid, "throttled": sorted(reasons)} for uuid, reasons in known]
