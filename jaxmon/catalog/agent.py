"""
Metrics of an agent: calls, compiles and programs; requests, queues, batches and loops;
memory, transfers and numeric checks; runs, which are all attempts of a training
together; identity and health of the process, including jaxmon's own.
"""

from __future__ import annotations

from jaxmon.catalog import model, values
from jaxmon.catalog.model import AGENT, BOTH, SIDECAR, Sheet


_calls = Sheet("Calls", AGENT, "function")

JIT_CALLS = _calls.counter(
    "Calls to jitted functions by the program, excluding calls made while tracing."
)
JIT_CACHE_HITS = _calls.counter(
    "Calls that stayed on the C++ fast path; hits / calls is the cache hit rate."
)
JIT_CACHE_MISSES = _calls.counter(
    "Calls that left the C++ fast path, including functions jitted before jaxmon "
    "started."
)
ERRORS = _calls.counter(
    "Exceptions raised by a jitted call, or uncaught at the top of a thread.",
    ("kind", values.ERROR_KINDS),
)
JAX_WARNINGS = Sheet("Calls").counter(
    "Warnings that JAX issued or logged, whether or not they were displayed.",
    ("kind", values.WARNING_KINDS),
)
DISPATCH_SECONDS = _calls.histogram(
    "Host time of sampled calls, from call to return (dispatch only).",
    buckets=(1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 1.0, 10.0),
    few=(1e-4, 1e-3, 0.01, 0.1),
)
EXECUTION_SECONDS = _calls.histogram(
    "Device time of sampled calls, from the start of execution to its end.",
    buckets=(1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    few=(1e-3, 0.01, 0.1, 1.0),
)

SLOWDOWN = Sheet("Calls").gauge(
    "How many times as long a function or a step of a loop takes as before; 1 unless "
    "beyond noise.",
    "name",
    ("kind", values.SLOWDOWN_KINDS),
    ("against", values.SLOWDOWN_REFERENCES),
)

_compiles = Sheet("Compile", AGENT, "function")
_compile = Sheet("Compile")

COMPILE_SECONDS = _compiles.histogram(
    "Time spent tracing, lowering and compiling programs, by phase.",
    ("phase", values.PHASES),
    buckets=(0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
    few=(0.1, 1.0, 10.0, 100.0),
)
COMPILES = _compiles.counter(
    "Executables compiled or loaded from the persistent cache, and failed "
    "attempts, by outcome.",
    ("outcome", values.OUTCOMES),
)
RECOMPILES = _compiles.counter(
    "Calls that recompiled a function, by cause.", ("cause", values.CAUSES)
)
COMPILES_IN_PROGRESS = _compile.gauge(
    "Backend compiles in progress, including persistent cache lookups."
)
COMPILE_OLDEST_SECONDS = _compile.gauge(
    "Age of the oldest compile in progress; 0 if none."
)
PERSISTENT_CACHE_REQUESTS = _compile.counter(
    "Lookups in JAX's persistent compilation cache, by result.",
    ("result", values.PERSISTENT_CACHE_RESULTS),
)
PERSISTENT_CACHE_WRITES = _compile.counter(
    "Executables that JAX wrote to the persistent cache."
)
PERSISTENT_CACHE_ERRORS = _compile.counter(
    "Persistent cache failures, which JAX only reports as warnings.",
    ("operation", values.PERSISTENT_CACHE_OPERATIONS),
)
PERSISTENT_CACHE_SAVED_SECONDS = _compile.counter(
    "Compile time saved by cache hits, net of retrieval time, as estimated by JAX."
)
PERSISTENT_CACHE_SIZE_BYTES = _compile.gauge(
    "Size of the entries in the persistent cache's directory, if it is local."
)
PERSISTENT_CACHE_ENTRIES = _compile.gauge(
    "Entries in the persistent cache's directory, if it is local."
)
PERSISTENT_CACHE_OBSTACLE = _compile.gauge(
    "1 while this reason prevents programs from being stored in, or found in, the "
    "persistent cache.",
    ("reason", values.PERSISTENT_CACHE_OBSTACLES),
)
WARMUP_SIGNATURES = _compile.counter(
    "Signatures tried by `jaxmon.warmup`, by result.", ("result", values.WARMUP_RESULTS)
)
READY = _compile.flag(
    "Whether /-/ready responds 200: no warm-up is running or still expected."
)
COMPILES_AFTER_READY = _compiles.counter(
    "Compiles, and loads from the persistent cache, after `jaxmon.ready` or a warm-up."
)

_programs = Sheet("Programs", AGENT, "function")

PROGRAMS = _programs.counter("Distinct programs compiled or loaded for a function.")
PROGRAM_INFO = _programs.info(
    "Latest program of a function; hosts with different fingerprints run "
    "different programs.",
    "fingerprint",
)
PROGRAM_FLOPS = _programs.gauge(
    "Floating-point operations of the latest program, as estimated by XLA (loop "
    "bodies counted once)."
)
PROGRAM_MATRIX_FLOPS = _programs.gauge(
    "FLOPs of matrix products and convolutions in the latest program, with loops, on "
    "all devices.",
    ("work", values.FLOPS_WORK),
)
PROGRAM_ACCESSED_BYTES = _programs.gauge(
    "Bytes read and written by the latest program, as estimated by XLA (loop "
    "bodies counted once)."
)
PROGRAM_ARGUMENT_BYTES = _programs.gauge(
    "Argument memory of a function's latest program."
)
PROGRAM_OUTPUT_BYTES = _programs.gauge("Output memory of a function's latest program.")
PROGRAM_TEMPORARY_BYTES = _programs.gauge(
    "Temporary device memory of a function's latest program."
)
PROGRAM_PEAK_BYTES = _programs.gauge(
    "Peak device memory of a function's latest program."
)
PROGRAM_CODE_BYTES = _programs.gauge("Code size of a function's latest program.")
PROGRAM_FUSIONS = _programs.gauge("Fusions in a function's latest program.")
PROGRAM_INSTRUCTIONS = _programs.gauge(
    "HLO instructions in a function's latest program."
)
PROGRAM_DEVICES = _programs.gauge(
    "Number of devices a function's latest program runs on, across all processes."
)

_utilization = Sheet("Model FLOPs utilization", AGENT, "function")

# FLOP/s of a large slice over a year.
_MOST_FLOPS = (0.0, 1e30)

FLOPS = _utilization.counter(
    "FLOPs of matrix products and convolutions in calls, on this process's devices.",
    ("work", values.FLOPS_WORK),
    limits=_MOST_FLOPS,
)
IDEAL_SECONDS = _utilization.counter(
    "Time that these FLOPs take all devices of the process at their peak; the rate of "
    "`model` is the MFU.",
    ("work", values.FLOPS_WORK),
)
FLOPS_UNKNOWN_REASON = _utilization.flag(
    "1 for a function whose FLOPs are not all known, and are not exported.",
    ("reason", values.FLOPS_UNKNOWN),
    name="jaxmon_flops_unknown",
)
DEVICE_PEAK_FLOPS = Sheet("Model FLOPs utilization").gauge(
    "Dense FLOP/s of one device at its peak, by format of the operands.",
    ("format", values.FLOPS_FORMATS),
)


# Thirteen bounds for each decade, on average 19 % apart.
_DECADE = (1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0, 3.5, 4.2, 5.0, 6.0, 7.0, 8.5)

_requests = Sheet("Requests", AGENT, "route")

REQUEST_SECONDS = _requests.histogram(
    "Request latency; cold if a compile ran on its behalf, delayed if it waited for "
    "another, else warm.",
    ("outcome", values.REQUEST_OUTCOMES),
    ("start", values.STARTS),
    # 0.2 s and 1 s are thresholds of the default SLOs. What crosses a bound changes an
    # estimate by less than what counts as slow, `Limits.slow_requests`.
    buckets=(
        *(0.005, 0.01, 0.025, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.5),
        *(5.0, 7.0, 10.0, 15.0, 30.0),
    ),
    few=(0.05, 0.2, 1.0, 10.0),
)
REQUESTS = _requests.counter(
    "Finished requests, by outcome; client_error is the client's fault.",
    ("outcome", values.REQUEST_OUTCOMES),
    ("start", values.STARTS),
)
_tenants = Sheet("Requests", AGENT, "tenant")
TENANT_REQUESTS = _tenants.counter(
    "Finished requests of which the program named a tenant, by outcome.",
    ("outcome", values.REQUEST_OUTCOMES),
)
TENANT_REQUEST_SECONDS = _tenants.histogram(
    "Latency of successful requests of which the program named a tenant.",
    buckets=(0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 10.0),
    few=(0.2, 1.0, 10.0),
)
REQUESTS_IN_PROGRESS = _requests.gauge("Requests in progress.")
REQUEST_OLDEST_SECONDS = _requests.gauge(
    "Age of the oldest request in progress; 0 if none."
)
INVOCATIONS = _requests.counter(
    "Invocations of a serverless function; a cold instance start is the first of a "
    "process.",
    ("instance_start", values.INSTANCE_STARTS),
)
INSTANCE_START_SECONDS = Sheet("Requests").histogram(
    "Time from the start of a process to its first invocation.",
    buckets=(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
    few=(1.0, 5.0, 30.0),
)
QUEUE_DEPTH = Sheet("Requests").gauge(
    "Number of items waiting in a queue of the program.", "queue"
)
BATCH_FILL_RATIO = _requests.histogram(
    "Batch fill: requested items as a fraction of the batch's capacity.",
    buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 1.0),
    few=(0.5, 0.9, 1.0),
)

_loops = Sheet("Training", AGENT, "loop")
_activities = Sheet("Training", AGENT, "activity")
_checkpoints = Sheet("Training", AGENT, ("operation", values.CHECKPOINT_DIRECTIONS))
_values = Sheet("Training", AGENT, "name")

STEP_SECONDS = _loops.histogram(
    "Step time, from one step of a loop to the next, including data wait.",
    # Steps are alike: with wider ones, most are in a single bucket.
    buckets=(
        *(0.001, 0.002, 0.003, 0.005),
        *(float(f"{step}e{power}") for power in (-2, -1, 0, 1) for step in _DECADE),
        100.0,
    ),
    few=(0.01, 0.1, 1.0, 10.0),
)
STEPS = _loops.counter("Completed steps of a loop.")
ITEMS = _loops.counter("Items (tokens, images, sequences) processed by a loop.", "item")
DATA_WAIT_SECONDS = _loops.counter("Time a loop spent waiting for its next batch.")
STEP_AGE_SECONDS = _loops.gauge(
    "Time since a running loop started or last completed a step, by the process's own "
    "clock."
)
TIME_SECONDS = _activities.counter("Wall time of the program, by activity.")
ACTIVITY_RUNNING_SECONDS = _activities.gauge(
    "Age of the oldest activity of this name in progress; 0 if none."
)
ACTIVITY_AGE_SECONDS = _activities.gauge(
    "Time since an activity of this name last finished without an exception; absent "
    "if none has."
)
CHECKPOINT_SECONDS = Sheet("Training").histogram(
    "Time of an Orbax restore or save, what of a save blocked the program, and what of "
    "that was waiting for another.",
    ("operation", values.CHECKPOINT_OPERATIONS),
    buckets=(0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0),
    few=(1.0, 10.0, 100.0, 1000.0),
)
CHECKPOINT_BYTES = _checkpoints.counter(
    "Array data that Orbax saved or restored in this process, before compression."
)
CHECKPOINT_FAILURES = _checkpoints.counter(
    "Orbax checkpoints that began and did not succeed."
)
VALUE = _values.gauge(
    "Latest finite value of a quantity that the program logs, such as its loss."
)
VALUE_NONFINITE = _values.counter(
    "Values of a logged quantity that were NaN or infinite."
)
VALUE_NONFINITE_RUN = _values.gauge(
    "Non-finite values of a logged quantity since its last finite one, 0 if it never "
    "was."
)
VALUE_SPIKES = _values.counter(
    "Values of a logged quantity far above the median of those before them."
)


_identity = Sheet("Identity")
_identity_of_both = Sheet("Identity", BOTH)

BUILD_INFO = _identity_of_both.info("Version of jaxmon.", "version")
RUNTIME_INFO = _identity.info(
    "Release of the program, and versions of JAX, its libraries and its platform.",
    "release jax jaxlib python platform platform_version",
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
