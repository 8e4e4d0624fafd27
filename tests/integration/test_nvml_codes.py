"""Every return code of NVML on every kind of call: what it costs, and that it heals."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.nvml.gpus import FIGURES, Gpus, fake_gpus, of
from tests.helpers.processes import some


pytest.importorskip("pynvml")

CODES = (*range(1, 31), 999)
# These are the driver's failure, whatever was asked, and others the device's.
DRIVER, LOST = {1, 9, 12, 18}, {15, 16, 28}
# Afterwards what was learned of the devices is forgotten.
GONE = "call nvmlDeviceGetCount_v2 9"
# Without these calls nothing is known of any device, or of this one.
OF_DRIVER = {"nvmlInitWithFlags", "nvmlDeviceGetCount_v2"}
OF_DEVICE = {"nvmlDeviceGetHandleByIndex_v2 1", "nvmlDeviceGetUUID 1"}
ASKED = (
    "nvmlDeviceGetTemperature 1",
    "nvmlDeviceGetMemoryInfo_v2 1",
    "nvmlDeviceGetFieldValues 1",
    "nvmlDeviceGetMigMode 1",
    "nvmlDeviceGetComputeRunningProcesses_v3 1",
    "nvmlDeviceGetSupportedEventTypes 1",
    "nvmlEventSetCreate",
    "nvmlDeviceRegisterEvents 1",
    "nvmlEventSetWait_v2 1",
)
SAMPLED = (
    "nvmlGpmQueryDeviceSupport 1",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleGet 1",
    "nvmlGpmMetricsGet 1",
    "nvmlDeviceGetFieldValues 1",
)


@pytest.fixture(params=some(["gpm.Gpm()", "nvml.NvidiaGpus(processes=2)"]))
def collector(request: pytest.FixtureRequest) -> str:
    """Return the collector that is tried."""
    return str(request.param)


@pytest.fixture
def fleet(nvml_library: Path, tmp_path: Path, collector: str) -> Iterator[Gpus]:
    """Return two GPUs that the collector has read."""
    with fake_gpus(nvml_library, tmp_path, collector=collector) as start:
        yield start(2)


def calls(collector: str) -> tuple[str, ...]:
    own = SAMPLED if collector.startswith("gpm") else ASKED
    return (*sorted(OF_DRIVER), *sorted(OF_DEVICE), *own)


def test_every_code_of_every_call_is_expected(fleet: Gpus, collector: str) -> None:
    """No code is unforeseen or costs another device, and all is read again."""
    whole = 9 if collector.startswith("gpm") else FIGURES

    def settled() -> bool:
        fleet.order(GONE)
        fleet.poll()
        fleet.order()
        fleet.poll()
        page = fleet.poll()["page"]
        return len(of(page, 0)) == len(of(page, 1)) == whole

    for call in calls(collector):
        assert settled(), f"before {call}"
        for code in CODES:
            # At the start, when all is asked for, and then in passing.
            fleet.order(GONE)
            fleet.poll()
            fleet.order(f"call {call} {code}")
            for _ in range(2):
                state = fleet.poll()
            what = f"{call} {code}: {state['reason']} {state['message']}"
            assert state["reason"] != "error", what
            alone = " " in call and code not in DRIVER
            assert not alone or len(of(state["page"], 0)) == whole, what
            if code in LOST and call in OF_DEVICE and whole == FIGURES:
                assert of(state["page"], 1) == {"jaxmon_accelerator_up": 0}, what
            assert settled(), f"after {what}"


def test_every_code_is_in_the_list() -> None:
    """No code that pynvml knows is left out here."""
    import pynvml

    known = {
        value
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and isinstance(value, int)
    }
    assert known <= set(CODES)
