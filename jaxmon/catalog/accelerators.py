"""Accelerator metrics, as read by the sidecar."""

from __future__ import annotations

from jaxmon.catalog.model import BOTH, SIDECAR, Sheet
from jaxmon.catalog.values import CLOCKS


_accelerators = Sheet("Accelerators", BOTH)
_accelerators_of_sidecar = Sheet("Accelerators", SIDECAR)

ACCELERATOR_INFO = _accelerators.info(
    "jaxmon_accelerator_info",
    "Accelerators of this host.",
    "uuid",
    "index",
    "vendor",
    "model",
    "driver",
    "pci_bus_id",
)
ACCELERATOR_UP = _accelerators.gauge(
    "jaxmon_accelerator_up",
    "1 while the accelerator responds to its driver, 0 if it is lost.",
    "uuid",
    limits=(0, 1),
)
ACCELERATOR_UTILIZATION_RATIO = _accelerators.gauge(
    "jaxmon_accelerator_utilization_ratio",
    "Fraction of the last sample period during which a kernel was running.",
    "uuid",
)
ACCELERATOR_MEMORY_USED_BYTES = _accelerators.gauge(
    "jaxmon_accelerator_memory_used_bytes",
    "Accelerator memory in use, by all processes.",
    "uuid",
)
ACCELERATOR_MEMORY_SIZE_BYTES = _accelerators.gauge(
    "jaxmon_accelerator_memory_size_bytes", "Total accelerator memory.", "uuid"
)
ACCELERATOR_TEMPERATURE_CELSIUS = _accelerators.gauge(
    "jaxmon_accelerator_temperature_celsius",
    "Temperature of the accelerator.",
    "uuid",
    ("sensor", ("gpu", "memory")),
)
ACCELERATOR_POWER_WATTS = _accelerators.gauge(
    "jaxmon_accelerator_power_watts", "Power draw of the accelerator.", "uuid"
)
ACCELERATOR_POWER_LIMIT_WATTS = _accelerators.gauge(
    "jaxmon_accelerator_power_limit_watts",
    "Enforced power limit of the accelerator.",
    "uuid",
)
ACCELERATOR_ENERGY_JOULES = _accelerators.counter(
    "jaxmon_accelerator_energy_joules_total",
    "Energy consumed by the accelerator since the driver was loaded.",
    "uuid",
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
Metrics that agents export for their own devices if the sidecar has no driver to query.
"""

ACCELERATOR_COST_DOLLARS_PER_HOUR = _accelerators_of_sidecar.gauge(
    "jaxmon_accelerator_cost_dollars_per_hour",
    "Price of the accelerator per hour, from the sidecar's price table.",
    "uuid",
)
ACCELERATOR_MEMORY_FREE_BYTES = _accelerators_of_sidecar.gauge(
    "jaxmon_accelerator_memory_free_bytes",
    "Free accelerator memory.",
    "uuid",
)
ACCELERATOR_MEMORY_RESERVED_BYTES = _accelerators_of_sidecar.gauge(
    "jaxmon_accelerator_memory_reserved_bytes",
    "Accelerator memory reserved by driver and firmware.",
    "uuid",
)
ACCELERATOR_CLOCK_HERTZ = _accelerators_of_sidecar.gauge(
    "jaxmon_accelerator_clock_hertz",
    "Clock frequency of an accelerator domain.",
    "uuid",
    ("clock", CLOCKS),
)
ACCELERATOR_TEMPERATURE_MARGIN_CELSIUS = _accelerators_of_sidecar.gauge(
    "jaxmon_accelerator_temperature_margin_celsius",
    "Temperature margin before the accelerator throttles.",
    "uuid",
    limits=(-200, 200),
)
ACCELERATOR_NUMA_NODE = _accelerators_of_sidecar.gauge(
    "jaxmon_accelerator_numa_node",
    "NUMA node that the accelerator is attached to.",
    "uuid",
    limits=(0, 4095),
)
