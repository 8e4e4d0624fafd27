"""Calls, compiles and the programs they produce."""

from __future__ import annotations

from jaxmon.catalog import model, values
from jaxmon.catalog.model import AGENT, Sheet


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

globals().update(model.named(globals()))
