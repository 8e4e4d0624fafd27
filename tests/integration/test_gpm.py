"""The GPM collector behind the real pynvml, with a C library in the driver's place."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.nvml.gpus import Gpus, failures, fake_gpus
from tests.fakes.nvml.gpus import of as all_of


pytest.importorskip("pynvml")

MIB = 1 << 20
TENSOR = "jaxmon_gpu_tensor_active_ratio"
# The second device of a GPU is its instance 7.
PART = "MIG-7a3e5c10-1a2b-3c4d-5e6f-{:06d}{:06d}"


@pytest.fixture
def gpm(nvml_library: Path, tmp_path: Path) -> Iterator[Callable[..., Gpus]]:
    """Return a function that starts the GPM collector on a number of fake devices."""
    with fake_gpus(nvml_library, tmp_path, collector="gpm.Gpm()") as start:
        yield start


@pytest.fixture
def gpm_with_rates(nvml_library: Path, tmp_path: Path) -> Iterator[Callable[..., Gpus]]:
    """Return the same for a collector that exports rates next to counters."""
    collector = "gpm.Gpm(all_rates=True)"
    with fake_gpus(nvml_library, tmp_path, collector=collector) as start:
        yield start


def of(page: dict[str, float], device: int) -> dict[str, float]:
    """Return the ratios of one device."""
    return {k: v for k, v in all_of(page, device).items() if k.endswith("_ratio")}


def rates(page: dict[str, float], device: int) -> dict[str, float]:
    """Return the other figures of one device."""
    return {k: v for k, v in all_of(page, device).items() if not k.endswith("_ratio")}


def ratios(device: int) -> dict[str, float]:
    """Return what the fake driver says that a device is busy with."""
    numbers = {
        "graphics": 1,
        "sm": 2,
        "tensor": 5,
        "dram": 10,
        "fp64": 11,
        "fp32": 12,
        "fp16": 13,
        "integer": 4,
    }
    found = {
        f"jaxmon_gpu_{name}_active_ratio": (number + device + 0.5) / 100
        for name, number in numbers.items()
    }
    return {**found, "jaxmon_gpu_sm_occupancy_ratio": (3 + device + 0.5) / 100}


def test_first_poll_has_nothing_to_compare(gpm: Callable[..., Gpus]) -> None:
    """A figure is the mean between two polls: after one there is none, and no error."""
    state = gpm(2).poll()
    assert (state["success"], state["page"]) == (True, {})


def test_every_figure_is_a_ratio_of_the_drivers_percent(gpm):
    """From the second poll on all nine figures of each device are there, exactly."""
    fleet = gpm(8)
    fleet.poll()
    for _ in range(3):
        page = fleet.poll()["page"]
        for device in (0, 7):
            assert of(page, device) == ratios(device)
        assert failures(page) == {}


def test_rates_are_bytes_per_second(gpm_with_rates: Callable[..., Gpus]) -> None:
    """The driver's MiB per second are bytes per second, each direction in its place."""
    fleet = gpm_with_rates(2)
    fleet.poll()
    assert rates(fleet.poll()["page"], 1) == {
        "jaxmon_gpu_pcie_transmit_bytes_per_second": 21.5 * MIB,
        "jaxmon_gpu_pcie_receive_bytes_per_second": 22.5 * MIB,
        "jaxmon_gpu_nvlink_receive_bytes_per_second": 61.5 * MIB,
        "jaxmon_gpu_nvlink_transmit_bytes_per_second": 62.5 * MIB,
    }


def test_rates_stand_back_where_the_driver_counts(gpm: Callable[..., Gpus]) -> None:
    """Where the driver answers for the byte counters there are no rates."""
    fleet = gpm(1)
    fleet.poll()
    assert rates(fleet.poll()["page"], 0) == {}


def test_figures_follow_the_driver(gpm: Callable[..., Gpus]) -> None:
    """Each poll compares with the sample before, and samples are freed."""
    fleet = gpm(2)
    fleet.poll()
    for percent in range(100):
        fleet.order(f"gpmvalue 1 5 {percent}")
        page = fleet.poll()["page"]
        assert of(page, 1)["jaxmon_gpu_tensor_active_ratio"] == percent / 100
        assert of(page, 0)["jaxmon_gpu_tensor_active_ratio"] == 0.055
    taken, freed = fleet.calls("nvmlGpmSampleAlloc"), fleet.calls("nvmlGpmSampleFree")
    assert (taken, freed) == (202, 200)


@pytest.mark.parametrize("order", ["gpmcode 0 5 3", "gpmvalue 0 5 nan"])
def test_metric_that_the_driver_does_not_know_is_left_out(gpm, order):
    """A metric that fails by itself, or is no number, costs itself alone."""
    fleet = gpm(1, order)
    fleet.poll()
    state = fleet.poll()
    expected = ratios(0)
    del expected["jaxmon_gpu_tensor_active_ratio"]
    assert state["success"]
    assert of(state["page"], 0) == expected


def test_device_without_gpm_is_learned_once(gpm: Callable[..., Gpus]) -> None:
    """On a host of two generations the older GPU has no figures, and costs nothing."""
    fleet = gpm(2, "gpm 0 0")
    for _ in range(3):
        state = fleet.poll()
    assert state["success"]
    assert of(state["page"], 0) == {}
    assert of(state["page"], 1) == ratios(1)
    assert fleet.calls("nvmlGpmQueryDeviceSupport", 0) == 1
    assert fleet.calls("nvmlGpmSampleGet", 0) == 0


@pytest.mark.parametrize(
    "order", ["gpm 0 0", "call nvmlGpmQueryDeviceSupport 3", "call nvmlGpmSampleGet 13"]
)
def test_host_without_gpm_says_so(gpm: Callable[..., Gpus], order: str) -> None:
    """Where no GPU can be sampled the collector has a reason, and names another way."""
    state = gpm(1, order).poll()
    assert (state["success"], state["reason"]) == (False, "unsupported")
    assert "dcgm" in state["message"]


def test_refusal_switches_the_device_off_and_is_counted(gpm):
    """Without permission there are no figures of that device, one count, no retry."""
    fleet = gpm(2, "call nvmlGpmSampleGet 0 4")
    for _ in range(3):
        state = fleet.poll()
    assert state["success"]
    assert of(state["page"], 0) == {}
    assert of(state["page"], 1) == ratios(1)
    assert failures(state["page"]) == {"device_no_permission": 1}
    assert fleet.calls("nvmlGpmSampleGet", 0) == 1


def test_refusal_by_all_is_a_reason(gpm: Callable[..., Gpus]) -> None:
    """Without permission on any device the collector says that it is refused."""
    state = gpm(2, "call nvmlGpmSampleGet 4").poll()
    assert (state["success"], state["reason"]) == (False, "no_permission")
    assert failures(state["page"]) == {"device_no_permission": 2}


@pytest.mark.parametrize("order", ["device 1 15", "call nvmlGpmSampleGet 1 15"])
def test_lost_device_costs_nobody_else(gpm: Callable[..., Gpus], order: str) -> None:
    """A GPU that falls off has no figures until it is back, and then new ones."""
    fleet = gpm(2)
    fleet.poll()
    fleet.poll()
    fleet.order(order)
    for _ in range(3):
        state = fleet.poll()
        assert state["success"]
        assert of(state["page"], 1) == {}
        assert of(state["page"], 0) == ratios(0)
    fleet.order()
    # The first sample after the loss has none to be compared with.
    assert of(fleet.poll()["page"], 1) == {}
    assert of(fleet.poll()["page"], 1) == ratios(1)


def test_failed_comparison_is_counted_and_forgotten(gpm: Callable[..., Gpus]) -> None:
    """An unknown failure costs the figures of that poll and leaks no sample."""
    fleet = gpm(1)
    fleet.poll()
    fleet.order("call nvmlGpmMetricsGet 999")
    for _ in range(100):
        state = fleet.poll()
    assert state["success"]
    # Every second poll compares: after a failure there is nothing to compare with.
    assert failures(state["page"]) == {"sample_failed": 50}
    fleet.order()
    fleet.poll()
    assert of(fleet.poll()["page"], 0) == ratios(0)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(1, "uninitialized"), (9, "driver_not_loaded"), (18, "driver_mismatch")],
)
def test_driver_that_goes_away_comes_back(gpm, code, reason):
    """A driver error is the collector's; afterwards all is asked afresh."""
    fleet = gpm(1, "gpm 0 0")
    fleet.poll()
    fleet.order(f"all {code}")
    state = fleet.poll()
    assert (state["success"], state["reason"]) == (False, reason)
    # The new driver may be able to what the old one was not.
    fleet.order()
    fleet.poll()
    assert of(fleet.poll()["page"], 0) == ratios(0)


def test_instances_of_a_divided_gpu_are_sampled_by_themselves(gpm_with_rates):
    """A MIG device has the figures of its instance, in no rate that could be added."""
    fleet = gpm_with_rates(2, profile="a100")
    fleet.poll()
    page = fleet.poll()["page"]
    uuid = PART.format(1, 3)
    found = {name for name in page if uuid in name}
    assert len(found) == 9
    assert page[f'{TENSOR}{{uuid="{uuid}"}}'] == 0.865
    assert of(page, 1) == ratios(1)
    assert fleet.calls("nvmlGpmMigSampleGet", 1) == 6


def test_whole_gpu_is_sampled_again_after_a_division(gpm: Callable[..., Gpus]) -> None:
    """What is not supported of a divided GPU may be of the whole, and is tried."""
    fleet = gpm(2, "mig 0 1", "call nvmlGpmSampleGet 0 3")
    fleet.poll()
    page = fleet.poll()["page"]
    assert of(page, 0) == {}
    assert f'{TENSOR}{{uuid="{PART.format(0, 3)}"}}' in page
    fleet.order()
    fleet.poll()
    page = fleet.poll()["page"]
    assert of(page, 0) == ratios(0)
    assert not [name for name in page if "MIG-" in name]


def test_instance_that_is_made_anew_is_another(gpm: Callable[..., Gpus]) -> None:
    """Samples of an instance are not compared with those of one that had its number."""
    fleet = gpm(1, "mig 0 1")
    fleet.poll()
    assert f'{TENSOR}{{uuid="{PART.format(0, 3)}"}}' in fleet.poll()["page"]
    fleet.order("mig 0 2")
    page = fleet.poll()["page"]
    assert not [name for name in page if "MIG-" in name]
    assert failures(page) == {}
    page = fleet.poll()["page"]
    assert page[f'{TENSOR}{{uuid="{PART.format(0, 1003)}"}}'] == 0.855
