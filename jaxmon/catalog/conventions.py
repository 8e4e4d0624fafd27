"""
Metrics that OpenTelemetry's semantic conventions have a name for, in version 1.44.

Listed is what means the same, in the same unit, and can have the attributes that the
convention requires. Requests are not: `http.server.request.duration` requires method
and scheme, which markers do not know. GPU errors are not: they have two scopes.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from jaxmon.catalog import accelerators, gpus, host, process
from jaxmon.catalog.model import Metric


VERSION = "1.44"

Instrument: TypeAlias = Literal["counter", "gauge", "updowncounter"]
Pairs: TypeAlias = tuple[tuple[str, str], ...]


class Convention(NamedTuple):
    """
    What a metric is called by convention, with the unit in UCUM: attributes that our
    labels become, and those that all series have. It is about series whose first
    label's value begins with *only*; others keep our name.
    """

    instrument: Instrument
    name: str
    unit: str
    labels: Pairs = ()
    attributes: Pairs = ()
    only: str = ""


_amount = partial(Convention, "updowncounter")
_count = partial(Convention, "counter")
_gauge = partial(Convention, "gauge")

_UUID = (("uuid", "hw.id"),)
_GENERATION = (("generation", "cpython.gc.generation"),)
_GPU = (("hw.type", "gpu"),)
_OF_GPUS = "GPU-"
_SENT, _RECEIVED = (
    (("network.io.direction", direction),) for direction in ("transmit", "receive")
)
_INTERFACE = (("interface", "network.interface.name"),)

CONVENTIONS: dict[Metric, Convention] = {
    process.PROCESS_CPU_SECONDS: _count("process.cpu.time", "s"),
    process.PROCESS_RESIDENT_MEMORY_BYTES: _amount("process.memory.usage", "By"),
    process.PROCESS_VIRTUAL_MEMORY_BYTES: _amount("process.memory.virtual", "By"),
    process.PROCESS_OPEN_FDS: _amount(
        "process.unix.file_descriptor.count", "{file_descriptor}"
    ),
    process.UPTIME_SECONDS: _gauge("process.uptime", "s"),
    process.PYTHON_GC_COLLECTIONS: _count(
        "cpython.gc.collections", "{collection}", _GENERATION
    ),
    process.PYTHON_GC_OBJECTS_COLLECTED: _count(
        "cpython.gc.collected_objects", "{object}", _GENERATION
    ),
    process.PYTHON_GC_OBJECTS_UNCOLLECTABLE: _count(
        "cpython.gc.uncollectable_objects", "{object}", _GENERATION
    ),
    host.HOST_CPUS: _amount("system.cpu.logical.count", "{cpu}"),
    host.HOST_MEMORY_SIZE_BYTES: _amount("system.memory.limit", "By"),
    host.HOST_MEMORY_AVAILABLE_BYTES: _amount("system.memory.linux.available", "By"),
    host.HOST_NETWORK_RECEIVE_BYTES: _count(
        "system.network.io", "By", _INTERFACE, _RECEIVED
    ),
    host.HOST_NETWORK_TRANSMIT_BYTES: _count(
        "system.network.io", "By", _INTERFACE, _SENT
    ),
    host.CONTAINER_MEMORY_USED_BYTES: _amount("container.memory.usage", "By"),
    host.CONTAINER_MEMORY_WORKING_SET_BYTES: _amount(
        "container.memory.working_set", "By"
    ),
    host.CONTAINER_CPU_SECONDS: _count(
        "container.cpu.time", "s", (("mode", "cpu.mode"),)
    ),
    accelerators.ACCELERATOR_UTILIZATION_RATIO: _gauge(
        "hw.gpu.utilization", "1", _UUID, only=_OF_GPUS
    ),
    accelerators.ACCELERATOR_MEMORY_USED_BYTES: _amount(
        "hw.gpu.memory.usage", "By", _UUID, only=_OF_GPUS
    ),
    accelerators.ACCELERATOR_MEMORY_SIZE_BYTES: _amount(
        "hw.gpu.memory.limit", "By", _UUID, only=_OF_GPUS
    ),
    accelerators.ACCELERATOR_TEMPERATURE_CELSIUS: _gauge(
        "hw.temperature",
        "Cel",
        (*_UUID, ("sensor", "hw.sensor_location")),
        _GPU,
        _OF_GPUS,
    ),
    accelerators.ACCELERATOR_POWER_WATTS: _gauge(
        "hw.power", "W", _UUID, _GPU, _OF_GPUS
    ),
    accelerators.ACCELERATOR_ENERGY_JOULES: _count(
        "hw.energy", "J", _UUID, _GPU, _OF_GPUS
    ),
    gpus.GPU_PCIE_TRANSMIT_BYTES: _count("hw.gpu.io", "By", _UUID, _SENT, _OF_GPUS),
    gpus.GPU_PCIE_RECEIVE_BYTES: _count("hw.gpu.io", "By", _UUID, _RECEIVED, _OF_GPUS),
}
"""By metric. Labels are declared with the metric, in `jaxmon.catalog`."""
