"""What the parts of an NVIDIA GPU were busy with, between two looks."""

from __future__ import annotations

from jaxmon.catalog.model import SIDECAR, Metric


_GROUP = "Activity of NVIDIA GPUs"

GPU_GRAPHICS_ACTIVE_RATIO = Metric(
    "jaxmon_gpu_graphics_active_ratio",
    "gauge",
    "Share of time in which the graphics or compute engine was busy.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
)
GPU_SM_ACTIVE_RATIO = Metric(
    "jaxmon_gpu_sm_active_ratio",
    "gauge",
    "Share of time in which a multiprocessor had a warp, mean of all of them.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
)
GPU_SM_OCCUPANCY_RATIO = Metric(
    "jaxmon_gpu_sm_occupancy_ratio",
    "gauge",
    "Warps on the multiprocessors, as a share of those that fit.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
)
GPU_TENSOR_ACTIVE_RATIO = Metric(
    "jaxmon_gpu_tensor_active_ratio",
    "gauge",
    "Share of cycles in which tensor cores were busy.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
)
GPU_DRAM_ACTIVE_RATIO = Metric(
    "jaxmon_gpu_dram_active_ratio",
    "gauge",
    "Share of the memory's bandwidth in use.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
)
GPU_FP16_ACTIVE_RATIO = Metric(
    "jaxmon_gpu_fp16_active_ratio",
    "gauge",
    "Share of cycles in which the FP16 pipe was busy, without tensor cores.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
)
GPU_FP32_ACTIVE_RATIO = Metric(
    "jaxmon_gpu_fp32_active_ratio",
    "gauge",
    "Share of cycles in which the FP32 pipe was busy.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
)
GPU_FP64_ACTIVE_RATIO = Metric(
    "jaxmon_gpu_fp64_active_ratio",
    "gauge",
    "Share of cycles in which the FP64 pipe was busy.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
)
GPU_INTEGER_ACTIVE_RATIO = Metric(
    "jaxmon_gpu_integer_active_ratio",
    "gauge",
    "Share of cycles in which the integer pipe was busy.",
    unit="ratio",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
)

# --- Rates: only where the driver keeps no counter --------------------------------

GPU_PCIE_TRANSMIT_BYTES_PER_SECOND = Metric(
    "jaxmon_gpu_pcie_transmit_bytes_per_second",
    "gauge",
    "Bytes sent over PCIe per second, where there is no counter.",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 1e14),
)
GPU_PCIE_RECEIVE_BYTES_PER_SECOND = Metric(
    "jaxmon_gpu_pcie_receive_bytes_per_second",
    "gauge",
    "Bytes received over PCIe per second, where there is no counter.",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 1e14),
)
GPU_NVLINK_TRANSMIT_BYTES_PER_SECOND = Metric(
    "jaxmon_gpu_nvlink_transmit_bytes_per_second",
    "gauge",
    "Bytes sent over NVLink per second, where there is no counter.",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 1e14),
)
GPU_NVLINK_RECEIVE_BYTES_PER_SECOND = Metric(
    "jaxmon_gpu_nvlink_receive_bytes_per_second",
    "gauge",
    "Bytes received over NVLink per second, where there is no counter.",
    labels=("uuid",),
    sources=SIDECAR,
    group=_GROUP,
    limits=(0, 1e14),
)
