"""What NVML reports of NVIDIA's GPUs alone, their links included."""

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
    "Xid errors that the driver reported since the sidecar started.",
    "uuid",
    "xid",
)
GPU_INFO = _gpus.info(
    "jaxmon_gpu_info",
    "Firmware of the GPU, and the newest CUDA that its driver can run.",
    "uuid",
    "vbios",
    "cuda",
)
GPU_XID_LAST_TIMESTAMP_SECONDS = _gpus.gauge(
    "jaxmon_gpu_xid_last_timestamp_seconds",
    "When the sidecar last read an Xid error of this number from the driver.",
    "uuid",
    "xid",
)
GPU_RECOVERY_ACTION = _gpus.gauge(
    "jaxmon_gpu_recovery_action",
    "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 and more drain first.",
    "uuid",
    limits=(0, 255),
)
GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO = _gpus.gauge(
    "jaxmon_gpu_memory_controller_utilization_ratio",
    "Share of the last sample period in which memory was read or written.",
    "uuid",
)
GPU_ENGINE_UTILIZATION_RATIO = _gpus.gauge(
    "jaxmon_gpu_engine_utilization_ratio",
    "Share of the last sample period in which a media engine worked.",
    "uuid",
    ("engine", ENGINES),
)
GPU_BAR1_USED_BYTES = _gpus.gauge(
    "jaxmon_gpu_bar1_used_bytes",
    "Window of the GPU's memory that the host has mapped.",
    "uuid",
)
GPU_BAR1_SIZE_BYTES = _gpus.gauge(
    "jaxmon_gpu_bar1_size_bytes",
    "Window of the GPU's memory that the host can map.",
    "uuid",
)
GPU_POWER_INSTANT_WATTS = _gpus.gauge(
    "jaxmon_gpu_power_instant_watts", "Power drawn at the moment of the sample.", "uuid"
)
GPU_POWER_AVERAGE_WATTS = _gpus.gauge(
    "jaxmon_gpu_power_average_watts",
    "Power drawn, averaged by the GPU over about a second.",
    "uuid",
)
GPU_ECC_ERRORS = _gpus.counter(
    "jaxmon_gpu_ecc_errors_total",
    "Memory errors that ECC found, since driver load or in the life of the GPU.",
    "uuid",
    ("severity", SEVERITIES),
    ("scope", ECC_SCOPES),
)
GPU_SRAM_ECC_ERRORS = _gpus.counter(
    "jaxmon_gpu_sram_ecc_errors_total",
    "Errors that ECC found in caches and registers, by the same scopes.",
    "uuid",
    ("severity", SEVERITIES),
    ("scope", ECC_SCOPES),
)
GPU_SRAM_ECC_THRESHOLD_EXCEEDED = _gpus.gauge(
    "jaxmon_gpu_sram_ecc_threshold_exceeded",
    "1 when caches and registers had more errors than the GPU may have.",
    "uuid",
    limits=(0, 1),
)
GPU_REMAPPED_ROWS = _gpus.counter(
    "jaxmon_gpu_remapped_rows_total",
    "Rows of memory that were replaced by spare ones, by the errors that led to it.",
    "uuid",
    ("cause", SEVERITIES),
)
GPU_ROW_REMAP_PENDING = _gpus.gauge(
    "jaxmon_gpu_row_remap_pending",
    "1 while a row waits for a reset of the GPU to be replaced.",
    "uuid",
    limits=(0, 1),
)
GPU_ROW_REMAP_FAILURE = _gpus.gauge(
    "jaxmon_gpu_row_remap_failure",
    "1 when a row could not be replaced: the GPU has to be.",
    "uuid",
    limits=(0, 1),
)
GPU_RETIRED_PAGES = _gpus.counter(
    "jaxmon_gpu_retired_pages_total",
    "Pages of memory given up for errors, on GPUs older than Ampere.",
    "uuid",
    ("cause", SEVERITIES),
)
GPU_RETIRED_PAGES_PENDING = _gpus.gauge(
    "jaxmon_gpu_retired_pages_pending",
    "1 while a page waits for a reboot to be given up.",
    "uuid",
    limits=(0, 1),
)
GPU_THROTTLE_SECONDS = _gpus.counter(
    "jaxmon_gpu_throttle_seconds_total",
    "Time in which the clock was held down, by what held it; reasons overlap.",
    "uuid",
    ("reason", THROTTLE_REASONS),
    limits=(0, 1e10),
)
GPU_CLOCK_EVENT_ACTIVE = _gpus.gauge(
    "jaxmon_gpu_clock_event_active",
    "1 for each reason that holds the clock down now, else 0.",
    "uuid",
    ("reason", CLOCK_EVENTS),
    limits=(0, 1),
)
GPU_PERFORMANCE_STATE = _gpus.gauge(
    "jaxmon_gpu_performance_state",
    "Performance state, from 0, the fastest, to 15.",
    "uuid",
    limits=(0, 15),
)
GPU_PERSISTENCE_MODE = _gpus.gauge(
    "jaxmon_gpu_persistence_mode",
    "1 while the driver stays loaded without a client.",
    "uuid",
    limits=(0, 1),
)
GPU_VGPU_LICENSED = _gpus.gauge(
    "jaxmon_gpu_vgpu_licensed",
    "1 while a virtual GPU holds its license; without, its driver slows it down.",
    "uuid",
    limits=(0, 1),
)
GPU_MIG_MODE = _gpus.gauge(
    "jaxmon_gpu_mig_mode",
    "1 while the GPU is divided into MIG devices.",
    "uuid",
    limits=(0, 1),
)
GPU_MIG_INFO = _gpus.info(
    "jaxmon_gpu_mig_info",
    "MIG devices by their own uuid, and the GPU that each is part of.",
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
    "jaxmon_gpu_mig_memory_size_bytes", "Memory of a MIG device.", "uuid"
)
GPU_MIG_MULTIPROCESSORS = _gpus.gauge(
    "jaxmon_gpu_mig_multiprocessors",
    "Multiprocessors of a MIG device.",
    "uuid",
    limits=(0, 65535),
)
GPU_PROCESS_MEMORY_BYTES = _gpus.gauge(
    "jaxmon_gpu_process_memory_bytes",
    "GPU memory of a process; only with --gpu-processes.",
    "uuid",
    "pid",
)

# --- Links: PCIe, NVLink and the fabric behind it --------------------------------

GPU_PCIE_TRANSMIT_BYTES = _gpus.counter(
    "jaxmon_gpu_pcie_transmit_bytes_total", "Data that the GPU sent over PCIe.", "uuid"
)
GPU_PCIE_RECEIVE_BYTES = _gpus.counter(
    "jaxmon_gpu_pcie_receive_bytes_total",
    "Data that the GPU received over PCIe.",
    "uuid",
)
GPU_PCIE_REPLAYS = _gpus.counter(
    "jaxmon_gpu_pcie_replays_total",
    "Packets that had to be sent over PCIe again.",
    "uuid",
)
GPU_PCIE_ERRORS = _gpus.counter(
    "jaxmon_gpu_pcie_errors_total",
    "Errors of the PCIe link, by how bad they are.",
    "uuid",
    ("type", PCIE_ERRORS),
)
GPU_PCIE_LINK_GENERATION = _gpus.gauge(
    "jaxmon_gpu_pcie_link_generation",
    "Generation at which the PCIe link runs, and at which it could.",
    "uuid",
    ("kind", LINK_KINDS),
    limits=(0, 15),
)
GPU_PCIE_LINK_WIDTH = _gpus.gauge(
    "jaxmon_gpu_pcie_link_width",
    "Lanes over which the PCIe link runs, and over which it could.",
    "uuid",
    ("kind", LINK_KINDS),
    limits=(0, 64),
)
GPU_NVLINK_TRANSMIT_BYTES = _gpus.counter(
    "jaxmon_gpu_nvlink_transmit_bytes_total",
    "Data that the GPU sent over all its NVLinks.",
    "uuid",
)
GPU_NVLINK_RECEIVE_BYTES = _gpus.counter(
    "jaxmon_gpu_nvlink_receive_bytes_total",
    "Data that the GPU received over all its NVLinks.",
    "uuid",
)
GPU_NVLINK_ERRORS = _gpus.counter(
    "jaxmon_gpu_nvlink_errors_total",
    "Errors and repairs of all NVLinks, by type.",
    "uuid",
    ("type", NVLINK_ERRORS),
)
GPU_FABRIC_STATE = _gpus.gauge(
    "jaxmon_gpu_fabric_state",
    "NVLink fabric: 1 not begun, 2 registering, 3 registered, 4 registration failed.",
    "uuid",
    limits=(1, 4),
)
