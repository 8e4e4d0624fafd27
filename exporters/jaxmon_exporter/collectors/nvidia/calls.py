"""
Metrics read through dedicated NVML functions, or as field values, all in one call per
device; and the session with the driver.

A new metric is a new row of `CALLS` or `FIELDS`. If two rows provide the same value,
the first that a device supports is kept; the other is for older or newer drivers.
"""

from __future__ import annotations

from collections import Counter
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


def read(nvml: Nvml, device: NvmlDevice, failures: Counter[str]) -> list[Reading]:
    """Return the results of all calls of *device* that are due; as `on_failure`."""
    found: list[Reading] = []
    for call in CALLS if device.thorough else _LIVELY:
        if not device.is_due(call):
            continue
        try:
            values = call.query(nvml, device.handle)
        except nvml.NVMLError as error:
            device.on_failure(call, error, failures)
        except AttributeError:
            # An older pynvml does not know the function.
            unknown = nvml.NVMLError(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            device.on_failure(call, unknown, failures)
        else:
            answers = zip(call.figures, values, strict=True)
            device.take(call, answers, device.steady if call.steady else found)
    return found


_USED = Figure(catalog.ACCELERATOR_MEMORY_USED_BYTES)
_SIZE = Figure(catalog.ACCELERATOR_MEMORY_SIZE_BYTES)
_FREE = Figure(catalog.ACCELERATOR_MEMORY_FREE_BYTES)
_RESERVED = Figure(catalog.ACCELERATOR_MEMORY_RESERVED_BYTES)
_HEAT = Figure(catalog.ACCELERATOR_TEMPERATURE_CELSIUS, ("gpu",))
_EVENTS = tuple(
    Figure(catalog.GPU_CLOCK_EVENT_ACTIVE, (name,)) for name in catalog.CLOCK_EVENTS
)


def _call(query: Callable[[Nvml, Handle], Values], *figures: Figure) -> NvmlCall:
    return NvmlCall(query, figures)


def _steady(query: Callable[[Nvml, Handle], Values], *figures: Figure) -> NvmlCall:
    return NvmlCall(query, figures, steady=True)


def _utilization(nvml: Nvml, gpu: Handle) -> Values:
    rates = nvml.nvmlDeviceGetUtilizationRates(gpu)
    return rates.gpu / 100, rates.memory / 100


def _memory(nvml: Nvml, gpu: Handle) -> Values:
    # Version 2 keeps what the driver reserves out of "used".
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
    return memory.used, memory.total, memory.free, memory.reserved


def _memory_v1(nvml: Nvml, gpu: Handle) -> Values:
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
    return memory.used, memory.total, memory.free


def _bar1(nvml: Nvml, gpu: Handle) -> Values:
    bar1 = nvml.nvmlDeviceGetBAR1MemoryInfo(gpu)
    return bar1.bar1Used, bar1.bar1Total


def _performance_state(nvml: Nvml, gpu: Handle) -> Values:
    state = nvml.nvmlDeviceGetPerformanceState(gpu)
    return (state if state <= _SLOWEST_STATE else None,)


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
    features = found.gridLicensableFeatures[: found.licensableFeaturesCount]
    of_vgpus = nvml.NVML_GRID_LICENSE_FEATURE_CODE_VGPU
    states = [
        feature.featureState > 0
        for feature in features
        if feature.featureCode == of_vgpus
    ]
    return (states[0] if states else None,)


def _in_thousandths(metric: catalog.Metric, function: str) -> NvmlCall:
    def query(nvml: Nvml, gpu: Handle) -> Values:
        return (getattr(nvml, function)(gpu) / 1e3,)

    return _call(query, Figure(metric))


def _temperature(function: str) -> NvmlCall:
    def query(nvml: Nvml, gpu: Handle) -> Values:
        return (getattr(nvml, function)(gpu, nvml.NVML_TEMPERATURE_GPU),)

    return _call(query, _HEAT)


def _link(metric: catalog.Metric, what: str) -> NvmlCall:
    def query(nvml: Nvml, gpu: Handle) -> Values:
        return [
            getattr(nvml, f"nvmlDeviceGet{kind}PcieLink{what}")(gpu)
            for kind in ("Curr", "Max")
        ]

    return _steady(query, *(Figure(metric, (kind,)) for kind in catalog.LINK_KINDS))


def _clock(name: str, number: int) -> NvmlCall:
    def query(nvml: Nvml, gpu: Handle) -> Values:
        return (nvml.nvmlDeviceGetClockInfo(gpu, number) * _MEGA,)

    return _call(query, Figure(catalog.ACCELERATOR_CLOCK_HERTZ, (name,)))


def _engine(name: str, function: str) -> NvmlCall:
    def query(nvml: Nvml, gpu: Handle) -> Values:
        return (getattr(nvml, function)(gpu)[0] / 100,)

    return _call(query, Figure(catalog.GPU_ENGINE_UTILIZATION_RATIO, (name,)))


def _clock_events(function: str) -> NvmlCall:
    def query(nvml: Nvml, gpu: Handle) -> Values:
        mask = getattr(nvml, function)(gpu)
        return [float(mask >> bit & 1) for bit in range(len(_EVENTS))]

    return _call(query, *_EVENTS)


CALLS = (
    _call(
        _utilization,
        Figure(catalog.ACCELERATOR_UTILIZATION_RATIO),
        Figure(catalog.GPU_MEMORY_CONTROLLER_UTILIZATION_RATIO),
    ),
    _engine("encoder", "nvmlDeviceGetEncoderUtilization"),
    _engine("decoder", "nvmlDeviceGetDecoderUtilization"),
    _engine("jpeg", "nvmlDeviceGetJpgUtilization"),
    _engine("ofa", "nvmlDeviceGetOfaUtilization"),
    _call(_memory, _USED, _SIZE, _FREE, _RESERVED),
    _call(_memory_v1, _USED, _SIZE, _FREE),
    _call(
        _bar1, Figure(catalog.GPU_BAR1_USED_BYTES), Figure(catalog.GPU_BAR1_SIZE_BYTES)
    ),
    _temperature("nvmlDeviceGetTemperature"),
    _temperature("nvmlDeviceGetTemperatureV"),
    _call(
        lambda nvml, gpu: (nvml.nvmlDeviceGetMarginTemperature(gpu),),
        Figure(catalog.ACCELERATOR_TEMPERATURE_MARGIN_CELSIUS),
    ),
    _in_thousandths(catalog.ACCELERATOR_POWER_WATTS, "nvmlDeviceGetPowerUsage"),
    _in_thousandths(
        catalog.ACCELERATOR_POWER_LIMIT_WATTS, "nvmlDeviceGetEnforcedPowerLimit"
    ),
    _in_thousandths(
        catalog.ACCELERATOR_ENERGY_JOULES, "nvmlDeviceGetTotalEnergyConsumption"
    ),
    *(_clock(name, number) for number, name in enumerate(catalog.CLOCKS)),
    _clock_events("nvmlDeviceGetCurrentClocksEventReasons"),
    _clock_events("nvmlDeviceGetCurrentClocksThrottleReasons"),
    _call(_performance_state, Figure(catalog.GPU_PERFORMANCE_STATE)),
    _steady(
        lambda nvml, gpu: (nvml.nvmlDeviceGetPersistenceMode(gpu),),
        Figure(catalog.GPU_PERSISTENCE_MODE),
    ),
    _steady(_license, Figure(catalog.GPU_VGPU_LICENSED)),
    _link(catalog.GPU_PCIE_LINK_GENERATION, "Generation"),
    _link(catalog.GPU_PCIE_LINK_WIDTH, "Width"),
    _steady(
        _sram,
        Figure(catalog.GPU_SRAM_ECC_ERRORS, ("corrected", "volatile")),
        Figure(catalog.GPU_SRAM_ECC_ERRORS, ("uncorrected", "volatile")),
        Figure(catalog.GPU_SRAM_ECC_ERRORS, ("corrected", "aggregate")),
        Figure(catalog.GPU_SRAM_ECC_ERRORS, ("uncorrected", "aggregate")),
        Figure(catalog.GPU_SRAM_ECC_THRESHOLD_EXCEEDED),
    ),
    _steady(_fabric, Figure(catalog.GPU_FABRIC_STATE)),
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


def read_fields(
    nvml: Nvml, device: NvmlDevice, failures: Counter[str]
) -> list[Reading]:
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
        device.on_failure(read_fields, error, failures)
        return found
    for field, result in zip(due, results, strict=True):
        if code := result.nvmlReturn:
            # The argument is the number: an older driver does not know it.
            unknown = code == INVALID_ARGUMENT
            failed = nvml.NVMLError(code)
            device.on_failure(field, failed, failures, unsupported=unknown)
        else:
            into = device.steady if field.steady else found
            device.take(field, ((field.figure, field.value(result)),), into)
    return found


def _steady_fields(metric: Metric, scope: int = 0, **numbers: int) -> Iterator[Field]:
    for label, number in numbers.items():
        yield Field(number, Figure(metric, (label,)), scope=scope, steady=True)


def _throttle(reason: str, number: int) -> Field:
    return Field(number, Figure(catalog.GPU_THROTTLE_SECONDS, (reason,)), 1e9)


def _ecc(severity: str, scope: str, number: int) -> Field:
    return Field(number, Figure(catalog.GPU_ECC_ERRORS, (severity, scope)), steady=True)


def _links(number: int, figure: Figure, divisor: float = 1) -> Field:
    return Field(number, figure, divisor, _ALL_LINKS)


_SENT = Figure(catalog.GPU_NVLINK_TRANSMIT_BYTES)
_RECEIVED = Figure(catalog.GPU_NVLINK_RECEIVE_BYTES)

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
    _ecc("corrected", "volatile", 3),
    _ecc("uncorrected", "volatile", 4),
    _ecc("corrected", "aggregate", 5),
    _ecc("uncorrected", "aggregate", 6),
    *_steady_fields(catalog.GPU_REMAPPED_ROWS, corrected=142, uncorrected=143),
    Field(144, Figure(catalog.GPU_ROW_REMAP_PENDING), steady=True),
    Field(145, Figure(catalog.GPU_ROW_REMAP_FAILURE), steady=True),
    *_steady_fields(catalog.GPU_RETIRED_PAGES, corrected=29, uncorrected=30),
    Field(31, Figure(catalog.GPU_RETIRED_PAGES_PENDING), steady=True),
    *map(_throttle, catalog.THROTTLE_REASONS, (*range(74, 80), 269, 270, 271)),
    Field(197, Figure(catalog.GPU_PCIE_TRANSMIT_BYTES)),
    Field(198, Figure(catalog.GPU_PCIE_RECEIVE_BYTES)),
    Field(94, Figure(catalog.GPU_PCIE_REPLAYS), steady=True),
    *_steady_fields(catalog.GPU_PCIE_ERRORS, correctable=173, non_fatal=179, fatal=180),
    _links(202, _SENT),
    _links(204, _RECEIVED),
    # Before Blackwell, in KiB.
    _links(138, _SENT, 1 / 1024),
    _links(139, _RECEIVED, 1 / 1024),
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
