"""Who a process is, and how it fares: jaxmon itself included."""

from __future__ import annotations

from jaxmon.catalog.model import BOTH, SIDECAR, Metric


# --- Identity --------------------------------------------------------------------

BUILD_INFO = Metric(
    "jaxmon_build_info",
    "info",
    "Version of jaxmon.",
    labels=("version",),
    sources=BOTH,
    group="Identity",
)
RUNTIME_INFO = Metric(
    "jaxmon_runtime_info",
    "info",
    "Versions of JAX, its libraries and its platform.",
    labels=("jax", "jaxlib", "python", "platform", "platform_version"),
    group="Identity",
)
DEVICE_INFO = Metric(
    "jaxmon_device_info",
    "info",
    "Local devices of this process; uuid and pci_bus_id join accelerator metrics.",
    labels=(
        "device",
        "platform",
        "device_kind",
        "process_index",
        "uuid",
        "pci_bus_id",
    ),
    group="Identity",
)
PROCESS_INDEX = Metric(
    "jaxmon_process_index",
    "gauge",
    "Index of this process in the JAX cluster.",
    group="Identity",
)
PROCESS_COUNT = Metric(
    "jaxmon_processes",
    "gauge",
    "Processes in the JAX cluster.",
    group="Identity",
)

# --- Self ------------------------------------------------------------------------

INTERNAL_ERRORS = Metric(
    "jaxmon_internal_errors_total",
    "counter",
    "Failures of jaxmon's own code, contained; the program was not disturbed.",
    labels=("site",),
    sources=BOTH,
    group="Self",
)
HOOK_ACTIVE = Metric(
    "jaxmon_hook_active",
    "gauge",
    "1 while a hook observes, 0 when it could not attach or switched itself off.",
    labels=("hook",),
    group="Self",
)
LABEL_OVERFLOW = Metric(
    "jaxmon_label_overflow_total",
    "counter",
    "Look-ups of a label that did not fit and was reported as 'other'.",
    labels=("label",),
    group="Self",
)
DROPPED = Metric(
    "jaxmon_dropped_total",
    "counter",
    "What jaxmon refused: beyond its bounds, or a figure that cannot be true.",
    labels=("what",),
    sources=BOTH,
    group="Self",
    values=(("what", ("connection", "figure", "program", "sample")),),
)
WEB_CONFIG_SUCCESS = Metric(
    "jaxmon_web_config_success",
    "gauge",
    "1 while what --web-config and its certificates say is in force, 0 after a change "
    "that cannot be used.",
    sources=SIDECAR,
    group="Self",
)
SCRAPE_SECONDS = Metric(
    "jaxmon_scrape_seconds",
    "histogram",
    "Time spent collecting and encoding one page.",
    unit="seconds",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    sources=BOTH,
    group="Self",
)

# --- Process: names, kinds and meaning are prometheus_client's -------------------

PROCESS_VIRTUAL_MEMORY_BYTES = Metric(
    "process_virtual_memory_bytes",
    "gauge",
    "Virtual memory size in bytes.",
    unit="bytes",
    sources=BOTH,
    group="Process",
)
PROCESS_RESIDENT_MEMORY_BYTES = Metric(
    "process_resident_memory_bytes",
    "gauge",
    "Resident memory size in bytes.",
    unit="bytes",
    sources=BOTH,
    group="Process",
)
PROCESS_START_TIME_SECONDS = Metric(
    "process_start_time_seconds",
    "gauge",
    "Start time of the process since unix epoch in seconds.",
    unit="seconds",
    sources=BOTH,
    group="Process",
)
PROCESS_CPU_SECONDS = Metric(
    "process_cpu_seconds_total",
    "counter",
    "Total user and system CPU time spent in seconds.",
    unit="seconds",
    sources=BOTH,
    group="Process",
)
PROCESS_OPEN_FDS = Metric(
    "process_open_fds",
    "gauge",
    "Number of open file descriptors.",
    sources=BOTH,
    group="Process",
)
PROCESS_MAX_FDS = Metric(
    "process_max_fds",
    "gauge",
    "Maximum number of open file descriptors.",
    sources=BOTH,
    group="Process",
)
PYTHON_GC_OBJECTS_COLLECTED = Metric(
    "python_gc_objects_collected_total",
    "counter",
    "Objects collected during gc.",
    labels=("generation",),
    sources=BOTH,
    group="Process",
)
PYTHON_GC_OBJECTS_UNCOLLECTABLE = Metric(
    "python_gc_objects_uncollectable_total",
    "counter",
    "Uncollectable objects found during GC.",
    labels=("generation",),
    sources=BOTH,
    group="Process",
)
PYTHON_GC_COLLECTIONS = Metric(
    "python_gc_collections_total",
    "counter",
    "Number of times this generation was collected.",
    labels=("generation",),
    sources=BOTH,
    group="Process",
)
