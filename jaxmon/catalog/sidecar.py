"""
Metrics of the sidecar: its collectors, the host and containers; accelerators, TPUs and
jobs that use NCCL; what only NVIDIA GPUs and their links have. And every metric.
"""

from __future__ import annotations

from jaxmon.catalog import agent, model, values
from jaxmon.catalog.model import BOTH, SIDECAR, Metric, Sheet
from jaxmon.catalog.values import PRESSURE_KINDS, PRESSURE_RESOURCES


_collectors = Sheet("Collectors", SIDECAR, "collector")
_slots = Sheet("Collectors", SIDECAR, "worker")

COLLECTOR_SUCCESS = _collectors.gauge("1 if the last poll of a collector succeeded.")
COLLECTOR_DURATION_SECONDS = _collectors.gauge(
    "Duration of a collector's last completed poll."
)
COLLECTOR_AGE_SECONDS = _collectors.gauge("Age of the values a collector serves.")
COLLECTOR_ERRORS = _collectors.counter("Collector failures, by reason.", "reason")
AGENT_UP = _slots.flag(
    "1 if the agent in this slot responded to the last poll, else 0."
)
AGENT_STARTS = _slots.counter("Processes with an agent that started in this slot.")
AGENT_CRASHES = _slots.counter(
    "Processes of this slot that crashed; an end without a record counts if it repeats "
    "within ten minutes."
)
AGENT_DIED = _slots.flag(
    "1 from when a process ended without finishing or being stopped until another "
    "takes its slot; loop is what it ran.",
    "loop",
)
AGENT_ENDED_SECONDS = _slots.gauge(
    "Time since the last process of this slot ended, while its counts are still served."
)
AGENT_FINISHED_SECONDS = _slots.gauge(
    "Time since the last process of this slot finished or was stopped, until another "
    "takes the slot."
)

_host = Sheet("Host", SIDECAR)

HOST_CPU_SECONDS = _host.counter("CPU time of the host, all cores, by mode.", "mode")
HOST_CPUS = _host.gauge("Logical CPUs of the host.", limits=(1, 1e6))
HOST_LOAD_1M = _host.gauge(
    "Load average of the host over one minute.",
    limits=(0, 1e7),
    name="jaxmon_host_load1",
)
HOST_MEMORY_SIZE_BYTES = _host.gauge("Memory of the host.")
HOST_MEMORY_AVAILABLE_BYTES = _host.gauge(
    "Host memory available to programs without swapping."
)
HOST_PRESSURE_SECONDS = _host.counter(
    "Time during which some (or all) of the host's tasks were stalled on a "
    "resource (PSI).",
    ("resource", PRESSURE_RESOURCES),
    ("kind", PRESSURE_KINDS),
)
HOST_NETWORK_RECEIVE_BYTES = _host.counter(
    "Bytes received on a network interface of the host.", "interface"
)
HOST_NETWORK_TRANSMIT_BYTES = _host.counter(
    "Bytes sent on a network interface of the host.", "interface"
)
HOST_DISK_SIZE_BYTES = _host.gauge(
    "Size of the file system containing a watched directory, such as the "
    "persistent cache's.",
    "directory",
)
HOST_DISK_AVAILABLE_BYTES = _host.gauge(
    "Space available to unprivileged users on that file system.", "directory"
)

_container = Sheet("Container", BOTH)

CONTAINER_MEMORY_USED_BYTES = _container.gauge(
    "Memory charged to the process's cgroup, including page cache."
)
CONTAINER_MEMORY_WORKING_SET_BYTES = _container.gauge(
    "Cgroup memory minus inactive page cache (working set), which Kubernetes uses "
    "for eviction."
)
CONTAINER_MEMORY_LIMIT_BYTES = _container.gauge(
    "Cgroup memory limit, above which the kernel kills processes; absent if unlimited."
)
CONTAINER_OOM_KILLS = _container.counter(
    "Processes in the cgroup killed by the kernel's OOM killer."
)
CONTAINER_CPU_SECONDS = _container.counter("CPU time of the cgroup, by mode.", "mode")
CONTAINER_CPU_THROTTLED_SECONDS = _container.counter(
    "Time during which the cgroup was CPU-throttled."
)
CONTAINER_CPU_LIMIT = _container.gauge(
    "CPU limit of the cgroup in cores; absent if unlimited."
)
CONTAINER_PRESSURE_SECONDS = _container.counter(
    "Time during which some (or all) of the cgroup's tasks were stalled on a "
    "resource (PSI).",
    ("resource", PRESSURE_RESOURCES),
    ("kind", PRESSURE_KINDS),
)


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


_gpus = Sheet("NVIDIA GPUs", SIDECAR, "uuid")

# xid is bounded by the driver's list.
GPU_XID_ERRORS = _gpus.counter(
    "Xid errors reported by the driver since the sidecar started.", "xid"
)
GPU_INFO = _gpus.info(
    "GPU firmware version, and the latest CUDA version supported by the driver.",
    "vbios cuda",
)
GPU_XID_LAST_TIMESTAMP_SECONDS = _gpus.gauge(
    "Unix time at which the sidecar last read this Xid from the driver.", "xid"
)
GPU_RECOVERY_ACTION = _gpus.gauge(
    "Recovery action requested by the driver: 0 none, 1 reset, 2 reboot, 3 and "
    "above drain first.",
    limits=(0, 255),
)
GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO = _gpus.gauge(
    "Fraction of the last sample period during which memory was being read or written."
)
GPU_ENGINE_UTILIZATION_RATIO = _gpus.gauge(
    "Fraction of the last sample period during which a media engine was busy.",
    ("engine", values.ENGINES),
)
GPU_BAR1_USED_BYTES = _gpus.gauge("BAR1 memory currently mapped by the host.")
GPU_BAR1_SIZE_BYTES = _gpus.gauge("BAR1 memory that the host can map.")
GPU_POWER_INSTANT_WATTS = _gpus.gauge("Instantaneous power draw.")
GPU_POWER_AVERAGE_WATTS = _gpus.gauge(
    "Power draw averaged by the GPU over about one second."
)
GPU_ECC_ERRORS = _gpus.counter(
    "ECC memory errors, since driver load (volatile) or over the GPU's lifetime "
    "(aggregate).",
    ("severity", values.SEVERITIES),
    ("scope", values.ECC_SCOPES),
)
GPU_SRAM_ECC_ERRORS = _gpus.counter(
    "ECC errors in SRAM (caches and registers), with the same scopes.",
    ("severity", values.SEVERITIES),
    ("scope", values.ECC_SCOPES),
)
GPU_SRAM_ECC_THRESHOLD_EXCEEDED = _gpus.flag(
    "1 if SRAM ECC errors exceed the GPU's threshold."
)
GPU_REMAPPED_ROWS = _gpus.counter(
    "Remapped memory rows, by the kind of error that caused it.",
    ("cause", values.SEVERITIES),
)
GPU_ROW_REMAP_PENDING = _gpus.flag("1 while a row remapping is pending a GPU reset.")
GPU_ROW_REMAP_FAILURE = _gpus.flag(
    "1 if a row could not be remapped and the GPU must be replaced."
)
GPU_RETIRED_PAGES = _gpus.counter(
    "Memory pages retired because of errors, on GPUs before Ampere.",
    ("cause", values.SEVERITIES),
)
GPU_RETIRED_PAGES_PENDING = _gpus.flag("1 while a page retirement is pending a reboot.")
GPU_THROTTLE_SECONDS = _gpus.counter(
    "Time during which the GPU was throttled, by reason; reasons can overlap.",
    ("reason", values.THROTTLE_REASONS),
    limits=(0, 1e10),
)
GPU_CLOCK_EVENT_ACTIVE = _gpus.flag(
    "1 for each active throttle reason, else 0.", ("reason", values.CLOCK_EVENTS)
)
GPU_PERFORMANCE_STATE = _gpus.gauge(
    "Performance state (P-state), from 0 (fastest) to 15.", limits=(0, 15)
)
GPU_PERSISTENCE_MODE = _gpus.flag(
    "1 if persistence mode is on (the driver stays loaded without clients)."
)
GPU_VGPU_LICENSED = _gpus.flag(
    "1 while a virtual GPU is licensed; without a licence the driver slows it down."
)
GPU_MIG_MODE = _gpus.flag("1 while MIG mode is on.")
GPU_MIG_INFO = _gpus.info(
    "MIG devices by uuid, with their parent GPU.",
    "parent profile gpu_instance compute_instance",
)
GPU_MIG_MEMORY_USED_BYTES = _gpus.gauge("Memory in use on a MIG device.")
GPU_MIG_MEMORY_SIZE_BYTES = _gpus.gauge("Total memory of a MIG device.")
GPU_MIG_MULTIPROCESSORS = _gpus.gauge(
    "Number of SMs of a MIG device.", limits=(0, 65535)
)
GPU_PROCESS_MEMORY_BYTES = _gpus.gauge(
    "GPU memory used by a process; only with --gpu-processes.", "pid"
)

GPU_PCIE_TRANSMIT_BYTES = _gpus.counter("Bytes sent by the GPU over PCIe.")
GPU_PCIE_RECEIVE_BYTES = _gpus.counter("Bytes received by the GPU over PCIe.")
GPU_PCIE_REPLAYS = _gpus.counter("PCIe replays (retransmitted packets).")
GPU_PCIE_ERRORS = _gpus.counter(
    "PCIe link errors, by severity.", ("type", values.PCIE_ERRORS)
)
GPU_PCIE_LINK_GENERATION = _gpus.gauge(
    "Current and maximum PCIe link generation.",
    ("kind", values.LINK_KINDS),
    limits=(0, 15),
)
GPU_PCIE_LINK_WIDTH = _gpus.gauge(
    "Current and maximum PCIe link width.", ("kind", values.LINK_KINDS), limits=(0, 64)
)
GPU_NVLINK_TRANSMIT_BYTES = _gpus.counter("Bytes sent by the GPU over all NVLinks.")
GPU_NVLINK_RECEIVE_BYTES = _gpus.counter("Bytes received by the GPU over all NVLinks.")
GPU_NVLINK_ERRORS = _gpus.counter(
    "NVLink errors and recoveries on all links, by type.",
    ("type", values.NVLINK_ERRORS),
)
GPU_FABRIC_STATE = _gpus.gauge(
    "NVLink fabric registration: 1 not started, 2 in progress, 3 registered, 4 failed.",
    limits=(1, 4),
)


_activity = Sheet("NVIDIA GPU activity", SIDECAR, "uuid")
_rates = Sheet("NVIDIA GPU activity", SIDECAR, "uuid", limits=(0, 1e14))

GPU_GRAPHICS_ACTIVE_RATIO = _activity.gauge(
    "Fraction of time the graphics or compute engine was busy."
)
GPU_SM_ACTIVE_RATIO = _activity.gauge(
    "Fraction of time an SM had at least one warp assigned, averaged over all SMs."
)
GPU_SM_OCCUPANCY_RATIO = _activity.gauge(
    "Resident warps as a fraction of the SMs' maximum."
)
GPU_TENSOR_ACTIVE_RATIO = _activity.gauge(
    "Fraction of cycles the tensor cores were busy."
)
GPU_DRAM_ACTIVE_RATIO = _activity.gauge("Fraction of memory bandwidth in use.")
GPU_FP16_ACTIVE_RATIO = _activity.gauge(
    "Fraction of cycles the FP16 pipe was busy, excluding tensor cores."
)
GPU_FP32_ACTIVE_RATIO = _activity.gauge("Fraction of cycles the FP32 pipe was busy.")
GPU_FP64_ACTIVE_RATIO = _activity.gauge("Fraction of cycles the FP64 pipe was busy.")
GPU_INTEGER_ACTIVE_RATIO = _activity.gauge(
    "Fraction of cycles the integer pipe was busy."
)

GPU_PCIE_TRANSMIT_BYTES_PER_SECOND = _rates.gauge(
    "Bytes sent over PCIe per second, if the driver has no counter."
)
GPU_PCIE_RECEIVE_BYTES_PER_SECOND = _rates.gauge(
    "Bytes received over PCIe per second, if the driver has no counter."
)
GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND = _rates.gauge(
    "Bytes sent over NVLink per second, if the driver has no counter."
)
GPU_NVLINK_RECEIVE_BYTES_PER_SECOND = _rates.gauge(
    "Bytes received over NVLink per second, if the driver has no counter."
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

METRICS: tuple[Metric, ...] = tuple(
    value
    for value in (*vars(agent).values(), *globals().values())
    if isinstance(value, Metric)
)
"""Every metric, as the documentation lists them."""
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
