"""TPUs, as the runtime in each process that holds some tells of them."""

from __future__ import annotations

from jaxmon.catalog.model import SIDECAR, Metric
from jaxmon.catalog.values import TPU_TRANSFER_DIRECTIONS


_GROUP = "TPUs"

# The runtime has its own bounds; of these, the next above each of ours are kept.
_EXECUTIONS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)
_TRANSFERS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)

TPU_RUNTIME_UP = Metric(
    "jaxmon_tpu_runtime_up",
    "gauge",
    "1 while the TPU runtime of a process answers, 0 when it does not.",
    labels=("runtime",),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 1),
)
TPU_RUNTIME_UPTIME_SECONDS = Metric(
    "jaxmon_tpu_runtime_uptime_seconds",
    "gauge",
    "Time since the TPU runtime of a process started.",
    unit="seconds",
    labels=("runtime",),
    sources=SIDECAR,
    group=_GROUP,
)
TPU_DUTY_CYCLE_RATIO = Metric(
    "jaxmon_tpu_duty_cycle_ratio",
    "gauge",
    "Share of the last sample period in which the chip worked.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
)
ACCELERATOR_MEMORY_BANDWIDTH_RATIO = Metric(
    "jaxmon_accelerator_memory_bandwidth_ratio",
    "gauge",
    "Share of the memory's bandwidth that was in use.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
)
TPU_CORE_IDLE_SECONDS = Metric(
    "jaxmon_tpu_core_idle_seconds",
    "gauge",
    "Time since the core last worked.",
    unit="seconds",
    labels=("uuid", "core"),
    sources=SIDECAR,
    group=_GROUP,
)
TPU_HLO_QUEUE_SIZE = Metric(
    "jaxmon_tpu_hlo_queue_size",
    "gauge",
    "Programs that were dispatched to the core and are not done.",
    labels=("uuid", "core"),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 1e9),
)
TPU_HLO_EXECUTION_SECONDS = Metric(
    "jaxmon_tpu_hlo_execution_seconds",
    "histogram",
    "Time that programs took on the core, as its runtime measures it.",
    unit="seconds",
    labels=("uuid", "core"),
    buckets=_EXECUTIONS,
    sources=SIDECAR,
    group=_GROUP,
)
TPU_COLLECTIVE_SECONDS = Metric(
    "jaxmon_tpu_collective_seconds",
    "histogram",
    "Time that collective operations between slices took, end to end.",
    unit="seconds",
    labels=("runtime",),
    buckets=_TRANSFERS,
    sources=SIDECAR,
    group=_GROUP,
)
TPU_TRANSFER_SECONDS = Metric(
    "jaxmon_tpu_transfer_seconds",
    "histogram",
    "Time that transfers between slices took, and those to and from the host for them.",
    unit="seconds",
    labels=("runtime", "direction"),
    buckets=_TRANSFERS,
    sources=SIDECAR,
    group=_GROUP,
    values=(("direction", TPU_TRANSFER_DIRECTIONS),),
)
TPU_DCN_TRANSMIT_BYTES = Metric(
    "jaxmon_tpu_dcn_transmit_bytes_total",
    "counter",
    "Bytes sent to other slices over the network of the data center.",
    unit="bytes",
    labels=("runtime",),
    sources=SIDECAR,
    group=_GROUP,
)
TPU_DCN_RETRANSMIT_BYTES = Metric(
    "jaxmon_tpu_dcn_retransmit_bytes_total",
    "counter",
    "Bytes that had to be sent to other slices again.",
    unit="bytes",
    labels=("runtime",),
    sources=SIDECAR,
    group=_GROUP,
)
TPU_MEGASCALE_ERRORS = Metric(
    "jaxmon_tpu_megascale_errors_total",
    "counter",
    "Errors of the communication between slices.",
    labels=("runtime",),
    sources=SIDECAR,
    group=_GROUP,
)
TPU_ICI_LINK_HEALTH = Metric(
    "jaxmon_tpu_ici_link_health",
    "gauge",
    "Worst link of a chip: 0 sound, up to 5 passing, to 9 lasting faults, 10 unusable.",
    labels=("runtime",),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 10),
)
TPU_THROTTLE_SCORE = Metric(
    "jaxmon_tpu_throttle_score",
    "gauge",
    "Worst throttling of a chip: 0 none, 10 all of the time.",
    labels=("runtime",),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 10),
)

# --- Where a core stands: what does not change while programs wait, hangs ----------

TPU_CORE_QUEUED_PROGRAMS = Metric(
    "jaxmon_tpu_core_queued_programs",
    "gauge",
    "Programs that wait for the core, by its state.",
    labels=("uuid", "core"),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 1e9),
)
TPU_CORE_PROGRAM_ID = Metric(
    "jaxmon_tpu_core_program_id",
    "gauge",
    "Number of the program on the core, the same on all chips that run it.",
    labels=("uuid", "core"),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 2**53),
)
TPU_CORE_RUN_ID = Metric(
    "jaxmon_tpu_core_run_id",
    "gauge",
    "Number of the run that is on the core; changes with each run.",
    labels=("uuid", "core"),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 2**53),
)
TPU_CORE_PROGRAM_POSITION = Metric(
    "jaxmon_tpu_core_program_position",
    "gauge",
    "Instruction at which the core stands.",
    labels=("uuid", "core"),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 2**53),
)
TPU_CORE_ERROR = Metric(
    "jaxmon_tpu_core_error",
    "gauge",
    "1 while the core has an error message; the sidecar's log has its text.",
    labels=("uuid", "core"),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 1),
)
TPU_OWNER_PID = Metric(
    "jaxmon_tpu_owner_pid",
    "gauge",
    "Process that has the chip open, where the sidecar can see it.",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
    limits=(1, 2**22),
)
