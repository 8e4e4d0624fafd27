"""What NVML tells about an accelerator beyond what every accelerator has."""

from __future__ import annotations

from jaxmon.catalog.model import SIDECAR, Metric
from jaxmon.catalog.values import (
    CLOCK_EVENTS,
    CLOCKS,
    ECC_SCOPES,
    ENGINES,
    SEVERITIES,
    THROTTLE_REASONS,
)


# --- Accelerators, as far as NVIDIA's tell ----------------------------------------

ACCELERATOR_MEMORY_FREE_BYTES = Metric(
    "jaxmon_accelerator_memory_free_bytes",
    "gauge",
    "Memory of the accelerator that nobody uses.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
)
ACCELERATOR_MEMORY_RESERVED_BYTES = Metric(
    "jaxmon_accelerator_memory_reserved_bytes",
    "gauge",
    "Memory of the accelerator that driver and firmware keep for themselves.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
)
ACCELERATOR_CLOCK_HERTZ = Metric(
    "jaxmon_accelerator_clock_hertz",
    "gauge",
    "Clock of a part of the accelerator.",
    unit="hertz",
    labels=("uuid", "clock"),
    sources=SIDECAR,
    group="Accelerators",
    values=(("clock", CLOCKS),),
)
ACCELERATOR_TEMPERATURE_MARGIN_CELSIUS = Metric(
    "jaxmon_accelerator_temperature_margin_celsius",
    "gauge",
    "Degrees left until the accelerator slows itself down.",
    unit="celsius",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
    limits=(-200, 200),
)
ACCELERATOR_NUMA_NODE = Metric(
    "jaxmon_accelerator_numa_node",
    "gauge",
    "Memory node of the host that the accelerator is attached to.",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
    limits=(0, 4095),
)

# --- NVIDIA GPUs -----------------------------------------------------------------

GPU_INFO = Metric(
    "jaxmon_gpu_info",
    "info",
    "Firmware of the GPU, and the newest CUDA that its driver can run.",
    labels=("uuid", "vbios", "cuda"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_XID_LAST_TIMESTAMP_SECONDS = Metric(
    "jaxmon_gpu_xid_last_timestamp_seconds",
    "gauge",
    "When the sidecar last read an Xid error of this number from the driver.",
    unit="seconds",
    labels=("uuid", "xid"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_RECOVERY_ACTION = Metric(
    "jaxmon_gpu_recovery_action",
    "gauge",
    "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 and more drain first.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    limits=(0, 255),
)
GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO = Metric(
    "jaxmon_gpu_memory_controller_utilization_ratio",
    "gauge",
    "Share of the last sample period in which memory was read or written.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_ENGINE_UTILIZATION_RATIO = Metric(
    "jaxmon_gpu_engine_utilization_ratio",
    "gauge",
    "Share of the last sample period in which a media engine worked.",
    unit="ratio",
    labels=("uuid", "engine"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    values=(("engine", ENGINES),),
)
GPU_BAR1_USED_BYTES = Metric(
    "jaxmon_gpu_bar1_used_bytes",
    "gauge",
    "Window of the GPU's memory that the host has mapped.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_BAR1_SIZE_BYTES = Metric(
    "jaxmon_gpu_bar1_size_bytes",
    "gauge",
    "Window of the GPU's memory that the host can map.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_POWER_INSTANT_WATTS = Metric(
    "jaxmon_gpu_power_instant_watts",
    "gauge",
    "Power drawn at the moment of the sample.",
    unit="watts",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_POWER_AVERAGE_WATTS = Metric(
    "jaxmon_gpu_power_average_watts",
    "gauge",
    "Power drawn, averaged by the GPU over about a second.",
    unit="watts",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_ECC_ERRORS = Metric(
    "jaxmon_gpu_ecc_errors_total",
    "counter",
    "Memory errors that ECC found, since driver load or in the life of the GPU.",
    labels=("uuid", "severity", "scope"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    values=(
        ("severity", SEVERITIES),
        ("scope", ECC_SCOPES),
    ),
)
GPU_SRAM_ECC_ERRORS = Metric(
    "jaxmon_gpu_sram_ecc_errors_total",
    "counter",
    "Errors that ECC found in caches and registers, by the same scopes.",
    labels=("uuid", "severity", "scope"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    values=(
        ("severity", SEVERITIES),
        ("scope", ECC_SCOPES),
    ),
)
GPU_SRAM_ECC_THRESHOLD_EXCEEDED = Metric(
    "jaxmon_gpu_sram_ecc_threshold_exceeded",
    "gauge",
    "1 when caches and registers had more errors than the GPU may have.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    limits=(0, 1),
)
GPU_REMAPPED_ROWS = Metric(
    "jaxmon_gpu_remapped_rows_total",
    "counter",
    "Rows of memory that were replaced by spare ones, by the errors that led to it.",
    labels=("uuid", "cause"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    values=(("cause", SEVERITIES),),
)
GPU_ROW_REMAP_PENDING = Metric(
    "jaxmon_gpu_row_remap_pending",
    "gauge",
    "1 while a row waits for a reset of the GPU to be replaced.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    limits=(0, 1),
)
GPU_ROW_REMAP_FAILURE = Metric(
    "jaxmon_gpu_row_remap_failure",
    "gauge",
    "1 when a row could not be replaced: the GPU has to be.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    limits=(0, 1),
)
GPU_RETIRED_PAGES = Metric(
    "jaxmon_gpu_retired_pages_total",
    "counter",
    "Pages of memory given up for errors, on GPUs older than Ampere.",
    labels=("uuid", "cause"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    values=(("cause", SEVERITIES),),
)
GPU_RETIRED_PAGES_PENDING = Metric(
    "jaxmon_gpu_retired_pages_pending",
    "gauge",
    "1 while a page waits for a reboot to be given up.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    limits=(0, 1),
)
GPU_THROTTLE_SECONDS = Metric(
    "jaxmon_gpu_throttle_seconds_total",
    "counter",
    "Time in which the clock was held down, by what held it; reasons overlap.",
    unit="seconds",
    labels=("uuid", "reason"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    values=(("reason", THROTTLE_REASONS),),
    limits=(0, 1e10),
)
GPU_CLOCK_EVENT_ACTIVE = Metric(
    "jaxmon_gpu_clock_event_active",
    "gauge",
    "1 for each reason that holds the clock down now, else 0.",
    labels=("uuid", "reason"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    values=(("reason", CLOCK_EVENTS),),
    limits=(0, 1),
)
GPU_PERFORMANCE_STATE = Metric(
    "jaxmon_gpu_performance_state",
    "gauge",
    "Performance state, from 0, the fastest, to 15.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    limits=(0, 15),
)
GPU_PERSISTENCE_MODE = Metric(
    "jaxmon_gpu_persistence_mode",
    "gauge",
    "1 while the driver stays loaded without a client.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    limits=(0, 1),
)
GPU_VGPU_LICENSED = Metric(
    "jaxmon_gpu_vgpu_licensed",
    "gauge",
    "1 while a virtual GPU holds its license; without, its driver slows it down.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    limits=(0, 1),
)
GPU_MIG_MODE = Metric(
    "jaxmon_gpu_mig_mode",
    "gauge",
    "1 while the GPU is divided into MIG devices.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    limits=(0, 1),
)
GPU_MIG_INFO = Metric(
    "jaxmon_gpu_mig_info",
    "info",
    "MIG devices by their own uuid, and the GPU that each is part of.",
    labels=("uuid", "parent", "profile", "gpu_instance", "compute_instance"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_MIG_MEMORY_USED_BYTES = Metric(
    "jaxmon_gpu_mig_memory_used_bytes",
    "gauge",
    "Memory in use on a MIG device.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_MIG_MEMORY_SIZE_BYTES = Metric(
    "jaxmon_gpu_mig_memory_size_bytes",
    "gauge",
    "Memory of a MIG device.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_MIG_MULTIPROCESSORS = Metric(
    "jaxmon_gpu_mig_multiprocessors",
    "gauge",
    "Multiprocessors of a MIG device.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    limits=(0, 65535),
)
GPU_PROCESS_MEMORY_BYTES = Metric(
    "jaxmon_gpu_process_memory_bytes",
    "gauge",
    "GPU memory of a process; only with --gpu-processes.",
    unit="bytes",
    labels=("uuid", "pid"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
