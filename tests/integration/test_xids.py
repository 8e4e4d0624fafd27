"""Xid errors behind the real pynvml, with a C library in the driver's place."""

import time
from collections.abc import Callable

import pytest

from jaxmon.catalog import CRITICAL_XIDS, GPU_XID_ERRORS, GPU_XID_LAST_TIMESTAMP_SECONDS
from tests.fakes.nvml.gpus import FIGURES, UUID, Gpus, failures, of


pytest.importorskip("pynvml")

NONE = dict.fromkeys(CRITICAL_XIDS, 0)


def xids(page: dict[str, float], device: int) -> dict[str, float]:
    """Return the Xid errors of one device by number."""
    label = f'{GPU_XID_ERRORS.name}{{uuid="{UUID.format(device)}",xid="'
    return {
        name.removeprefix(label).rstrip('"}'): value
        for name, value in page.items()
        if name.startswith(label)
    }


def test_time_of_the_last_error_is_told(gpus: Callable[..., Gpus]) -> None:
    """A number has a time from its first error on, and the time moves with the next."""
    name = f'{GPU_XID_LAST_TIMESTAMP_SECONDS.name}{{uuid="{UUID.format(1)}",xid="31"}}'
    fleet = gpus(2)
    began = time.time()
    assert not any("_last_timestamp" in one for one in fleet.poll()["page"])
    fleet.report(1, 31)
    first = fleet.poll()["page"]
    assert [one for one in first if "_last_timestamp" in one] == [name]
    assert began <= first[name] <= time.time()
    assert fleet.poll()["page"][name] == first[name]
    fleet.report(1, 31)
    assert fleet.poll()["page"][name] > first[name]
    fleet.order("device 1 15")
    assert fleet.poll()["page"][name] > first[name]


def live_sets(fleet: Gpus, devices: int) -> int:
    """Return how many event sets have been made and not freed."""
    freed = sum(fleet.calls("nvmlEventSetFree", i) for i in range(-1, devices))
    return fleet.calls("nvmlEventSetCreate") - freed


def test_burst_is_counted_exactly(gpus: Callable[..., Gpus]) -> None:
    """No error of a burst is lost, not of one that is too long for a single poll."""
    fleet = gpus(2)
    fleet.poll()
    fleet.report(0, 48, 3)
    fleet.report(1, 31, 2700)
    fleet.report(0, 79)
    fleet.report(0, 48, 2)
    for _ in range(4):
        state = fleet.poll()
    assert xids(state["page"], 0) == {**NONE, "48": 5, "79": 1}
    assert xids(state["page"], 1) == {**NONE, "31": 2700}
    assert failures(state["page"]) == {}
    fleet.report(1, 31)
    assert xids(fleet.poll()["page"], 1) == {**NONE, "31": 2701}


def test_numbers_of_xids_are_bounded(gpus: Callable[..., Gpus]) -> None:
    """A driver that makes up numbers makes no more than 64 series, and one for all."""
    fleet = gpus(1)
    fleet.poll()
    for xid in range(1000, 1100):
        fleet.report(0, xid)
    fleet.report(0, 79)
    fleet.report(0, 1000)
    found = xids(fleet.poll()["page"], 0)
    assert len(found) == 65
    assert sum(found.values()) == 102
    assert (found["79"], found["1000"]) == (1, 2)
    assert found["other"] == 100 - (64 - len(NONE))


def test_loss_of_a_gpu_has_its_xid(gpus: Callable[..., Gpus]) -> None:
    """The Xid of a loss counts although the GPU answers no more, and stays counted."""
    fleet = gpus(2)
    fleet.poll()
    fleet.report(1, 79)
    fleet.order("call nvmlDeviceGetUtilizationRates 1 15")
    page = fleet.poll()["page"]
    assert of(page, 1) == {"jaxmon_accelerator_up": 0}
    assert xids(page, 1) == {**NONE, "79": 1}
    # The driver may still hand out what comes late.
    fleet.report(1, 119)
    assert xids(fleet.poll()["page"], 1) == {**NONE, "79": 1, "119": 1}
    fleet.order("device 1 15")
    for _ in range(3):
        fleet.report(0, 48)
        page = fleet.poll()["page"]
    assert xids(page, 0) == {**NONE, "48": 3}
    assert xids(page, 1) == {**NONE, "79": 1, "119": 1}
    assert failures(page) == {"device_lost": 1}


def test_gpu_that_is_back_counts_on(gpus: Callable[..., Gpus]) -> None:
    """A GPU that was lost is listened to afresh, and its counts go on."""
    fleet = gpus(2)
    fleet.poll()
    fleet.report(1, 79)
    fleet.poll()
    fleet.order("device 1 15")
    fleet.poll()
    fleet.order()
    fleet.poll()
    assert fleet.calls("nvmlDeviceRegisterEvents", 1) == 2
    fleet.report(1, 79)
    assert xids(fleet.poll()["page"], 1) == {**NONE, "79": 2}
    assert live_sets(fleet, 2) == 2


@pytest.mark.parametrize("code", [1, 9, 18])
def test_counts_go_on_after_the_driver_was_away(gpus, code):
    """Counts stay while NVML is gone, and go on when it is initialised again."""
    fleet = gpus(2)
    fleet.poll()
    fleet.report(0, 48, 2)
    fleet.poll()
    fleet.order(f"all {code}")
    state = fleet.poll()
    assert not state["success"]
    assert xids(state["page"], 0) == {**NONE, "48": 2}
    fleet.order()
    fleet.poll()
    fleet.report(0, 48)
    fleet.report(1, 94)
    page = fleet.poll()["page"]
    assert xids(page, 0) == {**NONE, "48": 3}
    assert xids(page, 1) == {**NONE, "94": 1}


def test_queued_errors_are_counted_before_nvml_is_given_up(gpus):
    """A driver that fails in another call still hands out what it has queued."""
    fleet = gpus(1)
    fleet.poll()
    fleet.report(0, 119)
    fleet.order("call nvmlDeviceGetCount_v2 999")
    state = fleet.poll()
    assert not state["success"]
    assert xids(state["page"], 0) == {**NONE, "119": 1}
    assert live_sets(fleet, 1) == 0


@pytest.mark.parametrize(
    "order",
    [
        "events 0 23",
        "call nvmlDeviceGetSupportedEventTypes 13",
        "call nvmlEventSetCreate 13",
        "call nvmlDeviceRegisterEvents 3",
        "call nvmlEventSetWait_v2 13",
    ],
)
def test_gpu_that_cannot_report_has_no_count(gpus, order):
    """Without events there is no count, not one of 0; that is learned once."""
    fleet = gpus(1, order)
    for _ in range(4):
        state = fleet.poll()
    assert state["success"]
    assert xids(state["page"], 0) == {}
    assert len(of(state["page"], 0)) == FIGURES
    assert failures(state["page"]) == {}
    assert fleet.calls("nvmlDeviceGetSupportedEventTypes", 0) == 1
    # The one that could not be made need not be freed.
    assert live_sets(fleet, 1) == (order == "call nvmlEventSetCreate 13")


def test_gpu_that_is_back_may_report(gpus: Callable[..., Gpus]) -> None:
    """A GPU that could not report before it was lost is asked again afterwards."""
    fleet = gpus(1, "events 0 0")
    assert xids(fleet.poll()["page"], 0) == {}
    fleet.order("device 0 15")
    fleet.poll()
    fleet.order()
    fleet.poll()
    fleet.report(0, 79)
    assert xids(fleet.poll()["page"], 0)["79"] == 1


def test_missing_permission_is_counted_once(gpus: Callable[..., Gpus]) -> None:
    """Who may not listen asks once, says so, and asks again after a new start."""
    fleet = gpus(1, "call nvmlDeviceRegisterEvents 4")
    for _ in range(3):
        state = fleet.poll()
    assert state["success"]
    assert xids(state["page"], 0) == {}
    assert failures(state["page"]) == {"no_permission": 1}
    assert fleet.calls("nvmlDeviceRegisterEvents", 0) == 1
    fleet.order("all 1")
    fleet.poll()
    fleet.order()
    assert xids(fleet.poll()["page"], 0) == NONE


def test_registration_that_fails_is_tried_again(gpus: Callable[..., Gpus]) -> None:
    """An unexpected failure costs the count for one poll, and leaves no set behind."""
    fleet = gpus(1, "call nvmlDeviceRegisterEvents 999")
    state = fleet.poll()
    assert state["success"]
    assert xids(state["page"], 0) == {}
    assert failures(state["page"]) == {"events_failed": 1}
    assert live_sets(fleet, 1) == 0
    fleet.order()
    assert xids(fleet.poll()["page"], 0) == NONE


def test_event_set_that_fails_once_keeps_its_queue(gpus: Callable[..., Gpus]) -> None:
    """A wait that fails is counted, costs no figure and loses no event."""
    fleet = gpus(1)
    fleet.poll()
    fleet.report(0, 79, 3)
    fleet.order("call nvmlEventSetWait_v2 999")
    page = fleet.poll()["page"]
    assert xids(page, 0) == NONE
    assert len(of(page, 0)) == FIGURES
    assert failures(page) == {"events_failed": 1}
    fleet.order()
    assert xids(fleet.poll()["page"], 0) == {**NONE, "79": 3}


@pytest.mark.parametrize("code", [2, 15, 999])
def test_event_set_that_fails_twice_is_replaced(gpus, code):
    """A set that does not recover is recreated, as long as its GPU responds."""
    fleet = gpus(1)
    fleet.poll()
    fleet.report(0, 79)
    fleet.poll()
    fleet.order(f"call nvmlEventSetWait_v2 {code}")
    fleet.poll()
    fleet.poll()
    fleet.order()
    assert fleet.calls("nvmlDeviceRegisterEvents", 0) == 2
    fleet.report(0, 79)
    assert xids(fleet.poll()["page"], 0) == {**NONE, "79": 2}
    assert live_sets(fleet, 1) == 1
