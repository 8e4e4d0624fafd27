"""What can be wrong with a program, as the findings on it say."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.symptoms.symptom import Symptom, Urgency


_FAILURE, _TIME, _HINT, _NOTE = Urgency

_LINES = "only the process knows its lines"
_SOURCE = "only the source of the program shows it"
_HINTS = "costs too little to wake or interrupt anyone"
_NOTHING = "nothing is wrong"
_HANDLED = "the program may expect it; requests that fail for it have an objective"

_WALL = catalog.WALL_SECONDS, "Debug: Where the time goes"
_COMPILES = catalog.COMPILE_SECONDS, "Debug: Compile time by function"
_RUNS = catalog.RUN_SECONDS, "Training: What the wall time of runs went into"
_LOST = catalog.RUN_LOST_STEPS, "Training: Steps done again"
_RECOMPILES = catalog.RECOMPILES, "Debug: Recompiles over time"
_WARNINGS = catalog.JAX_WARNINGS, "Debug: Warnings of JAX"
_NONFINITE = "On-call: Non-finite values"
_OUTPUTS = catalog.NONFINITE, "Debug: Non-finite outputs"

PROGRAM = (
    Symptom(
        *("oom", "F2", "A device ran out of memory.", _FAILURE, catalog.ERRORS),
        *("Debug: Errors over time", "JaxmonOutOfMemory"),
    ),
    Symptom(
        *("memory", "F2", "The memory of a device is nearly used up.", _FAILURE),
        *(catalog.DEVICE_MEMORY_BYTES, "On-call: Device memory in use"),
        *("JaxmonDeviceMemoryHigh", ("device_memory",)),
    ),
    Symptom(
        *("fragmentation", "F2", "Much is free on a device, in small blocks.", _HINT),
        *(catalog.DEVICE_MEMORY_BYTES, "Debug: Device memory by kind"),
        missing="matters only once an allocation fails",
    ),
    Symptom(
        *("leak", "F5", "Memory that a line allocated only grows.", _FAILURE),
        *(catalog.LEAK_GROWTH_BYTES, "Debug: Suspected leak", "JaxmonMemoryLeak"),
    ),
    Symptom(
        *("compile_stuck", "F1", "A compile does not finish.", _FAILURE),
        *(catalog.COMPILE_OLDEST_SECONDS, "On-call: Oldest compile in progress"),
        *("JaxmonCompileStuck", ("compile_stuck",)),
    ),
    Symptom(
        *("stalled", "F8", "A loop, or a thread of it, makes no progress.", _FAILURE),
        *(catalog.STEP_AGE_SECONDS, "On-call: Age of the last step"),
        *("JaxmonTrainingStalled", ("loop_stuck",)),
    ),
    Symptom(
        *("no_progress", "F8", "A run restarts without a new step.", _FAILURE),
        *(catalog.RUN_FRUITLESS_ATTEMPTS, "Training: Attempts without progress"),
        "JaxmonRunNoProgress",
    ),
    Symptom(
        *("error", "F4", "A jitted function raises.", _FAILURE, catalog.ERRORS),
        "Debug: Errors by function and kind",
        missing=_HANDLED,
    ),
    Symptom(
        *("requests", "F4", "Requests of a route fail.", _FAILURE, catalog.REQUESTS),
        *("On-call: Requests by outcome", "JaxmonRequestErrorBudgetBurn"),
        ("requests_fail",),
    ),
    Symptom(
        *("hanging", "F8", "Requests of a route do not finish.", _FAILURE),
        *(catalog.REQUEST_OLDEST_SECONDS, "On-call: Oldest request in progress"),
        *("JaxmonRequestsHang", ("requests_hang",)),
    ),
    Symptom(
        *("nonfinite", "F4", "Outputs of a function became NaN.", _FAILURE),
        *(catalog.NONFINITE_OUTPUTS, _NONFINITE, "JaxmonNonFinite", ("nonfinite",)),
    ),
    Symptom(
        *("nonfinite_value", "F4", "A logged value became NaN or infinite.", _FAILURE),
        *(catalog.VALUE_NONFINITE_RUN, _NONFINITE, "JaxmonNonFinite", ("nonfinite",)),
    ),
    Symptom(
        *("diverging", "F4", "A logged loss rises far above its best.", _FAILURE),
        *(catalog.VALUE, "On-call: Logged values"),
        missing="what a loss may do is the model's; an objective can say it",
    ),
    Symptom(
        *("determinism", "F4", "A function returned two results.", _FAILURE),
        *(catalog.DETERMINISM_CHECKS, "Debug: Determinism checks", "JaxmonCheckFailed"),
    ),
    Symptom(
        *("gradients", "F4", "Gradients differ from finite differences.", _FAILURE),
        *(catalog.GRADIENT_CHECKS, "Debug: Gradient checks", "JaxmonCheckFailed"),
    ),
    Symptom(
        *("queue", "F8", "A queue grows and never drains.", _FAILURE),
        *(catalog.QUEUE_DEPTH, "On-call: Queue depth"),
        missing="how deep is too deep is the service's; an objective can say it",
    ),
    Symptom(
        *("checkpoint", "F8", "The latest saves of a checkpoint failed.", _FAILURE),
        *(catalog.CHECKPOINT_FAILURES, "Training: Checkpoints that failed"),
        *("JaxmonCheckpointFailed", ("checkpoints",)),
    ),
    Symptom(
        *("frozen_value", "F4", "A value of the host is a constant.", _FAILURE),
        missing=_SOURCE,
    ),
    Symptom(
        *("dropped_update", "F4", "An update of an array is dropped.", _FAILURE),
        missing=_SOURCE,
    ),
    Symptom(
        *("leaked_tracer", "F4", "A traced value outlives its trace.", _FAILURE),
        missing=_SOURCE,
    ),
    Symptom(
        *("printed_tracer", "F4", "A traced value is printed.", _HINT),
        missing=_SOURCE,
    ),
    Symptom(
        *("recompile", "F3", "A function keeps recompiling.", _TIME),
        *(*_RECOMPILES, "JaxmonRecompileStorm"),
    ),
    Symptom(
        *("recompiles", "F3", "Many functions recompile a few times each.", _TIME),
        *_RECOMPILES,
        missing="what it costs is in JaxmonCompileSlow",
        other_runbook="JaxmonRecompileStorm",
    ),
    Symptom(
        *("operations", "F1", "Eager operations are compiled one by one.", _TIME),
        *_COMPILES,
        missing="what it costs is in JaxmonCompileSlow",
        other_runbook="JaxmonColdStarts",
    ),
    Symptom(
        *("compiled_together", "F6", "Processes compile the same program.", _TIME),
        *(*_COMPILES, "JaxmonThunderingCompilation"),
        other_runbook="JaxmonColdStarts",
    ),
    Symptom(
        *("compile_share", "F1", "Compiles take much of the time.", _TIME),
        *(*_COMPILES, "JaxmonCompileSlow"),
        other_runbook="JaxmonColdStarts",
    ),
    Symptom(
        *("cold_requests", "F1", "Requests wait for compiles.", _TIME),
        *(catalog.REQUESTS, "On-call: Cold request ratio", "JaxmonColdStarts"),
        ("requests_wait",),
    ),
    Symptom(
        *("cache", "F6", "Something prevents hits of the persistent cache.", _HINT),
        *(catalog.PERSISTENT_CACHE_REQUESTS, "Debug: Persistent cache hit rate"),
        "JaxmonCacheHitRateBudgetBurn",
    ),
    Symptom(
        *("effects", "F1", "Calls leave the fast path for an effect.", _TIME),
        *(catalog.JIT_CACHE_MISSES, "Debug: Cache misses by function"),
        missing=_HINTS,
    ),
    Symptom(
        *("compiling", "F1", "First compiles take the time.", _NOTE, *_COMPILES),
        missing=_NOTHING,
    ),
    Symptom(
        *("slower", "F7", "A function or a loop is slower than before.", _TIME),
        *(catalog.SLOWDOWN, "Debug: Slower than before", "JaxmonSlowdown"),
        ("loop_slow",),
    ),
    Symptom(
        *("eager", "", "Operations outside of jit take time.", _TIME, *_WALL),
        "JaxmonTimeLost",
    ),
    Symptom(
        *("data_wait", "", "The program waits for data.", _TIME, *_WALL),
        "JaxmonDataStarvation",
        other_runbook="JaxmonTimeLost",
    ),
    Symptom(
        *("blocked", "", "The program waits for a lock or a thread.", _TIME, *_WALL),
        "JaxmonTimeLost",
    ),
    *(
        Symptom(
            *(name, "", sentence, _TIME, *_WALL),
            missing=_LINES,
            other_runbook="JaxmonTimeLost",
        )
        for name, sentence in (
            ("host", "Python keeps the device waiting."),
            ("garbage", "Collecting garbage takes time."),
            ("interpreter", "Another thread holds the interpreter."),
            ("copies", "Copies to the device take time."),
            ("fetch", "Reads of results keep the host from working ahead."),
            ("event_loop", "JAX keeps an event loop from other requests."),
        )
    ),
    Symptom(
        *("numpy_argument", "", "Calls copy large NumPy arrays.", _TIME),
        *(catalog.DISPATCH_SECONDS, "Debug: Dispatch time by function"),
        missing=_LINES,
    ),
    Symptom(
        *("transfer", "", "A line transfers data in a loop.", _TIME),
        *(catalog.HOST_TRANSFER_SECONDS, "Debug: Time blocked on transfers"),
        missing=_LINES,
    ),
    Symptom(
        *("padding", "", "Batches are mostly padding.", _TIME),
        *(catalog.BATCH_FILL_RATIO, "On-call: Batch fill"),
        missing=_HINTS,
    ),
    Symptom(
        *("old_checkpoint", "", "A run begins before its latest checkpoints.", _TIME),
        *_LOST,
        missing="an attempt may do so on purpose",
        other_runbook="JaxmonGoodputLow",
    ),
    Symptom(
        *("lost_progress", "", "A run does steps again.", _TIME, *_LOST),
        "JaxmonGoodputLow",
    ),
    Symptom(
        *("recovery", "", "Restarts of a run take time.", _TIME),
        *(catalog.RUN_RESUME_SECONDS, "Training: Time to resume", "JaxmonGoodputLow"),
    ),
    Symptom(
        *("checkpoint_time", "", "Saves hold up a run.", _TIME, *_RUNS),
        "JaxmonGoodputLow",
    ),
    Symptom(
        *("between_attempts", "", "No attempt of a run runs.", _HINT, *_RUNS),
        "JaxmonGoodputLow",
    ),
    Symptom(
        *("startup", "", "Imports and devices take the time.", _NOTE, *_WALL),
        missing=_NOTHING,
    ),
    Symptom(*("idle", "", "There is nothing to do.", _NOTE, *_WALL), missing=_NOTHING),
    Symptom(
        *("device", "", "The device computes.", _NOTE, catalog.EXECUTION_SECONDS),
        "Debug: Execution time by function",
        missing=_NOTHING,
    ),
    Symptom(
        *("same_key", "F4", "Each call draws the same random numbers.", _HINT),
        missing="JaxmonKeyReuse is about keys that JAX rejects",
    ),
    Symptom(
        *("double", "F7", "Matrices of float64 are multiplied.", _NOTE),
        catalog.PROGRAM_MATRIX_FLOPS,
        "Debug: Latest program of each function",
        missing="a program may need it",
    ),
    Symptom(
        *("float64", "F7", "A function computes in float64 by accident.", _HINT),
        *(catalog.FLOAT64_PROMOTIONS, "Debug: Promotions to float64"),
        missing=_HINTS,
    ),
    Symptom(
        *("infinite", "F4", "Outputs of a function became infinite.", _HINT, *_OUTPUTS),
        missing="infinity is a value that programs use",
    ),
    Symptom(
        *("always_nan", "F4", "Outputs were never finite.", _HINT, *_OUTPUTS),
        missing="they may be placeholders",
    ),
    Symptom(
        *("spike", "F4", "A logged loss jumps.", _HINT),
        *(catalog.VALUE_SPIKES, "On-call: Spikes of logged values"),
        missing=_HINTS,
    ),
    Symptom(
        *("warning_donation", "F2", "Donated buffers were not used.", _HINT),
        *_WARNINGS,
        missing=_HINTS,
    ),
    Symptom(
        *("warning_dtype_unavailable", "F7", "A type was narrowed.", _HINT),
        *_WARNINGS,
        missing=_HINTS,
    ),
    Symptom(
        *("warning_backend", "F7", "JAX found no accelerator.", _HINT),
        *_WARNINGS,
        missing=_HINTS,
    ),
    Symptom(
        *("export", "", "Metrics that are pushed do not arrive.", _HINT),
        *(catalog.OTLP_EXPORTS, "Debug: Failed exports by process"),
        "JaxmonExportFailing",
    ),
    Symptom(
        *("spans", "", "Spans are dropped.", _HINT, catalog.DROPPED),
        *("Debug: Dropped spans by process", "JaxmonSpansDropped"),
    ),
)
