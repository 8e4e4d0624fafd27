"""Accelerators of a host, as the sidecar sees them."""

from __future__ import annotations

from jaxmon.catalog.model import BOTH, SIDECAR, Metric


# --- Accelerators ----------------------------------------------------------------

ACCELERATOR_INFO = Metric(
    "jaxmon_accelerator_info",
    "info",
    "Accelerators of this host.",
    labels=("uuid", "index", "vendor", "model", "driver", "pci_bus_id"),
    sources=BOTH,
    group="Accelerators",
)
ACCELERATOR_UP = Metric(
    "jaxmon_accelerator_up",
    "gauge",
    "1 while the accelerator answers its driver, 0 when it is lost.",
    labels=("uuid",),
    sources=BOTH,
    group="Accelerators",
    limits=(0, 1),
)
ACCELERATOR_UTILIZATION_RATIO = Metric(
    "jaxmon_accelerator_utilization_ratio",
    "gauge",
    "Share of the last sample period in which a kernel ran.",
    unit="ratio",
    labels=("uuid",),
    sources=BOTH,
    group="Accelerators",
)
ACCELERATOR_MEMORY_USED_BYTES = Metric(
    "jaxmon_accelerator_memory_used_bytes",
    "gauge",
    "Memory in use on the accelerator, by all processes.",
    unit="bytes",
    labels=("uuid",),
    sources=BOTH,
    group="Accelerators",
)
ACCELERATOR_MEMORY_SIZE_BYTES = Metric(
    "jaxmon_accelerator_memory_size_bytes",
    "gauge",
    "Memory of the accelerator.",
    unit="bytes",
    labels=("uuid",),
    sources=BOTH,
    group="Accelerators",
)
ACCELERATOR_TEMPERATURE_CELSIUS = Metric(
    "jaxmon_accelerator_temperature_celsius",
    "gauge",
    "Temperature of the accelerator.",
    unit="celsius",
    labels=("uuid", "sensor"),
    sources=BOTH,
    group="Accelerators",
    values=(("sensor", ("gpu", "memory")),),
)
ACCELERATOR_POWER_WATTS = Metric(
    "jaxmon_accelerator_power_watts",
    "gauge",
    "Power drawn by the accelerator.",
    unit="watts",
    labels=("uuid",),
    sources=BOTH,
    group="Accelerators",
)
ACCELERATOR_POWER_LIMIT_WATTS = Metric(
    "jaxmon_accelerator_power_limit_watts",
    "gauge",
    "Power limit in force on the accelerator.",
    unit="watts",
    labels=("uuid",),
    sources=BOTH,
    group="Accelerators",
)
ACCELERATOR_ENERGY_JOULES = Metric(
    "jaxmon_accelerator_energy_joules_total",
    "counter",
    "Energy used by the accelerator since its driver was loaded.",
    unit="joules",
    labels=("uuid",),
    sources=BOTH,
    group="Accelerators",
)
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
"""
What agents tell of their own devices where the sidecar has no driver to ask.
"""

ACCELERATOR_COST_DOLLARS_PER_HOUR = Metric(
    "jaxmon_accelerator_cost_dollars_per_hour",
    "gauge",
    "Price of the accelerator, from the sidecar's price table.",
    labels=("uuid",),
    sources=SIDECAR,
    group="Accelerators",
)

# --- NVIDIA GPUs: xid is bounded by the driver's list ----------------------------

GPU_XID_ERRORS = Metric(
    "jaxmon_gpu_xid_errors_total",
    "counter",
    "Xid errors that the driver reported since the sidecar started.",
    labels=("uuid", "xid"),
    sources=SIDECAR,
    group="NVIDIA GPUs",
)
