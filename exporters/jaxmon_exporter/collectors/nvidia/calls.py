"""
Metrics read through dedicated NVML functions, or as field values, all in one call per
device; and the session with the driver.

A new metric is a new row of `CALLS` or `FIELDS`. If two rows provide the same value,
the first that a device supports is kept; the other is for older or newer drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from ctypes import byref
from dataclasses import dataclass
from typing import Any

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon_exporter.collectors.nvidia import NO_DRIVER, driver_is_here
from jaxmon_exporter.collectors.nvidia.device import (
    DRIVER,
    INVALID_ARGUMENT,
    Figure,
    Handle,
    Nvml,
    NvmlDevice,
    Reading,
)
from jaxmon_exporter.polling import CollectorUnavailable


DRIVER_MISMATCH = "driver_mismatch"
INIT_FAILED = "init_failed"
_ADVICE = {
    NO_DRIVER[0]: NO_DRIVER[1],
    "driver_not_loaded": "the NVIDIA kernel driver is not loaded",
    DRIVER_MISMATCH: (
        "the driver was upgraded under this process; restart the exporter or, if that "
        "does not help, load the new kernel module, as a reboot does"
    ),
    INIT_FAILED: (
        "NVML initialisation failed; if the container lost its devices, recreate it"
    ),
}


class NvmlSession:
    """A use of NVML by a *collector*; `nvml` is pynvml while it is initialised."""

    def __init__(self, collector: str) -> None:
        self.nvml: Nvml = None
        self._collector = collector

    def open(self) -> Nvml:
        """Return NVML, initialised if it was not, or raise `CollectorUnavailable`."""
        if self.nvml is not None:
            return self.nvml
        if not driver_is_here():
            raise CollectorUnavailable(*NO_DRIVER)
        try:
            import pynvml  # noqa: PLC0415 - 3 MB, and most hosts need none of it
        except ModuleNotFoundError as error:
            if error.name != "pynvml":  # there, and broken
                raise
            message = (
                "the nvidia-ml-py package is missing; install it with pip install "
                f"'jaxmon[nvidia]', or use --disable {self._collector}"
            )
            reason = "not_installed"
            raise CollectorUnavailable(reason, message) from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise unavailable(error, INIT_FAILED) from error
        self.nvml = pynvml
        return pynvml

    def close(self) -> None:
        """Shut NVML down if it is initialised; the next `open` initialises it again."""
        nvml, self.nvml = self.nvml, None
        if nvml is not None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()


def unavailable(error: Any, otherwise: str = "driver_error") -> CollectorUnavailable:
    """Return the driver failure that an NVML error means, else *otherwise*."""
    reason = DRIVER.get(error.value, otherwise)
    advice = _ADVICE.get(reason, "NVML will be re-initialised")
    return CollectorUnavailable(reason, f"{error}: {advice}")


Values = Sequence[float | None]

_MEGA = 1e6
_SLOWEST_STATE = 15
# NVML's states end with "completed", and a separate status has the result.
_FABRIC_FAILED = 4


@dataclass(slots=True, eq=False, repr=False)
class NvmlCall:
    """One NVML call that returns a value for each of *figures*, `None` for none."""

    query: Callable[[Nvml, Handle], Values]
    figures: tuple[Figure, ...]
    steady: bool = False


def read(nvml: Nvml, device: NvmlDevice) -> list[Reading]:
    """Return the results of all calls of *device* that are due; as `on_failure`."""
    found: list[Reading] = []
    for call in CALLS if device.thorough else _LIVELY:
        if not device.is_due(call):
            continue
        try:
            values = call.query(nvml, device.handle)
        except nvml.NVMLError as error:
            device.on_failure(call, error)
        except AttributeError:
            # An older pynvml does not know the function.
            unknown = nvml.NVMLError(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            device.on_failure(call, unknown)
        else:
            answers = zip(call.figures, values, strict=True)
            device.take(call, answers, device.steady if call.steady else found)
    return found


def _call(
    name: str,
    *figures: Figure,
    of: Callable[[Any], Values] = lambda value: (value,),
    argument: str | int | None = None,
    steady: bool = False,
) -> NvmlCall:
    """
    Return a call of ``nvmlDeviceGet…`` with *argument*, which may be the name of one of
    NVML's constants; *of* makes values of its result.
    """

    def query(nvml: Nvml, gpu: Handle) -> Values:
        function, given = getattr(nvml, f"nvmlDeviceGet{name}"), argument
        if isinstance(given, str):
            given = getattr(nvml, given)
        return of(function(gpu) if given is None else function(gpu, given))

    return NvmlCall(query, figures, steady)


def _sram(nvml: Nvml, gpu: Handle) -> Values:
    sram = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(gpu, byref(sram))
    return (
        sram.volatileCor,
        sram.volatileUncParity + sram.volatileUncSecDed,
        sram.aggregateCor,
        sram.aggregateUncParity + sram.aggregateUncSecDed,
        sram.bThresholdExceeded,
    )


def _fabric(nvml: Nvml, gpu: Handle) -> Values:
    fabric = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(gpu, byref(fabric))
    if fabric.state == nvml.NVML_GPU_FABRIC_STATE_COMPLETED and fabric.status:
        return (_FABRIC_FAILED,)
    # 0: this GPU belongs to no fabric.
    return (fabric.state or None,)


def _license(nvml: Nvml, gpu: Handle) -> Values:
    found = nvml.nvmlDeviceGetGridLicensableFeatures_v4(gpu)
    if not found.isGridLicenseSupported:
        # No virtual GPU, and it will not become one.
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    for feature in found.gridLicensableFeatures[: found.licensableFeaturesCount]:
        if feature.featureCode == nvml.NVML_GRID_LICENSE_FEATURE_CODE_VGPU:
            return (feature.featureState > 0,)
    return (None,)


_USED = Figure(catalog.ACCELERATOR_MEMORY_USED_BYTES)
_SIZE = Figure(catalog.ACCELERATOR_MEMORY_SIZE_BYTES)
_FREE = Figure(catalog.ACCELERATOR_MEMORY_FREE_BYTES)
_RESERVED = Figure(catalog.ACCELERATOR_MEMORY_RESERVED_BYTES)
_HEAT = Figure(catalog.ACCELERATOR_TEMPERATURE_CELSIUS, ("gpu",))
_EVENTS = tuple(
    Figure(catalog.GPU_CLOCK_EVENT_ACTIVE, (name,)) for name in catalog.CLOCK_EVENTS
)
_ENGINES = {"encoder": "Encoder", "decoder": "Decoder", "jpeg": "Jpg", "ofa": "Ofa"}
_IN_THOUSANDTHS = {
    catalog.ACCELERATOR_POWER_WATTS: "PowerUsage",
    catalog.ACCELERATOR_POWER_LIMIT_WATTS: "EnforcedPowerLimit",
    catalog.ACCELERATOR_ENERGY_JOULES: "TotalEnergyConsumption",
}
_LINKS = {
    catalog.GPU_PCIE_LINK_GENERATION: "Generation",
    catalog.GPU_PCIE_LINK_WIDTH: "Width",
}
# In the order of NVML's numbers.
_ECC = [
    (severity, scope)
    for scope in ("volatile", "aggregate")
    for severity in ("corrected", "uncorrected")
]
_SRAM_FIGURES = (
    *(Figure(catalog.GPU_SRAM_ECC_ERRORS, labels) for labels in _ECC),
    Figure(catalog.GPU_SRAM_ECC_THRESHOLD_EXCEEDED),
)

CALLS = (
    _call(
        "UtilizationRates",
        Figure(catalog.ACCELERATOR_UTILIZATION_RATIO),
        Figure(catalog.GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO),
        of=lambda rates: (rates.gpu / 100, rates.memory / 100),
    ),
    *(
        _call(
            f"{name}Utilization",
            Figure(catalog.GPU_ENGINE_UTILIZATION_RATIO, (engine,)),
            of=lambda found: (found[0] / 100,),
        )
        for engine, name in _ENGINES.items()
    ),
    # Version 2 keeps what the driver reserves out of "used".
    _call(
        *("MemoryInfo", _USED, _SIZE, _FREE, _RESERVED),
        of=lambda memory: (memory.used, memory.total, memory.free, memory.reserved),
        argument="nvmlMemory_v2",
    ),
    _call(
        *("MemoryInfo", _USED, _SIZE, _FREE),
        of=lambda memory: (memory.used, memory.total, memory.free),
    ),
    _call(
        "BAR1MemoryInfo",
        Figure(catalog.GPU_BAR1_USED_BYTES),
        Figure(catalog.GPU_BAR1_SIZE_BYTES),
        of=lambda bar1: (bar1.bar1Used, bar1.bar1Total),
    ),
    _call("Temperature", _HEAT, argument="NVML_TEMPERATURE_GPU"),
    _call("TemperatureV", _HEAT, argument="NVML_TEMPERATURE_GPU"),
    _call("MarginTemperature", Figure(catalog.ACCELERATOR_TEMPERATURE_MARGIN_CELSIUS)),
    *(
        _call(name, Figure(metric), of=lambda value: (value / 1e3,))
        for metric, name in _IN_THOUSANDTHS.items()
    ),
    *(
        _call(
            "ClockInfo",
            Figure(catalog.ACCELERATOR_CLOCK_HERTZ, (name,)),
            of=lambda megahertz: (megahertz * _MEGA,),
            argument=number,
        )
        for number, name in enumerate(catalog.CLOCKS)
    ),
    *(
        _call(
            f"CurrentClocks{name}Reasons",
            *_EVENTS,
            of=lambda mask: [float(mask >> bit & 1) for bit in range(len(_EVENTS))],
        )
        for name in ("Event", "Throttle")
    ),
    _call(
        "PerformanceState",
        Figure(catalog.GPU_PERFORMANCE_STATE),
        of=lambda state: (state if state <= _SLOWEST_STATE else None,),
    ),
    _call("PersistenceMode", Figure(catalog.GPU_PERSISTENCE_MODE), steady=True),
    NvmlCall(_license, (Figure(catalog.GPU_VGPU_LICENSED),), steady=True),
    *(
        _call(f"{name}PcieLink{what}", Figure(metric, (kind,)), steady=True)
        for metric, what in _LINKS.items()
        for name, kind in zip(("Curr", "Max"), catalog.LINK_KINDS, strict=True)
    ),
    NvmlCall(_sram, _SRAM_FIGURES, steady=True),
    NvmlCall(_fabric, (Figure(catalog.GPU_FABRIC_STATE),), steady=True),
)
_LIVELY = tuple(call for call in CALLS if not call.steady)


# In the order of NVML's value types.
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
# Drivers' values for "not available".
_NOTHING = {0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF}
_ALL_LINKS = 0xFFFFFFFF
_HOTTEST = 200


@dataclass(slots=True, eq=False, repr=False)
class Field:
    """A field value with NVML's ID; above *highest*, and 0, it is invalid."""

    number: int
    figure: Figure
    divisor: float = 1
    scope: int = 0
    member: str = ""
    highest: float = 0
    steady: bool = False

    def value(self, result: Any) -> float | None:
        """Return the value in the unit of the metric, `None` if there is none."""
        kind = result.valueType
        if not self.member and not 0 <= kind < len(_MEMBERS):
            return None
        raw: float = getattr(result.value, self.member or _MEMBERS[kind])
        # No value here is ever negative; the comparison also rejects NaN.
        if raw in _NOTHING or not raw >= 0:
            return None
        if self.highest and not 0 < raw <= self.highest:
            return None
        return raw if self.divisor == 1 else raw / self.divisor


def read_fields(nvml: Nvml, device: NvmlDevice) -> list[Reading]:
    """Return the values of all fields of *device* that are due, likewise."""
    fields = FIELDS if device.thorough else _LIVELY_FIELDS
    due = [field for field in fields if device.is_due(field)]
    found: list[Reading] = []
    if not due or not device.is_due(read_fields):
        return found
    try:
        results = nvml.nvmlDeviceGetFieldValues(
            device.handle, [(field.number, field.scope) for field in due]
        )
    except nvml.NVMLError as error:
        device.on_failure(read_fields, error)
        return found
    for field, result in zip(due, results, strict=True):
        if code := result.nvmlReturn:
            # The argument is the number: an older driver does not know it.
            unknown = code == INVALID_ARGUMENT
            device.on_failure(field, nvml.NVMLError(code), unsupported=unknown)
        else:
            into = device.steady if field.steady else found
            device.take(field, ((field.figure, field.value(result)),), into)
    return found


def _steady_fields(metric: Metric, scope: int = 0, **numbers: int) -> Iterator[Field]:
    for label, number in numbers.items():
        yield Field(number, Figure(metric, (label,)), scope=scope, steady=True)


_SENT = Figure(catalog.GPU_NVLINK_TRANSMIT_BYTES)
_RECEIVED = Figure(catalog.GPU_NVLINK_RECEIVE_BYTES)
_THROTTLED = (*range(74, 80), 269, 270, 271)

FIELDS = (
    # Some drivers announce the wrong type, and give nonsense for no sensor.
    Field(
        82,
        Figure(catalog.ACCELERATOR_TEMPERATURE_CELSIUS, ("memory",)),
        member="uiVal",
        highest=_HOTTEST,
    ),
    Field(186, Figure(catalog.GPU_POWER_INSTANT_WATTS), 1e3),
    Field(185, Figure(catalog.GPU_POWER_AVERAGE_WATTS), 1e3),
    *(
        Field(number, Figure(catalog.GPU_ECC_ERRORS, labels), steady=True)
        for number, labels in enumerate(_ECC, 3)
    ),
    *_steady_fields(catalog.GPU_REMAPPED_ROWS, corrected=142, uncorrected=143),
    Field(144, Figure(catalog.GPU_ROW_REMAP_PENDING), steady=True),
    Field(145, Figure(catalog.GPU_ROW_REMAP_FAILURE), steady=True),
    *_steady_fields(catalog.GPU_RETIRED_PAGES, corrected=29, uncorrected=30),
    Field(31, Figure(catalog.GPU_RETIRED_PAGES_PENDING), steady=True),
    *(
        Field(number, Figure(catalog.GPU_THROTTLE_SECONDS, (reason,)), 1e9)
        for reason, number in zip(catalog.THROTTLE_REASONS, _THROTTLED, strict=True)
    ),
    Field(197, Figure(catalog.GPU_PCIE_TRANSMIT_BYTES)),
    Field(198, Figure(catalog.GPU_PCIE_RECEIVE_BYTES)),
    Field(94, Figure(catalog.GPU_PCIE_REPLAYS), steady=True),
    *_steady_fields(catalog.GPU_PCIE_ERRORS, correctable=173, non_fatal=179, fatal=180),
    Field(202, _SENT, scope=_ALL_LINKS),
    Field(204, _RECEIVED, scope=_ALL_LINKS),
    # Before Blackwell, in KiB.
    Field(138, _SENT, 1 / 1024, _ALL_LINKS),
    Field(139, _RECEIVED, 1 / 1024, _ALL_LINKS),
    *_steady_fields(
        catalog.GPU_NVLINK_ERRORS,
        crc_flit=38,
        crc_data=45,
        replay=52,
        recovery=59,
        ecc_data=160,
    ),
    *_steady_fields(
        catalog.GPU_NVLINK_ERRORS,
        _ALL_LINKS,
        malformed_packet=206,
        buffer_overrun=207,
        receive=208,
        receive_remote=209,
        link_integrity=211,
        transmit_discard=212,
        recovery_failed=214,
        effective=219,
        symbol=221,
    ),
    Field(230, Figure(catalog.GPU_RECOVERY_ACTION)),
)
_LIVELY_FIELDS = tuple(field for field in FIELDS if not field.steady)
