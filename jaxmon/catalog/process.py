"""
Process: memory, transfers, numeric checks; runs, which are all attempts of a training
together; identity and health, including jaxmon's own.
"""

from __future__ import annotations

from jaxmon.catalog import model, values
from jaxmon.catalog.model import AGENT, BOTH, SIDECAR, Sheet


_identity = Sheet("Identity")
_identity_of_both = Sheet("Identity", BOTH)

BUILD_INFO = _identity_of_both.info("Version of jaxmon.", "version")
RUNTIME_INFO = _identity.info(
    "Versions of JAX, its libraries and its platform.",
    "jax jaxlib python platform platform_version",
)
DEVICE_INFO = _identity.info(
    "Local devices of this process; uuid and pci_bus_id join accelerator metrics.",
    "device platform device_kind process_index uuid pci_bus_id",
)
PROCESS_INDEX = _identity.gauge("Index of this process in the JAX cluster.")
PROCESS_COUNT = _identity.gauge(
    "Processes in the JAX cluster.", name="jaxmon_processes"
)

_self = Sheet("Self")
_self_of_both = Sheet("Self", BOTH)
_self_of_sidecar = Sheet("Self", SIDECAR)

UPTIME_SECONDS = _self_of_both.gauge(
    "Time since the process started, by its own clock."
)
COUNTING_SECONDS = _self.gauge(
    "Time since the counters were zero; a sidecar adds those of processes that had the "
    "slot before."
)
INTERNAL_ERRORS = _self_of_both.counter(
    "Contained failures of jaxmon, or of what the program passed to it; the program "
    "was not affected.",
    "site",
)
HOOK_ACTIVE = _self.gauge(
    "1 while a hook is active, 0 if it could not attach or disabled itself.", "hook"
)
LABEL_OVERFLOW = _self.counter(
    "Lookups of labels beyond the limit, reported as 'other'.", "label"
)
DROPPED = _self_of_both.counter(
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
    "1 if the current --web-config and its certificates are in effect, 0 after an "
    "invalid change."
)
SCRAPE_SECONDS = _self_of_both.histogram(
    "Time spent collecting and encoding one scrape response.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    few=(0.01, 0.1, 1.0),
)
OTLP_EXPORTS = _self_of_both.counter(
    "Exports by OTLP, by outcome; only there while something is pushed.",
    ("signal", values.EXPORT_SIGNALS),
    ("outcome", values.EXPORT_OUTCOMES),
)

_process = Sheet("Process", BOTH, prefix="")

PROCESS_VIRTUAL_MEMORY_BYTES = _process.gauge("Virtual memory size in bytes.")
PROCESS_RESIDENT_MEMORY_BYTES = _process.gauge("Resident memory size in bytes.")
PROCESS_START_TIME_SECONDS = _process.gauge(
    "Start time of the process since unix epoch in seconds."
)
PROCESS_CPU_SECONDS = _process.counter(
    "Total user and system CPU time spent in seconds."
)
PROCESS_OPEN_FDS = _process.gauge("Number of open file descriptors.")
PROCESS_MAX_FDS = _process.gauge("Maximum number of open file descriptors.")
PYTHON_GC_OBJECTS_COLLECTED = _process.counter(
    "Objects collected during gc.", "generation"
)
PYTHON_GC_OBJECTS_UNCOLLECTABLE = _process.counter(
    "Uncollectable objects found during GC.", "generation"
)
PYTHON_GC_COLLECTIONS = _process.counter(
    "Number of times this generation was collected.", "generation"
)

_time = Sheet("Time")

WALL_SECONDS = _time.counter(
    "Wall time by what the program was doing, from looks at its threads.",
    ("state", values.WALL_STATES),
)
CALL_AGE_SECONDS = _time.gauge(
    "Time since a process of a job last called what they call together, by what it is "
    "doing; absent unless unusually long.",
    ("state", values.WALL_STATES),
)


_devices = Sheet("Memory", AGENT, "device")
_transfers = Sheet("Memory", AGENT, ("direction", values.TRANSFER_DIRECTIONS))
_memory = Sheet("Memory")

DEVICE_MEMORY_BYTES = _devices.gauge(
    "Allocator statistics of a local device; absent where JAX provides none (CPU).",
    ("kind", values.MEMORY_KINDS),
)
DEVICE_ALLOCATIONS = _devices.counter("Allocations made by a local device's allocator.")
LIVE_ARRAYS = _devices.gauge(
    "Live arrays with a shard in a local device's memory.", "dtype"
)
LIVE_ARRAY_BYTES = _devices.gauge(
    "Bytes of live array shards in a local device's memory.", "dtype"
)
OFFLOADED_ARRAY_BYTES = _devices.gauge(
    "Bytes of a local device's live arrays that are offloaded to host memory."
)
LEAK_GROWTH_BYTES = _devices.gauge(
    "Growth of live bytes over a window of steady growth (suspected leak); 0 otherwise."
)
OOM_REPORTS = _memory.counter("Reports written after an out-of-memory error.")
HOST_TRANSFERS = _transfers.counter(
    "Host-device transfers made by the program, explicit or implicit."
)
HOST_TRANSFER_BYTES = _transfers.counter("Bytes moved by host-device transfers.")
HOST_TRANSFER_SECONDS = _transfers.counter(
    "Time the program was blocked in transfers, including waiting for results."
)

HOST_SYNCS = _memory.counter("Device synchronizations by block_until_ready.")
HOST_SYNC_SECONDS = _memory.counter(
    "Time that the program was blocked in block_until_ready."
)

_numerics = Sheet("Numerics", AGENT, "function")

NONFINITE = Sheet("Numerics").counter(
    "Non-finite values in sampled floating-point outputs of a function.", "name"
)
NONFINITE_OUTPUTS = Sheet("Numerics").gauge(
    "Small outputs of a function that were finite and are NaN in the latest samples.",
    "name",
)
FLOAT64_PROMOTIONS = _numerics.counter(
    "Programs that compute in float64 although no argument is float64."
)
OUTPUT_DEVIATION = _numerics.gauge(
    "Largest relative deviation between two runs on the same input, 0 if identical."
)
DETERMINISM_CHECKS = _numerics.counter(
    "Determinism checks (second runs on the same input), by outcome; passed if "
    "outputs were identical.",
    ("outcome", values.CHECK_OUTCOMES),
)
DEVICE_DEVIATIONS = _numerics.counter(
    "Determinism checks in which an output differed on this local device, but not on "
    "all.",
    "device",
)
GRADIENT_CHECKS = _numerics.counter(
    "Gradient checks against finite differences by jaxmon.check_gradients, by outcome.",
    ("outcome", values.CHECK_OUTCOMES),
)
KEY_REUSE = _numerics.counter("PRNG key reuses rejected by JAX's key-reuse checker.")


RUNS_GROUP = "Runs"
"""The group of metrics that continue what earlier attempts counted: never added up."""

_runs = Sheet(RUNS_GROUP, AGENT, "run")

RUN_SECONDS = _runs.counter(
    "Wall time since the first attempt of a run began, by what it went into.",
    ("activity", values.RUN_ACTIVITIES),
)
RUN_INTERRUPTIONS = _runs.counter(
    "Attempts of a run that ended before the current one, by how.",
    ("ending", values.RUN_ENDINGS),
)
RUN_STEPS = _runs.counter(
    "Steps of a run that were done, each counted once however often it was done."
)
RUN_LOST_STEPS = _runs.counter(
    "Steps of a run that were done and had to be done again."
)
RUN_SAVES = _runs.counter("Checkpoints of a run that were saved.")
RUN_RESUMES = _runs.counter("Interruptions of a run after which a step was done again.")
RUN_RESUME_SECONDS = _runs.counter(
    "Time from each interruption of a run to the end of the next step."
)
RUN_FRUITLESS_ATTEMPTS = _runs.gauge(
    "Attempts in a row, with the current one, that have done no step for the first "
    "time.",
    limits=(0.0, 1e9),
)
RUN_UNSAVED_SECONDS = _runs.gauge(
    "Time since the record of a run was last written; a kill costs that much of it."
)

globals().update(model.named(globals()))
