"""
NVIDIA GPUs, read through NVML without root, DCGM or a profiler.

Reads the tables in `calls`, MIG devices and, if enabled, processes. What a
device does not support is learned once and not queried again; a lost device keeps its
identity and shows ``up 0`` while the others are unaffected; a driver that fails is
initialised again, at the pace of the poller's backoff.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from jaxmon import catalog
from jaxmon.exposition.families import Family, by_label, series
from jaxmon_exporter.collectors.nvidia import calls as nvml_calls
from jaxmon_exporter.collectors.nvidia import device as gpu
from jaxmon_exporter.collectors.nvidia.calls import NvmlSession, unavailable
from jaxmon_exporter.collectors.nvidia.device import (
    DRIVER,
    DeviceLostError,
    Handle,
    Nvml,
    NvmlDevice,
    Reading,
)
from jaxmon_exporter.polling import Collector, CollectorUnavailable, partial_failures


log = logging.getLogger("jaxmon.exporter")

# NVML does not say that 0 means not to wait; NVIDIA's own DCGM relies on it.
_NO_WAIT = 0
# A storm must not block the poll; the rest stays queued for the next one.
_MOST_PER_POLL = 1000
_MOST_XIDS = 64
_OTHER = "other"


class XidCounter:
    """Counts the Xid errors of every GPU since it was first listened to."""

    def __init__(
        self, failures: Counter[str], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._failures = failures
        self._clock = clock
        self._sets: dict[str, gpu.EventSet] = {}
        self._failing: set[str] = set()
        self._refused: set[str] = set()
        self._counts: dict[str, dict[str, int]] = {}
        self._last: dict[tuple[str, str], float] = {}
        # Rebuilt when a count changes, which is rare.
        self._families: list[Family] | None = None

    def listen(self, nvml: Nvml, uuid: str, handle: Handle) -> None:
        """Have the driver queue the events of a GPU; counts start at 0 here."""
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
            self._counts.setdefault(uuid, dict.fromkeys(catalog.CRITICAL_XIDS, 0))
            self._families = None

    def forget(self, uuid: str) -> None:
        """Let `listen` retry unsupported events: a reset GPU may support more."""
        self._refused.discard(uuid)

    def drain(self, nvml: Nvml, uuid: str) -> bool:
        """
        Count the events queued for a GPU, without waiting; return `False` when `listen`
        is due: never called, or failed twice in a row, since after one failure, events
        may still arrive. Raises `NVMLError`: the driver as a whole failed.
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
            if error.value != gpu.TIMEOUT:
                self._note(nvml, uuid, error)
                again = uuid in self._failing
                self._failing.add(uuid)
                return not again
        self._failing.discard(uuid)
        return True

    def families(self) -> list[Family]:
        """Return all counts, also of lost GPUs, and when each last rose."""
        if self._families is None:
            counted = {
                (uuid, xid): float(count)
                for uuid, counts in self._counts.items()
                for xid, count in counts.items()
            }
            self._families = [
                by_label(catalog.GPU_XID_ERRORS, counted),
                by_label(catalog.GPU_XID_LAST_TIMESTAMP_SECONDS, self._last),
            ]
        return self._families

    def close(self, nvml: Nvml) -> None:
        """Drain and free the event sets, before NVML is shut down; the counts stay."""
        for uuid in list(self._sets):
            with suppress(nvml.NVMLError):
                self.drain(nvml, uuid)
            self._free(nvml, uuid)
        # A new driver may support more.
        self._refused.clear()

    def _note(self, nvml: Nvml, uuid: str, error: Any) -> None:
        log.debug("%s: no Xid errors: %s", uuid, error)
        code = error.value
        if code not in gpu.UNSUPPORTED | gpu.LOST.keys():
            denied = code == gpu.NO_PERMISSION
            self._failures["no_permission" if denied else "events_failed"] += 1
        if code in gpu.UNSUPPORTED | {gpu.NO_PERMISSION}:
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


# After these, only a new process or container can reach the driver.
_FOR_GOOD = {nvml_calls.DRIVER_MISMATCH, nvml_calls.INIT_FAILED}
# Slow-changing values are read this often; one device at a time, if there are several.
_STEADY_SECONDS = 30.0


class NvidiaGpus(Collector):
    """
    Reads every GPU that the driver shows, and the memory of so many *processes* of
    each. If NVML worked before, and now only a new process can reach the driver,
    *give_up* is called with a message, at each poll perhaps.
    """

    name = "nvml"
    deadline = 5.0

    def __init__(
        self,
        *,
        interval: float = 5.0,
        processes: int = 0,
        give_up: Callable[[str], None] | None = None,
        sysfs: Path = Path("/sys"),
    ) -> None:
        self.interval = interval
        self._every = max(1, round(_STEADY_SECONDS / interval))
        self._processes = processes
        self._give_up = give_up
        self._sysfs = sysfs
        self._session = NvmlSession(self.name)
        self._devices: dict[str, NvmlDevice] = {}
        self._count = 0
        self._failures: Counter[str] = Counter()
        self._xids = XidCounter(self._failures)

    def collect(self) -> Iterable[Family]:
        """Read all devices: microseconds per value. `CollectorUnavailable`."""
        try:
            nvml = self._session.open()
        except CollectorUnavailable as error:
            self._note_failure(error)
            raise
        readings: list[Reading] = []
        try:
            self._take_inventory(nvml)
            for device in self._devices.values():
                readings += self._read(nvml, device)
        except nvml.NVMLError as error:
            self.close()
            failure = unavailable(error)
            self._note_failure(failure)
            raise failure from error
        if not self._count:
            reason, message = "no_devices", "the driver shows no GPU here"
            raise CollectorUnavailable(reason, message)
        return [
            *_families(readings),
            *self._xids.families(),
            partial_failures(self.name, self._failures),
        ]

    def close(self) -> None:
        """Shut NVML down; identities and counts of the devices stay."""
        if (nvml := self._session.nvml) is not None:
            self._xids.close(nvml)
        self._session.close()

    def _note_failure(self, failure: CollectorUnavailable) -> None:
        """Note that the whole driver failed: known devices are down with it."""
        # A restarted process that has the same problem must not exit again: that would
        # be a loop.
        if failure.reason in _FOR_GOOD and self._devices and self._give_up:
            self._give_up(str(failure))
        down: list[Reading] = []
        for device in self._devices.values():
            # Its handle does not outlive the driver.
            device.lost = True
            down += [*device.identity, device.up()]
        failure.families = [*_families(down), *self._xids.families()]

    def _take_inventory(self, nvml: Nvml) -> None:
        """Find the devices, again whenever one of them has a problem."""
        self._count = max(self._count, nvml.nvmlDeviceGetCount())
        in_order = [device for device in self._devices.values() if not device.lost]
        if len(in_order) == self._count:
            return
        for device in self._devices.values():
            device.handle = None
        for index in range(self._count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = gpu.text(nvml.nvmlDeviceGetUUID(handle))
                identity = gpu.identify(nvml, handle, uuid, index, self._sysfs)
            except nvml.NVMLError as error:
                if error.value in DRIVER:
                    raise
                log.debug("cannot identify GPU %d: %s", index, error)
            else:
                new = NvmlDevice(uuid, len(self._devices), self._failures)
                device = self._devices.setdefault(uuid, new)
                device.handle, device.identity = handle, identity
        # A device that was lost before we first saw it has no name to be down under.
        if (nameless := self._count - len(self._devices)) > 0:
            self._failures["device_unidentified"] += nameless

    def _read(self, nvml: Nvml, device: NvmlDevice) -> list[Reading]:
        # First: the Xid that explains a loss was queued before it.
        listening = self._xids.drain(nvml, device.uuid)
        if device.lost:
            # After a reset or repair it may support more.
            device.forget()
            self._xids.forget(device.uuid)
        try:
            found = self._figures(nvml, device)
        except DeviceLostError as error:
            if not device.lost:
                cause: Any = error.__cause__
                log.warning("GPU %s is lost: %s", device.uuid, cause or error)
                self._failures[gpu.LOST[cause.value] if cause else "device_lost"] += 1
            device.lost = True
            return [*device.identity, device.up()]
        if device.lost:
            log.info("GPU %s has recovered", device.uuid)
        if device.lost or not listening:
            self._xids.listen(nvml, device.uuid, device.handle)
        device.lost = False
        return [*device.identity, device.up(), *found]

    def _figures(self, nvml: Nvml, device: NvmlDevice) -> list[Reading]:
        if device.handle is None:
            msg = "not found by the driver"
            raise DeviceLostError(msg)
        device.begin(self._every)
        found = [
            *nvml_calls.read(nvml, device),
            *nvml_calls.read_fields(nvml, device),
            *gpu.read(nvml, device),
        ]
        if self._processes:
            found += _processes(nvml, device, self._processes)
        if device.no_responses and not found:
            # Drivers have many codes for a GPU that is dead, as for one that is busy.
            msg = "no response to any call"
            raise DeviceLostError(msg)
        return found + device.steady


def _processes(nvml: Nvml, device: NvmlDevice, most: int) -> Iterator[Reading]:
    """
    Yield the *most* processes with most memory on *device*, the others as one.

    A pid means nothing after its process has exited, and each creates a series; in a
    container it may be the host's. Raises as `read` does.
    """
    if not device.is_due(_processes):
        return
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device.handle)
    except nvml.NVMLError as error:
        device.on_failure(_processes, error)
        return
    used: Counter[str] = Counter()
    for process in running:
        # The driver shows a container the processes, but not always their memory.
        if process.usedGpuMemory is not None:
            used[str(process.pid)] += process.usedGpuMemory
    kept = used.most_common(most)
    if rest := used.total() - sum(size for _, size in kept):
        kept.append(("other", rest))
    for pid, size in kept:
        name = series(catalog.GPU_PROCESS_MEMORY_BYTES, device.uuid, pid)
        yield catalog.GPU_PROCESS_MEMORY_BYTES, (name, size)


def _families(readings: Iterable[Reading]) -> list[Family]:
    found: dict[str, Family] = {}
    for metric, sample in readings:
        if (family := found.get(metric.name)) is None:
            family = found[metric.name] = Family(metric, [])
        family.samples.append(sample)
    return list(found.values())
