"""What the parts of an NVIDIA GPU were busy with, between two looks."""

from __future__ import annotations

from jaxmon.catalog.model import SIDECAR, Sheet


_activity = Sheet("Activity of NVIDIA GPUs", SIDECAR)

GPU_GRAPHICS_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_graphics_active_ratio",
    "Share of time in which the graphics or compute engine was busy.",
    "uuid",
)
GPU_SM_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_sm_active_ratio",
    "Share of time in which a multiprocessor had a warp, mean of all of them.",
    "uuid",
)
GPU_SM_OCCUPANCY_RATIO = _activity.gauge(
    "jaxmon_gpu_sm_occupancy_ratio",
    "Warps on the multiprocessors, as a share of those that fit.",
    "uuid",
)
GPU_TENSOR_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_tensor_active_ratio",
    "Share of cycles in which tensor cores were busy.",
    "uuid",
)
GPU_DRAM_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_dram_active_ratio", "Share of the memory's bandwidth in use.", "uuid"
)
GPU_FP16_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_fp16_active_ratio",
    "Share of cycles in which the FP16 pipe was busy, without tensor cores.",
    "uuid",
)
GPU_FP32_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_fp32_active_ratio",
    "Share of cycles in which the FP32 pipe was busy.",
    "uuid",
)
GPU_FP64_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_fp64_active_ratio",
    "Share of cycles in which the FP64 pipe was busy.",
    "uuid",
)
GPU_INTEGER_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_integer_active_ratio",
    "Share of cycles in which the integer pipe was busy.",
    "uuid",
)

# --- Rates: only where the driver keeps no counter --------------------------------

GPU_PCIE_TRANSMIT_BYTES_PER_SECOND = _activity.gauge(
    "jaxmon_gpu_pcie_transmit_bytes_per_second",
    "Bytes sent over PCIe per second, where there is no counter.",
    "uuid",
    limits=(0, 1e14),
)
GPU_PCIE_RECEIVE_BYTES_PER_SECOND = _activity.gauge(
    "jaxmon_gpu_pcie_receive_bytes_per_second",
    "Bytes received over PCIe per second, where there is no counter.",
    "uuid",
    limits=(0, 1e14),
)
GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND = _activity.gauge(
    "jaxmon_gpu_nvlink_transmit_bytes_per_second",
    "Bytes sent over NVLink per second, where there is no counter.",
    "uuid",
    limits=(0, 1e14),
)
GPU_NVLINK_RECEIVE_BYTES_PER_SECOND = _activity.gauge(
    "jaxmon_gpu_nvlink_receive_bytes_per_second",
    "Bytes received over NVLink per second, where there is no counter.",
    "uuid",
    limits=(0, 1e14),
)
