"""
Metrics that OpenTelemetry's semantic conventions have a name for, in version 1.44.

Listed is what means the same, in the same unit, and can have the attributes that the
convention requires. Requests are not: `http.server.request.duration` requires method
and scheme, which markers do not know. GPU errors are not: they have two scopes.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from jaxmon import catalog
from jaxmon.catalog.model import Metric


VERSION = "1.44"

Instrument: TypeAlias = Literal["counter", "gauge", "updowncounter"]
Pairs: TypeAlias = tuple[tuple[str, str], ...]


class Convention(NamedTuple):
    """
    What a metric is called by convention: attributes that our labels become, and those
    that all series have. The *unit*, in UCUM, is of what is counted, else ours.
    """

    instrument: Instrument
    name: str
    labels: Pairs = ()
    attributes: Pairs = ()
    unit: str = ""


UNITS = {
    "seconds": "s",
    "bytes": "By",
    "ratio": "1",
    "celsius": "Cel",
    "watts": "W",
    "hertz": "Hz",
    "joules": "J",
}
"""Units of the catalogue in UCUM, as OpenTelemetry wants them."""

_amount = partial(Convention, "updowncounter")
_count = partial(Convention, "counter")
_gauge = partial(Convention, "gauge")

_UUID = (("uuid", "hw.id"),)
_GENERATION = (("generation", "cpython.gc.generation"),)
_GPU = (("hw.type", "gpu"),)
OF_GPUS = "GPU-"
"""How a ``uuid`` begins that conventions are about; others keep our name."""
_SENT, _RECEIVED = (
    (("network.io.direction", direction),) for direction in ("transmit", "receive")
)
_INTERFACE = (("interface", "network.interface.name"),)

_LISTED: dict[Metric, Convention] = {
    catalog.PROCESS_CPU_SECONDS: _count("process.cpu.time"),
    catalog.PROCESS_RESIDENT_MEMORY_BYTES: _amount("process.memory.usage"),
    catalog.PROCESS_VIRTUAL_MEMORY_BYTES: _amount("process.memory.virtual"),
    catalog.PROCESS_OPEN_FDS: _amount(
        "process.unix.file_descriptor.count", unit="{file_descriptor}"
    ),
    catalog.UPTIME_SECONDS: _gauge("process.uptime"),
    catalog.PYTHON_GC_COLLECTIONS: _count(
        "cpython.gc.collections", _GENERATION, unit="{collection}"
    ),
    catalog.PYTHON_GC_OBJECTS_COLLECTED: _count(
        "cpython.gc.collected_objects", _GENERATION, unit="{object}"
    ),
    catalog.PYTHON_GC_OBJECTS_UNCOLLECTABLE: _count(
        "cpython.gc.uncollectable_objects", _GENERATION, unit="{object}"
    ),
    catalog.HOST_CPUS: _amount("system.cpu.logical.count", unit="{cpu}"),
    catalog.HOST_MEMORY_SIZE_BYTES: _amount("system.memory.limit"),
    catalog.HOST_MEMORY_AVAILABLE_BYTES: _amount("system.memory.linux.available"),
    catalog.HOST_NETWORK_RECEIVE_BYTES: _count(
        "system.network.io", _INTERFACE, _RECEIVED
    ),
    catalog.HOST_NETWORK_TRANSMIT_BYTES: _count("system.network.io", _INTERFACE, _SENT),
    catalog.CONTAINER_MEMORY_USED_BYTES: _amount("container.memory.usage"),
    catalog.CONTAINER_MEMORY_WORKING_SET_BYTES: _amount("container.memory.working_set"),
    catalog.CONTAINER_CPU_SECONDS: _count(
        "container.cpu.time", (("mode", "cpu.mode"),)
    ),
    catalog.ACCELERATOR_UTILIZATION_RATIO: _gauge("hw.gpu.utilization", _UUID),
    catalog.ACCELERATOR_MEMORY_USED_BYTES: _amount("hw.gpu.memory.usage", _UUID),
    catalog.ACCELERATOR_MEMORY_SIZE_BYTES: _amount("hw.gpu.memory.limit", _UUID),
    catalog.ACCELERATOR_TEMPERATURE_CELSIUS: _gauge(
        "hw.temperature", (*_UUID, ("sensor", "hw.sensor_location")), _GPU
    ),
    catalog.ACCELERATOR_POWER_WATTS: _gauge("hw.power", _UUID, _GPU),
    catalog.ACCELERATOR_ENERGY_JOULES: _count("hw.energy", _UUID, _GPU),
    catalog.GPU_PCIE_TRANSMIT_BYTES: _count("hw.gpu.io", _UUID, _SENT),
    catalog.GPU_PCIE_RECEIVE_BYTES: _count("hw.gpu.io", _UUID, _RECEIVED),
}
CONVENTIONS = {
    metric: of._replace(unit=of.unit or UNITS[metric.unit])
    for metric, of in _LISTED.items()
}
"""By metric. Labels are declared with the metric, in `jaxmon.catalog`."""
