"""The sidecar's collectors, and the host."""

from __future__ import annotations

from jaxmon.catalog.model import BOTH, SIDECAR, Sheet
from jaxmon.catalog.values import PRESSURE_KINDS, PRESSURE_RESOURCES


_collectors = Sheet("Collectors", SIDECAR, "collector")
_slots = Sheet("Collectors", SIDECAR, "worker")

COLLECTOR_SUCCESS = _collectors.gauge(
    "jaxmon_collector_success", "1 if the last poll of a collector succeeded."
)
COLLECTOR_DURATION_SECONDS = _collectors.gauge(
    "jaxmon_collector_duration_seconds",
    "Duration of a collector's last completed poll.",
)
COLLECTOR_AGE_SECONDS = _collectors.gauge(
    "jaxmon_collector_age_seconds", "Age of the values a collector serves."
)
COLLECTOR_ERRORS = _collectors.counter(
    "jaxmon_collector_errors_total",
    "Collector failures, by reason.",
    "reason",
)
AGENT_UP = _slots.flag(
    "jaxmon_agent_up", "1 if the agent in this slot responded to the last poll, else 0."
)
AGENT_STARTS = _slots.counter(
    "jaxmon_agent_starts_total", "Processes with an agent that started in this slot."
)
AGENT_CRASHES = _slots.counter(
    "jaxmon_agent_crashes_total",
    "Processes of this slot that ended without finishing: killed, or by an exception.",
)
AGENT_DIED = _slots.flag(
    "jaxmon_agent_died",
    "1 from when a process ended without finishing until another takes its slot; loop "
    "is what it ran.",
    "loop",
)
AGENT_ENDED_SECONDS = _slots.gauge(
    "jaxmon_agent_ended_seconds",
    "Time since the last process of this slot ended, while its counts are still "
    "served.",
)

_host = Sheet("Host", SIDECAR)

HOST_CPU_SECONDS = _host.counter(
    "jaxmon_host_cpu_seconds_total", "CPU time of the host, all cores, by mode.", "mode"
)
HOST_CPUS = _host.gauge(
    "jaxmon_host_cpus", "Logical CPUs of the host.", limits=(1, 1e6)
)
HOST_LOAD_1M = _host.gauge(
    "jaxmon_host_load1", "Load average of the host over one minute.", limits=(0, 1e7)
)
HOST_MEMORY_SIZE_BYTES = _host.gauge(
    "jaxmon_host_memory_size_bytes", "Memory of the host."
)
HOST_MEMORY_AVAILABLE_BYTES = _host.gauge(
    "jaxmon_host_memory_available_bytes",
    "Host memory available to programs without swapping.",
)
HOST_PRESSURE_SECONDS = _host.counter(
    "jaxmon_host_pressure_seconds_total",
    "Time during which some (or all) of the host's tasks were stalled on a "
    "resource (PSI).",
    ("resource", PRESSURE_RESOURCES),
    ("kind", PRESSURE_KINDS),
)
HOST_NETWORK_RECEIVE_BYTES = _host.counter(
    "jaxmon_host_network_receive_bytes_total",
    "Bytes received on a network interface of the host.",
    "interface",
)
HOST_NETWORK_TRANSMIT_BYTES = _host.counter(
    "jaxmon_host_network_transmit_bytes_total",
    "Bytes sent on a network interface of the host.",
    "interface",
)
HOST_DISK_SIZE_BYTES = _host.gauge(
    "jaxmon_host_disk_size_bytes",
    "Size of the file system containing a watched directory, such as the "
    "persistent cache's.",
    "directory",
)
HOST_DISK_AVAILABLE_BYTES = _host.gauge(
    "jaxmon_host_disk_available_bytes",
    "Space available to unprivileged users on that file system.",
    "directory",
)

_container = Sheet("Container", BOTH)

CONTAINER_MEMORY_USED_BYTES = _container.gauge(
    "jaxmon_container_memory_used_bytes",
    "Memory charged to the process's cgroup, including page cache.",
)
CONTAINER_MEMORY_WORKING_SET_BYTES = _container.gauge(
    "jaxmon_container_memory_working_set_bytes",
    "Cgroup memory minus inactive page cache (working set), which Kubernetes uses "
    "for eviction.",
)
CONTAINER_MEMORY_LIMIT_BYTES = _container.gauge(
    "jaxmon_container_memory_limit_bytes",
    "Cgroup memory limit, above which the kernel kills processes; absent if unlimited.",
)
CONTAINER_OOM_KILLS = _container.counter(
    "jaxmon_container_oom_kills_total",
    "Processes in the cgroup killed by the kernel's OOM killer.",
)
CONTAINER_CPU_SECONDS = _container.counter(
    "jaxmon_container_cpu_seconds_total", "CPU time of the cgroup, by mode.", "mode"
)
CONTAINER_CPU_THROTTLED_SECONDS = _container.counter(
    "jaxmon_container_cpu_throttled_seconds_total",
    "Time during which the cgroup was CPU-throttled.",
)
CONTAINER_CPU_LIMIT = _container.gauge(
    "jaxmon_container_cpu_limit",
    "CPU limit of the cgroup in cores; absent if unlimited.",
)
CONTAINER_PRESSURE_SECONDS = _container.counter(
    "jaxmon_container_pressure_seconds_total",
    "Time during which some (or all) of the cgroup's tasks were stalled on a "
    "resource (PSI).",
    ("resource", PRESSURE_RESOURCES),
    ("kind", PRESSURE_KINDS),
)
