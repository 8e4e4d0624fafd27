"""What is known of the end of a process from outside, beside its last words."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxmon.catalog.gpus import GPU_XID_LAST_TIMESTAMP_SECONDS
from jaxmon.exposition.families import Family
from jaxmon.exposition.parse import labels
from jaxmon.resources import container


# Errors before are of no interest.
_KEPT_SECONDS = 3600.0
_MOST_XIDS = 100


class Kills:
    """
    What the kernel has killed for memory, as far as it shows that: only in a process
    namespace in which *pid* is the process.

    Args:
        pid: a process; `None` if it is in another namespace.
        on_host: how many processes of the host have been killed so far.
        root: the directory that contains ``proc`` and ``sys``.
    """

    def __init__(
        self, pid: int | None, on_host: int | None, root: Path = Path("/")
    ) -> None:
        # Known only while the process is there.
        self._group = None if pid is None else container.group_of(pid, root)
        self.read(on_host)

    def read(self, on_host: int | None) -> None:
        """Count from now on."""
        self._seen = self._now(on_host)

    def since(self, on_host: int | None) -> dict[str, int | None]:
        """Return the number of kills in its cgroup and on the host."""
        before, now = self._seen, self._now(on_host)
        return {
            key: None
            if (a := before[key]) is None or (b := now[key]) is None
            else b - a
            for key in before
        }

    def _now(self, on_host: int | None) -> dict[str, int | None]:
        group = self._group
        return {
            "oom_kills": None if group is None else container.oom_kills(group),
            "host_oom_kills": on_host,
        }


def aged(words: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return *words* with their age, by the clock that all processes of a host share and
    that no one sets; by the wall clock if that is from before a restart.
    """
    if not words:
        return {}
    found = dict(words)
    for key, clock in (
        ("boottime", time.clock_gettime(time.CLOCK_BOOTTIME)),
        ("time", time.time()),
    ):
        written = words.get(key)
        if isinstance(written, int | float) and (age := clock - written) >= 0:
            return {**found, "age_seconds": age}
    return found


def xids(families: Iterable[Family], now: float) -> list[dict[str, Any]]:
    """Return the latest Xid error of each kind and GPU, of the hour before *now*."""
    found = []
    for family in families:
        if family.metric.name == GPU_XID_LAST_TIMESTAMP_SECONDS.name:
            for name, at in family.samples:
                if at > 0 and 0 <= now - at <= _KEPT_SECONDS:
                    of = labels(name)
                    one = {"uuid": of.get("uuid", ""), "xid": of.get("xid", "")}
                    found.append({**one, "age_seconds": now - at})
    return found[:_MOST_XIDS]
