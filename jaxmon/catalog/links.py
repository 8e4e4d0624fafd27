"""What NVML tells about the links of a GPU: PCIe, NVLink and the fabric behind it."""

from __future__ import annotations

from jaxmon.catalog.model import SIDECAR, Metric
from jaxmon.catalog.values import LINK_KINDS, NVLINK_ERRORS, PCIE_ERRORS


GPU_PCIE_TRANSMIT_BYTES = Metric(
    "jaxmon_gpu_pcie_transmit_bytes_total",
    "counter",
    "Data that the GPU sent over PCIe.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_PCIE_RECEIVE_BYTES = Metric(
    "jaxmon_gpu_pcie_receive_bytes_total",
    "counter",
    "Data that the GPU received over PCIe.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_PCIE_REPLAYS = Metric(
    "jaxmon_gpu_pcie_replays_total",
    "counter",
    "Packets that had to be sent over PCIe again.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_PCIE_ERRORS = Metric(
    "jaxmon_gpu_pcie_errors_total",
    "counter",
    "Errors of the PCIe link, by how bad they are.",
    labels=("uuid", "type"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    values=(("type", PCIE_ERRORS),),
)
GPU_PCIE_LINK_GENERATION = Metric(
    "jaxmon_gpu_pcie_link_generation",
    "gauge",
    "Generation at which the PCIe link runs, and at which it could.",
    labels=("uuid", "kind"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    values=(("kind", LINK_KINDS),),
    limits=(0, 15),
)
GPU_PCIE_LINK_WIDTH = Metric(
    "jaxmon_gpu_pcie_link_width",
    "gauge",
    "Lanes over which the PCIe link runs, and over which it could.",
    labels=("uuid", "kind"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    values=(("kind", LINK_KINDS),),
    limits=(0, 64),
)
GPU_NVLINK_TRANSMIT_BYTES = Metric(
    "jaxmon_gpu_nvlink_transmit_bytes_total",
    "counter",
    "Data that the GPU sent over all its NVLinks.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_NVLINK_RECEIVE_BYTES = Metric(
    "jaxmon_gpu_nvlink_receive_bytes_total",
    "counter",
    "Data that the GPU received over all its NVLinks.",
    unit="bytes",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
GPU_NVLINK_ERRORS = Metric(
    "jaxmon_gpu_nvlink_errors_total",
    "counter",
    "Errors and repairs of all NVLinks, by type.",
    labels=("uuid", "type"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    values=(("type", NVLINK_ERRORS),),
)
GPU_FABRIC_STATE = Metric(
    "jaxmon_gpu_fabric_state",
    "gauge",
    "NVLink fabric: 1 not begun, 2 registering, 3 registered, 4 registration failed.",
    labels=("uuid",),
    sources=SIDECAR,
    group="NVIDIA GPUs",
    limits=(1, 4),
)
