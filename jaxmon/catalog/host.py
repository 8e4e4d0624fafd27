"""The sidecar's collectors, and the host."""

from __future__ import annotations

from jaxmon.catalog import model
from jaxmon.catalog.model import BOTH, SIDECAR, Sheet
from jaxmon.catalog.values import PRESSURE_KINDS, PRESSURE_RESOURCES


_collectors = Sheet("Collectors", SIDECAR, "collector")
_slots = Sheet("Collectors", SIDECAR, "worker")

COLLECTOR_SUCCESS = _collectors.gauge("1 if the last poll of a collector succeeded.")
COLLECTOR_DURATION_SECONDS = _collectors.gauge(
    "Duration of a collector's last completed poll."
)
COLLECTOR_AGE_SECONDS = _collectors.gauge("Age of the values a collector serves.")
COLLECTOR_ERRORS = _collectors.counter("Collector failures, by reason.", "reason")
AGENT_UP = _slots.flag(
    "1 if the agent in this slot responded to the last poll, else 0."
)
AGENT_STARTS = _slots.counter("Processes with an agent that started in this slot.")
AGENT_CRASHES = _slots.counter(
    "Processes of this slot that ended without finishing: killed, or by an exception."
)
AGENT_DIED = _slots.flag(
    "1 from when a process ended without finishing until another takes its slot; loop "
    "is what it ran.",
    "loop",
)
AGENT_ENDED_SECONDS = _slots.gauge(
    "Time since the last process of this slot ended, while its counts are still served."
)

_host = Sheet("Host", SIDECAR)

HOST_CPU_SECONDS = _host.counter("CPU time of the host, all cores, by mode.", "mode")
HOST_CPUS = _host.gauge("Logical CPUs of the host.", limits=(1, 1e6))
HOST_LOAD_1M = _host.gauge(
    "Load average of the host over one minute.",
    limits=(0, 1e7),
    name="jaxmon_host_load1",
)
HOST_MEMORY_SIZE_BYTES = _host.gauge("Memory of the host.")
HOST_MEMORY_AVAILABLE_BYTES = _host.gauge(
    "Host memory available to programs without swapping."
)
HOST_PRESSURE_SECONDS = _host.counter(
    "Time during which some (or all) of the host's tasks were stalled on a "
    "resource (PSI).",
    ("resource", PRESSURE_RESOURCES),
    ("kind", PRESSURE_KINDS),
)
HOST_NETWORK_RECEIVE_BYTES = _host.counter(
    "Bytes received on a network interface of the host.", "interface"
)
HOST_NETWORK_TRANSMIT_BYTES = _host.counter(
    "Bytes sent on a network interface of the host.", "interface"
)
HOST_DISK_SIZE_BYTES = _host.gauge(
    "Size of the file system containing a watched directory, such as the "
    "persistent cache's.",
    "directory",
)
HOST_DISK_AVAILABLE_BYTES = _host.gauge(
    "Space available to unprivileged users on that file system.", "directory"
)

_container = Sheet("Container", BOTH)

CONTAINER_MEMORY_USED_BYTES = _container.gauge(
    "Memory charged to the process's cgroup, including page cache."
)
CONTAINER_MEMORY_WORKING_SET_BYTES = _container.gauge(
    "Cgroup memory minus inactive page cache (working set), which Kubernetes uses "
    "for eviction."
)
CONTAINER_MEMORY_LIMIT_BYTES = _container.gauge(
    "Cgroup memory limit, above which the kernel kills processes; absent if unlimited."
)
CONTAINER_OOM_KILLS = _container.counter(
    "Processes in the cgroup killed by the kernel's OOM killer."
)
CONTAINER_CPU_SECONDS = _container.counter("CPU time of the cgroup, by mode.", "mode")
CONTAINER_CPU_THROTTLED_SECONDS = _container.counter(
    "Time during which the cgroup was CPU-throttled."
)
CONTAINER_CPU_LIMIT = _container.gauge(
    "CPU limit of the cgroup in cores; absent if unlimited."
)
CONTAINER_PRESSURE_SECONDS = _container.counter(
    "Time during which some (or all) of the cgroup's tasks were stalled on a "
    "resource (PSI).",
    ("resource", PRESSURE_RESOURCES),
    ("kind", PRESSURE_KINDS),
)

globals().update(model.named(globals()))
