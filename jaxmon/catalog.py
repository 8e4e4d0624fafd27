"""
Every metric that jaxmon exports, once.

Agent, sidecar, dashboards, alerts, docs and tests refer to the constants below;
no other module spells a metric name. Names are complete as exposed (base unit and
``_total`` included). See `docs/metrics.md`, which is generated from here.

The module is long because it is one table; split, a name could hide in any part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


# The last two are for what others export and the sidecar passes on.
Kind = Literal["counter", "gauge", "histogram", "info", "summary", "untyped"]
Source = Literal["agent", "sidecar"]

AGENT: tuple[Source, ...] = ("agent",)
SIDECAR: tuple[Source, ...] = ("sidecar",)
BOTH: tuple[Source, ...] = ("agent", "sidecar")


@dataclass(frozen=True, slots=True)
class Metric:
    """
    One metric family: what it is called, what it means, who exports it.

    Args:
        name: full exposed name, base unit suffix included.
        kind: Prometheus type; ``info`` is a gauge that is always 1.
        help: one sentence, ends with a full stop.
        unit: base unit, ``""`` for counts.
        labels: label names in exposition order. The sidecar adds ``worker`` to
            every agent series that it relays.
        buckets: upper bounds of a histogram, without ``+Inf``.
        sources: whose page carries it.
        group: heading under which the documentation lists it.
        values: the closed set of values of a label, where there is one.
    """

    name: str
    kind: Kind
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    sources: tuple[Source, ...] = AGENT
    group: str = ""
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()


PHASES = ("trace", "lower", "backend_compile", "cache_retrieval")
OUTCOMES = ("compiled", "cache_hit", "failed")
CAUSES = (
    "shape",
    "dtype",
    "weak_type",
    "static_argument",
    "tree_structure",
    "sharding",
    "committed",
    "context",
    "new_function",
    "evicted",
    "unknown",
)
ERROR_KINDS = ("oom", "invalid_argument", "nan", "trace_error", "internal", "other")
PERSISTENT_CACHE_RESULTS = ("hit", "miss")
STARTS = ("cold", "warm")
# Xids after which a GPU or its work is usually lost (NVIDIA's Xid catalogue):
# double-bit ECC, NVLink, fallen off the bus, contained and uncontained ECC, GSP.
CRITICAL_XIDS = ("48", "62", "64", "74", "79", "94", "95", "119", "120")
REQUEST_OUTCOMES = ("success", "client_error", "error")
MEMORY_KINDS = ("in_use", "peak", "limit", "reserved", "largest_allocation")

# --- Calls -----------------------------------------------------------------------

JIT_CALLS = Metric(
    "jaxmon_jit_calls_total",
    "counter",
    "Calls of jitted functions made by the program, not while tracing another.",
    labels=("function",),
    group="Calls",
)
JIT_CACHE_HITS = Metric(
    "jaxmon_jit_cache_hits_total",
    "counter",
    "Calls served by the C++ fast path; hits / calls is the cache hit rate.",
    labels=("function",),
    group="Calls",
)
JIT_CACHE_MISSES = Metric(
    "jaxmon_jit_cache_misses_total",
    "counter",
    "Calls that left the C++ fast path, functions jitted before jaxmon included.",
    labels=("function",),
    group="Calls",
)
ERRORS = Metric(
    "jaxmon_errors_total",
    "counter",
    "Exceptions that left a jitted call, or reached the top of a thread.",
    labels=("function", "kind"),
    group="Calls",
    values=(("kind", ERROR_KINDS),),
)

# --- Compile ---------------------------------------------------------------------

COMPILE_SECONDS = Metric(
    "jaxmon_compile_seconds",
    "histogram",
    "Time spent making a program ready to run, by phase.",
    unit="seconds",
    labels=("function", "phase"),
    buckets=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
    group="Compile",
    values=(("phase", PHASES),),
)
COMPILES = Metric(
    "jaxmon_compiles_total",
    "counter",
    "Executables built or loaded from the persistent cache, and failures to.",
    labels=("function", "outcome"),
    group="Compile",
    values=(("outcome", OUTCOMES),),
)
RECOMPILES = Metric(
    "jaxmon_recompiles_total",
    "counter",
    "Calls that compiled a function which had been compiled before, by cause.",
    labels=("function", "cause"),
    group="Compile",
    values=(("cause", CAUSES),),
)
COMPILES_IN_PROGRESS = Metric(
    "jaxmon_compiles_in_progress",
    "gauge",
    "Backend compiles, persistent cache look-ups included, running now.",
    group="Compile",
)
COMPILE_OLDEST_SECONDS = Metric(
    "jaxmon_compile_oldest_seconds",
    "gauge",
    "Age of the oldest compile in progress, 0 when there is none.",
    unit="seconds",
    group="Compile",
)
PERSISTENT_CACHE_REQUESTS = Metric(
    "jaxmon_persistent_cache_requests_total",
    "counter",
    "Look-ups in JAX's persistent compilation cache.",
    labels=("result",),
    group="Compile",
    values=(("result", PERSISTENT_CACHE_RESULTS),),
)

# --- Memory ----------------------------------------------------------------------

DEVICE_MEMORY_BYTES = Metric(
    "jaxmon_device_memory_bytes",
    "gauge",
    "Allocator figures of a local device; absent where JAX has none (CPU).",
    unit="bytes",
    labels=("device", "kind"),
    group="Memory",
    values=(("kind", MEMORY_KINDS),),
)
DEVICE_ALLOCATIONS = Metric(
    "jaxmon_device_allocations_total",
    "counter",
    "Allocations made by the allocator of a local device.",
    labels=("device",),
    group="Memory",
)
LIVE_ARRAYS = Metric(
    "jaxmon_live_arrays",
    "gauge",
    "Arrays that the program holds with a shard on a local device.",
    labels=("device",),
    group="Memory",
)
LIVE_ARRAY_BYTES = Metric(
    "jaxmon_live_array_bytes",
    "gauge",
    "Bytes of the shards of live arrays on a local device.",
    unit="bytes",
    labels=("device",),
    group="Memory",
)

# --- Requests --------------------------------------------------------------------

REQUEST_SECONDS = Metric(
    "jaxmon_request_seconds",
    "histogram",
    "Time from request to response; cold when a compile happened on its behalf.",
    unit="seconds",
    labels=("route", "start"),
    # 0.2 s and 1 s are thresholds of the default SLOs.
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    group="Requests",
    values=(("start", STARTS),),
)
REQUESTS = Metric(
    "jaxmon_requests_total",
    "counter",
    "Requests that ended, by outcome; client_error is the caller's fault.",
    labels=("route", "outcome", "start"),
    group="Requests",
    values=(("outcome", REQUEST_OUTCOMES), ("start", STARTS)),
)
REQUESTS_IN_PROGRESS = Metric(
    "jaxmon_requests_in_progress",
    "gauge",
    "Requests being served now.",
    labels=("route",),
    group="Requests",
)

# --- Training --------------------------------------------------------------------

STEP_SECONDS = Metric(
    "jaxmon_step_seconds",
    "histogram",
    "Time from one step of a loop to the next, waiting for data included.",
    unit="seconds",
    labels=("loop",),
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    group="Training",
)
STEPS = Metric(
    "jaxmon_steps_total",
    "counter",
    "Steps of a loop that were finished.",
    labels=("loop",),
    group="Training",
)
ITEMS = Metric(
    "jaxmon_items_total",
    "counter",
    "Items (tokens, images, sequences) that a loop worked through.",
    labels=("loop", "item"),
    group="Training",
)
DATA_WAIT_SECONDS = Metric(
    "jaxmon_data_wait_seconds_total",
    "counter",
    "Time that a loop waited for its next batch.",
    unit="seconds",
    labels=("loop",),
    group="Training",
)
LAST_STEP_TIMESTAMP_SECONDS = Metric(
    "jaxmon_last_step_timestamp_seconds",
    "gauge",
    "When a running loop began or last finished a step, as a Unix timestamp.",
    unit="seconds",
    labels=("loop",),
    group="Training",
)
TIME_SECONDS = Metric(
    "jaxmon_time_seconds_total",
    "counter",
    "Wall time of the program, split by what it was doing.",
    unit="seconds",
    labels=("activity",),
    group="Training",
)

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
    "Work that jaxmon refused to stay within its bounds.",
    labels=("what",),
    sources=BOTH,
    group="Self",
    values=(("what", ("connection",)),),
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
)

# --- Accelerators ----------------------------------------------------------------

ACCELERATOR_INFO = Metric(
    "jaxmon_accelerator_info",
    "info",
    "Accelerators of this host.",
    labels=("uuid", "index", "vendor", "model", "driver", "pci_bus_id"),
    sources=SIDECAR,
    group="Accelerators",
)
ACCELERATOR_UP = Metric(
    "jaxmon_accelerator_up",
    "gauge",
    "1 while the accelerator answers its driver, 0 when it is lost.",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
)
ACCELERATOR_UTILIZATION_RATIO = Metric(
    "jaxmon_accelerator_utilization_ratio",
    "gauge",
    "Share of the last sample period in which a kernel ran.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
)
ACCELERATOR_MEMORY_USED_BYTES = Metric(
    "jaxmon_accelerator_memory_used_bytes",
    "gauge",
    "Memory in use on the accelerator, by all processes.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
)
ACCELERATOR_MEMORY_SIZE_BYTES = Metric(
    "jaxmon_accelerator_memory_size_bytes",
    "gauge",
    "Memory of the accelerator.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
)
ACCELERATOR_TEMPERATURE_CELSIUS = Metric(
    "jaxmon_accelerator_temperature_celsius",
    "gauge",
    "Temperature of the accelerator.",
    unit="celsius",
    labels=("uuid", "sensor"),
    sources=SIDECAR,
    group="Accelerators",
    values=(("sensor", ("gpu", "memory")),),
)
ACCELERATOR_POWER_WATTS = Metric(
    "jaxmon_accelerator_power_watts",
    "gauge",
    "Power drawn by the accelerator.",
    unit="watts",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
)
ACCELERATOR_POWER_LIMIT_WATTS = Metric(
    "jaxmon_accelerator_power_limit_watts",
    "gauge",
    "Power limit in force on the accelerator.",
    unit="watts",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
)
ACCELERATOR_ENERGY_JOULES = Metric(
    "jaxmon_accelerator_energy_joules_total",
    "counter",
    "Energy used by the accelerator since its driver was loaded.",
    unit="joules",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
)

# --- NVIDIA GPUs: xid is bounded by the driver's list ------------------------------

GPU_XID_ERRORS = Metric(
    "jaxmon_gpu_xid_errors_total",
    "counter",
    "Xid errors that the driver reported since the sidecar started.",
    labels=("uuid", "xid"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
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
)
HOST_LOAD_1M = Metric(
    "jaxmon_host_load1",
    "gauge",
    "Load average of the host over one minute.",
    sources=SIDECAR,
    group="Host",
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

# --- Process: names, kinds and meaning are prometheus_client's --------------------

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

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
