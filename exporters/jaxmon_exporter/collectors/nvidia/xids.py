"""
Xid errors, which NVIDIA's driver reports when something goes wrong.

The driver queues events for registered clients, so they are drained at each poll, on
the collector's own thread, and none is lost between two polls. Earlier events are not
available; events during NVML re-initialisation are missed.

Each GPU has a separate event set: a lost GPU does not affect the events of others, and
the GPU of an event is known.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from jaxmon.catalog import (
    CRITICAL_XIDS,
    GPU_XID_ERRORS,
    GPU_XID_LAST_TIMESTAMP_SECONDS,
)
from jaxmon.exposition.families import Family, series
from jaxmon_exporter.collectors.nvidia.codes import (
    DRIVER,
    LOST,
    NO_PERMISSION,
    TIMEOUT,
    UNSUPPORTED,
    EventSet,
    Handle,
    Nvml,
    failure,
)


log = logging.getLogger("jaxmon.exporter")

# NVML does not say that 0 means not to wait; NVIDIA's own DCGM relies on it.
_NO_WAIT = 0
# A storm must not block the poll; the rest stays queued for the next one.
_MOST_PER_POLL = 1000
_MOST_XIDS = 64
_OTHER = "other"


class XidCounter:
    """
    Counts the Xid errors of every GPU since it was first listened to.

    Counts outlive event sets: they are kept when a GPU is lost, and continue when it is
    back.

    Args:
        failures: where failures are counted, by reason.
        clock: seconds since the epoch.
    """

    def __init__(
        self, failures: Counter[str], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._failures = failures
        self._clock = clock
        self._sets: dict[str, EventSet] = {}
        self._failing: set[str] = set()
        self._refused: set[str] = set()
        self._counts: dict[str, dict[str, int]] = {}
        self._last: dict[tuple[str, str], float] = {}
        # Rebuilt when a count changes, which is rare.
        self._families: list[Family] | None = None

    def listen(self, nvml: Nvml, uuid: str, handle: Handle) -> None:
        """
        Have the driver queue the events of a GPU, from now on.

        Counts start at 0 only here: a GPU that cannot report has none. Missing support
        or permission is remembered.

        Raises:
            NVMLError: the driver as a whole failed.
        """
        self._free(nvml, uuid)
        if uuid in self._refused:
            return
        wanted = nvml.nvmlEventTypeXidCriticalError
        try:
            if not nvml.nvmlDeviceGetSupportedEventTypes(handle) & wanted:
                self._refuse(nvml, uuid)
                return
            self._sets[uuid] = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(handle, wanted, self._sets[uuid])
        except nvml.NVMLError as error:
            # NVML does not define the state of a set after this.
            self._free(nvml, uuid)
            if error.value in DRIVER:
                raise
            self._note(nvml, uuid, error)
        else:
            self._counts.setdefault(uuid, dict.fromkeys(CRITICAL_XIDS, 0))
            self._families = None

    def forget(self, uuid: str) -> None:
        """Let `listen` retry unsupported events: a reset GPU may support more."""
        self._refused.discard(uuid)

    def drain(self, nvml: Nvml, uuid: str) -> bool:
        """
        Count the events queued for a GPU, without waiting.

        Returns:
            `False` when `listen` is due: never called, or the event set failed twice in
            a row. After one failure, events that the driver has queued may still
            arrive.

        Raises:
            NVMLError: the driver as a whole failed.
        """
        events = self._sets.get(uuid)
        if events is None:
            return False
        try:
            for _ in range(_MOST_PER_POLL):
                self._count(uuid, nvml.nvmlEventSetWait_v2(events, _NO_WAIT).eventData)
        except nvml.NVMLError as error:
            if error.value in DRIVER:
                raise
            if error.value != TIMEOUT:
                self._note(nvml, uuid, error)
                again = uuid in self._failing
                self._failing.add(uuid)
                return not again
        self._failing.discard(uuid)
        return True

    def families(self) -> list[Family]:
        """
        Return all counts, including those of lost GPUs, and when each last increased.
        """
        if self._families is None:
            self._families = self._made()
        return self._families

    def close(self, nvml: Nvml) -> None:
        """Drain and free the event sets, before NVML is shut down; the counts stay."""
        for uuid in list(self._sets):
            with suppress(nvml.NVMLError):
                self.drain(nvml, uuid)
            self._free(nvml, uuid)
        # A new driver may support more.
        self._refused.clear()

    def _made(self) -> list[Family]:
        counted = [
            (series(GPU_XID_ERRORS, uuid, xid), float(count))
            for uuid, counts in self._counts.items()
            for xid, count in counts.items()
        ]
        last = [
            (series(GPU_XID_LAST_TIMESTAMP_SECONDS, uuid, xid), moment)
            for (uuid, xid), moment in self._last.items()
        ]
        return [
            Family(GPU_XID_ERRORS, counted),
            Family(GPU_XID_LAST_TIMESTAMP_SECONDS, last),
        ]

    def _note(self, nvml: Nvml, uuid: str, error: Any) -> None:
        """Handle a failed call; lost GPUs are counted elsewhere."""
        log.debug("%s: no Xid errors: %s", uuid, error)
        code = error.value
        if code not in UNSUPPORTED | LOST.keys():
            self._failures[failure(code, "events_failed")] += 1
        if code in UNSUPPORTED | {NO_PERMISSION}:
            self._refuse(nvml, uuid)

    def _refuse(self, nvml: Nvml, uuid: str) -> None:
        self._refused.add(uuid)
        self._counts.pop(uuid, None)
        self._families = None
        self._free(nvml, uuid)

    def _count(self, uuid: str, number: int) -> None:
        self._families = None
        counts, xid = self._counts[uuid], str(number)
        if xid not in counts and len(counts) >= _MOST_XIDS:
            xid = _OTHER
        counts[xid] = counts.get(xid, 0) + 1
        # NVML's events have no time: it is when we read them, a poll late at most.
        self._last[uuid, xid] = self._clock()

    def _free(self, nvml: Nvml, uuid: str) -> None:
        self._failing.discard(uuid)
        if (events := self._sets.pop(uuid, None)) is None:
            return
        try:
            nvml.nvmlEventSetFree(events)
        except nvml.NVMLError as error:
            log.debug("%s: the event set was not freed: %s", uuid, error)
