"""TPU metrics, from the runtime in each process that uses TPUs."""

from __future__ import annotations

from jaxmon.catalog.model import SIDECAR, Sheet
from jaxmon.catalog.values import TPU_TRANSFER_DIRECTIONS


_tpus = Sheet("TPUs", SIDECAR)

# The runtime has its own bounds; of these, the next above each of ours are kept.
_EXECUTIONS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)
_TRANSFERS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)

TPU_RUNTIME_UP = _tpus.gauge(
    "jaxmon_tpu_runtime_up",
    "1 while a process's TPU runtime responds, else 0.",
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
    "Fraction of the last sample period during which the chip was busy.",
    "uuid",
)
ACCELERATOR_MEMORY_BANDWIDTH_RATIO = _tpus.gauge(
    "jaxmon_accelerator_memory_bandwidth_ratio",
    "Fraction of memory bandwidth in use.",
    "uuid",
)
TPU_CORE_IDLE_SECONDS = _tpus.gauge(
    "jaxmon_tpu_core_idle_seconds", "Time since the core was last busy.", "uuid", "core"
)
TPU_HLO_QUEUE_SIZE = _tpus.gauge(
    "jaxmon_tpu_hlo_queue_size",
    "Programs dispatched to the core and not yet finished.",
    "uuid",
    "core",
    limits=(0, 1e9),
)
TPU_HLO_EXECUTION_SECONDS = _tpus.histogram(
    "jaxmon_tpu_hlo_execution_seconds",
    "Execution time of programs on the core, as measured by the runtime.",
    "uuid",
    "core",
    buckets=_EXECUTIONS,
)
TPU_COLLECTIVE_SECONDS = _tpus.histogram(
    "jaxmon_tpu_collective_seconds",
    "End-to-end time of collectives between slices.",
    "runtime",
    buckets=_TRANSFERS,
)
TPU_TRANSFER_SECONDS = _tpus.histogram(
    "jaxmon_tpu_transfer_seconds",
    "Time of transfers between slices, including their host transfers.",
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
    "Bytes retransmitted to other slices.",
    "runtime",
)
TPU_MEGASCALE_ERRORS = _tpus.counter(
    "jaxmon_tpu_megascale_errors_total",
    "Inter-slice communication errors.",
    "runtime",
)
TPU_ICI_LINK_HEALTH = _tpus.gauge(
    "jaxmon_tpu_ici_link_health",
    "Health of a chip's worst link: 0 healthy, 1-5 transient faults, 6-9 "
    "persistent faults, 10 unusable.",
    "runtime",
    limits=(0, 10),
)
TPU_THROTTLE_SCORE = _tpus.gauge(
    "jaxmon_tpu_throttle_score",
    "Worst throttling of a chip: 0 none, 10 constant.",
    "runtime",
    limits=(0, 10),
)

# --- State of a core: constant while programs are queued, it hangs ------------------
# ----------

TPU_CORE_QUEUED_PROGRAMS = _tpus.gauge(
    "jaxmon_tpu_core_queued_programs",
    "Programs queued for the core, by core state.",
    "uuid",
    "core",
    limits=(0, 1e9),
)
TPU_CORE_PROGRAM_ID = _tpus.gauge(
    "jaxmon_tpu_core_program_id",
    "ID of the program on the core, identical on all chips that run it.",
    "uuid",
    "core",
    limits=(0, 2**53),
)
TPU_CORE_RUN_ID = _tpus.gauge(
    "jaxmon_tpu_core_run_id",
    "ID of the run on the core; changes with each run.",
    "uuid",
    "core",
    limits=(0, 2**53),
)
TPU_CORE_PROGRAM_POSITION = _tpus.gauge(
    "jaxmon_tpu_core_program_position",
    "Program counter of the core.",
    "uuid",
    "core",
    limits=(0, 2**53),
)
TPU_CORE_ERROR = _tpus.gauge(
    "jaxmon_tpu_core_error",
    "1 while the core reports an error; the text is in the sidecar's log.",
    "uuid",
    "core",
    limits=(0, 1),
)
TPU_OWNER_PID = _tpus.gauge(
    "jaxmon_tpu_owner_pid",
    "Process that has the chip open, if visible to the sidecar.",
    "uuid",
    limits=(1, 2**22),
)
