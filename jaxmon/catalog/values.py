"""Closed sets of label values."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def is_probe(route: str) -> bool:
    """Return whether *route* is one by which orchestrators probe a process."""
    return route.rstrip("/").rpartition("/")[2] in _PROBES


PHASES = ("trace", "lower", "backend_compile", "cache_retrieval")
# Of an export by OTLP, and what names it uses.
EXPORT_SIGNALS = ("logs", "metrics", "traces")
SEMANTIC, SERVED = "semantic", "served"
PUSHED_NAMES = (SERVED, SEMANTIC)
EXPORT_OUTCOMES = ("success", "failure")
OUTCOMES = ("compiled", "cache_hit", "failed")
CAUSES = _words(
    "shape dtype weak_type static_argument tree_structure sharding committed context "
    "options new_function evicted unknown"
)
ERROR_KINDS = _words(
    "oom invalid_argument nan key_reuse trace_error cancelled deadline unavailable "
    "internal other"
)
# What became slower, and than what: than before in this run, or in another.
SLOWDOWN_KINDS = ("function", "loop")
SLOWDOWN_REFERENCES = ("earlier", "past_run")
# What the model needs, and what `jax.checkpoint` computes once more.
FLOPS_WORK = ("model", "recomputed")
# Why the FLOPs of a function are unknown.
FLOPS_UNKNOWN = _words(
    "loop branch kernel library layout size untraced programs format uncounted"
)
FLOPS_FORMATS = ("bf16", "fp16", "fp8", "int8", "tf32", "fp32", "fp64", "any")
WARNING_KINDS = _words(
    "donation dtype_unavailable dtype_cast deprecated backend callback other"
)
PERSISTENT_CACHE_RESULTS = ("hit", "miss")
PERSISTENT_CACHE_OPERATIONS = ("read", "write")
# Why JAX's persistent cache cannot hit, or not in every process.
PERSISTENT_CACHE_OBSTACLES = _words(
    "disabled no_directory unusable_directory not_in_use check_contents "
    "below_threshold too_large path_in_key private_directory varying_flags not_writer "
    "no_eviction host_callback"
)
TPU_TRANSFER_DIRECTIONS = _words(
    "dcn_transmit dcn_receive device_to_host host_to_device"
)
TRANSFER_DIRECTIONS = ("device_to_host", "host_to_device")
CHECK_OUTCOMES = ("passed", "failed")
WARMUP_RESULTS = ("warmed", "failed")
# Whether an invocation is the first of its process.
INSTANCE_STARTS = ("cold", "warm")
STARTS = ("cold", "delayed", "warm")
# Xids after which a GPU or its work is usually lost (NVIDIA's Xid catalogue):
# double-bit ECC, NVLink, fallen off the bus, contained and uncontained ECC, GSP.
CRITICAL_XIDS = ("48", "62", "64", "74", "79", "94", "95", "119", "120")
# What the program is doing; what each means is in docs/time.md.
WALL_STATES = _words(
    "compile data_wait device fetch transfer eager python startup gc gil blocked "
    "marked idle"
)
# A save until it is committed; how long it blocked the program; how much of that was
# spent waiting for the save before.
CHECKPOINT_OPERATIONS = ("save", "blocking", "wait", "restore")
CHECKPOINT_DIRECTIONS = ("save", "restore")
# The activity of pauses that are meant, as of a paced loop: they cost no goodput.
REST = "rest"
# What the wall time of a run goes into, from its first attempt on.
RUN_ACTIVITIES = _words(
    "step compile data_wait checkpoint startup recovery lost_progress waiting marked "
    "unknown"
)
# How an attempt ended: by an exception; without a record; in order, though the
# run was not over; or before it could be recorded, as the scheduler's number says.
RUN_ENDINGS = ("crashed", "killed", "stopped", "unseen")
REQUEST_OUTCOMES = ("success", "client_error", "error")
# Last parts of the routes by which orchestrators probe a process.
_PROBES = _words(
    "ready readyz readiness health healthz live livez liveness startup ping"
)
# The pool is what an allocator holds for itself. A block is what one array can take of
# it: with much free and no large block, memory is fragmented.
MEMORY_KINDS = _words(
    "in_use peak limit reserved largest_allocation pool largest_free_block"
)
PRESSURE_RESOURCES = ("cpu", "memory", "io")
PRESSURE_KINDS = ("some", "full")
CLOCKS = ("graphics", "sm", "memory", "video")
ENGINES = ("encoder", "decoder", "jpeg", "ofa")
# Corrected errors cost nothing; uncorrected ones a program, or its results.
SEVERITIES = ("corrected", "uncorrected")
# Since the driver was loaded, and over the lifetime of the GPU.
ECC_SCOPES = ("volatile", "aggregate")
THROTTLE_REASONS = _words(
    "power thermal sync_boost board_limit low_utilization reliability sw_thermal "
    "hw_thermal hw_power_brake"
)
# Never active for long on a healthy host: overheating, or a failing power supply or
# board.
UNDUE_THROTTLING = _words(
    "thermal board_limit reliability sw_thermal hw_thermal hw_power_brake"
)
# In the order of NVML's bits.
CLOCK_EVENTS = _words(
    "idle application_clocks sw_power_cap hw_slowdown sync_boost sw_thermal "
    "hw_thermal hw_power_brake display_clock"
)
PCIE_ERRORS = ("correctable", "non_fatal", "fatal")
LINK_KINDS = ("current", "maximum")
NVLINK_ERRORS = _words(
    "crc_flit crc_data replay recovery ecc_data malformed_packet buffer_overrun "
    "receive receive_remote link_integrity transmit_discard recovery_failed effective "
    "symbol"
)
# What NCCL's RAS says of a job: of its processes, and of its communicators, the state
# of the rank that is furthest.
NCCL_PROCESS_STATES = ("responding", "unresponsive", "dead")
NCCL_COMMUNICATOR_STATES = ("unknown", "init", "running", "finalize", "abort")
NCCL_FAULTS = ("mismatch", "stuck", "error", "incomplete")
# By the names that NCCL gives them, and by the size of the message.
NCCL_COLLECTIVES = _words(
    "AllReduce AllGather ReduceScatter AllGatherV All2All Broadcast Reduce SendRecv "
    "Send Recv other"
)
NCCL_MESSAGE_SIZES = ("under_1MiB", "under_16MiB", "under_256MiB", "larger")
