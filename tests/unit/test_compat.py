"""Figures again, under the names, labels and units of dcgm-exporter."""

import re
from collections.abc import Iterable

import pytest

from jaxmon import catalog
from jaxmon.catalog import BY_NAME
from jaxmon.exposition.encode import encode
from jaxmon.exposition.families import Family, gauge
from jaxmon.exposition.parse import parse, to_family
from jaxmon_exporter.dcgm_fields import FOREIGN, DcgmNames
from tests.fakes.nvml import pages
from tests.helpers.processes import PRODUCT, ROOT


# What dcgm-exporter 4.8 collects unless told otherwise, kind and unit as there.
DEFAULT_SET = {
    "DCGM_FI_DEV_SM_CLOCK": ("gauge", "MHz"),
    "DCGM_FI_DEV_MEM_CLOCK": ("gauge", "MHz"),
    "DCGM_FI_DEV_MEMORY_TEMP": ("gauge", "C"),
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", "C"),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", "W"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("counter", "mJ"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("counter", ""),
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", "%"),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gauge", "%"),
    "DCGM_FI_DEV_ENC_UTIL": ("gauge", "%"),
    "DCGM_FI_DEV_DEC_UTIL": ("gauge", "%"),
    "DCGM_FI_DEV_XID_ERRORS": ("gauge", ""),
    "DCGM_FI_DEV_FB_FREE": ("gauge", "MiB"),
    "DCGM_FI_DEV_FB_USED": ("gauge", "MiB"),
    "DCGM_FI_DEV_FB_RESERVED": ("gauge", "MiB"),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": ("counter", "KiB"),
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": ("gauge", ""),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("counter", ""),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("counter", ""),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("gauge", ""),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gauge", ""),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gauge", ""),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("gauge", ""),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("gauge", ""),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("gauge", ""),
}
GPU_0 = "GPU-5f0c9d2e-1a2b-3c4d-5e6f-000000000000"
LABELS = (
    f'gpu="0",UUID="{GPU_0}",pci_bus_id="00000000:1A:00.0",device="nvidia0",'
    'modelName="NVIDIA H100 80GB HBM3",Hostname="node-1",'
    'DCGM_FI_DRIVER_VERSION="580.65.06"'
)


def reviewed(profile: str) -> list[Family]:
    """Return what the NVML collector reads from a kind of GPU."""
    text = (pages.REVIEWED / f"{profile}.txt").read_text()
    return [to_family(family) for family in parse(text)]


def lines(found: Iterable[Family]) -> list[str]:
    """Return the samples that *found* gets on a page."""
    page = encode(DcgmNames("node-1").families(list(found))).decode()
    return [line for line in page.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("name", DEFAULT_SET)
def test_default_set_is_here(name: str) -> None:
    """Each name of the default set is served, in its unit."""
    kind, unit = DEFAULT_SET[name]
    assert FOREIGN[name].kind == kind
    assert re.search(rf"\bin {re.escape(unit)}\W", FOREIGN[name].help) or not unit


def test_h100_in_names_and_units_of_dcgm_exporter() -> None:
    """All that NVML reports about an H100 is there, label for label, in its unit."""
    found = [line for line in lines(reviewed("h100")) if 'gpu="0"' in line]
    assert found == [
        f"DCGM_FI_{name}{{{LABELS}{more}}} {value}"
        for name, more, value in (
            ("DEV_SM_CLOCK", "", "1965"),
            ("DEV_MEM_CLOCK", "", "2619"),
            ("DEV_MEMORY_TEMP", "", "55"),
            ("DEV_GPU_TEMP", "", "40"),
            ("DEV_POWER_USAGE", "", "123.5"),
            ("DEV_TOTAL_ENERGY_CONSUMPTION", "", "1234567000"),
            ("DEV_PCIE_REPLAY_COUNTER", "", "3"),
            ("DEV_GPU_UTIL", "", "37"),
            ("DEV_MEM_COPY_UTIL", "", "11"),
            ("DEV_ENC_UTIL", "", "0"),
            ("DEV_DEC_UTIL", "", "7"),
            ("DEV_FB_FREE", "", "78336"),
            ("DEV_FB_USED", "", "3072"),
            ("DEV_FB_RESERVED", "", "512"),
            ("DEV_NVLINK_BANDWIDTH_TOTAL", "", "11000000000.0"),
            ("DEV_UNCORRECTABLE_REMAPPED_ROWS", "", "1"),
            ("DEV_CORRECTABLE_REMAPPED_ROWS", "", "2"),
            ("DEV_ROW_REMAP_FAILURE", "", "0"),
            ("DEV_ECC_SBE_VOL_TOTAL", "", "12"),
            ("DEV_ECC_DBE_VOL_TOTAL", "", "0"),
            ("DEV_XID_ERRORS", ',err_code="0",err_msg="No Error"', "0.0"),
            ("DEV_VGPU_LICENSE_STATUS", "", "0.0"),
        )
    ]


def test_every_name_has_a_figure_once_all_collectors_tell() -> None:
    """With NVML and GPM together no name that we promise stays without a series."""
    uuid = GPU_0
    gpm = [
        gauge(metric, 0.25, uuid)
        for metric in catalog.METRICS
        if metric.group == "NVIDIA GPU activity"
    ]
    families = DcgmNames("node-1").families([*reviewed("h100"), *gpm])
    assert {family.metric.name for family in families} == set(FOREIGN)
    page = encode(families).decode()
    assert f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{LABELS}}} 0.25\n" in page
    assert f"DCGM_FI_PROF_PCIE_RX_BYTES{{{LABELS}}} 0.25\n" in page


@pytest.mark.parametrize("profile", ["h100", "h200", "b200", "a100", "t4", "v100"])
def test_no_series_comes_twice(profile: str) -> None:
    """Whatever the GPU, a page names each series once and holds no foreign label."""
    names = [line.rpartition(" ")[0] for line in lines(reviewed(profile))]
    assert names
    assert len(set(names)) == len(names)


def test_instances_have_the_labels_of_their_gpu_and_their_own() -> None:
    """A MIG device shows as part of its GPU, by profile and number."""
    mig = "MIG-7a3e5c10-1a2b-3c4d-5e6f-000000000003"
    activity = gauge(catalog.GPU_SM_ACTIVE_RATIO, 0.5, mig)
    found = [line for line in lines([*reviewed("a100"), activity]) if "GPU_I" in line]
    part = (
        f'gpu="0",UUID="{GPU_0}",pci_bus_id="00000000:1A:00.0",device="nvidia0",'
        'modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="1g.5gb",GPU_I_ID="7",'
        'Hostname="node-1",DCGM_FI_DRIVER_VERSION="550.90.07"'
    )
    assert f"DCGM_FI_DEV_FB_USED{{{part}}} 1024" in found
    assert f"DCGM_FI_PROF_SM_ACTIVE{{{part}}} 0.5" in found


def test_last_xid_is_the_latest_one() -> None:
    """The gauge shows the Xid error that came last, and what it means."""
    xids = [
        gauge(catalog.GPU_XID_LAST_TIMESTAMP_SECONDS, time, GPU_0, xid)
        for xid, time in (("79", 1000.0), ("48", 2000.0), ("31", 500.0))
    ]
    found = [line for line in lines([*reviewed("h100"), *xids]) if "_XID_" in line]
    assert found[0] == (
        f'DCGM_FI_DEV_XID_ERRORS{{{LABELS},err_code="48",'
        'err_msg="Double-bit ECC error"} 48.0'
    )


def test_license_is_a_virtual_gpus() -> None:
    """1 with a license; a GPU that does not answer has no status."""
    licensed = gauge(catalog.GPU_VGPU_LICENSED, 1, GPU_0)
    page = lines([*reviewed("h100"), licensed])
    assert f"DCGM_FI_DEV_VGPU_LICENSE_STATUS{{{LABELS}}} 1" in page
    up = catalog.ACCELERATOR_UP.name
    lost = [one for one in reviewed("h100") if one.metric.name != up]
    page = lines([*lost, gauge(catalog.ACCELERATOR_UP, 0, GPU_0)])
    assert not any("LICENSE" in line for line in page)


def test_half_a_sum_is_no_sum() -> None:
    """A total of two directions is left out while one is not known."""
    sent = catalog.GPU_NVLINK_TRANSMIT_BYTES.name
    found = [one for one in reviewed("h100") if one.metric.name != sent]
    assert not any("NVLINK" in line for line in lines(found))


def test_only_nvidias_accelerators_have_such_names() -> None:
    """A TPU has no series of dcgm-exporter, nor has a GPU without identity."""
    tpu = gauge(catalog.ACCELERATOR_INFO, 1, "tpu-0", 0, "google", "v5e", "", "")
    used = catalog.ACCELERATOR_MEMORY_USED_BYTES
    assert lines([tpu, gauge(used, 1, "tpu-0"), gauge(used, 1, GPU_0)]) == []


def test_foreign_names_stay_out_of_what_is_ours() -> None:
    """The names are no metrics of ours, and nothing that we generate uses them."""
    assert all(name.startswith("DCGM_FI_") for name in FOREIGN)
    assert not FOREIGN.keys() & BY_NAME.keys()
    for folder in ("alerts", "dashboards", "runbooks"):
        for path in (ROOT / folder).glob("*.*"):
            assert "DCGM_FI_" not in path.read_text(), path


def test_no_other_module_makes_metrics_outside_the_catalogue() -> None:
    """Only DCGM's fields have own names; parse passes on those of other pages."""
    makers = {
        path.name
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        if path.parent != ROOT / "jaxmon" / "catalog"
        if re.search(r"(?<![\w.])Metric\(", path.read_text())
    }
    assert makers == {"dcgm_fields.py", "load.py", "parse.py"}


def test_names_follow_the_devices() -> None:
    """What is kept from page to page ends when a device is another one."""
    names = DcgmNames("node-1")
    used = gauge(catalog.ACCELERATOR_MEMORY_USED_BYTES, 1 << 30, GPU_0)

    def page(driver: str) -> str:
        info = gauge(
            catalog.ACCELERATOR_INFO, 1, GPU_0, 0, "nvidia", "H100", driver, "0000:1a:0"
        )
        return encode(names.families([info, used])).decode()

    for driver in ("570", "580", "570"):
        assert f'DCGM_FI_DRIVER_VERSION="{driver}"}} 1024\n' in page(driver)
    assert names.families([used]) == []
