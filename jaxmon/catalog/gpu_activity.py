"""Activity of NVIDIA GPU units between two polls."""

from __future__ import annotations

from jaxmon.catalog.model import SIDECAR, Sheet


_activity = Sheet("NVIDIA GPU activity", SIDECAR)

GPU_GRAPHICS_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_graphics_active_ratio",
    "Fraction of time the graphics or compute engine was busy.",
    "uuid",
)
GPU_SM_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_sm_active_ratio",
    "Fraction of time an SM had at least one warp assigned, averaged over all SMs.",
    "uuid",
)
GPU_SM_OCCUPANCY_RATIO = _activity.gauge(
    "jaxmon_gpu_sm_occupancy_ratio",
    "Resident warps as a fraction of the SMs' maximum.",
    "uuid",
)
GPU_TENSOR_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_tensor_active_ratio",
    "Fraction of cycles the tensor cores were busy.",
    "uuid",
)
GPU_DRAM_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_dram_active_ratio", "Fraction of memory bandwidth in use.", "uuid"
)
GPU_FP16_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_fp16_active_ratio",
    "Fraction of cycles the FP16 pipe was busy, excluding tensor cores.",
    "uuid",
)
GPU_FP32_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_fp32_active_ratio",
    "Fraction of cycles the FP32 pipe was busy.",
    "uuid",
)
GPU_FP64_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_fp64_active_ratio",
    "Fraction of cycles the FP64 pipe was busy.",
    "uuid",
)
GPU_INTEGER_ACTIVE_RATIO = _activity.gauge(
    "jaxmon_gpu_integer_active_ratio",
    "Fraction of cycles the integer pipe was busy.",
    "uuid",
)

# --- Rates: only if the driver keeps no counter --------------------------------

GPU_PCIE_TRANSMIT_BYTES_PER_SECOND = _activity.gauge(
    "jaxmon_gpu_pcie_transmit_bytes_per_second",
    "Bytes sent over PCIe per second, if the driver has no counter.",
    "uuid",
    limits=(0, 1e14),
)
GPU_PCIE_RECEIVE_BYTES_PER_SECOND = _activity.gauge(
    "jaxmon_gpu_pcie_receive_bytes_per_second",
    "Bytes received over PCIe per second, if the driver has no counter.",
    "uuid",
    limits=(0, 1e14),
)
GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND = _activity.gauge(
    "jaxmon_gpu_nvlink_transmit_bytes_per_second",
    "Bytes sent over NVLink per second, if the driver has no counter.",
    "uuid",
    limits=(0, 1e14),
)
GPU_NVLINK_RECEIVE_BYTES_PER_SECOND = _activity.gauge(
    "jaxmon_gpu_nvlink_receive_bytes_per_second",
    "Bytes received over NVLink per second, if the driver has no counter.",
    "uuid",
    limits=(0, 1e14),
)
