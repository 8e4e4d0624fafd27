"""Metrics of accelerators, of TPUs, and of jobs that use NCCL, by the sidecar."""

from __future__ import annotations

from jaxmon.catalog import model, values
from jaxmon.catalog.model import BOTH, SIDECAR, Sheet


_accelerators = Sheet("Accelerators", BOTH, "uuid")
_accelerators_of_sidecar = Sheet("Accelerators", SIDECAR, "uuid")

ACCELERATOR_INFO = _accelerators.info(
    "Accelerators of this host.", "index vendor model driver pci_bus_id"
)
ACCELERATOR_UP = _accelerators.flag(
    "1 while the accelerator responds to its driver, 0 if it is lost."
)
ACCELERATOR_UTILIZATION_RATIO = _accelerators.gauge(
    "Fraction of the last sample period during which a kernel was running."
)
ACCELERATOR_MEMORY_USED_BYTES = _accelerators.gauge(
    "Accelerator memory in use, by all processes."
)
ACCELERATOR_MEMORY_SIZE_BYTES = _accelerators.gauge("Total accelerator memory.")
ACCELERATOR_TEMPERATURE_CELSIUS = _accelerators.gauge(
    "Temperature of the accelerator.", ("sensor", ("gpu", "memory"))
)
ACCELERATOR_POWER_WATTS = _accelerators.gauge("Power draw of the accelerator.")
ACCELERATOR_POWER_LIMIT_WATTS = _accelerators.gauge(
    "Enforced power limit of the accelerator."
)
ACCELERATOR_ENERGY_JOULES = _accelerators.counter(
    "Energy consumed by the accelerator since the driver was loaded."
)
ACCELERATOR_COST_DOLLARS_PER_HOUR = _accelerators_of_sidecar.gauge(
    "Price of the accelerator per hour, from the sidecar's price table."
)
ACCELERATOR_MEMORY_FREE_BYTES = _accelerators_of_sidecar.gauge(
    "Free accelerator memory."
)
ACCELERATOR_MEMORY_RESERVED_BYTES = _accelerators_of_sidecar.gauge(
    "Accelerator memory reserved by driver and firmware."
)
ACCELERATOR_CLOCK_HERTZ = _accelerators_of_sidecar.gauge(
    "Clock frequency of an accelerator domain.", ("clock", values.CLOCKS)
)
ACCELERATOR_TEMPERATURE_MARGIN_CELSIUS = _accelerators_of_sidecar.gauge(
    "Temperature margin before the accelerator throttles.", limits=(-200, 200)
)
ACCELERATOR_NUMA_NODE = _accelerators_of_sidecar.gauge(
    "NUMA node that the accelerator is attached to.", limits=(0, 4095)
)


_nccl = Sheet("NCCL", SIDECAR, limits=(0, 1e7))
_nccl_times = Sheet("NCCL", SIDECAR)

NCCL_INFO = _nccl.info(
    "NCCL of a job on this host, its CUDA runtime, and the CUDA of the driver.",
    "version cuda driver",
)
NCCL_PROCESSES = _nccl.gauge(
    "Processes of the job, on all hosts, by what NCCL knows of them.",
    ("state", values.NCCL_PROCESS_STATES),
)
NCCL_GPUS = _nccl.gauge("GPUs of the job, on all hosts.")
NCCL_NODES = _nccl.gauge("Hosts of the job, by their addresses.")
NCCL_COMMUNICATORS = _nccl.gauge(
    "Communicators of the job, by state.", ("state", values.NCCL_COMMUNICATOR_STATES)
)
NCCL_FAULTY_COMMUNICATORS = _nccl.gauge(
    "Communicators in disorder; a mismatch is normal while it moves, stuck is one "
    "that does not.",
    ("kind", values.NCCL_FAULTS),
)
NCCL_LAGGING_RANKS = _nccl.gauge(
    "Ranks behind others of a stuck communicator, of the one with the most of them."
)
NCCL_RANK_LAG = _nccl.gauge(
    "Collectives that a rank of a stuck communicator is behind, of the 8 furthest.",
    "host rank",
    limits=(0, 2**53),
)
NCCL_MISSING_PROCESSES = _nccl.gauge(
    "Processes that do not respond or are dead, of the 8 hosts with the most.", "host"
)
NCCL_REPLY_AGE_SECONDS = _nccl_times.gauge(
    "Age of the reply that these metrics are from."
)
NCCL_COLLECTION_SECONDS = _nccl_times.gauge(
    "Time that NCCL took to collect it from the processes of the job."
)
NCCL_COLLECTION_TIMEOUTS = _nccl.gauge(
    "Connections between processes that NCCL gave up on meanwhile."
)

_KIND = ("collective", values.NCCL_COLLECTIVES)
_SIZE = ("size", values.NCCL_MESSAGE_SIZES)
_inspector = Sheet("NCCL Inspector", SIDECAR, "worker", _KIND, _SIZE)

NCCL_COLLECTIVES_RECORDED = _inspector.counter(
    "Collectives that NCCL Inspector recorded, by kind and size of the message.",
    name="jaxmon_nccl_collectives_total",
)
NCCL_MESSAGE_BYTES = _inspector.counter(
    "Size of their messages, as NCCL counts it: of each rank."
)
NCCL_BUS_BYTES = _inspector.counter(
    "Bus bandwidth times kernel time of each; divided by the seconds, bus bandwidth."
)
NCCL_COLLECTIVE_SECONDS = _inspector.counter(
    "Time of their kernels on the GPU, including the wait for other ranks."
)
NCCL_UNRECORDED_COLLECTIVES = Sheet("NCCL Inspector", SIDECAR, "worker").counter(
    "Collectives launched between those recorded: too small, overwritten, or not read.",
    _KIND,
)


_runtimes = Sheet("TPUs", SIDECAR, "runtime")
_scores = Sheet("TPUs", SIDECAR, "runtime", limits=(0, 10))
_chips = Sheet("TPUs", SIDECAR, "uuid")
_cores = Sheet("TPUs", SIDECAR, "uuid core")
_numbers = Sheet("TPUs", SIDECAR, "uuid core", limits=(0, 2**53))

# The runtime has its own bounds; of these, the next above each of ours are kept.
_EXECUTIONS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)
_TRANSFERS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)

TPU_RUNTIME_UP = _runtimes.flag("1 while a process's TPU runtime responds, else 0.")
TPU_RUNTIME_UPTIME_SECONDS = _runtimes.gauge(
    "Time since the TPU runtime of a process started."
)
TPU_DUTY_CYCLE_RATIO = _chips.gauge(
    "Fraction of the last sample period during which the chip was busy."
)
ACCELERATOR_MEMORY_BANDWIDTH_RATIO = _chips.gauge(
    "Fraction of memory bandwidth in use."
)
TPU_CORE_IDLE_SECONDS = _cores.gauge("Time since the core was last busy.")
TPU_HLO_QUEUE_SIZE = _cores.gauge(
    "Programs dispatched to the core and not yet finished.", limits=(0, 1e9)
)
TPU_HLO_EXECUTION_SECONDS = _cores.histogram(
    "Execution time of programs on the core, as measured by the runtime.",
    buckets=_EXECUTIONS,
)
TPU_COLLECTIVE_SECONDS = _runtimes.histogram(
    "End-to-end time of collectives between slices.", buckets=_TRANSFERS
)
TPU_TRANSFER_SECONDS = _runtimes.histogram(
    "Time of transfers between slices, including their host transfers.",
    ("direction", values.TPU_TRANSFER_DIRECTIONS),
    buckets=_TRANSFERS,
)
TPU_DCN_TRANSMIT_BYTES = _runtimes.counter(
    "Bytes sent to other slices over the network of the data center."
)
TPU_DCN_RETRANSMIT_BYTES = _runtimes.counter("Bytes retransmitted to other slices.")
TPU_MEGASCALE_ERRORS = _runtimes.counter("Inter-slice communication errors.")
TPU_ICI_LINK_HEALTH = _scores.gauge(
    "Health of a chip's worst link: 0 healthy, 1-5 transient faults, 6-9 "
    "persistent faults, 10 unusable."
)
TPU_THROTTLE_SCORE = _scores.gauge("Worst throttling of a chip: 0 none, 10 constant.")

TPU_CORE_QUEUED_PROGRAMS = _cores.gauge(
    "Programs queued for the core, by core state.", limits=(0, 1e9)
)
TPU_CORE_PROGRAM_ID = _numbers.gauge(
    "ID of the program on the core, identical on all chips that run it."
)
TPU_CORE_RUN_ID = _numbers.gauge("ID of the run on the core; changes with each run.")
TPU_CORE_PROGRAM_POSITION = _numbers.gauge("Program counter of the core.")
TPU_CORE_ERROR = _cores.flag(
    "1 while the core reports an error; the text is in the sidecar's log."
)
TPU_OWNER_PID = _chips.gauge(
    "Process that has the chip open, if visible to the sidecar.", limits=(1, 2**22)
)

globals().update(model.named(globals()))

BORROWED = (
    ACCELERATOR_INFO,
    ACCELERATOR_UP,
    ACCELERATOR_UTILIZATION_RATIO,
    ACCELERATOR_MEMORY_USED_BYTES,
    ACCELERATOR_MEMORY_SIZE_BYTES,
    ACCELERATOR_TEMPERATURE_CELSIUS,
    ACCELERATOR_POWER_WATTS,
    ACCELERATOR_POWER_LIMIT_WATTS,
    ACCELERATOR_ENERGY_JOULES,
)
"""Metrics that agents export for their devices if the sidecar has no driver."""
