"""Metrics that exist only for NVIDIA GPUs and their links, from NVML."""

from __future__ import annotations

from jaxmon.catalog import model, values
from jaxmon.catalog.model import SIDECAR, Sheet


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
