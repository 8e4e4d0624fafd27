"""Metrics that exist only for NVIDIA GPUs and their links, from NVML."""

from __future__ import annotations

from jaxmon.catalog.model import SIDECAR, Sheet
from jaxmon.catalog.values import (
    CLOCK_EVENTS,
    ECC_SCOPES,
    ENGINES,
    LINK_KINDS,
    NVLINK_ERRORS,
    PCIE_ERRORS,
    SEVERITIES,
    THROTTLE_REASONS,
)


_gpus = Sheet("NVIDIA GPUs", SIDECAR)

# xid is bounded by the driver's list.
GPU_XID_ERRORS = _gpus.counter(
    "jaxmon_gpu_xid_errors_total",
    "Xid errors reported by the driver since the sidecar started.",
    "uuid",
    "xid",
)
GPU_INFO = _gpus.info(
    "jaxmon_gpu_info",
    "GPU firmware version, and the latest CUDA version supported by the driver.",
    "uuid",
    "vbios",
    "cuda",
)
GPU_XID_LAST_TIMESTAMP_SECONDS = _gpus.gauge(
    "jaxmon_gpu_xid_last_timestamp_seconds",
    "Unix time at which the sidecar last read this Xid from the driver.",
    "uuid",
    "xid",
)
GPU_RECOVERY_ACTION = _gpus.gauge(
    "jaxmon_gpu_recovery_action",
    "Recovery action requested by the driver: 0 none, 1 reset, 2 reboot, 3 and "
    "above drain first.",
    "uuid",
    limits=(0, 255),
)
GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO = _gpus.gauge(
    "jaxmon_gpu_memory_controller_utilization_ratio",
    "Fraction of the last sample period during which memory was being read or written.",
    "uuid",
)
GPU_ENGINE_UTILIZATION_RATIO = _gpus.gauge(
    "jaxmon_gpu_engine_utilization_ratio",
    "Fraction of the last sample period during which a media engine was busy.",
    "uuid",
    ("engine", ENGINES),
)
GPU_BAR1_USED_BYTES = _gpus.gauge(
    "jaxmon_gpu_bar1_used_bytes",
    "BAR1 memory currently mapped by the host.",
    "uuid",
)
GPU_BAR1_SIZE_BYTES = _gpus.gauge(
    "jaxmon_gpu_bar1_size_bytes",
    "BAR1 memory that the host can map.",
    "uuid",
)
GPU_POWER_INSTANT_WATTS = _gpus.gauge(
    "jaxmon_gpu_power_instant_watts", "Instantaneous power draw.", "uuid"
)
GPU_POWER_AVERAGE_WATTS = _gpus.gauge(
    "jaxmon_gpu_power_average_watts",
    "Power draw averaged by the GPU over about one second.",
    "uuid",
)
GPU_ECC_ERRORS = _gpus.counter(
    "jaxmon_gpu_ecc_errors_total",
    "ECC memory errors, since driver load (volatile) or over the GPU's lifetime "
    "(aggregate).",
    "uuid",
    ("severity", SEVERITIES),
    ("scope", ECC_SCOPES),
)
GPU_SRAM_ECC_ERRORS = _gpus.counter(
    "jaxmon_gpu_sram_ecc_errors_total",
    "ECC errors in SRAM (caches and registers), with the same scopes.",
    "uuid",
    ("severity", SEVERITIES),
    ("scope", ECC_SCOPES),
)
GPU_SRAM_ECC_THRESHOLD_EXCEEDED = _gpus.gauge(
    "jaxmon_gpu_sram_ecc_threshold_exceeded",
    "1 if SRAM ECC errors exceed the GPU's threshold.",
    "uuid",
    limits=(0, 1),
)
GPU_REMAPPED_ROWS = _gpus.counter(
    "jaxmon_gpu_remapped_rows_total",
    "Remapped memory rows, by the kind of error that caused it.",
    "uuid",
    ("cause", SEVERITIES),
)
GPU_ROW_REMAP_PENDING = _gpus.gauge(
    "jaxmon_gpu_row_remap_pending",
    "1 while a row remapping is pending a GPU reset.",
    "uuid",
    limits=(0, 1),
)
GPU_ROW_REMAP_FAILURE = _gpus.gauge(
    "jaxmon_gpu_row_remap_failure",
    "1 if a row could not be remapped and the GPU must be replaced.",
    "uuid",
    limits=(0, 1),
)
GPU_RETIRED_PAGES = _gpus.counter(
    "jaxmon_gpu_retired_pages_total",
    "Memory pages retired because of errors, on GPUs before Ampere.",
    "uuid",
    ("cause", SEVERITIES),
)
GPU_RETIRED_PAGES_PENDING = _gpus.gauge(
    "jaxmon_gpu_retired_pages_pending",
    "1 while a page retirement is pending a reboot.",
    "uuid",
    limits=(0, 1),
)
GPU_THROTTLE_SECONDS = _gpus.counter(
    "jaxmon_gpu_throttle_seconds_total",
    "Time during which the GPU was throttled, by reason; reasons can overlap.",
    "uuid",
    ("reason", THROTTLE_REASONS),
    limits=(0, 1e10),
)
GPU_CLOCK_EVENT_ACTIVE = _gpus.gauge(
    "jaxmon_gpu_clock_event_active",
    "1 for each active throttle reason, else 0.",
    "uuid",
    ("reason", CLOCK_EVENTS),
    limits=(0, 1),
)
GPU_PERFORMANCE_STATE = _gpus.gauge(
    "jaxmon_gpu_performance_state",
    "Performance state (P-state), from 0 (fastest) to 15.",
    "uuid",
    limits=(0, 15),
)
GPU_PERSISTENCE_MODE = _gpus.gauge(
    "jaxmon_gpu_persistence_mode",
    "1 if persistence mode is on (the driver stays loaded without clients).",
    "uuid",
    limits=(0, 1),
)
GPU_VGPU_LICENSED = _gpus.gauge(
    "jaxmon_gpu_vgpu_licensed",
    "1 while a virtual GPU is licensed; without a licence the driver slows it down.",
    "uuid",
    limits=(0, 1),
)
GPU_MIG_MODE = _gpus.gauge(
    "jaxmon_gpu_mig_mode",
    "1 while MIG mode is on.",
    "uuid",
    limits=(0, 1),
)
GPU_MIG_INFO = _gpus.info(
    "jaxmon_gpu_mig_info",
    "MIG devices by uuid, with their parent GPU.",
    "uuid",
    "parent",
    "profile",
    "gpu_instance",
    "compute_instance",
)
GPU_MIG_MEMORY_USED_BYTES = _gpus.gauge(
    "jaxmon_gpu_mig_memory_used_bytes", "Memory in use on a MIG device.", "uuid"
)
GPU_MIG_MEMORY_SIZE_BYTES = _gpus.gauge(
    "jaxmon_gpu_mig_memory_size_bytes", "Total memory of a MIG device.", "uuid"
)
GPU_MIG_MULTIPROCESSORS = _gpus.gauge(
    "jaxmon_gpu_mig_multiprocessors",
    "Number of SMs of a MIG device.",
    "uuid",
    limits=(0, 65535),
)
GPU_PROCESS_MEMORY_BYTES = _gpus.gauge(
    "jaxmon_gpu_process_memory_bytes",
    "GPU memory used by a process; only with --gpu-processes.",
    "uuid",
    "pid",
)

# --- Links: PCIe, NVLink and the fabric behind it --------------------------------

GPU_PCIE_TRANSMIT_BYTES = _gpus.counter(
    "jaxmon_gpu_pcie_transmit_bytes_total", "Bytes sent by the GPU over PCIe.", "uuid"
)
GPU_PCIE_RECEIVE_BYTES = _gpus.counter(
    "jaxmon_gpu_pcie_receive_bytes_total",
    "Bytes received by the GPU over PCIe.",
    "uuid",
)
GPU_PCIE_REPLAYS = _gpus.counter(
    "jaxmon_gpu_pcie_replays_total",
    "PCIe replays (retransmitted packets).",
    "uuid",
)
GPU_PCIE_ERRORS = _gpus.counter(
    "jaxmon_gpu_pcie_errors_total",
    "PCIe link errors, by severity.",
    "uuid",
    ("type", PCIE_ERRORS),
)
GPU_PCIE_LINK_GENERATION = _gpus.gauge(
    "jaxmon_gpu_pcie_link_generation",
    "Current and maximum PCIe link generation.",
    "uuid",
    ("kind", LINK_KINDS),
    limits=(0, 15),
)
GPU_PCIE_LINK_WIDTH = _gpus.gauge(
    "jaxmon_gpu_pcie_link_width",
    "Current and maximum PCIe link width.",
    "uuid",
    ("kind", LINK_KINDS),
    limits=(0, 64),
)
GPU_NVLINK_TRANSMIT_BYTES = _gpus.counter(
    "jaxmon_gpu_nvlink_transmit_bytes_total",
    "Bytes sent by the GPU over all NVLinks.",
    "uuid",
)
GPU_NVLINK_RECEIVE_BYTES = _gpus.counter(
    "jaxmon_gpu_nvlink_receive_bytes_total",
    "Bytes received by the GPU over all NVLinks.",
    "uuid",
)
GPU_NVLINK_ERRORS = _gpus.counter(
    "jaxmon_gpu_nvlink_errors_total",
    "NVLink errors and recoveries on all links, by type.",
    "uuid",
    ("type", NVLINK_ERRORS),
)
GPU_FABRIC_STATE = _gpus.gauge(
    "jaxmon_gpu_fabric_state",
    "NVLink fabric registration: 1 not started, 2 in progress, 3 registered, 4 failed.",
    "uuid",
    limits=(1, 4),
)
