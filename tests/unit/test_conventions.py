"""Names by OpenTelemetry's semantic conventions: as published, and once each."""

import importlib
from typing import Any

import pytest
from opentelemetry.semconv import schemas

from jaxmon.catalog import BY_NAME
from jaxmon.catalog.agent import (
    PROCESS_CPU_SECONDS,
    PROCESS_RESIDENT_MEMORY_BYTES,
    PYTHON_GC_COLLECTIONS,
)
from jaxmon.catalog.conventions import CONVENTIONS, VERSION
from jaxmon.catalog.sidecar import ACCELERATOR_POWER_WATTS as POWER
from jaxmon.catalog.sidecar import GPU_PCIE_RECEIVE_BYTES, GPU_PCIE_TRANSMIT_BYTES
from jaxmon.exposition.families import Family, gauge, series
from tests.unit.test_otlp_points import SECOND, converter, pushed


GROUPS = ("hw", "process", "system", "container", "cpython")


class Published:
    """Stands for a meter, and notes the instruments that are made of it."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, str]] = {}

    def __getattr__(self, name: str) -> Any:
        kind = name.removeprefix("create_").removeprefix("observable_")

        def make(name: str, unit: str = "", **_: Any) -> None:
            self.found[name] = kind.replace("up_down_", "updown"), unit

        return make


@pytest.fixture(scope="module")
def published() -> dict[str, tuple[str, str]]:
    """Return instrument and unit of each published metric by name."""
    meter = Published()
    for group in GROUPS:
        of = f"opentelemetry.semconv._incubating.metrics.{group}_metrics"
        module = importlib.import_module(of)
        for name, create in vars(module).items():
            if name.startswith("create_"):
                wanted = create.__code__.co_argcount
                create(*(meter, None)[:wanted])
    return meter.found


@pytest.mark.parametrize("metric", CONVENTIONS, ids=lambda one: one.name)
def test_each_name_is_published(metric, published):
    """Name, instrument and unit are those of the conventions, labels ours."""
    convention = CONVENTIONS[metric]
    assert published[convention.name] == (convention.instrument, convention.unit)
    assert BY_NAME[metric.name] is metric
    assert {label for label, _ in convention.labels} <= set(metric.labels)
    assert (metric.kind == "counter") == (convention.instrument == "counter")


def test_each_attribute_is_published() -> None:
    """Attributes are those of the conventions, too."""
    known = set()
    for group in (*GROUPS, "cpu", "network"):
        of = f"opentelemetry.semconv._incubating.attributes.{group}_attributes"
        known |= {
            value
            for value in vars(importlib.import_module(of)).values()
            if isinstance(value, str)
        }
    used = {
        name
        for one in CONVENTIONS.values()
        for name in (*dict(one.labels).values(), *dict(one.attributes))
    }
    assert used - known == set()


def test_the_version_is_that_of_the_package() -> None:
    """The stated version has a schema in the installed package."""
    assert f"V{VERSION.replace('.', '_')}_0" in {one.name for one in schemas.Schemas}


def test_metrics_are_renamed_and_none_is_sent_twice() -> None:
    """Name, kind, unit and attributes change, values do not; two directions are one."""
    families = [
        gauge(PROCESS_CPU_SECONDS, 2.5),
        gauge(PROCESS_RESIDENT_MEMORY_BYTES, 1000),
        gauge(PYTHON_GC_COLLECTIONS, 7, "2"),
        Family(POWER, [(series(POWER, "GPU-1"), 300.0), (series(POWER, "TPU-1"), 90)]),
        gauge(GPU_PCIE_TRANSMIT_BYTES, 5, "GPU-1"),
        gauge(GPU_PCIE_RECEIVE_BYTES, 6, "GPU-1"),
    ]
    found = pushed(converter(names="semantic"), families).metrics()
    assert set(found) == {
        "process.cpu.time",
        "process.memory.usage",
        "cpython.gc.collections",
        "hw.power",
        POWER.name,
        "hw.gpu.io",
    }
    assert found["process.cpu.time"].sum.is_monotonic
    usage = found["process.memory.usage"]
    assert (usage.unit, usage.sum.is_monotonic) == ("By", False)
    (point,) = usage.sum.data_points
    assert (point.as_int, point.start_time_unix_nano) == (1000, 100 * SECOND)
    (generation,) = found["cpython.gc.collections"].sum.data_points[0].attributes
    assert (generation.key, generation.value.int_value) == ("cpython.gc.generation", 2)
    (power,) = found["hw.power"].gauge.data_points
    attributes = {one.key: one.value.string_value for one in power.attributes}
    assert attributes == {"hw.id": "GPU-1", "hw.type": "gpu"}
    assert power.as_double == 300.0
    (other,) = found[POWER.name].gauge.data_points
    assert other.attributes[0].value.string_value == "TPU-1"
    directions = {
        one.value.string_value: point.as_int
        for point in found["hw.gpu.io"].sum.data_points
        for one in point.attributes
        if one.key == "network.io.direction"
    }
    assert directions == {"transmit": 5, "receive": 6}
