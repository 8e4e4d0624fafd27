"""The sidecar's collectors, and the host."""

from __future__ import annotations

from jaxmon.catalog.model import BOTH, SIDECAR, Sheet
from jaxmon.catalog.values import PRESSURE_KINDS, PRESSURE_RESOURCES


# --- Collectors of the sidecar ---------------------------------------------------

_collectors = Sheet("Collectors", SIDECAR)

COLLECTOR_SUCCESS = _collectors.gauge(
    "jaxmon_collector_success",
    "1 when the last poll of a collector worked.",
    "collector",
)
COLLECTOR_DURATION_SECONDS = _collectors.gauge(
    "jaxmon_collector_duration_seconds",
    "Duration of the last finished poll of a collector.",
    "collector",
)
COLLECTOR_AGE_SECONDS = _collectors.gauge(
    "jaxmon_collector_age_seconds",
    "Age of the figures that a collector serves.",
    "collector",
)
COLLECTOR_ERRORS = _collectors.counter(
    "jaxmon_collector_errors_total",
    "Failures of a collector, by reason.",
    "collector",
    "reason",
)
AGENT_UP = _collectors.gauge(
    "jaxmon_agent_up",
    "1 when the agent in this slot answered the last poll, 0 when it did not.",
    "worker",
    limits=(0, 1),
)

# --- Host ------------------------------------------------------------------------

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
    "Memory of the host that programs can get without swapping.",
)
HOST_PRESSURE_SECONDS = _host.counter(
    "jaxmon_host_pressure_seconds_total",
    "Time in which some, or all, tasks of the host waited for a resource.",
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
    "Size of the file system that holds a directory, as the persistent cache's.",
    "directory",
)
HOST_DISK_AVAILABLE_BYTES = _host.gauge(
    "jaxmon_host_disk_available_bytes",
    "Space that unprivileged programs can still use there.",
    "directory",
)

# --- Container ---------------------------------------------------------------------

_container = Sheet("Container", BOTH)

CONTAINER_MEMORY_USED_BYTES = _container.gauge(
    "jaxmon_container_memory_used_bytes",
    "Memory charged to the process's control group, page cache included.",
)
CONTAINER_MEMORY_WORKING_SET_BYTES = _container.gauge(
    "jaxmon_container_memory_working_set_bytes",
    "The same less inactive page cache; what Kubernetes evicts by.",
)
CONTAINER_MEMORY_LIMIT_BYTES = _container.gauge(
    "jaxmon_container_memory_limit_bytes",
    "Memory beyond which the kernel kills; absent where there is no limit.",
)
CONTAINER_OOM_KILLS = _container.counter(
    "jaxmon_container_oom_kills_total",
    "Processes of the control group that the kernel killed for want of memory.",
)
CONTAINER_CPU_SECONDS = _container.counter(
    "jaxmon_container_cpu_seconds_total",
    "CPU time of the control group, by mode.",
    "mode",
)
CONTAINER_CPU_THROTTLED_SECONDS = _container.counter(
    "jaxmon_container_cpu_throttled_seconds_total",
    "Time in which the control group could not run, its share being used up.",
)
CONTAINER_CPU_LIMIT = _container.gauge(
    "jaxmon_container_cpu_limit",
    "Cores that the control group may use; absent where there is no limit.",
)
CONTAINER_PRESSURE_SECONDS = _container.counter(
    "jaxmon_container_pressure_seconds_total",
    "Time in which some, or all, tasks of the control group waited for a resource.",
    ("resource", PRESSURE_RESOURCES),
    ("kind", PRESSURE_KINDS),
)
