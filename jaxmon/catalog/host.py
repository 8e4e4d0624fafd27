"""The sidecar's collectors, and the host."""

from __future__ import annotations

from jaxmon.catalog.model import BOTH, SIDECAR, Metric
from jaxmon.catalog.values import PRESSURE_KINDS, PRESSURE_RESOURCES


# --- Collectors of the sidecar ---------------------------------------------------

COLLECTOR_SUCCESS = Metric(
    "jaxmon_collector_success",
    "gauge",
    "1 when the last poll of a collector worked.",
    labels=("collector",),
    sources=SIDECAR,
    group="Collectors",
)
COLLECTOR_DURATION_SECONDS = Metric(
    "jaxmon_collector_duration_seconds",
    "gauge",
    "Duration of the last finished poll of a collector.",
    unit="seconds",
    labels=("collector",),
    sources=SIDECAR,
    group="Collectors",
)
COLLECTOR_AGE_SECONDS = Metric(
    "jaxmon_collector_age_seconds",
    "gauge",
    "Age of the figures that a collector serves.",
    unit="seconds",
    labels=("collector",),
    sources=SIDECAR,
    group="Collectors",
)
COLLECTOR_ERRORS = Metric(
    "jaxmon_collector_errors_total",
    "counter",
    "Failures of a collector, by reason.",
    labels=("collector", "reason"),
    sources=SIDECAR,
    group="Collectors",
)
AGENT_UP = Metric(
    "jaxmon_agent_up",
    "gauge",
    "1 when the agent in this slot answered the last poll, 0 when it did not.",
    labels=("worker",),
    sources=SIDECAR,
    group="Collectors",
    limits=(0, 1),
)

# --- Host ------------------------------------------------------------------------

HOST_CPU_SECONDS = Metric(
    "jaxmon_host_cpu_seconds_total",
    "counter",
    "CPU time of the host, all cores, by mode.",
    unit="seconds",
    labels=("mode",),
    sources=SIDECAR,
    group="Host",
)
HOST_CPUS = Metric(
    "jaxmon_host_cpus",
    "gauge",
    "Logical CPUs of the host.",
    sources=SIDECAR,
    group="Host",
    limits=(1, 1e6),
)
HOST_LOAD_1M = Metric(
    "jaxmon_host_load1",
    "gauge",
    "Load average of the host over one minute.",
    sources=SIDECAR,
    group="Host",
    limits=(0, 1e7),
)
HOST_MEMORY_SIZE_BYTES = Metric(
    "jaxmon_host_memory_size_bytes",
    "gauge",
    "Memory of the host.",
    unit="bytes",
    sources=SIDECAR,
    group="Host",
)
HOST_MEMORY_AVAILABLE_BYTES = Metric(
    "jaxmon_host_memory_available_bytes",
    "gauge",
    "Memory of the host that programs can get without swapping.",
    unit="bytes",
    sources=SIDECAR,
    group="Host",
)
HOST_PRESSURE_SECONDS = Metric(
    "jaxmon_host_pressure_seconds_total",
    "counter",
    "Time in which some, or all, tasks of the host waited for a resource.",
    unit="seconds",
    labels=("resource", "kind"),
    sources=SIDECAR,
    group="Host",
    values=(("resource", PRESSURE_RESOURCES), ("kind", PRESSURE_KINDS)),
)
HOST_NETWORK_RECEIVE_BYTES = Metric(
    "jaxmon_host_network_receive_bytes_total",
    "counter",
    "Bytes received on a network interface of the host.",
    unit="bytes",
    labels=("interface",),
    sources=SIDECAR,
    group="Host",
)
HOST_NETWORK_TRANSMIT_BYTES = Metric(
    "jaxmon_host_network_transmit_bytes_total",
    "counter",
    "Bytes sent on a network interface of the host.",
    unit="bytes",
    labels=("interface",),
    sources=SIDECAR,
    group="Host",
)
HOST_DISK_SIZE_BYTES = Metric(
    "jaxmon_host_disk_size_bytes",
    "gauge",
    "Size of the file system that holds a directory, as the persistent cache's.",
    unit="bytes",
    labels=("directory",),
    sources=SIDECAR,
    group="Host",
)
HOST_DISK_AVAILABLE_BYTES = Metric(
    "jaxmon_host_disk_available_bytes",
    "gauge",
    "Space that unprivileged programs can still use there.",
    unit="bytes",
    labels=("directory",),
    sources=SIDECAR,
    group="Host",
)

# --- Container ---------------------------------------------------------------------

CONTAINER_MEMORY_USED_BYTES = Metric(
    "jaxmon_container_memory_used_bytes",
    "gauge",
    "Memory charged to the process's control group, page cache included.",
    unit="bytes",
    sources=BOTH,
    group="Container",
)
CONTAINER_MEMORY_WORKING_SET_BYTES = Metric(
    "jaxmon_container_memory_working_set_bytes",
    "gauge",
    "The same less inactive page cache; what Kubernetes evicts by.",
    unit="bytes",
    sources=BOTH,
    group="Container",
)
CONTAINER_MEMORY_LIMIT_BYTES = Metric(
    "jaxmon_container_memory_limit_bytes",
    "gauge",
    "Memory beyond which the kernel kills; absent where there is no limit.",
    unit="bytes",
    sources=BOTH,
    group="Container",
)
CONTAINER_OOM_KILLS = Metric(
    "jaxmon_container_oom_kills_total",
    "counter",
    "Processes of the control group that the kernel killed for want of memory.",
    sources=BOTH,
    group="Container",
)
CONTAINER_CPU_SECONDS = Metric(
    "jaxmon_container_cpu_seconds_total",
    "counter",
    "CPU time of the control group, by mode.",
    unit="seconds",
    labels=("mode",),
    sources=BOTH,
    group="Container",
)
CONTAINER_CPU_THROTTLED_SECONDS = Metric(
    "jaxmon_container_cpu_throttled_seconds_total",
    "counter",
    "Time in which the control group could not run, its share being used up.",
    unit="seconds",
    sources=BOTH,
    group="Container",
)
CONTAINER_CPU_LIMIT = Metric(
    "jaxmon_container_cpu_limit",
    "gauge",
    "Cores that the control group may use; absent where there is no limit.",
    sources=BOTH,
    group="Container",
)
CONTAINER_PRESSURE_SECONDS = Metric(
    "jaxmon_container_pressure_seconds_total",
    "counter",
    "Time in which some, or all, tasks of the control group waited for a resource.",
    unit="seconds",
    labels=("resource", "kind"),
    sources=BOTH,
    group="Container",
    values=(("resource", PRESSURE_RESOURCES), ("kind", PRESSURE_KINDS)),
)
