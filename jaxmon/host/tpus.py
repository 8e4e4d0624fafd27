"""
Discovers TPU chips on the PCI bus, by which sidecar and agents identify them, without
calling a driver or opening a chip.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


ROOT = Path("/")

_GOOGLE = "0x1ae0"
_MOST_CHIPS = 64
_NOT_A_NUMBER = 1 << 30


class Model(NamedTuple):
    """A generation of TPUs: Google's name, devices per chip, whether through VFIO."""

    name: str
    cores: int
    vfio: bool = True


_MODELS = {
    "0x005e": Model("TPU v4", 1, vfio=False),
    "0x0063": Model("TPU v5e", 1),
    "0x0062": Model("TPU v5p", 1),
    "0x006f": Model("TPU v6e", 1),
    "0x0076": Model("TPU7x", 2),
}
# One device id, distinguished by the id of the board.
_FIRST_MODELS = {
    ("0x0027", "0x004e"): Model("TPU v2", 2, vfio=False),
    ("0x0027", "0x004f"): Model("TPU v3", 2, vfio=False),
}


@dataclass(frozen=True, slots=True)
class Chip:
    """
    A TPU chip: its *uuid* is ``TPU-`` and the address, for it has no serial number;
    *index* counts in the order of nodes, as the runtime does; *pci_bus_id* is that of
    the first function; *node* is what a program opens, ``""`` if unknown.
    """

    uuid: str
    index: int
    model: Model
    pci_bus_id: str
    node: str


def find(root: Path = ROOT) -> list[Chip]:
    """Return the chips in the order of their nodes; reads some hundred small files."""
    found: dict[str, tuple[Model, str, str]] = {}
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        model = _model(device)
        if model is None or len(found) == _MOST_CHIPS:
            continue
        # The cores of a chip may be functions of one device.
        slot, _, _ = device.name.partition(".")
        key = slot if model.cores > 1 else device.name
        found.setdefault(key, (model, device.name, _node(device, vfio=model.vfio)))
    ordered = sorted(found.values(), key=lambda chip: (_number(chip[2]), chip[1]))
    return [
        Chip(f"TPU-{address}", index, model, address, node or _accel(root, index))
        for index, (model, address, node) in enumerate(ordered)
    ]


NONE = ("no_devices", "no TPU found on this host's PCI bus")
"""Reason and message of a host without chips."""

ADDRESS, PORTS = "TPU_RUNTIME_METRICS_ADDRESS", "TPU_RUNTIME_METRICS_PORTS"
PRIMARY_PORT = "TPU_RUNTIME_PRIMARY_METRIC_PORT"


def is_configured(environ: Mapping[str, str]) -> bool:
    """Return whether variables may say where runtimes serve metrics."""
    return any(name in environ for name in (ADDRESS, PORTS, PRIMARY_PORT))


def owners(root: Path, nodes: frozenset[str]) -> dict[str, int]:
    """
    Return the process that has each of *nodes* open, as far as permitted; scans the
    files of all processes: tens of milliseconds.
    """
    found: dict[str, int] = {}
    for process in (root / "proc").glob("[0-9]*"):
        try:
            files = list((process / "fd").iterdir())
        except OSError:  # ended meanwhile, or another user's
            continue
        for file in files:
            with suppress(OSError):
                if (target := str(file.readlink())) in nodes:
                    pid = int(process.name)
                    # Of a family of processes that share it: the first.
                    found[target] = min(found.get(target, pid), pid)
    return found


def _model(device: Path) -> Model | None:
    try:
        if (device / "vendor").read_text().strip() != _GOOGLE:
            return None
        kind = (device / "device").read_text().strip()
        if kind in _MODELS:
            return _MODELS[kind]
        board = (device / "subsystem_device").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return _FIRST_MODELS.get((kind, board))


def _node(device: Path, *, vfio: bool) -> str:
    for node in sorted((device / "accel").glob("accel*")):
        if re.fullmatch(r"accel\d+", node.name):
            return f"/dev/{node.name}"
    with suppress(OSError):
        group = (device / "iommu_group").readlink().name if vfio else ""
        return f"/dev/vfio/{group}" if group.isdecimal() else ""
    return ""


def _accel(root: Path, index: int) -> str:
    """Return the node of a chip that reports none, in the order of addresses."""
    node = f"/dev/accel{index}"
    return node if (root / node.lstrip("/")).exists() else ""


def _number(node: str) -> int:
    digits = re.search(r"\d+$", node)
    return int(digits[0]) if digits else _NOT_A_NUMBER
