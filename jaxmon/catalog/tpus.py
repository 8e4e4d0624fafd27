"""TPUs, as the runtime in each process that holds some tells of them."""

from __future__ import annotations

from jaxmon.catalog.model import SIDECAR, Sheet
from jaxmon.catalog.values import TPU_TRANSFER_DIRECTIONS


_tpus = Sheet("TPUs", SIDECAR)

# The runtime has its own bounds; of these, the next above each of ours are kept.
_EXECUTIONS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)
_TRANSFERS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)

TPU_RUNTIME_UP = _tpus.gauge(
    "jaxmon_tpu_runtime_up",
    "1 while the TPU runtime of a process answers, 0 when it does not.",
    "runtime",
    limits=(0, 1),
)
TPU_RUNTIME_UPTIME_SECONDS = _tpus.gauge(
    "jaxmon_tpu_runtime_uptime_seconds",
    "Time since the TPU runtime of a process started.",
    "runtime",
)
TPU_DUTY_CYCLE_RATIO = _tpus.gauge(
    "jaxmon_tpu_duty_cycle_ratio",
    "Share of the last sample period in which the chip worked.",
    "uuid",
)
ACCELERATOR_MEMORY_BANDWIDTH_RATIO = _tpus.gauge(
    "jaxmon_accelerator_memory_bandwidth_ratio",
    "Share of the memory's bandwidth that was in use.",
    "uuid",
)
TPU_CORE_IDLE_SECONDS = _tpus.gauge(
    "jaxmon_tpu_core_idle_seconds", "Time since the core last worked.", "uuid", "core"
)
TPU_HLO_QUEUE_SIZE = _tpus.gauge(
    "jaxmon_tpu_hlo_queue_size",
    "Programs that were dispatched to the core and are not done.",
    "uuid",
    "core",
    limits=(0, 1e9),
)
TPU_HLO_EXECUTION_SECONDS = _tpus.histogram(
    "jaxmon_tpu_hlo_execution_seconds",
    "Time that programs took on the core, as its runtime measures it.",
    "uuid",
    "core",
    buckets=_EXECUTIONS,
)
TPU_COLLECTIVE_SECONDS = _tpus.histogram(
    "jaxmon_tpu_collective_seconds",
    "Time that collective operations between slices took, end to end.",
    "runtime",
    buckets=_TRANSFERS,
)
TPU_TRANSFER_SECONDS = _tpus.histogram(
    "jaxmon_tpu_transfer_seconds",
    "Time that transfers between slices took, and those to and from the host for them.",
    "runtime",
    ("direction", TPU_TRANSFER_DIRECTIONS),
    buckets=_TRANSFERS,
)
TPU_DCN_TRANSMIT_BYTES = _tpus.counter(
    "jaxmon_tpu_dcn_transmit_bytes_total",
    "Bytes sent to other slices over the network of the data center.",
    "runtime",
)
TPU_DCN_RETRANSMIT_BYTES = _tpus.counter(
    "jaxmon_tpu_dcn_retransmit_bytes_total",
    "Bytes that had to be sent to other slices again.",
    "runtime",
)
TPU_MEGASCALE_ERRORS = _tpus.counter(
    "jaxmon_tpu_megascale_errors_total",
    "Errors of the communication between slices.",
    "runtime",
)
TPU_ICI_LINK_HEALTH = _tpus.gauge(
    "jaxmon_tpu_ici_link_health",
    "Worst link of a chip: 0 sound, up to 5 passing, to 9 lasting faults, 10 unusable.",
    "runtime",
    limits=(0, 10),
)
TPU_THROTTLE_SCORE = _tpus.gauge(
    "jaxmon_tpu_throttle_score",
    "Worst throttling of a chip: 0 none, 10 all of the time.",
    "runtime",
    limits=(0, 10),
)

# --- Where a core stands: what does not change while programs wait, hangs ----------

TPU_CORE_QUEUED_PROGRAMS = _tpus.gauge(
    "jaxmon_tpu_core_queued_programs",
    "Programs that wait for the core, by its state.",
    "uuid",
    "core",
    limits=(0, 1e9),
)
TPU_CORE_PROGRAM_ID = _tpus.gauge(
    "jaxmon_tpu_core_program_id",
    "Number of the program on the core, the same on all chips that run it.",
    "uuid",
    "core",
    limits=(0, 2**53),
)
TPU_CORE_RUN_ID = _tpus.gauge(
    "jaxmon_tpu_core_run_id",
    "Number of the run that is on the core; changes with each run.",
    "uuid",
    "core",
    limits=(0, 2**53),
)
TPU_CORE_PROGRAM_POSITION = _tpus.gauge(
    "jaxmon_tpu_core_program_position",
    "Instruction at which the core stands.",
    "uuid",
    "core",
    limits=(0, 2**53),
)
TPU_CORE_ERROR = _tpus.gauge(
    "jaxmon_tpu_core_error",
    "1 while the core has an error message; the sidecar's log has its text.",
    "uuid",
    "core",
    limits=(0, 1),
)
TPU_OWNER_PID = _tpus.gauge(
    "jaxmon_tpu_owner_pid",
    "Process that has the chip open, where the sidecar can see it.",
    "uuid",
    limits=(1, 2**22),
)
