"""Process identity and health, including jaxmon's own."""

from __future__ import annotations

from jaxmon.catalog.model import BOTH, SIDECAR, Sheet
from jaxmon.catalog.values import EXPORT_OUTCOMES, EXPORT_SIGNALS, WALL_STATES


# --- Identity --------------------------------------------------------------------

_identity = Sheet("Identity")
_identity_of_both = Sheet("Identity", BOTH)

BUILD_INFO = _identity_of_both.info(
    "jaxmon_build_info", "Version of jaxmon.", "version"
)
RUNTIME_INFO = _identity.info(
    "jaxmon_runtime_info",
    "Versions of JAX, its libraries and its platform.",
    "jax",
    "jaxlib",
    "python",
    "platform",
    "platform_version",
)
DEVICE_INFO = _identity.info(
    "jaxmon_device_info",
    "Local devices of this process; uuid and pci_bus_id join accelerator metrics.",
    "device",
    "platform",
    "device_kind",
    "process_index",
    "uuid",
    "pci_bus_id",
)
PROCESS_INDEX = _identity.gauge(
    "jaxmon_process_index", "Index of this process in the JAX cluster."
)
PROCESS_COUNT = _identity.gauge("jaxmon_processes", "Processes in the JAX cluster.")

# --- Self ------------------------------------------------------------------------

_self = Sheet("Self")
_self_of_both = Sheet("Self", BOTH)
_self_of_sidecar = Sheet("Self", SIDECAR)

UPTIME_SECONDS = _self_of_both.gauge(
    "jaxmon_uptime_seconds",
    "Time since the process started, by its own clock.",
)
COUNTING_SECONDS = _self.gauge(
    "jaxmon_counting_seconds",
    "Time since the counters were zero; a sidecar adds those of processes that had the "
    "slot before.",
)
INTERNAL_ERRORS = _self_of_both.counter(
    "jaxmon_internal_errors_total",
    "Contained failures of jaxmon, or of what the program passed to it; the program "
    "was not affected.",
    "site",
)
HOOK_ACTIVE = _self.gauge(
    "jaxmon_hook_active",
    "1 while a hook is active, 0 if it could not attach or disabled itself.",
    "hook",
)
LABEL_OVERFLOW = _self.counter(
    "jaxmon_label_overflow_total",
    "Lookups of labels beyond the limit, reported as 'other'.",
    "label",
)
DROPPED = _self_of_both.counter(
    "jaxmon_dropped_total",
    "Items dropped by jaxmon: beyond its limits, or implausible values.",
    (
        "what",
        (
            *("connection", "event", "figure", "program", "sample", "span"),
            *("tracker", "value"),
        ),
    ),
)
WEB_CONFIG_SUCCESS = _self_of_sidecar.gauge(
    "jaxmon_web_config_success",
    "1 if the current --web-config and its certificates are in effect, 0 after an "
    "invalid change.",
)
SCRAPE_SECONDS = _self_of_both.histogram(
    "jaxmon_scrape_seconds",
    "Time spent collecting and encoding one scrape response.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    few=(0.01, 0.1, 1.0),
)
OTLP_EXPORTS = _self_of_both.counter(
    "jaxmon_otlp_exports_total",
    "Exports by OTLP, by outcome; only there while something is pushed.",
    ("signal", EXPORT_SIGNALS),
    ("outcome", EXPORT_OUTCOMES),
)

# --- Process: names, kinds and meaning are prometheus_client's -------------------

_process = Sheet("Process", BOTH)

PROCESS_VIRTUAL_MEMORY_BYTES = _process.gauge(
    "process_virtual_memory_bytes", "Virtual memory size in bytes."
)
PROCESS_RESIDENT_MEMORY_BYTES = _process.gauge(
    "process_resident_memory_bytes", "Resident memory size in bytes."
)
PROCESS_START_TIME_SECONDS = _process.gauge(
    "process_start_time_seconds",
    "Start time of the process since unix epoch in seconds.",
)
PROCESS_CPU_SECONDS = _process.counter(
    "process_cpu_seconds_total", "Total user and system CPU time spent in seconds."
)
PROCESS_OPEN_FDS = _process.gauge(
    "process_open_fds", "Number of open file descriptors."
)
PROCESS_MAX_FDS = _process.gauge(
    "process_max_fds", "Maximum number of open file descriptors."
)
PYTHON_GC_OBJECTS_COLLECTED = _process.counter(
    "python_gc_objects_collected_total", "Objects collected during gc.", "generation"
)
PYTHON_GC_OBJECTS_UNCOLLECTABLE = _process.counter(
    "python_gc_objects_uncollectable_total",
    "Uncollectable objects found during GC.",
    "generation",
)
PYTHON_GC_COLLECTIONS = _process.counter(
    "python_gc_collections_total",
    "Number of times this generation was collected.",
    "generation",
)

# --- Time ------------------------------------------------------------------------

_time = Sheet("Time")

WALL_SECONDS = _time.counter(
    "jaxmon_wall_seconds_total",
    "Wall time by what the program was doing, from looks at its threads.",
    ("state", WALL_STATES),
)
CALL_AGE_SECONDS = _time.gauge(
    "jaxmon_call_age_seconds",
    "Time since a process of a job last called what they call together, by what it is "
    "doing; absent unless unusually long.",
    ("state", WALL_STATES),
)
