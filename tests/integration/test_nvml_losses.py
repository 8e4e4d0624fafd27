"""GPUs and drivers that are lost, hang, or come later, behind the real pynvml."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.nvml.gpus import FIGURES, UUID, Gpus, failures, of
from tests.helpers.processes import clean_environ


pytest.importorskip("pynvml")


def test_nothing_is_kept_of_a_lost_device(gpus: Callable[..., Gpus]) -> None:
    """What hardly changes goes with the device, and is read at once when it is back."""
    fleet = gpus(1, "field 0 94 5")
    fleet.poll()
    fleet.order("device 0 15")
    assert of(fleet.poll()["page"], 0) == {"jaxmon_accelerator_up": 0}
    fleet.order("field 0 94 1")
    assert of(fleet.poll()["page"], 0)["jaxmon_gpu_pcie_replays_total"] == 1


def test_new_gpu_appears_and_a_removed_one_is_down(gpus: Callable[..., Gpus]) -> None:
    """A GPU that is added is read; one that is taken away stays visible as down."""
    fleet = gpus(2)
    fleet.poll()
    fleet.order("count 3")
    page = fleet.poll()["page"]
    assert [len(of(page, i)) for i in range(3)] == [FIGURES] * 3
    fleet.order("count 2", "device 2 28")
    page = fleet.poll()["page"]
    assert of(page, 2) == {"jaxmon_accelerator_up": 0}
    assert failures(page) == {"device_not_found": 1}
    assert len(of(page, 1)) == FIGURES


@pytest.mark.parametrize(
    ("code", "reason"),
    [(15, "device_lost"), (16, "reset_required"), (28, "device_not_found")],
)
def test_lost_device_is_down_and_the_others_go_on(gpus, code, reason):
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
    assert len(of(state["page"], 0)) == FIGURES
    assert failures(state["page"]) == {reason: 1}
    assert len([line for line in state["log"] if "is lost" in line]) == 1
    fleet.order()
    state = fleet.poll()
    assert len(of(state["page"], 1)) == FIGURES
    assert any("has recovered" in line for line in state["log"])
    fleet.order(f"device 1 {code}")
    assert failures(fleet.poll()["page"]) == {reason: 2}


def test_device_whose_handle_still_works_but_figures_do_not(gpus):
    """A half-dead GPU is down as well, reported once, and does not flap."""
    fleet = gpus(2)
    fleet.poll()
    fleet.order("call nvmlDeviceGetPowerUsage 1 15")
    for _ in range(3):
        state = fleet.poll()
        assert of(state["page"], 1) == {"jaxmon_accelerator_up": 0}
    assert failures(state["page"]) == {"device_lost": 1}


@pytest.mark.parametrize("code", [10, 27, 999])
def test_device_that_answers_nothing_is_down(gpus, code):
    """Whatever the driver calls it, a GPU of which nothing can be read is not up."""
    fleet = gpus(2)
    fleet.poll()
    fleet.order(f"device 1 {code}")
    for _ in range(3):
        state = fleet.poll()
        assert state["success"]
        assert of(state["page"], 1) == {"jaxmon_accelerator_up": 0}
        assert len(of(state["page"], 0)) == FIGURES
    assert failures(state["page"])["device_lost"] == 1
    assert len([line for line in state["log"] if "is lost" in line]) == 1
    fleet.order()
    assert len(of(fleet.poll()["page"], 1)) == FIGURES


def test_device_that_may_not_be_read_is_up(gpus: Callable[..., Gpus]) -> None:
    """A refusal is an answer: a GPU that we may know nothing about is not lost."""
    fleet = gpus(1)
    fleet.poll()
    fleet.order("device 0 4")
    for _ in range(3):
        state = fleet.poll()
        figures = of(state["page"], 0).items()
        assert {name: value for name, value in figures if name.endswith("_up")} == {
            "jaxmon_accelerator_up": 1
        }


def test_device_lost_before_the_start_is_counted(gpus: Callable[..., Gpus]) -> None:
    """A GPU that never reported its name has no series, but is counted."""
    fleet = gpus(2, "device 0 15")
    state = fleet.poll()
    assert len(of(state["page"], 1)) == FIGURES
    assert failures(state["page"]) == {"device_unidentified": 1}
    fleet.order()
    assert len(of(fleet.poll()["page"], 0)) == FIGURES


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (9, "driver_not_loaded"),
        (12, "library_not_found"),
        (18, "driver_mismatch"),
        (999, "init_failed"),
    ],
)
def test_driver_that_does_not_start_is_a_reason(gpus, code, reason):
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
def test_driver_that_goes_away_is_initialised_again(gpus, code, reason):
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
    assert len(of(state["page"], 0)) == FIGURES


def polled(library: Path, first: str, shown: str = "poller.status().message") -> str:
    """Return the reason after a poll in a process that begins with *first*."""
    source = (
        f"import sys; {first}\n"
        "from jaxmon_exporter.collectors.nvidia.collector import NvidiaGpus\n"
        "from jaxmon_exporter.polling import Poller\n"
        "poller = Poller(NvidiaGpus()); poller.poll()\n"
        f"print(poller.status().reason, {shown})\n"
    )
    return subprocess.run(
        [sys.executable, "-c", source],
        env=clean_environ(LD_LIBRARY_PATH=str(library)),
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_missing_pynvml_names_the_extra(nvml_library: Path) -> None:
    """Without nvidia-ml-py the collector says what to install."""
    out = polled(nvml_library, "sys.modules['pynvml'] = None")
    assert out.startswith("not_installed")
    assert "jaxmon[nvidia]" in out


def test_broken_pynvml_is_no_missing_one(nvml_library: Path, tmp_path: Path) -> None:
    """What is installed and cannot be loaded says why; to install it is no advice."""
    (tmp_path / "pynvml.py").write_text("from ctypes import no_such_thing\n")
    out = polled(nvml_library, f"sys.path.insert(0, {str(tmp_path)!r})")
    assert out.startswith("error")
    assert "no_such_thing" in out
