"""Calls, compiles and the programs they make."""

from __future__ import annotations

from jaxmon.catalog.model import Sheet
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

_calls = Sheet("Calls")

JIT_CALLS = _calls.counter(
    "jaxmon_jit_calls_total",
    "Calls of jitted functions made by the program, not while tracing another.",
    "function",
)
JIT_CACHE_HITS = _calls.counter(
    "jaxmon_jit_cache_hits_total",
    "Calls that stayed on the C++ fast path; hits / calls is the cache hit rate.",
    "function",
)
JIT_CACHE_MISSES = _calls.counter(
    "jaxmon_jit_cache_misses_total",
    "Calls that left the C++ fast path, functions jitted before jaxmon included.",
    "function",
)
ERRORS = _calls.counter(
    "jaxmon_errors_total",
    "Exceptions that left a jitted call, or reached the top of a thread.",
    "function",
    ("kind", ERROR_KINDS),
)
DISPATCH_SECONDS = _calls.histogram(
    "jaxmon_dispatch_seconds",
    "Host time of sampled calls: from the call to its return, device work queued.",
    "function",
    buckets=(1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 1.0, 10.0),
)
EXECUTION_SECONDS = _calls.histogram(
    "jaxmon_execution_seconds",
    "Device time of sampled calls: from the start of their work to its end.",
    "function",
    buckets=(1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
)

# --- Compile ---------------------------------------------------------------------

_compile = Sheet("Compile")

COMPILE_SECONDS = _compile.histogram(
    "jaxmon_compile_seconds",
    "Time spent making a program ready to run, by phase.",
    "function",
    ("phase", PHASES),
    buckets=(0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
)
COMPILES = _compile.counter(
    "jaxmon_compiles_total",
    "Executables built or loaded from the persistent cache, and failures to.",
    "function",
    ("outcome", OUTCOMES),
)
RECOMPILES = _compile.counter(
    "jaxmon_recompiles_total",
    "Calls that compiled a function which had been compiled before, by cause.",
    "function",
    ("cause", CAUSES),
)
COMPILES_IN_PROGRESS = _compile.gauge(
    "jaxmon_compiles_in_progress",
    "Backend compiles, persistent cache look-ups included, running now.",
)
COMPILE_OLDEST_SECONDS = _compile.gauge(
    "jaxmon_compile_oldest_seconds",
    "Age of the oldest compile in progress, 0 when there is none.",
)
PERSISTENT_CACHE_REQUESTS = _compile.counter(
    "jaxmon_persistent_cache_requests_total",
    "Look-ups in JAX's persistent compilation cache.",
    ("result", PERSISTENT_CACHE_RESULTS),
)
PERSISTENT_CACHE_WRITES = _compile.counter(
    "jaxmon_persistent_cache_writes_total",
    "Executables that JAX wrote to the persistent cache.",
)
PERSISTENT_CACHE_ERRORS = _compile.counter(
    "jaxmon_persistent_cache_errors_total",
    "Failures of the persistent cache, of which JAX only warns.",
    ("operation", PERSISTENT_CACHE_OPERATIONS),
)
PERSISTENT_CACHE_SAVED_SECONDS = _compile.counter(
    "jaxmon_persistent_cache_saved_seconds_total",
    "Compile time that cache hits saved, retrieval deducted, by JAX's estimate.",
)
PERSISTENT_CACHE_SIZE_BYTES = _compile.gauge(
    "jaxmon_persistent_cache_size_bytes",
    "Size of the entries in the persistent cache's directory, if it is local.",
)
PERSISTENT_CACHE_ENTRIES = _compile.gauge(
    "jaxmon_persistent_cache_entries",
    "Entries in the persistent cache's directory, if it is local.",
)
PERSISTENT_CACHE_OBSTACLE = _compile.gauge(
    "jaxmon_persistent_cache_obstacle",
    "1 while this keeps programs out of the persistent cache, or from being found.",
    ("reason", PERSISTENT_CACHE_OBSTACLES),
)

# --- Programs --------------------------------------------------------------------

_programs = Sheet("Programs")

PROGRAMS = _programs.counter(
    "jaxmon_programs_total",
    "Different programs built or loaded for a function.",
    "function",
)
PROGRAM_INFO = _programs.info(
    "jaxmon_program_info",
    "Newest program of a function; hosts that differ here run different programs.",
    "function",
    "fingerprint",
)
PROGRAM_FLOPS = _programs.gauge(
    "jaxmon_program_flops",
    "Floating point operations by XLA's estimate, which counts a loop body once.",
    "function",
)
PROGRAM_ACCESSED_BYTES = _programs.gauge(
    "jaxmon_program_accessed_bytes",
    "Bytes read and written by XLA's estimate, which counts a loop body once.",
    "function",
)
PROGRAM_ARGUMENT_BYTES = _programs.gauge(
    "jaxmon_program_argument_bytes",
    "Device memory of the arguments of the newest program of a function.",
    "function",
)
PROGRAM_OUTPUT_BYTES = _programs.gauge(
    "jaxmon_program_output_bytes",
    "Device memory of the outputs of the newest program of a function.",
    "function",
)
PROGRAM_TEMPORARY_BYTES = _programs.gauge(
    "jaxmon_program_temporary_bytes",
    "Device memory that the newest program of a function needs while it runs.",
    "function",
)
PROGRAM_PEAK_BYTES = _programs.gauge(
    "jaxmon_program_peak_bytes",
    "Most device memory that the newest program of a function holds at a time.",
    "function",
)
PROGRAM_CODE_BYTES = _programs.gauge(
    "jaxmon_program_code_bytes",
    "Size of the code of the newest program of a function.",
    "function",
)
PROGRAM_FUSIONS = _programs.gauge(
    "jaxmon_program_fusions", "Fusions in the newest program of a function.", "function"
)
PROGRAM_INSTRUCTIONS = _programs.gauge(
    "jaxmon_program_instructions",
    "HLO instructions in the newest program of a function.",
    "function",
)
PROGRAM_DEVICES = _programs.gauge(
    "jaxmon_program_devices",
    "Devices that the newest program of a function runs on, in all processes.",
    "function",
)
