"""
Metrics that OpenTelemetry's semantic conventions have a name for, in version 1.44.

Listed is what means the same, in the same unit, and can have the attributes that the
convention requires. Requests are not: `http.server.request.duration` requires method
and scheme, which markers do not know. GPU errors are not: they have two scopes.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from jaxmon.catalog import accelerators, gpus, host, process
from jaxmon.catalog.model import Metric


VERSION = "1.44"

Instrument: TypeAlias = Literal["counter", "gauge", "updowncounter"]
Pairs: TypeAlias = tuple[tuple[str, str], ...]


class Convention(NamedTuple):
    """
    What a metric is called by convention.

    Attributes:
        name: of the convention.
        instrument: its instrument.
        unit: in UCUM.
        labels: attributes that our labels become; others keep their names.
        attributes: attributes that all of its series have.
        only: beginning of the first label's value of series that it is about; others
            keep our name.
    """

    name: str
    instrument: Instrument
    unit: str
    labels: Pairs = ()
    attributes: Pairs = ()
    only: str = ""


_UUID = (("uuid", "hw.id"),)
_GENERATION = (("generation", "cpython.gc.generation"),)
_GPU = (("hw.type", "gpu"),)
_OF_GPUS = "GPU-"
_SENT, _RECEIVED = ((("network.io.direction", one),) for one in ("transmit", "receive"))
_INTERFACE = (("interface", "network.interface.name"),)

CONVENTIONS: dict[Metric, Convention] = {
    process.PROCESS_CPU_SECONDS: Convention("process.cpu.time", "counter", "s"),
    process.PROCESS_RESIDENT_MEMORY_BYTES: Convention(
        "process.memory.usage", "updowncounter", "By"
    ),
    process.PROCESS_VIRTUAL_MEMORY_BYTES: Convention(
        "process.memory.virtual", "updowncounter", "By"
    ),
    process.PROCESS_OPEN_FDS: Convention(
        "process.unix.file_descriptor.count", "updowncounter", "{file_descriptor}"
    ),
    process.UPTIME_SECONDS: Convention("process.uptime", "gauge", "s"),
    process.PYTHON_GC_COLLECTIONS: Convention(
        "cpython.gc.collections", "counter", "{collection}", _GENERATION
    ),
    process.PYTHON_GC_OBJECTS_COLLECTED: Convention(
        "cpython.gc.collected_objects", "counter", "{object}", _GENERATION
    ),
    process.PYTHON_GC_OBJECTS_UNCOLLECTABLE: Convention(
        "cpython.gc.uncollectable_objects", "counter", "{object}", _GENERATION
    ),
    host.HOST_CPUS: Convention("system.cpu.logical.count", "updowncounter", "{cpu}"),
    host.HOST_MEMORY_SIZE_BYTES: Convention(
        "system.memory.limit", "updowncounter", "By"
    ),
    host.HOST_MEMORY_AVAILABLE_BYTES: Convention(
        "system.memory.linux.available", "updowncounter", "By"
    ),
    host.HOST_NETWORK_RECEIVE_BYTES: Convention(
        "system.network.io", "counter", "By", _INTERFACE, _RECEIVED
    ),
    host.HOST_NETWORK_TRANSMIT_BYTES: Convention(
        "system.network.io", "counter", "By", _INTERFACE, _SENT
    ),
    host.CONTAINER_MEMORY_USED_BYTES: Convention(
        "container.memory.usage", "updowncounter", "By"
    ),
    host.CONTAINER_MEMORY_WORKING_SET_BYTES: Convention(
        "container.memory.working_set", "updowncounter", "By"
    ),
    host.CONTAINER_CPU_SECONDS: Convention(
        "container.cpu.time", "counter", "s", (("mode", "cpu.mode"),)
    ),
    accelerators.ACCELERATOR_UTILIZATION_RATIO: Convention(
        "hw.gpu.utilization", "gauge", "1", _UUID, only=_OF_GPUS
    ),
    accelerators.ACCELERATOR_MEMORY_USED_BYTES: Convention(
        "hw.gpu.memory.usage", "updowncounter", "By", _UUID, only=_OF_GPUS
    ),
    accelerators.ACCELERATOR_MEMORY_SIZE_BYTES: Convention(
        "hw.gpu.memory.limit", "updowncounter", "By", _UUID, only=_OF_GPUS
    ),
    accelerators.ACCELERATOR_TEMPERATURE_CELSIUS: Convention(
        "hw.temperature",
        "gauge",
        "Cel",
        (*_UUID, ("sensor", "hw.sensor_location")),
        _GPU,
        _OF_GPUS,
    ),
    accelerators.ACCELERATOR_POWER_WATTS: Convention(
        "hw.power", "gauge", "W", _UUID, _GPU, _OF_GPUS
    ),
    accelerators.ACCELERATOR_ENERGY_JOULES: Convention(
        "hw.energy", "counter", "J", _UUID, _GPU, _OF_GPUS
    ),
    gpus.GPU_PCIE_TRANSMIT_BYTES: Convention(
        "hw.gpu.io", "counter", "By", _UUID, _SENT, _OF_GPUS
    ),
    gpus.GPU_PCIE_RECEIVE_BYTES: Convention(
        "hw.gpu.io", "counter", "By", _UUID, _RECEIVED, _OF_GPUS
    ),
}
"""By metric. Labels are declared with the metric, in `jaxmon.catalog`."""
