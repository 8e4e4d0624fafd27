"""Rows about GPUs and their driver."""

import functools
import time

import pytest

from tests.faults.matrix import Area
from tests.faults.stage import UUID, Sidecar, Stage, age, errors, figures, success, up


AREA = Area("GPU")
HUNG = "nvmlDeviceGetPowerUsage"
POWER = "jaxmon_accelerator_power_watts"
XID = "jaxmon_gpu_xid_errors_total"


def healthy(sidecar: Sidecar, count: int = 2) -> bool:
    page = sidecar.page()
    return success(page, "nvml") == 1 and all(
        up(page, device) == 1 and POWER in figures(page, device)
        for device in range(count)
    )


@AREA.row("no driver library, installed later", quick=True)
def library_later(stage: Stage) -> None:
    empty = stage.directory / "driver"
    empty.mkdir()
    built = stage.driver()
    sidecar = stage.with_gpus(2, LD_LIBRARY_PATH=str(empty))
    page = sidecar.page()
    if success(page, "nvml") == 1:
        pytest.skip("this machine has a driver")
    stage.expect(success(page, "nvml") == 0, "nvml success 0")
    stage.expect(
        sidecar.collector("nvml")["reason"] == "library_not_found",
        "reason library_not_found",
    )
    stage.expect(success(page, "agents") == 1, "agents success 1")
    scratch = empty / "new"
    scratch.write_bytes((built / "libnvidia-ml.so.1").read_bytes())
    scratch.rename(empty / "libnvidia-ml.so.1")
    stage.recovers(lambda: healthy(sidecar))


def no_start(stage: Stage, code: int, reason: str) -> None:
    sidecar = stage.with_gpus()
    stage.order(f"init {code}", "all 1")
    stage.shows(lambda: success(sidecar.page(), "nvml") == 0, "nvml success 0")
    stage.shows(
        lambda: sidecar.collector("nvml")["reason"] == reason, f"reason {reason}"
    )
    page = sidecar.page()
    stage.expect([up(page, 0), up(page, 1)] == [0, 0], "both GPUs up 0")
    stage.expect(figures(page, 0) == {"jaxmon_accelerator_up"}, "no metrics")
    stage.expect(errors(page, "nvml", reason) >= 1, f"errors {reason} counted")
    stage.order()
    stage.recovers(lambda: healthy(sidecar))


for code, reason in (
    (9, "driver_not_loaded"),
    (12, "library_not_found"),
    (18, "driver_mismatch"),
    (999, "init_failed"),
):
    AREA.add(
        f"driver restarts with {reason} ({code})",
        functools.partial(no_start, code=code, reason=reason),
        quick=code == 18,
    )


@AREA.row("driver reports itself uninitialised (1)")
def uninitialised(stage: Stage) -> None:
    sidecar = stage.with_gpus()
    stage.order("all 1")
    stage.shows(
        lambda: sidecar.collector("nvml")["reason"] == "uninitialized",
        "reason uninitialized",
    )
    stage.order()
    stage.recovers(lambda: healthy(sidecar))


def ends(stage: Stage, orders: tuple[str, ...], advice: str) -> None:
    sidecar = stage.with_gpus(2, "--exit-on-driver-mismatch")
    stage.order(*orders)
    stage.until(lambda: sidecar.process.poll() is not None, "the process to end")
    stage.expect(sidecar.process.returncode != 0, "exited, exit code not 0")
    stage.shows(lambda: sidecar.says(advice), f"the log says '{advice}'")


for what, orders, advice in (
    ("driver upgraded", ("init 18", "all 18"), "restart the exporter"),
    ("GPUs removed from the container", ("init 999", "all 1"), "recreate it"),
):
    AREA.add(
        f"{what}, with --exit-on-driver-mismatch",
        functools.partial(ends, orders=orders, advice=advice),
    )


@AREA.row("no GPU at first")
def none_at_first(stage: Stage) -> None:
    sidecar = stage.with_gpus(0)
    stage.expect(success(sidecar.page(), "nvml") == 0, "nvml success 0")
    reason = sidecar.collector("nvml")["reason"]
    stage.expect(reason == "no_devices", "reason no_devices")
    stage.order("count 2")
    stage.recovers(lambda: healthy(sidecar))


@AREA.row("GPU added, then removed")
def count_changes(stage: Stage) -> None:
    sidecar = stage.with_gpus(2)
    stage.order("count 3")
    stage.shows(lambda: healthy(sidecar, 3), "third GPU appears")
    stage.order("count 2", "device 2 15")
    stage.shows(lambda: up(sidecar.page(), 2) == 0, "third GPU up 0 once removed")
    stage.expect(POWER in figures(sidecar.page(), 1), "the others are unaffected")
    stage.order("count 3")
    stage.recovers(lambda: healthy(sidecar, 3))


def lost(stage: Stage, code: int, reason: str) -> None:
    sidecar = stage.with_gpus()
    stage.order(f"device 1 {code}")
    stage.shows(lambda: up(sidecar.page(), 1) == 0, "GPU 1 up 0")
    page = sidecar.page()
    stage.expect(figures(page, 1) == {"jaxmon_accelerator_up"}, "its series gone")
    stage.expect(POWER in figures(page, 0), "GPU 0 unaffected")
    stage.expect(success(page, "nvml") == 1, "nvml success 1")
    stage.expect(errors(page, "nvml", reason) == 1, f"{reason} counted once")
    stage.order()
    stage.recovers(lambda: healthy(sidecar))


for code, reason in (
    (15, "device_lost"),
    (16, "reset_required"),
    (28, "device_not_found"),
):
    AREA.add(
        f"one GPU has {reason} ({code})",
        functools.partial(lost, code=code, reason=reason),
        quick=code == 15,
    )


AREA.add(
    "every call for one GPU fails (999)",
    functools.partial(lost, code=999, reason="device_lost"),
)


@AREA.row("GPU lost before startup")
def lost_before(stage: Stage) -> None:
    sidecar = stage.with_gpus(2)
    sidecar.stop()
    stage.order("device 1 15")
    variables = {
        "LD_LIBRARY_PATH": str(stage.driver()),
        "FAKE_NVML_CONTROL": str(stage.directory / "control"),
    }
    sidecar = stage.sidecar("--disable", "host", environ=variables)
    page = sidecar.page()
    stage.expect(up(page, 1) is None, "GPU 1 has no series")
    stage.expect(
        errors(page, "nvml", "device_unidentified") >= 1, "device_unidentified counted"
    )
    stage.expect(POWER in figures(page, 0), "GPU 0 unaffected")
    stage.order()
    stage.recovers(lambda: healthy(sidecar))


def figure(stage: Stage, code: int, counted: str, *, again: bool) -> None:
    sidecar = stage.with_gpus()
    stage.order(f"call {HUNG} 1 {code}")
    stage.shows(lambda: POWER not in figures(sidecar.page(), 1), "power of GPU 1 gone")
    page = sidecar.page()
    stage.expect(POWER in figures(page, 0), "that of GPU 0 there")
    stage.expect("jaxmon_accelerator_energy_joules_total" in figures(page, 1), "energy")
    stage.expect(up(page, 1) == 1, "up 1")
    if counted:
        stage.expect(errors(page, "nvml", counted) >= 1, f"{counted} counted")
    else:
        stage.expect(success(page, "nvml") == 1, "nothing counted")
    if again:
        stage.order()
        stage.recovers(lambda: healthy(sidecar))


for code, what, counted, again in (
    (3, "not supported", "", False),
    (13, "missing in the driver", "", False),
    (25, "with a version mismatch", "", False),
    (6, "not found", "", True),
    (10, "timed out inside the driver", "", True),
    (999, "failing for an unknown reason", "figure_failed", True),
):
    AREA.add(
        f"one metric {what} ({code})",
        functools.partial(figure, code=code, counted=counted, again=again),
    )


@AREA.row("one metric without permission (4)")
def refused(stage: Stage) -> None:
    figure(stage, 4, "no_permission", again=False)


def hung(stage: Stage, call: str, *, release: bool) -> Sidecar:
    sidecar = stage.with_gpus()
    for _ in range(3):
        sidecar.page()
    threads = sidecar.threads()
    stage.order(f"hang {call}")
    began = time.monotonic()
    stage.until(lambda: (age(sidecar.page(), "nvml") or 0) > 1, "the call to hang")
    page = sidecar.page()
    stage.expect(POWER in figures(page, 0), "last values served, with their age")
    stage.shows(
        lambda: sidecar.collector("nvml")["reason"] == "timeout",
        "after the deadline success 0, reason timeout",
    )
    stage.expect(success(sidecar.page(), "agents") == 1, "agents success 1")
    stage.shows(lambda: up(sidecar.page(), 0) is None, "then the series are gone")
    for _ in range(20):
        sidecar.page()
    page = sidecar.page()
    stage.expect(errors(page, "nvml", "timeout") == 1, "timeout counted once")
    stage.expect(sidecar.threads() <= threads, "no extra thread")
    stage.say(f"hung for {time.monotonic() - began:.0f} s")
    if release:
        stage.order()
        stage.recovers(lambda: healthy(sidecar))
    return sidecar


@AREA.row("a call about a GPU hangs", quick=True)
def hung_figure(stage: Stage) -> None:
    hung(stage, HUNG, release=True)


@AREA.row("the list of GPUs hangs")
def hung_count(stage: Stage) -> None:
    hung(stage, "nvmlDeviceGetCount_v2", release=True)


@AREA.row("the driver hangs during initialisation")
def hung_start(stage: Stage) -> None:
    sidecar = stage.with_gpus()
    stage.order("hang nvmlInitWithFlags", "all 1")
    stage.shows(
        lambda: sidecar.collector("nvml")["reason"] == "timeout", "reason timeout"
    )
    stage.expect(success(sidecar.page(), "agents") == 1, "agents success 1")
    stage.order()
    stage.recovers(lambda: healthy(sidecar))


@AREA.row("SIGTERM while a call hangs")
def stopped_while_hung(stage: Stage) -> None:
    sidecar = hung(stage, HUNG, release=False)
    stage.expect(sidecar.stop() == 0, "SIGTERM ends it, exit code 0")
    stage.shows(lambda: sidecar.says("still blocked at shutdown"), "log names it")


@AREA.row("5,000 Xid errors at once")
def xid_burst(stage: Stage) -> None:
    sidecar = stage.with_gpus()
    series = f'{XID}{{uuid="GPU-5f0c9d2e-1a2b-3c4d-5e6f-000000000001",xid="79"}}'
    stage.expect(sidecar.page().get(series) == 0, "Xid 79 is 0 before")
    stage.report(1, 79, 5000)
    stage.shows(lambda: sidecar.page().get(series) == 5000, "all counted")
    stage.expect(healthy(sidecar), "metrics continue")


@AREA.row("the driver's counters reset")
def counter_reset(stage: Stage) -> None:
    sidecar = stage.with_gpus()
    series = (
        "jaxmon_gpu_pcie_transmit_bytes_total"
        '{uuid="GPU-5f0c9d2e-1a2b-3c4d-5e6f-000000000000"}'
    )
    stage.order("field 0 197 900")
    stage.shows(lambda: sidecar.page().get(series) == 900, "900 bytes sent")
    stage.order("field 0 197 5")
    stage.shows(
        lambda: sidecar.page()[series] == 5,
        "then 5, as reported by the driver, for rate()",
    )
    stage.expect(success(sidecar.page(), "nvml") == 1, "nvml success 1")


@AREA.row("implausible values", quick=True)
def implausible(stage: Stage) -> None:
    sidecar = stage.with_gpus()
    whole = figures(sidecar.page(), 1)
    worst = 4294967295
    stage.order(f"util 0 {worst}", f"heat 0 {worst}", f"power 0 {worst}", "used 0 -1")
    gone = {
        f"jaxmon_accelerator_{name}"
        for name in ("utilization_ratio", "power_watts", "memory_used_bytes")
    }
    stage.shows(
        lambda: not gone & figures(sidecar.page(), 0),
        "utilization, power and memory gone",
    )
    page = sidecar.page()
    heat = f'_celsius{{uuid="{UUID.format(0)}",sensor="gpu"}}'
    stage.expect(not any(name.endswith(heat) for name in page), "temperature gone")
    stage.expect(up(page, 0) == 1, "up 1")
    stage.expect(figures(page, 1) == whole, "the other GPU unaffected")
    stage.expect(page['jaxmon_dropped_total{what="figure"}'] >= 4, "dropped counted")
    stage.shows(
        lambda: sidecar.says("implausible value") == 4, "logged once per metric"
    )
    stage.order()
    stage.recovers(lambda: healthy(sidecar) and gone <= figures(sidecar.page(), 0))
