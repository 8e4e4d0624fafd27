"""TPU chips on the PCI bus."""

from pathlib import Path

import pytest

from jaxmon.host import tpus
from tests.fakes.tpu.hosts import Host, pci
from tests.fakes.tpu.shapes import GENERATIONS


NAMES = {**{name: f"TPU {name}" for name in GENERATIONS}, "7x": "TPU7x"}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_chips_of_each_generation(tmp_path: Path, generation: str) -> None:
    """Model, cores and node of each chip; other devices of Google are none."""
    with Host(tmp_path, generation):
        found = tpus.find(tmp_path)
    _, _, per_chip, chips, _ = GENERATIONS[generation]
    accel = generation in ("v2", "v3", "v4")
    assert [chip.uuid for chip in found] == [
        f"TPU-0000:00:{index + 4:02x}.0" for index in range(chips)
    ]
    assert [chip.index for chip in found] == list(range(chips))
    assert {chip.model.name for chip in found} == {NAMES[generation]}
    assert {chip.model.cores for chip in found} == {per_chip}
    assert [chip.node for chip in found] == [
        f"/dev/accel{index}" if accel else f"/dev/vfio/{index + 7}"
        for index in range(chips)
    ]


def test_chips_are_in_the_order_of_their_nodes(tmp_path: Path) -> None:
    """Group 9 comes before group 10, whatever the addresses."""
    with Host(tmp_path):
        pass
    for address, group in (("0000:00:05.0", 10), ("0000:00:06.0", 9)):
        pci(tmp_path, address, device="0x006f")
        link = tmp_path / "sys/bus/pci/devices" / address / "iommu_group"
        link.symlink_to(f"../iommu_groups/{group}")
    assert [chip.node for chip in tpus.find(tmp_path)] == [
        "/dev/vfio/9",
        "/dev/vfio/10",
    ]


def test_driver_of_an_accelerator_names_the_node(tmp_path: Path) -> None:
    """Where the kernel says which node it made of a device, that counts."""
    with Host(tmp_path):
        pass
    pci(tmp_path, "0000:00:05.0", device="0x0063")
    (tmp_path / "sys/bus/pci/devices/0000:00:05.0/accel/accel3").mkdir(parents=True)
    assert [chip.node for chip in tpus.find(tmp_path)] == ["/dev/accel3"]


def test_cores_that_are_functions_of_a_device_are_one_chip(tmp_path: Path) -> None:
    """Only chips with two cores can have two functions."""
    with Host(tmp_path):
        pass
    for function in range(2):
        pci(tmp_path, f"0000:00:05.{function}", device="0x0076")
        pci(tmp_path, f"0000:00:06.{function}", device="0x0063")
    assert [chip.pci_bus_id for chip in tpus.find(tmp_path)] == [
        "0000:00:05.0",
        "0000:00:06.0",
        "0000:00:06.1",
    ]


def test_odd_files_are_no_chips(tmp_path: Path) -> None:
    """A device without files, with binary ones, or of a later generation is skipped."""
    assert tpus.find(tmp_path) == []
    with Host(tmp_path):
        pass
    devices = tmp_path / "sys/bus/pci/devices"
    (devices / "0000:00:03.0").mkdir()
    (devices / "0000:00:04.0").mkdir()
    (devices / "0000:00:04.0/vendor").write_bytes(b"\xff\xfe")
    pci(tmp_path, "0000:00:05.0", device="0x0fff")
    assert tpus.find(tmp_path) == []
