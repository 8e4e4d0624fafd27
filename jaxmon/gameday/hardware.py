"""Faults of GPUs, which a stand-in for NVIDIA's driver reports."""

from __future__ import annotations

from jaxmon.gameday.scenario import Scenario


# NVML's code for a lost GPU.
_LOST = 15
# Number of NVML's field for the time spent at lower clocks because the GPU was hot.
_HARDWARE_THERMAL = 270
_MINUTE = 60_000_000_000

HARDWARE = (
    Scenario(
        name="gpu-lost",
        summary="a GPU falls off the bus",
        program="",
        alert="JaxmonAcceleratorLost",
        means="driver",
        orders=(f"device 1 {_LOST}",),
    ),
    Scenario(
        name="gpu-xid",
        summary="a GPU reports Xid 79, with which its work is lost",
        program="",
        alert="JaxmonGpuXid",
        means="driver",
        xids=("1 79",),
    ),
    Scenario(
        name="gpu-throttled",
        summary="a GPU is too hot and lowers its clocks",
        program="",
        alert="JaxmonGpuThrottled",
        means="driver",
        orders=(f"field 1 {_HARDWARE_THERMAL} {_MINUTE}",),
    ),
)
