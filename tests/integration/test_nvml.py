"""
The NVML collector behind the real pynvml, with a C library in the driver's place.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.fakes.nvml.gpus import UUID, Gpus, failures, of
from tests.support import until


pytest.importorskip("pynvml")


def test_every_figure_has_its_value_in_base_units(gpus: Callable[..., Gpus]) -> None:
    """Watts, joules, bytes, ratios and degrees are what the driver said, converted."""
    state = gpus(8).poll()
    assert (state["success"], state["reason"]) == (True, "")
    assert of(state["page"], 7) == {
        "jaxmon_accelerator_up": 1,
        "jaxmon_accelerator_utilization_ratio": 0.37,
        "jaxmon_accelerator_memory_used_bytes": 3 << 30,
        "jaxmon_accelerator_memory_size_bytes": 80 << 30,
        'jaxmon_accelerator_temperature_celsius{sensor="gpu"}': 47,
        'jaxmon_accelerator_temperature_celsius{sensor="memory"}': 62,
        "jaxmon_accelerator_power_watts": 123.507,
        "jaxmon_accelerator_power_limit_watts": 700,
        "jaxmon_accelerator_energy_joules_total": 1234567.007,
    }
    assert failures(state["page"]) == {}


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


@pytest.mark.parametrize("code", [3, 13, 25, 26])
def test_unsupported_figure_is_learned_once_per_device(
    gpus: Callable[..., Gpus], code: int
) -> None:
    """A figure that a device lacks is omitted, never asked for again, and no error."""
    call = "nvmlDeviceGetPowerUsage"
    fleet = gpus(2, f"call {call} 1 {code}")
    for _ in range(3):
        state = fleet.poll()
    assert state["success"]
    assert "jaxmon_accelerator_power_watts" not in of(state["page"], 1)
    assert "jaxmon_accelerator_energy_joules_total" in of(state["page"], 1)
    assert "jaxmon_accelerator_power_watts" in of(state["page"], 0)
    assert (fleet.calls(call, 0), fleet.calls(call, 1)) == (3, 1)
    assert failures(state["page"]) == {}


@pytest.mark.parametrize(
    ("code", "counted"),
    [(4, {"no_permission": 1}), (999, {"figure_failed": 1}), (6, {}), (21, {})],
)
def test_failing_figure_costs_itself_and_is_asked_again(
    gpus: Callable[..., Gpus], code: int, counted: dict[str, float]
) -> None:
    """A figure that fails once is missing once; real failures are counted."""
    fleet = gpus(1, f"call nvmlDeviceGetTemperature {code}")
    state = fleet.poll()
    series = 'jaxmon_accelerator_temperature_celsius{sensor="gpu"}'
    assert state["success"]
    assert series not in of(state["page"], 0)
    assert len(of(state["page"], 0)) == 8
    assert failures(state["page"]) == counted
    fleet.order()
    assert series in of(fleet.poll()["page"], 0)


@pytest.mark.parametrize("code", [15, 16, 28])
def test_lost_device_is_down_and_the_others_go_on(
    gpus: Callable[..., Gpus], code: int
) -> None:
    """A lost GPU keeps its identity, has up 0 and no figures, and can come back."""
    fleet = gpus(2)
    fleet.poll()
    fleet.order(f"device 1 {code}")
    for _ in range(3):
        state = fleet.poll()
    assert state["success"]
    assert of(state["page"], 1) == {"jaxmon_accelerator_up": 0}
    assert any(
        UUID.format(1) in name and "_info" in name and 'index="1"' in name
        for name in state["page"]
    )
    assert len(of(state["page"], 0)) == 9
    assert failures(state["page"]) == {"device_lost": 1}
    assert len([line for line in state["log"] if "is lost" in line]) == 1
    fleet.order()
    state = fleet.poll()
    assert len(of(state["page"], 1)) == 9
    assert any("is back" in line for line in state["log"])
    fleet.order(f"device 1 {code}")
    assert failures(fleet.poll()["page"]) == {"device_lost": 2}


def test_device_whose_handle_still_works_but_figures_do_not(
    gpus: Callable[..., Gpus],
) -> None:
    """A half-dead GPU is down as well, reported once, and does not flap."""
    fleet = gpus(2)
    fleet.poll()
    fleet.order("call nvmlDeviceGetPowerUsage 1 15")
    for _ in range(3):
        state = fleet.poll()
        assert of(state["page"], 1) == {"jaxmon_accelerator_up": 0}
    assert failures(state["page"]) == {"device_lost": 1}


def test_device_lost_before_the_start_is_counted(gpus: Callable[..., Gpus]) -> None:
    """A GPU that never told its name has no series, but does not go unnoticed."""
    fleet = gpus(2, "device 0 15")
    state = fleet.poll()
    assert len(of(state["page"], 1)) == 9
    assert failures(state["page"]) == {"device_unidentified": 1}
    fleet.order()
    assert len(of(fleet.poll()["page"], 0)) == 9


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "driver_not_loaded"),
        (12, "library_not_found"),
        (18, "driver_mismatch"),
        (999, "init_failed"),
    ],
)
def test_driver_that_does_not_start_is_a_reason(
    gpus: Callable[..., Gpus], code: int, reason: str
) -> None:
    """A failing nvmlInit is no crash, says why, and is tried again at each poll."""
    fleet = gpus(1, f"init {code}")
    state = fleet.poll()
    assert (state["success"], state["reason"]) == (False, reason)
    assert state["page"] == {}
    fleet.order()
    assert fleet.poll()["success"]


def test_no_devices_is_a_reason(gpus: Callable[..., Gpus]) -> None:
    """A driver without a GPU is a normal state with a name."""
    state = gpus(0).poll()
    assert (state["success"], state["reason"]) == (False, "no_devices")


@pytest.mark.parametrize(
    ("code", "reason"),
    [(1, "uninitialized"), (9, "driver_not_loaded"), (18, "driver_mismatch")],
)
def test_driver_that_goes_away_is_initialised_again(
    gpus: Callable[..., Gpus], code: int, reason: str
) -> None:
    """While the driver is away its devices are down; then all is read afresh."""
    fleet = gpus(2, "call nvmlDeviceGetPowerUsage 0 3")
    fleet.poll()
    fleet.order(f"all {code}")
    state = fleet.poll()
    assert (state["success"], state["reason"]) == (False, reason)
    for device in (0, 1):
        assert of(state["page"], device) == {"jaxmon_accelerator_up": 0}
    fleet.order()
    state = fleet.poll()
    assert state["success"]
    # The new driver may support what the old one did not.
    assert len(of(state["page"], 0)) == 9


def test_driver_that_goes_away_between_two_calls_is_noticed(
    gpus: Callable[..., Gpus],
) -> None:
    """A driver error of a single figure is the driver's failure, not the figure's."""
    fleet = gpus(1)
    fleet.poll()
    fleet.order("call nvmlDeviceGetPowerUsage 1")
    state = fleet.poll()
    assert (state["success"], state["reason"]) == (False, "uninitialized")
    assert of(state["page"], 0) == {"jaxmon_accelerator_up": 0}


def test_hanging_driver_is_a_timeout_and_recovers(gpus: Callable[..., Gpus]) -> None:
    """A call that does not return fails the collector and nobody else waits for it."""
    fleet = gpus(1)
    fleet.poll()
    fleet.order("hang nvmlDeviceGetPowerUsage")
    fleet.tell("background")
    state = until(
        lambda: (now := fleet.tell("look"))["reason"] == "timeout" and now, "a timeout"
    )
    assert not state["success"]
    # The figures of the poll before are still young enough.
    assert len(of(state["page"], 0)) == 9
    fleet.order()
    assert until(lambda: fleet.tell("look")["success"], "the call to come back")


def test_missing_pynvml_names_the_extra() -> None:
    """Without nvidia-ml-py the collector says what to install."""
    source = (
        "import sys; sys.modules['pynvml'] = None\n"
        "from jaxmon_exporter.collectors.nvml import NvidiaGpus\n"
        "from jaxmon_exporter.polling import Poller\n"
        "poller = Poller(NvidiaGpus()); poller.poll()\n"
        "print(poller.status().reason, poller.status().message)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    ).stdout
    assert out.startswith("not_installed")
    assert "jaxmon[nvidia]" in out
