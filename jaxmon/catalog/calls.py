"""Calls, compiles and the programs they make."""

from __future__ import annotations

from jaxmon.catalog.model import Metric
from jaxmon.catalog.values import (
    CAUSES,
    ERROR_KINDS,
    OUTCOMES,
    PERSISTENT_CACHE_OBSTACLES,
    PERSISTENT_CACHE_OPERATIONS,
    PERSISTENT_CACHE_RESULTS,
    PHASES,
)


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
    "Calls that stayed on the C++ fast path; hits / calls is the cache hit rate.",
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
DISPATCH_SECONDS = Metric(
    "jaxmon_dispatch_seconds",
    "histogram",
    "Host time of sampled calls: from the call to its return, device work queued.",
    unit="seconds",
    labels=("function",),
    buckets=(1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 1.0, 10.0),
    group="Calls",
)
EXECUTION_SECONDS = Metric(
    "jaxmon_execution_seconds",
    "histogram",
    "Device time of sampled calls: from the start of their work to its end.",
    unit="seconds",
    labels=("function",),
    buckets=(1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
    group="Calls",
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
PERSISTENT_CACHE_WRITES = Metric(
    "jaxmon_persistent_cache_writes_total",
    "counter",
    "Executables that JAX wrote to the persistent cache.",
    group="Compile",
)
PERSISTENT_CACHE_ERRORS = Metric(
    "jaxmon_persistent_cache_errors_total",
    "counter",
    "Failures of the persistent cache, of which JAX only warns.",
    labels=("operation",),
    group="Compile",
    values=(("operation", PERSISTENT_CACHE_OPERATIONS),),
)
PERSISTENT_CACHE_SAVED_SECONDS = Metric(
    "jaxmon_persistent_cache_saved_seconds_total",
    "counter",
    "Compile time that cache hits saved, retrieval deducted, by JAX's estimate.",
    unit="seconds",
    group="Compile",
)
PERSISTENT_CACHE_SIZE_BYTES = Metric(
    "jaxmon_persistent_cache_size_bytes",
    "gauge",
    "Size of the entries in the persistent cache's directory, if it is local.",
    unit="bytes",
    group="Compile",
)
PERSISTENT_CACHE_ENTRIES = Metric(
    "jaxmon_persistent_cache_entries",
    "gauge",
    "Entries in the persistent cache's directory, if it is local.",
    group="Compile",
)
PERSISTENT_CACHE_OBSTACLE = Metric(
    "jaxmon_persistent_cache_obstacle",
    "gauge",
    "1 while this keeps programs out of the persistent cache, or from being found.",
    labels=("reason",),
    group="Compile",
    values=(("reason", PERSISTENT_CACHE_OBSTACLES),),
)

# --- Programs --------------------------------------------------------------------

PROGRAMS = Metric(
    "jaxmon_programs_total",
    "counter",
    "Different programs built or loaded for a function.",
    labels=("function",),
    group="Programs",
)
PROGRAM_INFO = Metric(
    "jaxmon_program_info",
    "info",
    "Newest program of a function; hosts that differ here run different programs.",
    labels=("function", "fingerprint"),
    group="Programs",
)
PROGRAM_FLOPS = Metric(
    "jaxmon_program_flops",
    "gauge",
    "Floating point operations by XLA's estimate, which counts a loop body once.",
    labels=("function",),
    group="Programs",
)
PROGRAM_ACCESSED_BYTES = Metric(
    "jaxmon_program_accessed_bytes",
    "gauge",
    "Bytes read and written by XLA's estimate, which counts a loop body once.",
    unit="bytes",
    labels=("function",),
    group="Programs",
)
PROGRAM_ARGUMENT_BYTES = Metric(
    "jaxmon_program_argument_bytes",
    "gauge",
    "Device memory of the arguments of the newest program of a function.",
    unit="bytes",
    labels=("function",),
    group="Programs",
)
PROGRAM_OUTPUT_BYTES = Metric(
    "jaxmon_program_output_bytes",
    "gauge",
    "Device memory of the outputs of the newest program of a function.",
    unit="bytes",
    labels=("function",),
    group="Programs",
)
PROGRAM_TEMPORARY_BYTES = Metric(
    "jaxmon_program_temporary_bytes",
    "gauge",
    "Device memory that the newest program of a function needs while it runs.",
    unit="bytes",
    labels=("function",),
    group="Programs",
)
PROGRAM_PEAK_BYTES = Metric(
    "jaxmon_program_peak_bytes",
    "gauge",
    "Most device memory that the newest program of a function holds at a time.",
    unit="bytes",
    labels=("function",),
    group="Programs",
)
PROGRAM_CODE_BYTES = Metric(
    "jaxmon_program_code_bytes",
    "gauge",
    "Size of the code of the newest program of a function.",
    unit="bytes",
    labels=("function",),
    group="Programs",
)
PROGRAM_FUSIONS = Metric(
    "jaxmon_program_fusions",
    "gauge",
    "Fusions in the newest program of a function.",
    labels=("function",),
    group="Programs",
)
PROGRAM_INSTRUCTIONS = Metric(
    "jaxmon_program_instructions",
    "gauge",
    "HLO instructions in the newest program of a function.",
    labels=("function",),
    group="Programs",
)
PROGRAM_DEVICES = Metric(
    "jaxmon_program_devices",
    "gauge",
    "Devices that the newest program of a function runs on, in all processes.",
    labels=("function",),
    group="Programs",
)
