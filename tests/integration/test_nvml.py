"""The NVML collector behind the real pynvml, with a C library in the driver's place."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxmon.catalog import CLOCK_EVENTS
from jaxmon_exporter.collectors.nvidia.calls import FIELDS
from tests.fakes.nvml.build import build
from tests.fakes.nvml.gpus import FIGURES, UUID, Gpus, failures, fake_gpus, of
from tests.fakes.nvml.pages import PROFILES, REVIEWED, page_of
from tests.helpers.processes import some


pytest.importorskip("pynvml")


@pytest.mark.parametrize("profile", PROFILES)
def test_page_of_each_kind_of_gpu(profile: str, tmp_path: Path) -> None:
    """Each kind of GPU makes the page that was reviewed, byte for byte."""
    library = tmp_path / "library"
    library.mkdir()
    build(library, old=PROFILES[profile][1])
    expected = (REVIEWED / f"{profile}.txt").read_text()
    assert page_of(profile, library, tmp_path).splitlines() == expected.splitlines()


@pytest.mark.parametrize("profile", some(PROFILES))
def test_nothing_unsupported_is_asked_twice(profile: str, tmp_path: Path) -> None:
    """After one poll only what the device answers is asked, each thing once."""
    library = tmp_path / "library"
    library.mkdir()
    build(library, old=PROFILES[profile][1])
    with fake_gpus(library, tmp_path) as start:
        fleet = start(1, profile=profile)
        fleet.poll()
        first = Counter(fleet.all_calls())
        fleet.poll()
        second = Counter(fleet.all_calls()) - first
        fleet.poll()
        third = Counter(fleet.all_calls()) - first - second
    assert second == third
    calls = {call: times for call, times in second.items() if profile != "a100"}
    several = {"nvmlDeviceGetClockInfo 0": 4}
    assert {call: times for call, times in calls.items() if times > 1} in ({}, several)
    # The bytes of NVLink are told in two ways: one of them is asked for.
    for number, answering in (
        (202, {"h200", "b200"}),
        (138, {"h100", "a100", "v100"}),
        (82, set(PROFILES) - {"t4"}),
    ):
        assert fleet.fields(number, 0) == (3 if profile in answering else 1)


@pytest.mark.parametrize(
    ("code", "asked", "counted"),
    [
        (3, 1, {}),
        (2, 1, {}),
        (4, 1, {"no_permission": 1}),
        (999, 3, {"figure_failed": 3}),
        (21, 3, {}),
    ],
)
def test_failing_field_costs_itself(gpus, code, asked, counted):
    """One numbered figure that fails leaves the others of its call alone."""
    fleet = gpus(2, f"fieldcode 1 197 {code}")
    for _ in range(3):
        state = fleet.poll()
    assert "jaxmon_gpu_pcie_transmit_bytes_total" not in of(state["page"], 1)
    assert len(of(state["page"], 1)) == FIGURES - 1
    assert len(of(state["page"], 0)) == FIGURES
    assert (fleet.fields(197, 0), fleet.fields(197, 1)) == (3, asked)
    assert failures(state["page"]) == counted


def test_field_call_that_the_driver_lacks_is_learned_once(gpus):
    """Without the call for fields, the figures of their own calls remain."""
    fleet = gpus(1, "call nvmlDeviceGetFieldValues 13")
    for _ in range(3):
        state = fleet.poll()
    assert state["success"]
    assert "jaxmon_accelerator_power_watts" in of(state["page"], 0)
    assert "jaxmon_gpu_pcie_replays_total" not in of(state["page"], 0)
    assert fleet.calls("nvmlDeviceGetFieldValues", 0) == 1


def test_refusal_is_asked_again_slowly(gpus: Callable[..., Gpus]) -> None:
    """What we may not ask is asked again after 60 polls, and counted each time."""
    call = "nvmlDeviceGetPowerUsage"
    fleet = gpus(1, f"call {call} 4")
    for _ in range(60):
        state = fleet.poll()
    assert fleet.calls(call, 0) == 1
    assert failures(state["page"]) == {"no_permission": 1}
    fleet.order()
    assert "jaxmon_accelerator_power_watts" in of(fleet.poll()["page"], 0)


@pytest.mark.parametrize(
    ("order", "metric", "found"),
    [
        ("util 0 4294967295", "utilization_ratio", "42949672.95"),
        ("util 0 250", "utilization_ratio", "2.5"),
        ("heat 0 4294967295", "temperature_celsius", "4294967295"),
        ("heat 0 2147483647", "temperature_celsius", "2147483647"),
        ("power 0 4294967295", "power_watts", "4294967.295"),
        ("used 0 -1", "memory_used_bytes", "18446744073709551615"),
        ("used 0 -1048576", "memory_used_bytes", "18446744073708503040"),
    ],
)
def test_a_figure_that_cannot_be_is_left_out(
    gpus: Callable[..., Gpus], order: str, metric: str, found: str
) -> None:
    """Nonsense costs that figure of that GPU, and is logged once with its range."""
    fleet = gpus(2)
    whole = fleet.poll()["page"]
    fleet.order(order)
    fleet.poll()
    state = fleet.poll()
    gone = whole.keys() - state["page"].keys()

    assert [name.partition("{")[0] for name in gone] == [f"jaxmon_accelerator_{metric}"]
    assert UUID.format(0) in gone.pop()
    (said,) = [line for line in state["log"] if "implausible value" in line]
    assert f"jaxmon_accelerator_{metric}" in said
    assert f"{found} (allowed range" in said
    assert state["success"]


def test_what_hardly_changes_is_asked_twice_a_minute(
    nvml_library: Path, tmp_path: Path
) -> None:
    """Error counts and links are read every 30 s in turn, the rest at each poll."""
    collector = "nvml.NvidiaGpus(interval=10)"
    with fake_gpus(nvml_library, tmp_path, collector=collector) as start:
        fleet = start(2, "field 0 94 5", "field 1 94 5")
        pages = [fleet.poll()["page"]]
        fleet.order("field 0 94 6", "field 1 94 6", "util 0 100", "util 1 100")
        pages += [fleet.poll()["page"] for _ in range(6)]
        asked = [[fleet.fields(number, i) for i in (0, 1)] for number in (94, 197)]
        sram = fleet.calls("nvmlDeviceGetSramEccErrorStatus", 0)
    told = [
        [of(page, i)["jaxmon_gpu_pcie_replays_total"] for i in (0, 1)] for page in pages
    ]
    assert told == [[5, 5], [5, 5], [5, 6], [6, 6], [6, 6], [6, 6], [6, 6]]
    assert (asked, sram) == ([[3, 3], [7, 7]], 3)
    assert all(len(of(page, 0)) == FIGURES for page in pages)
    assert of(pages[1], 0)["jaxmon_accelerator_utilization_ratio"] == 1


def test_counter_does_not_change_its_source(gpus: Callable[..., Gpus]) -> None:
    """When the chosen counter fails once, the other does not stand in for it."""
    name = "jaxmon_gpu_nvlink_transmit_bytes_total"
    fleet = gpus(1, profile="b200")
    assert of(fleet.poll()["page"], 0)[name] == 7e12
    fleet.order("fieldcode 0 202 999")
    assert name not in of(fleet.poll()["page"], 0)
    fleet.order("field 0 202 7000000000001")
    assert of(fleet.poll()["page"], 0)[name] == 7e12 + 1


@pytest.mark.parametrize("value", [-1, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF])
@pytest.mark.parametrize("kind", range(1, 6))
def test_field_that_has_no_figure_is_left_out(kind: int, value: int) -> None:
    """What drivers put where they know nothing is no figure, in whichever type."""
    import pynvml

    answer = pynvml.c_nvmlFieldValue_t(valueType=kind)
    answer.value.ullVal = value & 0xFFFFFFFFFFFFFFFF
    (field,) = (one for one in FIELDS if one.number == 186)
    assert field.value(answer) is None


def test_clock_events_are_bits(gpus: Callable[..., Gpus]) -> None:
    """Each reason has its own series, at 1 while it holds."""
    fleet = gpus(1, "clocks 0 328")
    found = {
        name.partition('"')[2].rstrip('"}'): value
        for name, value in of(fleet.poll()["page"], 0).items()
        if "clock_event" in name
    }
    assert {name for name, value in found.items() if value} == {
        "hw_slowdown",
        "hw_thermal",
        "display_clock",
    }
    assert set(found) == set(CLOCK_EVENTS)


def test_mig_device_that_fails_costs_itself(gpus: Callable[..., Gpus]) -> None:
    """The GPU and its load are reported although its MIG devices cannot be read."""
    fleet = gpus(1, "call nvmlDeviceGetAttributes_v2 999", profile="a100")
    state = fleet.poll()
    assert state["success"]
    assert not any("_mig_info" in name for name in state["page"])
    assert of(state["page"], 0)["jaxmon_gpu_mig_mode"] == 1
    assert failures(state["page"]) == {"figure_failed": 3}
    fleet.order()
    page = fleet.poll()["page"]
    assert sum("_mig_info" in name for name in page) == 3


def test_gpu_that_is_made_whole_is_asked_everything_again(gpus):
    """What a divided GPU lacks is not lacked for good: no reset need come between."""
    fleet = gpus(2, "mig 0 1")
    page = fleet.poll()["page"]
    assert "jaxmon_accelerator_utilization_ratio" not in of(page, 0)
    assert sum("_mig_info" in name for name in page) == 3
    fleet.order()
    fleet.poll()
    page = fleet.poll()["page"]
    assert len(of(page, 0)) == len(of(page, 1)) == FIGURES
    fleet.order("mig 0 1")
    for _ in range(4):
        state = fleet.poll()
    assert "jaxmon_accelerator_utilization_ratio" not in of(state["page"], 0)
    # When it was found divided, when it was whole, and until it was known to be divided
    # again; not after that.
    assert fleet.calls("nvmlDeviceGetEncoderUtilization", 0) == 4
    assert failures(state["page"]) == {}


def test_processes_are_told_only_when_asked_for(gpus: Callable[..., Gpus]) -> None:
    """By default no process number leaves the host, nor is the driver asked."""
    fleet = gpus(1, "process 0 4001 3000")
    assert not any("process" in name for name in fleet.poll()["page"])
    assert fleet.calls("nvmlDeviceGetComputeRunningProcesses_v3", 0) == 0


def test_identity_joins_with_jax(gpus: Callable[..., Gpus]) -> None:
    """The UUID is spelled as NVML gives it, the PCI address as CUDA and sysfs do."""
    page = gpus(1).poll()["page"]
    info = [name for name in page if name.startswith("jaxmon_accelerator_info")]
    labels = (
        f'uuid="{UUID.format(0)}",index="0",vendor="nvidia",'
        'model="NVIDIA H100 80GB HBM3",driver="580.65.06",pci_bus_id="0000:1a:00.0"'
    )
    assert info == [f"jaxmon_accelerator_info{{{labels}}}"]


def test_figures_follow_the_driver(gpus: Callable[..., Gpus]) -> None:
    """Each poll reads again."""
    fleet = gpus(2)
    fleet.poll()
    fleet.order("util 1 100")
    page = fleet.poll()["page"]
    assert of(page, 0)["jaxmon_accelerator_utilization_ratio"] == 0.37
    assert of(page, 1)["jaxmon_accelerator_utilization_ratio"] == 1.0


def test_license_of_a_virtual_gpu(gpus: Callable[..., Gpus]) -> None:
    """It has one or not; a GPU that needs none has no figure, and is asked once."""
    name, call = "jaxmon_gpu_vgpu_licensed", "nvmlDeviceGetGridLicensableFeatures_v4"
    fleet = gpus(3, "license 1 0", "license 2 1")
    page = fleet.poll()["page"]
    assert [of(page, device).get(name) for device in range(3)] == [None, 0, 1]
    for _ in range(20):
        fleet.poll()
    assert fleet.calls(call, 0) == 1 < fleet.calls(call, 1)
